//! B21, R23: limits and modes that change while requests come, and what is counted stays.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use tollgate::{
    Decision, ExemptReason, Headers, Limiter, MemoryStore, Policy, PolicyHandle, PolicyMode, Quota, Quotas,
    Rate, RateLimitLayer, Source, key,
};

use super::{Decisions, Place, YEAR, ask, get_as, left, left_by, statuses, user};
use crate::support::{by_every_algorithm, clocked};

on_both_stores! {
    r23_a_raise_gives_room_at_once_however_much_was_denied,
    b21_no_denial_after_a_raise,
    b21_a_cut_and_a_raise_by_every_algorithm,
    a_cut_counts_what_was_admitted,
    modes_change_and_counts_stay,
    a_mode_can_be_what_a_policy_starts_with,
    one_of_several_policies_changes_alone,
    a_change_holds_for_all_clones,
    a_fixed_quota_becomes_a_function_and_back,
    another_window_counts_anew,
}

fn app(layer: &RateLimitLayer) -> Router {
    Router::new()
        .route("/", get(async || "hello"))
        .layer(layer.clone())
}

fn ann() -> http::Request<axum::body::Body> {
    get_as("ann", "/")
}

/// One policy, the app behind it, and what changes it.
fn one(place: &Place, limit: u64) -> (RateLimitLayer, Router, PolicyHandle) {
    let layer = RateLimitLayer::new(place.store(), Quota::per_hour(limit), user).name("api");
    let handle = layer.handle("api").expect("it is there");
    (layer.clone(), app(&layer), handle)
}

async fn r23_a_raise_gives_room_at_once_however_much_was_denied(place: &Place) {
    let (layer, app, api) = one(place, 3);
    assert_eq!(statuses(&app, 3, ann).await, [200; 3]);
    assert_eq!(statuses(&app, 100, ann).await, [429; 100]);
    api.set_quota(Quota::per_hour(8));
    assert_eq!(api.quota(), Some(Quota::per_hour(8)));
    assert_eq!(left(&layer, "api", ann()).await, 5);
    assert_eq!(statuses(&app, 7, ann).await, [200, 200, 200, 200, 200, 429, 429]);
}

async fn b21_no_denial_after_a_raise(place: &Place) {
    let (layer, app, api) = one(place, 10);
    assert_eq!(statuses(&app, 4, ann).await, [200; 4]);
    api.set_quota(Quota::per_hour(1_000));
    assert_eq!(ask(&app, ann()).await.number("x-ratelimit-remaining"), 995);
    api.set_quota(Quota::per_hour(2));
    assert_eq!(statuses(&app, 3, ann).await, [429; 3]);
    api.set_quota(Quota::per_hour(1_000));
    assert_eq!(ask(&app, ann()).await.number("x-ratelimit-remaining"), 994);
    assert_eq!(left(&layer, "api", ann()).await, 994);
}

async fn b21_a_cut_and_a_raise_by_every_algorithm(place: &Place) {
    let raised = by_every_algorithm(1_000, YEAR);
    let cut = by_every_algorithm(2, YEAR);
    for (number, quota) in by_every_algorithm(10, YEAR).into_iter().enumerate() {
        let store = place.fresh(&format!("case-{number}")).await;
        let limiter = Limiter::new(store, quota).name("api");
        let api = limiter.handle("api").expect("it is there");
        let check = async || limiter.check("ann").await;
        for remaining in (6..10).rev() {
            assert_eq!(left_by(&check().await, "api"), remaining, "{quota:?}");
        }
        api.set_quota(raised[number]);
        let decision = check().await;
        assert!(decision.is_allowed(), "{quota:?}: {decision:?}");
        api.set_quota(cut[number]);
        assert!(check().await.is_denied(), "{quota:?}");
        api.set_quota(raised[number]);
        for _ in 0..3 {
            assert!(check().await.is_allowed(), "{quota:?}");
        }
    }
}

#[tokio::test]
async fn b21_refill_goes_on_after_a_cut_and_a_raise() {
    let window = Duration::from_secs(20);
    let (clock, store) = clocked();
    let log = |limit| Quota::new(limit, window);
    let bucket = |limit| Quota::token_bucket(Rate::new(limit, window), limit);
    for quota in [&log as &dyn Fn(u64) -> Quota, &bucket] {
        let limiter = Limiter::new(store.clone(), quota(10)).name("api");
        let api = limiter.handle("api").expect("it is there");
        let check = async || limiter.check("ann").await;
        for _ in 0..4 {
            assert!(check().await.is_allowed());
        }
        api.set_quota(quota(1_000));
        assert!(check().await.is_allowed());
        api.set_quota(quota(2));
        let denied = check().await;
        let wait = denied.retry_after().expect("it says when to come back");
        assert!(wait <= window, "{wait:?}");
        // C3 under the limit of now.
        clock.advance(wait - Duration::from_millis(1));
        assert!(check().await.is_denied());
        clock.advance(Duration::from_millis(1));
        assert!(check().await.is_allowed());
        api.set_quota(quota(10));
        assert!(check().await.is_allowed());
        clock.advance(2 * window);
        assert_eq!(limiter.peek("ann").await.remaining(), Some(10));
    }
}

