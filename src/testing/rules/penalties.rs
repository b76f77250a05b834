//! Penalties: what denials of a key lead to.

use std::time::Duration;

use super::super::case::Case;
use super::super::counter::Counter;
use super::super::{Harness, TENTHS};
use crate::clock::micros;
use crate::penalty::Penalty;
use crate::quota::Quota;
use crate::store::{Ask, Charge, Mode, Outcome, Retry};

/// Whether the ask was denied, by a block or by the quota alone.
fn is_denied(answer: &Outcome, blocked: bool) -> bool {
    answer.granted == 0 && answer.states[0].blocked == blocked && answer.states[0].charged == 0
}

/// Waits as long as the block lasts that stops a charge, with a look at its end.
async fn wait_for_pardon<H: Harness>(case: &Case<'_, H>, rule: &str, charge: Charge<'_>) -> Duration {
    let charges = [charge];
    let denied = case.acquire(rule, &charges).await;
    let Retry::After(retry) = denied.states[0].retry else {
        panic!("{rule}, with {}: no block to wait for: {denied:?}", case.quota);
    };
    case.check(rule, is_denied(&denied, true), format_args!("{denied:?}"));
    let due = denied.now.as_micros() + micros(retry);
    let early = (case.resolution() * 2).max(Duration::from_micros(1));
    case.advance(retry.saturating_sub(early)).await;
    let before = case.acquire(rule, &charges).await;
    case.check(
        rule,
        before.granted == u32::from(before.now.as_micros() >= due),
        format_args!("{early:?} before {due}: {before:?}"),
    );
    let left = due.saturating_sub(before.now.as_micros());
    case.advance(Duration::from_micros(left)).await;
    let after = case.acquire(rule, &charges).await;
    case.check(
        rule,
        after.granted == 1 && !after.states[0].blocked,
        format_args!("from {due} on: {after:?}"),
    );
    retry
}

pub(super) async fn denials_block_a_key<H: Harness>(case: &Case<'_, H>) {
    let rule = "a key that is denied too often is blocked, whatever it asks for";
    let penalty = Penalty::after(3, case.window()).block_for(case.window() / 4);
    let counter = case.counter(rule, "blocked").await;
    let charges = [counter.tenths(10).penalty(&penalty)];
    let granted = case.acquire(rule, &charges).await;
    case.check(rule, granted.granted == 1, format_args!("{granted:?}"));
    for blocked in [false, false, true, true] {
        let denied = case.acquire(rule, &charges).await;
        case.check(
            rule,
            is_denied(&denied, blocked),
            format_args!("{blocked} for blocked: {denied:?}"),
        );
    }
    let looked = case.peek(rule, &charges).await;
    case.check(rule, is_denied(&looked, true), format_args!("{looked:?}"));
    for free in [
        Counter::new("not blocked", "policy", case.quota),
        Counter::new("blocked", "other", case.quota),
    ] {
        let answer = case.acquire(rule, &[free.cost(0).penalty(&penalty)]).await;
        case.check(
            rule,
            answer.granted == 1,
            format_args!("{:?}, {:?}: {answer:?}", free.key, free.policy),
        );
    }
    let bare = case.acquire(rule, &[counter.cost(0)]).await;
    case.check(
        rule,
        bare.granted == 1,
        format_args!("without a penalty: {bare:?}"),
    );
    wait_for_pardon(case, rule, counter.cost(0).penalty(&penalty)).await;
}

