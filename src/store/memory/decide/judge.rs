//! What an ask's penalties say of its keys.

use super::Decide;
use crate::algorithm::Offences;
use crate::penalty::Penalty;
use crate::store::Charge;
use crate::store::memory::penalties::Offender;

/// A key and policy that a penalty of the ask is about.
pub(super) struct Judged<'a> {
    offender: Offender<'a>,
    /// Of the first charge that has one for them.
    penalty: &'a Penalty,
    pub(super) hash: u64,
    pub(super) lock: usize,
    offences: Offences,
}

impl<'a> Decide<'a> {
    /// Takes note of a charge's penalty.
    pub(super) fn judge(&mut self, charge: &Charge<'a>) {
        let Some(penalty) = self.heeds.penalty(charge) else {
            return;
        };
        let offender = Offender::of(charge);
        if self.judged.iter().all(|judged| judged.offender != offender) {
            self.judged.push(Judged {
                offender,
                penalty,
                hash: offender.hash(&self.shared.seed),
                lock: 0,
                offences: Offences::default(),
            });
        }
    }

    /// Who is judged for a charge.
    fn judged_for(&self, charge: &Charge<'_>) -> Option<usize> {
        self.heeds.penalty(charge)?;
        let offender = Offender::of(charge);
        self.judged.iter().position(|judged| judged.offender == offender)
    }

    /// Looks the penalties' states up, under their locks.
    pub(super) fn read_offences(&mut self) {
        for at in 0..self.judged.len() {
            let judged = &mut self.judged[at];
            let penalties = &self.locks[judged.lock].1.penalties;
            if let Some(offences) = penalties.get(judged.hash, &judged.offender) {
                judged.offences = offences;
                if judged.offences.repair(judged.penalty, self.now) {
                    self.write_offences(at);
                }
            }
        }
    }

    /// Where there is no room for them, it is as if there were none.
    fn write_offences(&mut self, at: usize) {
        let judged = &mut self.judged[at];
        let penalties = &mut self.locks[judged.lock].1.penalties;
        let whose = (judged.hash, &judged.offender);
        if !penalties.put(
            whose,
            judged.offences,
            judged.penalty,
            self.now,
            &self.shared.budget,
        ) {
            judged.offences = Offences::default();
        }
        self.recorded = true;
    }

    /// Counts the denials of an ask that was granted so often for the penalties of charges that had no room for more.
    pub(super) fn count_denials(&mut self, granted: u32, want: u32) {
        for at in 0..self.judged.len() {
            let had_no_room = |(charge, counter): &(Charge<'a>, Option<usize>)| {
                self.judged_for(charge) == Some(at)
                    && counter.is_some_and(|counter| self.counters[counter].fits(want) <= granted)
            };
            if self.judged[at].offences.blocked_until(self.now).is_none()
                && self.charges.iter().any(had_no_room)
            {
                let judged = &mut self.judged[at];
                let before = judged.offences;
                judged.offences.count(judged.penalty, self.now, want - granted);
                if judged.offences != before {
                    self.write_offences(at);
                }
            }
        }
    }

    /// Whether a key is blocked.
    pub(super) fn is_blocked(&self) -> bool {
        let mut judged = self.judged.iter();
        judged.any(|judged| judged.offences.blocked_until(self.now).is_some())
    }

    /// Until when the key of a charge is blocked, if it is.
    pub(super) fn block_of(&self, charge: &Charge<'_>) -> Option<u64> {
        let at = self.judged_for(charge)?;
        self.judged[at].offences.blocked_until(self.now)
    }

    pub(super) fn forget_offences(&mut self) {
        for judged in &self.judged {
            let penalties = &mut self.locks[judged.lock].1.penalties;
            penalties.remove(judged.hash, &judged.offender, &self.shared.budget);
        }
    }
}
