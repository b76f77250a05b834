//! C11: what the embedded store holds, and that it allocates nothing for what it knows.

use std::cell::RefCell;
use std::thread;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tollgate::store::{Ask, Charge as StoreCharge};
use tollgate::{Key, Limiter, MemoryStore, PolicyName, Quota, Rate, Store};

use crate::algorithms::cases;
use crate::embedded::{Embedded, RULES, at_once, unit};
use crate::model::{Charge, Rule, Terms};
use crate::steps::with_ask;

const SECOND: i128 = 1_000_000;
const HOUR: i128 = 3_600 * SECOND;

/// Shards of a small store, each with shared counters of its own.
const SHARDS: i128 = 16;

/// Bytes of the shared counters of one policy and one kind of quota, which come on top of the cap.
const SHARED_BYTES: usize = 16 * 2_048;

/// Waits for another thread.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "waited in vain: {what}"
        );
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// A request of a key that is made on the spot. Says whether it was granted.
fn takes(embedded: &Embedded, key: &str, terms: Terms, cost: u64) -> bool {
    let (key, policy) = (Key::from(key), PolicyName::new("p").expect("a name"));
    let charges = [StoreCharge::new(&key, &policy, terms.quota()).cost(cost)];
    let outcome = at_once(embedded.store.acquire(&Ask::new(&charges)));
    outcome.expect("an answer").granted == 1
}

/// Lets the store look at all that it holds, once: until new keys in all shards, which expire at once, are gone.
fn swept(embedded: &Embedded) {
    let before = embedded.store.stats().keys;
    for number in 0..400 {
        takes(
            embedded,
            &format!("swept {number}"),
            Terms::new(Rule::Counter, 5, 1_000),
            1,
        );
    }
    embedded.advance(3_000);
    eventually("the sweeper", || embedded.store.stats().keys <= before);
}

#[test]
fn c11_keys_and_bytes_are_capped() {
    const MAX_BYTES: usize = 2 << 20;
    for rule in RULES {
        let terms = Terms::new(rule, 1_000, HOUR);
        let embedded = Embedded::with(MemoryStore::builder().max_keys(4_000).max_bytes(MAX_BYTES));
        let known = unit("known", terms);
        assert!(embedded.takes(known.of(1_000)));
        let used = measure(|| {
            for number in 0..20_000 {
                let key = format!("key {number:0>60}");
                takes(&embedded, &key, terms, if number % 3 == 0 { 500 } else { 1 });
                let stats = embedded.store.stats();
                assert!(
                    stats.keys <= 4_000 && stats.bytes <= MAX_BYTES + SHARED_BYTES,
                    "{rule:?}: {stats:?}"
                );
                if number % 1_000 == 0 {
                    assert!(!embedded.takes(known), "{rule:?}: a known key lost its denial");
                }
            }
        });
        assert!(
            embedded.store.stats().overflowed > 0,
            "{rule:?}: the cap was not reached"
        );
        // Shared counters, and a table that is moved as it grows, come on top.
        let most = MAX_BYTES as u64 + (512 << 10);
        assert!(used.bytes_max <= most, "{rule:?}: {} bytes", used.bytes_max);
    }
}

/// Names that are made for each ask have room in what comes on top.
#[test]
fn c11_bytes_are_capped_under_names_made_for_each_ask() {
    const MAX_BYTES: usize = 2 << 20;
    let embedded = Embedded::with(MemoryStore::builder().max_bytes(MAX_BYTES));
    let terms = Terms::new(Rule::Bucket, 5, HOUR);
    let used = measure(|| {
        for number in 0..20_000 {
            takes(&embedded, &number.to_string(), terms, 1);
        }
    });
    assert!(embedded.store.stats().overflowed > 0, "the cap was not reached");
    let most = MAX_BYTES as u64 + (512 << 10);
    assert!(used.bytes_max <= most, "{} bytes", used.bytes_max);
}

