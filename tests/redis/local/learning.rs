//! What the store says is learned by all that is local, however an answer came: alone, or shared by many who waited for it.

use tokio::task::JoinSet;
use tollgate::{Decision, FailurePolicy, Lease, Limiter, Quota, RedisStore};

use crate::callers::{granted, ms, replies, scripted};
use crate::scripted::{Reply, Sent};
use crate::support::LONG;

/// Of a key in the window's log, long before the limit.
fn answer(sent: &Sent) -> Reply {
    // A refill holds its units, and is no plain ask.
    match sent.arguments.len() {
        0..=4 => granted(ms(1)),
        _ => Reply::never(),
    }
}

fn leased(store: RedisStore) -> Limiter {
    Limiter::new(store, Quota::per_minute(4_000))
        .lease(Lease::new())
        .failure_policy(FailurePolicy::Deny)
        .deadline(LONG)
}

/// A key that is often asked for is worth a lease, once it is known what is left of it.
#[tokio::test(start_paused = true)]
async fn a_lease_learns_of_grants_with_and_without_a_deny_cache() {
    for denials in [0, 100] {
        let store = RedisStore::builder()
            .deny_cache_size(denials)
            .build(scripted(answer));
        let limiter = leased(store.clone());
        for _ in 0..100 {
            assert!(limiter.check("k").await.is_allowed());
        }
        assert!(store.stats().local.refills > 0, "{denials}: {:?}", store.stats());
    }
}

/// No check of the key is ever alone.
#[tokio::test(start_paused = true)]
async fn a_lease_learns_of_grants_that_were_shared() {
    let builder = RedisStore::builder().max_in_flight(1);
    let store = builder.build(scripted(|_| replies(&[32]).after(ms(1))));
    let limiter = leased(store.clone());
    for round in 1..=20 {
        let mut checks = JoinSet::new();
        let ahead = format!("ahead of round {round}");
        for key in [ahead.as_str()].into_iter().chain(["k"; 32]) {
            let (limiter, key) = (limiter.clone(), key.to_owned());
            checks.spawn(async move { limiter.check(key).await });
        }
        let checks = checks.join_all().await;
        if store.stats().local.refills > 0 {
            return;
        }
        assert!(checks.iter().all(Decision::is_allowed));
        assert_eq!(store.stats().calls, 2 * round);
    }
    panic!("nothing was taken ahead: {:?}", store.stats());
}
