//! What was answered locally.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::stripe::Stripe;

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
    answered: [Answered; Stripe::COUNT],
    pub(crate) refills: AtomicU64,
    pub(crate) units_taken: AtomicU64,
    pub(crate) units_returned: AtomicU64,
}

/// What threads have answered. On cache lines of its own, two as processors fetch them in pairs.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Answered {
    denied: AtomicU64,
    leased: AtomicU64,
}

#[inline]
pub(crate) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Relaxed);
}

impl Counters {
    #[inline]
    fn count(&self, of: fn(&Answered) -> &AtomicU64) {
        let here = Stripe::here();
        let counter = of(&self.answered[here.index()]);
        if here.is_own() {
            // Nobody else writes it, and processors take several times as long to add in one step.
            counter.store(counter.load(Relaxed) + 1, Relaxed);
        } else {
            add(counter, 1);
        }
    }

    #[inline]
    pub(crate) fn count_denied(&self) {
        self.count(|answered| &answered.denied);
    }

    #[inline]
    pub(crate) fn count_leased(&self) {
        self.count(|answered| &answered.leased);
    }

    pub(super) fn snapshot(&self, denials: usize) -> LocalStats {
        let sum =
            |of: fn(&Answered) -> &AtomicU64| self.answered.iter().map(|each| of(each).load(Relaxed)).sum();
        LocalStats {
            denied: sum(|each| &each.denied),
            denials,
            leased: sum(|each| &each.leased),
            refills: self.refills.load(Relaxed),
            units_taken: self.units_taken.load(Relaxed),
            units_returned: self.units_returned.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_threads_count_adds_up() {
        let counters = Counters::default();
        let threads = 2 * Stripe::COUNT as u64;
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    (0..1_000).for_each(|_| counters.count_denied());
                    (0..2_000).for_each(|_| counters.count_leased());
                });
            }
        });
        let stats = counters.snapshot(0);
        assert_eq!((stats.denied, stats.leased), (1_000 * threads, 2_000 * threads));
    }
}
