//! Why a store did not answer.

use std::error::Error;
use std::fmt;

/// Why a store gave no answer. The policy's [`FailurePolicy`](crate::FailurePolicy) answers instead; no request
/// sees this error.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<Box<dyn Error + Send + Sync>>,
    undone: bool,
    #[cfg(feature = "redis")]
    late: Option<Late>,
}

/// Says what becomes of a grant that comes after its caller was told that there is no answer: given back, unless
/// [kept](Self::keep).
#[cfg(feature = "redis")]
#[derive(Debug)]
pub(crate) struct Late(tokio::sync::oneshot::Sender<bool>);

#[cfg(feature = "redis")]
impl Late {
    /// And what tells whether the grant is kept; an error, if nobody said so.
    pub(super) fn new() -> (Self, tokio::sync::oneshot::Receiver<bool>) {
        let (keep, kept) = tokio::sync::oneshot::channel();
        (Self(keep), kept)
    }

    fn keep(self) {
        // Nobody may be there any more to give anything back.
        let _ = self.0.send(true);
    }
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
        Self {
            kind,
            source: None,
            undone: false,
            #[cfg(feature = "redis")]
            late: None,
        }
    }

    /// A failure and what caused it.
    #[must_use]
    pub fn with_source(kind: StoreErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            kind,
            source: Some(source.into()),
            undone: false,
            #[cfg(feature = "redis")]
            late: None,
        }
    }

    /// Nothing of what was asked was done or will be, which makes it safe to ask again.
    #[must_use]
    pub const fn undone(mut self) -> Self {
        self.undone = true;
        self
    }

    /// Whether it is certain that nothing of what was asked was done or will be.
    #[must_use]
    pub const fn is_undone(&self) -> bool {
        self.undone
    }

    /// What several results say together: the first error, which is [undone](Self::is_undone) if all are.
    pub(super) fn of_all(results: impl IntoIterator<Item = Result<(), Self>>) -> Result<(), Self> {
        let (mut first, mut undone) = (None, true);
        for result in results {
            undone &= matches!(&result, Err(error) if error.undone);
            if first.is_none() {
                first = result.err();
            }
        }
        match first {
            None => Ok(()),
            Some(error) => Err(Self { undone, ..error }),
        }
    }

    /// What comes after this error is decided by whoever has it.
    #[cfg(feature = "redis")]
    pub(super) fn late(mut self, late: Option<Late>) -> Self {
        self.late = late;
        self
    }

    /// The request passed without an answer: what comes late stays charged.
    pub(crate) fn keep_late_grant(self) {
        #[cfg(feature = "redis")]
        if let Some(late) = self.late {
            late.keep();
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
