//! What is not settled, or not as it was charged: forgotten, exempt, only tried, changed or given up.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{Request, StatusCode};
use tokio::sync::Semaphore;
use tollgate::{
    ChargeHandle, Limiter, MemoryStore, Policy, PolicyMode, Quota, Rate, RateLimitLayer, Rule, key,
};
use tower::{Layer, ServiceExt, service_fn};

use super::settle::{ann, settled, settling, units};
use super::{Place, YEAR, ask, get_as, left, left_by, user};
use crate::support::{clocked, within};

on_both_stores! {
    a_client_that_goes_away_keeps_its_charge,
    what_is_forgotten_is_not_given_back,
    a_reset_voids_what_was_charged_before_and_nothing_else,
    a_log_knows_what_another_instance_has_reset,
    what_is_off_or_exempt_has_nothing_to_settle,
    a_tried_policy_is_settled_by_what_it_was_charged,
    what_a_tried_policy_was_not_charged_is_not_given_back,
    a_quota_that_has_changed_is_settled_all_the_same,
}

async fn a_client_that_goes_away_keeps_its_charge(place: &Place) {
    let policy = units(100, 10).give_back_on(|_| true);
    let layer = RateLimitLayer::with_policies(place.store(), [policy]).charge_extension(true);
    let gate = Arc::new(Semaphore::new(0));
    let (entered, tallies) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let service = {
        let (gate, entered, tallies) = (Arc::clone(&gate), Arc::clone(&entered), Arc::clone(&tallies));
        layer.layer(service_fn(move |request: Request<Body>| {
            let (gate, entered) = (Arc::clone(&gate), Arc::clone(&entered));
            let takes_tally = tallies.load(Ordering::SeqCst) > 0;
            async move {
                let charge: &ChargeHandle = request.extensions().get().expect("it is set");
                let mut tally = takes_tally.then(|| charge.tally("units"));
                if let Some(tally) = &mut tally {
                    tally.add(4);
                }
                entered.add_permits(1);
                gate.acquire().await.expect("it stays open").forget();
                Ok::<_, Infallible>(Response::new(Body::empty()))
            }
        }))
    };
    for (takes_tally, expected) in [(0, 90), (1, 86)] {
        tallies.store(takes_tally, Ordering::SeqCst);
        let request = tokio::spawn(service.clone().oneshot(ann()));
        within(entered.acquire()).await.expect("it stays open").forget();
        request.abort();
        request.await.expect_err("it was given up");
        // A tally settles what it has counted until then.
        assert_eq!(settled(&layer, "units", "ann").await, expected);
    }
}

async fn what_is_forgotten_is_not_given_back(place: &Place) {
    let limiter = Limiter::new(place.store(), Quota::per_hour(100)).name("units");
    let first = limiter.reserve("ann", 10).await.expect("there is room");
    limiter.reset("ann").await.expect("done");
    first.settle("units", 3);
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(limiter.peek("ann").await.remaining(), Some(100));
    assert!(place.names().await.is_empty(), "no state comes of it");

    // And never another's units.
    let first = limiter.reserve("ann", 10).await.expect("there is room");
    let second = loop {
        limiter.reset("ann").await.expect("done");
        let second = limiter.reserve("ann", 2).await.expect("there is room");
        if second.decision().stamp() != first.decision().stamp() {
            break second;
        }
    };
    first.give_back();
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(limiter.peek("ann").await.remaining(), Some(98));
    second.give_back();
    second.give_back();
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(limiter.peek("ann").await.remaining(), Some(100));
}

