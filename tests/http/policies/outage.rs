//! Policies without their store: how they answer, and where what they count is settled.

use std::sync::Arc;

use tollgate::store::StoreErrorKind;
use tollgate::{
    FailurePolicy, Limiter, MemoryStore, Penalty, Policy, PolicyMode, Quota, Rate, RateLimitLayer,
    RedisStore, Store, key,
};

use super::several::{ann, app, hourly};
use super::{Decisions, LONG, ask, statuses};
use crate::support::{Behaviour, TestStore};

/// Stores that give no answer.
async fn outages() -> Vec<(&'static str, Arc<dyn Store>)> {
    let failing = TestStore::new(Behaviour::Fails(StoreErrorKind::Unavailable));
    // Nobody listens there.
    let away = RedisStore::builder()
        .deadline(LONG)
        .connect("redis://127.0.0.1:1/")
        .await;
    vec![
        ("memory", Arc::new(failing)),
        ("redis", Arc::new(away.expect("that is no error"))),
    ]
}

#[tokio::test]
async fn each_policy_answers_an_outage_by_its_own_failure_policy() {
    let allow = || hourly("allow", 1).failure_policy(FailurePolicy::Allow);
    let deny = || hourly("deny", 9).failure_policy(FailurePolicy::Deny);
    let local = || hourly("local", 6).failure_policy(FailurePolicy::Local { instances: 2 });
    let shadow = || deny().mode(PolicyMode::Shadow);
    let off = || deny().mode(PolicyMode::Off);
    for (name, store) in outages().await {
        for (policies, expected) in [
            (vec![allow(), allow_too()], [200; 5]),
            (vec![allow(), local()], [200, 200, 200, 429, 429]),
            (vec![local(), allow()], [200, 200, 200, 429, 429]),
            (vec![allow(), local(), deny()], [503; 5]),
            (vec![deny(), local()], [503; 5]),
            (vec![local(), shadow()], [200, 200, 200, 429, 429]),
            (vec![off(), allow()], [200; 5]),
        ] {
            let case = format!("{name}: {policies:?}");
            let layer = RateLimitLayer::with_policies(Arc::clone(&store), policies);
            assert_eq!(statuses(&app(&layer), 5, ann).await, expected, "{case}");
        }
    }
}

fn allow_too() -> Policy {
    Policy::new("too", Quota::per_hour(1), key::Global).failure_policy(FailurePolicy::Allow)
}

#[tokio::test]
async fn a_degraded_decision_names_the_policies_that_count_on() {
    for (name, store) in outages().await {
        let seen = Decisions::default();
        let policies = [
            hourly("allow", 1).failure_policy(FailurePolicy::Allow),
            hourly("local", 6).failure_policy(FailurePolicy::Local { instances: 2 }),
            hourly("wide", 90),
        ];
        let layer = RateLimitLayer::with_policies(store, policies).on_decision(seen.clone());
        let reply = ask(&app(&layer), ann()).await;
        assert_eq!(reply.number("x-ratelimit-limit"), 3, "{name}");
        let decision = seen.only();
        assert!(decision.is_degraded());
        let names: Vec<&str> = decision
            .policies()
            .iter()
            .map(|policy| policy.name().as_str())
            .collect();
        assert_eq!(names, ["local", "wide"]);
        // All or nothing holds for what counts on, too.
        assert_eq!(
            statuses(&app(&layer), 6, ann).await,
            [200, 200, 429, 429, 429, 429]
        );
        let last = seen.take().pop().expect("there were some");
        assert_eq!(last.policies()[1].remaining(), 87, "{name}");
    }
}

/// A store that does not answer, and what it would have counted.
fn outage(limit: u64, failure: FailurePolicy) -> (TestStore, Limiter) {
    let store = TestStore::new(Behaviour::Fails(StoreErrorKind::Unavailable));
    let limiter = Limiter::new(store.clone(), Quota::per_hour(limit))
        .name("units")
        .failure_policy(failure);
    (store, limiter)
}

