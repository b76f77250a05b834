//! Asks over several policies that travel together: keys that many of them share, garbage amid them, and others that
//! the script answers another way.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;
use tollgate::store::{Ask, Charge};
use tollgate::{Key, Penalty, PolicyName, Quota, RedisStore, Store};

use crate::server::{Server, Version};
use crate::support::{LONG, YEAR, assert_every_key_expires, connect, keys};

const USERS: usize = 8;
const EACH: usize = 12;

fn name(text: &str) -> PolicyName {
    PolicyName::new(text).expect("a name")
}

/// One ask of these charges.
async fn ask(store: &RedisStore, charges: &[(&Key, &PolicyName, Quota, u64)]) -> u32 {
    let charges: Vec<Charge<'_>> = charges
        .iter()
        .map(|&(key, policy, quota, cost)| Charge::new(key, policy, quota).cost(cost))
        .collect();
    let answer = store.acquire(&Ask::new(&charges).deadline(LONG)).await;
    answer.expect("it answers").granted
}

/// How many asks of each user are granted: half of them over three policies, the others over one or with a layout
/// that is answered in general.
async fn grants(store: &RedisStore, user_limit: u64, all_limit: u64) -> [u64; USERS] {
    let policies = Arc::new([name("short"), name("long"), name("all"), name("bucket")]);
    let mut asks = JoinSet::new();
    for number in 0..USERS * EACH {
        let (store, policies) = (store.clone(), Arc::clone(&policies));
        let user = number % USERS;
        asks.spawn(async move {
            let [short, long, all, bucket] = &*policies;
            let (key, everyone) = (Key::from(user as u64), Key::from("everyone"));
            let log = Quota::new(user_limit, YEAR);
            let day = Quota::new(user_limit * 3, YEAR / 2);
            let slots = Quota::new(all_limit, YEAR).slots(64);
            let wide = Quota::token_bucket(tollgate::Rate::new(1_000, YEAR), 1_000);
            let granted = match number / USERS % 3 {
                0 => {
                    ask(
                        &store,
                        &[
                            (&key, short, log, 1),
                            (&key, long, day, 1),
                            (&everyone, all, slots, 1),
                        ],
                    )
                    .await
                }
                1 => {
                    ask(
                        &store,
                        &[
                            (&key, short, log, 1),
                            (&everyone, all, slots, 1),
                            (&key, bucket, wide, 1),
                        ],
                    )
                    .await
                }
                _ => ask(&store, &[(&key, short, log, 1), (&everyone, all, slots, 1)]).await,
            };
            (user, u64::from(granted))
        });
    }
    let mut granted = [0; USERS];
    while let Some(answer) = asks.join_next().await {
        let (user, times) = answer.expect("no panic");
        granted[user] += times;
    }
    granted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c5_asks_that_travel_together_take_exactly_what_all_limits_allow() {
    for version in Version::all() {
        let server = Server::start(version).await;
        let store = connect(&server.url()).await;
        for (user_limit, all_limit) in [(5, 1_000), (7, 30), (1, 1_000), (EACH as u64, 10)] {
            let () = server.cli(&["FLUSHALL"]).await;
            let granted = grants(&store, user_limit, all_limit).await;
            let each = user_limit * USERS as u64;
            assert_eq!(granted.iter().sum::<u64>(), each.min(all_limit), "{granted:?}");
            assert!(granted.iter().all(|&times| times <= user_limit), "{granted:?}");
            assert_every_key_expires(&server).await;
            // What was denied has left no trace: a raise gives exactly the rest.
            let rest = grants(&store, user_limit, all_limit + 3).await;
            let left = (each - granted.iter().sum::<u64>()).min(all_limit + 3 - each.min(all_limit));
            assert_eq!(rest.iter().sum::<u64>(), left, "{rest:?}");
        }
        let stats = store.stats();
        assert!(stats.calls < stats.asks, "some travelled together: {stats:?}");
    }
}

/// More counters than a byte counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c5_asks_of_hundreds_of_counters_charge_each_its_own() {
    const ASKS: u64 = 6;
    const CHARGES: u64 = 150;
    let server = Server::start(Version::V7).await;
    let builder = RedisStore::builder().max_batch(1_000).max_in_flight(1);
    let store = builder.connect(&server.url()).await.expect("it serves");
    for granted in [1, 1, 0] {
        let mut asks = JoinSet::new();
        for number in 0..ASKS {
            let store = store.clone();
            asks.spawn(async move {
                let policy = name("p");
                let keys: Vec<Key> = (0..CHARGES).map(|at| Key::from(number * CHARGES + at)).collect();
                let charges: Vec<_> = keys
                    .iter()
                    .map(|key| (key, &policy, Quota::new(2, YEAR), 1))
                    .collect();
                ask(&store, &charges).await
            });
        }
        assert_eq!(asks.join_all().await, [granted; ASKS as usize]);
    }
    assert_eq!(keys(&server).await.len() as u64, ASKS * CHARGES);
    let stats = store.stats();
    assert!(stats.calls < stats.asks, "some travelled together: {stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c13_poison_amid_asks_of_several_charges_harms_no_other() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    for poison in ["list", "garbage", "another layout"] {
        let () = server.cli(&["FLUSHALL"]).await;
        // One ask of each user, so that all keys are there.
        assert_eq!(grants(&store, 1, 1_000).await, [1; USERS]);
        for key in keys(&server).await {
            let key = String::from_utf8(key).expect("it is text");
            let _: Value = server.cli(&["DEL", &key]).await;
            // Those of every other user, and what all share.
            if key.contains("=1}") || key.contains("=3}") || key.contains("everyone") {
                let _: Value = match poison {
                    "list" => server.cli(&["RPUSH", &key, "1", "2"]).await,
                    "garbage" => server.cli(&["SET", &key, "Lxxxxxxxxxxxxxxxxxxxx"]).await,
                    _ => server.cli(&["SET", &key, "Bxxxxxxxxxxxxxxx"]).await,
                };
            }
        }
        assert_eq!(grants(&store, 5, 1_000).await, [5; USERS], "{poison}");
        // Which kinds of asks got these is a matter of order, and a counter that none has charged is not written. Now all are.
        let each = EACH as u64;
        assert_eq!(grants(&store, each + 5, 1_000).await, [each; USERS], "{poison}");
        assert_every_key_expires(&server).await;
    }
}

