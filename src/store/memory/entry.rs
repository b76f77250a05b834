//! One counter in the table, and what tells it from others.

use std::hash::{BuildHasher, Hash, Hasher};

use smallvec::SmallVec;

use super::budget::Budget;
use super::held::Held;
use crate::algorithm::{State, Terms};
use crate::policy::PolicyName;
use crate::quota::Layout;
use crate::store::Charge;

const INLINE_KEY: usize = 40;

/// What identifies a counter. `key` is `None` for the counter that keys without room share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity<'a> {
    pub(super) key: Option<&'a [u8]>,
    pub(super) policy: &'a PolicyName,
    pub(super) layout: Layout,
    pub(super) window: u64,
}

impl<'a> Identity<'a> {
    pub(super) fn new(charge: &Charge<'a>, terms: &Terms) -> Self {
        Self {
            key: Some(charge.key.as_bytes()),
            policy: charge.policy,
            layout: terms.layout,
            window: terms.window,
        }
    }

    pub(super) fn shared(self) -> Self {
        Self { key: None, ..self }
    }

    pub(super) fn hash(&self, state: &impl BuildHasher) -> u64 {
        let mut hasher = state.build_hasher();
        hasher.write(self.key.unwrap_or_default());
        hasher.write(self.policy.as_str().as_bytes());
        hasher.write_u64(self.window);
        self.layout.hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn same_counter(&self, other: &Identity<'_>) -> bool {
        self.window == other.window
            && self.layout == other.layout
            && self.key == other.key
            && self.policy == other.policy
    }
}

/// A counter.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) hash: u64,
    /// From this time on the state equals no state.
    pub(super) expires_at: u64,
    pub(super) terms: Terms,
    pub(super) held: Held,
    shared: bool,
    key: SmallVec<[u8; INLINE_KEY]>,
    policy: PolicyName,
    /// Bytes taken from the budget for the place in the table and a long key.
    place_bytes: usize,
}

impl Entry {
    /// What a counter takes from the budget at first: its place in the table (which is at least 7/16 full), a
    /// long key, and the least that its state can shrink to.
    pub(super) fn first_bytes(identity: &Identity<'_>, terms: &Terms) -> usize {
        Self::place_bytes(identity) + Held::first_bytes(terms)
    }

    pub(super) fn place_bytes(identity: &Identity<'_>) -> usize {
        let key = identity.key.map_or(0, <[u8]>::len);
        size_of::<Self>() * 16 / 7 + if key > INLINE_KEY { key } else { 0 }
    }

    /// A counter whose first bytes are already taken.
    pub(super) fn new(identity: &Identity<'_>, hash: u64, terms: Terms, held: Held) -> Self {
        Self {
            hash,
            expires_at: 0,
            terms,
            held,
            shared: identity.key.is_none(),
            key: SmallVec::from_slice(identity.key.unwrap_or_default()),
            policy: identity.policy.clone(),
            place_bytes: Self::place_bytes(identity),
        }
    }

    pub(super) fn identity(&self) -> Identity<'_> {
        Identity {
            key: (!self.shared).then_some(&self.key),
            policy: &self.policy,
            layout: self.terms.layout,
            window: self.terms.window,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.place_bytes + self.held.bytes()
    }

    /// What was taken after the first bytes.
    pub(super) fn extra_bytes(&self) -> usize {
        self.held.extra_bytes()
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    pub(super) fn repair(&mut self, terms: Terms, now: u64) {
        self.expires_at = self
            .expires_at
            .saturating_sub(self.held.state.repair(&terms, now));
        if terms != self.terms {
            self.terms = terms;
            // A bucket at another rate fills at another time. The latest holds: both may be asked for.
            self.expires_at = self.expires_at.max(self.held.state.full_at(&terms, now));
        }
        if self.expires_at <= now && !self.shared && self.held.is_substitute(terms.layout) {
            self.held.state = State::new(&terms, now);
        }
    }

    pub(super) fn charge(&mut self, now: u64, stamp: u64, units: u64, budget: &Budget) {
        if units == 0 {
            return;
        }
        self.held.charge(&self.terms, now, stamp, units, budget);
        self.expires_at = self.held.state.full_at(&self.terms, now);
    }

    pub(super) fn give_back(&mut self, now: u64, stamp: u64, units: u64) {
        self.held.state.give_back(&self.terms, now, stamp, units);
        self.expires_at = self.held.state.full_at(&self.terms, now);
    }
}
