//! Corrections that wait, or are under way.

use std::time::Duration;

use tokio::time::Instant;

use super::resets::Age;
use crate::engine::OwnedCharge;
use crate::store::{Ask, Correction, CorrectionKind, MemoryStore, Stamp, Store};

/// A correction of one charge that outlives its request.
#[derive(Clone, Debug)]
pub(crate) struct OwnedCorrection {
    pub(crate) charge: OwnedCharge,
    pub(crate) kind: CorrectionKind,
    /// When the charge was made that is corrected.
    pub(crate) charged: Age,
}

/// What was pushed, and until when it may be sent.
pub(super) struct Pushed {
    pub(super) correction: OwnedCorrection,
    pub(super) until: Instant,
    /// How many corrections have become this one.
    pub(super) count: usize,
}

impl OwnedCorrection {
    /// Takes back `times` grants of a charge as of `stamp`, which was made at an age.
    pub(crate) const fn give_back(charge: OwnedCharge, times: u32, stamp: Stamp, charged: Age) -> Self {
        Self {
            charge,
            kind: CorrectionKind::GiveBack { times, stamp },
            charged,
        }
    }

    /// Charges whether it fits or not.
    pub(crate) fn charge(charge: OwnedCharge) -> Self {
        Self {
            charge,
            kind: CorrectionKind::Charge,
            charged: Age::default(),
        }
    }

    /// Makes it in a store that needs no waiting.
    pub(crate) fn make_in(&self, store: &MemoryStore) {
        let charge = [self.charge.borrow()];
        drop(store.settle(&[self.of(Ask::new(&charge))]));
    }

    pub(crate) fn of<'a>(&self, ask: Ask<'a>) -> Correction<'a> {
        match self.kind {
            CorrectionKind::GiveBack { times, stamp } => Correction::give_back(ask, times, stamp),
            CorrectionKind::Charge => Correction::charge(ask),
        }
    }

    fn is_on_counter_of(&self, other: &Self) -> bool {
        let (one, other) = (&self.charge, &other.charge);
        one.quota == other.quota && one.policy == other.policy && one.key == other.key
    }
}

impl Pushed {
    /// Becomes one with another correction, if one can stand for both: their times must not end further apart than
    /// `apart`, as the earlier end is that of both.
    pub(super) fn absorb(&mut self, other: &Self, apart: Duration) -> bool {
        use CorrectionKind::{Charge, GiveBack};
        let until = self.until.min(other.until);
        if self.until.max(other.until) - until > apart || !self.correction.is_on_counter_of(&other.correction)
        {
            return false;
        }
        let (one, other_charge) = (&mut self.correction.charge, &other.correction.charge);
        match (&mut self.correction.kind, other.correction.kind) {
            (
                GiveBack { times, stamp },
                GiveBack {
                    times: more,
                    stamp: as_of,
                },
            ) if *stamp == as_of && one.cost == other_charge.cost => {
                let Some(sum) = times.checked_add(more) else {
                    return false;
                };
                *times = sum;
            }
            (Charge, Charge) => {
                let Some(sum) = one.cost.checked_add(other_charge.cost) else {
                    return false;
                };
                one.cost = sum;
            }
            _ => return false,
        }
        self.until = until;
        self.correction.charged = self.correction.charged.min(other.correction.charged);
        self.count += other.count;
        true
    }
}

/// How many were pushed, those included that have become one with another.
pub(super) fn count(pushed: &[Pushed]) -> usize {
    pushed.iter().map(|pushed| pushed.count).sum()
}
