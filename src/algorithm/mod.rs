//! The algorithms as pure integer arithmetic: no clock, no I/O, no allocation but a log's.
//!
//! Times are microseconds of the store's clock. Every intermediate value is an integer below 2⁵³, so that the
//! same formulas are exact in a script whose only number is a double. One rule keeps products below that: where
//! units × window would reach 2⁵², time is counted in ticks of 2ᵏ µs, for the smallest k that suffices, each
//! rounded to the strict side ([`tick_shift`]).
//!
//! Every state answers the same questions and takes the same changes: [`Counting`].

mod bucket;
mod counter;
mod fixed;
mod log;
mod penalty;
mod ring;
mod slots;

use self::bucket::Bucket;
use self::counter::Counter;
use self::fixed::Fixed;
use self::log::Log;
pub(crate) use self::log::log_bytes;
pub(crate) use self::penalty::Offences;
pub(crate) use self::slots::Slots;
use crate::quota::{Kind, Layout, MAX_UNITS, Phase, Quota};

/// Times are clamped to this (the year 2112), which leaves room for the longest window below 2⁵³.
pub(crate) const MAX_TIME: u64 = 1 << 52;

/// The most that an entry may lie ahead of the clock.
pub(crate) const MAX_SLACK: u64 = 1_000_000;

/// The most units that a window counts: one more than a limit goes, which tells that more may have been charged.
/// What is at its most takes nothing back.
const MOST_UNITS: u64 = MAX_UNITS + 1;

const PRODUCT_BOUND: u64 = 1 << 52;

/// A quota as the arithmetic needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) layout: Layout,
    /// Units that fit at once: the limit, or a bucket's burst.
    pub(crate) capacity: u64,
    /// Units per window: the limit, or a bucket's rate.
    pub(crate) rate: u64,
    pub(crate) window: u64,
    /// Where fixed windows begin, less than the window.
    pub(crate) offset: u64,
    /// Ticks of sliding counters and buckets last 2^`shift` µs.
    shift: u32,
}

impl Terms {
    /// `key_hash` places the windows of a quota that is phased per key. `None` if unlimited.
    #[inline]
    pub(crate) fn new(quota: &Quota, key_hash: impl FnOnce() -> u64) -> Option<Self> {
        let layout = quota.layout()?;
        let window = quota.window_micros();
        let (capacity, rate) = (quota.limit()?, quota.units_per_window());
        Some(Self {
            layout,
            capacity,
            rate,
            window,
            shift: match layout {
                Layout::Counter | Layout::Bucket => tick_shift(capacity.max(rate), window),
                _ => 0,
            },
            offset: match quota.kind() {
                Kind::Fixed(Phase::Utc(offset)) => offset,
                Kind::Fixed(Phase::PerKey) => key_hash() % window,
                _ => 0,
            },
        })
    }

    /// The terms of a quota for a key. `None` if unlimited.
    #[inline]
    pub(crate) fn of(quota: &Quota, key: &[u8]) -> Option<Self> {
        Self::new(quota, || stable_hash(key))
    }

    /// Ticks of sliding counters and buckets last 2 to the power of this in µs.
    #[cfg(feature = "redis")]
    pub(crate) const fn shift(&self) -> u32 {
        self.shift
    }

    /// How far ahead of the clock an entry may lie: more is from another clock.
    pub(crate) fn slack(&self) -> u64 {
        self.window.min(MAX_SLACK)
    }

    /// Whether a time was written under another clock.
    fn is_foreign(&self, time: u64, now: u64) -> bool {
        time > now + self.slack()
    }
}

/// The same on every instance and in every version: places the windows of a quota that is phased per key.
fn stable_hash(key: &[u8]) -> u64 {
    let hash = blake3::hash(key);
    let (first, _) = hash.as_bytes().split_at(8);
    first.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// The k of the tick rule: time counts in ticks of 2ᵏ µs.
fn tick_shift(units: u64, window: u64) -> u32 {
    let mut shift = 0;
    while units.saturating_mul(ticks(window, shift)) >= PRODUCT_BOUND {
        shift += 1;
    }
    shift
}

/// `time` in ticks of 2^`shift` µs, rounded up.
fn ticks(time: u64, shift: u32) -> u64 {
    (time + (1 << shift) - 1) >> shift
}

/// What is known of one counter.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Log(Log<u32>),
    /// Of a window that the shorter times do not span.
    LongLog(Log<u64>),
    Slots(Box<Slots>),
    Counter(Counter),
    Fixed(Fixed),
    Bucket(Bucket),
}

/// What every algorithm does with its state.
///
/// First [`repair`](Self::repair), then questions, then at most one change, all with the same `now`.
pub(crate) trait Counting {
    /// Drops what has left the window and clamps what another clock wrote: times more than the slack ahead of
    /// `now`. No answer changes, but that nobody is held longer than two windows by another clock (in slots, two
    /// windows and two slots), and the slack.
    fn repair(&mut self, terms: &Terms, now: u64);

