//! C1, C11, C13: counters under traffic that goes on: their TTLs move on, and logs stay exact, and harmless as garbage.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tollgate::store::{Ask, Charge, Retry};
use tollgate::{Key, ManualClock, MemoryStore, PolicyName, Quota, Rate, RedisStore, Store};

use crate::server::{Server, Version};
use crate::support::{LONG, by_every_algorithm, connect, keys, strict, time};

const SECOND: Duration = Duration::from_secs(1);

fn policy() -> PolicyName {
    PolicyName::new("test").expect("a name")
}

/// Puts a log where a counter is.
async fn plant(connection: &mut MultiplexedConnection, redis_key: &[u8], log: Vec<u8>) {
    cmd("SET")
        .arg(redis_key)
        .arg(log)
        .arg("PX")
        .arg(60_000)
        .exec_async(connection)
        .await
        .expect("a reply");
}

#[tokio::test]
async fn c11_with_traffic_ttls_move_on_and_logs_forget_what_has_left() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let mut connection = server.connection().await.expect("it listens");
    let mut quotas = by_every_algorithm(1_000, SECOND);
    // One that fills less fast than it is used.
    quotas[5] = Quota::token_bucket(Rate::new(10, SECOND), 1_000);
    let policy = policy();
    // A hold takes an ask off the way of those that are written in place.
    let holds = [Duration::ZERO, Duration::from_millis(1)];
    let mut counters = Vec::new();
    for (index, quota) in quotas.into_iter().enumerate() {
        for hold in holds {
            let name = format!("n{index}x{}y", hold.as_millis());
            counters.push((name, quota, hold, None, Vec::new()));
        }
    }
    let mut ticks = tokio::time::interval(Duration::from_millis(25));
    // Several times what a TTL is longer than a window.
    for _ in 0..120 {
        ticks.tick().await;
        for (name, quota, hold, redis_key, stamps) in &mut counters {
            let (quota, hold, key) = (*quota, *hold, Key::from(name.as_str()));
            let charges = [Charge::new(&key, &policy, quota)];
            let ask = Ask::new(&charges).hold(hold).deadline(LONG);
            let outcome = store.acquire(&ask).await.expect("an answer");
            assert_eq!(outcome.granted, 1);
            let now = outcome.now.as_micros();
            if redis_key.is_none() {
                let found: Vec<Vec<u8>> = server.cli(&["KEYS", &format!("*{name}*")]).await;
                *redis_key = found.into_iter().next();
            }
            let leaves = now + u64::try_from(outcome.states[0].reset_after.as_micros()).expect("seconds");
            stamps.push(if hold.is_zero() {
                now
            } else {
                outcome.stamp.as_micros()
            });
            let expires: i64 = match &redis_key {
                Some(key) => {
                    let reply = cmd("PEXPIRETIME").arg(key).query_async(&mut connection).await;
                    reply.expect("a reply")
                }
                None => -2,
            };
            assert_ne!(expires, -1, "no TTL by {quota:?}, held {hold:?}");
            let Ok(expires) = u64::try_from(expires) else {
                // A window that ended just now took it along.
                assert!(leaves <= time(&server).await, "gone by {quota:?}, held {hold:?}");
                continue;
            };
            // Redis counts in milliseconds.
            let expires = expires * 1_000 + 1_000;
            assert!(
                leaves <= expires,
                "{} µs early by {quota:?}, held {hold:?}",
                leaves - expires
            );
            assert!(
                expires <= leaves + 1_001_000,
                "{} µs longer by {quota:?}, held {hold:?}",
                expires - leaves
            );
            if quota == Quota::new(1_000, SECOND) {
                let live = stamps.iter().filter(|&&stamp| stamp + 1_000_000 > now).count() as u64;
                assert_eq!(outcome.states[0].remaining, 1_000 - live, "held {hold:?}");
                let length = cmd("STRLEN").arg(&*redis_key).query_async(&mut connection).await;
                let length: u64 = length.expect("a reply");
                // Four bytes each, after the head.
                let units = (length - 8) / 4;
                assert!(
                    (units - live) * 4 < units,
                    "{units} units, {live} live, held {hold:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn c13_of_a_log_with_garbage_in_the_middle_nobody_waits_longer_than_the_window() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let mut connection = server.connection().await.expect("it listens");
    let quota = Quota::new(2, SECOND);
    assert!(strict(&store, quota).check("k").await.is_allowed());
    let [redis_key] = keys(&server).await.try_into().expect("one key");
    let (key, policy) = (Key::from("k"), policy());
    let charges = [Charge::new(&key, &policy, quota)];
    let ask = Ask::new(&charges).deadline(LONG);
    for garbage in [u32::MAX, u32::MAX / 2, 3_000_000] {
        for way in ["in place", "held", "peek"] {
            // Half a window ago, so that the first and the last unit still count.
            let base = time(&server).await - SECOND.as_micros() as u64 / 2;
            let mut log = vec![b'L'];
            log.extend_from_slice(&base.to_be_bytes()[1..]);
            for distance in [0, garbage, 400_000] {
                log.extend_from_slice(&(base as u32).wrapping_add(distance).to_be_bytes());
            }
            plant(&mut connection, &redis_key, log).await;
            let answer = match way {
                "in place" => store.acquire(&ask).await,
                "held" => store.acquire(&ask.hold(SECOND / 10)).await,
                _ => store.peek(&ask).await,
            };
            let state = &answer.expect("an answer").states[0];
            let fine = matches!(state.retry, Retry::After(time) if time <= SECOND);
            assert!(fine, "{way}, a distance of {garbage}: {state:?}");
        }
    }
}

/// Both stores, and the clock of both.
struct Both {
    server: Server,
    clock: ManualClock,
    memory: MemoryStore,
    redis: RedisStore,
}

impl Both {
    async fn start() -> Self {
        let server = Server::start(Version::V7).await;
        let clock = ManualClock::new();
        let builder = RedisStore::builder().deny_cache_size(0).clock_from_hash("clock");
        let _: i64 = server.cli(&["HSET", "clock", "s", "1700000000", "us", "0"]).await;
        Self {
            memory: MemoryStore::builder().clock(clock.clock()).build(),
            redis: builder.connect(&server.url()).await.expect("a fit server"),
            clock,
            server,
        }
    }

    /// Asks at these times for so many grants, and the answers are the same, in place and held.
    async fn compare(&self, quota: Quota, asks: impl Iterator<Item = (u64, u32)>) {
        let policy = policy();
        let keys = [Key::from("in place"), Key::from("held")];
        let mut connection = self.server.connection().await.expect("it listens");
        for (at, want) in asks {
            let now = Duration::from_secs(1_700_000_000 + at);
            self.clock.set(now);
            cmd("HSET")
                .arg(&["clock", "s", &now.as_secs().to_string()])
                .exec_async(&mut connection)
                .await
                .expect("a reply");
            for (key, hold) in keys.iter().zip([0, 1]) {
                let charges = [Charge::new(key, &policy, quota)];
                let ask = Ask::new(&charges).want(want).hold(Duration::from_millis(hold));
                let ask = ask.deadline(LONG);
                let (memory, redis) = (self.memory.acquire(&ask).await, self.redis.acquire(&ask).await);
                let (memory, redis) = (memory.expect("an answer"), redis.expect("an answer"));
                assert_eq!(memory, redis, "after {at} s, {want} of {key:?}");
            }
        }
    }
}

#[tokio::test]
async fn c1_c12_a_log_stays_exact_when_used_for_longer_than_its_units_tell() {
    let both = Both::start().await;
    // Four bytes tell 71 minutes.
    let steps = (0..85 * 60).step_by(7);
    both.compare(
        Quota::new(20, Duration::from_secs(60)),
        steps.map(|at| (at, 1 + u32::try_from(at % 5).expect("few"))),
    )
    .await;
}

#[tokio::test]
async fn c1_c12_a_log_stays_exact_when_it_grows_as_fast_as_it_can_without_being_cut() {
    let both = Both::start().await;
    // Never is a quarter of it expired: the first unit could stay until the others are too far away from it.
    let mut charged = 0;
    let asks = (0..4_600).step_by(10).filter_map(|at| {
        let all = (2.0 * 5_f64.powf(at as f64 / 1_000.0)) as u32;
        let want = all - charged;
        charged = all;
        (want > 0).then_some((at, want))
    });
    let asks: Vec<_> = asks.collect();
    both.compare(Quota::new(4_096, Duration::from_secs(1_000)), asks.into_iter())
        .await;
}

#[tokio::test]
async fn c13_what_is_a_log_but_for_its_tag_or_length_counts_as_nothing() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let mut connection = server.connection().await.expect("it listens");
    let quota = Quota::per_minute(100);
    assert!(strict(&store, quota).check("k").await.is_allowed());
    let [redis_key] = keys(&server).await.try_into().expect("one key");
    let (key, policy) = (Key::from("k"), policy());
    let charges = [Charge::new(&key, &policy, quota)];
    let ask = Ask::new(&charges).deadline(LONG);
    for (tag, more) in [(b'L', 0), (b'M', 0), (b'L', 1), (b'L', 3)] {
        let now = time(&server).await;
        let mut log = vec![tag];
        log.extend_from_slice(&now.to_be_bytes()[1..]);
        for _ in 0..5 {
            log.extend_from_slice(&(now as u32).to_be_bytes());
        }
        // The first unit and the last are as they should be.
        log.splice(12..12, vec![0; more]);
        plant(&mut connection, &redis_key, log).await;
        let left = store.acquire(&ask).await.expect("an answer").states[0].remaining;
        let found = if (tag, more) == (b'L', 0) { 5 } else { 0 };
        assert_eq!(left, 99 - found, "{}, {more} bytes more", char::from(tag));
    }
}
