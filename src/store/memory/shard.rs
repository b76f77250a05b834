//! One part of the table, under one lock.

use std::hash::BuildHasher;

use super::budget::Budget;
use super::entry::{Entry, Identity};
use super::penalties::Penalties;
use super::table::Table;
use crate::algorithm::Terms;

/// Counters that keys without room may share, per shard: one for each policy and window. They are not counted
/// against the cap in keys, so that there is one when it is reached.
const MAX_SHARED: usize = 32;

/// Counters, and what is kept for penalties.
#[derive(Debug, Default)]
pub(super) struct Shard {
    counters: Table<Entry>,
    shared: usize,
    pub(super) penalties: Penalties,
}

/// Where the counter of a charge is, or will be once it is charged.
#[derive(Debug)]
pub(super) enum Place {
    /// In the table.
    Bucket(usize),
    /// Not in the table yet; its first bytes are taken.
    New(Box<Entry>),
    /// There is no room for a counter of any kind: nothing fits.
    Nowhere,
}

impl Place {
    pub(super) fn entry<'a>(&'a mut self, shard: &'a mut Shard) -> Option<&'a mut Entry> {
        match self {
            Self::Bucket(bucket) => Some(shard.entry_mut(*bucket)),
            Self::New(entry) => Some(entry),
            Self::Nowhere => None,
        }
    }
}

impl Shard {
    #[inline]
    pub(super) fn find(&self, hash: u64, identity: &Identity<'_>) -> Option<usize> {
        self.counters.find(hash, |entry| entry.is_of(identity))
    }

    #[inline]
    pub(super) fn find_mut(&mut self, hash: u64, identity: &Identity<'_>) -> Option<&mut Entry> {
        self.counters.find_mut(hash, |entry| entry.is_of(identity))
    }

    pub(super) fn entry(&self, bucket: usize) -> &Entry {
        self.counters.entry(bucket)
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, bucket: usize) -> &mut Entry {
        self.counters.entry_mut(bucket)
    }

    /// Room for a counter that is not in the table. At the cap, new keys share a counter; while that one is in
    /// use, a new key with room starts from a copy of it, because it may have been charged there.
    pub(super) fn place(
        &mut self,
        identity: &Identity<'_>,
        terms: &Terms,
        now: u64,
        budget: &Budget,
        seed: &impl BuildHasher,
    ) -> Place {
        let shared = identity.shared();
        let common = if self.shared == 0 {
            None
        } else {
            self.find(shared.hash(seed), &shared)
        };
        if let Some(bucket) = common {
            self.entry_mut(bucket).before(terms, now);
        }
        if budget.take_key(Entry::first_bytes(identity, terms)) {
            let mut entry = Box::new(Entry::new(identity, terms, now));
            if common.is_none_or(|bucket| entry.copy_state(self.entry(bucket), terms, budget)) {
                return Place::New(entry);
            }
            Self::discard(&entry, budget);
        }
        budget.count_overflow();
        match common {
            Some(bucket) => Place::Bucket(bucket),
            None if self.shared < MAX_SHARED => {
                budget.add_bytes(Entry::first_bytes(&shared, terms));
                Place::New(Box::new(Entry::new(&shared, terms, now)))
            }
            None => Place::Nowhere,
        }
    }

    /// Puts a charged counter into the table.
    pub(super) fn insert(&mut self, hash: u64, entry: Box<Entry>) {
        self.shared += usize::from(entry.is_shared());
        self.counters.insert(hash, entry);
    }

    pub(super) fn remove(&mut self, bucket: usize, budget: &Budget) {
        if let Some(entry) = self.counters.remove(bucket) {
            self.shared -= usize::from(entry.is_shared());
            Self::discard(&entry, budget);
        }
    }

    /// Returns what a counter took.
    pub(super) fn discard(entry: &Entry, budget: &Budget) {
        if entry.is_shared() {
            budget.return_bytes(entry.bytes());
        } else {
            budget.return_key(entry.bytes());
        }
    }

    /// See [`Table::sweep`].
    pub(super) fn sweep(&mut self, now: u64, count: usize, budget: &Budget) -> bool {
        self.counters.sweep(now, count, |entry| {
            self.shared -= usize::from(entry.is_shared());
            Self::discard(entry, budget);
        })
    }

    /// Whether one more counter makes the table grow.
    pub(super) fn is_full(&self) -> bool {
        self.counters.is_full()
    }
}

#[cfg(test)]
mod tests {
    use foldhash::quality::RandomState;

    use super::*;
    use crate::quota::Quota;
    use crate::store::Charge;
    use crate::{Key, PolicyName};

    #[test]
    fn r39_a_table_that_runs_empty_returns_its_memory_wherever_the_hand_is() {
        let (budget, seed) = (Budget::new(10_000, usize::MAX), RandomState::default());
        let (mut shard, now) = (Shard::default(), 1_000_000);
        let policy = PolicyName::new("p").expect("a name");
        let quota = Quota::per_second(1);
        let terms = Terms::new(&quota, || 0).expect("a limit");
        for number in 0..5_000 {
            let key = Key::from(format!("key {number}").as_str());
            let identity = Identity::new(&Charge::new(&key, &policy, quota), &terms);
            let Place::New(mut entry) = shard.place(&identity, &terms, now, &budget, &seed) else {
                panic!("there is room");
            };
            entry.after(&terms, now, (now, 1), 1, &budget);
            shard.insert(identity.hash(&seed), entry);
        }
        let capacity = shard.counters.capacity();
        assert!(capacity >= 5_000);
        // Requests have moved the hand to the middle of the table.
        assert!(!shard.sweep(now, capacity / 2, &budget));
        for _ in 0..3 {
            while !shard.sweep(now + 1_000_000, 64, &budget) {}
        }
        assert_eq!((budget.keys(), budget.bytes()), (0, 0));
        assert!(
            shard.counters.capacity() < 64,
            "{} are left",
            shard.counters.capacity()
        );
    }
}
