//! What the tests share.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::store::{Ask, Charge};
use tollgate::{Decision, FailurePolicy, Key, Limiter, PolicyName, Quota, Rate, RedisStore, Source, Store};

use crate::server::Server;

/// What checks have unless said.
pub(crate) const DEADLINE: Duration = Duration::from_millis(100);

/// How late an answer may be on a busy machine.
pub(crate) const LATE: Duration = Duration::from_millis(250);

/// For tests that are not about deadlines, and must not fail by a machine that is busy.
pub(crate) const LONG: Duration = Duration::from_secs(5);

/// In which nothing leaves a window, and no window ends.
pub(crate) const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// How long normal service may take to return after a fault has ended.
pub(crate) const RECOVERY: Duration = Duration::from_secs(5);

/// What makes a server refuse writes.
pub(crate) const NO_MEMORY: [&str; 6] = [
    "CONFIG",
    "SET",
    "maxmemory-policy",
    "noeviction",
    "maxmemory",
    "1",
];

/// What ends that.
pub(crate) const NO_BOUND: [&str; 4] = ["CONFIG", "SET", "maxmemory", "0"];

/// Polls until it is so.
pub(crate) async fn until(what: &str, within: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A store on the server, which every check asks.
pub(crate) async fn connect(url: &str) -> RedisStore {
    let builder = RedisStore::builder().deny_cache_size(0);
    builder.connect(url).await.expect("a fit server, or none")
}

/// Checks that nothing but the store answers: without an answer, they are refused as degraded.
pub(crate) fn strict(store: &RedisStore, quota: Quota) -> Limiter {
    Limiter::new(store.clone(), quota)
        .name("test")
        .failure_policy(FailurePolicy::Deny)
        .deadline(LONG)
}

/// The quota of `limit` per `window` by every algorithm. All start empty and admit exactly `limit` at one instant.
pub(crate) fn by_every_algorithm(limit: u64, window: Duration) -> [Quota; 6] {
    let quota = Quota::new(limit, window);
    [
        quota,
        quota.slots(64),
        quota.sliding_counter(),
        quota.fixed_window(),
        quota.fixed_window_per_key(),
        Quota::token_bucket(Rate::new(limit.max(1), window), limit),
    ]
}

/// The answers to so many checks of one key at once.
pub(crate) async fn check_all(limiter: &Limiter, key: &str, times: usize) -> Vec<Decision> {
    let mut checks = JoinSet::new();
    for _ in 0..times {
        let (limiter, key) = (limiter.clone(), key.to_owned());
        checks.spawn(async move { limiter.check(key).await });
    }
    checks.join_all().await
}

/// How many the store admitted.
///
/// # Panics
///
/// If it did not answer them all.
#[track_caller]
pub(crate) fn admitted(decisions: &[Decision]) -> usize {
    for decision in decisions {
        assert_eq!(decision.source(), Source::Store, "{decision:?}");
    }
    decisions.iter().filter(|decision| decision.is_allowed()).count()
}

/// How many of these the store admitted, while it answered.
pub(crate) fn admitted_by_store(decisions: &[Decision]) -> u64 {
    let by_store = |decision: &&Decision| decision.source() == Source::Store && decision.is_allowed();
    decisions.iter().filter(by_store).count() as u64
}

/// The units that the server holds of a key under [`strict`]'s policy, as a store of its own sees them.
pub(crate) async fn used(server: &Server, quota: Quota, key: &str) -> u64 {
    used_by(&connect(&server.url()).await, quota, key).await
}

/// The same, as this store sees them.
pub(crate) async fn used_by(store: &RedisStore, quota: Quota, key: &str) -> u64 {
    let (key, policy) = (Key::from(key), PolicyName::new("test").expect("a name"));
    let charges = [Charge::new(&key, &policy, quota)];
    let peeked = store.peek(&Ask::new(&charges).deadline(LONG)).await;
    let state = peeked.expect("the server answers").states[0];
    quota.limit().expect("it is limited") - state.remaining
}

/// All keys of the server, sorted.
pub(crate) async fn keys(server: &Server) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = server.cli(&["KEYS", "*"]).await;
    keys.sort_unstable();
    keys
}

/// The server's clock, in microseconds.
pub(crate) async fn time(server: &Server) -> u64 {
    let (seconds, micros): (u64, u64) = server.cli(&["TIME"]).await;
    seconds * 1_000_000 + micros
}

/// Every key has a TTL.
pub(crate) async fn assert_every_key_expires(server: &Server) {
    let script = "for _, key in ipairs(redis.call('KEYS', '*')) do \
                  if redis.call('PTTL', key) < 0 then return key end end return false";
    let immortal: Option<Vec<u8>> = server.cli(&["EVAL", script, "0"]).await;
    let immortal = immortal.map(|key| String::from_utf8_lossy(&key).into_owned());
    assert_eq!(immortal, None, "a key without TTL");
}

/// How often anything was written. Only differences count.
pub(crate) async fn changes(server: &Server) -> u64 {
    let changes = server.info("rdb_changes_since_last_save").await;
    changes.expect("every server counts them")
}
