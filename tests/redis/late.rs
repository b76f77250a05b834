//! C6, C8: what a server does after the deadline, and grants whose replies are late.

use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::store::{Ask, Charge, StoreErrorKind};
use tollgate::{Decision, FailurePolicy, Key, Limiter, PolicyName, Quota, RedisStore, Store};

use crate::scripted::{Reply, Scripted, Sent};
use crate::server::{Server, Version};
use crate::support::{DEADLINE, LONG, RECOVERY, YEAR, connect, until};

const QUOTA: Quota = Quota::new(100, YEAR);

fn name(name: &str) -> PolicyName {
    PolicyName::new(name).expect("a name")
}

async fn remaining(store: &RedisStore, charge: Charge<'_>) -> u64 {
    let peeked = store.peek(&Ask::new(&[charge]).deadline(LONG)).await;
    peeked.expect("the server answers").states[0].remaining
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_no_script_changes_anything_after_the_deadline() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let (one, two) = (name("one"), name("two"));
    let [asked, settled, refunded] = ["asked", "settled", "refunded"].map(Key::from);
    let both = [Charge::new(&asked, &one, QUOTA), Charge::new(&asked, &two, QUOTA)];
    let settle = [Charge::new(&settled, &one, QUOTA)];
    let refund = [Charge::new(&refunded, &one, QUOTA)];
    // Whatever is loaded or known on the first call is, and there is something to give back.
    let before = store.acquire(&Ask::new(&refund).deadline(LONG)).await;
    let stamp = before.expect("an answer").stamp;
    server.stop();
    let (acquired, charged, given_back) = tokio::join!(
        store.acquire(&Ask::new(&both).deadline(DEADLINE)),
        store.charge(&Ask::new(&settle).deadline(DEADLINE)),
        store.give_back(&Ask::new(&refund).deadline(DEADLINE), 1, stamp),
    );
    for kind in [
        acquired.map(drop).map_err(|error| error.kind()),
        charged.map(drop).map_err(|error| error.kind()),
        given_back.map_err(|error| error.kind()),
    ] {
        assert_eq!(kind, Err(StoreErrorKind::Timeout));
    }
    let scripts = async || {
        let stats: String = server.cli(&["INFO", "commandstats"]).await;
        let calls = stats.split("cmdstat_evalsha:calls=").nth(1);
        calls.and_then(|rest| rest.split(',').next()?.parse::<u64>().ok())
    };
    server.cont();
    until("all three arrive, after the first", RECOVERY, async || {
        scripts().await >= Some(4)
    })
    .await;
    let other = connect(&server.url()).await;
    for charge in both.into_iter().chain(settle) {
        let policy = charge.policy.clone();
        assert_eq!(remaining(&other, charge).await, 100, "{policy:?}");
    }
    assert_eq!(remaining(&other, refund[0]).await, 99, "given back too late");
    // Nor is it so because what was done was undone.
    assert_eq!(store.stats().late_grants, 0);
}

const NOON: u64 = 1_700_000_000_000_000;

/// The arguments of a script's call that follow its keys.
fn arguments(sent: &Sent) -> &[Vec<u8>] {
    let number = |argument: &[u8]| str::from_utf8(argument).ok()?.parse::<usize>().ok();
    let keys = number(&sent.arguments[1]).expect("the number of keys");
    &sent.arguments[2 + keys..]
}

/// How many grants it asks for, if it does and for those of one kind: then it has one argument, in which the fifth number
/// is that. What gives back begins with the number of grants and the stamp.
fn wanted(sent: &Sent) -> Option<u32> {
    match arguments(sent) {
        [group] if group.len() == 44 => Some(u32::from_be_bytes(*group[8..].first_chunk()?)),
        _ => None,
    }
}

/// Grants all that is wanted, so much later.
fn granting(after: Duration) -> Scripted {
    Scripted::new(move |sent| {
        if sent.name == "TIME" {
            return Reply::time(NOON);
        }
        let answer = wanted(sent).map_or(0, i64::from);
        let now = i64::try_from(NOON).expect("some years");
        Reply::new(Ok(Value::Array(vec![Value::Int(now), Value::Int(answer)]))).after(after)
    })
}

/// How many grants were asked for in calls, and how many were given back.
fn asked_and_given_back(connection: &Scripted) -> (Vec<u64>, u64) {
    let (mut asked, mut given_back) = (Vec::new(), 0);
    for sent in connection.sent().iter().filter(|sent| sent.name != "TIME") {
        if let Some(wanted) = wanted(sent) {
            asked.push(wanted.into());
        } else {
            let first = str::from_utf8(&arguments(sent)[0]).expect("text");
            given_back += first.parse::<u64>().expect("a number");
        }
    }
    (asked, given_back)
}

fn limiter(store: &RedisStore, failure: FailurePolicy) -> Limiter {
    Limiter::new(store.clone(), QUOTA)
        .name("test")
        .failure_policy(failure)
}

#[tokio::test(start_paused = true)]
async fn c6_a_late_grant_is_kept_by_who_was_let_in_and_given_back_by_who_was_not() {
    for (failure, expected) in [(FailurePolicy::Allow, 0), (FailurePolicy::Deny, 1)] {
        let connection = granting(DEADLINE * 2);
        let store = RedisStore::new(connection.clone());
        let decision = limiter(&store, failure).check("k").await;
        assert!(decision.is_degraded(), "{decision:?}");
        assert_eq!(decision.is_allowed(), failure == FailurePolicy::Allow);
        sleep(LONG).await;
        let sent = asked_and_given_back(&connection);
        assert_eq!(sent, (vec![1], expected), "{failure:?}: {:?}", connection.sent());
        assert_eq!(store.stats().late_grants, expected, "{failure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c6_late_grants_of_merged_checks_are_kept_or_given_back_one_by_one() {
    // The replies to those that are sent at once come in time; those to what waits for them do not.
    let connection = granting(DEADLINE * 6 / 10);
    let store = RedisStore::new(connection.clone());
    let (allow, deny) = (
        limiter(&store, FailurePolicy::Allow),
        limiter(&store, FailurePolicy::Deny),
    );
    let mut checks = JoinSet::new();
    for index in 0..12 {
        // Of those that wait, too, some are let in and some are not.
        let limiter = if index % 3 == 0 {
            allow.clone()
        } else {
            deny.clone()
        };
        checks.spawn(async move { limiter.check("k").await });
    }
    let decisions = checks.join_all().await;
    let degraded: Vec<&Decision> = decisions.iter().filter(|it| it.is_degraded()).collect();
    let refused = degraded.iter().filter(|it| !it.is_allowed()).count() as u64;
    assert!(
        refused > 2 && degraded.len() as u64 > refused + 2,
        "{decisions:?}"
    );
    sleep(LONG).await;
    let (asked, given_back) = asked_and_given_back(&connection);
    assert!(
        asked.iter().any(|&want| want >= degraded.len() as u64),
        "merged: {asked:?}"
    );
    assert_eq!(asked.iter().sum::<u64>(), 12);
    assert_eq!(given_back, refused, "{:?}", connection.sent());
    assert_eq!(store.stats().late_grants, refused);
}
