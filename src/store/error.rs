//! Why a store did not answer.

use std::error::Error;
use std::fmt;

/// Why a store gave no answer. The policy's [`FailurePolicy`](crate::FailurePolicy) answers instead; no request
/// sees this error.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What kind of failure kept a store from answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// It cannot be reached, or refuses to serve.
    Unavailable,
    /// It did not answer within the deadline.
    Timeout,
    /// More is asked of it than it can answer.
    Overloaded,
    /// It answered something that is no answer.
    Protocol,
}

impl StoreError {
    /// A failure without a cause that could be named.
    #[must_use]
    pub const fn new(kind: StoreErrorKind) -> Self {
        Self { kind, source: None }
    }

    /// A failure and what caused it.
    #[must_use]
    pub fn with_source(kind: StoreErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            kind,
            source: Some(source.into()),
        }
    }

    /// What kind of failure it is.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unavailable => "the store cannot be reached or refuses to serve",
            StoreErrorKind::Timeout => "the store did not answer within the deadline",
            StoreErrorKind::Overloaded => "more is asked of the store than it can answer",
            StoreErrorKind::Protocol => "the store answered something that is no answer",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}
