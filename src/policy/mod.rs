//! What limits a request: a named quota with its key, cost and failure policy.

mod cost;
mod missing;
mod name;
mod quotas;

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;

pub use self::cost::{ContentLengthCost, Cost};
pub use self::missing::MissingKey;
use self::missing::MissingWarning;
pub use self::name::{PolicyName, PolicyNameError};
pub use self::quotas::Quotas;
use crate::failure::FailurePolicy;
use crate::key::{Key, KeyBuilder, KeyExtractor, KeyHasher};
use crate::quota::Quota;
use crate::store::Charge;

/// A named quota with its key extractor.
#[derive(Clone)]
pub(crate) struct Policy {
    pub(crate) name: PolicyName,
    pub(crate) quotas: Quotas,
    pub(crate) key: Arc<dyn KeyExtractor>,
    pub(crate) cost: Cost,
    pub(crate) failure: FailurePolicy,
    pub(crate) missing: MissingKey,
    warning: MissingWarning,
}

/// What a policy takes of one request.
pub(crate) struct Taken<'a> {
    policy: &'a Policy,
    key: Key,
    quota: Quota,
    cost: u64,
}

impl Policy {
    pub(crate) fn new(quotas: Quotas, key: impl KeyExtractor) -> Self {
        Self {
            name: quotas.name.clone(),
            quotas,
            key: Arc::new(key),
            cost: Cost::default(),
            failure: FailurePolicy::default(),
            missing: MissingKey::default(),
            warning: MissingWarning::default(),
        }
    }

    /// What the policy takes of a request; `None` if it does not count it.
    ///
    /// # Errors
    ///
    /// The status to refuse the request with, as it has no key.
    pub(crate) fn take(&self, request: &Parts, hasher: &KeyHasher) -> Result<Option<Taken<'_>>, StatusCode> {
        let quota = self.quotas.of(request);
        if quota.is_unlimited() {
            return Ok(None);
        }
        let mut key = KeyBuilder::new(hasher);
        let key = match self.key.extract(request, &mut key) {
            Ok(()) => key.finish(),
            Err(missing) => {
                self.warning.warn(&self.name, &missing, self.missing);
                match self.missing {
                    MissingKey::Shared => KeyBuilder::new(hasher).finish(),
                    MissingKey::Skip => return Ok(None),
                    MissingKey::Reject(status) => {
                        tracing::debug!(policy = %self.name, %status, hint = missing.hint(), "refused: no key");
                        return Err(status);
                    }
                }
            }
        };
        Ok(Some(Taken {
            policy: self,
            key,
            quota,
            cost: self.cost.of(request),
        }))
    }
}

impl Taken<'_> {
    pub(crate) fn charge(&self) -> Charge<'_> {
        Charge::new(&self.key, &self.policy.name, self.quota).cost(self.cost)
    }

    pub(crate) const fn failure(&self) -> FailurePolicy {
        self.policy.failure
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("quota", &self.quotas)
            .field("cost", &self.cost)
            .field("failure_policy", &self.failure)
            .field("missing_key", &self.missing)
            .finish_non_exhaustive()
    }
}
