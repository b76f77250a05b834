//! Requests that have no key.

use std::fmt;
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

impl MissingKey {
    /// Panics if a refusal would look like success.
    #[track_caller]
    pub(crate) fn check(self) {
        if let Err(error) = self.try_check() {
            panic!("{error}");
        }
    }

    /// # Errors
    ///
    /// If a refusal would look like success.
    pub(crate) fn try_check(self) -> Result<(), NotAnError> {
        match self {
            Self::Reject(status) if !(status.is_client_error() || status.is_server_error()) => {
                Err(NotAnError(status))
            }
            _ => Ok(()),
        }
    }
}

/// The status of a refusal that would look like success.
pub(crate) struct NotAnError(StatusCode);

impl fmt::Display for NotAnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a request without a key cannot be refused with {}: use a status of 4xx or 5xx",
            self.0
        )
    }
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
