//! A table that loses what has expired, a few places at a time.

use std::hash::BuildHasher;

use hashbrown::HashTable;

/// What a [`Table`] keeps.
pub(super) trait Kept {
    /// The hash that it is found by.
    fn hash(&self, seed: &impl BuildHasher) -> u64;

    /// Whether it equals nothing from now on.
    fn is_over(&mut self, now: u64) -> bool;
}

/// A hash table with a hand that walks its buckets to drop expired entries.
#[derive(Debug)]
pub(super) struct Table<E> {
    table: HashTable<E>,
    hand: usize,
}

impl<E> Default for Table<E> {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            hand: 0,
        }
    }
}

impl<E: Kept> Table<E> {
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl FnMut(&E) -> bool) -> Option<usize> {
        self.table.find_bucket_index(hash, is_it)
    }

    #[inline]
    pub(super) fn find_mut(&mut self, hash: u64, is_it: impl FnMut(&E) -> bool) -> Option<&mut E> {
        self.table.find_mut(hash, is_it)
    }

    pub(super) fn entry(&self, bucket: usize) -> &E {
        self.table
            .get_bucket(bucket)
            .expect("a bucket found under this lock")
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, bucket: usize) -> &mut E {
        self.table
            .get_bucket_mut(bucket)
            .expect("a bucket found under this lock")
    }

    pub(super) fn insert(&mut self, hash: u64, entry: E, seed: &impl BuildHasher) {
        self.table.insert_unique(hash, entry, |entry| entry.hash(seed));
    }

    pub(super) fn remove(&mut self, bucket: usize) -> Option<E> {
        let occupied = self.table.get_bucket_entry(bucket).ok()?;
        Some(occupied.remove().0)
    }

    /// Looks at the next `count` buckets and hands over what has expired. True when the hand has come round.
    pub(super) fn sweep(
        &mut self,
        now: u64,
        count: usize,
        seed: &impl BuildHasher,
        mut expired: impl FnMut(E),
    ) -> bool {
        if self.table.is_empty() {
            self.hand = 0;
            self.shrink(seed);
            return true;
        }
        for _ in 0..count {
            if self.hand >= self.table.num_buckets() {
                self.hand = 0;
                self.shrink(seed);
                return true;
            }
            let bucket = self.hand;
            self.hand += 1;
            if let Some(entry) = self.table.get_bucket_mut(bucket)
                && entry.is_over(now)
            {
                self.remove(bucket).into_iter().for_each(&mut expired);
            }
        }
        false
    }

    /// Returns a table's memory once most of it lies empty.
    fn shrink(&mut self, seed: &impl BuildHasher) {
        if self.table.capacity() > 8 && self.table.len() * 8 < self.table.capacity() {
            let target = self.table.len() * 2;
            self.table.shrink_to(target, |entry| entry.hash(seed));
        }
    }

    /// Whether one more entry makes the table grow.
    pub(super) fn is_full(&self) -> bool {
        self.table.len() == self.table.capacity()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.table.capacity()
    }
}
