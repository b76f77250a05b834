//! C6, C8, C13: many corrections at once, each made at most once, in time or not at all, whatever becomes of the others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{Value, cmd};
use tokio::task::JoinSet;
use tollgate::store::{Ask, Charge, Correction, Stamp, StoreErrorKind};
use tollgate::{Algorithm, Key, PolicyName, Quota, RedisStore, Store};

use crate::proxy::{Mode, Proxy};
use crate::scripted::{Reply, Scripted, Sent};
use crate::server::{Server, Version};
use crate::support::{
    DEADLINE, LONG, RECOVERY, YEAR, assert_every_key_expires, by_every_algorithm, connect, strict, until,
    used, used_by,
};

const QUOTA: Quota = Quota::new(100, YEAR);

fn policy() -> PolicyName {
    PolicyName::new("test").expect("a name")
}

/// Keys of which some units were granted, and when.
struct Granted {
    policy: PolicyName,
    quota: Quota,
    keys: Vec<(Key, Stamp)>,
}

impl Granted {
    async fn new(store: &RedisStore, quota: Quota, keys: usize, units: u32) -> Self {
        let mut asks = JoinSet::new();
        for number in 0..keys {
            let store = store.clone();
            asks.spawn(async move {
                let (key, policy) = (Key::from(format!("key {number}")), policy());
                let charges = [Charge::new(&key, &policy, quota)];
                let ask = Ask::new(&charges).want(units).deadline(LONG);
                let outcome = store.acquire(&ask).await.expect("an answer");
                assert_eq!(outcome.granted, units);
                (number, key, outcome.stamp)
            });
        }
        let mut granted = asks.join_all().await;
        granted.sort_unstable_by_key(|(number, ..)| *number);
        Self {
            policy: policy(),
            quota,
            keys: granted.into_iter().map(|(_, key, stamp)| (key, stamp)).collect(),
        }
    }

    fn charges(&self, cost: u64) -> Vec<[Charge<'_>; 1]> {
        self.keys
            .iter()
            .map(|(key, _)| [Charge::new(key, &self.policy, self.quota).cost(cost)])
            .collect()
    }

    /// A unit of each key.
    fn back<'a>(&'a self, charges: &'a [[Charge<'a>; 1]], deadline: Duration) -> Vec<Correction<'a>> {
        charges
            .iter()
            .zip(&self.keys)
            .map(|(charge, (_, stamp))| Correction::give_back(Ask::new(charge).deadline(deadline), 1, *stamp))
            .collect()
    }

    async fn used(&self, server: &Server) -> Vec<u64> {
        let store = connect(&server.url()).await;
        let mut units = Vec::new();
        for number in 0..self.keys.len() {
            units.push(used_by(&store, self.quota, &format!("key {number}")).await);
        }
        units
    }
}

/// How often the server has been called so, by scripts too.
async fn calls(server: &Server, commands: &[&str]) -> u64 {
    let stats: String = server.cli(&["INFO", "commandstats"]).await;
    let count = |command: &&str| {
        let calls = stats.split(&format!("cmdstat_{command}:calls=")).nth(1)?;
        calls.split(',').next()?.parse::<u64>().ok()
    };
    commands.iter().filter_map(count).sum()
}

const WRITES: [&str; 4] = ["set", "append", "setrange", "del"];

#[tokio::test]
async fn a_thousand_corrections_take_few_calls() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let granted = Granted::new(&store, QUOTA, 500, 2).await;
    let (ones, threes) = (granted.charges(1), granted.charges(3));
    let back = granted.back(&ones, LONG);
    let more = threes
        .iter()
        .map(|charge| Correction::charge(Ask::new(charge).deadline(LONG)));
    let corrections: Vec<_> = back.into_iter().zip(more).flat_map(<[_; 2]>::from).collect();
    let before = [
        calls(&server, &["evalsha", "eval"]).await,
        calls(&server, &["get"]).await,
        calls(&server, &WRITES).await,
    ];
    store.settle(&corrections).await.expect("all are made");
    let after = [
        calls(&server, &["evalsha", "eval"]).await,
        calls(&server, &["get"]).await,
        calls(&server, &WRITES).await,
    ];
    let made: Vec<u64> = after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect();
    // 128 of them a call; each key is read and written once.
    assert_eq!(made, [8, 500, 500]);
    let stats = store.stats();
    assert_eq!((stats.settle_calls, stats.corrections), (8, 1_000));
    assert_eq!(granted.used(&server).await, [4; 500]);
    assert_every_key_expires(&server).await;
}

