//! The limit: what fits, and what does not.

use std::time::Duration;

use super::super::case::Case;
use super::super::counter::with_limit;
use super::super::{BEYOND_32_BITS, Harness, TENTHS};
use crate::quota::Quota;
use crate::store::{Ask, Retry};

pub(super) async fn a_fresh_counter_is_full<H: Harness>(case: &Case<'_, H>) {
    let rule = "a fresh counter is full";
    let counter = case.counter(rule, "fresh").await;
    for _ in 0..2 {
        let answer = case.peek(rule, &[counter.tenths(1)]).await;
        let state = answer.states[0];
        case.check(
            rule,
            (answer.granted, state.charged, state.remaining) == (1, 0, counter.limit())
                && (state.retry, state.reset_after) == (Retry::Now, Duration::ZERO),
            format_args!("{answer:?}"),
        );
    }
}

pub(super) async fn the_limit_is_granted_and_no_more<H: Harness>(case: &Case<'_, H>) {
    let rule = "the limit is granted, and no more";
    let counter = case.counter(rule, "limit").await;
    for left in (0..TENTHS).rev() {
        let answer = case.acquire(rule, &[counter.tenths(1)]).await;
        let state = answer.states[0];
        case.check(
            rule,
            (answer.granted, state.charged, state.remaining) == (1, 1, counter.limit() / TENTHS * left),
            format_args!("{left} tenths should be left: {answer:?}"),
        );
        case.check(
            rule,
            answer.stamp == answer.now && !state.reset_after.is_zero(),
            format_args!("{answer:?}"),
        );
    }
    let denied = case.acquire(rule, &[counter.tenths(1)]).await;
    case.check(
        rule,
        (denied.granted, denied.states[0].charged) == (0, 0)
            && matches!(denied.states[0].retry, Retry::After(_)),
        format_args!("nothing should be left: {denied:?}"),
    );
}

pub(super) async fn denials_are_free<H: Harness>(case: &Case<'_, H>) {
    let rule = "denials are free";
    let counter = case.counter(rule, "denials").await;
    case.acquire(rule, &[counter.tenths(8)]).await;
    for cost in [
        counter.limit() / TENTHS * 5,
        counter.limit(),
        counter.limit() + 1,
        BEYOND_32_BITS,
        u64::MAX,
    ] {
        for _ in 0..3 {
            let denied = case.acquire(rule, &[counter.cost(cost)]).await;
            case.check(rule, denied.granted == 0, format_args!("{cost} fit: {denied:?}"));
        }
    }
    let granted = case.acquire(rule, &[counter.tenths(2)]).await;
    case.check(
        rule,
        (granted.granted, granted.states[0].remaining) == (1, 0),
        format_args!("two tenths should be left: {granted:?}"),
    );
}

pub(super) async fn costs_at_the_edges<H: Harness>(case: &Case<'_, H>) {
    let rule = "a cost above the limit is never granted, none always";
    let counter = case.counter(rule, "costs").await;
    let limit = counter.limit();
    for (cost, granted, remaining, retry) in [
        (u64::MAX, 0, limit, Retry::Never),
        (limit + 1, 0, limit, Retry::Never),
        (BEYOND_32_BITS, 0, limit, Retry::Never),
        (0, 1, limit, Retry::Now),
        (1, 1, limit - 1, Retry::Now),
        (0, 1, limit - 1, Retry::Now),
        (limit - 1, 1, 0, Retry::Now),
        (0, 1, 0, Retry::Now),
        (limit + 1, 0, 0, Retry::Never),
    ] {
        let answer = case.acquire(rule, &[counter.cost(cost)]).await;
        let state = answer.states[0];
        // What was granted may not fit once more.
        let retry = granted == 1 && cost > 0 || state.retry == retry;
        case.check(
            rule,
            (answer.granted, state.remaining) == (granted, remaining) && retry,
            format_args!("{cost} of {limit}: {answer:?}"),
        );
    }
}

pub(super) async fn a_limit_of_zero_denies<H: Harness>(case: &Case<'_, H>) {
    let rule = "a limit of 0 denies all";
    let counter = case.counter(rule, "zero").await;
    let none = counter.under(with_limit(case.quota, 0));
    for cost in [0, 1, u64::MAX] {
        let denied = case.acquire(rule, &[none.cost(cost)]).await;
        case.check(
            rule,
            (denied.granted, denied.states[0].retry) == (0, Retry::Never),
            format_args!("{denied:?}"),
        );
    }
}

pub(super) async fn unlimited_is_not_counted<H: Harness>(case: &Case<'_, H>) {
    let rule = "unlimited fits always and is not counted";
    let counter = case.counter(rule, "unlimited").await;
    let unlimited = counter.under(Quota::unlimited());
    for cost in [0, 1, u64::MAX] {
        let answer = case
            .acquire(rule, &[unlimited.cost(cost), counter.tenths(1)])
            .await;
        let state = answer.states[0];
        case.check(
            rule,
            answer.granted == 1 && (state.remaining, state.retry) == (u64::MAX, Retry::Now),
            format_args!("{answer:?}"),
        );
    }
    case.acquire(rule, &[]).await;
}

pub(super) async fn as_many_grants_as_wanted_and_fit<H: Harness>(case: &Case<'_, H>) {
    let rule = "an ask is granted as often as it is wanted and fits";
    let counter = case.counter(rule, "want").await;
    let charges = [counter.tenths(3)];
    for (want, granted) in [(0, 0), (1, 1), (u32::MAX, 2), (5, 0)] {
        let answer = case.ask(rule, &Ask::new(&charges).want(want)).await;
        case.check(
            rule,
            (answer.granted, answer.states[0].charged) == (granted, granted),
            format_args!("{want} wanted: {answer:?}"),
        );
    }
    let nothing = [counter.cost(0)];
    for want in [1_000, u32::MAX] {
        let answer = case.ask(rule, &Ask::new(&nothing).want(want)).await;
        case.check(rule, answer.granted == want, format_args!("cost 0: {answer:?}"));
    }
}

pub(super) async fn a_look_changes_nothing<H: Harness>(case: &Case<'_, H>) {
    let rule = "a look changes nothing";
    let counter = case.counter(rule, "look").await;
    case.acquire(rule, &[counter.tenths(1)]).await;
    let charges = [counter.tenths(3)];
    for (want, granted) in [(1, 1), (u32::MAX, 3), (2, 2), (0, 0)] {
        let answer = case.peek_ask(rule, &Ask::new(&charges).want(want)).await;
        case.check(
            rule,
            (answer.granted, answer.states[0].charged) == (granted, 0),
            format_args!("{want} wanted: {answer:?}"),
        );
    }
    let answer = case.ask(rule, &Ask::new(&charges).want(3)).await;
    case.check(rule, answer.granted == 3, format_args!("{answer:?}"));
}
