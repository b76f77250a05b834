//! The token bucket, as a debt that refilling pays off.

use super::{Counting, Terms, ticks};

/// The debt as of a time. A unit owes one window's length in ticks, and every tick of time pays off as many
/// as the rate has units per window: whole numbers, whatever the rate.
///
/// One unit's worth depends on the window alone, which belongs to the counter's identity, so a changed rate or
/// burst reads the same debt: what was used stays used. (The tick's length can change with the quota; the
/// debt is then rounded up to the strict side.)
///
/// What is held may be used until its stamp, so it is owed in full until then. The older debt is paid off before, as
/// late as it can be: the time moves ahead to where refilling must begin to be done with it at the stamp. Refilling
/// so goes on while held charges follow each other.
///
/// Only a charge writes what has been paid off since, so that a denial under one quota cannot change an
/// answer under the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    at: u64,
    debt: u64,
    shift: u32,
}

impl Bucket {
    #[cfg(feature = "redis")]
    pub(super) fn of(terms: &Terms, (at, debt, shift): (u64, u64, u64), later: u64) -> Self {
        let shift = shift.min(52) as u32;
        let later = later.saturating_mul(ticks(terms.window, shift));
        Self {
            at,
            debt: debt.saturating_sub(later),
            shift,
        }
    }

    /// The debt at `now`, capped to the capacity: what was paid off up to then is taken off.
    fn level(&self, terms: &Terms, now: u64) -> Self {
        let shift = terms.shift;
        let unit = ticks(terms.window, shift);
        let cap = terms.capacity * unit;
        let debt = if self.shift == shift {
            self.debt.min(cap)
        } else {
            let old_unit = ticks(terms.window, self.shift);
            let (units, part) = (self.debt / old_unit, self.debt % old_unit);
            (units.min(terms.capacity) * unit + u64::from(part > 0) * unit).min(cap)
        };
        let elapsed = now.saturating_sub(self.at) >> shift;
        if elapsed >= debt.div_ceil(terms.rate) {
            return Self {
                at: now,
                debt: 0,
                shift,
            };
        }
        Self {
            at: self.at + (elapsed << shift),
            debt: debt - elapsed * terms.rate,
            shift,
        }
    }

    /// Dates back what was written under another clock, and returns how far.
    pub(super) fn date_back(&mut self, slack: u64, now: u64) -> u64 {
        if self.at <= now + slack {
            return 0;
        }
        let ahead = self.at - now;
        self.at = now;
        ahead
    }

    fn unit(&self, terms: &Terms) -> u64 {
        ticks(terms.window, self.shift)
    }
}

impl Counting for Bucket {
    #[inline]
    fn repair(&mut self, terms: &Terms, now: u64) {
        self.date_back(terms.slack(), now);
    }

    #[inline]
    fn free(&self, terms: &Terms, now: u64) -> u64 {
        let level = self.level(terms, now);
        terms.capacity - level.debt.div_ceil(level.unit(terms))
    }

    #[inline]
    fn earliest_later(&self, terms: &Terms, now: u64, cost: u64) -> u64 {
        let level = self.level(terms, now);
        let excess = level.debt - (terms.capacity - cost) * level.unit(terms);
        level.at + (excess.div_ceil(terms.rate) << level.shift)
    }

    #[inline]
    fn empty_at(&self, terms: &Terms, now: u64) -> u64 {
        let level = self.level(terms, now);
        level.at + (level.debt.div_ceil(terms.rate) << level.shift)
    }

    #[inline]
    fn tail(&self, _terms: &Terms) -> u64 {
        0
    }

    #[inline]
    fn charge(&mut self, terms: &Terms, now: u64, stamp: u64, units: u64) {
        let level = self.level(terms, now);
        let owed = units.min(terms.capacity) * level.unit(terms);
        *self = Self {
            at: if stamp > now || level.debt == 0 {
                let older = (level.debt / terms.rate) << level.shift;
                level.at.max(stamp.saturating_sub(older))
            } else {
                level.at
            },
            debt: (level.debt + owed).min(terms.capacity * level.unit(terms)),
            shift: level.shift,
        };
    }

    #[inline]
    fn give_back(&mut self, terms: &Terms, now: u64, stamp: u64, units: u64) {
        // Nobody knows what has been refilled since a time on another clock.
        if terms.is_foreign(stamp, now) {
            return;
        }
        // Under a quota that counts in other ticks nobody knows what a unit owed.
        if self.shift != terms.shift {
            return;
        }
        let owed = units.min(terms.capacity) * self.unit(terms);
        // What refilling may have paid off since is not given back a second time.
        let elapsed = ticks(now.saturating_sub(stamp), self.shift);
        let paid = elapsed.min(owed.div_ceil(terms.rate)) * terms.rate;
        // Taken off where it stands: a quota with another burst or rate must not have its cap and its refill written for it.
        let elapsed = now.saturating_sub(self.at) >> self.shift;
        let left = self.debt - elapsed.min(self.debt / terms.rate) * terms.rate;
        self.debt -= owed.saturating_sub(paid).min(left);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::quota::{Quota, Rate};

    const HOLD: u64 = 600_000;
    const BURST: u64 = 2_000;

    fn terms() -> Terms {
        let quota = Quota::token_bucket(Rate::new(1_000, Duration::from_secs(1)), BURST);
        Terms::of(&quota, b"k").expect("limited")
    }

    /// As much as is refilled, by charges that are held longer than they are apart.
    #[test]
    fn c10_refilling_goes_on_while_charges_are_held() {
        let (terms, mut bucket, start) = (terms(), Bucket::default(), 1_000_000_000);
        for charge in 0..134 {
            let now = start + charge * 450_000;
            assert!(bucket.free(&terms, now) >= 450, "charge {charge}");
            bucket.charge(&terms, now, now + HOLD, 450);
        }
    }

    /// Each is used as late as may be, and then all that is left: no more at once than the burst.
    #[test]
    fn c1_what_is_held_is_owed_until_its_stamp() {
        for (apart, older) in [
            (1, 0),
            (50_000, 300),
            (150_000, 900),
            (450_000, 1_900),
            (599_999, 2_000),
        ] {
            let (terms, mut bucket, mut now) = (terms(), Bucket::default(), 1_000_000_000);
            bucket.charge(&terms, now, now, older);
            let mut stamps = Vec::new();
            for _ in 0..100 {
                let units = bucket.free(&terms, now).min(450);
                if units > 0 {
                    bucket.charge(&terms, now, now + HOLD, units);
                    stamps.push((now + HOLD, units));
                }
                now += apart;
                let unused = stamps.iter().filter(|(stamp, _)| *stamp >= now);
                let unused: u64 = unused.map(|(_, units)| units).sum();
                assert!(bucket.free(&terms, now) + unused <= BURST, "{apart} µs apart");
            }
        }
    }
}