/// A name out of a decision is shared by all counters of the limiter that is called so, as any other.
#[test]
fn c11_a_name_out_of_a_decision_takes_no_bytes_that_are_not_counted() {
    let limiter =
        |store: &MemoryStore| Limiter::new(store.clone(), Quota::token_bucket(Rate::per_minute(1), 5));
    let decision = at_once(limiter(&MemoryStore::new()).name("login").check("k"));
    let store = MemoryStore::new();
    let named = limiter(&store).name(decision.policies()[0].name().clone());
    let used = measure(|| {
        for number in 0..10_000 {
            assert!(at_once(named.check(number.to_string())).is_allowed());
        }
    });
    let counted = store.stats().bytes as u64;
    assert!(
        used.bytes_current as u64 <= counted,
        "{used:?}, {counted} counted"
    );
}

/// What many keys share is no looser than one of their quotas, wherever their windows begin.
#[test]
fn c11_keys_without_room_share_one_quota_per_shard() {
    for rule in RULES {
        let terms = Terms::new(rule, 10, HOUR);
        let embedded = Embedded::with(MemoryStore::builder().max_keys(1));
        // Not where the windows of all keys end.
        embedded.advance(HOUR / 3);
        assert!(embedded.takes(unit("first", terms)));
        let mut admitted = 0;
        for _ in 0..30 {
            for number in 0..200 {
                admitted += i128::from(takes(&embedded, &format!("key {number}"), terms, 1));
            }
        }
        assert!((10..=SHARDS * 10).contains(&admitted), "{rule:?}: {admitted}");
        assert_eq!(embedded.remaining(unit("first", terms)), 9, "{rule:?}");
        assert_eq!(embedded.store.stats().keys, 1);
    }
}

#[test]
fn c11_what_was_charged_to_a_shared_counter_counts_in_the_keys_own() {
    for rule in RULES {
        let embedded = Embedded::with(MemoryStore::builder().max_keys(1));
        let first = unit("first", Terms::new(Rule::Log, 1, HOUR));
        assert!(embedded.takes(first));
        let terms = Terms::new(rule, 10, HOUR);
        let late = unit("late", terms);
        let end = embedded.peek(late);
        assert_eq!(end.states[0].remaining, 10);
        assert!(embedded.takes(late.of(7)));
        assert_eq!(embedded.remaining(late), 3, "{rule:?}, shared");

        embedded.reset(first);
        assert_eq!(embedded.store.stats().keys, 0);
        assert_eq!(embedded.remaining(late), 3, "{rule:?}, before it has its own");
        assert!(!embedded.takes(late.of(4)), "{rule:?}");
        assert!(embedded.takes(late.of(2)), "{rule:?}");
        assert_eq!(embedded.store.stats().keys, 1, "{rule:?}: it got its own");
        assert_eq!(embedded.remaining(late), 1, "{rule:?}, its own");
        let full = embedded.peek(late).states[0].reset_after;
        embedded.advance(full.as_micros() as i128);
        assert_eq!(embedded.remaining(late), 10, "{rule:?}, expired");
        assert!(embedded.takes(late.of(10)), "{rule:?}");
    }
}

/// A store with no bytes for more than one key that has just begun.
fn with_bytes_for_one(terms: Terms) -> Embedded {
    let probe = Embedded::new();
    assert!(probe.takes(unit("k", terms)));
    Embedded::with(MemoryStore::builder().max_bytes(probe.store.stats().bytes))
}

#[derive(Clone, Copy, Debug)]
struct Take {
    wait: i128,
    cost: i128,
}

