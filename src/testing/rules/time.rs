//! Time: when what was charged is forgotten.

use std::time::Duration;

use super::super::Harness;
use super::super::case::Case;
use crate::clock::micros;
use crate::quota::Algorithm;
use crate::store::{Ask, Outcome, Retry};

/// The time from which on one more grant should fit.
fn due<H: Harness>(case: &Case<'_, H>, rule: &str, denied: &Outcome) -> u64 {
    let Retry::After(retry) = denied.states[0].retry else {
        panic!("{rule}, with {}: no time to wait: {denied:?}", case.quota);
    };
    denied.now.as_micros() + micros(retry)
}

pub(super) async fn retry_is_true<H: Harness>(case: &Case<'_, H>) {
    let rule = "waiting as told is enough, and needed";
    for tenths in [1, 4, 10] {
        let counter = case.counter(rule, &format!("retry {tenths}")).await;
        for first in [3, 4, 3] {
            case.acquire(rule, &[counter.tenths(first)]).await;
        }
        let charges = [counter.tenths(tenths)];
        let denied = case.acquire(rule, &charges).await;
        let due = due(case, rule, &denied);
        let early = (case.resolution() * 2).max(Duration::from_micros(1));
        let wait = Duration::from_micros(due - denied.now.as_micros()).saturating_sub(early);
        case.advance(wait).await;
        let before = case.acquire(rule, &charges).await;
        case.check(
            rule,
            before.granted == u32::from(before.now.as_micros() >= due),
            format_args!("{early:?} before {due}: {before:?}"),
        );
        if before.granted == 0 {
            case.advance(Duration::from_micros(due.saturating_sub(before.now.as_micros())))
                .await;
            let after = case.acquire(rule, &charges).await;
            case.check(rule, after.granted == 1, format_args!("from {due} on: {after:?}"));
        }
    }
}

pub(super) async fn what_was_charged_is_forgotten<H: Harness>(case: &Case<'_, H>) {
    let rule = "what was charged is forgotten after reset_after";
    let counter = case.counter(rule, "forgotten").await;
    let charges = [counter.tenths(7)];
    let reset_after = case.acquire(rule, &charges).await.states[0].reset_after;
    case.advance(reset_after).await;
    let full = case.peek(rule, &charges).await.states[0];
    case.check(
        rule,
        (full.remaining, full.reset_after) == (counter.limit(), Duration::ZERO),
        format_args!("after {reset_after:?}: {full:?}"),
    );
    let answer = case.acquire(rule, &[counter.tenths(10)]).await;
    case.check(rule, answer.granted == 1, format_args!("{answer:?}"));
}

pub(super) async fn held_units_are_charged_ahead<H: Harness>(case: &Case<'_, H>) {
    let rule = "held units are charged ahead, by a second and the window at most";
    let most = case.window().min(Duration::from_secs(1));
    for (number, hold) in [most / 4, most, Duration::MAX].into_iter().enumerate() {
        let counter = case.counter(rule, &format!("held {number}")).await;
        let charges = [counter.tenths(10)];
        let answer = case.ask(rule, &Ask::new(&charges).hold(hold)).await;
        let ahead = answer.stamp.as_micros() - answer.now.as_micros();
        let expected = micros(hold.min(most));
        // A lease ends with its window.
        let ends = !case.is(Algorithm::SlidingWindow)
            && !case.is(Algorithm::TokenBucket)
            && ahead < micros(answer.states[0].reset_after);
        case.check(
            rule,
            answer.granted == 1 && (ahead == expected || ends && ahead < expected),
            format_args!("{hold:?}: {answer:?}"),
        );
        if case.is(Algorithm::SlidingWindow) {
            // In use up to then, and in the window from then on.
            let reset_after = answer.states[0].reset_after;
            case.check(
                rule,
                reset_after >= hold.min(most) + case.window(),
                format_args!("{hold:?}: {answer:?}"),
            );
        }
        case.acquire(rule, &charges).await;
    }
}

/// How far ahead of the clock a charge may lie: what is further ahead is another clock's.
fn slack<H: Harness>(case: &Case<'_, H>) -> Duration {
    case.window().min(Duration::from_secs(1))
}

pub(super) async fn a_small_step_back_admits_nothing<H: Harness>(case: &Case<'_, H>) {
    let rule = "a clock that steps back by less than a second forgets nothing";
    let counter = case.counter(rule, "small step").await;
    let step = slack(case) / 4;
    // The step stays within one window.
    case.advance(step).await;
    let charges = [counter.tenths(5)];
    let granted = case.ask(rule, &Ask::new(&charges).want(2)).await;
    if !case.step_back(step) {
        return;
    }
    let denied = case.acquire(rule, &[counter.tenths(1)]).await;
    case.check(
        rule,
        denied.granted == 0,
        format_args!("after {granted:?}: {denied:?}"),
    );
    case.give_back(rule, &charges, 1, granted.stamp).await;
    let remaining = case.remaining(rule, counter.cost(1)).await;
    case.check(
        rule,
        remaining.abs_diff(counter.units(5)) <= case.refilled(),
        format_args!("{remaining} are left, with half given back"),
    );
}

pub(super) async fn a_large_step_back_holds_nobody_for_long<H: Harness>(case: &Case<'_, H>) {
    let rule = "a clock that steps back forgets nothing, and holds nobody for longer than two windows";
    let counter = case.counter(rule, "large step").await;
    let granted = case.acquire(rule, &[counter.tenths(10)]).await;
    let step = case.window() * 5;
    if !case.step_back(step) {
        return;
    }
    let denied = case.acquire(rule, &[counter.tenths(1)]).await;
    let behind = micros(step - case.resolution() * 4);
    case.check(
        rule,
        denied.granted == 0 && denied.now.as_micros() + behind <= granted.now.as_micros(),
        format_args!("after {granted:?}: {denied:?}"),
    );
    let slots = case
        .quota
        .slot_count()
        .map_or(0, |slots| 2 * micros(case.window()).div_ceil(u64::from(slots)));
    let most = case.window() * 2 + Duration::from_micros(slots) + slack(case);
    let reset_after = denied.states[0].reset_after;
    case.check(
        rule,
        reset_after <= most,
        format_args!("at most {most:?}: {denied:?}"),
    );
    case.advance(reset_after).await;
    let answer = case.acquire(rule, &[counter.tenths(10)]).await;
    case.check(
        rule,
        answer.granted == 1,
        format_args!("after {reset_after:?}: {answer:?}"),
    );
}