pub(super) async fn denials_count_where_there_was_no_room<H: Harness>(case: &Case<'_, H>) {
    let rule = "denials count for the policies that had no room, each of them once";
    let penalty = Penalty::after(3, case.window());
    let counter = case.counter(rule, "no room").await;
    let other = Counter::new("no room", "other", Quota::new(TENTHS, case.window()));
    case.acquire(rule, &[counter.tenths(10)]).await;
    let both = [
        counter.tenths(10).penalty(&penalty),
        other.cost(1).penalty(&penalty),
    ];
    for _ in 0..4 {
        case.acquire(rule, &both).await;
    }
    let answer = case.acquire(rule, &[both[1]]).await;
    case.check(
        rule,
        answer.granted == 1 && answer.states[0].remaining == TENTHS - 1,
        format_args!("the other policy had room: {answer:?}"),
    );
    // All grants that an ask wants and does not get.
    for (want, blocked) in [(10, false), (1, false), (1, true)] {
        let answer = case.ask(rule, &Ask::new(&both[1..]).want(want)).await;
        case.check(
            rule,
            answer.states[0].blocked == blocked,
            format_args!("{want} wanted: {answer:?}"),
        );
    }
    let many = Counter::new("many", "other", Quota::new(TENTHS, case.window()));
    let charges = [many.cost(1).penalty(&penalty)];
    let answer = case.ask(rule, &Ask::new(&charges).want(13)).await;
    case.check(
        rule,
        answer.granted == 10 && answer.states[0].charged == 10 && answer.states[0].blocked,
        format_args!("three too many: {answer:?}"),
    );
    // A cost that never fits is denied, too.
    let never = Counter::new("never", "other", Quota::new(TENTHS, case.window()));
    let charges = [never.cost(TENTHS + 1).penalty(&penalty)];
    let answer = case.ask(rule, &Ask::new(&charges).want(3)).await;
    case.check(
        rule,
        is_denied(&answer, true) && answer.states[0].retry == Retry::Never,
        format_args!("above the limit: {answer:?}"),
    );
}

pub(super) async fn denials_are_forgotten<H: Harness>(case: &Case<'_, H>) {
    let rule = "denials are counted from the first of them on, for as long as was said";
    let penalty = Penalty::after(2, case.window() / 4);
    let counter = case.counter(rule, "forgotten denials").await;
    case.acquire(rule, &[counter.tenths(10)]).await;
    let charges = [counter.tenths(10).penalty(&penalty)];
    case.acquire(rule, &charges).await;
    case.advance(case.window() / 4).await;
    for blocked in [false, true] {
        let denied = case.acquire(rule, &charges).await;
        case.check(rule, is_denied(&denied, blocked), format_args!("{denied:?}"));
    }
}

pub(super) async fn blocks_grow<H: Harness>(case: &Case<'_, H>) {
    let rule = "each block of a row lasts longer, up to the longest";
    let step = case.window() / 16;
    let penalty = Penalty::after(1, case.window())
        .block_for(step)
        .growing(2, step * 3);
    let counter = case.counter(rule, "growing").await;
    case.acquire(rule, &[counter.tenths(10)]).await;
    for times in [1, 2, 3] {
        let denied = case.acquire(rule, &[counter.tenths(10).penalty(&penalty)]).await;
        case.check(rule, is_denied(&denied, true), format_args!("{denied:?}"));
        let wait = wait_for_pardon(case, rule, counter.cost(0).penalty(&penalty)).await;
        case.check(
            rule,
            wait <= step * times && step * times - wait <= case.resolution(),
            format_args!("{times} times {step:?} should be waited, not {wait:?}"),
        );
    }
}

pub(super) async fn keys_are_blocked_by_hand<H: Harness>(case: &Case<'_, H>) {
    let rule = "a key is blocked and pardoned by hand";
    let penalty = Penalty::manual();
    let counter = case.counter(rule, "by hand").await;
    let charge = counter.tenths(1).penalty(&penalty);
    for _ in 0..3 {
        case.acquire(rule, &[counter.cost(counter.limit() + 1).penalty(&penalty)])
            .await;
    }
    let answer = case.acquire(rule, &[charge]).await;
    case.check(
        rule,
        answer.granted == 1,
        format_args!("denials block nobody: {answer:?}"),
    );
    case.block(rule, &[charge], case.window() / 2).await;
    let denied = case.acquire(rule, &[charge]).await;
    case.check(
        rule,
        is_denied(&denied, true) && denied.states[0].remaining == 0,
        format_args!("{denied:?}"),
    );
    let shadow = case.acquire(rule, &[charge.mode(Mode::Shadow)]).await;
    case.check(
        rule,
        (shadow.granted, shadow.states[0].charged) == (1, 1) && !shadow.states[0].blocked,
        format_args!("in shadow mode: {shadow:?}"),
    );
    let settled = case.charge(rule, &[charge]).await;
    case.check(
        rule,
        settled.granted == 1 && settled.states[0].remaining.abs_diff(counter.units(7)) <= case.refilled(),
        format_args!("charged all the same: {settled:?}"),
    );
    let other = Counter::new("not by hand", "policy", case.quota);
    let answer = case.acquire(rule, &[other.tenths(1).penalty(&penalty)]).await;
    case.check(rule, answer.granted == 1, format_args!("another key: {answer:?}"));
    case.block(rule, &[charge], Duration::ZERO).await;
    let pardoned = case.acquire(rule, &[charge]).await;
    case.check(
        rule,
        pardoned.granted == 1 && !pardoned.states[0].blocked,
        format_args!("pardoned: {pardoned:?}"),
    );
    // Blocks only those who have a penalty.
    let second = Counter::new("by hand", "second", Quota::new(TENTHS, case.window()));
    case.block(rule, &[second.cost(1), charge], case.window() / 2)
        .await;
    let answer = case.acquire(rule, &[second.cost(1).penalty(&penalty)]).await;
    case.check(
        rule,
        answer.granted == 1,
        format_args!("it had no penalty: {answer:?}"),
    );
    case.reset(rule, &[charge]).await;
    let reset = case.acquire(rule, &[charge]).await;
    case.check(
        rule,
        reset.granted == 1 && reset.states[0].remaining == counter.units(9),
        format_args!("a reset forgets the block: {reset:?}"),
    );
}

