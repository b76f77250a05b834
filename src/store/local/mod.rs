//! What a limiter answers without asking its store, and still exactly.

mod deny;
mod marks;
mod stats;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use foldhash::quality::SeedableRandomState;
use smallvec::SmallVec;
use tokio::time::Instant;

use self::deny::DenyCache;
use self::marks::Marks;
pub use self::stats::LocalStats;
pub(crate) use self::stats::{Counters, add};
use super::{Ask, Charge, ChargeState, KnownOutcome, Mode, Outcome, Stamp, seed};
use crate::key::Key;
use crate::policy::PolicyName;

/// What the limiters and layers around a remote store may answer without asking it; one for all clones of a store, which
/// [`Store::local_answers`](super::Store::local_answers) returns. [`RedisStore`](super::RedisStore) has one.
///
/// It remembers denials until something can fit again, and what changed a counter in the meantime: a store tells it of
/// every give-back, reset and block with [`changing`](Self::changing).
#[derive(Clone)]
pub struct LocalAnswers {
    shared: Arc<Shared>,
}

struct Shared {
    deny: Option<DenyCache>,
    seed: SeedableRandomState,
    /// Of what may let a denied key pass.
    freed: Marks,
    /// Of what makes units void that were taken ahead.
    voided: Marks,
    counters: Counters,
    /// Times are nanoseconds from here on.
    start: Instant,
}

/// A time of this process, in nanoseconds since the local answers were made.
pub(crate) type Nanos = u64;

#[inline]
pub(crate) const fn nanos(time: Duration) -> Nanos {
    time.as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(time.subsec_nanos() as u64)
}

impl LocalAnswers {
    /// With the default settings.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Sets sizes and times.
    pub const fn builder() -> LocalAnswersBuilder {
        LocalAnswersBuilder {
            deny_size: 65_536,
            deny_age: Duration::from_secs(1),
            seed: None,
        }
    }

    /// What was answered without the store.
    #[must_use]
    pub fn stats(&self) -> LocalStats {
        let denials = self.shared.deny.as_ref().map_or(0, DenyCache::len);
        self.shared.counters.snapshot(denials)
    }

    /// Says that the counters of an ask's charges are about to be changed otherwise than by a grant, and that it is over
    /// when the answer is dropped. Denials that were known before, or become known meanwhile, are forgotten then.
    #[must_use = "the change is over when this is dropped"]
    pub fn changing(&self, ask: &Ask<'_>, change: Change) -> Changing {
        let hashes = ask
            .charges
            .iter()
            .map(|charge| self.hash(charge.key, charge.policy));
        self.changing_hashes(hashes.collect(), change)
    }

    pub(crate) fn changing_hashes(&self, hashes: SmallVec<[u64; 2]>, change: Change) -> Changing {
        let changing = Changing {
            local: self.clone(),
            hashes,
            change,
        };
        changing.mark();
        changing
    }

    /// Of what a key is called under a policy.
    #[inline]
    pub(crate) fn hash(&self, key: &Key, policy: &PolicyName) -> u64 {
        self.hash_text(key.as_bytes(), policy.text_hash())
    }

    /// The same of the key's bytes and the hash of the policy's name.
    #[inline]
    pub(crate) fn hash_text(&self, key: &[u8], policy: u64) -> u64 {
        let mut hasher = self.shared.seed.build_hasher();
        hasher.write(key);
        hasher.write_u64(policy);
        hasher.finish()
    }

    #[inline]
    pub(crate) fn at(&self, time: Instant) -> Nanos {
        nanos(time.saturating_duration_since(self.shared.start))
    }

    /// When it was [so late](Self::at). None for what may be before these were made: clocks of several runtimes that tests have
    /// stopped say so.
    #[inline]
    pub(crate) fn time(&self, at: Nanos) -> Option<Instant> {
        (at > 0).then(|| self.shared.start + Duration::from_nanos(at))
    }

    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        self.at(Instant::now())
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// When what was taken ahead of this last became void.
    pub(crate) fn voided_at(&self, hash: u64) -> Nanos {
        self.shared.voided.last(hash)
    }

    /// Whether the deny cache is on.
    #[inline]
    pub(crate) fn remembers_denials(&self) -> bool {
        self.shared.deny.is_some()
    }

