//! C2, C11, C13: blocks after denials, as the server keeps them.

use std::time::Duration;

use redis::cmd;
use tokio::task::JoinSet;
use tollgate::store::{Ask, Charge, Mode, Outcome, Retry};
use tollgate::{Key, Penalty, PolicyName, Quota, RedisStore, Store};

use crate::server::{Server, Version};
use crate::support::{
    LONG, NO_BOUND, NO_MEMORY, RECOVERY, YEAR, assert_every_key_expires, changes, connect, keys, time, until,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// A key under a penalty.
#[derive(Clone)]
struct Offender {
    store: RedisStore,
    key: Key,
    policy: PolicyName,
    quota: Quota,
    penalty: Penalty,
}

impl Offender {
    /// One that the quota never lets pass.
    fn new(store: &RedisStore, penalty: Penalty) -> Self {
        Self {
            store: store.clone(),
            key: Key::from("k"),
            policy: PolicyName::new("test").expect("a name"),
            quota: Quota::new(0, HOUR),
            penalty,
        }
    }

    fn charge(&self) -> Charge<'_> {
        Charge::new(&self.key, &self.policy, self.quota).penalty(&self.penalty)
    }

    async fn acquire(&self) -> Outcome {
        let charges = [self.charge()];
        let answer = self.store.acquire(&Ask::new(&charges).deadline(LONG)).await;
        answer.expect("an answer")
    }

    async fn denials(&self, times: u32) -> Vec<bool> {
        let mut blocked = Vec::new();
        for _ in 0..times {
            let denied = self.acquire().await;
            assert_eq!(denied.granted, 0, "{denied:?}");
            blocked.push(denied.states[0].blocked);
        }
        blocked
    }

    async fn peek(&self) -> Outcome {
        let charges = [self.charge()];
        let answer = self.store.peek(&Ask::new(&charges).deadline(LONG)).await;
        answer.expect("an answer")
    }

    async fn block(&self, time: Duration) {
        let charges = [self.charge()];
        let answer = self.store.block(&Ask::new(&charges).deadline(LONG), time).await;
        answer.expect("an answer");
    }
}

/// When the penalty's key expires, in microseconds since the epoch.
async fn expiry(server: &Server) -> u64 {
    let keys: Vec<Vec<u8>> = server.cli(&["KEYS", "*:penalty"]).await;
    let [key] = keys.try_into().expect("one penalty");
    let mut connection = server.connection().await.expect("it listens");
    let expires: i64 = cmd("PEXPIRETIME")
        .arg(&key)
        .query_async(&mut connection)
        .await
        .expect("a reply");
    u64::try_from(expires).expect("a TTL") * 1_000
}

#[tokio::test]
async fn c11_a_penalty_is_kept_as_long_as_it_means_something() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let grows = Penalty::after(2, SECOND * 8).growing(3, HOUR);
    let day = HOUR * 24;
    // What is done, and how long from then on it is to be known.
    type Step = (u32, Option<Duration>, Duration);
    let cases: [(Penalty, &[Step]); 5] = [
        (Penalty::after(9, SECOND / 2), &[(1, None, SECOND / 2)]),
        (Penalty::after(9, YEAR), &[(3, None, YEAR)]),
        (
            Penalty::after(2, day).block_for(SECOND),
            &[(1, None, day), (1, None, SECOND)],
        ),
        (
            grows,
            &[
                (1, None, SECOND * 8),
                (1, None, SECOND * 8 + HOUR),
                (0, Some(SECOND), SECOND + HOUR),
            ],
        ),
        (
            Penalty::manual(),
            &[(0, Some(day), day), (0, Some(Duration::MAX), YEAR)],
        ),
    ];
    for (penalty, steps) in cases {
        let () = server.cli(&["FLUSHALL"]).await;
        let offender = Offender::new(&store, penalty);
        for (denials, block, lasts) in steps {
            let before = time(&server).await;
            offender.denials(*denials).await;
            if let Some(block) = block {
                offender.block(*block).await;
            }
            let after = time(&server).await;
            let expires = expiry(&server).await;
            let lasts = u64::try_from(lasts.as_micros()).expect("some years");
            assert!(
                // Redis counts in milliseconds.
                expires + 1_000 >= before + lasts,
                "{penalty:?}: {} µs early",
                before + lasts - expires
            );
            assert!(
                expires <= after + lasts + 1_000_000.max(lasts / 8),
                "{penalty:?}: {} µs late",
                expires - after - lasts
            );
        }
        offender.block(Duration::ZERO).await;
        assert_eq!(keys(&server).await, Vec::<Vec<u8>>::new(), "{penalty:?}");
    }
}

