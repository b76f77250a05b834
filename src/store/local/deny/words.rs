//! Numbers that all may read while one writes.

use std::array;

use super::atomic::{AtomicU64, Ordering, fence};

/// Numbers that belong together, behind a sequence lock: who reads waits for nobody and writes nothing, so that cores that read the
/// same at once do not hold each other up.
pub(super) struct Words<const N: usize> {
    /// Odd while they are written. It never comes round: that many writings take centuries.
    version: AtomicU64,
    words: [AtomicU64; N],
}

/// Words that are being read. They may be those of several writings, which is found out when all are read: nothing but that there
/// is nothing to be read may be concluded from them before.
pub(super) struct Reading<'a, const N: usize>(&'a [AtomicU64; N]);

impl<const N: usize> Words<N> {
    pub(super) fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            words: array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// What `read` takes out, if all of it was written together. `None` also while they are written: not to wait is worth more than
    /// to know.
    #[inline(always)]
    pub(super) fn read<T>(&self, read: impl FnOnce(Reading<'_, N>) -> Option<T>) -> Option<T> {
        let version = self.version.load(Ordering::Acquire);
        if version % 2 == 1 {
            return None;
        }
        let value = read(Reading(&self.words))?;
        // Whoever has read a word of a later writing sees the version of that writing, too.
        fence(Ordering::Acquire);
        (self.version.load(Ordering::Relaxed) == version).then_some(value)
    }

    /// Replaces them. One at a time: who holds the lock that goes with them.
    pub(super) fn write(&self, words: &[u64; N]) {
        let version = self.version.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, new) in self.words.iter().zip(words) {
            word.store(*new, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }
}

impl<const N: usize> Reading<'_, N> {
    #[inline(always)]
    pub(super) fn word(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }
}
