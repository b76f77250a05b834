//! The ordinary request: one grant of one charge, whose counter exists.

use super::Shared;
use super::decide::fits;
use super::entry::Identity;
use crate::algorithm::Terms;
use crate::store::{Charge, KnownOutcome, Mode};

/// One grant of an enforced charge without a penalty on a counter that exists: the ordinary request. `None` for any other, to be
/// decided in general; this is the same with one counter, for speed.
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
    let before = entry.before(&terms, now);
    let stamp = before.tail.max(now);
    let granted = fits(before.free, &terms, charge.cost, 1);
    let units = if granted == 0 { 0 } else { charge.cost };
    let after = entry.after(&terms, now, (stamp, units), charge.cost, &shared.budget);
    drop(shard);
    Some(KnownOutcome::after(&after, (now, stamp), granted > 0))
}
