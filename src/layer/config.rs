//! The settings of a layer.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use crate::engine::Engine;
use crate::exemption::ExemptReason;
use crate::headers::Headers;
use crate::hook::Hook;
use crate::key::KeyHasher;
use crate::lookup::{LookingUp, Lookup};
use crate::policy::{PolicyName, PolicySet, RealCost};
use crate::predicate::Predicate;
use crate::preflight::is_preflight;

/// What is the same for all clones.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(super) engine: Arc<Engine>,
    pub(super) policies: PolicySet,
    pub(super) hasher: KeyHasher,
    pub(crate) headers: Headers,
    pub(super) skip: Skip,
    pub(super) exempt_preflight: bool,
    pub(super) decision_extension: bool,
    pub(super) charge_extension: bool,
    /// Whether responses can tell what requests cost.
    pub(super) settles: bool,
    pub(super) lookups: Arc<[Lookup]>,
    pub(super) hook: Hook,
}

/// Requests that no policy counts.
#[derive(Clone, Default)]
pub(super) struct Skip(pub(super) Vec<Arc<dyn Predicate>>);

impl Config {
    #[inline]
    pub(super) fn exempts(&self, request: &Parts) -> Option<ExemptReason> {
        if self.exempt_preflight && is_preflight(request) {
            Some(ExemptReason::Preflight)
        } else if self.skip.0.iter().any(|skip| skip.holds(request)) {
            Some(ExemptReason::Skipped)
        } else {
            None
        }
    }

    /// Whether something has to be looked up before a request can be decided on, unless it is
    /// [exempt](Self::assess_before_lookups) as it is.
    #[inline]
    pub(crate) fn looks_up(&self) -> bool {
        !self.lookups.is_empty()
    }

    /// Starts what has to be looked up for a request.
    pub(crate) fn look_up(&self) -> LookingUp {
        LookingUp::new(Arc::clone(&self.lookups), self.engine.deadline)
    }

    /// Whether what is charged can be settled by anybody.
    pub(super) const fn hands_out_charges(&self) -> bool {
        self.settles || self.charge_extension
    }

    /// How a response tells what its request really cost: as the request's own rule says, whose copy of a policy
    /// another rule's need not equal.
    pub(super) fn real_cost(&self, request: &Parts, policy: &PolicyName) -> Option<RealCost> {
        if !self.settles {
            return None;
        }
        let mut met = self.policies.of(request);
        met.find(|met| met.name == *policy)?.real_cost.clone()
    }
}

impl fmt::Debug for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Skip({})", self.0.len())
    }
}
