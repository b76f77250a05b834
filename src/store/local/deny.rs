//! Denials that need not be asked for again.

use std::hash::{BuildHasherDefault, Hash, Hasher};

use quick_cache::{Equivalent, UnitWeighter, sync};

use super::{Charge, ChargeState, Nanos, Stamp};
use crate::clock::micros_up;
use crate::key::Key;
use crate::policy::SharedName;
use crate::quota::Quota;
use crate::store::{KnownOutcome, Retry, Wait};

/// Denials of charges, each until the earliest time at which the charge can fit.
///
/// A store decided after the ask was sent, so what it says of the time until then is served from the sending on, and told
/// from the reply on: neither a moment too long, nor a moment too short.
pub(super) struct DenyCache {
    denials: sync::Cache<Counter, Denial, UnitWeighter, BuildHasherDefault<Given>>,
    age: Nanos,
}

/// Which charges a denial answers.
struct Counter {
    hash: u64,
    key: Key,
    policy: SharedName,
    quota: Quota,
    is_penalized: bool,
}

/// The same of a charge that is asked for.
struct Wanted<'a> {
    hash: u64,
    charge: &'a Charge<'a>,
}

#[derive(Clone, Copy)]
struct Denial {
    sent: Nanos,
    /// From when on it is served: times to be waited are told from here on.
    received: Nanos,
    /// Until when it is served.
    until: Nanos,
    /// When the charge fits, as it is told to who wants as much or more.
    fits: Wait,
    /// The smallest cost that was denied: larger ones are, too.
    cost: u64,
    /// When the block ends, as it is told to who wants less: a block stops all.
    block: Wait,
    /// In microseconds.
    reset_after: u64,
    remaining: u64,
    is_blocked: bool,
    /// The store's time of the denial.
    now: Stamp,
}

impl DenyCache {
    pub(super) fn new(size: usize, age: Nanos) -> Self {
        Self {
            denials: sync::Cache::with(
                size,
                size as u64,
                UnitWeighter,
                BuildHasherDefault::default(),
                sync::DefaultLifecycle::default(),
            ),
            age,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.denials.len()
    }

    /// The denial that answers a charge. What was asked for before `last_freed` is worth nothing.
    #[inline(always)]
    pub(super) fn find(
        &self,
        charge: &Charge<'_>,
        hash: u64,
        now: Nanos,
        last_freed: Nanos,
    ) -> Option<KnownOutcome> {
        let denial = self.denials.get(&Wanted { hash, charge })?;
        let is_served = (denial.received..denial.until).contains(&now)
            && denial.sent > last_freed
            && (denial.is_blocked || charge.cost >= denial.cost);
        is_served.then(|| denial.answer(charge, now))
    }

    /// Remembers what a store said of a charge of an ask that it denied.
    pub(super) fn learn(
        &self,
        (charge, hash): (&Charge<'_>, u64),
        (state, store_now): (&ChargeState, Stamp),
        (sent, received): (Nanos, Nanos),
        last_freed: Nanos,
    ) {
        // Where denials lead to a block, the store must see them all until there is one.
        if charge.penalty.is_some() && !state.blocked || last_freed >= sent {
            return;
        }
        let wait = match state.retry {
            Retry::Now => return,
            Retry::After(wait) => Some(super::nanos(wait)),
            Retry::Never => None,
        };
        // What comes after a block may have to be counted for the next one.
        let lasts = if state.blocked {
            Some(state.block.saturating_mul(1_000))
        } else {
            wait
        };
        // A store whose clock is fast releases sooner by ours: this much they may differ.
        let served = lasts.map_or(self.age, |lasts| self.age.min(lasts - lasts.div_ceil(1_000)));
        let denial = Denial {
            sent,
            received,
            until: sent.saturating_add(served),
            fits: state.retry.into(),
            cost: charge.cost,
            block: Wait::micros(state.block),
            reset_after: micros_up(state.reset_after),
            remaining: state.remaining,
            is_blocked: state.blocked,
            now: store_now,
        };
        if denial.until <= received {
            return;
        }
        let wanted = Wanted { hash, charge };
        let is_better_known = self.denials.peek(&wanted).is_some_and(|known| {
            known.sent > last_freed
                && known.is_blocked == denial.is_blocked
                && known.cost <= denial.cost
                && known.until >= denial.until
        });
        if !is_better_known {
            self.denials.insert(wanted.counter(), denial);
        }
    }
}

impl Denial {
    #[inline(always)]
    fn answer(&self, charge: &Charge<'_>, now: Nanos) -> KnownOutcome {
        let since = now - self.received;
        let passed = since / 1_000;
        let is_never = charge.quota.limit().is_some_and(|limit| charge.cost > limit);
        let retry = match charge.cost >= self.cost {
            _ if is_never => Wait::NEVER,
            true => self.fits.after(passed),
            false => self.block.after(passed),
        };
        let at = Stamp::from_micros(self.now.as_micros().saturating_add(since.div_ceil(1_000)));
        KnownOutcome {
            granted: false,
            blocked: self.is_blocked,
            now: at,
            stamp: at,
            remaining: self.remaining,
            retry,
            reset_after: self.reset_after.saturating_sub(passed),
        }
    }
}

impl Wanted<'_> {
    fn counter(&self) -> Counter {
        let Self { hash, charge } = *self;
        Counter {
            hash,
            key: charge.key.clone(),
            policy: charge.policy.shared(),
            quota: charge.quota,
            is_penalized: charge.penalty.is_some(),
        }
    }
}

impl Equivalent<Counter> for Wanted<'_> {
    #[inline]
    fn equivalent(&self, counter: &Counter) -> bool {
        let Self { hash, charge } = *self;
        hash == counter.hash
            && charge.quota == counter.quota
            && charge.penalty.is_some() == counter.is_penalized
            && counter.policy.is(charge.policy)
            && charge.key == &counter.key
    }
}

impl PartialEq for Counter {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
            && self.quota == other.quota
            && self.is_penalized == other.is_penalized
            && self.policy == other.policy
            && self.key == other.key
    }
}

impl Eq for Counter {}

impl Hash for Counter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hash for Wanted<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Takes the hash that a counter comes with.
#[derive(Default)]
struct Given(u64);

impl Hasher for Given {
    fn write(&mut self, _: &[u8]) {
        unreachable!("counters come with a hash");
    }

    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
