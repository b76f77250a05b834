//! Telling others what was decided.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::request::Parts;
use smallvec::SmallVec;

use crate::decision::Decision;
use crate::key::{self, Key};
use crate::policy::PolicyName;
use crate::rejection::RejectionKind;
use crate::store::Charge;

/// Learns of every decision of a layer or limiter: for metrics and audits. Closures `|event: &DecisionEvent<'_>| ..` do.
///
/// It runs before the request goes on, so it should be quick.
pub trait OnDecision: Send + Sync + 'static {
    /// Called once for each request or check, exempt ones too.
    fn on_decision(&self, event: &DecisionEvent<'_>);
}

impl<F> OnDecision for F
where
    F: Fn(&DecisionEvent<'_>) + Send + Sync + 'static,
{
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        self(event);
    }
}

/// A decision, and what it was about. Keys are told as fingerprints; see
/// [`reveal_keys`](crate::RateLimitLayer::reveal_keys).
pub struct DecisionEvent<'a> {
    pub(crate) decision: &'a Decision,
    pub(crate) rejection: Option<RejectionKind>,
    pub(crate) counted: &'a [Counted<'a>],
    pub(crate) request: Option<&'a Parts>,
    pub(crate) elapsed: Duration,
    pub(crate) reveals_keys: bool,
}

impl<'a> DecisionEvent<'a> {
    /// What was decided. If the request is refused for [want of a key](RejectionKind::MissingKey), its
    /// [exemptions](Decision::exemptions) name the policy that found none.
    #[must_use]
    pub const fn decision(&self) -> &'a Decision {
        self.decision
    }

    /// Why the request is refused; `None` if it passes.
    #[must_use]
    pub const fn rejection(&self) -> Option<RejectionKind> {
        self.rejection
    }

    /// What the request is counted by: each policy that counts the request, with its key.
    #[must_use]
    pub const fn counted(&self) -> &'a [Counted<'a>] {
        self.counted
    }

    /// The key by which a policy counts the request, if keys are [revealed](crate::RateLimitLayer::reveal_keys). It is
    /// what the store sees: addresses and credentials are hashed in it, unless their extractor is
    /// [readable](crate::KeyExtractor::readable).
    #[must_use]
    pub fn key(&self, policy: &str) -> Option<&'a Key> {
        let found = self
            .counted
            .iter()
            .find(|counted| counted.policy.as_str() == policy);
        found.filter(|_| self.reveals_keys).map(|counted| counted.key)
    }

    /// The request's method; `None` without HTTP.
    #[must_use]
    pub fn method(&self) -> Option<&'a Method> {
        self.request.map(|request| &request.method)
    }

    /// The pattern of the request's route, if it is known: never its path.
    #[must_use]
    pub fn route(&self) -> Option<&'a str> {
        key::route_of(self.request?)
    }

    /// How long the decision took.
    #[must_use]
    pub const fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

impl fmt::Debug for DecisionEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionEvent")
            .field("decision", &self.decision)
            .field("rejection", &self.rejection)
            .field("counted", &self.counted)
            .field("elapsed", &self.elapsed)
            .finish_non_exhaustive()
    }
}

/// A policy that counts a request.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    pub(crate) policy: &'a PolicyName,
    pub(crate) key: &'a Key,
}

impl<'a> Counted<'a> {
    /// The policy's name.
    #[must_use]
    pub const fn policy(&self) -> &'a PolicyName {
        self.policy
    }

    /// What tells the key apart from others, without telling it ([`Key::fingerprint`]).
    #[must_use]
    pub fn fingerprint(&self) -> impl fmt::Display + fmt::Debug + use<> {
        self.key.fingerprint()
    }
}

/// Who is told, and how much.
#[derive(Clone, Default)]
pub(crate) struct Hook {
    pub(crate) called: Option<Arc<dyn OnDecision>>,
    pub(crate) reveals_keys: bool,
}

impl Hook {
    pub(crate) fn tell(
        &self,
        decision: &Decision,
        rejection: Option<RejectionKind>,
        charges: &[Charge<'_>],
        request: Option<&Parts>,
        elapsed: Duration,
    ) {
        let Some(hook) = &self.called else { return };
        let counted: SmallVec<[Counted<'_>; 4]> = charges
            .iter()
            .map(|charge| Counted {
                policy: charge.policy,
                key: charge.key,
            })
            .collect();
        hook.on_decision(&DecisionEvent {
            decision,
            rejection,
            counted: &counted,
            request,
            elapsed,
            reveals_keys: self.reveals_keys,
        });
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook")
            .field("is_set", &self.called.is_some())
            .field("reveals_keys", &self.reveals_keys)
            .finish()
    }
}
