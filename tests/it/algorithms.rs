//! The embedded store, and with it the algorithms, against the reference model and the contracts.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use proptest::test_runner::Config;
use tollgate::{ManualClock, MemoryStore};

use crate::model::Rule;
use crate::steps::{Scenario, any_rule, any_scenario};

/// Sequences per property, and a multiple of it if `PROPTEST_CASES` says so.
fn cases(cases: u32) -> Config {
    let asked: Option<u32> = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    Config {
        cases: asked.unwrap_or(cases),
        failure_persistence: None,
        ..Config::default()
    }
}

/// The answer of a future that need not wait.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("an embedded store never waits"),
    }
}

fn compare(scenario: &Scenario) {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clock()).build();
    at_once(scenario.compare(&store, &clock));
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