async fn a_reset_voids_what_was_charged_before_and_nothing_else(place: &Place) {
    for quota in [
        Quota::new(10, YEAR),
        Quota::new(10, YEAR).slots(2),
        Quota::new(10, YEAR).sliding_counter(),
        Quota::new(10, YEAR).fixed_window(),
        Quota::token_bucket(Rate::per_day(1), 10),
    ] {
        let limiter = Limiter::new(place.store(), quota);
        let reserve = async |key: &str, cost| limiter.reserve(key, cost).await.expect("there is room");
        let left = async |key: &str| {
            assert_eq!(limiter.shutdown().await, 0);
            limiter.peek(key).await.remaining()
        };
        let (first, second, third) = (
            reserve("ann", 2).await,
            reserve("ann", 2).await,
            reserve("ann", 1).await,
        );
        let other = reserve("ben", 5).await;
        // One with a deadline of its own has the same counters.
        let hasty = limiter.clone().deadline(Duration::from_secs(9));
        hasty.reset("ann").await.expect("done");
        let since = reserve("ann", 7).await;
        first.give_back();
        second.give_back_now().await.expect("nothing to do");
        assert!(third.settle(third.policies().next().expect("one").as_str(), 0));
        assert_eq!(left("ann").await, Some(3), "{quota}");
        since.give_back();
        other.give_back();
        assert_eq!(left("ann").await, Some(10), "{quota}");
        assert_eq!(left("ben").await, Some(10), "{quota}");
    }

    // So it is for those of a layer, which its own limiter resets.
    let quota = Quota::new(10, YEAR).slots(2);
    let layer = RateLimitLayer::new(place.store(), quota, user)
        .name("layer")
        .charge_extension(true);
    let (charges, limiter) = (Arc::new(Mutex::new(Vec::new())), layer.limiter());
    let service = {
        let charges = Arc::clone(&charges);
        layer.layer(service_fn(move |request: Request<Body>| {
            let charge: &ChargeHandle = request.extensions().get().expect("it is set");
            charges.lock().expect("not poisoned").push(charge.clone());
            async { Ok::<_, Infallible>(Response::new(Body::empty())) }
        }))
    };
    let _ = service.clone().oneshot(ann()).await;
    limiter.reset("ann").await.expect("done");
    let _ = service.oneshot(ann()).await;
    let charges = std::mem::take(&mut *charges.lock().expect("not poisoned"));
    for (charge, expected) in charges.iter().zip([9, 10]) {
        charge.give_back();
        assert_eq!(settled(&layer, "layer", "ann").await, expected);
    }
}

async fn a_log_knows_what_another_instance_has_reset(place: &Place) {
    let quota = Quota::per_hour(10);
    let (limiter, other) = (
        Limiter::new(place.store(), quota),
        Limiter::new(place.store(), quota),
    );
    let first = limiter.reserve("ann", 5).await.expect("there is room");
    let since = loop {
        other.reset("ann").await.expect("done");
        let since = limiter.reserve("ann", 7).await.expect("there is room");
        if since.decision().stamp() != first.decision().stamp() {
            break since;
        }
    };
    first.give_back();
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(limiter.peek("ann").await.remaining(), Some(3));
    since.give_back();
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(limiter.peek("ann").await.remaining(), Some(10));
}

async fn what_is_off_or_exempt_has_nothing_to_settle(place: &Place) {
    let policies = [
        units(100, 10),
        Policy::new("off", Quota::per_hour(9), user).mode(PolicyMode::Off),
        Policy::new("skipped", Quota::per_hour(9), user).skip_when(Rule::any()),
        Policy::new("free", Quota::unlimited(), user),
    ];
    let layer = RateLimitLayer::with_policies(place.store(), policies)
        .charge_extension(true)
        .skip_when(|request: &http::request::Parts| request.uri.path() == "/free/5");
    let app = settling(&layer);
    for policy in ["off", "skipped", "free", "none"] {
        let reply = ask(&app, get_as("ann", &format!("/{policy}/5"))).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (StatusCode::OK, "false"),
            "{policy}"
        );
    }
    // One of the requests was exempt.
    assert_eq!(settled(&layer, "units", "ann").await, 70);
    assert_eq!(place.keys().await, 1);
    // It was on when the request was charged.
    let limiter = layer.limiter();
    let charge = limiter.reserve("ben", 5).await.expect("there is room");
    layer
        .handle("units")
        .expect("it is there")
        .set_mode(PolicyMode::Off);
    assert!(charge.settle("units", 1));
    layer
        .handle("units")
        .expect("it is there")
        .set_mode(PolicyMode::Enforce);
    assert_eq!(settled(&layer, "units", "ben").await, 99);
}