fn any_takes() -> impl Strategy<Value = Vec<Take>> {
    let wait = prop_oneof![Just(0i128), 0..SECOND / 10, 0..3 * SECOND];
    prop::collection::vec(
        (wait, 1i128..60).prop_map(|(wait, cost)| Take { wait, cost }),
        1..60,
    )
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn c11_a_log_that_may_not_grow_is_stricter_never_looser(
        takes in any_takes(),
        first_limit in prop_oneof![Just(1_000i128), 1i128..40],
    ) {
        let first = Terms::new(Rule::Log, first_limit, SECOND);
        let terms = Terms::new(Rule::Log, 1_000, SECOND);
        let (small, large) = (with_bytes_for_one(first), Embedded::new());
        let charge = unit("k", terms);
        for embedded in [&small, &large] {
            assert!(embedded.takes(unit("k", first)));
        }
        let max_bytes = small.store.stats().bytes;
        let mut admitted = vec![(small.now(), 1)];
        for take in takes {
            small.advance(take.wait);
            large.advance(take.wait);
            let (free, exact) = (small.remaining(charge), large.remaining(charge));
            prop_assert!(free <= exact, "{free} > {exact}");
            let (strict, loose) = (small.acquire(charge.of(take.cost)), large.acquire(charge.of(take.cost)));
            if loose.granted == 1 && strict.granted == 0 {
                large.give_back(&[charge.of(take.cost)], 1, loose.stamp);
            }
            if strict.granted == 1 {
                admitted.push((small.now(), take.cost));
            }
            let in_window = admitted.iter().filter(|(at, _)| *at > small.now() - SECOND);
            prop_assert!(in_window.map(|(_, cost)| cost).sum::<i128>() <= 1_000);
            prop_assert!(small.store.stats().bytes <= max_bytes);
        }
        small.advance(3 * SECOND);
        prop_assert_eq!(small.remaining(charge), 1_000);
        small.acquire(charge);
        small.advance(SECOND - 1);
        prop_assert_eq!(small.remaining(charge), 999);
        small.advance(1);
        prop_assert_eq!(small.remaining(charge), 1_000, "a log again once it has run empty");
    }
}

/// Whatever keys and limits come and go: once all has expired, nothing is held.
#[test]
fn c11_all_that_was_taken_is_returned() {
    let ask = (0usize..40, 0usize..RULES.len(), 0u64..300, prop::bool::ANY);
    let asks = prop::collection::vec(ask, 1..400);
    let max_bytes = prop_oneof![Just(0usize), 1_000usize..40_000];
    let stores = RefCell::new(Vec::new());
    let run =
        TestRunner::new(cases(200)).run(&(asks, 1usize..20, max_bytes), |(asks, max_keys, max_bytes)| {
            let embedded = Embedded::with(MemoryStore::builder().max_keys(max_keys).max_bytes(max_bytes));
            for &(key, rule, cost, low) in &asks {
                let terms = Terms::new(RULES[rule], if low { 3 } else { 300 }, SECOND);
                takes(&embedded, &format!("{key:0>50}"), terms, cost);
                if cost % 8 == 0 {
                    embedded.advance(SECOND / 4);
                }
                let stats = embedded.store.stats();
                let most = max_bytes + RULES.len() * SHARED_BYTES;
                prop_assert!(stats.keys <= max_keys && stats.bytes <= most, "{stats:?}");
            }
            embedded.advance(10 * SECOND);
            stores
                .borrow_mut()
                .push((embedded.store, max_keys, max_bytes, asks));
            Ok(())
        });
    run.expect("no more than the caps");
    // All in one wait for their sweepers.
    for (store, max_keys, max_bytes, asks) in stores.into_inner() {
        let start = Instant::now();
        while store.stats().keys + store.stats().bytes > 0 {
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "{:?} are held: {max_keys} keys, {max_bytes} bytes at most, {asks:?}",
                store.stats()
            );
            thread::park_timeout(Duration::from_millis(5));
        }
    }
}

#[test]
fn c11_full_to_the_last_byte_denies_what_it_cannot_count() {
    let embedded = Embedded::with(MemoryStore::builder().max_keys(1_000).max_bytes(0));
    let terms = Terms::new(Rule::Log, 10, HOUR);
    let mut admitted = 0;
    for number in 0..2_000 {
        admitted += i128::from(takes(&embedded, &number.to_string(), terms, 1));
    }
    assert!((1..=SHARDS * 10).contains(&admitted), "{admitted}");
    assert!(embedded.store.stats().bytes <= SHARED_BYTES);
}

