//! What corrects what was charged.

use std::time::Duration;

use super::super::case::Case;
use super::super::counter::{Counter, with_limit};
use super::super::{BEYOND_32_BITS, Harness, TENTHS};
use super::identity::other_quotas;
use crate::clock::micros;
use crate::quota::{Algorithm, Quota};
use crate::store::{Ask, Stamp};

pub(super) async fn what_was_granted_can_be_given_back<H: Harness>(case: &Case<'_, H>) {
    let rule = "what was granted can be given back";
    let counter = case.counter(rule, "give back").await;
    let charges = [counter.tenths(3)];
    let answer = case.ask(rule, &Ask::new(&charges).want(3)).await;
    let unit = counter.limit() / TENTHS;
    for (times, left) in [(0, 1), (2, 7), (1, 10)] {
        case.give_back(rule, &charges, times, answer.stamp).await;
        let remaining = case.remaining(rule, counter.cost(1)).await;
        case.check(
            rule,
            remaining.abs_diff(unit * left) <= case.refilled(),
            format_args!("{left} tenths should be left, not {remaining}"),
        );
    }
}

pub(super) async fn only_what_was_granted_can_be_given_back<H: Harness>(case: &Case<'_, H>) {
    let rule = "nothing is given back that was not granted";
    let counter = case.counter(rule, "nothing back").await;
    let charges = [counter.tenths(4)];
    let answer = case.acquire(rule, &charges).await;
    let before = answer.states[0].remaining;
    // No stamp, no refund.
    case.give_back(rule, &charges, 1, Stamp::default()).await;
    case.give_back(rule, &charges, 1, Stamp::from_micros(u64::MAX))
        .await;
    if !case.is(Algorithm::TokenBucket) {
        // Exactly those units or nothing.
        case.give_back(rule, &charges, 2, answer.stamp).await;
        case.give_back(rule, &[counter.cost(u64::MAX)], u32::MAX, answer.stamp)
            .await;
        case.give_back(rule, &[counter.cost(BEYOND_32_BITS)], 1, answer.stamp)
            .await;
        // Four times this is four and 2⁶⁴.
        case.give_back(rule, &[counter.cost((1 << 62) + 1)], 4, answer.stamp)
            .await;
    }
    let remaining = case.remaining(rule, counter.cost(1)).await;
    case.check(
        rule,
        (before..=before + case.refilled()).contains(&remaining),
        format_args!("{remaining} are left of {before}"),
    );
    let unknown = Counter::new("never asked", "policy", case.quota);
    case.give_back(rule, &[unknown.tenths(5)], 1, answer.stamp).await;
    let remaining = case.remaining(rule, unknown.cost(1)).await;
    case.check(rule, remaining == counter.limit(), format_args!("{remaining}"));
}

/// Other policies for the key of a counter that is tried, so that an ask can have several charges.
fn others<H: Harness>(case: &Case<'_, H>, key: &str) -> [Counter; 2] {
    ["second", "third"].map(|policy| Counter::new(key, policy, Quota::new(TENTHS, case.window())))
}

pub(super) async fn all_charges_are_given_back<H: Harness>(case: &Case<'_, H>) {
    let rule = "all charges of an ask are given back";
    for place in 0..3 {
        let key = format!("give back {place}");
        let (counter, others) = (case.counter(rule, &key).await, others(case, &key));
        let mut charges = [counter.tenths(2), others[0].cost(3), others[1].cost(1)];
        charges.rotate_left(place);
        let answer = case.ask(rule, &Ask::new(&charges).want(3)).await;
        case.check(rule, answer.granted == 3, format_args!("{answer:?}"));
        case.give_back(rule, &charges, 1, answer.stamp).await;
        for (charge, left) in [
            (counter.cost(1), counter.units(6)),
            (others[0].cost(1), 4),
            (others[1].cost(1), 8),
        ] {
            let remaining = case.remaining(rule, charge).await;
            case.check(
                rule,
                remaining.abs_diff(left) <= case.refilled(),
                format_args!("{left} of {} should be left, not {remaining}", charge.policy),
            );
        }
    }
}

pub(super) async fn a_charge_is_unconditional<H: Harness>(case: &Case<'_, H>) {
    let rule = "a charge is counted whether it fits or not";
    let counter = case.counter(rule, "charge").await;
    for (tenths, left) in [(6, 4), (6, 0), (1, 0)] {
        let answer = case.charge(rule, &[counter.tenths(tenths)]).await;
        case.check(
            rule,
            (answer.granted, answer.states[0].charged) == (1, 1)
                && answer.states[0].remaining == counter.limit() / TENTHS * left,
            format_args!("{answer:?}"),
        );
    }
    let denied = case.acquire(rule, &[counter.tenths(1)]).await;
    case.check(rule, denied.granted == 0, format_args!("{denied:?}"));
    case.charge(rule, &[counter.cost(u64::MAX)]).await;
    case.peek(rule, &[counter.cost(1)]).await;
}

