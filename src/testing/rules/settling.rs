//! Corrections that are made together.

use super::super::case::Case;
use super::super::counter::Counter;
use super::super::{Harness, TENTHS};
use crate::quota::Quota;
use crate::store::{Ask, Charge, Correction, Stamp};

pub(super) async fn corrections_made_together_do_what_each_does_alone<H: Harness>(case: &Case<'_, H>) {
    let rule = "corrections made together do what each does alone";
    let ten = Quota::new(TENTHS, case.window());
    let counter = case.counter(rule, "settle").await;
    let [second, third] = ["second", "third"].map(|policy| Counter::new("settle", policy, ten));
    let elsewhere = Counter::new("settle elsewhere", "policy", ten);
    let never_asked = Counter::new("settle nothing", "policy", ten);
    let unlimited = Counter::new("settle", "unlimited", Quota::unlimited());
    let granted = case.ask(rule, &Ask::new(&[counter.tenths(1)]).want(5)).await;
    case.acquire(rule, &[second.cost(4)]).await;
    let else_granted = case.acquire(rule, &[elsewhere.cost(2)]).await;

    let one = [counter.tenths(1)];
    let four = [second.cost(4)];
    let three = [second.cost(3)];
    // A counter that others of these share, and one that is not there yet.
    let both = [counter.tenths(1), third.cost(12)];
    let two = [elsewhere.cost(2)];
    let nothing = [never_asked.cost(1)];
    let uncounted = [unlimited.cost(1), unlimited.cost(2)];
    case.settle(
        rule,
        &[
            Correction::give_back(Ask::new(&one), 2, granted.stamp),
            // No stamp, no refund; and no more than was granted.
            Correction::give_back(Ask::new(&four), 1, Stamp::default()),
            Correction::give_back(Ask::new(&two), 9, else_granted.stamp),
            Correction::give_back(Ask::new(&nothing), 1, granted.stamp),
            Correction::charge(Ask::new(&three)),
            Correction::charge(Ask::new(&both).want(3)),
            Correction::charge(Ask::new(&uncounted)),
            Correction::give_back(Ask::new(&uncounted), 1, granted.stamp),
            Correction::charge(Ask::new(&[])),
            Correction::give_back(Ask::new(&one).want(7), 1, granted.stamp),
        ],
    )
    .await;
    for (charge, left) in [
        (counter.cost(1), counter.units(7)),
        (second.cost(1), 3),
        (third.cost(1), 0),
        (elsewhere.cost(1), 8),
        (never_asked.cost(1), 10),
    ] {
        is_left(case, rule, charge, left).await;
    }
    case.settle(rule, &[]).await;
}

pub(super) async fn each_charge_can_be_given_back_by_its_own_stamp<H: Harness>(case: &Case<'_, H>) {
    let rule = "each charge can be given back as of its own stamp";
    let ten = Quota::new(TENTHS, case.window());
    let counter = case.counter(rule, "stamps").await;
    let [other, elsewhere] = ["stamps", "stamps elsewhere"].map(|key| Counter::new(key, "another", ten));
    let charges = [counter.tenths(2), other.cost(3), elsewhere.cost(1)];
    let answer = case.ask(rule, &Ask::new(&charges).want(3)).await;
    let asks = charges.each_ref().map(std::slice::from_ref).map(Ask::new);
    let corrections: Vec<_> = (0..3)
        .map(|at| Correction::give_back(asks[at], 2, answer.stamp_of(at)))
        .collect();
    case.settle(rule, &corrections).await;
    for (charge, left) in [
        (counter.cost(1), counter.units(8)),
        (other.cost(1), 7),
        (elsewhere.cost(1), 9),
    ] {
        is_left(case, rule, charge, left).await;
    }
}

async fn is_left<H: Harness>(case: &Case<'_, H>, rule: &str, charge: Charge<'_>, left: u64) {
    let remaining = case.remaining(rule, charge).await;
    case.check(
        rule,
        remaining.abs_diff(left) <= case.refilled(),
        format_args!(
            "{left} of {:?}, {} should be left, not {remaining}",
            charge.key, charge.policy
        ),
    );
}
