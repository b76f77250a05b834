//! What requests really cost: given back or charged on top, once, by handlers and by responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use http::{Request, StatusCode};
use tollgate::{Algorithm, ChargeHandle, Limiter, Policy, Quota, RateLimitLayer, key};

use super::{Place, YEAR, ask, get_as, left, left_by, statuses, user};
use crate::support::by_every_algorithm;

on_both_stores! {
    a_handler_settles_down_and_up,
    settling_up_is_unconditional,
    a_charge_is_settled_once,
    what_nobody_settles_stays,
    policies_are_settled_one_by_one,
    by_every_algorithm_down_and_up,
    shutdown_flushes,
}

pub(super) fn units(limit: u64, cost: u64) -> Policy {
    Policy::new("units", Quota::per_hour(limit), user).cost(cost)
}

pub(super) fn ann() -> Request<Body> {
    get_as("ann", "/")
}

/// Settles what the path says: `/units/7`, and answers whether that was done.
pub(super) fn settling(layer: &RateLimitLayer) -> Router {
    let settle =
        async |charge: ChargeHandle,
               axum::extract::Path((policy, cost)): axum::extract::Path<(String, u64)>| {
            charge.settle(&policy, cost).to_string()
        };
    Router::new()
        .route("/{policy}/{cost}", any(settle))
        .route("/", any(async || "left as it is"))
        .layer(layer.clone())
}

/// What is left when all is settled.
pub(super) async fn settled(layer: &RateLimitLayer, policy: &str, user: &str) -> u64 {
    assert_eq!(layer.shutdown().await, 0);
    left(layer, policy, get_as(user, "/")).await
}

async fn a_handler_settles_down_and_up(place: &Place) {
    let layer = RateLimitLayer::with_policies(place.store(), [units(100, 10)]).charge_extension(true);
    let app = settling(&layer);
    for (real, expected) in [(10, 90), (4, 86), (0, 86), (25, 61), (11, 50), (9, 41)] {
        let reply = ask(&app, get_as("ann", &format!("/units/{real}"))).await;
        assert_eq!(reply.body, "true");
        assert_eq!(settled(&layer, "units", "ann").await, expected, "{real}");
    }
    // The headers tell what was known when the request was decided on.
    let reply = ask(&app, get_as("ben", "/units/1")).await;
    assert_eq!(reply.number("x-ratelimit-remaining"), 90);
    // Without the extension, the handler says what is missing.
    let app = settling(&layer.charge_extension(false));
    let reply = ask(&app, get_as("ben", "/units/1")).await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(reply.body.contains("charge_extension(true)"), "{}", reply.body);
}

async fn settling_up_is_unconditional(place: &Place) {
    let layer = RateLimitLayer::with_policies(place.store(), [units(100, 10)]).charge_extension(true);
    let app = settling(&layer);
    assert_eq!(
        ask(&app, get_as("ann", "/units/250")).await.status,
        StatusCode::OK
    );
    assert_eq!(settled(&layer, "units", "ann").await, 0);
    // What is too much counts against later ones: room for 10 is at 260 and no less.
    let api = layer.handle("units").expect("it is there");
    for (limit, expected) in [(100, 429), (259, 429), (260, 200), (260, 429)] {
        api.set_quota(Quota::per_hour(limit));
        assert_eq!(statuses(&app, 1, ann).await, [expected], "{limit}");
    }
}

