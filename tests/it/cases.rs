//! Public bug reports about other rate limiters that an embedded store alone can answer; see the ids there.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tollgate::store::Retry;
use tollgate::{MAX_UNITS, MemoryStore, Quota, Rate};

use crate::embedded::{Embedded, RULES, at_once, unit};
use crate::model::{Charge, Rule, Terms};
use crate::steps::with_ask;

const SECOND: i128 = 1_000_000;
const MINUTE: i128 = 60 * SECOND;

fn after(outcome: &tollgate::store::Outcome) -> i128 {
    match outcome.states[0].retry {
        Retry::After(retry) => retry.as_micros() as i128,
        Retry::Now | Retry::Never => panic!("no time to wait: {outcome:?}"),
        _ => unreachable!("no other answers"),
    }
}

/// Takes units one by one until one is denied.
fn drain(embedded: &Embedded, charge: Charge) -> i128 {
    let mut taken = 0;
    while embedded.takes(charge) {
        taken += 1;
        assert!(taken < 100_000, "never denied: {charge:?}");
    }
    taken
}

#[test]
fn r9_waiting_as_told_is_enough() {
    for rule in RULES {
        let embedded = Embedded::new();
        let charge = unit("k", Terms::new(rule, 10, SECOND));
        drain(&embedded, charge);
        let retry = after(&embedded.acquire(charge));
        assert!(retry > 0, "{rule:?}");
        embedded.advance(retry);
        assert!(embedded.takes(charge), "{rule:?} after {retry} µs");
    }
}

#[test]
fn r10_n_per_period_admits_n_in_a_period() {
    for rule in RULES {
        for (limit, window) in [(4_000, SECOND), (7, 4_000 * SECOND), (1, 1_000)] {
            let embedded = Embedded::new();
            let charge = unit("k", Terms::new(rule, limit, window));
            assert_eq!(drain(&embedded, charge), limit, "{rule:?}");
        }
    }
}

#[test]
fn r11_one_interval_after_a_burst_admits_one() {
    let bucket = Terms {
        rule: Rule::Bucket,
        window: SECOND,
        limit: 20,
        rate: 10,
    };
    let embedded = Embedded::new();
    let charge = unit("k", bucket);
    assert_eq!(drain(&embedded, charge), 20);
    for _ in 0..50 {
        embedded.advance(SECOND / 10);
        assert_eq!(drain(&embedded, charge), 1);
    }
    for rule in [Rule::Log, Rule::Slots(64)] {
        let embedded = Embedded::new();
        let charge = unit("k", Terms::new(rule, 10, SECOND));
        drain(&embedded, charge);
        embedded.advance(SECOND / 10);
        assert_eq!(drain(&embedded, charge), 0, "{rule:?} is no bucket");
    }
}

#[test]
fn r13_idling_saves_up_no_more_than_the_burst() {
    let bucket = Terms {
        rule: Rule::Bucket,
        window: SECOND,
        limit: 5,
        rate: 3,
    };
    let embedded = Embedded::new();
    for (idle, admitted) in [
        (0, 5),
        (333_333, 0),
        (1, 1),
        (SECOND, 3),
        (3 * SECOND, 5),
        (50 * SECOND, 5),
    ] {
        embedded.advance(idle);
        assert_eq!(drain(&embedded, unit("k", bucket)), admitted, "after {idle} µs");
    }
}

#[test]
fn r15_zeros_have_a_meaning_or_an_error() {
    for rule in RULES {
        let embedded = Embedded::new();
        let none = unit("none", Terms::new(rule, 0, SECOND));
        for cost in [0, 1, 5] {
            let denied = embedded.acquire(none.of(cost));
            assert_eq!(
                (denied.granted, denied.states[0].retry),
                (0, Retry::Never),
                "{rule:?}"
            );
        }
        let some = unit("some", Terms::new(rule, 3, SECOND));
        embedded.acquire(some.of(3));
        let nothing = embedded.acquire(some.of(0));
        assert_eq!(
            (nothing.granted, nothing.states[0].retry),
            (1, Retry::Now),
            "{rule:?}"
        );
        let too_much = embedded.acquire(some.of(4));
        assert_eq!(
            (too_much.granted, too_much.states[0].retry),
            (0, Retry::Never),
            "{rule:?}"
        );
        assert_eq!(embedded.store.stats().keys, 1, "{rule:?}");
    }
    assert!(Quota::try_new(1, Duration::ZERO).is_err());
    assert!(Rate::try_new(0, Duration::from_secs(1)).is_err());
}

