use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::*;
use crate::quota::{Quota, Rate};
use crate::{Key, Penalty, PolicyName};

const AGE: Nanos = 1_000_000_000;
const HASH: u64 = 7 << 40;

fn cache(size: usize) -> DenyCache {
    DenyCache::new(size, AGE, (1, 2))
}

/// Learns at `sent` that nothing fits for a time.
fn learn(cache: &DenyCache, charge: &Charge<'_>, hash: u64, sent: Nanos, wait: Duration) {
    let state = ChargeState::new(0, 0, Retry::After(wait), wait);
    cache.learn((charge, hash), (&state, Stamp::default()), (sent, sent), 0);
}

fn is_denied(cache: &DenyCache, charge: &Charge<'_>, hash: u64) -> bool {
    cache.find(charge, hash, 2, || 0).is_some()
}

#[test]
fn a_denial_answers_its_own_charges_alone_whatever_they_hash_to() {
    let (secret, name, quota) = ("x".repeat(300), "p".repeat(16), Quota::per_second(5));
    let long = format!("{name}p");
    let values = [
        "",
        "a",
        "b",
        "abcd",
        "abcdefgh",
        "abcdefgi",
        "abcdefghi",
        "bbcdefghi",
        &secret,
    ];
    let mut keys: Vec<Key> = values.iter().map(|value| Key::from(*value)).collect();
    // As they stand, up to what a slot has room for and beyond.
    for len in [1, 2, 57, 58, 59, 64] {
        keys.push(Key::named(&"t".repeat(len), "v"));
        keys.push(Key::named(&format!("{}u", "t".repeat(len - 1)), "v"));
    }
    let names =
        ["p", "q", &name, &long, &format!("{name}q")].map(|name| PolicyName::new(name).expect("a name"));
    let quotas = [
        quota,
        Quota::per_second(6),
        Quota::per_minute(5),
        quota.slots(4),
        quota.slots(5),
        quota.sliding_counter(),
        quota.fixed_window(),
        quota.fixed_window_per_key(),
        Quota::token_bucket(Rate::per_second(5), 5),
        Quota::token_bucket(Rate::per_second(5), 6),
    ];
    let penalty = Penalty::manual();
    let mut charges = Vec::new();
    charges.extend(keys.iter().map(|key| Charge::new(key, &names[0], quota)));
    charges.extend(names[1..].iter().map(|name| Charge::new(&keys[0], name, quota)));
    charges.extend(
        quotas[1..]
            .iter()
            .map(|quota| Charge::new(&keys[0], &names[0], *quota)),
    );
    for own in &charges {
        let cache = cache(64);
        learn(&cache, own, HASH, 1, Duration::from_secs(1));
        for other in &charges {
            let same = (own.key, own.policy, own.quota) == (other.key, other.policy, other.quota);
            assert_eq!(is_denied(&cache, other, HASH), same, "{own:?} {other:?}");
        }
        assert!(!is_denied(&cache, &own.penalty(&penalty), HASH));
        assert!(!is_denied(&cache, own, HASH + 1));
    }
    // A name out of a decision is the same.
    let cache = cache(64);
    for name in &names {
        learn(
            &cache,
            &Charge::new(&keys[0], name, quota),
            HASH,
            1,
            Duration::from_secs(1),
        );
        let copy = name.copied();
        assert!(is_denied(&cache, &Charge::new(&keys[0], &copy, quota), HASH));
    }
}

#[test]
fn the_denial_that_ends_first_gives_way_and_no_more_are_kept_than_said() {
    let (name, quota) = (PolicyName::new("p").expect("a name"), Quota::per_second(5));
    let keys: Vec<Key> = (0..40).map(|index: u64| Key::from(index)).collect();
    for size in [1, 3, 8, 9, 16, 1_000] {
        let cache = cache(size);
        // All of one set, the first of them for longest.
        for (key, wait) in keys.iter().zip((500..900).rev()) {
            learn(
                &cache,
                &Charge::new(key, &name, quota),
                HASH,
                1,
                Duration::from_millis(wait),
            );
        }
        let denied = |key: &&Key| is_denied(&cache, &Charge::new(key, &name, quota), HASH);
        let known: Vec<&Key> = keys.iter().filter(denied).collect();
        let set = size.min(8);
        let expected: Vec<&Key> = keys[..set - 1].iter().chain(keys.last()).collect();
        assert_eq!(known, expected, "{size}");
        assert_eq!(cache.len(), set);
        // Of all sets.
        for (index, key) in (0..10_000_u64).zip(keys.iter().cycle()) {
            let hash = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            learn(
                &cache,
                &Charge::new(key, &name, quota),
                hash,
                1,
                Duration::from_secs(1),
            );
        }
        let all = size / set * set;
        assert_eq!(cache.len(), all, "{size}");
        assert!(size - all < 8);
    }
    // Nothing is made for denials that nobody has met.
    let cache = cache(usize::MAX);
    learn(
        &cache,
        &Charge::new(&keys[0], &name, quota),
        u64::MAX,
        1,
        Duration::from_secs(1),
    );
    assert!(is_denied(&cache, &Charge::new(&keys[0], &name, quota), u64::MAX));
    learn(
        &cache,
        &Charge::new(&keys[0], &name, quota),
        0,
        1,
        Duration::from_secs(1),
    );
    assert!(is_denied(&cache, &Charge::new(&keys[0], &name, quota), 0));
}

