//! Policies without HTTP: list, look, reset, reserve.

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use tollgate::{
    Decision, ExemptReason, FailurePolicy, Key, Limiter, MissingKey, Policy, PolicyMode, Quota, Quotas,
    RateLimitLayer, Rejection, RejectionKind, Rule, Rules, Source, key,
};

use super::{Place, ask, get_as, left_by, parts, statuses, user};

on_both_stores! {
    policies_are_listed,
    one_policy_alone,
    looking_charges_nothing,
    a_reset_forgets_all_of_a_key,
    keys_can_differ_for_each_policy,
    what_is_reserved_is_settled,
    a_check_can_be_given_back,
    modes_hold_without_http,
    a_layer_tells_what_it_would_decide,
    a_layer_tells_keys_for_its_limiter,
}

/// By the minute and the hour, and for all.
fn limiter(place: &Place) -> Limiter {
    Limiter::new(place.store(), Quota::per_hour(5))
        .name("hour")
        .policy(Policy::new("day", Quota::per_day(8), key::Global))
}

fn lefts(decision: &Decision) -> Vec<u64> {
    decision
        .policies()
        .iter()
        .map(tollgate::PolicyDecision::remaining)
        .collect()
}

async fn policies_are_listed(place: &Place) {
    let limiter = limiter(place).policy(Policy::new(
        "plan",
        Quotas::by("ignored", |_| Quota::per_hour(9)),
        key::Global,
    ));
    let listed: Vec<_> = limiter
        .policies()
        .iter()
        .map(|policy| (policy.name().to_string(), policy.quota(), policy.mode()))
        .collect();
    assert_eq!(
        listed,
        [
            ("hour".to_owned(), Some(Quota::per_hour(5)), PolicyMode::Enforce),
            ("day".to_owned(), Some(Quota::per_day(8)), PolicyMode::Enforce),
            ("plan".to_owned(), None, PolicyMode::Enforce),
        ]
    );
    assert!(limiter.handle("none").is_none());
    assert!(limiter.only("none").is_none());

    // A layer's, those of its rules included, each once.
    let shared = Policy::new("shared", Quota::per_hour(3), user);
    let rules = Rules::new(vec![shared.clone()]).on(
        Rule::path("/x"),
        vec![shared, Policy::new("x", Quota::per_hour(1), user)],
    );
    let layer = RateLimitLayer::new(place.store(), Quota::per_hour(7), user).rules(rules);
    let limiter = layer.limiter();
    let policies = limiter.policies();
    let names: Vec<&str> = policies.iter().map(|policy| policy.name().as_str()).collect();
    assert_eq!(names, ["7-per-3600s", "shared", "x"]);

    // A copy that has another name has counters of its own.
    let one = Policy::new("one", Quota::per_hour(3), user);
    let layer = RateLimitLayer::with_policies(place.store(), [one.clone()])
        .name("other")
        .rules(Rules::new(vec![one]));
    let limiter = layer.limiter();
    let policies = limiter.policies();
    let names: Vec<&str> = policies.iter().map(|policy| policy.name().as_str()).collect();
    assert_eq!(names, ["other", "one"]);
}

async fn one_policy_alone(place: &Place) {
    let limiter = limiter(place);
    let day = limiter.only("day").expect("it is there");
    for _ in 0..3 {
        assert!(day.check("ann").await.is_allowed());
    }
    assert_eq!(lefts(&limiter.peek("ann").await), [5, 5]);
    assert_eq!(lefts(&limiter.check("ann").await), [4, 4]);
    let hour = limiter.only("hour").expect("it is there");
    hour.reset("ann").await.expect("done");
    assert_eq!(lefts(&limiter.peek("ann").await), [5, 4]);
    assert_eq!(day.policies().len(), 1);
    // The same policy: a change holds here and there.
    day.policies()[0].set_quota(Quota::per_day(4));
    assert_eq!(lefts(&limiter.peek("ann").await), [5, 0]);
}

async fn looking_charges_nothing(place: &Place) {
    let limiter = limiter(place);
    for _ in 0..20 {
        assert_eq!(lefts(&limiter.peek("ann").await), [5, 8]);
    }
    assert_eq!(place.keys().await, 0);
    for _ in 0..5 {
        assert!(limiter.check("ann").await.is_allowed());
    }
    for _ in 0..20 {
        let peeked = limiter.peek("ann").await;
        assert!(peeked.is_denied());
        assert_eq!(lefts(&peeked), [0, 3]);
        assert_eq!(peeked.violated().count(), 1);
    }
}

