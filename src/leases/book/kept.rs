//! Which keys may be kept, for who does not wait to know.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORDS: usize = 8;
const BITS: usize = WORDS * u64::BITS as usize;

/// A bit of each key that is kept: all whose bits are not set are not. Read by all, and written by who holds the lock of what is kept:
/// who reads just before a key is kept has come before it.
#[derive(Default)]
pub(super) struct Kept([AtomicU64; WORDS]);

impl Kept {
    #[inline]
    pub(super) fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = place(hash);
        self.0[word].load(Relaxed) & bit != 0
    }

    pub(super) fn add(&self, hash: u64) {
        let (word, bit) = place(hash);
        self.0[word].fetch_or(bit, Relaxed);
    }

    /// From now on, these are kept. Who reads misses none that were before, too.
    pub(super) fn set(&self, hashes: impl Iterator<Item = u64>) {
        let mut all = [0; WORDS];
        for hash in hashes {
            let (word, bit) = place(hash);
            all[word] |= bit;
        }
        for (word, new) in self.0.iter().zip(all) {
            word.store(new, Relaxed);
        }
    }
}

#[inline]
const fn place(hash: u64) -> (usize, u64) {
    let index = hash as usize % BITS;
    (index / u64::BITS as usize, 1 << (index % u64::BITS as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_what_was_added_until_it_is_left_out() {
        let kept = Kept::default();
        let all = [0, 63, 64, BITS as u64 - 1, 1 << 40 | 7];
        all.into_iter().for_each(|hash| kept.add(hash));
        assert!(all.into_iter().all(|hash| kept.may_have(hash)));
        assert_eq!((0..BITS as u64).filter(|hash| kept.may_have(*hash)).count(), 5);
        kept.set(all.into_iter().skip(2));
        assert_eq!(
            all.map(|hash| kept.may_have(hash)),
            [false, false, true, true, true]
        );
    }
}
