//! Units that were taken ahead, and which keys are worth it. No clock and no I/O: times are given.

mod demand;
mod entry;
mod filter;
mod kept;
#[cfg(test)]
mod tests;

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;

use self::entry::Entry;
pub(super) use self::entry::{Lot, Return};
use self::filter::Filter;
use self::kept::Kept;
use crate::engine::OwnedCharge;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::settler::Age;
use crate::store::{Charge, ChargeState, KnownOutcome, Mode, Nanos, Outcome};

const SHARDS: usize = 64;

/// Keys with units taken ahead, in all: about 400 bytes each. More of them ask the store, as all others do.
const MOST_ENTRIES: usize = 65_536;

/// What this instance has taken ahead.
pub(super) struct Book {
    shards: Box<[Shard]>,
    shortest_life: AtomicU64,
}

#[derive(Default)]
struct Shard {
    /// Of all keys that have no entry.
    filter: Filter,
    /// Of those that have one.
    kept: Kept,
    entries: Lock<HashTable<Entry>>,
}

/// A charge of a policy with a lease, and when it is asked for.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) hash: u64,
    pub(super) charge: &'a Charge<'a>,
    pub(super) lease: &'a Lease,
    pub(super) now: Nanos,
}

/// Units to take ahead.
#[derive(Clone, Debug)]
pub(super) struct Refill {
    pub(super) hash: u64,
    /// Of one unit.
    pub(super) charge: OwnedCharge,
    pub(super) want: u32,
    pub(super) life: Nanos,
}

/// Whether a charge could be paid, and what to take for the next ones.
pub(super) struct Debit {
    pub(super) paid: Option<KnownOutcome>,
    pub(super) refill: Option<Refill>,
    /// Whether the key has just become hot.
    pub(super) is_new: bool,
    /// Whether it is worth taking anything ahead.
    pub(super) is_hot: bool,
}

impl Debit {
    const fn none(is_hot: bool) -> Self {
        Self {
            paid: None,
            refill: None,
            is_new: false,
            is_hot,
        }
    }
}

