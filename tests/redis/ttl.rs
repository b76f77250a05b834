//! C11, B5, B6, B8: whatever is called, every key lives until its last unit leaves, and not much longer.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tollgate::store::{Ask, Charge, Mode, Outcome};
use tollgate::{Key, PolicyName, Quota, Rate, RedisStore, Store};

use crate::server::{Server, Version};
use crate::support::{LONG, connect, keys, strict};

const SECOND: Duration = Duration::from_secs(1);

/// Windows from one that is all slack to one that is none, and limits that make all kinds of state.
fn quotas() -> Vec<Quota> {
    let mut quotas = Vec::new();
    for window in [SECOND / 2, SECOND * 9, SECOND * 86_400 * 366] {
        for limit in [1, 10, 5_000] {
            let quota = Quota::new(limit, window);
            quotas.extend([
                quota,
                quota.slots(2),
                quota.slots(64),
                quota.sliding_counter(),
                quota.fixed_window(),
                quota.fixed_window_offset(window / 3),
                quota.fixed_window_per_key(),
            ]);
            let buckets = [(limit, limit), (limit, limit * 3), (1, limit)];
            // Some would take too many years to fill.
            quotas.extend(
                buckets.into_iter().filter_map(|(units, burst)| {
                    Quota::try_token_bucket(Rate::new(units, window), burst).ok()
                }),
            );
        }
    }
    quotas
}

struct Watched<'a> {
    store: &'a RedisStore,
    connection: MultiplexedConnection,
    quota: Quota,
    key: Key,
    policy: PolicyName,
}

impl Watched<'_> {
    fn charge(&self, cost: u64) -> Charge<'_> {
        Charge::new(&self.key, &self.policy, self.quota).cost(cost)
    }

    /// Its key expires when its last unit has left, or a little later.
    async fn look(&self, after: &str) {
        let charges = [self.charge(1)];
        for _ in 0..20 {
            let before = self.expiry().await;
            let peeked = self
                .store
                .peek(&Ask::new(&charges).deadline(LONG))
                .await
                .expect("an answer");
            // The look itself changes nothing, but time passes.
            let expires = self.expiry().await;
            if before != expires {
                continue;
            }
            let quota = self.quota;
            let leaves = peeked.now.as_micros() + micros(peeked.states[0].reset_after);
            let Some(expires) = expires else {
                assert!(
                    leaves == peeked.now.as_micros(),
                    "no key after {after} by {quota:?}"
                );
                return;
            };
            let slack = SECOND.max(window(quota) / 8);
            // Redis counts in milliseconds.
            assert!(
                expires * 1_000 + 1_000 >= leaves,
                "after {after} by {quota:?}: the key leaves {} µs early",
                leaves - expires * 1_000
            );
            assert!(
                expires * 1_000 <= leaves.max(peeked.now.as_micros()) + micros(slack),
                "after {after} by {quota:?}: the key stays {} µs longer",
                expires * 1_000 - leaves
            );
            return;
        }
        panic!("the key never rests");
    }

    /// When the server's only key expires, in milliseconds since the epoch.
    async fn expiry(&self) -> Option<u64> {
        let mut connection = self.connection.clone();
        let keys: Vec<Vec<u8>> = cmd("KEYS")
            .arg("*")
            .query_async(&mut connection)
            .await
            .expect("a reply");
        let [key] = &keys[..] else {
            assert!(keys.is_empty(), "{keys:?}");
            return None;
        };
        let expires: i64 = cmd("PEXPIRETIME")
            .arg(key)
            .query_async(&mut connection)
            .await
            .expect("a reply");
        assert_ne!(expires, -1, "a key without TTL");
        u64::try_from(expires).ok()
    }

    async fn acquire(&self, ask: Ask<'_>) -> Outcome {
        self.store.acquire(&ask.deadline(LONG)).await.expect("an answer")
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("some years")
}

/// The time in which a bucket pays off its burst is its window here.
fn window(quota: Quota) -> Duration {
    quota.window()
}