    /// What is known to deny a charge, whose counter has this hash.
    #[inline(always)]
    pub(crate) fn denied(&self, (hash, charge): (u64, &Charge<'_>), now: Nanos) -> Option<KnownOutcome> {
        let deny = self.shared.deny.as_ref()?;
        if charge.mode != Mode::Enforce {
            return None;
        }
        deny.find(charge, hash, now, || self.shared.freed.last(hash))
    }

    /// The denial of an ask over several charges, if any of them is known not to fit. Of the others nothing is told. None if
    /// the store has to count the denial for a penalty.
    pub(crate) fn denied_of(&self, charges: &[Charge<'_>], now: Nanos) -> Option<Outcome> {
        let (mut is_denied, mut at) = (false, Stamp::default());
        let mut states: SmallVec<[ChargeState; 1]> = SmallVec::new();
        for charge in charges {
            let hash = self.hash(charge.key, charge.policy);
            match self.denied((hash, charge), now) {
                Some(denied) => {
                    (is_denied, at) = (true, denied.now);
                    states.push(denied.state());
                }
                None if charge.penalty.is_some() && charge.mode == Mode::Enforce => return None,
                None => states.push(ChargeState::UNKNOWN),
            }
        }
        is_denied.then(|| {
            self.count_denied();
            Outcome::new(0, at, states)
        })
    }

    #[inline]
    pub(crate) fn count_denied(&self) {
        self.shared.counters.count_denied();
    }

    /// Remembers what a denial says. It was asked for at `sent`, or later.
    pub(crate) fn learn(&self, charges: &[Charge<'_>], outcome: &Outcome, sent: Nanos) {
        let Some(deny) = &self.shared.deny else { return };
        if outcome.granted > 0 {
            return;
        }
        let received = self.now();
        for (charge, state) in charges.iter().zip(&outcome.states) {
            if charge.mode == Mode::Enforce {
                let hash = self.hash(charge.key, charge.policy);
                let last_freed = self.shared.freed.last(hash);
                deny.learn((charge, hash), (state, outcome.now), (sent, received), last_freed);
            }
        }
    }
}

impl Default for LocalAnswers {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LocalAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalAnswers")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// How a counter changes otherwise than by a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Change {
    /// Units come back.
    GiveBack,
    /// All is forgotten, or the key is blocked or unblocked.
    Reset,
}

/// A change that is under way. It is over when this is dropped.
#[derive(Debug)]
pub struct Changing {
    local: LocalAnswers,
    hashes: SmallVec<[u64; 2]>,
    change: Change,
}

impl Changing {
    fn mark(&self) {
        let Shared {
            freed, voided, start, ..
        } = &*self.local.shared;
        let now = nanos(start.elapsed());
        for &hash in &self.hashes {
            freed.mark(hash, now);
            if self.change == Change::Reset {
                voided.mark(hash, now);
            }
        }
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.mark();
    }
}

/// Settings of [`LocalAnswers`].
#[derive(Clone, Debug)]
#[must_use]
pub struct LocalAnswersBuilder {
    deny_size: usize,
    deny_age: Duration,
    seed: Option<u64>,
}

impl LocalAnswersBuilder {
    /// How many denials are remembered at once at most: 65 536. It may be up to seven fewer, and is never more than 2²⁴. They take
    /// memory in pieces of 1.8 kB, of eight denials that come to stand together. None, if 0.
    pub const fn deny_cache_size(mut self, denials: usize) -> Self {
        self.deny_size = denials;
        self
    }

    /// How long a denial is remembered at most: one second. What other instances give back, reset, raise or unblock is seen
    /// after that. None, if zero.
    pub const fn deny_cache_age(mut self, age: Duration) -> Self {
        self.deny_age = age;
        self
    }

    /// Hashes by this, so that what a test does can be done again.
    #[cfg(any(test, feature = "test-util"))]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Makes them.
    #[must_use]
    pub fn build(self) -> LocalAnswers {
        let seed = match self.seed {
            Some(seed) => SeedableRandomState::with_seed(seed, foldhash::SharedSeed::global_fixed()),
            None => seed::random(),
        };
        let is_on = self.deny_size > 0 && !self.deny_age.is_zero();
        LocalAnswers {
            shared: Arc::new(Shared {
                deny: is_on.then(|| {
                    let secret = (seed.hash_one(1), seed.hash_one(2));
                    DenyCache::new(self.deny_size, nanos(self.deny_age), secret)
                }),
                seed,
                freed: Marks::new(),
                voided: Marks::new(),
                counters: Counters::default(),
                start: Instant::now(),
            }),
        }
    }
}
