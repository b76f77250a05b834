//! One ask, decided under the locks of its counters.

use std::sync::MutexGuard;
use std::time::Duration;

use smallvec::SmallVec;

use super::Shared;
use super::entry::{Entry, Identity};
use super::shard::{Place, Shard};
use crate::algorithm::{MAX_SLACK, State, Terms};
use crate::clock::micros;
use crate::store::{Ask, Charge, ChargeState, Mode, Outcome, Retry, Stamp};

/// Buckets that an ask with a new key looks at for expired entries.
const SWEEP_PER_NEW_KEY: usize = 8;

/// The locked counters of an ask.
pub(super) struct Decide<'a> {
    shared: &'a Shared,
    locks: SmallVec<[(usize, MutexGuard<'a, Shard>); 1]>,
    /// Read under the locks, so that times in one shard only grow with the clock.
    now: u64,
    counters: SmallVec<[Counter<'a>; 1]>,
    /// The counter of each charge; none if its quota is unlimited.
    charges: SmallVec<[(Charge<'a>, Option<usize>); 1]>,
}

/// A counter and what one grant takes of it.
struct Counter<'a> {
    identity: Identity<'a>,
    hash: u64,
    lock: usize,
    terms: Terms,
    place: Place,
    enforced: u64,
}

impl<'a> Decide<'a> {
    pub(super) fn new(shared: &'a Shared, ask: &Ask<'a>) -> Self {
        let mut this = Self {
            shared,
            locks: SmallVec::new(),
            now: 0,
            counters: SmallVec::new(),
            charges: SmallVec::new(),
        };
        for charge in ask.charges {
            let counter = Terms::new(&charge.quota, || stable_hash(charge.key.as_bytes()))
                .map(|terms| this.counter(Identity::new(charge, &terms), terms));
            this.charges.push((*charge, counter));
        }
        this.lock();
        this.now = shared.clock.now();
        this.place();
        for (charge, counter) in &this.charges {
            if let (Some(counter), Mode::Enforce) = (counter, charge.mode) {
                let enforced = &mut this.counters[*counter].enforced;
                *enforced = enforced.saturating_add(charge.cost);
            }
        }
        this
    }

    /// The counter of an identity: charges on one counter add up, under the terms of the first.
    fn counter(&mut self, identity: Identity<'a>, terms: Terms) -> usize {
        let known = self
            .counters
            .iter()
            .position(|counter| counter.identity.same_counter(&identity));
        known.unwrap_or_else(|| {
            self.counters.push(Counter {
                identity,
                hash: identity.hash(&self.shared.seed),
                lock: 0,
                terms,
                place: Place::Nowhere,
                enforced: 0,
            });
            self.counters.len() - 1
        })
    }

    /// Locks the shards of all counters, in their order, so that no two asks wait for each other.
    fn lock(&mut self) {
        let shard_of = |hash: u64| (hash >> 32) as usize & (self.shared.shards.len() - 1);
        let mut shards: SmallVec<[usize; 4]> = self
            .counters
            .iter()
            .map(|counter| shard_of(counter.hash))
            .collect();
        shards.sort_unstable();
        shards.dedup();
        for shard in shards {
            self.locks.push((shard, self.shared.shards[shard].lock()));
        }
        for counter in &mut self.counters {
            let shard = shard_of(counter.hash);
            counter.lock = self
                .locks
                .iter()
                .position(|(locked, _)| *locked == shard)
                .unwrap_or(0);
        }
    }

    /// Finds each counter, or room for it.
    fn place(&mut self) {
        let mut missing = false;
        for counter in &mut self.counters {
            let shard = &mut self.locks[counter.lock].1;
            match shard.find(counter.hash, &counter.identity) {
                Some(bucket) => counter.place = Place::Own(bucket),
                None => missing = true,
            }
        }
        if missing {
            self.place_missing();
        }
        for counter in &self.counters {
            if let Place::Own(bucket) | Place::Shared(bucket) = counter.place {
                self.locks[counter.lock]
                    .1
                    .entry_mut(bucket)
                    .repair(counter.terms, self.now);
            }
        }
    }

    fn place_missing(&mut self) {
        let budget = &self.shared.budget;
        // Sweeping moves buckets, so it comes before any is looked up for good.
        for (_, shard) in &mut self.locks {
            shard.sweep(self.now, SWEEP_PER_NEW_KEY, budget);
        }
        for index in 0..self.counters.len() {
            let counter = &mut self.counters[index];
            let shard = &mut self.locks[counter.lock].1;
            counter.place = match shard.find(counter.hash, &counter.identity) {
                Some(bucket) => Place::Own(bucket),
                None => shard.place(
                    &counter.identity,
                    &counter.terms,
                    self.now,
                    budget,
                    &self.shared.seed,
                ),
            };
            if let Place::Shared(_) | Place::NewShared(_) = counter.place {
                counter.identity = counter.identity.shared();
                counter.hash = counter.identity.hash(&self.shared.seed);
                self.join_shared(index);
            }
        }
    }

    /// Two new keys of one ask may have to share one counter: their charges then add up.
    fn join_shared(&mut self, index: usize) {
        let (identity, lock) = (self.counters[index].identity, self.counters[index].lock);
        let first = self.counters[..index]
            .iter()
            .position(|other| other.lock == lock && other.identity.same_counter(&identity));
        if let Some(first) = first {
            for (_, counter) in &mut self.charges {
                if *counter == Some(index) {
                    *counter = Some(first);
                }
            }
        }
    }

    fn state(&self, index: usize) -> Option<&State> {
        let counter = &self.counters[index];
        match &counter.place {
            Place::Own(bucket) | Place::Shared(bucket) => {
                Some(&self.locks[counter.lock].1.entry(*bucket).held.state)
            }
            Place::New(held) | Place::NewShared(held) => Some(&held.state),
            Place::Nowhere => None,
        }
    }

    fn free(&self, index: usize) -> u64 {
        let terms = &self.counters[index].terms;
        self.state(index).map_or(0, |state| state.free(terms, self.now))
    }

    /// How often `cost` fits, up to `want`.
    fn fits(&self, index: usize, cost: u64, want: u32) -> u32 {
        if cost == 0 {
            return if self.counters[index].terms.capacity == 0 {
                0
            } else {
                want
            };
        }
        u32::try_from(self.free(index) / cost).unwrap_or(want).min(want)
    }

    fn grants(&self, want: u32) -> u32 {
        let enforced = self
            .charges
            .iter()
            .filter(|(charge, _)| charge.mode == Mode::Enforce)
            .filter_map(|(_, counter)| *counter);
        enforced
            .map(|index| self.fits(index, self.counters[index].enforced, want))
            .min()
            .unwrap_or(want)
    }

    /// The time that stamps this ask's charges: not before any entry of its counters, and no further ahead
    /// than all of them take.
    fn stamp(&self, hold: Duration) -> u64 {
        let slacks = self.counters.iter().map(|counter| counter.terms.slack());
        let hold = slacks.fold(micros(hold).min(MAX_SLACK), u64::min);
        let tails = (0..self.counters.len())
            .filter_map(|index| Some(self.state(index)?.tail(&self.counters[index].terms)));
        tails.fold(self.now + hold, u64::max)
    }

    fn add(&mut self, index: usize, stamp: u64, units: u64) {
        let counter = &mut self.counters[index];
        let (shard, budget) = (&mut self.locks[counter.lock].1, &self.shared.budget);
        match &mut counter.place {
            Place::Own(bucket) | Place::Shared(bucket) => {
                shard.entry_mut(*bucket).charge(self.now, stamp, units, budget);
            }
            Place::New(held) | Place::NewShared(held) => {
                held.charge(&counter.terms, self.now, stamp, units, budget);
            }
            Place::Nowhere => {}
        }
    }

    pub(super) fn acquire(mut self, ask: &Ask<'_>) -> (Outcome, bool) {
        let granted = self.grants(ask.want);
        let stamp = self.stamp(ask.hold);
        let mut charged: SmallVec<[u32; 1]> = self.charges.iter().map(|_| granted).collect();
        // Enforced charges come first: what they need is no room for a shadow on the same counter.
        for mode in [Mode::Enforce, Mode::Shadow] {
            for at in 0..self.charges.len() {
                let (charge, Some(index)) = self.charges[at] else {
                    continue;
                };
                if charge.mode != mode {
                    continue;
                }
                if mode == Mode::Shadow {
                    charged[at] = self.fits(index, charge.cost, granted);
                }
                self.add(index, stamp, charge.cost.saturating_mul(u64::from(charged[at])));
            }
        }
        let outcome = self.outcome(granted, stamp, &charged);
        (outcome, self.keep(granted > 0))
    }

    pub(super) fn charge(mut self, ask: &Ask<'_>) -> (Outcome, bool) {
        let stamp = self.stamp(ask.hold);
        for at in 0..self.charges.len() {
            if let (charge, Some(index)) = self.charges[at] {
                self.add(index, stamp, charge.cost);
            }
        }
        let charged: SmallVec<[u32; 1]> = self.charges.iter().map(|_| 1).collect();
        let outcome = self.outcome(1, stamp, &charged);
        (outcome, self.keep(true))
    }

    pub(super) fn peek(mut self, ask: &Ask<'_>) -> Outcome {
        let granted = self.grants(ask.want);
        let charged: SmallVec<[u32; 1]> = self.charges.iter().map(|_| 0).collect();
        let outcome = self.outcome(granted, self.now, &charged);
        self.keep(false);
        outcome
    }

    pub(super) fn give_back(mut self, times: u32, stamp: Stamp) {
        for at in 0..self.charges.len() {
            let (charge, Some(index)) = self.charges[at] else {
                continue;
            };
            let counter = &self.counters[index];
            if let Place::Own(bucket) | Place::Shared(bucket) = counter.place {
                let units = charge.cost.saturating_mul(u64::from(times));
                let entry = self.locks[counter.lock].1.entry_mut(bucket);
                entry.give_back(self.now, stamp.as_micros(), units);
            }
        }
        self.keep(false);
    }

    pub(super) fn reset(mut self) {
        for counter in &self.counters {
            if let Place::Own(bucket) = counter.place {
                self.locks[counter.lock].1.remove(bucket, &self.shared.budget);
            }
        }
        self.keep(false);
    }

    fn outcome(&self, granted: u32, stamp: u64, charged: &[u32]) -> Outcome {
        let states = self
            .charges
            .iter()
            .zip(charged)
            .map(|((charge, counter), &charged)| self.charge_state(charge, *counter, charged));
        Outcome::new(granted, Stamp::from_micros(self.now), states).stamp(Stamp::from_micros(stamp))
    }

    fn charge_state(&self, charge: &Charge<'_>, counter: Option<usize>, charged: u32) -> ChargeState {
        let Some(index) = counter else {
            return ChargeState::new(charged, u64::MAX, Retry::Now, Duration::ZERO);
        };
        let terms = &self.counters[index].terms;
        let Some(state) = self.state(index) else {
            return ChargeState::new(charged, 0, Retry::After(Duration::from_secs(1)), Duration::ZERO);
        };
        let cost = match charge.mode {
            Mode::Enforce => self.counters[index].enforced,
            Mode::Shadow => charge.cost,
        };
        let until = |time: u64| Duration::from_micros(time.saturating_sub(self.now));
        let retry = match state.earliest(terms, self.now, cost) {
            None => Retry::Never,
            Some(time) if time <= self.now => Retry::Now,
            Some(time) => Retry::After(until(time)),
        };
        let reset_after = until(state.full_at(terms, self.now));
        ChargeState::new(charged, state.free(terms, self.now), retry, reset_after)
    }

    /// Puts new counters that were charged into the table, and returns the room that others had taken.
    fn keep(&mut self, charged: bool) -> bool {
        let mut inserted = false;
        for counter in self.counters.drain(..) {
            let shard = &mut self.locks[counter.lock].1;
            let budget = &self.shared.budget;
            let (held, shared) = match counter.place {
                Place::New(held) => (held, false),
                Place::NewShared(held) => (held, true),
                _ => continue,
            };
            let expires_at = held.state.full_at(&counter.terms, self.now);
            if charged && expires_at > self.now {
                let mut entry = Entry::new(&counter.identity, counter.hash, counter.terms, held);
                entry.expires_at = expires_at;
                shard.insert(entry);
                inserted = true;
            } else if shared {
                budget.return_bytes(held.extra_bytes());
            } else {
                budget.return_key(Entry::place_bytes(&counter.identity) + held.bytes());
            }
        }
        inserted
    }
}

/// The same on every instance and in every version: places the windows of a quota that is phased per key.
fn stable_hash(key: &[u8]) -> u64 {
    let hash = blake3::hash(key);
    let (first, _) = hash.as_bytes().split_at(8);
    first.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}
