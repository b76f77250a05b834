//! The answer to a check.

mod policy;

use std::time::Duration;

use smallvec::SmallVec;

pub use self::policy::PolicyDecision;
use crate::exemption::Exemption;
use crate::store::{Charge, ChargeState, KnownOutcome, Mode, Outcome, Retry, Stamp};

/// The answer to a check: whether the request may pass, and what is left.
///
/// The numbers are those of the leading policy. Of an allowed request, that is the policy with the fewest requests
/// left, then the longest reset; of a denied one, the violated policy with the longest wait, "never" first.
/// Unlimited and shadow policies never lead, unless the key of an unlimited one is blocked by hand.
#[derive(Debug, PartialEq, Eq)]
pub struct Decision {
    verdict: Verdict,
    source: Source,
    lead: Option<u16>,
    now: Stamp,
    policies: SmallVec<[PolicyDecision; 1]>,
    /// `None` if empty, as nearly always.
    exemptions: Option<Box<[Exemption]>>,
}

/// Which policies do not count a request.
pub(crate) type Exemptions = Vec<Exemption>;

/// Whether a request may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// It may.
    Allowed,
    /// A quota is used up: HTTP 429.
    Denied,
    /// The store gave no answer and a policy denies without one: HTTP 503.
    Unavailable,
    /// The request has no key, and a policy [refuses](crate::MissingKey::Reject) it for that. The
    /// [exemptions](Decision::exemptions) tell which.
    MissingKey,
}

/// Where a decision comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store.
    Store,
    /// The deny cache: an earlier denial of the store says that this one cannot fit yet. Nothing is known of policies that
    /// it was not about ([`PolicyDecision::is_known`]).
    DenyCache,
    /// A lease: units that were taken of the store before. What remains is an estimate.
    Lease,
    /// The failure policies, as the store gave no answer: the decision is degraded.
    Fallback,
    /// Nobody: nothing limits the request.
    Exempt,
}

impl Clone for Decision {
    /// Copies the one policy of nearly all decisions at once; the derived clone would grow a list one by one.
    #[inline]
    fn clone(&self) -> Self {
        Self {
            policies: match &*self.policies {
                [policy] => SmallVec::from_buf([policy.clone()]),
                policies => policies.iter().cloned().collect(),
            },
            exemptions: self.exemptions.clone(),
            ..*self
        }
    }
}

impl Decision {
    /// Nothing limits the request.
    pub(crate) const fn exempt() -> Self {
        Self {
            verdict: Verdict::Allowed,
            source: Source::Exempt,
            lead: None,
            now: Stamp::from_micros(0),
            policies: SmallVec::new_const(),
            exemptions: None,
        }
    }

    /// Tells which policies do not count the request.
    #[inline]
    pub(crate) fn set_exemptions(&mut self, exemptions: Exemptions) {
        if !exemptions.is_empty() {
            self.exemptions = Some(exemptions.into_boxed_slice());
        }
    }

    /// A policy refuses the request, as it has no key.
    pub(crate) fn without_key() -> Self {
        Self {
            verdict: Verdict::MissingKey,
            ..Self::exempt()
        }
    }

    /// The store gave no answer; nothing is known of any counter.
    pub(crate) fn degraded(verdict: Verdict) -> Self {
        Self {
            verdict,
            source: Source::Fallback,
            ..Self::exempt()
        }
    }

    /// What the answer to one ask says to the request with these charges.
    pub(crate) fn new(charges: &[Charge<'_>], outcome: &Outcome, source: Source) -> Self {
        let allowed = outcome.granted > 0;
        let mut this = Self {
            verdict: if allowed {
                Verdict::Allowed
            } else {
                Verdict::Denied
            },
            source,
            lead: None,
            now: outcome.now,
            policies: SmallVec::new(),
            exemptions: None,
        };
        let says = |index, charge: &Charge<'_>, state: &ChargeState| {
            let stamp = outcome.stamp_of(index);
            PolicyDecision::new(charge, state, stamp, allowed)
        };
        match (charges, &*outcome.states) {
            ([charge], [state]) if !charge.quota.is_unlimited() => {
                this.policies = SmallVec::from_buf([says(0, charge, state)]);
            }
            (charges, states) => {
                for (index, (charge, state)) in charges.iter().zip(states).enumerate() {
                    if !charge.quota.is_unlimited() || state.blocked {
                        this.policies.push(says(index, charge, state));
                    }
                }
            }
        }
        this.lead = this.find_lead();
        if this.policies.is_empty() && source == Source::Store {
            this.source = Source::Exempt;
        }
        this
    }

    /// The same for the ordinary request, which has one enforced charge.
    #[inline(always)]
    pub(crate) fn of_known(charge: &Charge<'_>, outcome: &KnownOutcome, source: Source) -> Self {
        Self {
            verdict: if outcome.granted {
                Verdict::Allowed
            } else {
                Verdict::Denied
            },
            source,
            lead: Some(0),
            now: outcome.now,
            policies: SmallVec::from_buf([PolicyDecision::of_known(charge, outcome)]),
            exemptions: None,
        }
    }

