//! The lock of one shard of many.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A shard on cache lines of its own, two as processors fetch them in pairs, so that two cores do not fight over
/// neighbours.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // A panic under the lock leaves a shard that is consistent enough to go on with: entries are changed in
        // single steps.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