#[test]
fn r16_an_edge_of_a_window_admits_what_the_docs_say() {
    for (rule, second) in [
        (Rule::Log, 0),
        (Rule::Slots(64), 0),
        (Rule::Counter, 0),
        // Said in the docs.
        (Rule::Fixed(0), 10),
    ] {
        let embedded = Embedded::new();
        let charge = unit("k", Terms::new(rule, 10, MINUTE));
        // The clock stands at a full minute.
        embedded.advance(MINUTE - 1);
        assert_eq!(drain(&embedded, charge), 10);
        embedded.advance(1);
        assert_eq!(drain(&embedded, charge), second, "{rule:?}");
    }
}

#[test]
fn r19_b12_units_of_one_microsecond_all_count_and_all_leave() {
    for rule in RULES {
        let embedded = Embedded::new();
        let charge = unit("k", Terms::new(rule, 100, SECOND));
        for _ in 0..3 {
            assert_eq!(drain(&embedded, charge), 100, "{rule:?}");
            let full = embedded.peek(charge).states[0].reset_after;
            embedded.advance(full.as_micros() as i128);
        }
        let burst = unit("burst", Terms::new(rule, 20, SECOND));
        let admitted = (0..50).filter(|_| embedded.takes(burst)).count();
        assert_eq!(admitted, 20, "{rule:?}");
    }
}

#[test]
fn r23_b21_hammering_and_a_raised_limit() {
    for rule in RULES {
        let embedded = Embedded::new();
        let charge = unit("k", Terms::new(rule, 10, 20 * SECOND));
        for _ in 0..4 {
            assert!(embedded.takes(charge));
        }
        let raised = charge.under(1_000);
        assert!(embedded.takes(raised), "{rule:?}");
        assert!(!embedded.takes(charge.under(2)), "{rule:?}");
        assert_eq!(embedded.remaining(raised), 995, "{rule:?}");
        assert!(embedded.takes(raised), "{rule:?}");

        drain(&embedded, charge);
        let release = after(&embedded.acquire(charge));
        for _ in 0..100 {
            embedded.advance(release / 101);
            embedded.acquire(charge);
        }
        embedded.advance(release - release / 101 * 100);
        assert!(embedded.takes(charge), "{rule:?}: denials kept it closed");
    }
}

#[test]
fn r42_concurrent_requests_share_one_limit() {
    for rule in RULES {
        // On a clock that stands still: no window ends while the tasks run.
        let store = Arc::new(Embedded::new().store);
        let charge = unit("k", Terms::new(rule, 100, 3_600 * SECOND));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(8)
            .build()
            .expect("a runtime");
        let admitted = runtime.block_on(async {
            let tasks: Vec<_> = (0..64)
                .map(|_| {
                    let store = Arc::clone(&store);
                    tokio::spawn(async move {
                        let mut admitted = 0;
                        for _ in 0..5 {
                            let outcome = with_ask(&[charge], |ask| tollgate::Store::acquire(&*store, &ask));
                            admitted += outcome.await.expect("an answer").granted;
                            tokio::task::yield_now().await;
                        }
                        admitted
                    })
                })
                .collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await.expect("no panic");
            }
            sum
        });
        assert_eq!(admitted, 100, "{rule:?}");
    }
}

#[test]
fn b3_polling_at_exactly_the_window_is_always_admitted() {
    for rule in RULES {
        let embedded = Embedded::new();
        let charge = unit("k", Terms::new(rule, 1, SECOND));
        let period = match rule {
            // A slot is held up to its length too long.
            Rule::Slots(slots) => SECOND + (SECOND + slots - 1) / slots,
            // One in the last window weighs as one until it has left.
            Rule::Counter => 2 * SECOND,
            _ => SECOND,
        };
        for _ in 0..10_000 {
            assert!(embedded.takes(charge), "{rule:?}");
            assert!(!embedded.takes(charge), "{rule:?}");
            embedded.advance(period);
        }
        assert_eq!(embedded.store.stats().keys, 1);
    }
}

#[test]
fn b8_slow_rates_hold_until_they_have_drained() {
    for (units, window) in [(1, 10 * SECOND), (3, SECOND)] {
        let bucket = Terms {
            rule: Rule::Bucket,
            window,
            limit: 1,
            rate: units,
        };
        let embedded = Embedded::new();
        let admitted = (0..20).filter(|_| embedded.takes(unit("k", bucket))).count();
        assert_eq!(admitted, 1);
        let full = embedded.peek(unit("k", bucket)).states[0].reset_after.as_micros() as i128;
        assert_eq!(full, (window + units - 1) / units);
        // New keys make the store look for what it can drop.
        embedded.advance(full - 1);
        for key in ["1", "2", "3", "4", "5", "6", "7", "8"].repeat(50) {
            embedded.acquire(Charge {
                policy: key,
                ..unit(key, bucket)
            });
        }
        assert!(!embedded.takes(unit("k", bucket)));
        embedded.advance(1);
        assert!(embedded.takes(unit("k", bucket)));
    }
}

