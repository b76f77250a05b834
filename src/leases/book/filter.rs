//! Finds hot keys among all, in little room.

use crate::store::Nanos;

/// In each shard, 16 bytes each.
const CELLS: usize = 512;

/// So many requests within a lifetime make a key hot: fewer are not worth a refill and what it leaves over.
const HOT: u32 = 5;

/// Counts the requests of keys, those that fall into one cell against each other, so that the most frequent one stays
/// (Misra and Gries, "Finding repeated elements", 1982, with one counter in each cell).
#[derive(Default)]
pub(super) struct Filter {
    /// Made when first needed.
    cells: Box<[Cell]>,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    tag: u32,
    count: u32,
    since: Nanos,
}

impl Filter {
    /// Counts a request. If its key has become hot, its requests within a lifetime.
    #[inline]
    pub(super) fn count(&mut self, hash: u64, now: Nanos, life: Nanos) -> Option<u64> {
        if self.cells.is_empty() {
            self.cells = vec![Cell::default(); CELLS].into_boxed_slice();
        }
        let (place, tag) = (hash as usize % CELLS, (hash >> 16) as u32);
        let cell = &mut self.cells[place];
        let age = now.saturating_sub(cell.since);
        if age > life || cell.count == 0 {
            *cell = Cell {
                tag,
                count: 1,
                since: now,
            };
            return None;
        }
        if cell.tag != tag {
            cell.count -= 1;
            return None;
        }
        cell.count += 1;
        if cell.count < HOT {
            return None;
        }
        let count = u64::from(cell.count);
        *cell = Cell::default();
        // What comes in a burst says little of the rate: at most ten times what was seen.
        Some(count.saturating_mul(life) / age.max(life / 10).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_becomes_hot_by_its_rate() {
        let mut filter = Filter::default();
        let mut hot = (0..5).map(|request| filter.count(1, request * 100, 1_000));
        assert!(hot.by_ref().take(4).all(|hot| hot.is_none()));
        assert_eq!(hot.next(), Some(Some(5 * 1_000 / 400)));
        assert!((0..100).all(|request| filter.count(1, request * 300, 1_000).is_none()));
    }

    #[test]
    fn cold_keys_do_not_hide_a_hot_one() {
        let mut filter = Filter::default();
        let found = (0..100).any(|request| {
            filter.count(CELLS as u64 * (2 + request), request * 10, 1_000);
            filter.count(CELLS as u64, request * 10 + 1, 1_000);
            filter.count(CELLS as u64, request * 10 + 2, 1_000).is_some()
        });
        assert!(found);
    }
}
