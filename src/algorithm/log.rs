//! The sliding window as an exact log: one time per unit.

use std::collections::VecDeque;

use super::{Counting, Terms};
use crate::quota::MAX_LOG_UNITS;

/// The times at which the units in the window were charged, in order.
///
/// A unit charged at `t` counts in (`t` − W, `t`] of every later check, that is while `now` < `t` + W.
/// No more than [`Log::MOST`] are kept: older ones cannot change an answer, as no limit is higher. They could
/// once newer ones are given back, so a log that holds the most takes nothing back.
///
/// The first and the last time stand beside the queue as well. With many keys, the queues lie in memory that no
/// cache holds, and most answers need no more than these two.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    oldest: u64,
    newest: u64,
    times: VecDeque<u64>,
}

impl Log {
    /// The most units that are kept: one more than a limit asks for, which tells that some may be missing.
    pub(crate) const MOST: u64 = MAX_LOG_UNITS + 1;

    /// Ordinary traffic expires a unit or two at a time, which lie side by side; a backlog is searched.
    fn drop_expired(&mut self, terms: &Terms, now: u64) {
        for _ in 0..8 {
            self.times.pop_front();
            match self.times.front() {
                Some(time) if time + terms.window <= now => {}
                _ => return self.note_oldest(),
            }
        }
        let expired = self.times.partition_point(|time| time + terms.window <= now);
        self.times.drain(..expired);
        self.note_oldest();
    }

    fn note_oldest(&mut self) {
        match self.times.front() {
            Some(&oldest) => self.oldest = oldest,
            None => (self.oldest, self.newest) = (0, 0),
        }
    }

    fn note_ends(&mut self) {
        self.newest = self.times.back().copied().unwrap_or(0);
        self.note_oldest();
    }

    pub(crate) fn times(&self) -> impl Iterator<Item = u64> {
        self.times.iter().copied()
    }

    pub(crate) fn len(&self) -> u64 {
        self.times.len() as u64
    }

    /// Units that fit before the log must grow.
    pub(crate) fn room(&self) -> u64 {
        (self.times.capacity() - self.times.len()) as u64
    }

    /// Bytes that `units` take.
    pub(crate) fn bytes(units: u64) -> usize {
        units.min(Self::MOST) as usize * size_of::<u64>()
    }

    /// Reserves room for `units` in all.
    pub(crate) fn set_capacity(&mut self, units: u64) {
        self.times
            .reserve_exact((units as usize).saturating_sub(self.times.len()));
    }
}

impl Counting for Log {
    #[inline]
    fn repair(&mut self, terms: &Terms, now: u64) {
        if self.times.is_empty() {
            return;
        }
        // Units in one log were charged within one window of each other, so the oldest tells of another
        // clock for all of them that can hold a client longer than two windows.
        if terms.is_foreign(self.oldest, now) {
            self.times.iter_mut().for_each(|time| *time = now);
            self.note_ends();
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
            to_leave => self.times[to_leave - 1] + terms.window,
        }
    }

    #[inline]
    fn empty_at(&self, terms: &Terms, _now: u64) -> u64 {
        if self.times.is_empty() {
            return 0;
        }
        self.newest + terms.window
    }

    #[inline]
    fn tail(&self, _terms: &Terms) -> u64 {
        self.newest
    }

    #[inline]
    fn charge(&mut self, _terms: &Terms, _now: u64, stamp: u64, units: u64) {
        if units == 1 && self.len() < Self::MOST {
            if self.times.is_empty() {
                self.oldest = stamp;
            }
            self.newest = stamp;
            self.times.push_back(stamp);
            return;
        }
        let units = units.min(Self::MOST) as usize;
        let excess = (self.times.len() + units).saturating_sub(Self::MOST as usize);
        self.times.drain(..excess);
        self.times.extend(std::iter::repeat_n(stamp, units));
        self.note_ends();
    }

    #[inline]
    fn give_back(&mut self, _terms: &Terms, _now: u64, stamp: u64, units: u64) {
        let first = self.times.partition_point(|&time| time < stamp);
        let end = self.times.partition_point(|&time| time <= stamp);
        if (end - first) as u64 >= units && self.len() < Self::MOST {
            self.times.drain(first..first + units as usize);
            self.note_ends();
        }
    }
}