#[tokio::test]
async fn a_degraded_charge_is_settled_where_it_was_made() {
    // In logs and in slots, and where the share is the one and the whole the other.
    for (limit, instances) in [(100, 1), (100, 4), (100_000, 1), (10_000, 4)] {
        let (store, limiter) = outage(limit, FailurePolicy::Local { instances });
        let share = limit / u64::from(instances);
        let remaining = async || limiter.peek("ann").await.remaining();
        let charge = limiter.reserve("ann", 10).await.expect("it counts here");
        assert!(charge.decision().is_degraded());
        let case = format!("{limit} of {instances}");
        // A peek without the store looks where it counts.
        store.behave(Behaviour::Prompt);
        assert_eq!(limiter.peek("ann").await.remaining(), Some(limit), "{case}");
        store.behave(Behaviour::Fails(StoreErrorKind::Unavailable));
        let next = async || {
            let check = limiter.check_cost("ann", 0).await;
            check.remaining()
        };
        assert_eq!(next().await, Some(share - 10), "{case}");
        assert!(charge.settle("units", 3));
        assert_eq!(limiter.shutdown().await, 0);
        assert_eq!(next().await, Some(share - 3), "{case}");
        let more = limiter.reserve("ann", 1).await.expect("it counts here");
        assert!(more.settle("units", 6));
        assert_eq!(next().await, Some(share - 9), "{case}");
        // Nor has the store heard of any of it when it is back.
        store.behave(Behaviour::Prompt);
        assert_eq!(remaining().await, Some(limit), "{case}");
    }
}

#[tokio::test]
async fn a_degraded_charge_is_given_back_at_once_where_it_was_made() {
    let (store, limiter) = outage(10, FailurePolicy::Local { instances: 1 });
    let charge = limiter.reserve("ann", 7).await.expect("it counts here");
    assert!(limiter.reserve("ann", 7).await.is_err());
    charge.give_back_now().await.expect("no store is needed");
    let again = limiter.reserve("ann", 7).await.expect("it counts here");
    store.behave(Behaviour::Prompt);
    again.give_back_now().await.expect("here it was made, too");
    store.behave(Behaviour::Fails(StoreErrorKind::Unavailable));
    let left = limiter.check_cost("ann", 0).await;
    assert_eq!(left.remaining(), Some(10));
}

#[tokio::test]
async fn what_is_unlimited_passes_though_its_policy_denies_without_a_store() {
    let unlimited = |name: &str| {
        Policy::new(name, Quota::unlimited(), key::Global)
            .penalty(Penalty::manual())
            .failure_policy(FailurePolicy::Deny)
    };
    let deny = || hourly("deny", 9).failure_policy(FailurePolicy::Deny);
    for (name, store) in outages().await {
        for (policies, expected) in [
            (vec![unlimited("free")], [200; 3]),
            (vec![unlimited("free"), hourly("local", 2)], [200, 200, 429]),
            (vec![unlimited("free"), deny()], [503; 3]),
        ] {
            let case = format!("{name}: {policies:?}");
            let layer = RateLimitLayer::with_policies(Arc::clone(&store), policies);
            assert_eq!(statuses(&app(&layer), 3, ann).await, expected, "{case}");
        }
    }
}

#[tokio::test]
async fn what_passed_without_a_count_has_nothing_to_settle() {
    let (store, limiter) = outage(100, FailurePolicy::Allow);
    let charge = limiter.reserve("ann", 10).await.expect("it passes");
    assert_eq!(charge.charged("units"), None);
    store.behave(Behaviour::Prompt);
    assert!(!charge.settle("units", 30));
    charge.give_back();
    drop(charge.tally("units"));
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(limiter.peek("ann").await.remaining(), Some(100));
}

#[tokio::test]
async fn a_charge_by_the_store_is_settled_in_the_store_during_an_outage() {
    let (store, limiter) = outage(100, FailurePolicy::Local { instances: 1 });
    store.behave(Behaviour::Prompt);
    let charge = limiter.reserve("ann", 10).await.expect("there is room");
    store.behave(Behaviour::Fails(StoreErrorKind::Unavailable));
    let local = limiter.reserve("ann", 10).await.expect("it counts here");
    charge.settle("units", 1);
    local.settle("units", 2);
    store.behave(Behaviour::Prompt);
    assert_eq!(limiter.peek("ann").await.remaining(), Some(99));
}

#[tokio::test]
async fn a_shadow_policy_is_degraded_too_and_takes_nothing_of_the_store() {
    for quota in [
        Quota::per_hour(10).fixed_window(),
        Quota::token_bucket(Rate::per_hour(10), 10),
    ] {
        let shared = MemoryStore::new();
        let name = || Policy::new("tried", quota, key::Global).mode(PolicyMode::Shadow);
        let before = RateLimitLayer::with_policies(shared.clone(), [name()]).limiter();
        for _ in 0..5 {
            before.check("k").await;
        }
        let failing = TestStore::around(shared.clone(), Behaviour::Fails(StoreErrorKind::Unavailable));
        let outage = RateLimitLayer::with_policies(failing, [name()]).limiter();
        for _ in 0..3 {
            let charge = outage.reserve("k", 1).await.expect("a shadow stops nobody");
            assert!(charge.decision().is_degraded(), "{:?}", charge.decision());
            charge.give_back();
        }
        let left = before.peek("k").await.policies()[0].remaining();
        assert_eq!(left, 5, "{quota}: what others were charged stays");
    }
}
