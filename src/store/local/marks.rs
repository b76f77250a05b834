//! When keys were last changed.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Nanos;

/// Keys that fall together are taken for one another, which only forgets more.
const MARKS: usize = 4_096;

/// The last change of each key. Answers from before a change are worth nothing after it: whoever uses one compares times,
/// so there is nothing to remove, and nothing that could come too late for that.
pub(crate) struct Marks(Box<[AtomicU64]>);

impl Marks {
    pub(super) fn new() -> Self {
        Self((0..MARKS).map(|_| AtomicU64::new(0)).collect())
    }

    fn of(&self, hash: u64) -> &AtomicU64 {
        &self.0[hash as usize % MARKS]
    }

    pub(super) fn mark(&self, hash: u64, now: Nanos) {
        // One that marks later with an earlier time must not take it back. Never 0, which is no change.
        self.of(hash).fetch_max(now.max(1), Ordering::AcqRel);
    }

    /// 0 if there was none.
    #[inline]
    pub(super) fn last(&self, hash: u64) -> Nanos {
        self.of(hash).load(Ordering::Acquire)
    }
}
