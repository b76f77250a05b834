//! C12: the embedded store, and with it the algorithms, against the reference model.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::Config;

use crate::embedded::{Embedded, at_once};
use crate::model::{Rule, Terms};
use crate::steps::{Move, Part, Scenario, Step, any_offences, any_rule, any_scenario};

/// Sequences per property, unless `PROPTEST_CASES` says how many.
pub(crate) fn cases(cases: u32) -> Config {
    let asked: Option<u32> = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    Config {
        cases: asked.unwrap_or(cases),
        failure_persistence: None,
        ..Config::default()
    }
}

fn compare(scenario: &Scenario) {
    let embedded = Embedded::new();
    at_once(scenario.compare(&embedded.store, &embedded.clock));
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn c12_store_and_model_agree(scenario in any_scenario(any_rule, false)) {
        compare(&scenario);
    }

    #[test]
    fn c12_store_and_model_agree_when_the_clock_steps_back(scenario in any_scenario(any_rule, true)) {
        compare(&scenario);
    }

    #[test]
    fn c12_buckets_agree(scenario in any_scenario(|| Just(Rule::Bucket), false)) {
        compare(&scenario);
    }

    #[test]
    fn c12_few_slots_agree(scenario in any_scenario(|| select(vec![Rule::Slots(2), Rule::Slots(3)]), true)) {
        compare(&scenario);
    }

    #[test]
    fn c12_logs_agree(scenario in any_scenario(|| Just(Rule::Log), true)) {
        compare(&scenario);
    }

    #[test]
    fn c12_penalties_agree(scenario in any_offences(vec![Rule::Log, Rule::Bucket], false)) {
        compare(&scenario);
    }

    #[test]
    fn c10_c12_penalties_agree_when_the_clock_steps_back(scenario in any_offences(vec![Rule::Log, Rule::Bucket], true)) {
        compare(&scenario);
    }
}

/// Stamps ahead that need more slots than are kept: the newest two become one.
#[test]
fn c12_slots_agree_where_the_newest_become_one() {
    let window = 1_000_000;
    let take = |hold: u64| Step::Acquire(vec![Part::units(3)], 1, Duration::from_micros(hold));
    let half = || Step::Move(Move::By(window / 2));
    for back in 0..5 {
        let mut steps = vec![
            take(0),
            half(),
            take(0),
            half(),
            take(0),
            take(500_000),
            take(1_000_000),
        ];
        steps.push(Step::GiveBack(back, 1));
        steps.extend((0..16).flat_map(|_| {
            [
                Step::Move(Move::By(window / 4 - 1)),
                Step::Peek(vec![Part::units(90)], 1),
                Step::Move(Move::By(1)),
                Step::Peek(vec![Part::units(90)], 1),
            ]
        }));
        compare(&Scenario {
            counters: vec![vec![Terms::new(Rule::Slots(2), 100, window)]],
            penalties: Vec::new(),
            steps,
        });
    }
}
