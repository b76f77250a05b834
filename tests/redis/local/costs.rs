//! What leases hold back, and until when.

use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::time::sleep;
use tollgate::store::LocalStats;
use tollgate::{FailurePolicy, Lease, Limiter, Quota, RedisStore};

use super::caching;
use crate::server::{Server, Version};
use crate::support::{LONG, time, until};

const LIFETIME: Duration = Duration::from_millis(400);
const WINDOW: Duration = Duration::from_secs(2);
const QUOTA: Quota = Quota::new(100_000, WINDOW).slots(256);

fn limiter(store: &RedisStore) -> Limiter {
    Limiter::new(store.clone(), QUOTA)
        .name("test")
        .lease(Lease::new().lifetime(LIFETIME))
        .failure_policy(FailurePolicy::Deny)
        .deadline(LONG)
}

/// Asks until units are held, and says how many were used.
async fn hold(limiter: &Limiter, store: &RedisStore) -> u64 {
    let mut used = 0;
    loop {
        assert!(limiter.check("a").await.is_allowed());
        used += 1;
        if held(&store.stats().local) > 20 {
            return used;
        }
        sleep(Duration::from_millis(1)).await;
    }
}

fn held(stats: &LocalStats) -> u64 {
    stats.units_taken - stats.units_returned - stats.leased
}

async fn remaining(limiter: &Limiter) -> u64 {
    limiter.peek("a").await.remaining().expect("the server answers")
}

#[tokio::test]
async fn what_a_crashed_instance_held_comes_back_after_a_window_and_a_lifetime() {
    let server = Server::start(Version::V7).await;
    let url = server.url();
    let watcher = limiter(&caching(&url).await);
    let crash = thread::spawn(move || {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        // Its tasks end with it, and nobody shuts anything down.
        runtime.block_on(async {
            let store = caching(&url).await;
            let limiter = limiter(&store);
            let used = hold(&limiter, &store).await;
            (used, held(&store.stats().local))
        })
    });
    let (used, held) = crash.join().expect("it crashes as it should");
    let crashed = time(&server).await;
    let peeked = watcher.peek("a").await;
    let limit = QUOTA.limit().expect("it is limited");
    assert_eq!(
        limit - peeked.remaining().expect("the server answers"),
        used + held
    );
    // Slots end together: at most a slot later.
    let slot = WINDOW / 256 + Duration::from_micros(1);
    let empty = peeked.reset_after().expect("the server answers");
    println!("a crashed instance held {held} of {limit} units, for {empty:?}");
    assert!(empty <= WINDOW + LIFETIME + slot, "{empty:?}");
    assert!(empty >= WINDOW - LIFETIME, "{empty:?}");
    let end = crashed + u64::try_from(empty.as_micros()).expect("short");
    until("what it held is back", LONG, async || {
        remaining(&watcher).await == limit
    })
    .await;
    assert!(time(&server).await + 50_000 >= end, "no sooner than it was said");
}

#[tokio::test]
async fn what_an_idle_instance_holds_comes_back_within_a_lifetime() {
    let server = Server::start(Version::V7).await;
    let store = caching(&server.url()).await;
    let limiter = limiter(&store);
    let used = hold(&limiter, &store).await;
    let (start, held_then) = (Instant::now(), held(&store.stats().local));
    // Each peek says at once what is left, and what is left is less by what leaves the window: look at the instance.
    until("nothing is held", LONG, async || held(&store.stats().local) == 0).await;
    let took = start.elapsed();
    let limit = QUOTA.limit().expect("it is limited");
    println!("an idle instance held {held_then} of {limit} units, for {took:?}");
    until("the server knows", LONG, async || {
        limit - remaining(&limiter).await <= used
    })
    .await;
}

#[tokio::test]
async fn what_an_instance_holds_comes_back_when_it_shuts_down() {
    let server = Server::start(Version::V7).await;
    let store = caching(&server.url()).await;
    let quota = Quota::per_day(100_000).slots(256);
    let limiter = Limiter::new(store.clone(), quota)
        .name("test")
        .lease(Lease::new().lifetime(Duration::from_secs(1)))
        .failure_policy(FailurePolicy::Deny)
        .deadline(LONG);
    let used = hold(&limiter, &store).await;
    assert!(remaining(&limiter).await < 100_000 - used, "some is held");
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(remaining(&limiter).await, 100_000 - used);
}
