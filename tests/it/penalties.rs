//! C11: what the embedded store keeps for penalties.

use std::time::Duration;

use tollgate::store::{Ask, Charge, ChargeState, StoreErrorKind};
use tollgate::{Key, MemoryStore, Penalty, PolicyName, Quota, Store};

use crate::embedded::{Embedded, at_once};

const HOUR: Duration = Duration::from_secs(3_600);

/// Calls `then` with an ask that is always denied, of a key under a penalty.
fn with_offender<T>(key: &str, penalty: &Penalty, then: impl FnOnce(&Ask<'_>) -> T) -> T {
    let (key, policy) = (Key::from(key), PolicyName::new("p").expect("a name"));
    let charges = [Charge::new(&key, &policy, Quota::new(0, HOUR)).penalty(penalty)];
    then(&Ask::new(&charges))
}

fn denied(embedded: &Embedded, key: &str, penalty: &Penalty) -> ChargeState {
    let outcome = with_offender(key, penalty, |ask| at_once(embedded.store.acquire(ask)));
    outcome.expect("an answer").states[0]
}

#[test]
fn c11_keys_without_room_have_no_penalty_and_others_keep_theirs() {
    const MAX_BYTES: usize = 512 << 10;
    let penalty = Penalty::after(2, HOUR);
    let embedded = Embedded::with(MemoryStore::builder().max_keys(1_000).max_bytes(MAX_BYTES));
    denied(&embedded, "first", &penalty);
    assert!(denied(&embedded, "first", &penalty).blocked);
    for number in 0..5_000 {
        denied(&embedded, &format!("key {number:0>60}"), &penalty);
        let stats = embedded.store.stats();
        assert!(stats.keys <= 1_000 && stats.bytes <= MAX_BYTES, "{stats:?}");
    }
    assert!(embedded.store.stats().overflowed > 0, "the cap was not reached");
    assert!(denied(&embedded, "first", &penalty).blocked);
    for _ in 0..5 {
        let state = denied(&embedded, "late", &Penalty::after(1, HOUR));
        assert!(!state.blocked, "{state:?}");
    }
    // An ask needs room for a counter besides, which a block does not.
    let last = with_offender("last", &penalty, |ask| at_once(embedded.store.block(ask, HOUR)));
    last.expect("an answer");
    let blocked = with_offender("late", &penalty, |ask| at_once(embedded.store.block(ask, HOUR)));
    assert_eq!(
        blocked.map_err(|error| error.kind()),
        Err(StoreErrorKind::Overloaded)
    );
    // When what others did is forgotten, there is room.
    embedded.clock.advance(HOUR * 2);
    for _ in 0..10_000 {
        if denied(&embedded, "late", &penalty).blocked {
            return;
        }
    }
    panic!("expired records keep their room: {:?}", embedded.store.stats());
}

#[test]
fn c11_what_is_forgotten_gives_back_all_that_it_took() {
    let penalty = Penalty::after(2, HOUR).growing(2, HOUR);
    let embedded = Embedded::new();
    for key in ["short", "a key that is so long that it needs bytes of its own"] {
        denied(&embedded, key, &penalty);
        denied(&embedded, key, &penalty);
    }
    assert_eq!(embedded.store.stats().keys, 2);
    with_offender("short", &penalty, |ask| {
        at_once(embedded.store.block(ask, Duration::ZERO)).expect("an answer");
    });
    assert_eq!(embedded.store.stats().keys, 1);
    let long = "a key that is so long that it needs bytes of its own";
    with_offender(long, &penalty, |ask| {
        at_once(embedded.store.reset(ask)).expect("an answer");
    });
    let stats = embedded.store.stats();
    assert_eq!((stats.keys, stats.bytes), (0, 0));
}

#[test]
fn c11_an_idle_store_forgets_penalties_and_not_before_they_mean_nothing() {
    let penalty = Penalty::after(1, HOUR).growing(2, HOUR * 3);
    let embedded = Embedded::new();
    denied(&embedded, "k", &penalty);
    // An hour's block, and three in which another would be a repetition.
    embedded.clock.advance(HOUR * 4 - Duration::from_micros(1));
    for _ in 0..100 {
        denied(
            &embedded,
            "other",
            &Penalty::after(1_000, Duration::from_millis(1)),
        );
    }
    assert_eq!(embedded.store.stats().keys, 2);
    embedded.clock.advance(Duration::from_micros(1_000));
    let start = std::time::Instant::now();
    while embedded.store.stats().keys > 0 {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
