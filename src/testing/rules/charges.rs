//! Asks of several charges.

use super::super::case::Case;
use super::super::counter::Counter;
use super::super::{Harness, TENTHS};
use crate::quota::Quota;
use crate::store::{Ask, Mode};

pub(super) async fn all_or_nothing<H: Harness>(case: &Case<'_, H>) {
    let rule = "all charges of an ask or none";
    let counter = case.counter(rule, "all").await;
    let other = Counter::new("all", "other", Quota::new(4, case.window()));
    let charges = [counter.tenths(2), other.cost(1)];
    case.acquire(rule, &charges).await;
    case.acquire(rule, &[other.cost(3)]).await;
    for charges in [charges, [charges[1], charges[0]]] {
        let denied = case.acquire(rule, &charges).await;
        case.check(rule, denied.granted == 0, format_args!("{denied:?}"));
    }
    let answer = case.acquire(rule, &[counter.tenths(8)]).await;
    case.check(
        rule,
        answer.granted == 1,
        format_args!("what the other policy denied was charged: {answer:?}"),
    );
    // Each of many charges counts, wherever it stands.
    let full = case.counter(rule, "one of many").await;
    case.acquire(rule, &[full.tenths(10)]).await;
    let free = ["second", "third", "fourth", "fifth"]
        .map(|policy| Counter::new("one of many", policy, Quota::new(TENTHS, case.window())));
    for many in 1..=free.len() {
        for place in 0..=many {
            let mut charges: Vec<_> = free[..many].iter().map(|counter| counter.cost(1)).collect();
            charges.insert(place, full.cost(full.limit()));
            let denied = case.acquire(rule, &charges).await;
            case.check(
                rule,
                denied.granted == 0,
                format_args!("charge {place} of {many} does not fit: {denied:?}"),
            );
        }
    }
    let charges = free.each_ref().map(|counter| counter.cost(3));
    let answer = case.ask(rule, &Ask::new(&charges).want(5)).await;
    case.check(
        rule,
        answer.granted == 3 && answer.states.iter().all(|state| state.remaining == 1),
        format_args!("{answer:?}"),
    );
}

pub(super) async fn charges_on_one_counter_add_up<H: Harness>(case: &Case<'_, H>) {
    let rule = "charges on one counter add up";
    let counter = case.counter(rule, "sum").await;
    let charges = [counter.tenths(2), counter.tenths(2)];
    let answer = case.ask(rule, &Ask::new(&charges).want(5)).await;
    let left = counter.limit() / TENTHS * 2;
    case.check(
        rule,
        answer.granted == 2 && answer.states.iter().all(|state| state.remaining == left),
        format_args!("{answer:?}"),
    );
    for costs in [[u64::MAX, 1], [1 << 63, 1 << 63], [1 << 32, counter.limit()]] {
        let denied = case.acquire(rule, &costs.map(|cost| counter.cost(cost))).await;
        case.check(rule, denied.granted == 0, format_args!("{costs:?}: {denied:?}"));
    }
    // Also where they stand apart.
    let counter = case.counter(rule, "sum apart").await;
    let other = Counter::new("sum apart", "other", Quota::new(TENTHS, case.window()));
    let charges = [counter.tenths(1), other.cost(1), counter.tenths(3)];
    let answer = case.ask(rule, &Ask::new(&charges).want(5)).await;
    case.check(rule, answer.granted == 2, format_args!("apart: {answer:?}"));
}

pub(super) async fn shadows_are_counted_and_never_stop<H: Harness>(case: &Case<'_, H>) {
    let rule = "shadow charges are counted if they fit, and never stop an ask";
    let counter = case.counter(rule, "shadow").await;
    let other = Counter::new("shadow", "other", Quota::new(1_000, case.window()));
    let shadow = counter.tenths(4).mode(Mode::Shadow);
    let charges = [other.cost(1), shadow];
    for (want, granted, charged) in [(1, 1, 1), (3, 3, 1), (1, 1, 0)] {
        let answer = case.ask(rule, &Ask::new(&charges).want(want)).await;
        case.check(
            rule,
            (answer.granted, answer.states[0].charged, answer.states[1].charged)
                == (granted, granted, charged),
            format_args!("{answer:?}"),
        );
    }
    let answer = case.acquire(rule, &[shadow]).await;
    case.check(
        rule,
        (answer.granted, answer.states[0].charged) == (1, 0),
        format_args!("a shadow alone: {answer:?}"),
    );
    // With nothing granted, shadows are not counted either.
    let denied = case
        .acquire(rule, &[other.cost(1_001), counter.tenths(1).mode(Mode::Shadow)])
        .await;
    case.check(
        rule,
        (denied.granted, denied.states[1].charged) == (0, 0),
        format_args!("{denied:?}"),
    );
    let answer = case.acquire(rule, &[counter.tenths(2)]).await;
    case.check(
        rule,
        answer.granted == 1,
        format_args!("two tenths were left: {answer:?}"),
    );
    // What is enforced has its room before a shadow of the same counter.
    let both = case.counter(rule, "both").await;
    let charges = [both.tenths(4).mode(Mode::Shadow), both.tenths(7)];
    let answer = case.acquire(rule, &charges).await;
    case.check(
        rule,
        (answer.granted, answer.states[0].charged, answer.states[1].charged) == (1, 0, 1),
        format_args!("{answer:?}"),
    );
}

pub(super) async fn a_look_is_at_all_charges<H: Harness>(case: &Case<'_, H>) {
    let rule = "a look is at all charges of an ask";
    let counter = case.counter(rule, "look at all").await;
    let others = ["second", "third"]
        .map(|policy| Counter::new("look at all", policy, Quota::new(TENTHS, case.window())));
    case.acquire(rule, &[others[1].cost(4)]).await;
    let charges = [counter.tenths(1), others[0].cost(1), others[1].cost(2)];
    for rotated in 0..3 {
        let mut charges = charges;
        charges.rotate_left(rotated);
        let answer = case.peek_ask(rule, &Ask::new(&charges).want(9)).await;
        case.check(rule, answer.granted == 3, format_args!("{answer:?}"));
    }
    let charges = [counter.tenths(1), others[0].cost(1), counter.tenths(2)];
    let answer = case.peek_ask(rule, &Ask::new(&charges).want(9)).await;
    case.check(
        rule,
        answer.granted == 3,
        format_args!("twice on one counter: {answer:?}"),
    );
}