#[test]
fn a_denial_takes_the_place_of_one_that_says_less() {
    let (name, quota, key) = (
        PolicyName::new("p").expect("a name"),
        Quota::per_second(5),
        Key::from("k"),
    );
    let cache = cache(64);
    let of_cost = |cost| Charge::new(&key, &name, quota).cost(cost);
    let denied = |cost| {
        cache
            .find(&of_cost(cost), HASH, 2, || 0)
            .map(|known| known.reset_after)
    };
    learn(&cache, &of_cost(3), HASH, 1, Duration::from_micros(900));
    assert_eq!((denied(2), denied(3)), (None, Some(900)));
    // Of less for longer, then of more, then for less long.
    learn(&cache, &of_cost(2), HASH, 1, Duration::from_micros(1_000));
    assert_eq!(
        (denied(1), denied(2), denied(3)),
        (None, Some(1_000), Some(1_000))
    );
    learn(&cache, &of_cost(3), HASH, 1, Duration::from_micros(1_000));
    assert_eq!(denied(2), Some(1_000));
    learn(&cache, &of_cost(2), HASH, 1, Duration::from_micros(800));
    assert_eq!(denied(2), Some(1_000));
    assert_eq!(cache.len(), 1);
}

#[test]
fn a_denial_that_is_void_keeps_none_out() {
    let (name, quota, key) = (
        PolicyName::new("p").expect("a name"),
        Quota::per_second(5),
        Key::from("k"),
    );
    let (charge, penalty) = (Charge::new(&key, &name, quota), Penalty::manual());
    let charge = charge.penalty(&penalty);
    let cache = cache(64);
    let learn = |(until, block): (u64, u64), sent, last_freed| {
        let wait = Duration::from_micros(until);
        let state = ChargeState::new(0, 0, Retry::After(wait), wait).blocked(true);
        let state = ChargeState { block, ..state };
        cache.learn(
            (&charge, HASH),
            (&state, Stamp::default()),
            (sent, sent),
            last_freed,
        );
    };
    let told = |last_freed| {
        let known = cache.find(&charge, HASH, 20, || last_freed);
        known.map(|known| known.reset_after)
    };
    // Freed after the first: the second ends sooner and is all there is.
    learn((900, 900), 1, 0);
    assert_eq!((told(0), told(5)), (Some(900), None));
    learn((500, 500), 10, 5);
    assert_eq!(told(5), Some(500));
}

#[test]
fn what_is_found_while_others_learn_was_learned_as_a_whole() {
    let (name, quota) = (PolicyName::new("p").expect("a name"), Quota::per_second(5));
    let keys = ["a", "b"].map(Key::from);
    let (cache, done) = (cache(1), AtomicBool::new(false));
    thread::scope(|scope| {
        for (key, first) in keys.iter().zip([0, 1]) {
            let (cache, done, name) = (&cache, &done, &name);
            scope.spawn(move || {
                // Even numbers of one key, odd ones of the other, and each denial says its number throughout.
                for number in (10..60_000).filter(|number| number % 2 == first) {
                    let time = Duration::from_micros(number);
                    let state = ChargeState::new(0, number, Retry::After(time), time);
                    let charge = Charge::new(key, name, quota);
                    let times = (number, number);
                    cache.learn((&charge, HASH), (&state, Stamp::from_micros(number)), times, 0);
                }
                done.store(true, Ordering::Release);
            });
        }
        let mut found = 0;
        while !done.load(Ordering::Acquire) || found == 0 {
            for (key, first) in keys.iter().zip([0, 1]) {
                let charge = Charge::new(key, &name, quota);
                let Some(known) = (10..60_000)
                    .step_by(997)
                    // And the last one that is learned.
                    .chain([60_000])
                    .find_map(|now| cache.find(&charge, HASH, now, || 0))
                else {
                    continue;
                };
                assert_eq!(known.remaining % 2, first);
                let passed = known.now.as_micros() - known.remaining;
                assert!(known.remaining - known.reset_after <= passed);
                assert_eq!(known.retry, Wait::micros(known.reset_after));
                found += 1;
            }
        }
    });
}
