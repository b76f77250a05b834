//! Requests that wait for the store.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::request::Parts;

use super::assess::Assessment;
use super::config::Config;
use crate::deciding::Deciding;
use crate::decision::Exemptions;
use crate::settler::Age;

/// A decision that waits for the store.
pub(crate) struct Waiting {
    pub(super) deciding: Box<Deciding>,
    pub(super) exemptions: Exemptions,
    pub(super) age: Age,
    pub(super) started: Option<Instant>,
}

impl Waiting {
    pub(crate) fn poll(
        &mut self,
        config: &Config,
        request: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<Assessment> {
        let mut decision = ready!(Pin::new(&mut self.deciding).poll(cx));
        let exemptions = mem::take(&mut self.exemptions);
        let charges = self.deciding.charges();
        Poll::Ready(config.conclude(
            request,
            &charges,
            &mut decision,
            exemptions,
            self.age,
            self.started,
        ))
    }
}
