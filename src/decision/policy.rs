//! What one policy says to a request.

use std::cmp::Reverse;
use std::time::Duration;

use crate::clock::micros_up;
use crate::policy::PolicyName;
use crate::quota::Quota;
use crate::store::{Charge, ChargeState, KnownOutcome, Mode, Retry, Stamp, Wait};

/// What one policy says to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDecision {
    name: PolicyName,
    quota: Quota,
    cost: u64,
    mode: Mode,
    remaining: u64,
    retry: Wait,
    /// In microseconds.
    reset_after: u64,
    stamp: Stamp,
    charged: bool,
    violated: bool,
    blocked: bool,
    known: bool,
}

impl PolicyDecision {
    #[inline]
    pub(super) fn new(charge: &Charge<'_>, state: &ChargeState, stamp: Stamp, allowed: bool) -> Self {
        Self {
            name: charge.policy.copied(),
            quota: charge.quota,
            cost: charge.cost,
            mode: charge.mode,
            remaining: state.remaining,
            retry: state.retry.into(),
            reset_after: micros_up(state.reset_after),
            stamp,
            charged: state.charged > 0,
            violated: match charge.mode {
                Mode::Enforce => !allowed && state.retry != Retry::Now,
                Mode::Shadow => state.charged == 0 && state.retry != Retry::Now,
            },
            blocked: state.blocked,
            known: state.known,
        }
    }

    /// The same for the ordinary request.
    #[inline(always)]
    pub(super) fn of_known(charge: &Charge<'_>, outcome: &KnownOutcome) -> Self {
        Self {
            name: charge.policy.copied(),
            quota: charge.quota,
            cost: charge.cost,
            mode: Mode::Enforce,
            remaining: outcome.remaining,
            retry: outcome.retry,
            reset_after: outcome.reset_after,
            stamp: outcome.stamp,
            charged: outcome.granted,
            violated: !outcome.granted && outcome.retry != Wait::NOW,
            blocked: outcome.blocked,
            known: true,
        }
    }

    /// The policy's name.
    #[must_use]
    pub const fn name(&self) -> &PolicyName {
        &self.name
    }

    /// The quota that counted the request.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Units that the request takes.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Whether the policy can stop the request.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The quota's limit; a bucket's burst.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.quota.limit().unwrap_or(u64::MAX)
    }

    /// Whether anything is known of the policy's counter. If not, the request was denied for another policy's sake without
    /// asking the store, and the numbers here are 0.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.known
    }

    /// Units left.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// When the same cost fits again, in whole microseconds.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        self.retry.retry()
    }

    /// The time until the policy has forgotten all that was charged, in whole microseconds.
    #[must_use]
    pub const fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_after)
    }

    /// Whether the request was charged, by [whoever](super::Decision::source) answered.
    #[must_use]
    pub const fn is_charged(&self) -> bool {
        self.charged
    }

    /// The store's time as of which the request was charged.
    #[must_use]
    pub const fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Whether the request did not fit. In shadow mode it passes all the same.
    #[must_use]
    pub const fn is_violated(&self) -> bool {
        self.violated
    }

    /// Whether a [penalty](crate::Penalty) blocks the key.
    #[must_use]
    pub const fn is_blocked(&self) -> bool {
        self.blocked
    }

    fn requests_left(&self) -> u64 {
        self.remaining / self.cost.max(1)
    }

    pub(super) fn leads_before(&self, other: &Self, allowed: bool) -> bool {
        if allowed {
            (self.requests_left(), Reverse(self.reset_after))
                < (other.requests_left(), Reverse(other.reset_after))
        } else {
            self.retry > other.retry
        }
    }
}
