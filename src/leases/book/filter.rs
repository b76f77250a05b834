//! Finds hot keys among all, in little room.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::store::Nanos;

/// In each shard.
const CELLS: usize = 512;

/// So many requests within a lifetime make a key hot: fewer are not worth a refill and what it leaves over.
const HOT: u64 = 5;

/// Counts the requests of keys, those that fall into one cell against each other, so that the most frequent one stays
/// (Misra and Gries, "Finding repeated elements", 1982, with one counter in each cell).
///
/// Without a lock, as nearly all keys are seen here and nowhere else: where two threads count in one cell at once, one of them has not
/// counted, so that a key may be found a request later.
#[derive(Default)]
pub(super) struct Filter {
    /// Made when first needed.
    cells: OnceLock<Box<[AtomicU64]>>,
}

/// What a cell's word holds: from the top, when its count began, whose it is, and the count, which is less than [`HOT`].
#[derive(Clone, Copy)]
struct Cell(u64);

const COUNT_BITS: u32 = 3;
const TAG_BITS: u32 = 21;
const SINCE: u32 = COUNT_BITS + TAG_BITS;
/// Times are counted in 2 to the power of this nanoseconds, about a microsecond, and come round within two weeks: a count that a key
/// left more than six days ago may be taken for one of now, and makes it hot a few requests early.
const TICK: u32 = 10;

impl Cell {
    const EMPTY: Self = Self(0);

    #[inline]
    const fn first(tag: u64, now: Nanos) -> Self {
        Self(now >> TICK << SINCE | tag << COUNT_BITS | 1)
    }

    #[inline]
    const fn count(self) -> u64 {
        self.0 % (1 << COUNT_BITS)
    }

    #[inline]
    const fn tag(self) -> u64 {
        self.0 >> COUNT_BITS & ((1 << TAG_BITS) - 1)
    }

    /// 0, if another thread began it at a later time.
    #[inline]
    fn age(self, now: Nanos) -> Nanos {
        let since = self.0 >> SINCE << SINCE;
        let age = (now >> TICK << SINCE).wrapping_sub(since).cast_signed();
        age.max(0).cast_unsigned() >> (SINCE - TICK)
    }
}

impl Filter {
    /// Counts a request. If its key has become hot, its requests within a lifetime.
    #[inline]
    pub(super) fn count(&self, hash: u64, now: Nanos, life: Nanos) -> Option<u64> {
        let cells = self
            .cells
            .get_or_init(|| (0..CELLS).map(|_| AtomicU64::new(0)).collect());
        let word = &cells[hash as usize % CELLS];
        let (cell, tag) = (Cell(word.load(Relaxed)), hash >> (u64::BITS - TAG_BITS));
        let (count, age) = (cell.count(), cell.age(now));
        let (next, found) = if count == 0 || age > life {
            (Cell::first(tag, now), None)
        } else if cell.tag() != tag {
            (Cell(cell.0 - 1), None)
        } else if count + 1 < HOT {
            (Cell(cell.0 + 1), None)
        } else {
            // What comes in a burst says little of the rate: at most ten times what was seen.
            let per_life = HOT.saturating_mul(life) / age.max(life / 10).max(1);
            (Cell::EMPTY, Some(per_life))
        };
        word.store(next.0, Relaxed);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Nanos = 1_000_000;

    /// The hash of a key. All fall into one cell.
    const fn hash(key: u64) -> u64 {
        key << (u64::BITS - TAG_BITS)
    }

    #[test]
    fn a_key_becomes_hot_by_its_rate() {
        for start in [0, 40 * 86_400_000 * MILLI + 123] {
            let filter = Filter::default();
            let count = |at: Nanos| filter.count(hash(1), start + at, MILLI);
            let mut hot = (0..5).map(|request| count(request * MILLI / 10));
            assert!(hot.by_ref().take(4).all(|hot| hot.is_none()));
            let per_life = hot.next().flatten().expect("it is hot");
            assert!((12..=13).contains(&per_life), "{per_life}");
            assert!((4..100).all(|request| count(request * MILLI / 10 * 3).is_none()));
        }
    }

    #[test]
    fn a_burst_is_not_taken_for_a_rate() {
        let filter = Filter::default();
        let hot: Vec<_> = (0..5).map(|_| filter.count(hash(1), MILLI, MILLI)).collect();
        assert_eq!(hot, [None, None, None, None, Some(50)]);
    }

    #[test]
    fn cold_keys_do_not_hide_a_hot_one() {
        let filter = Filter::default();
        let found = (0..100).any(|request| {
            let at = request * MILLI / 100;
            filter.count(hash(2 + request), at, MILLI);
            filter.count(hash(1), at + 1, MILLI);
            filter.count(hash(1), at + 2, MILLI).is_some()
        });
        assert!(found);
    }

    #[test]
    fn cold_keys_make_none_hot() {
        let filter = Filter::default();
        assert!((0..10_000).all(|key| filter.count(hash(key), key, MILLI).is_none()));
    }

    #[test]
    fn who_comes_late_with_an_earlier_time_is_counted() {
        let filter = Filter::default();
        let hot: Vec<_> = (0..5)
            .map(|request| filter.count(hash(1), 10 * MILLI - request * MILLI / 100, MILLI))
            .collect();
        assert_eq!(hot, [None, None, None, None, Some(50)]);
    }
}
