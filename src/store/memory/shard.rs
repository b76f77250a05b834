//! One part of the table, under one lock.

use std::hash::BuildHasher;

use hashbrown::HashTable;

use super::budget::Budget;
use super::entry::{Entry, Identity};
use super::held::Held;
use crate::algorithm::Terms;

/// Counters that keys without room may share, per shard: one for each policy and window. They are not counted
/// against the cap in keys, so that there is one when it is reached.
const MAX_SHARED: usize = 32;

/// A hash table with a hand that walks its buckets to drop expired entries, a few at a time.
#[derive(Debug, Default)]
pub(super) struct Shard {
    table: HashTable<Entry>,
    hand: usize,
    shared: usize,
}

/// Where the counter of a charge is, or will be once it is charged.
#[derive(Debug)]
pub(super) enum Place {
    Own(usize),
    /// A counter of its own, whose first bytes are taken.
    New(Held),
    Shared(usize),
    NewShared(Held),
    /// There is no room for a counter of any kind: nothing fits.
    Nowhere,
}

impl Shard {
    pub(super) fn find(&self, hash: u64, identity: &Identity<'_>) -> Option<usize> {
        self.table.find_bucket_index(hash, |entry| {
            entry.hash == hash && entry.identity().same_counter(identity)
        })
    }

    pub(super) fn entry(&self, bucket: usize) -> &Entry {
        self.table
            .get_bucket(bucket)
            .expect("a bucket found under this lock")
    }

    pub(super) fn entry_mut(&mut self, bucket: usize) -> &mut Entry {
        self.table
            .get_bucket_mut(bucket)
            .expect("a bucket found under this lock")
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
            self.entry_mut(bucket).repair(*terms, now);
        }
        let first_bytes = Entry::first_bytes(identity, terms);
        if budget.take_key(first_bytes) {
            let held = match common {
                Some(bucket) => self.entry(bucket).held.copy(terms, budget),
                None => Some(Held::new(terms, now)),
            };
            if let Some(held) = held {
                return Place::New(held);
            }
            budget.return_key(first_bytes);
        }
        budget.count_overflow();
        match common {
            Some(bucket) => Place::Shared(bucket),
            None if self.shared < MAX_SHARED => Place::NewShared(Held::shared(terms, now)),
            None => Place::Nowhere,
        }
    }

    /// Puts a charged counter into the table.
    pub(super) fn insert(&mut self, entry: Entry) {
        self.shared += usize::from(entry.is_shared());
        self.table.insert_unique(entry.hash, entry, |entry| entry.hash);
    }

    pub(super) fn remove(&mut self, bucket: usize, budget: &Budget) {
        let Ok(occupied) = self.table.get_bucket_entry(bucket) else {
            return;
        };
        let (entry, _) = occupied.remove();
        if entry.is_shared() {
            self.shared -= 1;
            budget.return_bytes(entry.extra_bytes());
        } else {
            budget.return_key(entry.bytes());
        }
    }

    /// Looks at the next `count` buckets and drops what has expired. True when the hand has come round.
    pub(super) fn sweep(&mut self, now: u64, count: usize, budget: &Budget) -> bool {
        for _ in 0..count {
            if self.hand >= self.table.num_buckets() {
                self.hand = 0;
                self.shrink();
                return true;
            }
            let bucket = self.hand;
            self.hand += 1;
            if let Some(entry) = self.table.get_bucket_mut(bucket) {
                // An expiry that lies too far ahead was written under another clock.
                if entry.expires_at > now + 2 * entry.terms.window {
                    entry.repair(entry.terms, now);
                }
                if entry.expires_at <= now {
                    self.remove(bucket, budget);
                }
            }
        }
        if self.table.is_empty() {
            self.hand = 0;
            self.shrink();
            return true;
        }
        false
    }

    /// Returns a table's memory once most of it lies empty.
    fn shrink(&mut self) {
        if self.table.capacity() > 8 && self.table.len() * 8 < self.table.capacity() {
            let target = self.table.len() * 2;
            self.table.shrink_to(target, |entry| entry.hash);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::hash_map::RandomState;

    use super::*;
    use crate::quota::Quota;
    use crate::store::Charge;
    use crate::{Key, PolicyName};

    #[test]
    fn r39_a_table_that_runs_empty_returns_its_memory_wherever_the_hand_is() {
        let (budget, seed) = (Budget::new(10_000, usize::MAX), RandomState::new());
        let (mut shard, now) = (Shard::default(), 1_000_000);
        let policy = PolicyName::new("p").expect("a name");
        let quota = Quota::per_second(1);
        let terms = Terms::new(&quota, || 0).expect("a limit");
        for number in 0..5_000 {
            let key = Key::from(format!("key {number}").as_str());
            let identity = Identity::new(&Charge::new(&key, &policy, quota), &terms);
            let Place::New(held) = shard.place(&identity, &terms, now, &budget, &seed) else {
                panic!("there is room");
            };
            let mut entry = Entry::new(&identity, identity.hash(&seed), terms, held);
            entry.charge(now, now, 1, &budget);
            shard.insert(entry);
        }
        let capacity = shard.table.capacity();
        assert!(capacity >= 5_000);
        // Requests have moved the hand to the middle of the table.
        assert!(!shard.sweep(now, capacity / 2, &budget));
        let mut rounds = 0;
        while rounds < 3 && !shard.is_empty() {
            while !shard.is_empty() && !shard.sweep(now + 1_000_000, 64, &budget) {}
            rounds += 1;
        }
        assert_eq!((budget.keys(), budget.bytes()), (0, 0));
        assert!(shard.table.capacity() < 64, "{} are left", shard.table.capacity());
    }
}