async fn a_tried_policy_is_settled_by_what_it_was_charged(place: &Place) {
    let tried = Policy::new("tried", Quota::per_hour(15), key::Global).mode(PolicyMode::Shadow);
    let limiter = Limiter::new(place.store(), Quota::per_hour(100))
        .name("units")
        .policy(tried);
    let lefts = async || {
        assert_eq!(limiter.shutdown().await, 0);
        let peeked = limiter.peek("ann").await;
        [left_by(&peeked, "units"), left_by(&peeked, "tried")]
    };
    let fits = limiter.reserve("ann", 10).await.expect("there is room");
    let does_not = limiter.reserve("ann", 10).await.expect("it is only tried");
    let nor_this = limiter.reserve("ann", 10).await.expect("it is only tried");
    assert_eq!(does_not.charged("tried"), Some(0));
    assert_eq!(does_not.charged("units"), Some(10));
    assert_eq!(lefts().await, [70, 5]);
    // What it was not charged is not given back.
    does_not.give_back();
    assert_eq!(lefts().await, [80, 5]);
    // And what it has really cost is charged, as by any other.
    assert!(nor_this.settle("tried", 2));
    assert_eq!(lefts().await, [80, 3]);
    assert!(fits.settle("tried", 4));
    assert_eq!(lefts().await, [80, 9]);
    assert!(fits.settle("units", 0));
    assert_eq!(lefts().await, [90, 9]);
}

async fn what_a_tried_policy_was_not_charged_is_not_given_back(place: &Place) {
    let tried =
        Policy::new("tried", Quota::new(1, YEAR).fixed_window(), key::Global).mode(PolicyMode::Shadow);
    let limiter = Limiter::new(place.store(), Quota::new(9, YEAR)).name("units");
    let limiter = limiter.policy(tried);
    let first = limiter.reserve("ann", 1).await.expect("there is room");
    for _ in 0..2 {
        let second = limiter.reserve("ann", 1).await.expect("a shadow stops nobody");
        assert_eq!(
            (second.charged("units"), second.charged("tried")),
            (Some(1), Some(0))
        );
        second.give_back_now().await.expect("done");
        let decision = limiter.peek("ann").await;
        assert_eq!((left_by(&decision, "units"), left_by(&decision, "tried")), (8, 0));
    }
    first.give_back_now().await.expect("done");
    let decision = limiter.peek("ann").await;
    assert_eq!((left_by(&decision, "units"), left_by(&decision, "tried")), (9, 1));
}

async fn a_quota_that_has_changed_is_settled_all_the_same(place: &Place) {
    let limiter = Limiter::new(place.store(), Quota::per_hour(100)).name("units");
    let units = limiter.handle("units").expect("it is there");
    let first = limiter.reserve("ann", 10).await.expect("there is room");
    let second = limiter.reserve("ann", 20).await.expect("there is room");
    units.set_quota(Quota::per_hour(50));
    first.settle("units", 1);
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(limiter.peek("ann").await.remaining(), Some(29));
    // Another window is another counter, and is left alone.
    units.set_quota(Quota::per_day(50));
    let third = limiter.reserve("ann", 5).await.expect("there is room");
    second.give_back();
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(limiter.peek("ann").await.remaining(), Some(45));
    units.set_quota(Quota::per_hour(50));
    assert_eq!(limiter.peek("ann").await.remaining(), Some(49));
    drop(third);
}

#[tokio::test]
async fn what_has_left_its_window_is_not_given_back() {
    let (clock, store) = clocked();
    let limiter = Limiter::new(store.clone(), Quota::per_minute(100)).name("units");
    let old = limiter.reserve("ann", 10).await.expect("there is room");
    clock.advance(Duration::from_secs(60));
    let new = limiter.reserve("ann", 5).await.expect("there is room");
    old.give_back();
    assert_eq!(limiter.peek("ann").await.remaining(), Some(95));
    new.settle("units", 4);
    assert_eq!(limiter.peek("ann").await.remaining(), Some(96));
}

#[tokio::test]
async fn a_charge_may_outlive_its_layer() {
    let store = MemoryStore::new();
    let layer = RateLimitLayer::with_policies(store.clone(), [units(100, 10)]).charge_extension(true);
    let charge = layer.limiter().reserve("ann", 10).await.expect("there is room");
    drop(layer);
    assert!(charge.settle("units", 1));
    let layer = RateLimitLayer::with_policies(store, [units(100, 10)]);
    assert_eq!(left(&layer, "units", ann()).await, 99);
}
