//! What was taken ahead for one key under one policy.

use smallvec::SmallVec;

use super::demand::Demand;
use super::{Debit, Refill, Wanted};
use crate::engine::OwnedCharge;
use crate::settler::Age;
use crate::store::{Charge, ChargeState, KnownOutcome, Mode, Nanos, Outcome, Stamp, Wait, nanos};

/// A refill takes at most this part of what is left to all: near the limit, units are worth more where they are asked for.
const SHARE_OF_REST: u64 = 8;

/// Fewer units are not worth a refill.
const FEWEST: u64 = 3;

pub(super) struct Entry {
    hash: u64,
    /// Of one unit.
    charge: OwnedCharge,
    /// Units to hold at most.
    most: u64,
    life: Nanos,
    /// Sorted by their ends.
    lots: SmallVec<[Lot; 2]>,
    demand: Demand,
    refill: Next,
    /// When it was last asked for.
    asked: Nanos,
    /// What the store last said.
    said: Said,
}

/// When the next refill may fly.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// When this one has landed.
    Flying,
    From(Nanos),
}

/// What the store said of the counter.
#[derive(Clone, Copy, Default)]
struct Said {
    remaining: u64,
    full_at: Nanos,
    /// At the store's time, and ours.
    now: Stamp,
    at: Nanos,
}

/// Units that were taken in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Lot {
    units: u32,
    /// As of when the store has charged them.
    stamp: Stamp,
    sent: Nanos,
    /// When they may not be spent any more.
    ends: Nanos,
    charged: Age,
}

/// Units to give back.
#[derive(Debug)]
pub(in super::super) struct Return {
    /// Of one unit.
    pub(in super::super) charge: OwnedCharge,
    pub(in super::super) units: u32,
    pub(in super::super) stamp: Stamp,
    pub(in super::super) charged: Age,
}

impl Return {
    pub(super) fn of(charge: &OwnedCharge, lot: &Lot) -> Self {
        Self {
            charge: charge.clone(),
            units: lot.units,
            stamp: lot.stamp,
            charged: lot.charged,
        }
    }
}

impl Lot {
    /// What a refill brought, if anything.
    pub(super) fn of(outcome: &Outcome, (sent, charged): (Nanos, Age), life: Nanos) -> Option<Self> {
        let ahead = outcome
            .stamp
            .as_micros()
            .saturating_sub(outcome.now.as_micros())
            .saturating_mul(1_000);
        // The store charges them no earlier than it ends, if both clocks go at one rate: this much they may differ.
        let life = ahead.min(life);
        let margin = life.div_ceil(1_000);
        (outcome.granted > 0).then(|| Self {
            units: outcome.granted,
            stamp: outcome.stamp,
            sent,
            ends: sent.saturating_add(life - margin),
            charged,
        })
    }
}

impl Entry {
    pub(super) fn new(wanted: &Wanted<'_>, life: Nanos, requests_per_life: u64) -> Self {
        let Wanted {
            hash, charge, lease, ..
        } = *wanted;
        let per_life = requests_per_life.saturating_mul(charge.cost);
        Self {
            hash,
            charge: OwnedCharge::from(&Charge { cost: 1, ..*charge }),
            most: lease.most(&charge.quota),
            life,
            lots: SmallVec::new(),
            demand: Demand::new(per_life, wanted.now),
            // Until the store has said what is left, that is nothing.
            refill: Next::From(0),
            asked: wanted.now,
            said: Said::default(),
        }
    }

    pub(super) const fn hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    pub(super) fn is_of(&self, hash: u64, charge: &Charge<'_>) -> bool {
        hash == self.hash
            && charge.quota == self.charge.quota
            && charge.policy == &self.charge.policy
            && charge.key == &self.charge.key
    }

    #[inline]
    pub(super) fn debit(&mut self, wanted: &Wanted<'_>, voided: Nanos) -> Debit {
        let Wanted { charge, now, .. } = *wanted;
        if charge.mode != Mode::Enforce {
            return Debit::none(true);
        }
        self.asked = now;
        if charge.cost <= self.most {
            self.demand.add(charge.cost, now, self.life);
        }
        let may_pay =
            |lot: &&mut Lot| u64::from(lot.units) >= charge.cost && lot.ends > now && lot.sent > voided;
        let stamp = self.lots.iter_mut().find(may_pay).map(|lot| {
            // No more than there are.
            lot.units -= charge.cost as u32;
            lot.stamp
        });
        Debit {
            refill: self.due_refill(charge.cost, now),
            paid: stamp.map(|stamp| self.paid(charge.cost, stamp, now)),
            is_new: false,
            is_hot: true,
        }
    }

