//! How much a store may hold.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Hard caps on keys and bytes, and what is held of them. Taken before memory is, so neither is ever exceeded. On
/// cache lines of its own, two as processors fetch them in pairs: every request reads what lies beside it.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Budget {
    max_keys: usize,
    max_bytes: usize,
    keys: AtomicUsize,
    bytes: AtomicUsize,
    overflowed: AtomicU64,
}

impl Budget {
    pub(super) fn new(max_keys: usize, max_bytes: usize) -> Self {
        Self {
            max_keys,
            max_bytes,
            keys: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            overflowed: AtomicU64::new(0),
        }
    }

    pub(super) fn take_key(&self, bytes: usize) -> bool {
        if !take(&self.keys, 1, self.max_keys) {
            return false;
        }
        let taken = self.take_bytes(bytes);
        if !taken {
            self.keys.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    pub(super) fn return_key(&self, bytes: usize) {
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.return_bytes(bytes);
    }

    pub(super) fn take_bytes(&self, bytes: usize) -> bool {
        take(&self.bytes, bytes, self.max_bytes)
    }

    /// Takes bytes beyond the cap: for the few counters that keys without room share.
    pub(super) fn add_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn return_bytes(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts what had to share or to shrink for want of room; the first time is worth a warning.
    pub(super) fn count_overflow(&self) {
        if self.overflowed.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                max_keys = self.max_keys,
                max_bytes = self.max_bytes,
                "the memory store is full: new keys share one counter per shard and policy until old ones \
                 expire; raise `max_keys` or `max_bytes` if this is ordinary traffic"
            );
        }
    }

    /// Whether there is no room for another key.
    pub(super) fn is_full(&self) -> bool {
        self.keys() >= self.max_keys || self.bytes() >= self.max_bytes
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }
}

fn take(held: &AtomicUsize, more: usize, max: usize) -> bool {
    held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
        held.checked_add(more).filter(|&sum| sum <= max)
    })
    .is_ok()
}