#[tokio::test]
async fn calls_write_no_more_units_than_they_may() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let (key, other, policy) = (Key::from("k"), Key::from("other"), policy());
    let quota = Quota::new(4_000, YEAR);
    let units = |units| [Charge::new(&key, &policy, quota).cost(units)];
    let (many, few) = (units(400), units(1));
    let more_than_a_call = [Charge::new(&other, &policy, quota).cost(1_500)];
    let charge = |charge| Correction::charge(Ask::new(charge).deadline(LONG));
    let corrections = [
        charge(&many),
        charge(&many),
        charge(&many),
        charge(&more_than_a_call),
        charge(&few),
    ];
    // Whatever is loaded on the first call is.
    store.settle(&corrections[4..]).await.expect("it is made");
    let before = calls(&server, &["evalsha"]).await;
    store.settle(&corrections).await.expect("all are made");
    assert_eq!(calls(&server, &["evalsha"]).await - before, 4);
    assert_eq!(used_by(&store, quota, "k").await, 1_202);
    assert_eq!(used_by(&store, quota, "other").await, 1_500);
}

#[tokio::test]
async fn a_counter_that_corrections_share_is_read_once_and_written_once() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    for quota in by_every_algorithm(100, YEAR) {
        let () = server.cli(&["FLUSHALL"]).await;
        let granted = Granted::new(&store, quota, 1, 40).await;
        let charges = granted.charges(1);
        let back = granted.back(&charges, LONG)[0];
        let more = Correction::charge(Ask::new(&charges[0]).deadline(LONG));
        let corrections: Vec<_> = [back, more, more].into_iter().cycle().take(90).collect();
        let before = [calls(&server, &["get"]).await, calls(&server, &WRITES).await];
        store.settle(&corrections).await.expect("all are made");
        let after = [calls(&server, &["get"]).await, calls(&server, &WRITES).await];
        assert_eq!(after, before.map(|calls| calls + 1), "by {quota:?}");
        // A bucket gives back what it has not refilled since.
        let most = if quota.algorithm() == Some(Algorithm::TokenBucket) {
            71
        } else {
            70
        };
        let used = granted.used(&server).await[0];
        assert!((70..=most).contains(&used), "{used} by {quota:?}");
        assert_every_key_expires(&server).await;
    }
}