#[test]
fn c11_an_idle_store_shrinks_by_itself() {
    let embedded = Embedded::new();
    for rule in RULES {
        for number in 0..100 {
            takes(&embedded, &number.to_string(), Terms::new(rule, 200, SECOND), 100);
        }
    }
    assert_eq!(embedded.store.stats().keys, 800);
    embedded.advance(10 * SECOND);
    eventually("the sweeper", || embedded.store.stats().keys == 0);
    assert_eq!(embedded.store.stats().bytes, 0);
}

#[test]
fn c11_what_another_clock_has_dated_expires_too() {
    let embedded = Embedded::new();
    for rule in RULES {
        assert!(embedded.takes(unit("k", Terms::new(rule, 10, SECOND)).of(10)));
    }
    embedded
        .clock
        .set(embedded.clock.now() - Duration::from_secs(3_600));
    // The sweeper dates it back when it comes by, so it may take two rounds.
    eventually("the sweeper", || {
        embedded.advance(4 * SECOND);
        embedded.clock.now() > Duration::from_secs(1_800_000_000) || embedded.store.stats().keys == 0
    });
    assert!(
        embedded.clock.now() < Duration::from_secs(1_800_000_000),
        "{embedded:?}"
    );
}

#[test]
fn c11_only_what_equals_no_state_is_dropped() {
    let fast = Terms {
        rule: Rule::Bucket,
        window: SECOND,
        limit: 10,
        rate: 10,
    };
    let slow = Terms { rate: 1, ..fast };
    let low = Terms { limit: 0, ..fast };
    // After a check at a slower rate, it is that rate that tells when the bucket is full.
    let embedded = Embedded::new();
    assert!(embedded.takes(unit("k", fast).of(10)));
    assert!(!embedded.takes(unit("k", slow)));
    embedded.advance(2 * SECOND);
    swept(&embedded);
    assert_eq!(embedded.remaining(unit("k", slow)), 2);
    // A check under a lower burst forgives nothing.
    let embedded = Embedded::new();
    assert!(embedded.takes(unit("k", slow).of(10)));
    assert!(!embedded.takes(unit("k", low)));
    swept(&embedded);
    assert_eq!(embedded.remaining(unit("k", slow)), 0);
    // Nor does what costs nothing.
    assert!(embedded.takes(unit("k", Terms { limit: 1, ..slow }).of(0)));
    embedded.advance(2 * SECOND);
    swept(&embedded);
    assert_eq!(embedded.remaining(unit("k", slow)), 2);
}

#[test]
fn r39_a_million_keys_then_quiet() {
    const MAX_KEYS: usize = 20_000;
    const MAX_BYTES: usize = 8 << 20;
    let embedded = Embedded::with(MemoryStore::builder().max_keys(MAX_KEYS).max_bytes(MAX_BYTES));
    let terms = Terms::new(Rule::Log, 3, 10 * SECOND);
    let known = unit("known", Terms::new(Rule::Log, 3, HOUR));
    assert!(embedded.takes(known.of(3)));
    let (policy, quota) = (PolicyName::new("p").expect("a name"), terms.quota());
    for number in 0..1_000_000 {
        let key = Key::from(number.to_string().as_str());
        let charges = [StoreCharge::new(&key, &policy, quota)];
        at_once(embedded.store.acquire(&Ask::new(&charges))).expect("an answer");
        if number % 10_000 == 0 {
            let stats = embedded.store.stats();
            assert!(
                stats.keys <= MAX_KEYS && stats.bytes <= MAX_BYTES + SHARED_BYTES,
                "{stats:?}"
            );
            assert!(!embedded.takes(known), "a known key lost its denial");
            embedded.advance(SECOND / 2);
        }
    }
    embedded.advance(10 * SECOND);
    eventually("the sweeper", || embedded.store.stats().keys == 1);
}