#[test]
fn b11_what_has_left_the_window_is_not_counted() {
    for rule in [Rule::Log, Rule::Fixed(0), Rule::FixedPerKey, Rule::Bucket] {
        let embedded = Embedded::new();
        let charge = unit("k", Terms::new(rule, 10, MINUTE));
        assert_eq!(drain(&embedded, charge), 10);
        embedded.advance(MINUTE + 1_000);
        assert!(embedded.takes(charge), "{rule:?}");
    }
}

#[test]
fn b14_denials_do_not_burn_the_rest() {
    for rule in RULES {
        for denied in [5, 10, 11, i128::from(u64::MAX)] {
            let embedded = Embedded::new();
            let charge = unit("k", Terms::new(rule, 10, MINUTE));
            assert!(embedded.takes(charge.of(8)));
            assert!(!embedded.takes(charge.of(denied)), "{rule:?}");
            assert!(embedded.takes(charge.of(1)), "{rule:?} after {denied}");
            assert_eq!(embedded.remaining(charge), 1, "{rule:?}");
        }
    }
}

#[test]
fn b16_weights_neither_overflow_nor_contradict_themselves() {
    let day = 86_400 * SECOND;
    for rule in RULES {
        for cost in [200_000_000, i128::from(MAX_UNITS), i128::from(u64::MAX)] {
            let embedded = Embedded::new();
            let denied = embedded.acquire(unit("k", Terms::new(rule, 1, day)).of(cost));
            assert_eq!(
                (denied.granted, denied.states[0].retry),
                (0, Retry::Never),
                "{rule:?}"
            );
            assert_eq!(denied.states[0].remaining, 1);
        }
        let embedded = Embedded::new();
        let denied = embedded.acquire(unit("k", Terms::new(rule, 5, SECOND)).of(10));
        assert_eq!(
            (denied.granted, denied.states[0].retry),
            (0, Retry::Never),
            "{rule:?}"
        );
        assert_eq!(
            (denied.states[0].remaining, denied.states[0].reset_after),
            (5, Duration::ZERO)
        );
        assert_eq!(embedded.store.stats().keys, 0);
    }
}

#[test]
fn b19_a_later_limit_that_denies_leaves_earlier_ones_alone() {
    for rule in RULES {
        let embedded = Embedded::new();
        let second = unit("k", Terms::new(rule, 10, SECOND));
        let hour = Charge {
            policy: "hour",
            ..unit("k", Terms::new(Rule::Log, 100, 3_600 * SECOND))
        };
        assert!(embedded.takes(hour.of(100)));
        for _ in 0..50 {
            let denied = embedded.ask(&[second, hour], 1);
            assert_eq!(denied.granted, 0);
            assert_eq!(
                (denied.states[0].remaining, denied.states[0].retry),
                (10, Retry::Now)
            );
        }
        assert_eq!(drain(&embedded, second), 10, "{rule:?}");
    }
}

#[test]
fn b23_retry_after_points_to_the_release_and_not_to_the_window() {
    let embedded = Embedded::new();
    let charge = unit("k", Terms::new(Rule::Counter, 60, MINUTE));
    // The clock stands at a full minute: the window before is full, this one 12 s old and 12 units full.
    embedded.acquire(charge.of(60));
    embedded.advance(MINUTE + 12 * SECOND);
    assert_eq!(drain(&embedded, charge), 12);
    assert_eq!(after(&embedded.acquire(charge)), SECOND);
}

#[test]
fn b29_the_first_period_of_a_bucket_admits_burst_and_rate_and_windows_the_limit() {
    for rule in RULES {
        let embedded = Embedded::new();
        let charge = unit("k", Terms::new(rule, 17, 30 * SECOND));
        let mut admitted = 0;
        for _ in 0..60 {
            admitted += usize::from(embedded.takes(charge));
            embedded.advance(SECOND / 2);
        }
        // Said in the docs: burst + rate × 29.5 s.
        let expected = if rule == Rule::Bucket { 33 } else { 17 };
        if rule != Rule::FixedPerKey && rule != Rule::Fixed(123_456) {
            assert_eq!(admitted, expected, "{rule:?}");
        }
    }
}

