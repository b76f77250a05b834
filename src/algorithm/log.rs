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

    /// The first time has expired. Ordinary traffic expires a unit or two at a time, which lie side by side; a backlog is
    /// searched.
    fn drop_expired(&mut self, terms: &Terms, now: u64) {
        let is_over = |time: u64| time + terms.window <= now;
        for count in 1..=8 {
            if count == self.times.len() {
                return self.drop_front(count);
            }
            let time = self.time(count);
            if !is_over(time) {
                self.times.drop_front(count);
                self.oldest = time;
                return;
            }
        }
        let newest = self.newest;
        self.drop_front(self.times.partition_point(|time| is_over(time.before(newest))));
    }

    fn drop_front(&mut self, count: usize) {
        self.times.drop_front(count);
        self.note_oldest();
    }

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::quota::Quota;

    const START: u64 = 1_800_000_000_000_000;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// In thousandths of a window.
        Advance(u64),
        Back(u64),
        /// As of so many thousandths of the slack ahead.
        Charge(u64, u64),
        /// Of the charge so many before the last.
        GiveBack(usize),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0u64..900).prop_map(Step::Advance),
            1 => (0u64..20_000).prop_map(Step::Advance),
            1 => (0u64..3_000).prop_map(Step::Back),
            5 => (1u64..6, prop_oneof![3 => Just(0u64), 1 => 0u64..=1_000]).prop_map(|(units, ahead)| Step::Charge(units, ahead)),
            2 => (0usize..4).prop_map(Step::GiveBack),
        ]
    }

    /// All that can be asked.
    fn answers<T: Time>(log: &Log<T>, terms: &Terms, now: u64) -> (Vec<u64>, [u64; 3], Option<u64>) {
        let ends = [log.oldest, log.tail(terms), log.full_at(terms, now)];
        (log.times().collect(), ends, log.earliest(terms, now, 7))
    }

    fn charge<T: Time>(log: &mut Log<T>, terms: &Terms, now: u64, (stamp, units): (u64, u64)) {
        log.grow(log.len() + units);
        log.after(terms, now, (stamp, units), 1);
    }

    proptest! {
        /// The low halves of times tell as much as all of them, up to the longest window they are used for.
        #[test]
        fn c12_a_log_of_short_times_answers_as_one_of_long_ones(
            window in prop_oneof![Just(MAX_SHORT_WINDOW), Just(3_600_000_000), Just(500_000), 1_000..=MAX_SHORT_WINDOW],
            start in 0u64..1 << 33,
            steps in prop::collection::vec(any_step(), 1..60),
        ) {
            let terms = Terms::of(&Quota::new(20, Duration::from_micros(window)), b"k").expect("limited");
            let (mut short, mut long) = (Log::<u32>::default(), Log::<u64>::default());
            let (mut now, mut charges) = (START + start, Vec::new());
            for step in steps {
                match step {
                    Step::Advance(part) => now += window / 1_000 * part + part,
                    Step::Back(part) => now -= window / 1_000 * part + part,
                    _ => {}
                }
                let before = (short.before(&terms, now), long.before(&terms, now));
                prop_assert_eq!(before.0.free, before.1.free);
                match step {
                    Step::Charge(units, ahead) => {
                        let stamp = (now + terms.slack() * ahead / 1_000).max(before.1.tail);
                        charge(&mut short, &terms, now, (stamp, units));
                        charge(&mut long, &terms, now, (stamp, units));
                        charges.push((long.newest, units));
                    }
                    Step::GiveBack(age) if age < charges.len() => {
                        let (stamp, units) = charges[charges.len() - 1 - age];
                        short.give_back(&terms, now, stamp, units);
                        long.give_back(&terms, now, stamp, units);
                    }
                    _ => {}
                }
                prop_assert_eq!(answers(&short, &terms, now), answers(&long, &terms, now));
            }
        }
    }

    #[test]
    fn c12_only_windows_that_short_times_span_use_them() {
        assert!(!is_long(3_600_000_000) && !is_long(MAX_SHORT_WINDOW));
        assert!(is_long(MAX_SHORT_WINDOW + 1) && is_long(24 * 3_600_000_000));
        // The newest may lie all but a microsecond of a window and the slack after the oldest.
        let (oldest, newest) = (START, START + MAX_SHORT_WINDOW + MAX_SLACK - 1);
        assert_eq!(<u32 as Time>::new(oldest).before(newest), oldest);
    }

    #[test]
    fn a_log_that_holds_the_most_forgets_the_oldest_and_takes_nothing_back() {
        let terms = Terms::of(&Quota::new(MAX_LOG_UNITS, Duration::from_secs(60)), b"k").expect("limited");
        let mut log = Log::<u32>::default();
        log.grow(MOST);
        for (stamp, units) in [(START, 3), (START + 1, MOST - 3), (START + 2, 2)] {
            log.charge(&terms, stamp, stamp, units);
        }
        assert_eq!((log.len(), log.oldest, log.newest), (MOST, START, START + 2));
        log.give_back(&terms, START + 2, START + 2, 2);
        assert_eq!(log.len(), MOST);
        log.charge(&terms, START + 3, START + 3, 2 * MOST);
        assert_eq!((log.len(), log.oldest), (MOST, START + 3));
    }
}
