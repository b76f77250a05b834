//! C2, C11, C13: what is written, and when nothing is.

use std::time::Duration;

use redis::cmd;
use tollgate::store::{Ask, Charge, Stamp};
use tollgate::{Algorithm, FailurePolicy, Key, Limiter, PolicyName, Quota, Rate, RedisStore, Source, Store};

use crate::server::{Server, Version};
use crate::support::{
    LONG, NO_BOUND, NO_MEMORY, YEAR, admitted, by_every_algorithm, changes, check_all, connect, keys, strict,
    used_by,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Sets the clock of [`RedisStoreBuilder::clock_from_hash`](tollgate::RedisStoreBuilder::clock_from_hash).
async fn set_clock(server: &Server, micros: u64) {
    let (seconds, micros) = ((micros / 1_000_000).to_string(), (micros % 1_000_000).to_string());
    let _: i64 = server.cli(&["HSET", "clock", "s", &seconds, "us", &micros]).await;
}

async fn by_hand(server: &Server) -> RedisStore {
    let builder = RedisStore::builder().deny_cache_size(0).clock_from_hash("clock");
    builder.connect(&server.url()).await.expect("a fit server")
}

#[tokio::test]
async fn c9_denials_stay_the_stores_where_nothing_may_be_written() {
    // Begins where windows do.
    let start = 1_700_000_000_000_000 / 60_000_000 * 60_000_000;
    let server = Server::start(Version::V7).await;
    set_clock(&server, start).await;
    let store = by_hand(&server).await;
    let limiters = by_every_algorithm(10, MINUTE).map(|quota| {
        Limiter::new(store.clone(), quota)
            .name("test")
            .failure_policy(FailurePolicy::Allow)
            .deadline(LONG)
    });
    // Later a window has ended: what the counter of two windows has is weighed, and it denies yet.
    for later in [0, 60_000_100] {
        let key = format!("k{later}");
        set_clock(&server, start).await;
        for limiter in &limiters {
            assert_eq!(admitted(&check_all(limiter, &key, 10).await), 10);
        }
        set_clock(&server, start + later).await;
        let _: () = server.cli(&NO_MEMORY).await;
        for (index, limiter) in limiters.iter().enumerate() {
            // All but the sliding counter are empty by then, or nearly.
            if later > 0 && index != 2 {
                continue;
            }
            for _ in 0..3 {
                let decision = limiter.check(key.as_str()).await;
                assert_eq!(decision.source(), Source::Store, "{decision:?}");
                assert!(decision.is_denied(), "{decision:?}");
            }
        }
        let _: () = server.cli(&NO_BOUND).await;
    }
}

#[tokio::test]
async fn c11_a_refund_that_gives_nothing_writes_nothing() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let (key, policy) = (Key::from("k"), PolicyName::new("test").expect("a name"));
    for quota in by_every_algorithm(10, YEAR) {
        let charges = [Charge::new(&key, &policy, quota)];
        let ask = Ask::new(&charges).deadline(LONG);
        let outcome = store.acquire(&ask.want(3)).await.expect("an answer");
        let two_years = 2 * 366 * 86_400 * 1_000_000;
        let long_ago = Stamp::from_micros(outcome.now.as_micros() - two_years);
        let mut refunds = vec![(1, long_ago)];
        // A bucket takes back what it can; others do all or nothing.
        if quota.algorithm() != Some(Algorithm::TokenBucket) {
            refunds.push((4, outcome.stamp));
        }
        for (times, stamp) in refunds {
            let before = changes(&server).await;
            store.give_back(&ask, times, stamp).await.expect("an answer");
            assert_eq!(changes(&server).await, before, "{times} by {quota:?}");
            assert_eq!(used_by(&store, quota, "k").await, 3, "{times} by {quota:?}");
        }
    }
}

#[tokio::test]
async fn c1_a_refund_under_a_smaller_burst_frees_no_more_of_a_bucket_than_it_gives() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let (key, policy) = (Key::from("k"), PolicyName::new("test").expect("a name"));
    let bucket = |burst| Quota::token_bucket(Rate::new(1, MINUTE), burst);
    let large = strict(&store, bucket(100));
    let first = large.check_cost("k", 80).await;
    assert!(first.is_allowed(), "{first:?}");
    let small = [Charge::new(&key, &policy, bucket(10))];
    // What was charged then has been paid off since.
    let long_ago = Stamp::from_micros(first.now().as_micros() - 86_400_000_000);
    let refund = store
        .give_back(&Ask::new(&small).deadline(LONG), 1, long_ago)
        .await;
    refund.expect("an answer");
    assert_eq!(keys(&server).await.len(), 1, "both are one counter");
    let second = large.check_cost("k", 80).await;
    assert!(second.is_denied(), "{second:?}");
    assert_eq!(second.remaining(), Some(20));
    // And one that gives frees what it gives, not all that is above the smaller burst.
    let refund = store
        .give_back(&Ask::new(&small).deadline(LONG), 1, first.stamp())
        .await;
    refund.expect("an answer");
    assert_eq!(large.peek("k").await.remaining(), Some(21));
}

#[tokio::test]
async fn c13_a_lost_ttl_returns_with_the_next_charge_of_long_slots() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let limiter = strict(&store, Quota::new(10, Duration::from_secs(16)).slots(2));
    assert!(limiter.check("k").await.is_allowed());
    let [key] = keys(&server).await.try_into().expect("one key");
    let mut connection = server.connection().await.expect("it listens");
    let persisted: bool = cmd("PERSIST")
        .arg(&key)
        .query_async(&mut connection)
        .await
        .expect("a reply");
    assert!(persisted);
    assert!(limiter.check("k").await.is_allowed());
    let ttl: i64 = cmd("PTTL")
        .arg(&key)
        .query_async(&mut connection)
        .await
        .expect("a reply");
    assert!(ttl > 0, "{ttl}");
}