async fn a_cut_counts_what_was_admitted(place: &Place) {
    let (layer, app, api) = one(place, 10);
    assert_eq!(statuses(&app, 6, ann).await, [200; 6]);
    api.set_quota(Quota::per_hour(5));
    let denied = ask(&app, ann()).await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.number("x-ratelimit-limit"), 5);
    api.set_quota(Quota::per_hour(7));
    assert_eq!(statuses(&app, 2, ann).await, [200, 429]);
    // Nothing passes, and nothing is forgotten.
    api.set_quota(Quota::per_hour(0));
    let denied = ask(&app, ann()).await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.header("retry-after"), None);
    api.set_quota(Quota::per_hour(9));
    assert_eq!(left(&layer, "api", ann()).await, 2);
}

async fn modes_change_and_counts_stay(place: &Place) {
    let seen = Decisions::default();
    let layer = RateLimitLayer::new(place.store(), Quota::per_hour(5), user)
        .name("api")
        .headers(Headers::default().shadow(true))
        .on_decision(seen.clone());
    let api = layer.handle("api").expect("it is there");
    let app = app(&layer);
    assert_eq!(api.mode(), PolicyMode::Enforce);
    assert_eq!(statuses(&app, 3, ann).await, [200; 3]);

    // Counted while there is room, and passed all the same.
    api.set_mode(PolicyMode::Shadow);
    seen.take();
    for (remaining, violated) in [(1, false), (0, false), (0, true), (0, true)] {
        let reply = ask(&app, ann()).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.limit_fields(), ["x-ratelimit-shadow"]);
        let shadow = reply.header("x-ratelimit-shadow").expect("it is asked for");
        assert_eq!(shadow.ends_with(";denied"), violated, "{shadow}");
        let decision = seen.only();
        assert_eq!(left_by(&decision, "api"), remaining);
        assert_eq!(decision.policies()[0].is_violated(), violated);
        assert_eq!(decision.policies()[0].is_charged(), !violated);
    }

    // The kill switch: nothing is counted, nothing is said.
    api.set_mode(PolicyMode::Off);
    for _ in 0..3 {
        let reply = ask(&app, ann()).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.limit_fields(), [""; 0]);
        let decision = seen.only();
        assert_eq!(decision.source(), Source::Exempt);
        assert_eq!(decision.exemptions()[0].reason(), ExemptReason::Off);
    }
    assert_eq!(statuses(&app, 2, || get_as("ben", "/")).await, [200; 2]);

    // As full as it was; what passed while it was off is not there.
    api.set_mode(PolicyMode::Enforce);
    assert_eq!(ask(&app, ann()).await.status, StatusCode::TOO_MANY_REQUESTS);
    api.set_quota(Quota::per_hour(6));
    assert_eq!(statuses(&app, 2, ann).await, [200, 429]);
    assert_eq!(left(&layer, "api", get_as("ben", "/")).await, 6);
}

async fn a_mode_can_be_what_a_policy_starts_with(place: &Place) {
    for (mode, expected, keys) in [
        (PolicyMode::Off, [200; 3], 0),
        (PolicyMode::Shadow, [200; 3], 1),
        (PolicyMode::Enforce, [200, 429, 429], 2),
    ] {
        let policy = Policy::new(mode.as_str(), Quota::per_hour(1), user).mode(mode);
        let layer = RateLimitLayer::with_policies(place.store(), [policy]);
        assert_eq!(statuses(&app(&layer), 3, ann).await, expected, "{mode}");
        assert_eq!(
            layer.handle(mode.as_str()).map(|handle| handle.mode()),
            Some(mode)
        );
        assert_eq!(place.keys().await, keys, "{mode}");
    }
}

async fn one_of_several_policies_changes_alone(place: &Place) {
    let policies = [
        Policy::new("hour", Quota::per_hour(2), user),
        Policy::new("day", Quota::per_day(4), user),
    ];
    let layer = RateLimitLayer::with_policies(place.store(), policies);
    let (hour, day) = (
        layer.handle("hour").expect("one"),
        layer.handle("day").expect("one"),
    );
    assert!(layer.handle("week").is_none());
    let app = app(&layer);
    assert_eq!(statuses(&app, 3, ann).await, [200, 200, 429]);
    hour.set_mode(PolicyMode::Off);
    assert_eq!(statuses(&app, 3, ann).await, [200, 200, 429]);
    day.set_quota(Quota::per_day(5));
    assert_eq!(statuses(&app, 2, ann).await, [200, 429]);
    // The other one stops nobody while it is only tried, and goes on counting.
    day.set_mode(PolicyMode::Shadow);
    hour.set_mode(PolicyMode::Enforce);
    hour.set_quota(Quota::per_hour(4));
    assert_eq!(statuses(&app, 3, ann).await, [200, 200, 429]);
    day.set_mode(PolicyMode::Enforce);
    assert_eq!(left(&layer, "day", ann()).await, 0);
    assert_eq!(left(&layer, "hour", ann()).await, 0);
}

