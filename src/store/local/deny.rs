//! Denials that need not be asked for again.

mod denial;
#[cfg(test)]
mod model;
mod table;
#[cfg(test)]
mod tests;
mod words;

// For `words`, which are checked with a model's atomics, too.
use std::sync::atomic;

use siphasher::sip128::SipHasher13;

use self::denial::{Denial, Identity};
use self::table::Table;
use super::{Charge, ChargeState, Nanos, Stamp};
use crate::clock::micros_up;
use crate::store::{KnownOutcome, Retry, Wait};

/// Denials of charges, each until the earliest time at which the charge can fit.
///
/// A store decided after the ask was sent, so what it says of the time until then is served from the sending on, and told
/// from the reply on: neither a moment too long, nor a moment too short.
pub(super) struct DenyCache {
    denials: Table,
    /// Hashes what is too long to be kept.
    secret: SipHasher13,
    age: Nanos,
}

impl DenyCache {
    pub(super) fn new(size: usize, age: Nanos, secret: (u64, u64)) -> Self {
        Self {
            denials: Table::new(size),
            secret: SipHasher13::new_with_keys(secret.0, secret.1),
            age,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.denials.len()
    }

    #[inline(always)]
    const fn identity<'a>(&'a self, charge: &'a Charge<'a>) -> Identity<'a> {
        let secret = &self.secret;
        Identity { charge, secret }
    }

    /// The denial that answers a charge. What was asked for before `last_freed` is worth nothing: nearly all charges have no denial, and
    /// need not know it.
    #[inline(always)]
    pub(super) fn find(
        &self,
        charge: &Charge<'_>,
        hash: u64,
        now: Nanos,
        last_freed: impl FnOnce() -> Nanos,
    ) -> Option<KnownOutcome> {
        let denial = self.denials.find(hash, &self.identity(charge))?;
        denial.answer(charge, now, last_freed())
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
            block: if state.blocked {
                Wait::micros(state.block)
            } else {
                Wait::NEVER
            },
            reset_after: micros_up(state.reset_after),
            remaining: state.remaining,
            now: store_now,
        };
        if denial.until > received {
            self.denials
                .remember(hash, &self.identity(charge), &denial, |known| {
                    known.sent > last_freed && known.covers(&denial)
                });
        }
    }
}
