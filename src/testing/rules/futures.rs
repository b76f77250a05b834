//! Asks at the same time, and asks that nobody waits for.

use super::super::Harness;
use super::super::case::Case;
use super::super::counter::Counter;
use crate::quota::Quota;
use crate::store::Ask;

pub(super) async fn concurrent_asks_share_the_limit<H: Harness>(case: &Case<'_, H>) {
    let rule = "concurrent asks share the limit";
    let counter = case.counter(rule, "concurrent").await;
    let other = Counter::new("concurrent", "other", Quota::new(1_000, case.window()));
    let charges = [other.cost(1), counter.tenths(1)];
    // Asks for the same counters in either order must not wait for each other.
    let turned = [charges[1], charges[0]];
    let asks: Vec<_> = (0..20)
        .flat_map(|_| [Ask::new(&charges), Ask::new(&turned)])
        .collect();
    let granted = case.at_once(rule, &asks).await;
    case.check(
        rule,
        (10..=10 + case.refilled()).contains(&u64::from(granted)),
        format_args!("{granted} of 10 were granted"),
    );
}

pub(super) async fn a_dropped_ask_harms_nobody<H: Harness>(case: &Case<'_, H>) {
    let rule = "a dropped ask harms nobody else";
    let dropped = Counter::new("dropped", "policy", case.quota);
    let charges = [dropped.tenths(1)];
    for polls in [0, 1, 1, 2, 3] {
        case.drop_halfway(&Ask::new(&charges), polls).await;
    }
    let counter = case.counter(rule, "not dropped").await;
    let answer = case.acquire(rule, &[counter.tenths(10)]).await;
    case.check(rule, answer.granted == 1, format_args!("{answer:?}"));
    case.charge(rule, &[counter.tenths(1)]).await;
    case.give_back(rule, &[counter.tenths(10)], 1, answer.stamp).await;
    case.reset(rule, &[counter.tenths(1), dropped.tenths(1)]).await;
    let remaining = case.remaining(rule, dropped.cost(1)).await;
    case.check(rule, remaining == dropped.limit(), format_args!("{remaining}"));
}
