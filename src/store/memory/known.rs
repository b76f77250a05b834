//! The ordinary request: one grant of one charge, whose counter exists.

use super::Shared;
use super::entry::Identity;
use crate::algorithm::Terms;
use crate::store::{Charge, ChargeState, Mode, Stamp};

/// One grant of an enforced charge without a penalty on a counter that exists and need not grow: the ordinary request. `None` for
/// any other, to be decided in general; this is the same with one counter, for speed.
#[inline]
pub(super) fn acquire_known(shared: &Shared, charge: &Charge<'_>) -> Option<KnownOutcome> {
    if charge.mode != Mode::Enforce || charge.penalty.is_some() {
        return None;
    }
    let terms = Terms::of(&charge.quota, charge.key.as_bytes())?;
    let identity = Identity::new(charge, &terms);
    let hash = identity.hash(&shared.seed);
    let mut shard = shared.shards[shared.shard_of(hash)].lock();
    let entry = shard.find_mut(hash, &identity)?;
    let now = shared.clock.now();
    let taken = entry.take(&terms, now, charge.cost)?;
    drop(shard);
    Some(KnownOutcome {
        granted: taken.granted,
        now: Stamp::from_micros(now),
        stamp: Stamp::from_micros(taken.stamp),
        state: ChargeState::after(&taken.after, now, u32::from(taken.granted)),
    })
}

/// The [`Outcome`] of one grant of one charge.
pub(crate) struct KnownOutcome {
    pub(crate) granted: bool,
    pub(crate) now: Stamp,
    pub(crate) stamp: Stamp,
    pub(crate) state: ChargeState,
}
