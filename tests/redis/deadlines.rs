//! C7 exactly: under paused time, on a connection that answers as it is told.

use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tollgate::store::{Ask, Charge, StoreErrorKind};
use tollgate::{FailurePolicy, Key, Limiter, PolicyName, Quota, RedisStore, Store};

use crate::scripted::{Reply, Scripted, Sent};
use crate::support::DEADLINE;

/// tokio's clock counts whole milliseconds, rounded up.
const TICK: Duration = Duration::from_millis(1);

type Script = fn(&Sent) -> Reply;

/// Every way to give no answer in time.
const SILENT: [Script; 4] = [
    |_| Reply::never(),
    |_| Reply::time(1).after(Duration::from_secs(2)),
    |_| Reply::new(Ok(Value::Nil)).after(DEADLINE + TICK * 2),
    // The clock is known at once, and nothing else ever.
    |sent| match sent.name.as_str() {
        "TIME" => Reply::time(1_700_000_000_000_000),
        _ => Reply::never(),
    },
];

/// Every way to give an answer that is none.
const WRONG: [Script; 16] = [
    |_| Reply::new(Ok(Value::Nil)),
    |_| Reply::integer(-7),
    |_| Reply::new(Ok(Value::Array(Vec::new()))),
    |_| {
        Reply::new(Ok(Value::Array(vec![
            Value::Int(i64::MAX),
            Value::Okay,
            Value::Int(-1),
        ])))
    },
    |_| Reply::new(Ok(Value::BulkString(b"what".to_vec()))),
    |_| Reply::error("NOSCRIPT No matching script. Please use EVAL."),
    |_| Reply::error("READONLY You can't write against a read only replica."),
    |_| Reply::error("LOADING Redis is loading the dataset in memory"),
    |_| Reply::error("BUSY Redis is busy running a script."),
    |_| Reply::error("CLUSTERDOWN The cluster is down"),
    |_| Reply::error("MOVED 866 127.0.0.1:7001"),
    |_| Reply::error("TRYAGAIN Multiple keys request during rehashing of slot"),
    |_| Reply::error("OOM command not allowed when used memory > 'maxmemory'."),
    |_| Reply::error("NOAUTH Authentication required."),
    |_| Reply::error("ERR Error running script: @user_script:1: attempt to do something"),
    |_| Reply::broken(),
];

fn limiter(connection: &Scripted, failure: FailurePolicy) -> Limiter {
    let store = RedisStore::new(connection.clone());
    Limiter::new(store, Quota::per_minute(100)).failure_policy(failure)
}