async fn a_reset_forgets_all_of_a_key(place: &Place) {
    let limiter = limiter(place);
    for user in ["ann", "ann", "ben"] {
        assert!(limiter.check(user).await.is_allowed());
    }
    assert_eq!(place.keys().await, 4);
    // Of policies that are off, too.
    limiter
        .handle("day")
        .expect("it is there")
        .set_mode(PolicyMode::Off);
    limiter.reset("ann").await.expect("done");
    limiter
        .handle("day")
        .expect("it is there")
        .set_mode(PolicyMode::Enforce);
    assert_eq!(lefts(&limiter.peek("ann").await), [5, 8]);
    assert_eq!(lefts(&limiter.peek("ben").await), [4, 7]);
    limiter.reset("nobody").await.expect("done");
    if !place.names().await.is_empty() {
        assert_eq!(place.keys().await, 2);
    }
}

async fn keys_can_differ_for_each_policy(place: &Place) {
    let limiter = limiter(place);
    let (ann, ben, all) = (Key::from("ann"), Key::from("ben"), Key::from("all"));
    let mut allowed = Vec::new();
    for user in [&ann, &ann, &ben, &ann, &ben, &ben, &ann, &ann, &ben, &ben] {
        let decision = limiter
            .check_keys(1, |policy| if policy == "day" { &all } else { user })
            .await;
        allowed.push(decision.is_allowed());
    }
    // Eight in all, of which five at most are one's.
    assert_eq!(allowed.iter().filter(|&&allowed| allowed).count(), 8);
    assert_eq!(allowed[8..], [false, false]);
    assert_eq!(place.keys().await, 3);
    let charge = limiter
        .reserve_keys(1, |policy| if policy == "day" { &ben } else { &all })
        .await;
    let charge = charge.expect("there is room");
    assert_eq!(lefts(charge.decision()), [4, 7]);
    charge.give_back();
    limiter.shutdown().await;
    let decision = limiter.only("day").expect("it is there").peek("ben").await;
    assert_eq!(decision.remaining(), Some(8));
}

async fn what_is_reserved_is_settled(place: &Place) {
    let limiter = limiter(place);
    let charge = limiter.reserve("ann", 4).await.expect("there is room");
    assert_eq!(charge.charged("hour"), Some(4));
    assert_eq!(charge.charged("none"), None);
    let names: Vec<String> = charge.policies().map(ToString::to_string).collect();
    assert_eq!(names, ["hour", "day"]);
    let denied = limiter.reserve("ann", 4).await.expect_err("there is none");
    assert!(denied.is_denied());
    assert_eq!(denied.violated().count(), 1, "{denied:?}");
    assert!(charge.settle("hour", 1));
    assert!(charge.settle("day", 6));
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(lefts(&limiter.peek("ann").await), [4, 2]);
}

async fn a_check_can_be_given_back(place: &Place) {
    let limiter = limiter(place);
    let first = limiter.reserve("ann", 3).await.expect("there is room");
    limiter.reserve("ann", 3).await.expect_err("there is none");
    assert_eq!(lefts(&limiter.peek("ann").await), [2, 5]);
    first.give_back_now().await.expect("done");
    assert_eq!(lefts(&limiter.peek("ann").await), [5, 8]);
    limiter.check("ann").await;
    // Once is all, whoever asks for it.
    first.clone().give_back_now().await.expect("nothing to do");
    first.give_back();
    assert!(!first.settle("hour", 0));
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(lefts(&limiter.peek("ann").await), [4, 7]);
}

async fn modes_hold_without_http(place: &Place) {
    let limiter = limiter(place);
    let (hour, day) = (
        limiter.handle("hour").expect("one"),
        limiter.handle("day").expect("one"),
    );
    hour.set_mode(PolicyMode::Shadow);
    for _ in 0..8 {
        assert!(limiter.check("ann").await.is_allowed());
    }
    assert!(limiter.check("ann").await.is_denied());
    day.set_mode(PolicyMode::Off);
    let decision = limiter.check("ann").await;
    assert!(decision.is_allowed());
    assert!(decision.policies()[0].is_violated());
    assert_eq!(decision.exemptions()[0].reason(), ExemptReason::Off);
    hour.set_mode(PolicyMode::Off);
    assert_eq!(limiter.check("ann").await.source(), Source::Exempt);
    day.set_mode(PolicyMode::Enforce);
    hour.set_mode(PolicyMode::Enforce);
    // What is only tried counts as long as there is room.
    assert_eq!(lefts(&limiter.peek("ann").await), [0, 0]);
}