async fn a_charge_is_settled_once(place: &Place) {
    let limiter = Limiter::new(place.store(), Quota::per_hour(100)).name("units");
    let used = async || {
        assert_eq!(limiter.shutdown().await, 0);
        100 - left_by(&limiter.peek("ann").await, "units")
    };
    let charge = limiter.reserve("ann", 10).await.expect("there is room");
    let clone = charge.clone();
    assert!(charge.settle("units", 4));
    for other in [&charge, &clone] {
        assert!(!other.settle("units", 0));
        other.give_back();
        let mut tally = other.tally("units");
        tally.add(50);
        drop(tally);
    }
    assert_eq!(used().await, 4);
    // The same charge twice over is no reason to settle another.
    let charge = limiter.reserve("ann", 10).await.expect("there is room");
    charge.give_back();
    charge.give_back();
    assert_eq!(used().await, 4);
    // Who has a tally has the say.
    let charge = limiter.reserve("ann", 10).await.expect("there is room");
    let mut tally = charge.tally("units");
    assert!(!charge.settle("units", 1));
    charge.give_back();
    assert_eq!(used().await, 14);
    tally.add(3);
    assert_eq!(tally.units(), 3);
    drop(tally);
    assert_eq!(used().await, 7);
    // By many at once.
    let charge = limiter.reserve("ann", 10).await.expect("there is room");
    let settled = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (charge, settled) = (charge.clone(), Arc::clone(&settled));
            tokio::spawn(async move {
                settled.fetch_add(usize::from(charge.settle("units", 5)), Ordering::SeqCst);
                charge.give_back();
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("it ends");
    }
    let used = used().await;
    let settled = settled.load(Ordering::SeqCst);
    // Whoever came first: to 5, or all of it back.
    assert_eq!(used, 7 + 5 * settled as u64);
}

async fn what_nobody_settles_stays(place: &Place) {
    let layer = RateLimitLayer::with_policies(place.store(), [units(100, 10)]).charge_extension(true);
    let app = settling(&layer);
    ask(&app, ann()).await;
    assert_eq!(ask(&app, get_as("ann", "/none/0")).await.body, "false");
    assert_eq!(settled(&layer, "units", "ann").await, 80);
}

async fn policies_are_settled_one_by_one(place: &Place) {
    let policies = [
        units(100, 10),
        Policy::new("requests", Quota::per_hour(9), user),
        Policy::new("all", Quota::per_hour(1_000), key::Global).cost(10),
    ];
    let layer = RateLimitLayer::with_policies(place.store(), policies).charge_extension(true);
    let app = settling(&layer);
    for (path, expected) in [
        ("/units/3", [97, 8, 990]),
        ("/all/40", [87, 7, 950]),
        ("/requests/0", [77, 7, 940]),
        ("/none/1", [67, 6, 930]),
    ] {
        ask(&app, get_as("ann", path)).await;
        let mut lefts = Vec::new();
        for policy in ["units", "requests", "all"] {
            lefts.push(settled(&layer, policy, "ann").await);
        }
        assert_eq!(lefts, expected, "{path}");
    }
    // All of them, but what is settled.
    let limiter = layer.limiter();
    let charge = limiter.reserve("bea", 5).await.expect("there is room");
    assert!(charge.settle("requests", 7));
    charge.give_back();
    assert_eq!(limiter.shutdown().await, 0);
    let peeked = limiter.peek("bea").await;
    let lefts: Vec<u64> = peeked
        .policies()
        .iter()
        .map(tollgate::PolicyDecision::remaining)
        .collect();
    assert_eq!(lefts, [100, 2, 1_000]);
}

async fn by_every_algorithm_down_and_up(place: &Place) {
    for (number, quota) in by_every_algorithm(20, YEAR).into_iter().enumerate() {
        let store = place.fresh(&format!("case-{number}")).await;
        let limiter = Limiter::new(store, quota).name("units");
        let first = limiter.reserve("ann", 8).await.expect("there is room");
        let second = limiter.reserve("ann", 6).await.expect("there is room");
        let third = limiter.reserve("ann", 1).await.expect("there is room");
        let left = async || {
            assert_eq!(limiter.shutdown().await, 0);
            left_by(&limiter.peek("ann").await, "units")
        };
        assert_eq!(left().await, 5, "{quota:?}");
        first.settle("units", 2);
        assert_eq!(left().await, 11, "{quota:?}");
        third.settle("units", 4);
        assert_eq!(left().await, 8, "{quota:?}");
        second.give_back();
        // What a bucket has refilled since is not given back: a little of a unit.
        let refills = quota.algorithm() == Some(Algorithm::TokenBucket);
        let left = left().await;
        assert!(left == 14 || refills && left == 13, "{quota:?}: {left}");
    }
}

async fn shutdown_flushes(place: &Place) {
    let policies = [
        units(100_000, 10),
        Policy::new("all", Quota::per_hour(1_000_000), key::Global).cost(10),
    ];
    let layer = RateLimitLayer::with_policies(place.store(), policies).charge_extension(true);
    let limiter = layer.limiter();
    let mut charges = Vec::new();
    for number in 0..300 {
        let user = (number % 7).to_string();
        charges.push(limiter.reserve(user.as_str(), 10).await.expect("there is room"));
    }
    // Down, up and back, faster than a store that is not in memory can be told.
    for (number, charge) in charges.into_iter().enumerate() {
        match number % 3 {
            0 => assert!(charge.settle("units", 4)),
            1 => assert!(charge.settle("units", 15)),
            _ => charge.give_back(),
        }
    }
    assert_eq!(layer.shutdown().await, 0);
    // As somebody else sees it, who has waited for nothing.
    let other = Limiter::new(place.another().await, Quota::per_hour(100_000))
        .name("units")
        .policy(Policy::new("all", Quota::per_hour(1_000_000), key::Global));
    let (mut of_units, mut of_all) = (0, 0);
    for user in 0..7 {
        let peeked = other.peek(user.to_string()).await;
        of_units += 100_000 - left_by(&peeked, "units");
        of_all += 1_000_000 - left_by(&peeked, "all");
    }
    assert_eq!(of_units, 100 * 4 + 100 * 15);
    // Of these only what was given back is settled.
    assert_eq!(of_all, 200 * 10);
}
