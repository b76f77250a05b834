//! Public bug reports about other rate limiters, on a real server; see the ids there.

use std::time::Duration;

use redis::cmd;
use tollgate::store::{Ask, Charge};
use tollgate::{
    ChargeHandle, Decision, FailurePolicy, Key, Limiter, MemoryStore, PolicyName, Quota, RedisStore, Store,
};

use crate::server::{Server, Version};
use crate::support::{
    LONG, YEAR, admitted, assert_every_key_expires, by_every_algorithm, check_all, connect, keys, strict,
    time, until, used_by,
};

#[tokio::test]
async fn r19_a_full_window_empties_and_fills_again() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let window = Duration::from_millis(400);
    // A bucket refills while it is emptied; its bound is another.
    for quota in [Quota::new(100, window), Quota::new(100, window).slots(16)] {
        let limiter = strict(&store, quota);
        for round in 0..3 {
            let decisions = check_all(&limiter, "k", 130).await;
            assert_eq!(admitted(&decisions), 100, "round {round} by {quota:?}");
            let last = decisions
                .iter()
                .map(|it| it.now().as_micros())
                .max()
                .expect("some");
            // A slot ends later than its first unit.
            let left = last + micros(window) + micros(window) / 16 + 2;
            until("the window has passed", LONG, async || time(&server).await > left).await;
        }
        // What has left the window is trimmed: one more charge leaves the length of one.
        assert_eq!(admitted(&check_all(&limiter, "k", 1).await), 1);
        let [key] = keys(&server).await.try_into().expect("one key");
        let mut connection = server.connection().await.expect("it listens");
        let bytes: u64 = cmd("MEMORY")
            .arg("USAGE")
            .arg(&key)
            .query_async(&mut connection)
            .await
            .expect("a reply");
        assert!(bytes < 400, "{bytes} by {quota:?}");
        let () = server.cli(&["FLUSHALL"]).await;
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("some years")
}

#[tokio::test]
async fn r23_denied_attempts_do_not_count_and_a_raise_acts_at_once() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    for (low, high) in by_every_algorithm(5, YEAR)
        .into_iter()
        .zip(by_every_algorithm(12, YEAR))
    {
        let limiter = strict(&store, low);
        assert_eq!(admitted(&check_all(&limiter, "k", 5).await), 5);
        let first = limiter.check("k").await;
        for _ in 0..5 {
            assert_eq!(admitted(&check_all(&limiter, "k", 100).await), 0);
        }
        let later = limiter.check("k").await;
        let ends =
            |denied: &Decision| denied.now().as_micros() + micros(denied.retry_after().expect("a wait"));
        assert_eq!(ends(&first), ends(&later), "denials move nothing: {low:?}");
        let raised = check_all(&strict(&store, high), "k", 20).await;
        // What a bucket has room for depends on what is owed, whose worth a new rate changes.
        let expected = if low.rate().is_some() { 7..=12 } else { 7..=7 };
        assert!(
            expected.contains(&admitted(&raised)),
            "{} by {high:?}",
            admitted(&raised)
        );
    }
}

