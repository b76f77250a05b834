//! Requests that wait for the store.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::request::Parts;

use super::assess::Assessment;
use super::config::Config;
use crate::deciding::{Asked, Deciding};
use crate::decision::Exemptions;
use crate::key::Key;
use crate::policy::Taken;
use crate::settler::Age;

/// A decision that waits for the store.
pub(crate) struct Waiting {
    pub(super) awaited: Awaited,
    pub(super) age: Age,
    pub(super) started: Option<Instant>,
}

/// What it waits for.
#[allow(clippy::large_enum_variant, reason = "nearly all are the large one")]
pub(super) enum Awaited {
    /// What the layer's only policy asked: nearly all requests, which copy nothing but their key.
    One(Asked, Taken, Key),
    Several(Box<Deciding>, Exemptions),
}

impl Waiting {
    pub(crate) fn poll(
        &mut self,
        config: &Config,
        request: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<Assessment> {
        let (age, started) = (self.age, self.started);
        Poll::Ready(match &mut self.awaited {
            Awaited::One(asked, taken, key) => {
                let policy = config.policies.only().expect("settings do not change");
                let charge = policy.charge_taken(*taken, key);
                let mut decision = ready!(asked.poll(&config.engine, &charge, cx));
                config.conclude(request, &[charge], &mut decision, Exemptions::new(), age, started)
            }
            Awaited::Several(deciding, exemptions) => {
                let mut decision = ready!(Pin::new(&mut *deciding).poll(cx));
                let exemptions = mem::take(exemptions);
                let charges = deciding.charges();
                config.conclude(request, &charges, &mut decision, exemptions, age, started)
            }
        })
    }
}
