//! C5, B19: several policies, one decision.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tollgate::store::Retry;
use tollgate::{Draft, Headers, Policy, PolicyMode, Quota, Quotas, RateLimitLayer, key};

use super::{Decisions, Place, ask, get_as, left, statuses, user};
use crate::support::within;

on_both_stores! {
    b19_what_any_policy_denies_is_charged_to_none,
    c5_exactly_what_both_limits_allow_under_concurrency,
    c5_one_over_another_under_concurrency,
    policies_of_one_key_share_no_counter,
    a_denial_names_all_that_are_violated,
    never_leads_a_denial,
    the_fewest_requests_lead_then_the_longest_reset,
    shadow_and_unlimited_never_lead,
    clients_are_told_all_policies,
}

pub(super) fn app(layer: &RateLimitLayer) -> Router {
    Router::new()
        .route("/", get(async || "hello"))
        .layer(layer.clone())
}

pub(super) fn ann() -> http::Request<axum::body::Body> {
    get_as("ann", "/")
}

/// So much an hour for each user.
pub(super) fn hourly(name: &str, limit: u64) -> Policy {
    Policy::new(name, Quota::per_hour(limit), user)
}

async fn b19_what_any_policy_denies_is_charged_to_none(place: &Place) {
    // The full one first, last and between.
    for order in [
        ["full", "half", "all"],
        ["half", "all", "full"],
        ["half", "full", "all"],
    ] {
        let store = place.fresh(&order.concat()).await;
        let policies = order.map(|name| match name {
            "full" => hourly(name, 3),
            "half" => hourly(name, 10),
            _ => Policy::new(name, Quota::per_day(1_000), key::Global),
        });
        let layer = RateLimitLayer::with_policies(store, policies);
        let app = app(&layer);
        assert_eq!(statuses(&app, 3, ann).await, [200; 3]);
        assert_eq!(statuses(&app, 50, ann).await, [429; 50]);
        assert_eq!(left(&layer, "half", ann()).await, 7, "{order:?}");
        assert_eq!(left(&layer, "all", ann()).await, 997, "{order:?}");
        assert_eq!(left(&layer, "full", ann()).await, 0, "{order:?}");
        // Others pass.
        assert_eq!(ask(&app, get_as("ben", "/")).await.status, StatusCode::OK);
        assert_eq!(left(&layer, "all", ann()).await, 996, "{order:?}");
    }
}

/// Runs so many requests of each of 64 tasks: how many of each user's have passed.
async fn passed(app: Router, users: usize, each: usize) -> Vec<u64> {
    const TASKS: usize = 64;
    let start = Arc::new(Barrier::new(TASKS));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (app, start, user) = (app.clone(), Arc::clone(&start), task % users);
        tasks.spawn(async move {
            start.wait().await;
            let statuses = statuses(&app, each, || get_as(&user.to_string(), "/")).await;
            let passed = statuses.iter().filter(|&&status| status == 200).count();
            (user, passed as u64)
        });
    }
    let mut of_users = vec![0; users];
    for (user, passed) in within(tasks.join_all()).await {
        of_users[user] += passed;
    }
    of_users
}

async fn c5_exactly_what_both_limits_allow_under_concurrency(place: &Place) {
    // 48 requests each, of which 30 would fit; all together 100.
    let all = Policy::new("all", Quota::per_hour(100), key::Global);
    let layer = RateLimitLayer::with_policies(place.store(), [hourly("user", 30), all]);
    let passed = passed(app(&layer), 4, 3).await;
    assert_eq!(passed.iter().sum::<u64>(), 100, "{passed:?}");
    assert!(passed.iter().all(|&passed| passed <= 30), "{passed:?}");
    for (user, passed) in passed.iter().enumerate() {
        // Each is charged exactly for what has passed, whatever the other policy has denied.
        let of_user = || get_as(&user.to_string(), "/");
        assert_eq!(left(&layer, "user", of_user()).await, 30 - passed);
    }
    assert_eq!(left(&layer, "all", ann()).await, 0);
}

async fn c5_one_over_another_under_concurrency(place: &Place) {
    // The narrower one comes last and is the same for all.
    let policies = [hourly("wide", 150), hourly("narrow", 100)];
    let layer = RateLimitLayer::with_policies(place.store(), policies);
    assert_eq!(passed(app(&layer), 1, 3).await, [100]);
    assert_eq!(left(&layer, "wide", get_as("0", "/")).await, 50);
}