    /// Units that may be charged at `now`.
    fn free(&self, terms: &Terms, now: u64) -> u64;

    /// The first time at which `cost` units fit, which is within the capacity and does not fit now.
    fn earliest_later(&self, terms: &Terms, now: u64, cost: u64) -> u64;

    /// The first time at which nothing is left of what was charged; anything up to `now` if nothing is left.
    fn empty_at(&self, terms: &Terms, now: u64) -> u64;

    /// The earliest time that may stamp the next charge: states stay sorted by time.
    fn tail(&self, terms: &Terms) -> u64;

    /// The latest time that may stamp the next charge: what lies further ahead is taken for another clock's.
    fn latest(&self, terms: &Terms, now: u64) -> u64 {
        now + terms.slack()
    }

    /// Units that may be charged before a log must be given more memory.
    fn room(&self) -> u64 {
        u64::MAX
    }

    /// Adds `units`, whether they fit or not, as of `stamp`, which is at least `now` and the tail, and no later
    /// than both and the latest. There is room for them.
    fn charge(&mut self, terms: &Terms, now: u64, stamp: u64, units: u64);

    /// Takes back `units` that were charged as of `stamp`, or nothing: not below zero, not from another
    /// window, not what a bucket has refilled since, not from a state that may have lost count.
    fn give_back(&mut self, terms: &Terms, now: u64, stamp: u64, units: u64);

    /// The first time from `now` on at which `cost` units fit if nothing else is charged; `None` if never.
    fn earliest(&self, terms: &Terms, now: u64, cost: u64) -> Option<u64> {
        if terms.capacity == 0 || cost > terms.capacity {
            return None;
        }
        if cost == 0 || cost <= self.free(terms, now) {
            return Some(now);
        }
        Some(self.earliest_later(terms, now, cost))
    }

    /// The first time from `now` on at which nothing is left of what was charged.
    fn full_at(&self, terms: &Terms, now: u64) -> u64 {
        self.empty_at(terms, now).max(now)
    }

    /// What is known before a charge.
    #[inline]
    fn before(&mut self, terms: &Terms, now: u64) -> Before {
        self.repair(terms, now);
        Before {
            free: self.free(terms, now),
            tail: self.tail(terms),
            latest: self.latest(terms, now),
        }
    }

    /// Charges the units of a stamp, if any, and tells what is known after, for one that wants `cost` next.
    ///
    /// Another counter of the ask may put the stamp further ahead than this one takes, after a step back of the
    /// clock. It is cut then: a state that went along would forget what it holds now.
    #[inline]
    fn after(&mut self, terms: &Terms, now: u64, (stamp, units): (u64, u64), cost: u64) -> After {
        if units > 0 {
            let stamp = stamp.min(self.tail(terms).max(self.latest(terms, now)));
            self.charge(terms, now, stamp, units.min(2 * MOST_UNITS));
        }
        After {
            free: self.free(terms, now),
            earliest: self.earliest(terms, now, cost),
            full_at: self.full_at(terms, now),
        }
    }

    /// Charges `cost` units if they fit and tells what is known after: [`before`](Self::before) and
    /// [`after`](Self::after) for one that is alone, whose stamp is as early as can be. `None`, and nothing is charged, if
    /// there is no room for them.
    #[inline]
    fn take(&mut self, terms: &Terms, now: u64, cost: u64) -> Option<Taken> {
        self.repair(terms, now);
        let stamp = self.tail(terms).max(now);
        let granted = match cost {
            0 => terms.capacity > 0,
            _ => cost <= self.free(terms, now),
        };
        if granted && cost > 0 {
            if cost > self.room() {
                return None;
            }
            self.charge(terms, now, stamp, cost);
        }
        Some(Taken {
            granted,
            stamp,
            after: After {
                free: self.free(terms, now),
                earliest: self.earliest(terms, now, cost),
                full_at: self.full_at(terms, now),
            },
        })
    }
}

/// Does the same with a log of either kind. `None` for another state.
macro_rules! if_log {
    ($state:expr, $log:ident => $do:expr) => {
        match $state {
            State::Log($log) => Some($do),
            State::LongLog($log) => Some($do),
            _ => None,
        }
    };
}

/// A counter before a charge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// Units that fit.
    pub(crate) free: u64,
    /// The earliest time that may stamp a charge.
    pub(crate) tail: u64,
    /// The latest time that may stamp a charge, unless the tail is later.
    pub(crate) latest: u64,
}

impl Before {
    /// Where there is no room for a counter: nothing fits, and it has no say in when others are charged.
    pub(crate) const NOWHERE: Self = Self {
        free: 0,
        tail: 0,
        latest: u64::MAX,
    };
}

/// A counter after a charge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct After {
    /// Units that fit.
    pub(crate) free: u64,
    /// The first time at which another cost fits, `None` if never.
    pub(crate) earliest: Option<u64>,
    /// The first time at which nothing is left of what was charged.
    pub(crate) full_at: u64,
}

