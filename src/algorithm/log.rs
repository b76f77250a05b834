//! The sliding window as an exact log: one time per unit.

use super::ring::Ring;
pub(crate) use super::ring::Time;
use super::{Counting, MAX_SLACK, Terms};
use crate::quota::MAX_LOG_UNITS;

/// The most units that are kept: one more than a limit asks for, which tells that some may be missing.
pub(super) const MOST: u64 = MAX_LOG_UNITS + 1;

/// Times of longer windows need all their bits: the newest may lie a window and the slack after the oldest.
const MAX_SHORT_WINDOW: u64 = u32::MAX as u64 - MAX_SLACK;

/// The times at which the units in the window were charged, in order.
///
/// A unit charged at `t` counts in (`t` − W, `t`] of every later check, that is while `now` < `t` + W.
/// No more than [`MOST`] are kept: older ones cannot change an answer, as no limit is higher. They could
/// once newer ones are given back, so a log that holds the most takes nothing back.
///
/// The first and the last time stand beside the ring as well, in full. With many keys, the rings lie in memory that no
/// cache holds, and most answers need no more than these two.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log<T> {
    oldest: u64,
    newest: u64,
    times: Ring<T>,
}

/// Whether times in the log of a window need all their bits.
pub(super) const fn is_long(window: u64) -> bool {
    window > MAX_SHORT_WINDOW
}

/// Bytes that `units` take.
pub(crate) fn log_bytes(terms: &Terms, units: u64) -> usize {
    let each = if is_long(terms.window) {
        size_of::<u64>()
    } else {
        size_of::<u32>()
    };
    units.min(MOST) as usize * each
}

impl<T: Time> Log<T> {
    fn time(&self, index: usize) -> u64 {
        self.times.get(index).before(self.newest)
    }

    /// Ordinary traffic expires a unit or two at a time, which lie side by side; a backlog is searched.
    fn drop_expired(&mut self, terms: &Terms, now: u64) {
        let is_over = |time: u64| time + terms.window <= now;
        for count in 1..=8 {
            if count == self.times.len() || !is_over(self.time(count)) {
                return self.drop_front(count);
            }
        }
        let newest = self.newest;
        self.drop_front(self.times.partition_point(|time| is_over(time.before(newest))));
    }

    #[inline]
    fn drop_front(&mut self, count: usize) {
        self.times.drop_front(count);
        self.note_oldest();
    }

    #[inline]
    fn note_oldest(&mut self) {
        if self.times.len() > 0 {
            self.oldest = self.time(0);
        } else {
            (self.oldest, self.newest) = (0, 0);
        }
    }

    pub(super) fn times(&self) -> impl Iterator<Item = u64> {
        (0..self.times.len()).map(|index| self.time(index))
    }

    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.times.len() as u64
    }

    /// Makes room for `units` in all.
    pub(super) fn grow(&mut self, units: u64) {
        self.times.grow(units.min(MOST) as usize);
    }
}

impl<T: Time> Counting for Log<T> {
    #[inline]
    fn repair(&mut self, terms: &Terms, now: u64) {
        if self.times.len() == 0 {
            return;
        }
        // Units in one log were charged within one window of each other, so the oldest tells of another
        // clock for all of them that can hold a client longer than two windows.
        if terms.is_foreign(self.oldest, now) {
            self.times.fill(T::new(now));
            (self.oldest, self.newest) = (now, now);
        } else if self.oldest + terms.window <= now {
            self.drop_expired(terms, now);
        }
    }

    #[inline]
    fn free(&self, terms: &Terms, _now: u64) -> u64 {
        terms.capacity.saturating_sub(self.len())
    }

    #[inline]
    fn earliest_later(&self, terms: &Terms, _now: u64, cost: u64) -> u64 {
        match (self.len() + cost - terms.capacity) as usize {
            1 => self.oldest + terms.window,
            to_leave => self.time(to_leave - 1) + terms.window,
        }
    }

    #[inline]
    fn empty_at(&self, terms: &Terms, _now: u64) -> u64 {
        if self.times.len() == 0 {
            return 0;
        }
        self.newest + terms.window
    }

    #[inline]
    fn tail(&self, _terms: &Terms) -> u64 {
        self.newest
    }

    #[inline]
    fn room(&self) -> u64 {
        self.times.room() as u64
    }

    #[inline]
    fn charge(&mut self, _terms: &Terms, _now: u64, stamp: u64, units: u64) {
        let units = units.min(MOST);
        let excess = (self.len() + units).saturating_sub(MOST);
        if excess > 0 {
            self.drop_front(excess as usize);
        }
        if self.times.len() == 0 {
            self.oldest = stamp;
        }
        self.newest = stamp;
        for _ in 0..units {
            self.times.push(T::new(stamp));
        }
    }

    #[inline]
    fn give_back(&mut self, _terms: &Terms, _now: u64, stamp: u64, units: u64) {
        let newest = self.newest;
        let first = self.times.partition_point(|time| time.before(newest) < stamp);
        let end = self.times.partition_point(|time| time.before(newest) <= stamp);
        if (end - first) as u64 >= units && self.len() < MOST {
            // All that is later than the stamp stays, so only what ends with it has another end.
            if first + units as usize == self.times.len() {
                self.newest = first.checked_sub(1).map_or(0, |last| self.time(last));
            }
            self.times.remove(first, units as usize);
            self.note_oldest();
        }
    }
}