#[tokio::test]
async fn b3_polling_at_exactly_the_window_leaves_no_key_behind() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let window = Duration::from_millis(20);
    let mut tasks = tokio::task::JoinSet::new();
    for (index, quota) in by_every_algorithm(1, window).into_iter().enumerate() {
        let limiter = strict(&store, quota);
        let mut connection = server.connection().await.expect("it listens");
        tasks.spawn(async move {
            let mut ticks = tokio::time::interval(window);
            let mut passed = 0;
            for _ in 0..300 {
                ticks.tick().await;
                let decision = limiter.check(index).await;
                assert!(!decision.is_degraded(), "{decision:?}");
                passed += u32::from(decision.is_allowed());
                let keys: Vec<Vec<u8>> = cmd("KEYS")
                    .arg("*")
                    .query_async(&mut connection)
                    .await
                    .expect("a reply");
                for key in keys {
                    let ttl: i64 = cmd("PTTL")
                        .arg(key)
                        .query_async(&mut connection)
                        .await
                        .expect("a reply");
                    // -2: it has expired since.
                    assert_ne!(ttl, -1, "a key without TTL");
                }
            }
            // A tick may come a little early; the next one then passes.
            assert!(passed >= 75, "{passed} of 300 by {quota:?}");
        });
    }
    tasks.join_all().await;
    until("all keys expire", Duration::from_secs(3), async || {
        keys(&server).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn b11_a_call_just_after_the_window_is_admitted() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let window = Duration::from_millis(300);
    for quota in [Quota::new(10, window), Quota::new(10, window).slots(64)] {
        let limiter = strict(&store, quota);
        let decisions = check_all(&limiter, "k", 10).await;
        assert_eq!(admitted(&decisions), 10);
        let first = decisions
            .iter()
            .map(|it| it.stamp().as_micros())
            .min()
            .expect("some");
        let slot = quota
            .slot_count()
            .map_or(0, |slots| micros(window).div_ceil(u64::from(slots)));
        until("the window has passed", LONG, async || {
            time(&server).await > first + micros(window) + slot
        })
        .await;
        let decision = limiter.check("k").await;
        assert!(decision.is_allowed(), "{quota:?}: {decision:?}");
    }
}

/// Does the same with both stores, and compares what they say.
#[tokio::test]
async fn b35_both_stores_give_the_same_answers() {
    let server = Server::start(Version::V7).await;
    let redis = connect(&server.url()).await;
    let memory = MemoryStore::new();
    let mut random = fastrand::Rng::with_seed(35);
    let quotas = [0, 1, 3, 10, 4_000]
        .into_iter()
        .flat_map(|limit| by_every_algorithm(limit, YEAR));
    for quota in quotas.chain([Quota::unlimited()]) {
        let limiters = (strict_memory(&memory, quota), strict(&redis, quota));
        for step in 0..40 {
            let key = format!("k{}", random.u8(..3));
            let limit = quota.limit().unwrap_or(7);
            let cost = [0, 1, 1, 1, 2, limit, limit + 1][random.usize(..7)];
            match random.u8(..10) {
                0 => {
                    let both = (
                        limiters.0.peek(key.as_str()).await,
                        limiters.1.peek(key.as_str()).await,
                    );
                    compare(&both, &format!("peek, step {step} by {quota:?}"));
                }
                1 => {
                    limiters.0.reset(key.as_str()).await.expect("an answer");
                    limiters.1.reset(key.as_str()).await.expect("an answer");
                }
                what => {
                    let reserved = (
                        limiters.0.reserve(key.as_str(), cost).await,
                        limiters.1.reserve(key.as_str(), cost).await,
                    );
                    let both = (decision(&reserved.0), decision(&reserved.1));
                    compare(&both, &format!("cost {cost}, step {step} by {quota:?}"));
                    if let (2, (Ok(one), Ok(other))) = (what, reserved) {
                        one.give_back_now().await.expect("an answer");
                        other.give_back_now().await.expect("an answer");
                    }
                }
            }
        }
    }
    assert_every_key_expires(&server).await;
}

fn strict_memory(store: &MemoryStore, quota: Quota) -> Limiter {
    Limiter::new(store.clone(), quota)
        .name("test")
        .failure_policy(FailurePolicy::Deny)
}

fn decision(reserved: &Result<ChargeHandle, Decision>) -> Decision {
    match reserved {
        Ok(charge) => charge.decision().clone(),
        Err(decision) => decision.clone(),
    }
}

fn compare((memory, redis): &(Decision, Decision), what: &str) {
    let facts = |decision: &Decision| {
        (
            decision.verdict(),
            decision.source(),
            decision.limit(),
            decision.remaining(),
            decision.is_never(),
            decision.retry_after().is_some(),
            decision.policies().len(),
        )
    };
    assert_eq!(facts(memory), facts(redis), "{what}");
}

#[tokio::test]
async fn b38_totals_are_what_was_sent() {
    let server = Server::start(Version::V7).await;
    let mut stores = Vec::new();
    for prefix in ["one", "two"] {
        let store = RedisStore::builder()
            .deny_cache_size(0)
            .prefix(prefix)
            .connect(&server.url())
            .await;
        stores.push(store.expect("a fit server"));
    }
    for (low, high) in by_every_algorithm(50, YEAR)
        .into_iter()
        .zip(by_every_algorithm(400, YEAR))
    {
        let limiters = [strict(&stores[0], low), strict(&stores[1], high)];
        let (first, second) =
            tokio::join!(check_all(&limiters[0], "k", 70), check_all(&limiters[1], "k", 70));
        assert_eq!((admitted(&first), admitted(&second)), (50, 70));
        assert_eq!(used_by(&stores[0], low, "k").await, 50, "{low:?}");
        assert_eq!(used_by(&stores[1], high, "k").await, 70, "{high:?}");
    }
}

/// Two policies decide together, on both stores, and a refusal by one leaves the other alone.
#[tokio::test]
async fn b19_c5_all_or_nothing() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let (narrow, wide) = (
        PolicyName::new("narrow").expect("a name"),
        PolicyName::new("wide").expect("a name"),
    );
    let (user, tenant) = (Key::from("user"), Key::from("tenant"));
    for quota in by_every_algorithm(5, YEAR) {
        let generous = Quota::new(1_000, YEAR);
        for second in [&user, &tenant] {
            let () = server.cli(&["FLUSHALL"]).await;
            let charges = [
                Charge::new(second, &wide, generous),
                Charge::new(&user, &narrow, quota),
            ];
            let mut granted = 0;
            for _ in 0..20 {
                granted += store
                    .acquire(&Ask::new(&charges).deadline(LONG))
                    .await
                    .expect("an answer")
                    .granted;
            }
            assert_eq!(granted, 5, "{quota:?}");
            let peeked = store
                .peek(&Ask::new(&charges).deadline(LONG))
                .await
                .expect("an answer");
            assert_eq!(
                (peeked.states[0].remaining, peeked.states[1].remaining),
                (995, 0),
                "{quota:?}"
            );
        }
    }
}