#[tokio::test]
async fn c6_a_connection_that_ends_in_a_call_takes_nothing_back_twice() {
    let server = Server::start(Version::V7).await;
    let proxy = Proxy::start(server.port()).await;
    let store = connect(&proxy.url()).await;
    let granted = Granted::new(&store, QUOTA, 3, 9).await;
    let charges = granted.charges(1);
    let corrections = granted.back(&charges, LONG);
    for round in 1..=4 {
        proxy.set(Mode::CutNextReply { after: round % 2 });
        let sent = proxy.sent("EVALSHA");
        let error = store.settle(&corrections).await.expect_err("no reply");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(!error.is_undone(), "it may have been done, and it was");
        assert_eq!(proxy.sent("EVALSHA"), sent + 1, "sent once");
        assert_eq!(granted.used(&server).await, [9 - round as u64; 3]);
        proxy.set(Mode::Pass);
        until("it is connected again", RECOVERY, async || {
            let nothing = Correction::give_back(corrections[0].ask, 1, Stamp::default());
            store.settle(&[nothing]).await.is_ok()
        })
        .await;
    }
    assert_eq!(granted.used(&server).await, [5; 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_nothing_is_corrected_after_the_deadline() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let granted = Granted::new(&store, QUOTA, 4, 9).await;
    let charges = granted.charges(1);
    let mut corrections = granted.back(&charges, DEADLINE);
    corrections[3] = Correction::charge(Ask::new(&charges[3]).deadline(DEADLINE));
    let before = calls(&server, &["evalsha", "eval"]).await;
    server.stop();
    let error = store.settle(&corrections).await.expect_err("no reply");
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    assert!(!error.is_undone());
    server.cont();
    until("the call arrives", RECOVERY, async || {
        calls(&server, &["evalsha", "eval"]).await > before
    })
    .await;
    assert_eq!(granted.used(&server).await, [9; 4]);
}

#[tokio::test]
async fn c8_a_correction_that_is_late_harms_none_that_is_not() {
    let server = Server::start(Version::V7).await;
    let proxy = Proxy::start(server.port()).await;
    let store = connect(&proxy.url()).await;
    let granted = Granted::new(&store, QUOTA, 4, 9).await;
    let charges = granted.charges(1);
    let (late, in_time) = (granted.back(&charges, DEADLINE), granted.back(&charges, LONG));
    let late_charge = Correction::charge(Ask::new(&charges[2]).deadline(DEADLINE));
    proxy.set(Mode::Delay {
        commands: DEADLINE * 3,
        replies: Duration::ZERO,
    });
    let error = store
        .settle(&[late[0], in_time[1], late_charge, in_time[3]])
        .await
        .expect_err("some were late");
    assert_eq!(error.kind(), StoreErrorKind::Overloaded);
    assert!(!error.is_undone(), "two were made");
    assert_eq!(store.stats().too_late, 2);
    proxy.set(Mode::Pass);
    assert_eq!(granted.used(&server).await, [9, 8, 9, 8]);
}

const NOON: i64 = 1_700_000_000_000_000;

/// The number of corrections of a call.
fn corrections_in(sent: &Sent) -> usize {
    let texts: Vec<_> = sent
        .arguments
        .iter()
        .map(|it| String::from_utf8_lossy(it))
        .collect();
    let keys: usize = texts[1].parse().expect("the number of keys");
    texts[2 + keys].parse().expect("the number of corrections")
}

/// Replies to calls in turn.
fn replying(replies: Vec<Vec<i64>>) -> Scripted {
    let calls = AtomicUsize::new(0);
    Scripted::new(move |sent| {
        if sent.name == "TIME" {
            return Reply::time(NOON.unsigned_abs());
        }
        let each = &replies[calls.fetch_add(1, Ordering::Relaxed)];
        let values = [NOON].iter().chain(each).copied().map(Value::Int).collect();
        Reply::new(Ok(Value::Array(values)))
    })
}

/// What each call carried, and how settling three give-backs ended.
async fn settle_three(replies: Vec<Vec<i64>>) -> (Vec<usize>, Result<(), (StoreErrorKind, bool)>) {
    let connection = replying(replies);
    let store = RedisStore::new(connection.clone());
    let (keys, policy) = (["a", "b", "c"].map(Key::from), policy());
    let charges = keys.each_ref().map(|key| [Charge::new(key, &policy, QUOTA)]);
    let corrections = charges
        .each_ref()
        .map(|charge| Correction::give_back(Ask::new(charge), 1, Stamp::from_micros(7)));
    let settled = store.settle(&corrections).await;
    let sent = connection.sent();
    let calls = sent.iter().filter(|sent| sent.name != "TIME");
    (
        calls.map(corrections_in).collect(),
        settled.map_err(|error| (error.kind(), error.is_undone())),
    )
}

#[tokio::test(start_paused = true)]
async fn c8_what_came_too_late_alone_is_sent_again_and_once() {
    let overloaded = |undone| Err((StoreErrorKind::Overloaded, undone));
    let unreadable = Err((StoreErrorKind::Protocol, false));
    assert_eq!(settle_three(vec![vec![0, 0, 0]]).await, (vec![3], Ok(())));
    assert_eq!(
        settle_three(vec![vec![0, -1, 0], vec![0]]).await,
        (vec![3, 1], Ok(()))
    );
    assert_eq!(
        settle_three(vec![vec![-1, 0, -1], vec![-1, 0]]).await,
        (vec![3, 2], overloaded(false))
    );
    assert_eq!(
        settle_three(vec![vec![-1; 3], vec![-1; 3]]).await,
        (vec![3, 3], overloaded(true))
    );
    assert_eq!(settle_three(vec![vec![0, 0]]).await, (vec![3], unreadable));
}

#[tokio::test]
async fn a_server_that_has_forgotten_the_script_corrects_once() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let granted = Granted::new(&store, QUOTA, 3, 9).await;
    let charges = granted.charges(1);
    let mut corrections = granted.back(&charges, LONG);
    corrections.push(Correction::charge(Ask::new(&charges[2]).deadline(LONG)));
    for round in 1..=3 {
        let () = server.cli(&["SCRIPT", "FLUSH"]).await;
        store.settle(&corrections).await.expect("all are made");
        assert_eq!(granted.used(&server).await, [9 - round, 9 - round, 9]);
    }
}

#[tokio::test]
async fn what_the_server_refused_or_never_got_is_said_to_be_undone() {
    let mut server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let granted = Granted::new(&store, QUOTA, 3, 9).await;
    let charges = granted.charges(1);
    let corrections = granted.back(&charges, LONG);
    let refuse = async |replicas: &str| {
        let _: () = server
            .cli(&["CONFIG", "SET", "min-replicas-to-write", replicas])
            .await;
    };
    refuse("1").await;
    let error = store.settle(&corrections).await.expect_err("refused");
    assert!(error.is_undone(), "{error:?}");
    refuse("0").await;
    assert_eq!(granted.used(&server).await, [9; 3]);
    store.settle(&corrections).await.expect("all are made");
    assert_eq!(granted.used(&server).await, [8; 3]);
    server.kill();
    until("the store knows", RECOVERY, async || {
        let error = store.settle(&corrections).await.expect_err("there is no server");
        error.is_undone()
    })
    .await;
}

#[tokio::test]
async fn c13_a_poisoned_key_harms_no_other_correction() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    for quota in by_every_algorithm(100, YEAR) {
        for poison in [
            &["LPUSH", "KEY", "1"][..],
            &["HSET", "KEY", "f", "v"],
            &["SET", "KEY", "x"],
        ] {
            let () = server.cli(&["FLUSHALL"]).await;
            let granted = Granted::new(&store, quota, 20, 5).await;
            let [bad]: [Vec<u8>; 1] = server
                .cli::<Vec<Vec<u8>>>(&["KEYS", "*{key=key%207}*"])
                .await
                .try_into()
                .unwrap_or_else(|keys| panic!("{keys:?}"));
            let mut connection = server.connection().await.expect("it listens");
            let _: Value = cmd("DEL")
                .arg(&bad)
                .query_async(&mut connection)
                .await
                .expect("a reply");
            let mut put = cmd(poison[0]);
            for argument in &poison[1..] {
                match *argument {
                    "KEY" => put.arg(&bad),
                    argument => put.arg(argument),
                };
            }
            let _: Value = put.query_async(&mut connection).await.expect("a reply");

            let charges = granted.charges(1);
            let corrections = granted.back(&charges, LONG);
            store.settle(&corrections).await.expect("all are made");
            let mut expected = vec![4; 20];
            expected[7] = 0;
            assert_eq!(granted.used(&server).await, expected, "{poison:?} by {quota:?}");
            // What is charged heals it.
            let charge = Correction::charge(Ask::new(&charges[7]).deadline(LONG));
            store.settle(&[charge]).await.expect("it is made");
            expected[7] = 1;
            assert_eq!(granted.used(&server).await, expected, "{poison:?} by {quota:?}");
            assert_every_key_expires(&server).await;
        }
    }
}

#[tokio::test]
async fn what_nothing_counts_needs_no_server() {
    let mut server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    server.kill();
    let (key, policy) = (Key::from("k"), policy());
    let charges = [Charge::new(&key, &policy, Quota::unlimited())];
    let corrections = [
        Correction::charge(Ask::new(&charges)),
        Correction::give_back(Ask::new(&charges), 1, Stamp::from_micros(7)),
    ];
    store.settle(&[]).await.expect("nothing to do");
    store.settle(&corrections).await.expect("nothing to do");
}

#[tokio::test]
async fn c1_a_decision_is_given_back_whole() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let limiter = strict(&store, QUOTA);
    let charge = limiter.reserve("k", 3).await.expect("there is room");
    let decision = charge.decision();
    let [policy] = decision.policies() else {
        panic!("{decision:?}");
    };
    assert!(policy.is_charged());
    assert_eq!(policy.stamp(), decision.stamp());
    assert_eq!(used(&server, QUOTA, "k").await, 3);
    charge.give_back_now().await.expect("an answer");
    assert_eq!(used(&server, QUOTA, "k").await, 0);
    let denied = limiter.check_cost("k", 101).await;
    assert!(!denied.policies()[0].is_charged());
}
