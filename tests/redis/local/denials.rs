//! What is denied once is denied here until something can fit, and no longer.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{FailurePolicy, Limiter, Penalty, Policy, Quota, RedisStore, Source, key};

use super::caching;
use crate::server::{Server, Version};
use crate::support::{LONG, YEAR, strict, until};

const DAY: Quota = Quota::per_day(3);

/// How often the server has run a script.
async fn scripts(server: &Server) -> u64 {
    let stats: String = server.cli(&["INFO", "commandstats"]).await;
    let calls = |command: &str| {
        let calls = stats.split(&format!("cmdstat_{command}:calls=")).nth(1)?;
        calls.split(',').next()?.parse::<u64>().ok()
    };
    ["eval", "evalsha"].into_iter().filter_map(calls).sum()
}

/// A store that forgets no denial in time.
async fn remembering(server: &Server) -> RedisStore {
    let builder = RedisStore::builder().deny_cache_age(YEAR);
    builder.connect(&server.url()).await.expect("a fit server")
}

/// Takes all, and is denied once by the server.
async fn exhaust(limiter: &Limiter, key: &str) {
    while limiter.check(key).await.is_allowed() {}
}

async fn is_denied_here(limiter: &Limiter, key: &str) -> bool {
    let decision = limiter.check(key).await;
    decision.is_denied() && decision.source() == Source::DenyCache
}

#[tokio::test]
async fn the_server_is_not_asked_for_what_cannot_fit() {
    let server = Server::start(Version::V7).await;
    let store = remembering(&server).await;
    let limiter = strict(&store, DAY);
    exhaust(&limiter, "a").await;
    let (calls, asked) = (scripts(&server).await, store.stats().calls);
    let first = limiter.check("a").await;
    for _ in 0..1_000 {
        let denied = limiter.check("a").await;
        assert_eq!((denied.is_denied(), denied.source()), (true, Source::DenyCache));
        assert!(denied.retry_after() <= first.retry_after());
    }
    assert_eq!((scripts(&server).await, store.stats().calls), (calls, asked));
    assert_eq!(store.stats().local.denied, 1_001);
    // Another key is another matter, and who peeks asks.
    assert!(limiter.check("b").await.is_allowed());
    assert_eq!(limiter.peek("a").await.source(), Source::Store);
    assert_eq!(scripts(&server).await, calls + 2);
}

#[tokio::test]
async fn what_changes_here_is_seen_at_once() {
    let server = Server::start(Version::V7).await;
    let store = remembering(&server).await;
    let limiter = strict(&store, DAY);
    let handle = limiter.reserve("a", 1).await.expect("it fits");
    exhaust(&limiter, "a").await;
    assert!(is_denied_here(&limiter, "a").await);
    handle.give_back_now().await.expect("the server answers");
    assert!(limiter.check("a").await.is_allowed(), "it was given back");
    assert!(limiter.check("a").await.is_denied());
    assert!(is_denied_here(&limiter, "a").await);
    limiter.reset("a").await.expect("the server answers");
    assert!(limiter.check("a").await.is_allowed(), "it was reset");
    exhaust(&limiter, "a").await;
    let handle = limiter.handle("test").expect("it is there");
    handle.set_quota(Quota::per_day(4));
    assert!(limiter.check("a").await.is_allowed(), "the limit was raised");
}

#[tokio::test]
async fn what_changes_elsewhere_is_seen_within_the_age() {
    let server = Server::start(Version::V7).await;
    let here = RedisStore::builder()
        .deny_cache_age(Duration::from_millis(300))
        .connect(&server.url())
        .await
        .expect("a fit server");
    let (here, there) = (strict(&here, DAY), strict(&caching(&server.url()).await, DAY));
    exhaust(&here, "a").await;
    assert!(is_denied_here(&here, "a").await);
    there.reset("a").await.expect("the server answers");
    assert!(there.check("a").await.is_allowed());
    until("what was reset elsewhere is seen", LONG, async || {
        here.check("a").await.is_allowed()
    })
    .await;
}

#[tokio::test]
async fn without_room_or_age_the_server_is_always_asked() {
    let server = Server::start(Version::V7).await;
    for builder in [
        RedisStore::builder().deny_cache_size(0),
        RedisStore::builder().deny_cache_age(Duration::ZERO),
    ] {
        let store = builder.connect(&server.url()).await.expect("a fit server");
        let limiter = strict(&store, DAY);
        exhaust(&limiter, "a").await;
        for _ in 0..20 {
            assert_eq!(limiter.check("a").await.source(), Source::Store);
        }
        assert_eq!(store.stats().local.denied, 0);
    }
}

#[tokio::test]
async fn a_denial_that_counts_towards_a_block_reaches_the_server() {
    let server = Server::start(Version::V7).await;
    let store = caching(&server.url()).await;
    let policy = Policy::new("login", DAY, key::Global)
        .penalty(Penalty::after(5, YEAR).block_for(Duration::from_secs(3_600)))
        .failure_policy(FailurePolicy::Deny);
    let limiter = Limiter::new(store.clone(), Quota::per_day(1_000))
        .policy(policy)
        .deadline(LONG);
    let limiter = limiter.only("login").expect("it is there");
    exhaust(&limiter, "a").await;
    // One denial has been counted; the fifth blocks.
    for _ in 0..4 {
        assert_eq!(limiter.check("a").await.source(), Source::Store);
    }
    let asked = store.stats().calls;
    for _ in 0..50 {
        assert!(is_denied_here(&limiter, "a").await);
    }
    assert_eq!(store.stats().calls, asked, "the block itself is known here");
    limiter.unblock("a").await.expect("the server answers");
    let unblocked = limiter.check("a").await;
    assert_eq!((unblocked.is_denied(), unblocked.source()), (true, Source::Store));
}

#[tokio::test]
async fn c3_what_is_told_here_is_true() {
    let server = Server::start(Version::V7).await;
    let limiter = strict(
        &caching(&server.url()).await,
        Quota::new(2, Duration::from_millis(400)),
    );
    exhaust(&limiter, "a").await;
    let denied = limiter.check("a").await;
    assert_eq!(denied.source(), Source::DenyCache);
    sleep(denied.retry_after().expect("it will fit")).await;
    assert!(limiter.check("a").await.is_allowed());
}
