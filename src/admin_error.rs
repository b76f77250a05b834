//! Why something could not be done to a key by hand.

use std::error::Error;
use std::fmt;

use crate::store::StoreError;

/// Why a key could not be reset, blocked or unblocked.
#[derive(Debug)]
pub struct AdminError {
    kind: AdminErrorKind,
    source: Option<StoreError>,
}

/// The kinds of [`AdminError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AdminErrorKind {
    /// The store gave no answer: whether anything was done is not known.
    Store,
    /// No policy has a penalty, so none can block.
    NoPenalty,
    /// A policy's quota is a function of the request, so which counter is meant is not known.
    UnknownQuota,
}

impl AdminError {
    pub(crate) const fn new(kind: AdminErrorKind) -> Self {
        Self { kind, source: None }
    }

    /// What kind of failure it is.
    #[must_use]
    pub const fn kind(&self) -> AdminErrorKind {
        self.kind
    }
}

impl From<StoreError> for AdminError {
    fn from(error: StoreError) -> Self {
        Self {
            kind: AdminErrorKind::Store,
            source: Some(error),
        }
    }
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            AdminErrorKind::Store => "the store gave no answer, so whether it was done is not known",
            AdminErrorKind::NoPenalty => {
                "no policy has a penalty, so none can block: give one `.penalty(Penalty::manual())`"
            }
            AdminErrorKind::UnknownQuota => {
                "a policy's quota is a function of the request: say by which quota, with `Limiter::by_quota`"
            }
        })
    }
}

impl Error for AdminError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|error| error as &(dyn Error + 'static))
    }
}