pub(super) async fn a_pardon_forgets_denials<H: Harness>(case: &Case<'_, H>) {
    let rule = "a pardon forgets denials and the row of blocks";
    let step = case.window() / 16;
    let penalty = Penalty::after(2, case.window())
        .block_for(step)
        .growing(100, case.window() * 9);
    let counter = case.counter(rule, "pardon").await;
    let charges = [counter.cost(counter.limit() + 1).penalty(&penalty)];
    for _ in 0..2 {
        case.acquire(rule, &charges).await;
        case.block(rule, &charges, Duration::ZERO).await;
        for blocked in [false, true] {
            let denied = case.acquire(rule, &charges).await;
            case.check(rule, is_denied(&denied, blocked), format_args!("{denied:?}"));
        }
        let looked = case.peek(rule, &[counter.cost(0).penalty(&penalty)]).await;
        case.check(
            rule,
            looked.states[0].retry <= Retry::After(step),
            format_args!("blocked for {step:?}: {looked:?}"),
        );
        case.block(rule, &charges, Duration::ZERO).await;
    }
}

pub(super) async fn a_step_back_holds_no_block_for_long<H: Harness>(case: &Case<'_, H>) {
    let rule = "a clock that steps back holds no block for longer than it was to last";
    let penalty = Penalty::after(1, case.window());
    let counter = case.counter(rule, "block and step").await;
    let charges = [counter.cost(counter.limit() + 1).penalty(&penalty)];
    let denied = case.acquire(rule, &charges).await;
    case.check(rule, is_denied(&denied, true), format_args!("{denied:?}"));
    case.advance(case.window() / 2).await;
    if !case.step_back(case.window() * 5) {
        return;
    }
    let charge = counter.cost(0).penalty(&penalty);
    let wait = wait_for_pardon(case, rule, charge).await;
    case.check(
        rule,
        wait == case.window(),
        format_args!("{:?} should be waited, not {wait:?}", case.window()),
    );
}

pub(super) async fn unlimited_is_blocked_by_hand<H: Harness>(case: &Case<'_, H>) {
    let rule = "what is unlimited is blocked by hand all the same";
    let penalty = Penalty::manual();
    let counter = Counter::new("unlimited and blocked", "policy", case.quota);
    let charges = [counter.cost(1).penalty(&penalty)];
    let answer = case.acquire(rule, &charges).await;
    case.check(rule, answer.granted == 1, format_args!("{answer:?}"));
    case.block(rule, &charges, case.window()).await;
    let denied = case.acquire(rule, &charges).await;
    case.check(
        rule,
        is_denied(&denied, true) && denied.states[0].remaining == 0,
        format_args!("{denied:?}"),
    );
    case.block(rule, &charges, Duration::ZERO).await;
    let pardoned = case.acquire(rule, &charges).await;
    case.check(
        rule,
        pardoned.granted == 1 && pardoned.states[0].remaining == u64::MAX,
        format_args!("{pardoned:?}"),
    );
}
