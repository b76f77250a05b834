//! C12: the embedded store, and with it the algorithms, against the reference model.

use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::embedded::{Embedded, at_once};
use crate::model::Rule;
use crate::steps::{Scenario, any_rule, any_scenario};

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
    fn c12_logs_agree(scenario in any_scenario(|| Just(Rule::Log), true)) {
        compare(&scenario);
    }
}