/// What became of one grant of one charge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) granted: bool,
    /// The time that stamps the charge.
    pub(crate) stamp: u64,
    pub(crate) after: After,
}

/// Does the same with whichever state it is.
macro_rules! each {
    ($state:expr, $inner:ident => $do:expr) => {
        match $state {
            State::Log($inner) => $do,
            State::LongLog($inner) => $do,
            State::Slots($inner) => $do,
            State::Counter($inner) => $do,
            State::Fixed($inner) => $do,
            State::Bucket($inner) => $do,
        }
    };
}

impl State {
    /// The state of a counter that was never charged, repaired.
    pub(crate) fn new(terms: &Terms, now: u64) -> Self {
        let mut state = match terms.layout {
            Layout::Log if log::is_long(terms.window) => Self::LongLog(Log::default()),
            Layout::Log => Self::Log(Log::default()),
            Layout::Slots(slots) => Self::Slots(Box::new(Slots::new(slots))),
            Layout::Counter => Self::Counter(Counter::default()),
            Layout::Fixed | Layout::FixedPerKey => Self::Fixed(Fixed::default()),
            Layout::Bucket => Self::Bucket(Bucket::default()),
        };
        each!(&mut state, state => state.repair(terms, now));
        state
    }

    /// Units that may be charged before a log must be given more memory.
    #[inline]
    pub(crate) fn room(&self) -> u64 {
        each!(self, state => state.room())
    }

    /// Units in a log. `None` if it is none.
    pub(crate) fn log_len(&self) -> Option<u64> {
        if_log!(self, log => log.len())
    }

    /// Makes room for `units` in all, if it is a log.
    pub(crate) fn grow_log(&mut self, units: u64) {
        if_log!(self, log => log.grow(units)).unwrap_or(());
    }

    /// Counts the units of a log in slots: what it becomes when there is no memory left for it.
    pub(crate) fn compact_log(&mut self, slots: u16, terms: &Terms) {
        if let Some(slots) = if_log!(self, log => Slots::from_log(log, slots, terms)) {
            *self = Self::Slots(Box::new(slots));
        }
    }

    /// A sliding counter that says this of itself elsewhere.
    #[cfg(feature = "redis")]
    pub(crate) fn of_counter(index: u64, current: u64, previous: u64) -> Self {
        Self::Counter(Counter::of(index, current, previous))
    }

    /// A fixed window that says this of itself elsewhere.
    #[cfg(feature = "redis")]
    pub(crate) fn of_fixed(index: u64, count: u64) -> Self {
        Self::Fixed(Fixed::of(index, count))
    }

    /// A bucket that says this of itself elsewhere, without the `later` units.
    #[cfg(feature = "redis")]
    pub(crate) fn of_bucket(terms: &Terms, at: u64, debt: u64, shift: u64, later: u64) -> Self {
        Self::Bucket(Bucket::of(terms, (at, debt, shift), later))
    }

    #[inline]
    pub(crate) fn before(&mut self, terms: &Terms, now: u64) -> Before {
        each!(self, state => state.before(terms, now))
    }

    #[inline]
    pub(crate) fn after(&mut self, terms: &Terms, now: u64, charge: (u64, u64), cost: u64) -> After {
        each!(self, state => state.after(terms, now, charge, cost))
    }

    /// See [`Counting::take`].
    #[inline]
    pub(crate) fn take(&mut self, terms: &Terms, now: u64, cost: u64) -> Option<Taken> {
        each!(self, state => state.take(terms, now, cost))
    }

    pub(crate) fn give_back(&mut self, terms: &Terms, now: u64, stamp: u64, units: u64) {
        if units > 0 && stamp <= 2 * MAX_TIME {
            each!(self, state => state.give_back(terms, now, stamp, units));
        }
    }

    /// Dates back a bucket that was written under another clock, and returns how far.
    #[inline]
    pub(crate) fn date_back_bucket(&mut self, window: u64, now: u64) -> u64 {
        match self {
            Self::Bucket(bucket) => bucket.date_back(window.min(MAX_SLACK), now),
            _ => 0,
        }
    }

    pub(crate) fn full_at(&self, terms: &Terms, now: u64) -> u64 {
        each!(self, state => state.full_at(terms, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c12_the_tick_rule_is_the_smallest_that_keeps_products_exact() {
        let year = 366 * 24 * 3_600 * 1_000_000;
        assert_eq!(tick_shift(100, 60_000_000), 0);
        assert_eq!(tick_shift(1_000_000, 3_600_000_000), 0);
        assert_eq!(tick_shift(MAX_UNITS, 1_000), 0);
        for (units, window) in [(MAX_UNITS, year), (MAX_UNITS, 60_000_000), (1 << 20, year)] {
            let shift = tick_shift(units, window);
            assert!(shift > 0);
            assert!(u128::from(units) * u128::from(ticks(window, shift)) < 1 << 52);
            assert!(u128::from(units) * u128::from(ticks(window, shift - 1)) >= 1 << 52);
        }
    }
}
