//! Requests that have no key.

use std::sync::{Arc, OnceLock};

use http::StatusCode;

use super::PolicyName;
use crate::key::Missing;

/// What happens to a request that the key extractor finds no key in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// All such requests share one counter of the policy. The first of each kind is logged with how to mend it.
    #[default]
    Shared,
    /// The policy does not count the request.
    Skip,
    /// The request is refused with this status, of a client's or a server's error (4xx or 5xx).
    Reject(StatusCode),
}

/// Warns once about each way in which requests lack a key, however many copies of the policy there are.
#[derive(Clone, Debug, Default)]
pub(super) struct MissingWarning {
    /// The hints that were given. They are texts of the program; more than these few are not told apart.
    given: Arc<[OnceLock<&'static str>; 4]>,
}

impl MissingWarning {
    pub(super) fn warn(&self, policy: &PolicyName, missing: &Missing, then: MissingKey) {
        for given in self.given.iter() {
            // Whoever sets a place warns; the others find it taken.
            let set = given.set(missing.hint()).is_ok();
            if set {
                let consequence = match then {
                    MissingKey::Shared => "all requests without a key share one counter",
                    MissingKey::Skip => "requests without a key are not limited by this policy",
                    MissingKey::Reject(_) => "requests without a key are refused",
                };
                tracing::warn!(%policy, hint = missing.hint(), "a request has no key: {consequence}");
            }
            if set || given.get() == Some(&missing.hint()) {
                return;
            }
        }
    }
}