/// Every answer about a known counter comes without an allocation.
#[test]
fn known_keys_allocate_nothing() {
    for rule in RULES {
        let embedded = Embedded::new();
        let charge = unit(
            "a key that is too long to lie beside its hash",
            Terms::new(rule, 100, SECOND),
        );
        let ask = |charge: Charge, times: u32| {
            with_ask(&[charge], |ask| {
                let mut granted = 0;
                let info = measure(|| {
                    for _ in 0..times {
                        let outcome = at_once(embedded.store.acquire(&ask)).expect("an answer");
                        granted += outcome.granted;
                        at_once(embedded.store.peek(&ask)).expect("an answer");
                        if outcome.granted == 1 && granted % 10 == 0 {
                            at_once(embedded.store.give_back(&ask, 1, outcome.stamp)).expect("an answer");
                        }
                        embedded.advance(SECOND / 120);
                    }
                });
                (granted, info.count_total)
            })
        };
        // All is granted, until all slots are in use and the log is full.
        ask(charge.under(1_000), 1_000);
        ask(charge, 1_000);
        let (granted, allocations) = ask(charge, 1_000);
        assert!(granted > 500 && granted < 1_000, "{rule:?}: {granted}");
        assert_eq!(allocations, 0, "{rule:?}");
    }
}

/// The answers of a full store and of an empty one are the same for a key that both know.
#[test]
fn known_keys_do_not_feel_the_cap() {
    for rule in RULES {
        let terms = Terms::new(rule, 20, SECOND);
        let (full, empty) = (
            Embedded::with(MemoryStore::builder().max_keys(1)),
            Embedded::new(),
        );
        let known: Charge = unit("known", terms);
        for step in 0..200 {
            assert_eq!(full.acquire(known), empty.acquire(known), "{rule:?}, {step}");
            for number in 0..5 {
                takes(&full, &format!("{step} {number}"), terms, 1);
            }
            full.advance(SECOND / 30);
            empty.advance(SECOND / 30);
        }
    }
}

/// A key that gets room starts from a copy of the counter it shared. The copy holds no more than it has paid for,
/// however long the shared log once was.
#[test]
fn c11_a_copy_of_a_shared_log_takes_no_more_than_it_pays_for() {
    let embedded = Embedded::with(MemoryStore::builder().max_keys(1));
    let first = unit("first", Terms::new(Rule::Log, 1, HOUR));
    assert!(embedded.takes(first));
    let late = unit("late", Terms::new(Rule::Log, 4_096, SECOND));
    assert!(embedded.takes(late.of(4_095)), "shared");
    embedded.advance(SECOND / 2);
    assert!(embedded.takes(late));
    embedded.advance(SECOND / 2);
    assert_eq!(embedded.remaining(late), 4_095, "one is left");
    embedded.reset(first);
    let before = embedded.store.stats().bytes;
    let info = measure(|| assert!(embedded.takes(late)));
    let paid = embedded.store.stats().bytes - before;
    assert_eq!(embedded.store.stats().keys, 1, "it got its own");
    assert!(
        info.bytes_current <= paid as i64 + 128,
        "{} bytes are held and {paid} are paid for",
        info.bytes_current
    );
}

/// What a key's first bytes have paid for is its own, however full the store is.
#[test]
fn c11_a_log_grows_within_what_it_has_paid_for() {
    let terms = Terms::new(Rule::Log, 60, SECOND);
    let embedded = with_bytes_for_one(terms);
    let known = unit("k", terms);
    assert!(embedded.takes(known));
    // Keys without room share a counter, whose bytes come on top of the cap.
    for number in 0..50 {
        takes(&embedded, &format!("other {number}"), terms, 1);
    }
    let paid = embedded.store.stats();
    assert!(embedded.takes(known.of(40)));
    embedded.advance(SECOND / 2 + 1);
    assert!(embedded.takes(known.of(10)));
    embedded.advance(SECOND / 2 - 1);
    assert_eq!(
        embedded.remaining(known),
        50,
        "{paid:?} {:?}",
        embedded.store.stats()
    );
}