    fn paid(&self, cost: u64, stamp: Stamp, now: Nanos) -> KnownOutcome {
        // The store has charged all of them: nobody else can have them.
        let remaining = self.said.remaining.saturating_add(self.held());
        let until_full = self.said.full_at.saturating_sub(now).div_ceil(1_000);
        let since = now.saturating_sub(self.said.at) / 1_000;
        KnownOutcome {
            granted: true,
            blocked: false,
            now: Stamp::from_micros(self.said.now.as_micros().saturating_add(since)),
            stamp,
            remaining,
            retry: if cost <= remaining {
                Wait::NOW
            } else {
                Wait::micros(until_full.max(1))
            },
            reset_after: until_full,
        }
    }

    pub(super) fn credit(&mut self, stamp: Stamp, cost: u64) {
        if let Some(lot) = self.lots.iter_mut().find(|lot| lot.stamp == stamp) {
            // They were taken of it.
            lot.units += cost as u32;
        }
    }

    /// Units that are neither spent nor given back.
    #[inline]
    pub(super) fn held(&self) -> u64 {
        self.lots.iter().map(|lot| u64::from(lot.units)).sum()
    }

    /// What to take, if what is there will soon be spent or over.
    #[inline]
    fn due_refill(&mut self, cost: u64, now: Nanos) -> Option<Refill> {
        match self.refill {
            Next::From(from) if from <= now => {}
            _ => return None,
        }
        let per_life = self.demand.per_life();
        let soon = now.saturating_add(self.life / 4);
        let lasting = self.lots.iter().filter(|lot| lot.ends > soon);
        let lasting: u64 = lasting.map(|lot| u64::from(lot.units)).sum();
        if lasting > per_life / 4 {
            return None;
        }
        let want = (per_life - per_life / 4)
            .saturating_sub(lasting)
            .min(self.most.saturating_sub(self.held()))
            .min(self.said.remaining / SHARE_OF_REST);
        if want < FEWEST.max(cost.saturating_mul(2)) {
            return None;
        }
        self.refill = Next::Flying;
        Some(Refill {
            hash: self.hash,
            charge: self.charge.clone(),
            want: u32::try_from(want).unwrap_or(u32::MAX),
            life: self.life,
        })
    }

    pub(super) fn observe(&mut self, (state, is_denied): (&ChargeState, bool), voided: Nanos) -> Vec<Return> {
        if state.known {
            self.said.remaining = state.remaining;
        }
        if !is_denied {
            return Vec::new();
        }
        // Others may have use for what is too little for this one.
        let lots = self
            .lots
            .drain(..)
            .filter(|lot| lot.units > 0 && lot.sent > voided);
        lots.map(|lot| Return::of(&self.charge, &lot)).collect()
    }

    pub(super) fn fill(&mut self, outcome: Option<&Outcome>, lot: Option<Lot>, now: Nanos) -> Option<Return> {
        let (Some(outcome), Some(state)) = (outcome, outcome.and_then(|outcome| outcome.states.first()))
        else {
            self.refill = Next::From(now.saturating_add(self.life / 4));
            return None;
        };
        self.refill = Next::From(now);
        self.said = Said {
            remaining: state.remaining,
            full_at: now.saturating_add(nanos(state.reset_after)),
            now: outcome.now,
            at: now,
        };
        let lot = lot?;
        if lot.ends <= now {
            return Some(Return::of(&self.charge, &lot));
        }
        let at = self.lots.partition_point(|other| other.ends <= lot.ends);
        self.lots.insert(at, lot);
        None
    }

    pub(super) fn sweep(
        &mut self,
        (now, next): (Nanos, Nanos),
        voided: Nanos,
        all: bool,
        returns: &mut Vec<Return>,
    ) {
        let is_idle = all || now.saturating_sub(self.asked) >= self.life / 4 * 3;
        let charge = &self.charge;
        self.lots.retain(|lot| {
            let is_over = lot.units == 0 || lot.sent <= voided;
            if !is_over && (is_idle || lot.ends <= next) {
                returns.push(Return::of(charge, lot));
                return false;
            }
            !is_over
        });
    }

    /// Whether there is nothing to remember of it.
    pub(super) fn is_over(&self, now: Nanos) -> bool {
        let is_forgotten = now.saturating_sub(self.asked) >= self.life.saturating_mul(2);
        self.lots.is_empty() && self.refill != Next::Flying && is_forgotten
    }
}
