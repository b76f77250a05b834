//! C12: the scripts and the reference model agree step for step, with the clock moved by hand.

use proptest::prelude::Strategy;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use tokio::runtime::Handle;
use tollgate::testing::Harness;

use crate::conformance::ByHand;
use crate::model::Rule;
use crate::server::{Server, Version};
use crate::steps::{Scenario, Time, any_offences, any_rule, any_scenario};

impl Time for ByHand {
    fn step(&self, by: i128) {
        self.clock.step(by);
        self.tell();
    }

    /// What nothing counts, no server is asked about.
    fn is_told_without_counters(&self) -> bool {
        false
    }
}

async fn compare(version: Version, scenarios: impl Strategy<Value = Scenario>, cases: u32) {
    let server = Server::start(version).await;
    let harness = ByHand::new(&server).await;
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    tokio::task::block_in_place(|| {
        TestRunner::new(config)
            .run(&scenarios, |scenario| {
                Handle::current().block_on(async {
                    let store = harness.store().await;
                    scenario.compare(&store, &harness).await;
                });
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{error}"));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c12_scripts_agree_with_the_model() {
    for version in Version::all() {
        compare(version, any_scenario(any_rule, false), 150).await;
    }
}

/// Logs and slots keep for a while what has left the window, and count it again when the clock steps back into it: that
/// is the strict side, and not what the model does. How long they may hold a client then, the conformance suite tries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_c12_scripts_agree_with_the_model_when_the_clock_steps_back() {
    let rule = || {
        select(vec![
            Rule::Counter,
            Rule::Fixed(0),
            Rule::Fixed(999),
            Rule::FixedPerKey,
            Rule::Bucket,
        ])
    };
    compare(Version::V7, any_scenario(rule, true), 150).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c12_penalties_agree_with_the_model() {
    for version in Version::all() {
        compare(version, any_offences(vec![Rule::Log, Rule::Bucket], false), 150).await;
    }
    compare(
        Version::V7,
        any_offences(vec![Rule::Fixed(0), Rule::Bucket], true),
        150,
    )
    .await;
}