pub(super) async fn a_charge_is_of_all_and_once<H: Harness>(case: &Case<'_, H>) {
    let rule = "a charge is of all charges of the ask, once, held as asked for";
    let hold = case.window().min(Duration::from_secs(1)) / 4;
    for want in [0, 1, 3] {
        let key = format!("charge {want}");
        let (counter, others) = (case.counter(rule, &key).await, others(case, &key));
        let charges = [counter.tenths(2), others[0].cost(3), others[1].cost(11)];
        let ask = Ask::new(&charges).want(want).hold(hold);
        let answer = case.charge_ask(rule, &ask).await;
        case.check(
            rule,
            answer.granted == 1 && answer.states.iter().all(|state| state.charged == 1),
            format_args!("{want} wanted: {answer:?}"),
        );
        case.check(
            rule,
            answer.stamp.as_micros() - answer.now.as_micros() == micros(hold),
            format_args!("held for {hold:?}: {answer:?}"),
        );
        for (charge, left) in [
            (counter.cost(1), counter.units(8)),
            (others[0].cost(1), 7),
            (others[1].cost(1), 0),
        ] {
            let remaining = case.remaining(rule, charge).await;
            case.check(
                rule,
                remaining == left,
                format_args!("{left} of {} should be left, not {remaining}", charge.policy),
            );
        }
    }
    let counter = case.counter(rule, "charge twice").await;
    let answer = case.charge(rule, &[counter.tenths(1), counter.tenths(3)]).await;
    case.check(
        rule,
        answer
            .states
            .iter()
            .all(|state| state.remaining == counter.units(6)),
        format_args!("two charges on one counter: {answer:?}"),
    );
}

pub(super) async fn what_exceeds_the_limit_is_counted<H: Harness>(case: &Case<'_, H>) {
    let rule = "what a charge exceeds the limit by is counted";
    for cost in [BEYOND_32_BITS, u64::MAX] {
        let counter = case.counter(rule, &format!("exceeds by {cost}")).await;
        case.charge(rule, &[counter.cost(cost)]).await;
        // A bucket forgets it instead.
        let higher = counter.units(12).max(1_000);
        let left = if case.is(Algorithm::TokenBucket) {
            higher - counter.limit()
        } else {
            0
        };
        for (limit, left) in [(counter.limit(), 0), (higher, left)] {
            let counter = counter.under(with_limit(case.quota, limit));
            let remaining = case.remaining(rule, counter.cost(1)).await;
            case.check(
                rule,
                remaining == left,
                format_args!("{cost} charged: {remaining} are left under {}", counter.quota),
            );
        }
    }
}

pub(super) async fn a_reset_forgets_its_counters_only<H: Harness>(case: &Case<'_, H>) {
    let rule = "a reset forgets its counters only";
    let counter = case.counter(rule, "reset").await;
    let nine = Quota::new(9, case.window());
    let others = [
        Counter::new("other", "policy", nine),
        Counter::new("reset", "other", nine),
        // Under the same quota, for whoever resets by key or policy and layout.
        Counter::new("not reset", "policy", case.quota),
        Counter::new("reset", "another", case.quota),
    ];
    for other in &others {
        case.acquire(rule, &[other.cost(other.limit())]).await;
    }
    let layouts: Vec<_> = other_quotas(case)
        .into_iter()
        .map(|quota| counter.under(quota))
        .collect();
    for other in &layouts {
        case.acquire(rule, &[other.cost(other.limit())]).await;
    }
    case.acquire(rule, &[counter.tenths(10)]).await;
    case.reset(rule, &[counter.tenths(1)]).await;
    let remaining = case.remaining(rule, counter.cost(1)).await;
    case.check(rule, remaining == counter.limit(), format_args!("{remaining}"));
    for other in others.iter().chain(&layouts) {
        let remaining = case.remaining(rule, other.cost(1)).await;
        case.check(
            rule,
            remaining == 0,
            format_args!(
                "{remaining} of {:?}, {:?}, {}",
                other.key, other.policy, other.quota
            ),
        );
    }
    // And all of them.
    case.acquire(rule, &[counter.tenths(10)]).await;
    let charges = [counter.tenths(1), others[0].cost(1), others[1].cost(0)];
    case.reset(rule, &charges).await;
    for counter in [&counter, &others[0], &others[1]] {
        let remaining = case.remaining(rule, counter.cost(1)).await;
        case.check(
            rule,
            remaining == counter.limit(),
            format_args!("{remaining} of {:?}, {:?}", counter.key, counter.policy),
        );
    }
}
