//! One counter in the table, and what tells it from others.

use std::hash::{BuildHasher, Hasher};

use super::budget::Budget;
use super::held::Held;
use super::kept_key::KeptKey;
use super::table::{Kept, Table};
use crate::algorithm::{After, Before, Taken, Terms};
use crate::policy::{PolicyName, SharedName};
use crate::quota::Layout;
use crate::store::Charge;

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
    #[inline]
    pub(super) fn new(charge: &Charge<'a>, terms: &Terms) -> Self {
        Self {
            key: Some(charge.key.as_bytes()),
            policy: charge.policy,
            layout: terms.layout,
            window: terms.window,
            offset: terms.offset,
        }
    }

    /// The counter that keys without room share.
    pub(super) fn shared(self) -> Self {
        let offset = match self.layout {
            Layout::FixedPerKey => 0,
            _ => self.offset,
        };
        Self {
            key: None,
            offset,
            ..self
        }
    }

    #[inline]
    pub(super) fn hash(&self, state: &impl BuildHasher) -> u64 {
        let mut hasher = state.build_hasher();
        hasher.write(self.key.unwrap_or_default());
        hasher.write_u64(self.policy.text_hash() ^ self.window);
        hasher.finish()
    }

    pub(super) fn same_counter(&self, other: &Identity<'_>) -> bool {
        self.key == other.key && self.kind() == other.kind() && self.policy == other.policy
    }

    /// What tells a policy's counters of one key apart.
    #[inline]
    const fn kind(&self) -> (u64, Layout, u64) {
        (self.window, self.layout, self.offset)
    }
}

/// A counter. The cost of a check is that of the cache lines it touches: here one that identifies the counter and one
/// with its state, whose loads need not wait for each other.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Entry {
    key: KeptKey,
    policy: SharedName,
    window: u64,
    offset: u64,
    layout: Layout,
    shared: bool,
    held: Held,
    /// From this time on the state equals no state.
    expires_at: u64,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Entry>() == 128);

impl Entry {
    /// What a counter takes from the budget at first: itself and its place in the table, a long key, and the least that
    /// its state can shrink to.
    pub(super) fn first_bytes(identity: &Identity<'_>, terms: &Terms) -> usize {
        let state = match identity.key {
            Some(_) => Held::first_bytes(terms),
            None => Held::shared_first_bytes(terms),
        };
        Self::place_bytes(identity.key.unwrap_or_default()) + state
    }

    /// A shared counter's key is empty.
    const fn place_bytes(key: &[u8]) -> usize {
        Table::<Self>::ENTRY_BYTES + KeptKey::heap_bytes(key)
    }

    /// A counter whose first bytes are already taken.
    #[inline]
    pub(super) fn new(identity: &Identity<'_>, terms: &Terms, now: u64) -> Self {
        Self {
            key: KeptKey::new(identity.key.unwrap_or_default()),
            policy: identity.policy.shared(),
            window: identity.window,
            offset: identity.offset,
            layout: identity.layout,
            shared: identity.key.is_none(),
            held: match identity.key {
                Some(_) => Held::new(terms, now),
                None => Held::shared(terms, now),
            },
            expires_at: 0,
        }
    }

    /// Starts from the state of another counter under the same terms. False if there are no bytes for it.
    pub(super) fn copy_state(&mut self, other: &Self, terms: &Terms, budget: &Budget) -> bool {
        match other.held.copy(terms, budget) {
            Some(held) => {
                self.held = held;
                true
            }
            None => false,
        }
    }

    #[inline]
    pub(super) fn is_of(&self, identity: &Identity<'_>) -> bool {
        let same_key = match identity.key {
            Some(key) => !self.shared && self.key == *key,
            None => self.shared,
        };
        let kind = (self.window, self.layout, self.offset);
        same_key && kind == identity.kind() && self.policy.is(identity.policy)
    }

    pub(super) fn bytes(&self) -> usize {
        Self::place_bytes(self.key.as_bytes()) + self.held.bytes()
    }

    pub(super) const fn is_shared(&self) -> bool {
        self.shared
    }

    pub(super) const fn expires_at(&self) -> u64 {
        self.expires_at
    }

    /// What is known before a charge.
    #[inline]
    pub(super) fn before(&mut self, terms: &Terms, now: u64) -> Before {
        if !self.shared {
            self.held.end_substitute(terms, now);
        }
        self.date_back_bucket(now);
        self.held.before(terms, now)
    }

    /// Charges the units of a stamp, if any, and tells what is known after, for one that wants `cost` next.
    #[inline]
    pub(super) fn after(
        &mut self,
        terms: &Terms,
        now: u64,
        charge: (u64, u64),
        cost: u64,
        budget: &Budget,
    ) -> After {
        let after = self.held.after(terms, now, charge, cost, budget);
        let (_, units) = charge;
        self.note_expiry(&after, units > 0);
        after
    }

    /// See [`Held::take`].
    #[inline]
    pub(super) fn take(&mut self, terms: &Terms, now: u64, cost: u64) -> Option<Taken> {
        if self.layout == Layout::Bucket {
            self.date_back_bucket(now);
        }
        let taken = self.held.take(terms, now, cost)?;
        self.note_expiry(&taken.after, taken.granted && cost > 0);
        Some(taken)
    }

    #[inline]
    fn note_expiry(&mut self, after: &After, charged: bool) {
        if self.layout == Layout::Bucket {
            // A bucket at another rate fills at another time. The latest holds: both rates may be asked for.
            self.expires_at = self.expires_at.max(after.full_at);
        } else if charged {
            self.expires_at = after.full_at;
        }
    }

    pub(super) fn give_back(&mut self, terms: &Terms, now: u64, stamp: u64, units: u64) {
        let full_at = self.held.give_back(terms, now, stamp, units);
        if self.layout != Layout::Bucket {
            self.expires_at = full_at;
        }
    }

    /// A time of expiry that lies too far ahead was written under another clock, and the next check repairs the
    /// state. (Two slots, with stamps ahead and a step back, can hold for five windows.) A bucket may take longer
    /// to fill.
    fn repair_expiry(&mut self, now: u64) {
        if self.layout == Layout::Bucket {
            self.date_back_bucket(now);
        } else {
            self.expires_at = self.expires_at.min(now + 6 * self.window);
        }
    }

    /// A bucket's expiry moves back as far as its state.
    #[inline]
    fn date_back_bucket(&mut self, now: u64) {
        let back = self.held.date_back_bucket(self.window, now);
        self.expires_at = self.expires_at.saturating_sub(back);
    }
}

impl Kept for Entry {
    fn over_at(&mut self, now: u64) -> u64 {
        self.repair_expiry(now);
        self.expires_at
    }
}