#[test]
fn c1_what_is_settled_up_counts_against_later_asks() {
    for rule in RULES {
        let embedded = Embedded::new();
        let charge = unit("k", Terms::new(rule, 10, MINUTE));
        embedded.acquire(charge.of(4));
        for (more, left) in [(5, 1), (1, 0), (3, 0)] {
            let settled = embedded.charge(charge.of(more));
            assert_eq!(
                (settled.granted, settled.states[0].remaining),
                (1, left),
                "{rule:?}"
            );
        }
        assert!(!embedded.takes(charge), "{rule:?}");
        if let Rule::Log | Rule::Slots(_) = rule {
            // 13 are in the window: the 4 that are first to leave make room for 1.
            embedded.reset(charge);
            embedded.acquire(charge.of(4));
            embedded.advance(MINUTE / 2);
            embedded.charge(charge.of(9));
            embedded.advance(after(&embedded.acquire(charge)));
            assert_eq!(drain(&embedded, charge), 1, "{rule:?}");
        }
    }
}

/// What a state cannot count is not given back either.
#[test]
fn c1_a_refund_from_a_full_state_frees_nothing() {
    let most = i128::from(MAX_UNITS);
    for (rule, limit) in [
        (Rule::Log, 4_096),
        (Rule::Slots(64), most),
        (Rule::Counter, most),
        (Rule::Fixed(0), most),
    ] {
        let embedded = Embedded::new();
        let charge = unit("k", Terms::new(rule, limit, MINUTE));
        assert!(embedded.takes(charge.of(limit)));
        embedded.advance(SECOND);
        // Twice what the limit is, then more than that in one ask.
        for settled in [charge.of(limit), charge.of(most + 2)] {
            let outcome = embedded.charge(settled);
            embedded.give_back(&[charge.of(limit)], 1, outcome.stamp);
            assert_eq!(embedded.remaining(charge), 0, "{rule:?} after {}", settled.cost);
        }
        embedded.reset(charge);
        let outcome = embedded.charge(charge.of(most + 2));
        embedded.give_back(&[charge.of(most + 1)], 1, outcome.stamp);
        assert!(
            i128::from(embedded.remaining(charge)) < limit,
            "{rule:?} keeps a unit"
        );
    }
}

/// Another counter of the ask, which is an hour ahead after a step back of the clock, makes no other forget.
#[test]
fn c10_a_counter_that_is_ahead_takes_no_other_along() {
    for rule in RULES {
        let embedded = Embedded::new();
        let hour = Charge {
            policy: "hour",
            ..unit("k", Terms::new(Rule::Log, 1_000, 3_600 * SECOND))
        };
        embedded.acquire(hour);
        embedded.advance(3_000 * SECOND);
        embedded.acquire(hour);
        embedded
            .clock
            .set(embedded.clock.now() - Duration::from_secs(2_990));
        let second = unit("k", Terms::new(rule, 10, SECOND));
        let admitted: u32 = (0..30).map(|_| embedded.ask(&[second, hour], 1).granted).sum();
        assert_eq!(admitted, 10, "{rule:?}");
        let retry = after(&embedded.acquire(second));
        assert!(retry <= 4 * SECOND, "{rule:?}: {retry} µs");
    }
}

/// What has run empty is as good as dropped, also where the clock steps back over the edge of a window.
#[test]
fn c11_an_empty_counter_answers_as_a_new_one_after_a_step_back() {
    for rule in RULES {
        let charge = unit("k", Terms::new(rule, 10, MINUTE));
        let (used, fresh) = (Embedded::new(), Embedded::new());
        // 0.2 s into a window of any of the kinds.
        let left = used.acquire(charge).states[0].reset_after.as_micros() as i128;
        used.reset(charge);
        used.advance(left + SECOND / 5);
        let taken = used.acquire(charge);
        used.give_back(&[charge], 1, taken.stamp);
        used.clock.set(used.clock.now() - Duration::from_millis(400));
        fresh.clock.set(used.clock.now());
        assert_eq!(used.acquire(charge), fresh.acquire(charge), "{rule:?}");
    }
}

/// 8 threads ask for the same two counters, half of them in the other order.
#[test]
fn c5_asks_in_opposite_order_do_not_wait_for_each_other() {
    const KEYS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let store = MemoryStore::new();
    let terms = Terms::new(Rule::Log, 100, 3_600 * SECOND);
    let granted: u32 = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    let mut charges: Vec<Charge> = KEYS.iter().map(|key| unit(key, terms)).collect();
                    if thread % 2 == 0 {
                        charges.reverse();
                    }
                    let ask = || at_once(with_ask(&charges, |ask| tollgate::Store::acquire(store, &ask)));
                    (0..500).map(|_| ask().expect("an answer").granted).sum::<u32>()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .sum()
    });
    assert_eq!(granted, 100);
}
