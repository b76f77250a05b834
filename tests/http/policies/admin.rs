//! What is done to keys by hand.

use std::time::Duration;

use http::request::Parts;
use tollgate::{
    AdminErrorKind, ExemptReason, Limiter, Penalty, Policy, Quota, Quotas, RateLimitLayer, Source, key,
};

use super::several::app;
use super::{Place, ask, get_as, statuses, user};

const MINUTE: Duration = Duration::from_secs(60);
const FREE: Quota = Quota::per_hour(1);
const PRO: Quota = Quota::per_hour(2).slots(64);

on_both_stores! {
    a_blocked_key_is_denied_until_it_is_unblocked,
    short_blocks_are_no_pardon,
    quotas_of_a_request_are_named,
    penalties_block_over_http,
}

async fn a_blocked_key_is_denied_until_it_is_unblocked(place: &Place) {
    let limiter = Limiter::new(place.store(), Quota::per_hour(5)).name("plain");
    let error = limiter.block("ann", MINUTE).await.expect_err("it has no penalty");
    assert_eq!(error.kind(), AdminErrorKind::NoPenalty);
    assert!(error.to_string().contains("Penalty::manual()"), "{error}");

    let limiter =
        limiter.policy(Policy::new("guarded", Quota::per_hour(5), key::Global).penalty(Penalty::manual()));
    limiter.block("ann", MINUTE).await.expect("it can");
    let denied = limiter.check("ann").await;
    let leading = denied.leading().expect("the one that blocks");
    assert!(denied.is_denied() && leading.is_blocked(), "{denied:?}");
    assert_eq!(leading.name().as_str(), "guarded");
    let wait = denied.retry_after().expect("a block ends");
    assert!(wait <= MINUTE && wait > MINUTE / 2, "{wait:?}");
    assert!(limiter.check("ben").await.is_allowed());
    limiter.unblock("ann").await.expect("it can");
    // The quotas have charged nothing meanwhile.
    assert_eq!(limiter.check("ann").await.remaining(), Some(4));
}

async fn short_blocks_are_no_pardon(place: &Place) {
    let penalty = Penalty::after(1, MINUTE)
        .block_for(120 * MINUTE)
        .growing(2, 6_000 * MINUTE);
    let policy = Policy::new("guarded", Quota::per_hour(1), key::Global).penalty(penalty);
    let limiter = RateLimitLayer::with_policies(place.store(), [policy]).limiter();
    assert!(limiter.check("ann").await.is_allowed());
    let next_block = async || loop {
        let wait = limiter
            .check("ann")
            .await
            .retry_after()
            .expect("the quota's wait or a block");
        if wait > 61 * MINUTE {
            return wait;
        }
    };
    assert!(next_block().await <= 120 * MINUTE);
    // What is left of a time that is over.
    limiter.block("ann", Duration::ZERO).await.expect("it can");
    assert!(next_block().await > 130 * MINUTE, "it is the second one");
    limiter.unblock("ann").await.expect("it can");
    assert!(next_block().await <= 120 * MINUTE, "all is forgotten");
}

async fn quotas_of_a_request_are_named(place: &Place) {
    let quota = Quotas::by("plan", |request: &Parts| match request.headers.get("x-user") {
        // As functions do that trust an outer layer.
        None => panic!("an outer layer sets it"),
        Some(user) if user == "ann" => PRO,
        Some(_) => FREE,
    });
    let layer = RateLimitLayer::new(place.store(), quota, user);
    assert_eq!(
        statuses(&app(&layer), 3, || get_as("ann", "/")).await,
        [200, 200, 429]
    );
    let limiter = layer.limiter();
    let unknown = limiter.check("ann").await;
    assert_eq!(unknown.source(), Source::Exempt);
    assert_eq!(unknown.exemptions()[0].reason(), ExemptReason::UnknownQuota);
    let error = limiter
        .reset("ann")
        .await
        .expect_err("which counter is not known");
    assert_eq!(error.kind(), AdminErrorKind::UnknownQuota);
    assert!(error.to_string().contains("by_quota"), "{error}");
    assert_eq!(statuses(&app(&layer), 1, || get_as("ann", "/")).await, [429]);
    let pro = limiter.by_quota(PRO);
    assert_eq!(pro.peek("ann").await.remaining(), Some(0));
    pro.reset("ann").await.expect("it can");
    assert_eq!(
        statuses(&app(&layer), 3, || get_as("ann", "/")).await,
        [200, 200, 429]
    );
}

async fn penalties_block_over_http(place: &Place) {
    let policy = Policy::new("login", Quota::per_hour(1), user)
        .penalty(Penalty::after(3, MINUTE).block_for(50 * 60 * MINUTE));
    let layer = RateLimitLayer::with_policies(place.store(), [policy]);
    let app = app(&layer);
    assert_eq!(
        statuses(&app, 4, || get_as("ann", "/")).await,
        [200, 429, 429, 429]
    );
    let reply = ask(&app, get_as("ann", "/")).await;
    assert!(
        reply.body.starts_with("blocked after too many refused requests"),
        "{}",
        reply.body
    );
    assert!(
        reply.number("retry-after") > 3_600,
        "longer than the quota's own wait"
    );
    assert_eq!(statuses(&app, 1, || get_as("ben", "/")).await, [200]);
}
