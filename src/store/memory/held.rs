//! A state within the bytes that are taken for it.

use super::budget::Budget;
use crate::algorithm::{Log, Slots, State, Terms};
use crate::quota::{Layout, Phase};

/// Slots that a log turns into when there is no memory for it to grow: 1/16 of a window too strict. Fewer, down
/// to two, if the log's limit was so low that its first bytes pay for no more.
const COMPACT_SLOTS: u16 = 16;

/// A state that does not grow before the bytes are taken from the budget.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) state: State,
    bytes: usize,
    first_bytes: usize,
}

impl Held {
    /// Bytes that a new state may grow to by itself, and the least that it shrinks to.
    pub(super) fn first_bytes(terms: &Terms) -> usize {
        match terms.layout {
            Layout::Log => {
                Log::bytes(terms.capacity).clamp(Slots::most_bytes(2), Slots::most_bytes(COMPACT_SLOTS))
            }
            Layout::Slots(slots) => Slots::most_bytes(slots),
            Layout::Counter | Layout::Fixed(_) | Layout::Bucket => 0,
        }
    }

    /// A new state, whose first bytes are already taken.
    pub(super) fn new(terms: &Terms, now: u64) -> Self {
        let first_bytes = Self::first_bytes(terms);
        Self {
            state: State::new(terms, now),
            bytes: first_bytes,
            first_bytes,
        }
    }

    /// The state that keys without room share, which costs the budget nothing until it grows.
    ///
    /// Windows that are phased per key begin at another time for each of them. What never exceeds the limit in
    /// any window exceeds it in none of theirs.
    pub(super) fn shared(terms: &Terms, now: u64) -> Self {
        match terms.layout {
            Layout::Fixed(Phase::PerKey) => Self {
                state: State::Slots(Slots::new(COMPACT_SLOTS)),
                bytes: 0,
                first_bytes: 0,
            },
            _ => Self::new(terms, now),
        }
    }

    /// A copy for a counter whose first bytes are already taken; none if there is no room for the rest.
    pub(super) fn copy(&self, terms: &Terms, budget: &Budget) -> Option<Self> {
        let first_bytes = Self::first_bytes(terms);
        let needed = match &self.state {
            State::Log(log) => Log::bytes(log.len()),
            State::Slots(slots) => Slots::most_bytes(slots.slots()),
            State::Counter(_) | State::Fixed(_) | State::Bucket(_) => 0,
        };
        budget
            .take_bytes(needed.saturating_sub(first_bytes))
            .then(|| Self {
                state: self.state.clone(),
                bytes: needed.max(first_bytes),
                first_bytes,
            })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What was taken after the first bytes.
    pub(super) fn extra_bytes(&self) -> usize {
        self.bytes - self.first_bytes
    }

    /// Whether the state is not of its layout's own kind, for want of room.
    pub(super) fn is_substitute(&self, layout: Layout) -> bool {
        matches!(self.state, State::Slots(_)) && !matches!(layout, Layout::Slots(_))
    }

    pub(super) fn charge(&mut self, terms: &Terms, now: u64, stamp: u64, units: u64, budget: &Budget) {
        self.make_room(terms, units, budget);
        self.state.charge(terms, now, stamp, units);
    }

    /// Lets a log grow by doubling within the budget. Where there is no budget left, the log turns into slots,
    /// which its first bytes have paid for: stricter by a slot, and back to a log once it has run empty.
    fn make_room(&mut self, terms: &Terms, units: u64, budget: &Budget) {
        let State::Log(log) = &mut self.state else { return };
        if units <= log.room() {
            return;
        }
        let needed = log.len().saturating_add(units).min(Log::MOST);
        let doubled = (log.len() * 2).max(4).min(terms.capacity).max(needed);
        for target in [doubled, needed] {
            let more = Log::bytes(target).saturating_sub(self.bytes);
            if budget.take_bytes(more) {
                self.bytes += more;
                log.set_capacity(target);
                return;
            }
        }
        budget.count_overflow();
        let slots = Slots::that_fit(self.first_bytes).min(COMPACT_SLOTS);
        self.state = State::Slots(Slots::from_log(log, slots, terms));
        budget.return_bytes(self.extra_bytes());
        self.bytes = self.first_bytes;
    }
}
