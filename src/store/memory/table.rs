//! A table that loses what has expired, a few places at a time.

use hashbrown::HashTable;

/// What a [`Table`] keeps.
pub(super) trait Kept {
    /// From when on it equals nothing, if it is not written before.
    fn over_at(&mut self, now: u64) -> u64;
}

/// The longest that a sweep passes an entry by without looking at it, in microseconds.
const LONGEST_UNSEEN: u64 = 60_000_000;

/// A hash table with a hand that walks its buckets to drop expired entries.
///
/// Entries lie beside it, each by itself: a table is never more than 7/8 full and may be as little as 7/16, and it is moved
/// as it grows, so what lies in it must be small.
#[derive(Debug)]
pub(super) struct Table<E> {
    table: HashTable<Place<E>>,
    hand: usize,
}

/// Compared by the whole hash, so that nearly no other entry than the one that is looked for is read.
#[derive(Debug)]
struct Place<E> {
    hash: u64,
    /// When a sweep looks at the entry next. An hour's entry is read once a minute, and not each time that the hand
    /// comes by.
    look_at: u64,
    entry: Box<E>,
}

impl<E: Kept> Place<E> {
    /// Whether the entry equals nothing. It is read only if it may.
    fn is_over(&mut self, now: u64) -> bool {
        // Further ahead than any look: the clock was set back since.
        let is_due = self.look_at <= now || self.look_at - now > LONGEST_UNSEEN;
        if !is_due {
            return false;
        }
        let over_at = self.entry.over_at(now);
        self.look_at = over_at.min(now + LONGEST_UNSEEN);
        over_at <= now
    }
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
    /// Bytes that an entry takes at most, with its place.
    pub(super) const ENTRY_BYTES: usize = size_of::<Place<E>>() * 16 / 7 + size_of::<E>();

    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(&E) -> bool) -> Option<usize> {
        self.table
            .find_bucket_index(hash, |place| place.hash == hash && is_it(&place.entry))
    }

    #[inline]
    pub(super) fn find_mut(&mut self, hash: u64, is_it: impl Fn(&E) -> bool) -> Option<&mut E> {
        self.table
            .find_mut(hash, |place| place.hash == hash && is_it(&place.entry))
            .map(|place| &mut *place.entry)
    }

    pub(super) fn entry(&self, bucket: usize) -> &E {
        let place = self.table.get_bucket(bucket);
        &place.expect("a bucket found under this lock").entry
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, bucket: usize) -> &mut E {
        let place = self.table.get_bucket_mut(bucket);
        &mut place.expect("a bucket found under this lock").entry
    }

    pub(super) fn insert(&mut self, hash: u64, entry: Box<E>) {
        let place = Place {
            hash,
            look_at: 0,
            entry,
        };
        self.table.insert_unique(hash, place, |place| place.hash);
    }

    pub(super) fn remove(&mut self, bucket: usize) -> Option<Box<E>> {
        let occupied = self.table.get_bucket_entry(bucket).ok()?;
        Some(occupied.remove().0.entry)
    }

    /// Looks at the next `count` buckets and hands over what has expired. True when the hand has come round.
    pub(super) fn sweep(&mut self, now: u64, count: usize, mut expired: impl FnMut(&E)) -> bool {
        if self.table.is_empty() {
            self.hand = 0;
            self.shrink();
            return true;
        }
        for _ in 0..count {
            if self.hand >= self.table.num_buckets() {
                self.hand = 0;
                self.shrink();
                return true;
            }
            let bucket = self.hand;
            self.hand += 1;
            if let Some(place) = self.table.get_bucket_mut(bucket)
                && place.is_over(now)
                && let Some(entry) = self.remove(bucket)
            {
                expired(&entry);
            }
        }
        false
    }

    /// Returns a table's memory once most of it lies empty.
    fn shrink(&mut self) {
        if self.table.capacity() > 8 && self.table.len() * 8 < self.table.capacity() {
            let target = self.table.len() * 2;
            self.table.shrink_to(target, |place| place.hash);
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
