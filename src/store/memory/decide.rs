//! One ask, decided under the locks of its counters.

mod judge;

use std::sync::MutexGuard;
use std::time::Duration;

use smallvec::SmallVec;

use self::judge::Judged;
use super::Shared;
use super::entry::Identity;
use super::shard::{Place, Shard};
use crate::algorithm::{Before, MAX_SLACK, Terms};
use crate::clock::micros;
use crate::store::ask::Heeds;
use crate::store::{Ask, Charge, ChargeState, Mode, Outcome, Retry, Stamp};

/// Buckets that an ask with a new key looks at for expired entries, where the key would make the table grow.
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
    judged: Vec<Judged<'a>>,
    heeds: Heeds,
    /// Whether a penalty's state was written.
    recorded: bool,
}

/// A counter of an ask.
struct Counter<'a> {
    identity: Identity<'a>,
    hash: u64,
    lock: usize,
    terms: Terms,
    place: Place,
    /// Units that one grant takes of it.
    enforced: u64,
    before: Before,
    /// Units to charge.
    units: u64,
}

impl Counter<'_> {
    /// How often the enforced charges of the ask fit, up to `want`.
    fn fits(&self, want: u32) -> u32 {
        fits(self.before.free, &self.terms, self.enforced, want)
    }
}

impl<'a> Decide<'a> {
    pub(super) fn new(shared: &'a Shared, ask: &Ask<'a>, heeds: Heeds) -> Self {
        let mut this = Self {
            shared,
            locks: SmallVec::new(),
            now: 0,
            counters: SmallVec::new(),
            charges: SmallVec::new(),
            judged: Vec::new(),
            heeds,
            recorded: false,
        };
        for charge in ask.charges {
            let counter = Terms::of(&charge.quota, charge.key.as_bytes())
                .map(|terms| this.counter(Identity::new(charge, &terms), terms));
            this.charges.push((*charge, counter));
            this.judge(charge);
        }
        this.lock();
        this.now = shared.clock.now();
        this.place();
        this.read_offences();
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
                before: Before::NOWHERE,
                units: 0,
            });
            self.counters.len() - 1
        })
    }

    /// Locks the shards of all counters, in their order, so that no two asks wait for each other.
    fn lock(&mut self) {
        let counters = self.counters.iter().map(|counter| counter.hash);
        let mut shards: SmallVec<[usize; 4]> = counters
            .chain(self.judged.iter().map(|judged| judged.hash))
            .map(|hash| self.shared.shard_of(hash))
            .collect();
        shards.sort_unstable();
        shards.dedup();
        for shard in shards {
            self.locks.push((shard, self.shared.shards[shard].lock()));
        }
        let lock_of = |hash| {
            let shard = self.shared.shard_of(hash);
            let mut locks = self.locks.iter();
            locks.position(|(locked, _)| *locked == shard).unwrap_or(0)
        };
        for counter in &mut self.counters {
            counter.lock = lock_of(counter.hash);
        }
        for judged in &mut self.judged {
            judged.lock = lock_of(judged.hash);
        }
    }

    /// Finds each counter, or room for it.
    fn place(&mut self) {
        let mut missing = false;
        for counter in &mut self.counters {
            let shard = &mut self.locks[counter.lock].1;
            match shard.find(counter.hash, &counter.identity) {
                Some(bucket) => counter.place = Place::Bucket(bucket),
                None => missing = true,
            }
        }
        if missing {
            self.place_missing();
        }
        for counter in &mut self.counters {
            let shard = &mut self.locks[counter.lock].1;
            if let Some(entry) = counter.place.entry(shard) {
                counter.before = entry.before(&counter.terms, self.now);
            }
        }
    }

    fn place_missing(&mut self) {
        let budget = &self.shared.budget;
        // Sweeping moves buckets, so it comes before any is looked up for good.
        for (_, shard) in &mut self.locks {
            if shard.is_full() || budget.is_full() {
                shard.sweep(self.now, SWEEP_PER_NEW_KEY, budget);
            }
        }
        for index in 0..self.counters.len() {
            let counter = &mut self.counters[index];
            let shard = &mut self.locks[counter.lock].1;
            counter.place = match shard.find(counter.hash, &counter.identity) {
                Some(bucket) => Place::Bucket(bucket),
                None => shard.place(
                    &counter.identity,
                    &counter.terms,
                    self.now,
                    budget,
                    &self.shared.seed,
                ),
            };
            let shares = match &counter.place {
                Place::Bucket(bucket) => shard.entry(*bucket).is_shared(),
                Place::New(entry) => entry.is_shared(),
                Place::Nowhere => false,
            };
            if shares {
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

    /// How often the ask fits, up to `want`.
    fn grants(&self, want: u32) -> u32 {
        if self.is_blocked() {
            return 0;
        }
        let enforced = self
            .charges
            .iter()
            .filter(|(charge, _)| charge.mode == Mode::Enforce)
            .filter_map(|(_, counter)| Some(&self.counters[(*counter)?]));
        enforced.map(|counter| counter.fits(want)).min().unwrap_or(want)
    }

    /// The time that stamps this ask's charges: not before any entry of its counters, and no further ahead than
    /// all of them take.
    fn stamp(&self, hold: Duration) -> u64 {
        let before = || self.counters.iter().map(|counter| counter.before);
        let held = before().fold(self.now + micros(hold).min(MAX_SLACK), |stamp, before| {
            stamp.min(before.latest)
        });
        before().fold(held, |stamp, before| stamp.max(before.tail))
    }

    pub(super) fn acquire(mut self, ask: &Ask<'_>) -> (Outcome, bool) {
        let granted = self.grants(ask.want);
        if granted < ask.want {
            self.count_denials(granted, ask.want);
        }
        for counter in &mut self.counters {
            counter.units = counter.enforced.saturating_mul(u64::from(granted));
        }
        let mut charged: SmallVec<[u32; 1]> = SmallVec::new();
        for (charge, counter) in &self.charges {
            charged.push(match (*counter, charge.mode) {
                (Some(index), Mode::Shadow) => {
                    let counter = &mut self.counters[index];
                    let free = counter.before.free.saturating_sub(counter.units);
                    let times = fits(free, &counter.terms, charge.cost, granted);
                    counter.units += charge.cost.saturating_mul(u64::from(times));
                    times
                }
                _ => granted,
            });
        }
        let stamp = self.stamp(ask.hold);
        self.conclude(granted, stamp, &charged)
    }

    /// Sums what all charges, shadows too, take of each counter in so many grants: charges on one counter are changed
    /// together or not at all.
    fn add_up(&mut self, times: u32) {
        for (charge, counter) in &self.charges {
            if let Some(index) = *counter {
                let units = &mut self.counters[index].units;
                *units = units.saturating_add(charge.cost.saturating_mul(u64::from(times)));
            }
        }
    }

    pub(super) fn charge(mut self, ask: &Ask<'_>) -> (Outcome, bool) {
        self.add_up(1);
        let charged: SmallVec<[u32; 1]> = self.charges.iter().map(|_| 1).collect();
        let stamp = self.stamp(ask.hold);
        self.conclude(1, stamp, &charged)
    }

    pub(super) fn peek(self, ask: &Ask<'_>) -> Outcome {
        let granted = self.grants(ask.want);
        let charged: SmallVec<[u32; 1]> = self.charges.iter().map(|_| 0).collect();
        let now = self.now;
        self.conclude(granted, now, &charged).0
    }

    pub(super) fn give_back(mut self, times: u32, stamp: Stamp) {
        self.add_up(times);
        for counter in &mut self.counters {
            if let Some(entry) = counter.place.entry(&mut self.locks[counter.lock].1) {
                entry.give_back(&counter.terms, self.now, stamp.as_micros(), counter.units);
            }
        }
        self.discard_new();
    }

    pub(super) fn reset(mut self) {
        for counter in &self.counters {
            let shard = &mut self.locks[counter.lock].1;
            // A counter that others share is not this key's to forget.
            if let Place::Bucket(bucket) = counter.place
                && !shard.entry(bucket).is_shared()
            {
                shard.remove(bucket, &self.shared.budget);
            }
        }
        self.forget_offences();
        self.discard_new();
    }

    /// Charges the counters and describes them. True if something new may be kept.
    fn conclude(mut self, granted: u32, stamp: u64, charged: &[u32]) -> (Outcome, bool) {
        for counter in &mut self.counters {
            if let Some(entry) = counter.place.entry(&mut self.locks[counter.lock].1) {
                let charge = (stamp, counter.units);
                entry.after(&counter.terms, self.now, charge, 0, &self.shared.budget);
            }
        }
        let mut outcome = Outcome::new(granted, Stamp::from_micros(self.now), []);
        outcome.stamp = Stamp::from_micros(stamp);
        for (index, &charged) in charged.iter().enumerate() {
            let state = self.describe(index, charged);
            outcome.states.push(state);
        }
        (outcome, self.keep())
    }

    fn describe(&mut self, index: usize, charged: u32) -> ChargeState {
        let state = self.describe_counter(index, charged);
        match self.block_of(&self.charges[index].0) {
            Some(until) => state.blocked_until(until, self.now),
            None => state,
        }
    }

    fn describe_counter(&mut self, index: usize, charged: u32) -> ChargeState {
        let (charge, counter) = self.charges[index];
        let Some(counter) = counter else {
            return ChargeState::new(charged, u64::MAX, Retry::Now, Duration::ZERO);
        };
        let counter = &mut self.counters[counter];
        let cost = match charge.mode {
            Mode::Enforce => counter.enforced,
            Mode::Shadow => charge.cost,
        };
        match counter.place.entry(&mut self.locks[counter.lock].1) {
            Some(entry) => {
                let after = entry.after(&counter.terms, self.now, (self.now, 0), cost, &self.shared.budget);
                ChargeState::after(&after, self.now, charged)
            }
            None => ChargeState::new(charged, 0, Retry::After(Duration::from_secs(1)), Duration::ZERO),
        }
    }

    /// Returns the room that new counters had taken: nothing was charged to them.
    fn discard_new(mut self) {
        for counter in self.counters.drain(..) {
            if let Place::New(entry) = counter.place {
                Shard::discard(&entry, &self.shared.budget);
            }
        }
    }

    /// Puts new counters that were charged into the table, and returns the room that others had taken. True if something
    /// new may be kept.
    fn keep(mut self) -> bool {
        let mut inserted = self.recorded;
        for counter in self.counters.drain(..) {
            let Place::New(entry) = counter.place else {
                continue;
            };
            if entry.expires_at() > self.now {
                let shard = &mut self.locks[counter.lock].1;
                shard.insert(counter.hash, entry);
                inserted = true;
            } else {
                Shard::discard(&entry, &self.shared.budget);
            }
        }
        inserted
    }
}

/// How often `cost` fits into `free` units, up to `want`.
#[inline]
fn fits(free: u64, terms: &Terms, cost: u64, want: u32) -> u32 {
    if cost <= 1 && want == 1 {
        // Spares the ordinary request a division.
        return u32::from(if cost == 0 { terms.capacity > 0 } else { free > 0 });
    }
    match free.checked_div(cost) {
        Some(times) => u32::try_from(times).unwrap_or(want).min(want),
        None if terms.capacity == 0 => 0,
        None => want,
    }
}