#[tokio::test(start_paused = true)]
async fn c7_silence_is_answered_at_the_deadline() {
    for script in SILENT {
        for failure in [
            FailurePolicy::Allow,
            FailurePolicy::Deny,
            FailurePolicy::default(),
        ] {
            for deadline in [10, 100, 1_000].map(Duration::from_millis) {
                let limiter = limiter(&Scripted::new(script), failure).deadline(deadline);
                let start = Instant::now();
                let decision = limiter.check("k").await;
                let took = start.elapsed();
                assert!(decision.is_degraded(), "{decision:?}");
                assert_eq!(decision.is_allowed(), failure != FailurePolicy::Deny);
                assert!(took <= deadline + TICK, "{took:?} for {deadline:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c7_errors_are_answered_before_the_deadline() {
    for script in WRONG {
        for delay in [0, 3, 40, 99, 150].map(Duration::from_millis) {
            let connection = Scripted::new(move |sent| script(sent).after(delay));
            let limiter = limiter(&connection, FailurePolicy::Deny);
            for _ in 0..12 {
                let start = Instant::now();
                let decision = limiter.check("k").await;
                let took = start.elapsed();
                let sent = connection.sent();
                assert!(decision.is_degraded(), "{decision:?} after {sent:?}");
                assert!(took <= DEADLINE + TICK, "{took:?} after {sent:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c7_queueing_is_included() {
    for script in SILENT {
        let connection = Scripted::new(script);
        let limiter = limiter(&connection, FailurePolicy::Deny);
        let mut checks = JoinSet::new();
        for index in 0_u32..2_000 {
            let limiter = limiter.clone();
            checks.spawn(async move {
                tokio::time::sleep(TICK * (index % 300)).await;
                let start = Instant::now();
                // Some merge, some are on their own.
                let decision = limiter.check(index % 700).await;
                (decision, start.elapsed())
            });
        }
        for (decision, took) in checks.join_all().await {
            assert!(decision.is_degraded(), "{decision:?}");
            assert!(took <= DEADLINE + TICK, "{took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c7_the_store_keeps_the_deadline_by_itself() {
    let (key, policy) = (Key::from("k"), PolicyName::new("test").expect("a name"));
    let charges = [Charge::new(&key, &policy, Quota::per_minute(100))];
    for script in SILENT {
        let store = RedisStore::new(Scripted::new(script));
        for deadline in [5, 50, 500].map(Duration::from_millis) {
            let ask = Ask::new(&charges).deadline(deadline);
            let start = Instant::now();
            let (acquired, charged, peeked, reset) = tokio::join!(
                store.acquire(&ask),
                store.charge(&ask),
                store.peek(&ask),
                store.reset(&ask)
            );
            let took = start.elapsed();
            assert!(took <= deadline + TICK, "{took:?} for {deadline:?}");
            let kinds = [
                acquired.map(drop).map_err(|error| error.kind()),
                charged.map(drop).map_err(|error| error.kind()),
                peeked.map(drop).map_err(|error| error.kind()),
                reset.map_err(|error| error.kind()),
            ];
            for kind in kinds {
                // The breaker may have opened.
                let expected = matches!(kind, Err(StoreErrorKind::Timeout | StoreErrorKind::Unavailable));
                assert!(expected, "{kind:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c7_no_deadline_is_no_wait() {
    let limiter = limiter(&Scripted::new(|_| Reply::never()), FailurePolicy::Allow).deadline(Duration::ZERO);
    let start = Instant::now();
    assert!(limiter.check("k").await.is_degraded());
    assert!(start.elapsed() <= TICK);
}

#[tokio::test(start_paused = true)]
async fn c6_nothing_is_sent_twice_unless_it_proves_that_it_was_not_executed() {
    let retried: [(Script, bool); 6] = [
        (|_| Reply::broken(), false),
        (|_| Reply::new(Ok(Value::Nil)), false),
        (|_| Reply::never(), false),
        (|_| Reply::error("ERR Error running script: whatever"), false),
        (
            |_| Reply::error("READONLY You can't write against a read only replica."),
            true,
        ),
        (
            |_| Reply::error("NOSCRIPT No matching script. Please use EVAL."),
            true,
        ),
    ];
    for (script, proves) in retried {
        // The clock is known first, so that the charge is not too late.
        let connection = Scripted::new(move |sent| match sent.name.as_str() {
            "TIME" => Reply::time(1_700_000_000_000_000),
            _ => script(sent),
        });
        let limiter = limiter(&connection, FailurePolicy::Deny);
        assert!(limiter.check("k").await.is_degraded());
        let sent = connection.sent();
        let calls = sent.iter().filter(|sent| sent.name.starts_with("EVAL")).count();
        // Once more for the script's text, and once more to another server.
        assert!(calls <= if proves { 3 } else { 1 }, "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c9_a_breaker_that_opened_asks_rarely_and_closes_again() {
    let connection = Scripted::new(|_| Reply::never());
    let limiter = limiter(&connection, FailurePolicy::Allow);
    let start = Instant::now();
    let mut at_once = 0;
    for _ in 0..500 {
        let before = Instant::now();
        assert!(limiter.check("k").await.is_degraded());
        at_once += u32::from(before.elapsed() < TICK);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(at_once > 400, "{at_once}");
    // One call for each that found it closed, one probe a second or more seldom, with some jitter.
    let (seconds, sent) = (start.elapsed().as_secs(), connection.sent().len() as u64);
    assert!(sent <= 20 + 2 * seconds, "{sent} calls in {seconds} s");
}
