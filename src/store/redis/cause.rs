//! Why a call had no answer.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::class::Class;
use crate::store::StoreError;

/// The cause of a failure that several callers share.
#[derive(Clone, Debug)]
pub(super) struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    pub(super) fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }

    /// The class of the server's error that an error tells of.
    pub(super) fn class_in(error: &StoreError) -> Option<Class> {
        let mut error: &(dyn Error + 'static) = error;
        loop {
            if let Some(error) = error.downcast_ref::<redis::RedisError>() {
                return Some(Class::of(error));
            }
            error = match error.downcast_ref::<Self>() {
                Some(Self(cause)) => cause.as_ref(),
                None => error.source()?,
            };
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// The server came to it after its deadline, and did nothing.
#[derive(Debug)]
pub(super) struct TooLate;

impl fmt::Display for TooLate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server came to it after its deadline, and did nothing")
    }
}

impl Error for TooLate {}

/// A reply that no script of this crate gives.
#[derive(Debug)]
pub(super) struct Unreadable;

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reply is none that a script of this crate gives")
    }
}

impl Error for Unreadable {}