#[tokio::test]
async fn c2_a_block_is_told_without_a_write_and_so_is_all_without_a_penalty() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let offender = Offender::new(&store, Penalty::after(2, HOUR));
    assert_eq!(offender.denials(2).await, [false, true]);
    let [key] = keys(&server).await.try_into().expect("one key");
    assert_eq!(key, b"tollgate:1:{key=k}:test:penalty");
    let before = changes(&server).await;
    assert_eq!(offender.denials(3).await, [true, true, true]);
    assert!(offender.peek().await.states[0].blocked);
    let plain = Charge::new(&offender.key, &offender.policy, offender.quota);
    let shadow = offender.charge().mode(Mode::Shadow);
    for charge in [plain, shadow] {
        let charges = [charge];
        let outcome = store.acquire(&Ask::new(&charges).deadline(LONG)).await;
        assert!(!outcome.expect("an answer").states[0].blocked);
    }
    assert_eq!(changes(&server).await, before);
}

#[tokio::test]
async fn c1_denials_of_many_callers_are_counted_exactly() {
    for version in Version::all() {
        let server = Server::start(version).await;
        let store = connect(&server.url()).await;
        for (denials, blocked) in [(45, true), (46, false)] {
            let () = server.cli(&["FLUSHALL"]).await;
            let offender = Offender {
                quota: Quota::new(5, YEAR),
                ..Offender::new(&store, Penalty::after(denials, HOUR))
            };
            let mut asks = JoinSet::new();
            for _ in 0..50 {
                let offender = offender.clone();
                asks.spawn(async move { offender.acquire().await });
            }
            let answers = asks.join_all().await;
            let granted: Vec<_> = answers.iter().filter(|answer| answer.granted == 1).collect();
            assert_eq!(granted.len(), 5, "{version:?}");
            // Who got something is told what it would have been told alone: nothing of what came after.
            let mut left: Vec<_> = granted.iter().map(|answer| answer.states[0].remaining).collect();
            left.sort_unstable();
            assert_eq!(left, [0, 1, 2, 3, 4], "{version:?}");
            assert!(
                granted.iter().all(|answer| !answer.states[0].blocked),
                "{granted:?}"
            );
            let told = answers.iter().any(|answer| answer.states[0].blocked);
            assert_eq!(told, blocked, "{version:?}");
            let state = offender.peek().await.states[0];
            assert_eq!(state.blocked, blocked, "{version:?}: {state:?}");
        }
    }
}

#[tokio::test]
async fn asks_that_differ_in_their_penalty_are_not_taken_for_equal() {
    let server = Server::start(Version::V7).await;
    let store = RedisStore::builder().max_in_flight(1);
    let store = store.connect(&server.url()).await.expect("a fit server");
    let mild = Offender::new(&store, Penalty::after(1_000, HOUR));
    let hard = Offender::new(&store, Penalty::after(1, HOUR));
    let mut asks = JoinSet::new();
    for number in 0..20 {
        let offender = if number == 10 { hard.clone() } else { mild.clone() };
        asks.spawn(async move { offender.acquire().await });
    }
    asks.join_all().await;
    let looked = mild.peek().await;
    assert!(looked.states[0].blocked, "one denial was too many: {looked:?}");
}

#[tokio::test]
async fn c13_what_is_no_penalty_heals_in_the_next_check() {
    let types: [&[&str]; 3] = [
        &["LPUSH", "1", "2"],
        &["HSET", "field", "value"],
        &["SADD", "member"],
    ];
    let mut texts = vec![
        Vec::new(),
        b"x".to_vec(),
        vec![b'P'; 35],
        vec![0xff; 36],
        vec![b'P'; 36],
    ];
    // Longer than any block is.
    let long = [0, 0x20, 0, 0, 0, 0, 0];
    texts.push([&b"P"[..], &[0; 21], &[0x1f; 7], &long].concat());
    for version in Version::all() {
        let server = Server::start(version).await;
        let store = connect(&server.url()).await;
        let offender = Offender::new(&store, Penalty::after(3, HOUR));
        let key = "tollgate:1:{key=k}:test:penalty";
        let poisons = types.iter().map(|poison| {
            let mut command = cmd(poison[0]);
            command.arg(key).arg(&poison[1..]);
            command
        });
        let texts = texts.iter().map(|text| {
            let mut command = cmd("SET");
            command.arg(key).arg(text);
            command
        });
        for poison in poisons.chain(texts) {
            let () = server.cli(&["FLUSHALL"]).await;
            let mut connection = server.connection().await.expect("it listens");
            let _: redis::Value = poison.query_async(&mut connection).await.expect("a reply");
            let looked = offender.peek().await;
            assert!(!looked.states[0].blocked, "{looked:?}");
            assert_eq!(keys(&server).await, Vec::<Vec<u8>>::new(), "{poison:?}");
            let _: redis::Value = poison.query_async(&mut connection).await.expect("a reply");
            assert_eq!(offender.denials(3).await, [false, false, true], "{poison:?}");
            assert_every_key_expires(&server).await;
        }
    }
}

