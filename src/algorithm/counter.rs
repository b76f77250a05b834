//! The sliding counter: two windows, the earlier one weighted by what the sliding window still covers of it.

use super::{Counting, MOST_UNITS, Terms, tick_shift, ticks};

/// Units of two neighbouring windows, which begin at multiples of the window's length.
///
/// With R of the sliding window still in the previous window, `current + ⌈previous × R / W⌉` must stay within
/// the limit. That assumes an even spread, so a burst at the end of one window and another before the end of
/// the next can reach just under twice the limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    index: u64,
    current: u64,
    previous: u64,
}

impl Counter {
    #[cfg(feature = "redis")]
    pub(super) const fn of(index: u64, current: u64, previous: u64) -> Self {
        Self {
            index,
            current,
            previous,
        }
    }

    fn start(&self, terms: &Terms) -> u64 {
        self.index * terms.window
    }

    fn is_empty(&self) -> bool {
        self.current == 0 && self.previous == 0
    }

    fn roll(&mut self, index: u64) {
        self.previous = if index == self.index + 1 { self.current } else { 0 };
        self.current = 0;
        self.index = index;
    }

    /// More units than the limit are left of a higher one, or were settled.
    fn shift(units: u64, terms: &Terms) -> u32 {
        if units <= terms.capacity {
            terms.shift
        } else {
            tick_shift(units, terms.window)
        }
    }

    /// What `units` of the window before weigh when `rest` of the sliding window still lies in it.
    fn weighted(units: u64, rest: u64, terms: &Terms) -> u64 {
        if units == 0 {
            return 0;
        }
        let shift = Self::shift(units, terms);
        (units * ticks(rest, shift))
            .div_ceil(terms.window >> shift)
            .min(units)
    }

    /// The longest rest at which `units` of the window before weigh no more than `room`.
    fn longest_rest(units: u64, room: u64, terms: &Terms) -> u64 {
        if units <= room {
            return terms.window;
        }
        let shift = Self::shift(units, terms);
        ((room * (terms.window >> shift) / units) << shift).min(terms.window)
    }
}

impl Counting for Counter {
    #[inline]
    fn repair(&mut self, terms: &Terms, now: u64) {
        let index = now / terms.window;
        if index > self.index {
            self.roll(index);
        } else if self.is_empty() || terms.is_foreign(self.start(terms), now) {
            self.index = index;
        }
    }

    #[inline]
    fn free(&self, terms: &Terms, now: u64) -> u64 {
        let elapsed = now.saturating_sub(self.start(terms));
        let used = self.current + Self::weighted(self.previous, terms.window - elapsed, terms);
        terms.capacity.saturating_sub(used)
    }

    #[inline]
    fn earliest_later(&self, terms: &Terms, now: u64, cost: u64) -> u64 {
        let room = terms.capacity - cost;
        let end = self.start(terms) + terms.window;
        let earliest = if self.current <= room {
            end - Self::longest_rest(self.previous, room - self.current, terms)
        } else {
            end + terms.window - Self::longest_rest(self.current, room, terms)
        };
        earliest.max(now)
    }

    #[inline]
    fn empty_at(&self, terms: &Terms, _now: u64) -> u64 {
        let windows = match (self.previous, self.current) {
            (0, 0) => return 0,
            (_, 0) => 1,
            _ => 2,
        };
        self.start(terms) + windows * terms.window
    }

    #[inline]
    fn tail(&self, terms: &Terms) -> u64 {
        self.start(terms)
    }

    /// Moving on to the next window would forget the one before this, which still weighs.
    #[inline]
    fn latest(&self, terms: &Terms, now: u64) -> u64 {
        (now + terms.slack()).min(self.start(terms) + terms.window - 1)
    }

    #[inline]
    fn charge(&mut self, _terms: &Terms, _now: u64, _stamp: u64, units: u64) {
        self.current = (self.current + units).min(MOST_UNITS);
    }

    #[inline]
    fn give_back(&mut self, terms: &Terms, _now: u64, stamp: u64, units: u64) {
        let index = stamp / terms.window;
        let count = if index == self.index {
            &mut self.current
        } else if index + 1 == self.index {
            &mut self.previous
        } else {
            return;
        };
        if *count >= units && *count < MOST_UNITS {
            *count -= units;
        }
    }
}
