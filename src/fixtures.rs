//! What unit tests share.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::decision::{Decision, Source};
use crate::key::Key;
use crate::policy::PolicyName;
use crate::quota::Quota;
use crate::store::{Charge, ChargeState, Mode, Outcome, Retry, Stamp};

/// The output of a future that needs no waiting.
pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits"),
    }
}

/// What a store says of one policy.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    name: String,
    quota: Quota,
    cost: u64,
    mode: Mode,
    remaining: u64,
    retry: Retry,
    reset_after: Duration,
}

impl Said {
    /// Policy `default`, one of 100 per minute: so many left, reset in 30 s, and fitting now.
    pub(crate) fn new(remaining: u64) -> Self {
        Self {
            name: "default".to_owned(),
            quota: Quota::per_minute(100),
            cost: 1,
            mode: Mode::Enforce,
            remaining,
            retry: Retry::Now,
            reset_after: Duration::from_secs(30),
        }
    }

    pub(crate) fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    pub(crate) fn quota(mut self, quota: Quota) -> Self {
        self.quota = quota;
        self
    }

    pub(crate) fn shadow(mut self) -> Self {
        self.mode = Mode::Shadow;
        self
    }

    pub(crate) fn retry(mut self, after: Duration) -> Self {
        self.retry = Retry::After(after);
        self
    }

    pub(crate) fn never(mut self) -> Self {
        self.retry = Retry::Never;
        self
    }

    pub(crate) fn reset(mut self, after: Duration) -> Self {
        self.reset_after = after;
        self
    }
}

/// A decision on what a store said at 1 800 000 000 s after the Unix epoch.
pub(crate) fn decision(allowed: bool, said: &[Said]) -> Decision {
    decision_at(1_800_000_000_000_000, allowed, said)
}

pub(crate) fn decision_at(micros: u64, allowed: bool, said: &[Said]) -> Decision {
    let key = Key::from("somebody");
    let names: Vec<PolicyName> = said
        .iter()
        .map(|said| PolicyName::expect(said.name.as_str()))
        .collect();
    let charges: Vec<Charge<'_>> = said
        .iter()
        .zip(&names)
        .map(|(said, name)| {
            Charge::new(&key, name, said.quota)
                .cost(said.cost)
                .mode(said.mode)
        })
        .collect();
    let granted = u32::from(allowed);
    let states = said
        .iter()
        .map(|said| ChargeState::new(granted, said.remaining, said.retry, said.reset_after));
    let outcome = Outcome::new(granted, Stamp::from_micros(micros), states);
    Decision::new(&charges, &outcome, Source::Store)
}