#[tokio::test]
async fn c9_denials_stay_denials_where_no_penalty_can_be_written() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let offender = Offender::new(&store, Penalty::after(2, HOUR));
    let _: () = server.cli(&NO_MEMORY).await;
    assert_eq!(offender.denials(3).await, [false, false, false]);
    let charges = [offender.charge()];
    let blocked = store.block(&Ask::new(&charges).deadline(LONG), HOUR).await;
    assert!(blocked.is_err(), "who blocks by hand is told that it is not done");
    let _: () = server.cli(&NO_BOUND).await;
    assert_eq!(offender.denials(2).await, [false, true]);
}

#[tokio::test]
async fn c13_what_has_lost_its_ttl_goes_when_it_means_nothing_any_more() {
    for version in Version::all() {
        let server = Server::start(version).await;
        let store = connect(&server.url()).await;
        let key = "tollgate:1:{key=k}:test:penalty";
        let gone = async || keys(&server).await.is_empty();
        let short = Duration::from_millis(5);
        let unlimited = |penalty| Offender {
            quota: Quota::unlimited(),
            ..Offender::new(&store, penalty)
        };
        for blocks in [false, true] {
            let denials = if blocks { 1 } else { 9 };
            let penalty = Penalty::after(denials, short);
            let (offender, free) = (Offender::new(&store, penalty), unlimited(penalty));
            // By a peek, and by an ask that is granted.
            for peeks in [true, false] {
                // On a machine that is very busy it is over before that.
                loop {
                    offender.denials(1).await;
                    let done: u64 = server.cli(&["PERSIST", key]).await;
                    if done == 1 {
                        break;
                    }
                }
                until("it is over", RECOVERY, async || {
                    let looked = match peeks {
                        true => free.peek().await,
                        false => free.acquire().await,
                    };
                    !looked.states[0].blocked && gone().await
                })
                .await;
            }
        }
        // Where it means something it stays, under whichever penalty it was written.
        let long = Offender::new(&store, Penalty::after(2, HOUR));
        long.denials(1).await;
        let short = unlimited(Penalty::after(2, short));
        let denied = time(&server).await;
        until("it means nothing to the other", RECOVERY, async || {
            time(&server).await > denied + 10_000
        })
        .await;
        assert_eq!(short.acquire().await.granted, 1);
        assert!(!gone().await);
        let _: u64 = server.cli(&["PERSIST", key]).await;
        assert_eq!(long.denials(1).await, [true]);
        assert_every_key_expires(&server).await;
    }
}

#[tokio::test]
async fn c5_what_a_penalized_charge_took_in_another_slot_is_given_back() {
    let server = Server::start(Version::V7).await;
    let builder = RedisStore::builder().cluster(true);
    let store = builder.connect(&server.url()).await.expect("a fit server");
    let first = Offender {
        quota: Quota::new(9, YEAR),
        ..Offender::new(&store, Penalty::after(5, HOUR))
    };
    let full = Offender {
        key: Key::from("another slot"),
        ..Offender::new(&store, Penalty::after(500, HOUR))
    };
    for _ in 0..20 {
        let charges = [first.charge(), full.charge()];
        let ask = Ask::new(&charges).want(3).deadline(LONG);
        let denied = store.acquire(&ask).await.expect("an answer");
        assert_eq!(denied.granted, 0, "{denied:?}");
        until("it is given back", RECOVERY, async || {
            first.peek().await.states[0].remaining == 9
        })
        .await;
    }
    assert_eq!(store.stats().lost_grants, 0);
}

#[tokio::test]
async fn asks_in_several_slots_are_stopped_by_any_block() {
    let server = Server::start(Version::V7).await;
    let builder = RedisStore::builder().cluster(true);
    let store = builder.connect(&server.url()).await.expect("a fit server");
    let blocked = Offender {
        quota: Quota::unlimited(),
        ..Offender::new(&store, Penalty::manual())
    };
    let free = Offender {
        key: Key::from("another slot"),
        quota: Quota::new(9, YEAR),
        ..blocked.clone()
    };
    blocked.block(HOUR).await;
    for charges in [
        [free.charge(), blocked.charge()],
        [blocked.charge(), free.charge()],
    ] {
        let ask = Ask::new(&charges).deadline(LONG);
        let answer = store.acquire(&ask).await.expect("an answer");
        assert_eq!(answer.granted, 0, "{answer:?}");
        let mut states = answer.states.to_vec();
        states.sort_by_key(|state| state.blocked);
        assert!(
            matches!(states[1].retry, Retry::After(_)) && states[1].blocked,
            "{answer:?}"
        );
        assert!(!states[0].blocked, "{answer:?}");
        let looked = store.peek(&ask).await.expect("an answer");
        assert_eq!(looked.granted, 0, "{looked:?}");
    }
    let both = [free.charge(), blocked.charge()];
    let ask = Ask::new(&both).deadline(LONG);
    store.reset(&ask).await.expect("an answer");
    assert_eq!(store.acquire(&ask).await.expect("an answer").granted, 1);
    store.block(&ask, HOUR).await.expect("an answer");
    for offender in [&free, &blocked] {
        let looked = offender.peek().await;
        assert!(looked.states[0].blocked, "{looked:?}");
    }
}
