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
mod counting;
mod fixed;
mod log;
mod penalty;
mod ring;
mod slots;
mod terms;

use self::bucket::Bucket;
use self::counter::Counter;
pub(crate) use self::counting::{After, Before, Counting, Taken};
use self::fixed::Fixed;
use self::log::Log;
pub(crate) use self::log::log_bytes;
pub(crate) use self::penalty::Offences;
pub(crate) use self::slots::Slots;
pub(crate) use self::terms::Terms;
use self::terms::{tick_shift, ticks};
use crate::quota::{Layout, MAX_UNITS};

/// Times are clamped to this (the year 2112), which leaves room for the longest window below 2⁵³.
pub(crate) const MAX_TIME: u64 = 1 << 52;

/// The most that an entry may lie ahead of the clock.
pub(crate) const MAX_SLACK: u64 = 1_000_000;

/// The most units that a window counts: one more than a limit goes, which tells that more may have been charged.
/// What is at its most takes nothing back.
const MOST_UNITS: u64 = MAX_UNITS + 1;

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
