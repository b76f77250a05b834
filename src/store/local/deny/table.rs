//! Where denials are remembered.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::denial::{Denial, Identity, WORDS};
use super::words::Words;
use crate::lock::Lock;

/// Denials by hash: sets of a few slots each, of which a denial may stand in any. Who looks one up writes nothing; who remembers one
/// has the set to itself. Whatever comes, a set keeps its size: a new denial takes the place of the one that ends first, and be it before
/// that one, for who was denied just now is likely to come again.
pub(super) struct Table {
    /// Made when they are first needed.
    sets: Box<[OnceLock<Box<Set>>]>,
    /// Of each set in use.
    slots: usize,
    len: AtomicUsize,
}

const SLOTS: usize = 8;
/// More would take over 32 MB before there is any.
const MAX_SIZE: usize = 1 << 24;

struct Set {
    /// Of what is in each slot, 0 if nothing is: most lookups need no more.
    hashes: [AtomicU64; SLOTS],
    slots: [Words<WORDS>; SLOTS],
    writing: Lock<()>,
}

impl Table {
    /// Of so many denials, or a few less.
    pub(super) fn new(size: usize) -> Self {
        let slots = size.clamp(1, SLOTS);
        let sets = (size.min(MAX_SIZE) / slots).max(1);
        Self {
            sets: (0..sets).map(|_| OnceLock::new()).collect(),
            slots,
            len: AtomicUsize::new(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    fn set(&self, hash: u64) -> &OnceLock<Box<Set>> {
        &self.sets[((u128::from(hash) * self.sets.len() as u128) >> 64) as usize]
    }

    /// The denial of this identity.
    #[inline(always)]
    pub(super) fn find(&self, hash: u64, identity: &Identity<'_>) -> Option<Denial> {
        let set = self.set(hash).get()?;
        let mut slots = set.hashes.iter().zip(&set.slots);
        slots.find_map(|(of_slot, slot)| {
            if of_slot.load(Ordering::Relaxed) != tag(hash) {
                return None;
            }
            slot.read(|words| identity.is(&words).then(|| Denial::read(&words)))
        })
    }

    /// Remembers a denial, unless the one of this identity is as good.
    pub(super) fn remember(
        &self,
        hash: u64,
        identity: &Identity<'_>,
        denial: &Denial,
        is_as_good: impl FnOnce(&Denial) -> bool,
    ) {
        let set = self.set(hash).get_or_init(|| Box::new(Set::new()));
        let _writing = set.writing.lock();
        let slots = || set.hashes.iter().zip(&set.slots).take(self.slots);
        let same = slots().find_map(|(of_slot, slot)| {
            if of_slot.load(Ordering::Relaxed) != tag(hash) {
                return None;
            }
            let known = slot.read(|words| identity.is(&words).then(|| Denial::read(&words)))?;
            Some((of_slot, slot, known))
        });
        let (of_slot, slot) = match same {
            Some((_, _, known)) if is_as_good(&known) => return,
            Some((of_slot, slot, _)) => (of_slot, slot),
            // An empty one has ended.
            None => {
                let ends = |slot: &Words<WORDS>| slot.read(|words| Some(Denial::until(&words)));
                let Some(first) = slots().min_by_key(|(_, slot)| ends(slot)) else {
                    return;
                };
                first
            }
        };
        if of_slot.load(Ordering::Relaxed) == 0 {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        slot.write(&identity.with(denial));
        of_slot.store(tag(hash), Ordering::Relaxed);
    }
}

/// What stands for a hash: 0 is nothing.
const fn tag(hash: u64) -> u64 {
    if hash == 0 { 1 } else { hash }
}

impl Set {
    fn new() -> Self {
        Self {
            hashes: Default::default(),
            slots: std::array::from_fn(|_| Words::new()),
            writing: Lock::default(),
        }
    }
}
