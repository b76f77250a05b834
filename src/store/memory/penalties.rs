//! What is kept for penalties.

use std::hash::{BuildHasher, Hasher};

use smallvec::SmallVec;

use super::Shared;
use super::budget::Budget;
use super::kept_key::KeptKey;
use super::table::{Kept, Table};
use crate::algorithm::Offences;
use crate::penalty::Penalty;
use crate::policy::{PolicyName, SharedName};
use crate::store::{Ask, Charge};

/// Whose offences they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offender<'a> {
    key: &'a [u8],
    policy: &'a PolicyName,
}

impl<'a> Offender<'a> {
    pub(super) fn of(charge: &Charge<'a>) -> Self {
        Self {
            key: charge.key.as_bytes(),
            policy: charge.policy,
        }
    }

    pub(super) fn hash(&self, seed: &impl BuildHasher) -> u64 {
        let mut hasher = seed.build_hasher();
        hasher.write(self.key);
        hasher.write_u64(self.policy.text_hash());
        hasher.finish()
    }
}

/// One key's offences under one policy.
#[derive(Debug)]
pub(super) struct Record {
    key: KeptKey,
    policy: SharedName,
    offences: Offences,
    /// From this time on the state equals no state.
    expires_at: u64,
    /// The most that it lasts from when it was written.
    lasts: u64,
}

impl Record {
    fn is_of(&self, offender: &Offender<'_>) -> bool {
        self.key == *offender.key && self.policy.is(offender.policy)
    }

    /// What a record takes from the budget: itself and its place in the table, and a long key.
    fn bytes(key: &[u8]) -> usize {
        Table::<Self>::ENTRY_BYTES + KeptKey::heap_bytes(key)
    }

    fn write(&mut self, offences: Offences, penalty: &Penalty) {
        self.offences = offences;
        self.expires_at = offences.expires_at(penalty);
        self.lasts = offences.lasts(penalty);
    }
}

impl Kept for Record {
    /// A time of expiry that lies too far ahead was written under another clock, and the next check repairs the state.
    fn over_at(&mut self, now: u64) -> u64 {
        self.expires_at = self.expires_at.min(now + self.lasts);
        self.expires_at
    }
}

/// The records of one shard. Behind a pointer, as most shards have none.
#[derive(Debug, Default)]
pub(super) struct Penalties {
    records: Option<Box<Table<Record>>>,
}

/// Buckets that an ask with a new record looks at for expired ones, where it would make the table grow.
const SWEEP_PER_NEW_RECORD: usize = 8;

impl Penalties {
    /// The offences of one who has a record.
    pub(super) fn get(&self, hash: u64, offender: &Offender<'_>) -> Option<Offences> {
        let records = self.records.as_ref()?;
        let bucket = records.find(hash, |record| record.is_of(offender))?;
        Some(records.entry(bucket).offences)
    }

    /// Keeps offences in a record. False if there is none and no room for it.
    pub(super) fn put(
        &mut self,
        (hash, offender): (u64, &Offender<'_>),
        offences: Offences,
        penalty: &Penalty,
        now: u64,
        budget: &Budget,
    ) -> bool {
        let records = self.records.get_or_insert_default();
        if let Some(record) = records.find_mut(hash, |record| record.is_of(offender)) {
            record.write(offences, penalty);
            return true;
        }
        if records.is_full() || budget.is_full() {
            sweep(records, now, SWEEP_PER_NEW_RECORD, budget);
        }
        if !budget.take_key(Record::bytes(offender.key)) {
            budget.count_overflow();
            return false;
        }
        let mut record = Box::new(Record {
            key: KeptKey::new(offender.key),
            policy: offender.policy.shared(),
            offences,
            expires_at: 0,
            lasts: 0,
        });
        record.write(offences, penalty);
        records.insert(hash, record);
        true
    }

    pub(super) fn remove(&mut self, hash: u64, offender: &Offender<'_>, budget: &Budget) {
        let Some(records) = &mut self.records else { return };
        let found = records.find(hash, |record| record.is_of(offender));
        if let Some(record) = found.and_then(|bucket| records.remove(bucket)) {
            budget.return_key(Record::bytes(record.key.as_bytes()));
        }
    }

    /// See [`Table::sweep`].
    pub(super) fn sweep(&mut self, now: u64, count: usize, budget: &Budget) -> bool {
        match &mut self.records {
            Some(records) => sweep(records, now, count, budget),
            None => true,
        }
    }
}

fn sweep(records: &mut Table<Record>, now: u64, count: usize, budget: &Budget) -> bool {
    records.sweep(now, count, |record| {
        budget.return_key(Record::bytes(record.key.as_bytes()));
    })
}

/// Blocks the keys of all charges with a penalty; for no time, forgets what they did. False if there was no room.
pub(super) fn block(shared: &Shared, ask: &Ask<'_>, time: u64) -> bool {
    let mut blocked = true;
    let mut done: SmallVec<[Offender<'_>; 4]> = SmallVec::new();
    for charge in ask.charges {
        let offender = Offender::of(charge);
        let Some(penalty) = charge.penalty.filter(|_| !done.contains(&offender)) else {
            continue;
        };
        done.push(offender);
        let hash = offender.hash(&shared.seed);
        let penalties = &mut shared.shards[shared.shard_of(hash)].lock().penalties;
        if time == 0 {
            penalties.remove(hash, &offender, &shared.budget);
            continue;
        }
        let now = shared.clock.now();
        let mut offences = penalties.get(hash, &offender).unwrap_or_default();
        offences.repair(penalty, now);
        offences.block(penalty, now, time);
        blocked &= penalties.put((hash, &offender), offences, penalty, now, &shared.budget);
    }
    blocked
}