#[tokio::test]
async fn c11_b5_b6_every_call_leaves_a_ttl_in_bounds() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let connection = server.connection().await.expect("it listens");
    for (index, quota) in quotas().into_iter().enumerate() {
        let () = server.cli(&["FLUSHALL"]).await;
        let watched = Watched {
            store: &store,
            connection: connection.clone(),
            quota,
            key: Key::from(index),
            policy: PolicyName::new("test").expect("a name"),
        };
        let limit = quota.limit().expect("it is limited");
        let one = [watched.charge(1)];
        let shadow = [watched.charge(1).mode(Mode::Shadow)];
        let all = [watched.charge(limit)];
        let none = [watched.charge(0)];
        let both = [watched.charge(1), watched.charge(1).mode(Mode::Shadow)];

        watched.acquire(Ask::new(&none)).await;
        watched.look("a cost of 0").await;
        let first = watched.acquire(Ask::new(&one)).await;
        watched.look("a charge").await;
        watched.acquire(Ask::new(&one)).await;
        watched.look("another").await;
        watched.acquire(Ask::new(&shadow)).await;
        watched.look("a shadow charge").await;
        watched.acquire(Ask::new(&both)).await;
        watched.look("both on one counter").await;
        store
            .give_back(&Ask::new(&one).deadline(LONG), 1, first.stamp)
            .await
            .expect("an answer");
        watched.look("a refund").await;
        watched.acquire(Ask::new(&one).want(3)).await;
        watched.look("several grants").await;
        let held = watched.acquire(Ask::new(&one).hold(SECOND / 4)).await;
        watched.look("a grant that is held").await;
        store
            .give_back(&Ask::new(&one).deadline(LONG), 1, held.stamp)
            .await
            .expect("an answer");
        watched.look("its refund").await;
        store
            .charge(&Ask::new(&one).deadline(LONG))
            .await
            .expect("an answer");
        watched.look("a settled charge").await;
        store
            .charge(&Ask::new(&all).deadline(LONG))
            .await
            .expect("an answer");
        watched.look("more than fits").await;
        watched.acquire(Ask::new(&one)).await;
        watched.look("a denial").await;
        store
            .reset(&Ask::new(&one).deadline(LONG))
            .await
            .expect("an answer");
        assert_eq!(
            keys(&server).await,
            Vec::<Vec<u8>>::new(),
            "after a reset by {quota:?}"
        );
        let whole = watched.acquire(Ask::new(&all)).await;
        watched.look("all at once").await;
        store
            .give_back(&Ask::new(&all).deadline(LONG), 1, whole.stamp)
            .await
            .expect("an answer");
        watched.look("all of it back").await;
    }
}

#[tokio::test]
async fn b8_a_bucket_lives_until_it_is_full() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    for (rate, at_least) in [(Rate::new(1, SECOND * 10), 9_000), (Rate::per_second(3), 250)] {
        let () = server.cli(&["FLUSHALL"]).await;
        let limiter = strict(&store, Quota::token_bucket(rate, 1));
        let first = limiter.check("k").await;
        let start = first.now();
        assert!(first.is_allowed());
        let [key] = keys(&server).await.try_into().expect("one key");
        let mut connection = server.connection().await.expect("it listens");
        let ttl: i64 = cmd("PTTL")
            .arg(&key)
            .query_async(&mut connection)
            .await
            .expect("a reply");
        assert!(ttl >= at_least, "{ttl}");
        let mut passed = 1;
        let mut last = start;
        for _ in 0..20 {
            let decision = limiter.check("k").await;
            passed += u64::from(decision.is_allowed());
            last = decision.now();
        }
        let elapsed = u128::from(last.as_micros() - start.as_micros());
        let refilled = elapsed * u128::from(rate.units_per_window()) / rate.window().as_micros();
        assert!(u128::from(passed) <= 1 + refilled, "{passed} in {elapsed} µs");
    }
}
