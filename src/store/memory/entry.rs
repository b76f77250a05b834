//! One counter in the table, and what tells it from others.

use std::hash::{BuildHasher, Hasher};

use smallvec::SmallVec;

use super::budget::Budget;
use crate::algorithm::{After, Before, Log, Slots, State, Terms};
use crate::policy::PolicyName;
use crate::quota::{Layout, MAX_LOG_UNITS};
use crate::store::Charge;

/// Slots that a log turns into when there is no memory for it to grow: 1/16 of a window too strict.
const COMPACT_SLOTS: u16 = 16;

const INLINE_KEY: usize = 32;

/// What identifies a counter. `key` is `None` for the counter that keys without room share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity<'a> {
    pub(super) key: Option<&'a [u8]>,
    pub(super) policy: &'a PolicyName,
    pub(super) layout: Layout,
    pub(super) window: u64,
    pub(super) offset: u64,
}

impl<'a> Identity<'a> {
    pub(super) fn new(charge: &Charge<'a>, terms: &Terms) -> Self {
        Self {
            key: Some(charge.key.as_bytes()),
            policy: charge.policy,
            layout: terms.layout,
            window: terms.window,
            offset: terms.offset,
        }
    }

    /// The counter that keys without room share under the same terms.
    pub(super) fn shared(self) -> Self {
        Self { key: None, ..self }
    }

    pub(super) fn hash(&self, state: &impl BuildHasher) -> u64 {
        let mut hasher = state.build_hasher();
        hasher.write(self.key.unwrap_or_default());
        hasher.write_u64(self.policy.text_hash() ^ self.window);
        hasher.finish()
    }

    pub(super) fn same_counter(&self, other: &Identity<'_>) -> bool {
        self.key == other.key
            && self.window == other.window
            && self.layout == other.layout
            && self.offset == other.offset
            && self.policy == other.policy
    }
}

/// A counter. Small, because the cost of a check is that of the cache lines it touches.
#[derive(Debug)]
pub(super) struct Entry {
    key: SmallVec<[u8; INLINE_KEY]>,
    policy: PolicyName,
    window: u64,
    offset: u64,
    pub(super) state: State,
    /// From this time on the state equals no state.
    pub(super) expires_at: u64,
    /// Bytes taken from the budget for the state.
    state_bytes: u32,
    layout: Layout,
    shared: bool,
}

impl Entry {
    /// What a counter takes from the budget at first: its place in the table (which is at least 7/16 full), a
    /// long key, and the least that its state can shrink to.
    pub(super) fn first_bytes(identity: &Identity<'_>, terms: &Terms) -> usize {
        Self::place_bytes(identity) + Self::least_state_bytes(terms.layout, terms.capacity)
    }

    fn place_bytes(identity: &Identity<'_>) -> usize {
        let key = identity.key.map_or(0, <[u8]>::len);
        size_of::<Self>() * 16 / 7 + if key > INLINE_KEY { key } else { 0 }
    }

    fn least_state_bytes(layout: Layout, capacity: u64) -> usize {
        match layout {
            Layout::Log => Log::bytes(capacity).min(Slots::most_bytes(COMPACT_SLOTS)),
            Layout::Slots(slots) => Slots::most_bytes(slots),
            Layout::Counter | Layout::Fixed | Layout::FixedPerKey | Layout::Bucket => 0,
        }
    }

    /// A counter whose first bytes are already taken.
    pub(super) fn new(identity: &Identity<'_>, terms: &Terms) -> Self {
        Self {
            key: SmallVec::from_slice(identity.key.unwrap_or_default()),
            policy: identity.policy.clone(),
            window: identity.window,
            offset: identity.offset,
            state: State::new(terms),
            expires_at: 0,
            state_bytes: Self::least_state_bytes(terms.layout, terms.capacity) as u32,
            layout: identity.layout,
            shared: identity.key.is_none(),
        }
    }

    /// Starts from the state of another counter under the same terms. False if there are no bytes for it.
    pub(super) fn copy_state(&mut self, other: &Self, budget: &Budget) -> bool {
        if let State::Log(log) = &other.state {
            let more = Log::bytes(log.len()).saturating_sub(self.state_bytes as usize);
            if !budget.take_bytes(more) {
                return false;
            }
            self.state_bytes += more as u32;
        }
        self.state = other.state.clone();
        true
    }

    #[inline]
    pub(super) fn identity(&self) -> Identity<'_> {
        Identity {
            key: (!self.shared).then_some(&self.key),
            policy: &self.policy,
            layout: self.layout,
            window: self.window,
            offset: self.offset,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        Self::place_bytes(&self.identity()) + self.state_bytes as usize
    }

    pub(super) const fn is_shared(&self) -> bool {
        self.shared
    }

    /// What is known before a charge.
    #[inline]
    pub(super) fn before(&mut self, terms: &Terms, now: u64) -> Before {
        if self.expires_at <= now && self.layout == Layout::Log && matches!(self.state, State::Slots(_)) {
            self.state = State::new(terms);
        }
        self.state.before(terms, now)
    }

    /// Charges `units`, if any, and tells what is known after, for one that wants `cost` next.
    #[inline]
    pub(super) fn after(
        &mut self,
        terms: &Terms,
        now: u64,
        (stamp, units): (u64, u64),
        cost: u64,
        budget: &Budget,
    ) -> After {
        if units > 0 {
            self.make_room(terms, units, budget);
        }
        let after = self.state.after(terms, now, stamp, units, cost);
        if units > 0 {
            self.expires_at = after.full_at;
        }
        after
    }

    /// A time of expiry that lies too far ahead was written under another clock, and the next check would
    /// repair the state. A bucket's may lie far ahead.
    pub(super) fn repair_expiry(&mut self, now: u64) {
        if self.layout != Layout::Bucket {
            self.expires_at = self.expires_at.min(now + 3 * self.window);
        }
    }

    pub(super) fn give_back(&mut self, terms: &Terms, now: u64, stamp: u64, units: u64) {
        self.state.give_back(terms, now, stamp, units);
        self.expires_at = self.state.full_at(terms, now);
    }

    /// Lets a log grow by doubling within the budget. Where there is no budget left, the log turns into slots,
    /// which its first bytes have paid for: stricter by a slot, and back to a log once it has run empty.
    fn make_room(&mut self, terms: &Terms, units: u64, budget: &Budget) {
        let State::Log(log) = &mut self.state else { return };
        if units <= log.room() {
            return;
        }
        let paid = self.state_bytes as usize;
        let needed = (log.len() + units).min(MAX_LOG_UNITS);
        let doubled = (log.len() * 2).max(4).min(terms.capacity).max(needed);
        for target in [doubled, needed] {
            let more = Log::bytes(target).saturating_sub(paid);
            if budget.take_bytes(more) {
                self.state_bytes += more as u32;
                log.set_capacity(target);
                return;
            }
        }
        budget.count_overflow();
        self.state = State::Slots(Box::new(Slots::from_log(log, COMPACT_SLOTS, terms)));
        let least = paid.min(Self::least_state_bytes(self.layout, terms.capacity));
        budget.return_bytes(paid - least);
        self.state_bytes = least as u32;
    }
}