    fn find_lead(&self) -> Option<u16> {
        let mut lead: Option<(u16, &PolicyDecision)> = None;
        for (index, policy) in (0..).zip(&self.policies) {
            let eligible = policy.mode() == Mode::Enforce && (self.is_allowed() || policy.is_violated());
            if eligible && lead.is_none_or(|(_, lead)| policy.leads_before(lead, self.is_allowed())) {
                lead = Some((index, policy));
            }
        }
        lead.map(|(index, _)| index)
    }

    /// Whether the request may pass, and if not, why.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Whether the request may pass.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.verdict, Verdict::Allowed)
    }

    /// Whether a quota stops the request.
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        matches!(self.verdict, Verdict::Denied)
    }

    /// Whether the store did not answer, so that failure policies did.
    #[must_use]
    pub const fn is_degraded(&self) -> bool {
        matches!(self.source, Source::Fallback)
    }

    /// Where the decision comes from.
    #[must_use]
    pub const fn source(&self) -> Source {
        self.source
    }

    /// The leading policy, whose numbers the other methods give. `None` if nothing limits the request, or
    /// nothing is known of its counters.
    #[must_use]
    pub fn leading(&self) -> Option<&PolicyDecision> {
        self.policies.get(usize::from(self.lead?))
    }

    /// What every policy says that limits the request, in the order in which they were added.
    #[must_use]
    pub fn policies(&self) -> &[PolicyDecision] {
        &self.policies
    }

    /// Which policies do not count the request, and why; or the reason why none of a layer's does.
    #[must_use]
    pub fn exemptions(&self) -> &[Exemption] {
        self.exemptions.as_deref().unwrap_or_default()
    }

    /// The policies that stop the request.
    pub fn violated(&self) -> impl Iterator<Item = &PolicyDecision> {
        self.policies
            .iter()
            .filter(|policy| policy.is_violated() && policy.mode() == Mode::Enforce)
    }

    /// The leading policy's limit.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.leading().map(PolicyDecision::limit)
    }

    /// Units that the leading policy has left: so many requests of cost 1, alone, would pass at once. From a
    /// [lease](Source::Lease), an estimate.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.leading().map(PolicyDecision::remaining)
    }

    /// When a denied request may pass: waiting exactly that long, alone, is enough. `None` if it passed, or
    /// never will because its cost is above a limit ([`is_never`](Self::is_never)). From the [deny cache](Source::DenyCache), at
    /// most a round trip more than that; less, for a request that costs more than the one that was denied.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.retry() {
            Retry::After(wait) if !self.is_allowed() => Some(wait),
            _ => None,
        }
    }

    /// Whether the request is denied however long it waits.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.is_denied() && self.retry() == Retry::Never
    }

    fn retry(&self) -> Retry {
        self.leading().map_or(Retry::Now, PolicyDecision::retry)
    }

    /// Of an allowed request, the time until the leading policy has forgotten all that was charged; of a denied
    /// one, [`retry_after`](Self::retry_after).
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        let leading = self.leading()?;
        match self.verdict {
            Verdict::Allowed => Some(leading.reset_after()),
            _ => self.retry_after(),
        }
    }

    /// The store's time of the decision.
    #[must_use]
    pub const fn now(&self) -> Stamp {
        self.now
    }

    /// The store's time as of which the request was charged, by the leading policy; others can have
    /// [their own](PolicyDecision::stamp). The beginning of time if nothing is known of any.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        let known = self.leading().or_else(|| self.policies.first());
        known.map(PolicyDecision::stamp).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Penalty, PolicyName, Quota};

    #[test]
    fn a_block_of_what_is_unlimited_leads_and_tells_when_it_ends() {
        let (key, policy) = (Key::from("k"), PolicyName::new("p").expect("a name"));
        let (minute, penalty) = (Duration::from_secs(60), Penalty::manual());
        let unlimited = Charge::new(&key, &policy, Quota::unlimited()).penalty(&penalty);
        let limited = Charge::new(&key, &policy, Quota::per_minute(1));
        let free = ChargeState::new(0, 1, Retry::Now, Duration::ZERO);
        let blocked = ChargeState::new(0, 0, Retry::After(minute), Duration::ZERO).blocked(true);
        let outcome = Outcome::new(0, Stamp::default(), [free, blocked]);
        let decision = Decision::new(&[limited, unlimited], &outcome, Source::Store);
        assert_eq!(decision.retry_after(), Some(minute));
        assert_eq!(decision.policies().len(), 2);
        let outcome = Outcome::new(1, Stamp::default(), [free, free]);
        let decision = Decision::new(&[limited, unlimited], &outcome, Source::Store);
        assert_eq!(decision.policies().len(), 1);
    }
}