async fn a_change_holds_for_all_clones(place: &Place) {
    let policy = Policy::new("api", Quota::per_hour(1), user);
    let of_policy = policy.handle();
    let layer = RateLimitLayer::with_policies(place.store(), [policy]);
    let limiter = layer.limiter();
    let (first, second) = (app(&layer), app(&layer.clone()));
    assert_eq!(statuses(&first, 2, ann).await, [200, 429]);
    of_policy.set_quota(Quota::per_hour(2));
    assert_eq!(statuses(&second, 2, ann).await, [200, 429]);
    limiter.policies()[0].set_quota(Quota::per_hour(3));
    assert_eq!(statuses(&first, 2, ann).await, [200, 429]);
    assert_eq!(limiter.check("ann").await.limit(), Some(3));
    // What is made of the layer afterwards hears of it as well.
    let later = app(&layer.clone().headers(Headers::none()));
    limiter
        .handle("api")
        .expect("it is there")
        .set_mode(PolicyMode::Off);
    assert_eq!(statuses(&later, 3, ann).await, [200; 3]);
}

async fn a_fixed_quota_becomes_a_function_and_back(place: &Place) {
    let (_, app, api) = one(place, 1);
    assert_eq!(statuses(&app, 2, ann).await, [200, 429]);
    api.set_quota(Quotas::by("whatever", |request| match user(request).as_deref() {
        Some("ann") => Quota::per_hour(3),
        _ => Quota::per_hour(2),
    }));
    assert_eq!(api.quota(), None);
    assert_eq!(api.name().as_str(), "api");
    assert_eq!(statuses(&app, 3, ann).await, [200, 200, 429]);
    assert_eq!(statuses(&app, 3, || get_as("ben", "/")).await, [200, 200, 429]);
    api.set_quota(Quota::per_hour(4));
    assert_eq!(statuses(&app, 2, ann).await, [200, 429]);
    api.set_quota(Quota::unlimited());
    assert_eq!(statuses(&app, 3, ann).await, [200; 3]);
    api.set_quota(Quota::per_hour(4));
    assert_eq!(statuses(&app, 1, ann).await, [429]);
    assert_eq!(place.keys().await, 2);
}

async fn another_window_counts_anew(place: &Place) {
    let limiter = Limiter::new(place.store(), Quota::per_hour(2)).name("api");
    let api = limiter.handle("api").expect("it is there");
    let remaining = async || limiter.check("ann").await.remaining();
    assert_eq!(remaining().await, Some(1));
    api.set_quota(Quota::per_day(2));
    assert_eq!(remaining().await, Some(1));
    // And the one of before is where it was.
    api.set_quota(Quota::per_hour(2));
    assert_eq!(remaining().await, Some(0));
}

#[tokio::test]
async fn changes_under_traffic_deny_nobody_falsely() {
    let (_, store) = clocked();
    let layer = RateLimitLayer::new(store, Quota::per_hour(1_000), key::Global).name("api");
    let api = layer.handle("api").expect("it is there");
    let limiter = layer.limiter();
    let changes = tokio::spawn(async move {
        for number in 0..500 {
            // Never below what is used.
            api.set_quota(Quota::per_hour(1_000 + number % 2));
            api.set_mode([PolicyMode::Enforce, PolicyMode::Shadow][number as usize % 2]);
            tokio::task::yield_now().await;
        }
        api.set_mode(PolicyMode::Enforce);
    });
    for _ in 0..900 {
        let decision: Decision = limiter.check("all").await;
        assert!(decision.is_allowed(), "{decision:?}");
        tokio::task::yield_now().await;
    }
    changes.await.expect("it ends");
    assert_eq!(
        limiter.peek("all").await.policies()[0].limit() - 900,
        limiter.peek("all").await.remaining().expect("it leads")
    );
}

#[tokio::test]
async fn a_clone_in_another_mode_leaves_the_first_as_it_is() {
    let policy = Policy::new("api", Quota::per_hour(1), user);
    let handle = policy.handle();
    let tried = policy.clone().mode(PolicyMode::Off);
    assert_eq!(policy.handle().mode(), PolicyMode::Enforce);
    assert_eq!(tried.handle().mode(), PolicyMode::Off);
    let of = |policy: &Policy| {
        app(&RateLimitLayer::with_policies(
            MemoryStore::new(),
            [policy.clone()],
        ))
    };
    let ann = || get_as("ann", "/");
    assert_eq!(statuses(&of(&policy), 2, ann).await, [200, 429]);
    assert_eq!(statuses(&of(&tried), 2, ann).await, [200, 200]);
    // What a handle sets holds for all of them.
    handle.set_mode(PolicyMode::Shadow);
    assert_eq!(tried.handle().mode(), PolicyMode::Shadow);
    assert_eq!(statuses(&of(&policy), 2, ann).await, [200, 200]);
}
