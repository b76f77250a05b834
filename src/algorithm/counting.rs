//! What can be asked of every counter, and done to it.

use super::{MOST_UNITS, Terms};

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