async fn policies_of_one_key_share_no_counter(place: &Place) {
    // Quota and key are the same too.
    let policies = [hourly("one", 5), hourly("other", 5), hourly("third", 9)];
    let layer = RateLimitLayer::with_policies(place.store(), policies);
    assert_eq!(statuses(&app(&layer), 2, ann).await, [200; 2]);
    for (policy, expected) in [("one", 3), ("other", 3), ("third", 7)] {
        assert_eq!(left(&layer, policy, ann()).await, expected, "{policy}");
    }
    assert_eq!(place.keys().await, 3);
    layer
        .limiter()
        .only("one")
        .expect("it is there")
        .reset("ann")
        .await
        .expect("done");
    assert_eq!(left(&layer, "one", ann()).await, 5);
    assert_eq!(left(&layer, "other", ann()).await, 3);
}

async fn a_denial_names_all_that_are_violated(place: &Place) {
    let policies = [
        hourly("hour", 1),
        Policy::new("free", Quota::per_hour(50), user),
        Policy::new("day", Quota::per_day(1), user),
        Policy::new("all", Quota::per_day(1), key::Global).mode(PolicyMode::Shadow),
        Policy::new(
            "two-days",
            Quota::new(1, Duration::from_secs(172_800)),
            key::Global,
        ),
    ];
    let seen = Decisions::default();
    let layer = RateLimitLayer::with_policies(place.store(), policies).on_decision(seen.clone());
    let app = app(&layer);
    assert_eq!(ask(&app, ann()).await.status, StatusCode::OK);
    seen.only();
    let reply = ask(&app, ann()).await;
    assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
    let decision = seen.only();
    let names: Vec<&str> = decision.violated().map(|policy| policy.name().as_str()).collect();
    // What is only tried stops nobody, so it is none of them.
    assert_eq!(names, ["hour", "day", "two-days"]);
    let all: Vec<&str> = decision
        .policies()
        .iter()
        .map(|policy| policy.name().as_str())
        .collect();
    assert_eq!(all, ["hour", "free", "day", "all", "two-days"]);
    assert!(decision.policies()[3].is_violated());
    // The longest wait leads, and is the request's.
    let leading = decision.leading().expect("one leads");
    assert_eq!(leading.name().as_str(), "two-days");
    let Retry::After(wait) = leading.retry() else {
        panic!("{leading:?}");
    };
    assert_eq!(decision.retry_after(), Some(wait));
    assert_eq!(decision.reset_after(), Some(wait));
    assert!((172_700..=172_800).contains(&wait.as_secs()), "{wait:?}");
    assert!((172_700..=172_800).contains(&reply.number("retry-after")));
    assert_eq!(reply.number("x-ratelimit-remaining"), 0);
    // Ben is stopped by one of them alone.
    ask(&app, get_as("ben", "/")).await;
    let decision = seen.only();
    let names: Vec<&str> = decision.violated().map(|policy| policy.name().as_str()).collect();
    assert_eq!(names, ["two-days"]);
}

async fn never_leads_a_denial(place: &Place) {
    let policies = [
        hourly("hour", 1),
        hourly("small", 4).cost(5),
        Policy::new("day", Quota::per_day(1), user),
    ];
    let seen = Decisions::default();
    let layer = RateLimitLayer::with_policies(place.store(), policies).on_decision(seen.clone());
    let reply = ask(&app(&layer), ann()).await;
    assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(reply.header("retry-after"), None);
    let decision = seen.only();
    assert!(decision.is_never());
    assert_eq!(
        decision.leading().map(|leading| leading.name().as_str()),
        Some("small")
    );
    assert_eq!(decision.violated().count(), 1);
    assert_eq!(place.keys().await, 0, "denials leave no state");
}

