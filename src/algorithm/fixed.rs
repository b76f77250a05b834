//! The fixed window: one counter, set back at each window's beginning.

use super::{Counting, MOST_UNITS, Terms};

/// The units of one window. Window `i` ends at `i` × W + offset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fixed {
    index: u64,
    count: u64,
}

impl Fixed {
    #[cfg(feature = "redis")]
    pub(super) const fn of(index: u64, count: u64) -> Self {
        Self { index, count }
    }

    fn index_at(terms: &Terms, time: u64) -> u64 {
        (time + terms.window - terms.offset) / terms.window
    }

    fn end(&self, terms: &Terms) -> u64 {
        self.index * terms.window + terms.offset
    }

    fn start(&self, terms: &Terms) -> u64 {
        self.end(terms).saturating_sub(terms.window)
    }
}

impl Counting for Fixed {
    #[inline]
    fn repair(&mut self, terms: &Terms, now: u64) {
        let index = Self::index_at(terms, now);
        // Empty is new: nothing remembers a window in which nothing is charged.
        if index > self.index || self.count == 0 {
            *self = Self { index, count: 0 };
        } else if terms.is_foreign(self.start(terms), now) {
            self.index = index;
        }
    }

    #[inline]
    fn free(&self, terms: &Terms, _now: u64) -> u64 {
        terms.capacity.saturating_sub(self.count)
    }

    #[inline]
    fn earliest_later(&self, terms: &Terms, _now: u64, _cost: u64) -> u64 {
        self.end(terms)
    }

    #[inline]
    fn empty_at(&self, terms: &Terms, _now: u64) -> u64 {
        if self.count > 0 { self.end(terms) } else { 0 }
    }

    #[inline]
    fn tail(&self, terms: &Terms) -> u64 {
        self.start(terms)
    }

    /// A lease ends with its window. Moving on to the next would forget what this one has used, and a stamp that
    /// lies there would take back what is charged there.
    #[inline]
    fn latest(&self, terms: &Terms, now: u64) -> u64 {
        (now + terms.slack()).min(self.end(terms) - 1)
    }

    #[inline]
    fn charge(&mut self, _terms: &Terms, _now: u64, _stamp: u64, units: u64) {
        self.count = (self.count + units).min(MOST_UNITS);
    }

    #[inline]
    fn give_back(&mut self, terms: &Terms, _now: u64, stamp: u64, units: u64) {
        if Self::index_at(terms, stamp) == self.index && self.count >= units && self.count < MOST_UNITS {
            self.count -= units;
        }
    }
}