/// A layer of several policies, and an app behind it.
fn layer(place: &Place) -> (RateLimitLayer, Router) {
    let reject = MissingKey::Reject(StatusCode::UNAUTHORIZED);
    let policies = [
        Policy::new("user", Quota::per_hour(3), user)
            .missing_key(reject)
            .cost(2),
        Policy::new("all", Quota::per_hour(9), key::Global),
    ];
    let layer = RateLimitLayer::with_policies(place.store(), policies).skip_when(Rule::path("/free"));
    let app = Router::new()
        .route("/", get(async || "hello"))
        .route("/free", get(async || "free"))
        .layer(layer.clone());
    (layer, app)
}

async fn a_layer_tells_what_it_would_decide(place: &Place) {
    let (layer, app) = layer(place);
    let peek = async |request| layer.peek(&parts(request)).await;
    for _ in 0..5 {
        let decision = peek(get_as("ann", "/")).await.expect("it has a key");
        assert!(decision.is_allowed());
        assert_eq!(lefts(&decision), [3, 9]);
    }
    assert_eq!(place.keys().await, 0);
    assert_eq!(statuses(&app, 2, || get_as("ann", "/")).await, [200, 429]);
    let decision = peek(get_as("ann", "/")).await.expect("it has a key");
    assert!(decision.is_denied());
    assert_eq!(
        decision
            .leading()
            .map(|leading| leading.name().to_string())
            .as_deref(),
        Some("user")
    );
    let free = peek(get_as("ann", "/free")).await.expect("it needs none");
    assert_eq!(free.source(), Source::Exempt);
    let refused: Rejection = peek(super::get("/")).await.expect_err("it has none");
    assert_eq!(refused.kind(), RejectionKind::MissingKey);
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
}

async fn a_layer_tells_keys_for_its_limiter(place: &Place) {
    let api_key = key::Header::new(http::HeaderName::from_static("x-user"));
    let policies = [
        Policy::new("key", Quota::per_hour(2), (api_key, key::MatchedPath)),
        Policy::new("user", Quota::per_hour(2), user),
    ];
    let layer = RateLimitLayer::with_policies(place.store(), policies);
    let route = key::Route("/".into());
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(layer.clone());
    assert_eq!(statuses(&app, 3, || get_as("ann", "/")).await, [200, 200, 429]);
    let mut request = parts(get_as("ann", "/"));
    request.extensions.insert(route);
    let found = layer.key("key", &request).expect("it has one");
    assert!(layer.key("none", &request).is_none());
    assert_eq!(layer.key("user", &request), Some(Key::from("ann")));
    assert!(layer.key("user", &parts(super::get("/"))).is_none());
    let limiter = layer.limiter();
    let (by_key, by_user) = (
        limiter.only("key").expect("one"),
        limiter.only("user").expect("one"),
    );
    assert_eq!(by_key.peek(&found).await.remaining(), Some(0));
    assert_eq!(by_user.peek("ann").await.remaining(), Some(0));
    by_key.reset(&found).await.expect("done");
    assert_eq!(statuses(&app, 1, || get_as("ann", "/")).await, [429]);
    by_user.reset("ann").await.expect("done");
    let reply = ask(&app, get_as("ann", "/")).await;
    assert_eq!(reply.number("x-ratelimit-remaining"), 1);
    assert_eq!(left_by(&by_key.peek(&found).await, "key"), 1);
}

#[tokio::test]
async fn a_reset_of_a_store_that_is_away_is_an_error() {
    let store = tollgate::RedisStore::connect("redis://127.0.0.1:1/")
        .await
        .expect("that is none");
    let limiter = Limiter::new(store, Quota::per_hour(1)).failure_policy(FailurePolicy::Allow);
    assert!(limiter.check("ann").await.is_degraded());
    limiter.reset("ann").await.expect_err("it is away");
    assert!(limiter.peek("ann").await.is_degraded());
}
