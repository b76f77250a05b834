//! Requests that have no key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;

use super::PolicyName;
use crate::key::Missing;

/// What happens to a request that the key extractor finds no key in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// All such requests share one counter of the policy. The first is logged with how to mend it.
    #[default]
    Shared,
    /// The policy does not count the request.
    Skip,
    /// The request is refused with this status.
    Reject(StatusCode),
}

/// Warns once about requests without a key, however many copies of the policy there are.
#[derive(Clone, Debug, Default)]
pub(super) struct MissingWarning {
    warned: Arc<AtomicBool>,
}

impl MissingWarning {
    pub(super) fn warn(&self, policy: &PolicyName, missing: &Missing, then: MissingKey) {
        if self.warned.load(Ordering::Relaxed) || self.warned.swap(true, Ordering::Relaxed) {
            return;
        }
        let consequence = match then {
            MissingKey::Shared => "all requests without a key share one counter",
            MissingKey::Skip => "requests without a key are not limited by this policy",
            MissingKey::Reject(_) => "requests without a key are refused",
        };
        tracing::warn!(%policy, hint = missing.hint(), "a request has no key: {consequence}");
    }
}
