//! The sliding window in slots: the oldest, partly covered slot counted in full.

use std::collections::VecDeque;

use super::log::{Log, Time};
use super::{Counting, MOST_UNITS, Terms};

/// Counts of the slots that the window touches, in order of time, empty slots left out.
///
/// Slot `i` holds the units charged in [`i` × width, (`i` + 1) × width), where `slots` × width covers the
/// window. It counts in full until its last microsecond has left the window: the limit holds in every
/// window, and a unit is held at most one width too long.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    slots: u16,
    counts: VecDeque<(u64, u64)>,
    total: u64,
}

impl Slots {
    const MOST: u64 = 2 * MOST_UNITS;

    pub(crate) fn new(slots: u16) -> Self {
        Self {
            slots,
            counts: VecDeque::new(),
            total: 0,
        }
    }

    /// The units of a log, counted in slots: what a log becomes when there is no memory left for it.
    pub(super) fn from_log<T: Time>(log: &Log<T>, slots: u16, terms: &Terms) -> Self {
        let mut this = Self::new(slots);
        for time in log.times() {
            this.add(time / this.width(terms), 1);
        }
        this
    }

    fn width(&self, terms: &Terms) -> u64 {
        terms.window.div_ceil(u64::from(self.slots))
    }

    /// The first time at which slot `index` counts no more.
    fn end(&self, terms: &Terms, index: u64) -> u64 {
        (index + 1) * self.width(terms) + terms.window - 1
    }

    /// The first time at which what is charged at `time` counts no more.
    #[cfg(feature = "redis")]
    pub(crate) fn end_of(&self, terms: &Terms, time: u64) -> u64 {
        self.end(terms, time / self.width(terms))
    }

    fn add(&mut self, index: u64, units: u64) {
        let units = units.min(Self::MOST - self.total);
        if units == 0 {
            return;
        }
        let full = self.counts.len() == Self::most(self.slots);
        match self.counts.back_mut() {
            Some((newest, count)) if *newest == index || full => {
                *newest = index;
                *count += units;
            }
            _ => {
                if self.counts.len() == self.counts.capacity() {
                    let more = (Self::most(self.slots) - self.counts.len()).min(self.counts.len() + 4);
                    self.counts.reserve_exact(more);
                }
                self.counts.push_back((index, units));
            }
        }
        self.total += units;
    }

    /// Slots held at once: those that a window touches and one ahead of the clock. Where stamps ahead of the
    /// clock would need more, the newest two become one, as of the later.
    const fn most(slots: u16) -> usize {
        slots as usize + 2
    }

    pub(crate) const fn slots(&self) -> u16 {
        self.slots
    }

    /// As many slots as `bytes` pay for.
    pub(crate) fn that_fit(bytes: usize) -> u16 {
        let slots = (bytes / size_of::<(u64, u64)>()).saturating_sub(2);
        u16::try_from(slots).unwrap_or(u16::MAX)
    }

    /// Bytes that the counts take at most.
    pub(crate) const fn most_bytes(slots: u16) -> usize {
        Self::most(slots) * size_of::<(u64, u64)>()
    }
}

impl Counting for Slots {
    #[inline]
    fn repair(&mut self, terms: &Terms, now: u64) {
        let Some(&(oldest, _)) = self.counts.front() else {
            return;
        };
        let width = self.width(terms);
        if oldest > (now + terms.slack()) / width {
            self.counts.clear();
            self.counts.push_back((now / width, self.total));
            return;
        }
        while let Some(&(index, count)) = self.counts.front() {
            if self.end(terms, index) > now {
                break;
            }
            self.total -= count;
            self.counts.pop_front();
        }
    }

    #[inline]
    fn free(&self, terms: &Terms, _now: u64) -> u64 {
        terms.capacity.saturating_sub(self.total)
    }

    #[inline]
    fn earliest_later(&self, terms: &Terms, now: u64, cost: u64) -> u64 {
        let mut to_leave = (self.total + cost).saturating_sub(terms.capacity);
        for &(index, count) in &self.counts {
            if count >= to_leave {
                return self.end(terms, index);
            }
            to_leave -= count;
        }
        now
    }

    #[inline]
    fn empty_at(&self, terms: &Terms, _now: u64) -> u64 {
        self.counts.back().map_or(0, |&(index, _)| self.end(terms, index))
    }

    #[inline]
    fn tail(&self, terms: &Terms) -> u64 {
        self.counts
            .back()
            .map_or(0, |&(index, _)| index * self.width(terms))
    }

    #[inline]
    fn charge(&mut self, terms: &Terms, _now: u64, stamp: u64, units: u64) {
        self.add(stamp / self.width(terms), units);
    }

    #[inline]
    fn give_back(&mut self, terms: &Terms, _now: u64, stamp: u64, units: u64) {
        let index = stamp / self.width(terms);
        let Ok(at) = self.counts.binary_search_by_key(&index, |&(index, _)| index) else {
            return;
        };
        if self.counts[at].1 >= units && self.total < Self::MOST {
            self.counts[at].1 -= units;
            self.total -= units;
            if self.counts[at].1 == 0 {
                self.counts.remove(at);
            }
        }
    }
}