async fn the_fewest_requests_lead_then_the_longest_reset(place: &Place) {
    let cases = [
        // 50 units are one more request.
        ([hourly("a", 100).cost(50), hourly("b", 5)], "a", 50),
        ([hourly("a", 100).cost(10), hourly("b", 5)], "b", 4),
        // As many, and the longer window is the longer reset.
        (
            [hourly("a", 5), Policy::new("b", Quota::per_day(5), user)],
            "b",
            4,
        ),
        (
            [Policy::new("a", Quota::per_day(5), user), hourly("b", 5)],
            "a",
            4,
        ),
        // What costs nothing has as many requests left as units.
        ([hourly("a", 3).cost(0), hourly("b", 5)], "a", 3),
    ];
    for (number, (policies, leads, remaining)) in cases.into_iter().enumerate() {
        let case = format!("{policies:?}");
        let store = place.fresh(&format!("case-{number}")).await;
        let layer = RateLimitLayer::with_policies(store, policies);
        let reply = ask(
            &app(&layer.headers(Headers::x_ratelimit().ietf(Draft::V8))),
            ann(),
        )
        .await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.number("x-ratelimit-remaining"), remaining, "{case}");
        let shown = reply.header("ratelimit").expect("it is there");
        assert!(
            shown.starts_with(&format!("\"{leads}\";r={remaining};t=")),
            "{shown}: {case}"
        );
    }
}

async fn shadow_and_unlimited_never_lead(place: &Place) {
    let policies = [
        Policy::new("tried", Quota::per_hour(1), user).mode(PolicyMode::Shadow),
        Policy::new("free", Quotas::by("free", |_| Quota::unlimited()), user),
        hourly("hour", 3),
    ];
    let seen = Decisions::default();
    let layer = RateLimitLayer::with_policies(place.store(), policies).on_decision(seen.clone());
    let app = app(&layer);
    for (remaining, tried, violated) in [(2, 0, false), (1, 0, true), (0, 0, true)] {
        let reply = ask(&app, ann()).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.number("x-ratelimit-limit"), 3);
        assert_eq!(reply.number("x-ratelimit-remaining"), remaining);
        let decision = seen.only();
        let shadow = &decision.policies()[0];
        assert_eq!((shadow.remaining(), shadow.is_violated()), (tried, violated));
        assert_eq!(decision.violated().count(), 0);
        // The unlimited one counts nothing, and is no policy of the decision.
        assert_eq!(decision.policies().len(), 2);
    }
    assert_eq!(ask(&app, ann()).await.status, StatusCode::TOO_MANY_REQUESTS);
    let decision = seen.only();
    assert_eq!(
        decision.leading().map(|leading| leading.name().as_str()),
        Some("hour")
    );
    // Only what limits is counted.
    assert_eq!(place.keys().await, 2);

    // Shadow policies alone limit nothing.
    let tried = Policy::new("alone", Quota::per_hour(1), user).mode(PolicyMode::Shadow);
    let layer = RateLimitLayer::with_policies(place.store(), [tried]).on_decision(seen.clone());
    let app = self::app(&layer);
    for violated in [false, true] {
        let reply = ask(&app, ann()).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.limit_fields(), [""; 0]);
        let decision = seen.only();
        assert!(decision.leading().is_none());
        assert_eq!(decision.policies()[0].is_violated(), violated);
    }
}

async fn clients_are_told_all_policies(place: &Place) {
    let policies = [
        hourly("user", 5),
        Policy::new("tried", Quota::per_hour(1), user).mode(PolicyMode::Shadow),
        Policy::new("all", Quota::per_day(1_000), key::Global),
        Policy::new(
            "burst",
            "10/minute burst 20".parse::<Quota>().expect("a quota"),
            user,
        ),
        Policy::new("off", Quota::per_hour(1), user).mode(PolicyMode::Off),
    ];
    let headers = Headers::from(Draft::V8).shadow(true);
    let layer = RateLimitLayer::with_policies(place.store(), policies).headers(headers);
    let app = app(&layer);
    for request in 1..=6 {
        let reply = ask(&app, ann()).await;
        assert_eq!(reply.status == StatusCode::OK, request <= 5);
        assert_eq!(
            reply.header("ratelimit-policy"),
            Some(r#""user";q=5;w=3600, "all";q=1000;w=86400, "burst";q=20;w=120"#)
        );
        let shadow = reply.header("x-ratelimit-shadow").expect("it is asked for");
        assert!(shadow.starts_with(r#""tried";r=0;t="#), "{shadow}");
        // A request that another policy stops is not counted by the one that is tried.
        assert_eq!(shadow.ends_with(";denied"), request > 1, "{request}: {shadow}");
    }
}
