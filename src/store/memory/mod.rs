//! The embedded store: counters in this process.

mod budget;
mod decide;
mod entry;
mod held;
mod kept_key;
mod known;
mod penalties;
mod shard;
mod sweeper;
mod table;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use foldhash::quality::SeedableRandomState;

use self::budget::Budget;
use self::decide::Decide;
use self::known::acquire_known;
use self::penalties::block;
use self::shard::Shard;
use self::sweeper::Sweeper;
use super::ask::Heeds;
use super::{
    Ask, Charge, Correction, KnownOutcome, Outcome, Stamp, Store, StoreError, StoreErrorKind, StoreFuture,
    seed,
};
use crate::clock::{Clock, micros};
use crate::lock::Lock;

const DEFAULT_MAX_KEYS: usize = 1_000_000;
const DEFAULT_MAX_BYTES: usize = 512 << 20;
/// Few enough that a growing table is moved within a fraction of a millisecond, under its lock.
const KEYS_PER_SHARD: usize = 4_096;

/// A store in this process: exact for one instance of a service, and needing no server.
///
/// **Behind a load balancer, N instances with a memory store each admit N times the limit.** Share a store for
/// one limit across instances.
///
/// Clones share one state. Memory is capped in keys and bytes. Only what equals no state is dropped, by a hand
/// that moves with new keys and by a thread that walks the table once a second, so no request pays for a sweep
/// and an idle store shrinks. At the cap, keys without a counter share one per shard, policy and window:
/// stricter for them, never looser (token buckets count in a sliding window there), and known keys keep what they
/// have. The first time is logged, each time is counted ([`MemoryStats::overflowed`]). What a [penalty](crate::Penalty) has
/// counted and blocked takes a key, too; at the cap, no penalty is counted for keys that have no count yet.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let store = MemoryStore::builder().max_keys(100_000).max_bytes(64 << 20).build();
/// let limiter = Limiter::new(store.clone(), Quota::per_minute(1));
/// assert!(limiter.check("a").await.is_allowed());
/// assert!(limiter.check("a").await.is_denied());
/// assert_eq!(store.stats().keys, 1);
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    shards: Box<[Lock<Shard>]>,
    budget: Budget,
    clock: Clock,
    seed: SeedableRandomState,
    sweeper: Sweeper,
}

impl Shared {
    /// The part of a hash that picks the shard is not the part that picks the bucket.
    fn shard_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }
}

/// What a memory store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Keys with a counter of their own, and those that a penalty counts.
    pub keys: usize,
    /// Bytes taken for them.
    pub bytes: usize,
    /// How often a key had to share a counter, a log to shrink, or a denial to go without a penalty, for want of room.
    pub overflowed: u64,
}

impl MemoryStore {
    /// A store of up to 1 000 000 keys and 512 MiB.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Sets caps and clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            max_keys: DEFAULT_MAX_KEYS,
            max_bytes: DEFAULT_MAX_BYTES,
            clock: Clock::default(),
        }
    }

    /// What the store holds now.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        MemoryStats {
            keys: self.shared.budget.keys(),
            bytes: self.shared.budget.bytes(),
            overflowed: self.shared.budget.overflowed(),
        }
    }

    /// What [`acquire`](Store::acquire) answers to one grant of one charge, where that needs no new counter.
    #[inline]
    pub(crate) fn acquire_known(&self, charge: &Charge<'_>) -> Option<KnownOutcome> {
        acquire_known(&self.shared, charge)
    }

    fn decide<'a>(&'a self, ask: &Ask<'a>, heeds: Heeds) -> Decide<'a> {
        Decide::new(&self.shared, ask, heeds)
    }

    fn start_sweeper(&self) {
        self.shared.sweeper.start(&Arc::downgrade(&self.shared));
    }
}

impl Store for MemoryStore {
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let (outcome, inserted) = self.decide(ask, Heeds::Enforced).acquire(ask);
        if inserted {
            self.start_sweeper();
        }
        StoreFuture::ready(Ok(outcome))
    }

    fn give_back(&self, ask: &Ask<'_>, times: u32, stamp: Stamp) -> StoreFuture<()> {
        self.decide(ask, Heeds::None).give_back(times, stamp);
        StoreFuture::ready(Ok(()))
    }

    fn charge(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let (outcome, inserted) = self.decide(ask, Heeds::None).charge(ask);
        if inserted {
            self.start_sweeper();
        }
        StoreFuture::ready(Ok(outcome))
    }

    fn settle(&self, corrections: &[Correction<'_>]) -> StoreFuture<()> {
        for correction in corrections {
            // Made at once, and never an error.
            drop(correction.make(self));
        }
        StoreFuture::ready(Ok(()))
    }

    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        StoreFuture::ready(Ok(self.decide(ask, Heeds::Enforced).peek(ask)))
    }

    fn reset(&self, ask: &Ask<'_>) -> StoreFuture<()> {
        self.decide(ask, Heeds::All).reset();
        StoreFuture::ready(Ok(()))
    }

    fn block(&self, ask: &Ask<'_>, time: Duration) -> StoreFuture<()> {
        if block(&self.shared, ask, micros(time)) {
            self.start_sweeper();
            StoreFuture::ready(Ok(()))
        } else {
            StoreFuture::ready(Err(StoreError::new(StoreErrorKind::Overloaded)))
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("stats", &self.stats())
            .field("clock", &self.shared.clock)
            .finish_non_exhaustive()
    }
}

/// Settings of a [`MemoryStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MemoryStoreBuilder {
    max_keys: usize,
    max_bytes: usize,
    clock: Clock,
}

impl MemoryStoreBuilder {
    /// The most keys with a counter of their own, at least 1. 1 000 000 if not set.
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys.max(1);
        self
    }

    /// The most bytes that counters take. 512 MiB if not set. The shared counters of a full store (up to 32 of
    /// about half a kilobyte per 4 096 keys) come on top.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// The clock to decide by. The system's, if not set.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        let shards = (self.max_keys / KEYS_PER_SHARD)
            .clamp(16, 4_096)
            .next_power_of_two();
        MemoryStore {
            shared: Arc::new(Shared {
                shards: (0..shards).map(|_| Lock::default()).collect(),
                budget: Budget::new(self.max_keys, self.max_bytes),
                clock: self.clock,
                seed: seed::random(),
                sweeper: Sweeper::default(),
            }),
        }
    }
}
