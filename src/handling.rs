//! What a policy has to say of answers that are not the store's.

use crate::failure::FailurePolicy;
use crate::lease::Lease;

/// How a charge is answered without asking the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handling<'a> {
    /// When the store cannot answer.
    pub(crate) failure: FailurePolicy,
    /// When units have been taken ahead.
    pub(crate) lease: Option<&'a Lease>,
}