/// A plain ask on a log with a unit ahead of the clock is answered as others are, and written once, whatever travels with
/// it.
#[tokio::test]
async fn c6_a_log_ahead_of_the_clock_is_charged_once_in_a_batch() {
    let server = Server::start(Version::V7).await;
    let store = RedisStore::builder()
        .max_in_flight(1)
        .connect(&server.url())
        .await
        .expect("it can serve");
    let (ahead, other, penalized) = (Key::from("ahead"), Key::from("other"), Key::from("penalized"));
    let (policy, penalty) = (name("test"), Penalty::manual());
    let quota = Quota::per_minute(100);
    let (ahead, other, penalized) = (
        [Charge::new(&ahead, &policy, quota)],
        [Charge::new(&other, &policy, quota)],
        [Charge::new(&penalized, &policy, quota).penalty(&penalty)],
    );
    let held = Ask::new(&ahead).deadline(LONG).hold(Duration::from_secs(1));
    assert_eq!(store.acquire(&held).await.expect("it answers").granted, 1);
    let plain = Ask::new(&ahead).deadline(LONG);
    // The first is under way alone; the others wait and travel together.
    let (_, told, _) = tokio::join!(
        store.acquire(&Ask::new(&other).deadline(LONG)),
        store.acquire(&plain),
        store.acquire(&Ask::new(&penalized).deadline(LONG)),
    );
    let told = told.expect("it answers").states[0].remaining;
    let left = store.peek(&plain).await.expect("it answers").states[0].remaining;
    assert_eq!((told, left), (98, 98));
    assert_eq!(store.stats().calls, 3);
}

/// Plain asks of one quota that travel together differ in cost and in how often they are wanted, and each counter takes its
/// own.
#[tokio::test]
async fn c1_plain_asks_of_one_quota_in_a_batch_take_each_their_own() {
    let server = Server::start(Version::V7).await;
    let builder = RedisStore::builder().max_in_flight(1);
    let store = builder.connect(&server.url()).await.expect("it can serve");
    let (policy, quota) = (name("test"), Quota::new(100, YEAR));
    let keys = ["first", "one", "three", "twice", "again"].map(Key::from);
    let charges = keys.each_ref().map(|key| [Charge::new(key, &policy, quota)]);
    let three = [charges[2][0].cost(3)];
    let asks = [
        // Under way alone, so that the others wait.
        Ask::new(&charges[0]),
        Ask::new(&charges[1]),
        Ask::new(&three),
        Ask::new(&charges[3]).want(2),
        Ask::new(&charges[4]),
    ]
    .map(|ask| ask.deadline(LONG));
    // Twice: the second time, the logs are there.
    for round in 1..=2 {
        let [a, b, c, d, e] = &asks;
        let answers = tokio::join!(
            store.acquire(a),
            store.acquire(b),
            store.acquire(c),
            store.acquire(d),
            store.acquire(e)
        );
        let answers = [answers.0, answers.1, answers.2, answers.3, answers.4];
        for (at, (answer, takes)) in answers.into_iter().zip([1, 1, 3, 2, 1]).enumerate() {
            let told = answer.expect("it answers").states[0].remaining;
            let left = store.peek(&asks[at]).await.expect("it answers").states[0].remaining;
            assert_eq!(
                (told, left),
                (100 - takes * round, 100 - takes * round),
                "{:?}",
                keys[at]
            );
        }
    }
    assert_eq!(store.stats().calls, 4);
}

/// What an ask was granted stays charged where a later one of the same call shares a counter with garbage.
#[tokio::test]
async fn c1_what_was_granted_before_a_counter_was_left_over_is_written() {
    let server = Server::start(Version::V7).await;
    let builder = RedisStore::builder().max_in_flight(1);
    let store = builder.connect(&server.url()).await.expect("it can serve");
    let [log, slots] = [Quota::new(100, YEAR), Quota::new(100, YEAR).slots(64)];
    for (kind, quota) in [("log", log), ("slots", slots)] {
        let _: Value = server.cli(&["FLUSHALL"]).await;
        let policy = name(kind);
        let [ahead, shared, own, garbage] = ["ahead", "shared", "own", "garbage"].map(Key::from);
        let one = |key| (key, &policy, quota, 1);
        assert_eq!(ask(&store, &[one(&garbage)]).await, 1);
        for key in keys(&server).await {
            let key = String::from_utf8(key).expect("it is text");
            let _: Value = server.cli(&["SET", &key, "garbage"]).await;
        }
        let (only, before, after) = (
            [one(&ahead)],
            [one(&shared), one(&own)],
            [one(&shared), one(&garbage)],
        );
        // The first is under way alone; the others wait and travel together.
        let calls = store.stats().calls;
        let granted = tokio::join!(ask(&store, &only), ask(&store, &before), ask(&store, &after));
        assert_eq!((granted, store.stats().calls), ((1, 1, 1), calls + 2), "{kind}");
        let charges = [Charge::new(&shared, &policy, quota)];
        let peeked = store.peek(&Ask::new(&charges).deadline(LONG)).await;
        assert_eq!(peeked.expect("it answers").states[0].remaining, 98, "{kind}");
    }
}
