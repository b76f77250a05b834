//! A state within the bytes that are taken for it.

use super::budget::Budget;
use crate::algorithm::{After, Before, Counting, Slots, State, Taken, Terms, log_bytes};
use crate::quota::Layout;

/// Slots that a log turns into when there is no memory for it to grow: 1/16 of a window too strict. Fewer, down
/// to two, if the log's limit was so low that its first bytes pay for no more.
const COMPACT_SLOTS: u16 = 16;

/// A state that does not grow before the bytes are taken from the budget.
#[derive(Debug)]
pub(super) struct Held {
    state: State,
    bytes: u32,
    first_bytes: u32,
}

impl Held {
    /// Bytes that a new state may grow to by itself, and the least that it shrinks to.
    pub(super) fn first_bytes(terms: &Terms) -> usize {
        match terms.layout {
            // A slot for two units.
            Layout::Log => Slots::most_bytes((terms.capacity / 2).clamp(2, COMPACT_SLOTS.into()) as u16),
            Layout::Slots(slots) => Slots::most_bytes(slots),
            Layout::Counter | Layout::Fixed | Layout::FixedPerKey | Layout::Bucket => 0,
        }
    }

    /// A new state, whose first bytes are already taken.
    pub(super) fn new(terms: &Terms, now: u64) -> Self {
        Self::with(State::new(terms, now), Self::first_bytes(terms))
    }

    /// The state that keys without room share, whose first bytes are already taken.
    ///
    /// Windows that are phased per key begin at another time for each of them. What never exceeds the limit in
    /// any window exceeds it in none of theirs. And buckets of one policy may differ in rate and burst: a faster one
    /// would pay off a slower one's debt, a smaller one cut a larger one's. So they share a window as well, in which
    /// each of them takes no more than [`substituted`](Self::substituted) allows.
    pub(super) fn shared(terms: &Terms, now: u64) -> Self {
        match terms.layout {
            Layout::FixedPerKey | Layout::Bucket => Self::with(
                State::Slots(Box::new(Slots::new(COMPACT_SLOTS))),
                Self::shared_first_bytes(terms),
            ),
            _ => Self::new(terms, now),
        }
    }

    pub(super) fn shared_first_bytes(terms: &Terms) -> usize {
        match terms.layout {
            Layout::FixedPerKey | Layout::Bucket => Slots::most_bytes(COMPACT_SLOTS),
            _ => Self::first_bytes(terms),
        }
    }

    /// The terms of a bucket that is counted in a window: what it refills in one, and no more than its burst. That is
    /// within burst + rate × x for every x. `None` for everything else.
    fn substituted(&self, terms: &Terms) -> Option<Terms> {
        let substitute = terms.layout == Layout::Bucket && matches!(self.state, State::Slots(_));
        substitute.then(|| {
            let mut terms = *terms;
            terms.capacity = terms.capacity.min(terms.rate);
            terms
        })
    }

    /// A copy for a counter whose first bytes are already taken; none if there is no room for the rest.
    pub(super) fn copy(&self, terms: &Terms, budget: &Budget) -> Option<Self> {
        let first_bytes = Self::first_bytes(terms);
        let needed = match &self.state {
            State::Slots(slots) => Slots::most_bytes(slots.slots()),
            state => log_bytes(terms, state.log_len().unwrap_or(0)),
        };
        let mut copy = Self::with(self.state.clone(), first_bytes);
        copy.bytes = needed.max(first_bytes) as u32;
        budget.take_bytes(copy.extra_bytes()).then_some(copy)
    }

    fn with(state: State, first_bytes: usize) -> Self {
        Self {
            state,
            bytes: first_bytes as u32,
            first_bytes: first_bytes as u32,
        }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes as usize
    }

    const fn extra_bytes(&self) -> usize {
        (self.bytes - self.first_bytes) as usize
    }

    /// A state that is not of its layout's own kind, for want of room, becomes one once nothing is left in it. It
    /// keeps the bytes that were taken for it.
    #[inline]
    pub(super) fn end_substitute(&mut self, terms: &Terms, now: u64) {
        if let State::Slots(slots) = &self.state
            && !matches!(terms.layout, Layout::Slots(_))
            && slots.full_at(terms, now) <= now
        {
            self.state = State::new(terms, now);
        }
    }

    #[inline]
    pub(super) fn before(&mut self, terms: &Terms, now: u64) -> Before {
        match self.substituted(terms) {
            Some(terms) => self.state.before(&terms, now),
            None => self.state.before(terms, now),
        }
    }

    #[inline]
    pub(super) fn after(
        &mut self,
        terms: &Terms,
        now: u64,
        charge: (u64, u64),
        cost: u64,
        budget: &Budget,
    ) -> After {
        let (_, units) = charge;
        if units > self.state.room() {
            self.grow_or_compact(terms, units, budget);
        }
        match self.substituted(terms) {
            Some(terms) => self.state.after(&terms, now, charge, cost),
            None => self.state.after(terms, now, charge, cost),
        }
    }

    /// One grant of one charge: [`before`](Self::before) and [`after`](Self::after) at once. `None`, and nothing is charged,
    /// where it needs bytes from the budget, or the state is not of its layout's own kind.
    #[inline]
    pub(super) fn take(&mut self, terms: &Terms, now: u64, cost: u64) -> Option<Taken> {
        if matches!(self.state, State::Slots(_)) && !matches!(terms.layout, Layout::Slots(_)) {
            return None;
        }
        self.state.take(terms, now, cost)
    }

    /// See [`State::date_back_bucket`].
    #[inline]
    pub(super) fn date_back_bucket(&mut self, window: u64, now: u64) -> u64 {
        self.state.date_back_bucket(window, now)
    }

    pub(super) fn give_back(&mut self, terms: &Terms, now: u64, stamp: u64, units: u64) -> u64 {
        self.state.give_back(terms, now, stamp, units);
        self.state.full_at(terms, now)
    }

    /// Lets a log grow by doubling within the budget. Where there is no budget left, the log turns into slots,
    /// which its first bytes have paid for: stricter by a slot, and back to a log once it has run empty.
    fn grow_or_compact(&mut self, terms: &Terms, units: u64, budget: &Budget) {
        let Some(len) = self.state.log_len() else { return };
        let needed = len.saturating_add(units);
        let doubled = (len * 2).max(4).min(terms.capacity).max(needed);
        for target in [doubled, needed] {
            let more = log_bytes(terms, target).saturating_sub(self.bytes as usize);
            // What is paid for is its own, even where others have gone beyond the cap.
            if more == 0 || budget.take_bytes(more) {
                self.bytes += more as u32;
                self.state.grow_log(target);
                return;
            }
        }
        budget.count_overflow();
        let slots = Slots::that_fit(self.first_bytes as usize).min(COMPACT_SLOTS);
        self.state.compact_log(slots, terms);
        budget.return_bytes(self.extra_bytes());
        self.bytes = self.first_bytes;
    }
}
