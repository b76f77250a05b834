//! What was answered locally.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What limiters have answered without asking their store. Counts only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalStats {
    /// Checks that the deny cache denied.
    pub denied: u64,
    /// Denials that are remembered now, those that have ended included.
    pub denials: usize,
    /// Checks that were allowed from a lease.
    pub leased: u64,
    /// Asks for units ahead.
    pub refills: u64,
    /// Units that were taken ahead.
    pub units_taken: u64,
    /// Of these, units that were given back unspent, or tried to be: what is lost stays charged until it leaves its window.
    pub units_returned: u64,
}

/// The counters behind [`LocalStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) denied: AtomicU64,
    pub(crate) leased: AtomicU64,
    pub(crate) refills: AtomicU64,
    pub(crate) units_taken: AtomicU64,
    pub(crate) units_returned: AtomicU64,
}

#[inline]
pub(crate) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Relaxed);
}

impl Counters {
    pub(super) fn snapshot(&self, denials: usize) -> LocalStats {
        LocalStats {
            denied: self.denied.load(Relaxed),
            denials,
            leased: self.leased.load(Relaxed),
            refills: self.refills.load(Relaxed),
            units_taken: self.units_taken.load(Relaxed),
            units_returned: self.units_returned.load(Relaxed),
        }
    }
}
