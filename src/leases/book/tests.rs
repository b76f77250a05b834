use std::time::Duration;

use super::*;
use crate::key::Key;
use crate::policy::PolicyName;
use crate::quota::Quota;
use crate::store::{Retry, Stamp, nanos};

const DECIDED: u64 = 1_800_000_000_000_000;

/// A book with a lot of one counter, which was asked for at the time that is returned, and decided at once.
fn filled(charge: &Charge<'_>, lease: &Lease) -> (Book, Nanos) {
    let book = Book::new();
    let mut now = 1_000_000;
    let state = ChargeState::new(1, 1_000_000, Retry::Now, Duration::ZERO);
    loop {
        let debit = book.debit(&wanted(charge, lease, now), || 0);
        book.observe((7, charge), (&state, false), 0);
        if let Some(refill) = debit.refill {
            let held = Stamp::from_micros(DECIDED + refill.life / 1_000);
            let outcome = Outcome::new(refill.want, Stamp::from_micros(DECIDED), [state]).stamp(held);
            assert!(
                book.fill(&refill, Some(&outcome), (now, now, Age::default()), 0)
                    .is_none()
            );
            return (book, now);
        }
        now += 10_000;
    }
}

fn wanted<'a>(charge: &'a Charge<'a>, lease: &'a Lease, now: Nanos) -> Wanted<'a> {
    Wanted {
        hash: 7,
        charge,
        lease,
        now,
    }
}

#[test]
fn c1_units_are_spent_while_the_store_holds_them_by_its_own_clock() {
    let (key, policy) = (Key::from("a"), PolicyName::new("test").expect("a name"));
    let charge = Charge::new(&key, &policy, Quota::per_minute(1_000_000).slots(64));
    for life in [1, 20, 1_000].map(Duration::from_millis) {
        let lease = Lease::new().lifetime(life);
        let (book, sent) = filled(&charge, &lease);
        let life = nanos(life);
        let mut last = 0;
        for part in 9_970..10_020 {
            let passed = life * part / 10_000;
            if book
                .debit(&wanted(&charge, &lease, sent + passed), || 0)
                .paid
                .is_some()
            {
                last = passed;
            }
        }
        assert!(last >= life / 1_000 * 998, "{last} of {life}: too little");
        // A clock that is 500 parts in a million fast.
        let by_store = last + last / 2_000;
        assert!(by_store <= life, "{by_store} of {life}: not held any more");
    }
}

#[test]
fn what_is_void_is_neither_spent_nor_given_back() {
    let (key, policy) = (Key::from("a"), PolicyName::new("test").expect("a name"));
    let charge = Charge::new(&key, &policy, Quota::per_minute(1_000_000).slots(64));
    let lease = Lease::new();
    let (book, sent) = filled(&charge, &lease);
    assert!(
        book.debit(&wanted(&charge, &lease, sent + 1), || 0)
            .paid
            .is_some()
    );
    let reset = book.debit(&wanted(&charge, &lease, sent + 2), || sent + 1);
    assert!(reset.paid.is_none());
    assert!(book.sweep((sent + 2, sent + 2), |_| sent + 1, true).is_empty());
    let (book, sent) = filled(&charge, &lease);
    let returned = book.sweep((sent + 2, sent + 2), |_| 0, true);
    assert_eq!(returned.len(), 1, "{returned:?}");
    assert!(
        book.sweep((sent + 3, sent + 3), |_| 0, true).is_empty(),
        "not twice"
    );
}

#[test]
fn who_is_found_hot_at_once_by_two_has_one_entry() {
    let (key, policy) = (Key::from("a"), PolicyName::new("test").expect("a name"));
    let charge = Charge::new(&key, &policy, Quota::per_minute(1_000_000).slots(64));
    let (lease, shard) = (Lease::new(), Shard::default());
    let wanted = wanted(&charge, &lease, 1);
    assert!(matches!(shard.begin(&wanted, 1_000, 10), Met::New(1_000)));
    assert!(matches!(shard.begin(&wanted, 1_000, 10), Met::Hot));
    assert_eq!(shard.entries.lock().len(), 1);
}

#[test]
fn a_key_that_is_forgotten_takes_no_other_with_it() {
    let (keys, policy) = (
        ["a", "b"].map(Key::from),
        PolicyName::new("test").expect("a name"),
    );
    let quota = Quota::per_minute(1_000_000).slots(64);
    let [first, second] = keys.each_ref().map(|key| Charge::new(key, &policy, quota));
    let (book, lease) = (Book::new(), Lease::new());
    let is_hot = |charge, now| book.debit(&wanted(charge, &lease, now), || 0).is_hot;
    for charge in [&first, &second] {
        assert!((0..5).any(|_| is_hot(charge, 1)));
    }
    let forgotten = 2 * lease.life(&quota) + 1;
    assert!(is_hot(&second, forgotten - 1));
    assert!(book.sweep((forgotten, forgotten), |_| 0, false).is_empty());
    let entries = || book.entries(7).len();
    assert_eq!(entries(), 1);
    assert!(is_hot(&second, forgotten) && !is_hot(&first, forgotten));
    assert!(
        book.sweep((2 * forgotten, 2 * forgotten), |_| 0, false)
            .is_empty()
    );
    assert!(entries() == 0 && !book.shard(7).kept.may_have(7));
}

#[test]
fn c11_no_more_keys_are_kept_than_may() {
    let policy = PolicyName::new("test").expect("a name");
    let (lease, shard) = (Lease::new(), Shard::default());
    let most = MOST_ENTRIES / SHARDS;
    for index in 0..most + 10 {
        let key = Key::from(format!("{index}"));
        let charge = Charge::new(&key, &policy, Quota::per_minute(1_000_000).slots(64));
        let wanted = Wanted {
            hash: index as u64,
            ..wanted(&charge, &lease, 1)
        };
        let met = shard.begin(&wanted, 1_000, 10);
        assert_eq!(matches!(met, Met::New(_)), index < most, "{index}");
        assert_eq!(matches!(met, Met::Cold), index >= most, "{index}");
    }
    assert_eq!(shard.entries.lock().len(), most);
}

#[test]
fn the_shortest_life_of_all_is_known() {
    let (key, policy) = (Key::from("a"), PolicyName::new("test").expect("a name"));
    let charge = Charge::new(&key, &policy, Quota::per_minute(1_000_000).slots(64));
    let lease = Lease::new().lifetime(Duration::from_millis(20));
    assert_eq!(Book::new().shortest_life(), Nanos::MAX);
    let (book, _) = filled(&charge, &lease);
    assert_eq!(book.shortest_life(), 20_000_000);
}
