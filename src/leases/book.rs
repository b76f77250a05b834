//! Units that were taken ahead, and which keys are worth it. No clock and no I/O: times are given.

mod demand;
mod entry;
mod filter;
#[cfg(test)]
mod tests;

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;

use self::entry::Entry;
pub(super) use self::entry::{Lot, Return};
use self::filter::Filter;
use crate::engine::OwnedCharge;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::settler::Age;
use crate::store::{Charge, ChargeState, KnownOutcome, Mode, Nanos, Outcome, nanos};

const SHARDS: usize = 64;

/// Keys with units taken ahead, in all: about 400 bytes each. More of them ask the store, as all others do.
const MOST_ENTRIES: usize = 65_536;

/// What this instance has taken ahead.
pub(super) struct Book {
    shards: Box<[Lock<Shard>]>,
    shortest_life: AtomicU64,
}

#[derive(Default)]
struct Shard {
    entries: HashTable<Entry>,
    filter: Filter,
}

/// A charge of a policy with a lease, and when it is asked for.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) hash: u64,
    pub(super) charge: &'a Charge<'a>,
    pub(super) lease: &'a Lease,
    pub(super) now: Nanos,
    /// What was taken before is void.
    pub(super) voided: Nanos,
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

impl Book {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Lock::default()).collect(),
            shortest_life: AtomicU64::new(Nanos::MAX),
        }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // The lower bits choose the place in a table.
        let shard = (hash >> 32) as usize % SHARDS;
        self.shards[shard].lock()
    }

    /// Pays a charge of what was taken ahead, if enough is there.
    #[inline]
    pub(super) fn debit(&self, wanted: &Wanted<'_>) -> Debit {
        let mut shard = self.shard(wanted.hash);
        let shard = &mut *shard;
        match shard
            .entries
            .find_mut(wanted.hash, |entry| entry.is_of(wanted.hash, wanted.charge))
        {
            Some(entry) => entry.debit(wanted),
            None => {
                let life = shard.meet(wanted);
                if let Some(life) = life {
                    self.shortest_life.fetch_min(life, Ordering::Relaxed);
                }
                Debit {
                    paid: None,
                    refill: None,
                    is_new: life.is_some(),
                    is_hot: life.is_some(),
                }
            }
        }
    }

    /// Puts back what was paid with this stamp. If that lot is gone, it stays charged.
    pub(super) fn credit(&self, hash: u64, charge: &Charge<'_>, paid: &KnownOutcome) {
        let mut shard = self.shard(hash);
        let entry = shard.entries.find_mut(hash, |entry| entry.is_of(hash, charge));
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
        let mut shard = self.shard(hash);
        let entry = shard.entries.find_mut(hash, |entry| entry.is_of(hash, charge));
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
        let mut shard = self.shard(refill.hash);
        let charge = refill.charge.borrow();
        let entry = shard
            .entries
            .find_mut(refill.hash, |entry| entry.is_of(refill.hash, &charge));
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
            let mut shard = shard.lock();
            shard.entries.retain(|entry| {
                entry.sweep((now, next), voided(entry.hash()), all, &mut returns);
                !entry.is_over(now)
            });
            let entries = &mut shard.entries;
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
        self.shards.iter().all(|shard| shard.lock().entries.is_empty())
    }
}

impl Shard {
    /// Counts a charge whose key has no entry. If it is hot, it gets one, whose lease lives so long.
    #[inline]
    fn meet(&mut self, wanted: &Wanted<'_>) -> Option<Nanos> {
        let Charge {
            quota, cost, mode, ..
        } = wanted.charge;
        // What a lease could not pay makes nothing hot.
        let payable = 1..=wanted.lease.most(quota);
        if *mode != Mode::Enforce || !payable.contains(cost) || !Lease::suits(quota) {
            return None;
        }
        let life = nanos(wanted.lease.life(quota));
        let per_life = self.filter.count(wanted.hash, wanted.now, life)?;
        if self.entries.len() >= MOST_ENTRIES / SHARDS {
            return None;
        }
        let entry = Entry::new(wanted, life, per_life);
        self.entries.insert_unique(wanted.hash, entry, Entry::hash);
        Some(life)
    }
}