impl Book {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            shortest_life: AtomicU64::new(Nanos::MAX),
        }
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard {
        // The lower bits choose the place in a table.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    fn entries(&self, hash: u64) -> MutexGuard<'_, HashTable<Entry>> {
        self.shard(hash).entries.lock()
    }

    /// Pays a charge of what was taken ahead, if enough is there. What was taken before `voided` is void: nearly all keys have
    /// nothing, and need not know it.
    #[inline]
    pub(super) fn debit(&self, wanted: &Wanted<'_>, voided: impl FnOnce() -> Nanos) -> Debit {
        let shard = self.shard(wanted.hash);
        if shard.kept.may_have(wanted.hash) {
            let mut entries = shard.entries.lock();
            let entry = entries.find_mut(wanted.hash, |entry| entry.is_of(wanted.hash, wanted.charge));
            if let Some(entry) = entry {
                return entry.debit(wanted, voided());
            }
        }
        match shard.meet(wanted) {
            Met::Cold => Debit::none(false),
            Met::Hot => Debit::none(true),
            Met::New(life) => {
                self.shortest_life.fetch_min(life, Ordering::Relaxed);
                Debit {
                    is_new: true,
                    ..Debit::none(true)
                }
            }
        }
    }

    /// Puts back what was paid with this stamp. If that lot is gone, it stays charged.
    pub(super) fn credit(&self, hash: u64, charge: &Charge<'_>, paid: &KnownOutcome) {
        let mut entries = self.entries(hash);
        let entry = entries.find_mut(hash, |entry| entry.is_of(hash, charge));
        if let Some(entry) = entry {
            entry.credit(paid.stamp, charge.cost);
        }
    }

    /// Learns what the store says of a counter. What is to be given back, if it denied.
    pub(super) fn observe(
        &self,
        (hash, charge): (u64, &Charge<'_>),
        (state, is_denied): (&ChargeState, bool),
        voided: Nanos,
    ) -> Vec<Return> {
        let mut entries = self.entries(hash);
        let entry = entries.find_mut(hash, |entry| entry.is_of(hash, charge));
        entry.map_or_else(Vec::new, |entry| entry.observe((state, is_denied), voided))
    }

    /// Keeps what a refill brought: nothing, if the store gave no answer. What is to be given back, as it cannot be spent.
    pub(super) fn fill(
        &self,
        refill: &Refill,
        outcome: Option<&Outcome>,
        (sent, now, charged): (Nanos, Nanos, Age),
        voided: Nanos,
    ) -> Option<Return> {
        let mut entries = self.entries(refill.hash);
        let charge = refill.charge.borrow();
        let entry = entries.find_mut(refill.hash, |entry| entry.is_of(refill.hash, &charge));
        let lot = outcome.and_then(|outcome| Lot::of(outcome, (sent, charged), refill.life));
        // What is void was forgotten by the store: there is nothing to give back.
        let lot = lot.filter(|_| sent > voided);
        match entry {
            Some(entry) => entry.fill(outcome, lot, now),
            None => lot.map(|lot| Return::of(&refill.charge, &lot)),
        }
    }

    /// Takes out what is not going to be spent any more: what ends before the next sweep, what nobody has asked for lately, or,
    /// when `all`, everything.
    pub(super) fn sweep(
        &self,
        (now, next): (Nanos, Nanos),
        voided: impl Fn(u64) -> Nanos,
        all: bool,
    ) -> Vec<Return> {
        let mut returns = Vec::new();
        for shard in &self.shards {
            let entries = &mut *shard.entries.lock();
            let before = entries.len();
            entries.retain(|entry| {
                entry.sweep((now, next), voided(entry.hash()), all, &mut returns);
                !entry.is_over(now)
            });
            if entries.len() < before {
                shard.kept.set(entries.iter().map(Entry::hash));
            }
            if entries.len() * 4 < entries.capacity() {
                entries.shrink_to(entries.len() * 2, Entry::hash);
            }
        }
        returns
    }

    /// Of all that were ever taken; the longest time if there was none.
    pub(super) fn shortest_life(&self) -> Nanos {
        self.shortest_life.load(Ordering::Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.entries.lock().is_empty())
    }
}

/// What a charge says of a key that seemed to have no entry.
enum Met {
    Cold,
    /// It has one.
    Hot,
    /// It has one since this charge, whose leases live so long.
    New(Nanos),
}

impl Shard {
    /// Counts a charge whose key has no entry. If it is hot, it gets one.
    #[inline]
    fn meet(&self, wanted: &Wanted<'_>) -> Met {
        let Charge {
            quota, cost, mode, ..
        } = wanted.charge;
        // What a lease could not pay makes nothing hot.
        let payable = 1..=wanted.lease.most(quota);
        if *mode != Mode::Enforce || !payable.contains(cost) || !Lease::suits(quota) {
            return Met::Cold;
        }
        let life = wanted.lease.life(quota);
        match self.filter.count(wanted.hash, wanted.now, life) {
            Some(per_life) => self.begin(wanted, life, per_life),
            None => Met::Cold,
        }
    }

    #[cold]
    fn begin(&self, wanted: &Wanted<'_>, life: Nanos, per_life: u64) -> Met {
        let mut entries = self.entries.lock();
        let is_of = |entry: &Entry| entry.is_of(wanted.hash, wanted.charge);
        if entries.find(wanted.hash, is_of).is_some() {
            // Another request was counted at the same time.
            return Met::Hot;
        }
        if entries.len() >= MOST_ENTRIES / SHARDS {
            return Met::Cold;
        }
        let entry = Entry::new(wanted, life, per_life);
        entries.insert_unique(wanted.hash, entry, Entry::hash);
        self.kept.add(wanted.hash);
        Met::New(life)
    }
}
