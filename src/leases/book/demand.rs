//! How much of a key is asked for.

use crate::store::Nanos;

/// Within a sixteenth of a lifetime, so many units tell the rate; fewer take up to half a lifetime.
const TELLING: u64 = 64;

/// Units that are asked for within a lifetime: quicker to follow a rise than a fall.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    per_life: u64,
    /// Units since then.
    units: u64,
    since: Nanos,
}

impl Demand {
    pub(super) const fn new(per_life: u64, now: Nanos) -> Self {
        Self {
            per_life,
            units: 0,
            since: now,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, units: u64, now: Nanos, life: Nanos) {
        self.units = self.units.saturating_add(units);
        let age = now.saturating_sub(self.since);
        if age >= life / 2 || self.units >= TELLING && age >= life / 16 {
            self.roll(now, life);
        }
    }

    fn roll(&mut self, now: Nanos, life: Nanos) {
        let age = now.saturating_sub(self.since).max(1);
        let seen = u128::from(self.units) * u128::from(life) / u128::from(age);
        let seen = u64::try_from(seen).unwrap_or(u64::MAX);
        self.per_life = if seen > self.per_life {
            self.per_life + (seen - self.per_life).div_ceil(2)
        } else {
            self.per_life - (self.per_life - seen) / 4
        };
        (self.units, self.since) = (0, now);
    }

    #[inline]
    pub(super) const fn per_life(&self) -> u64 {
        self.per_life
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_what_is_asked_for() {
        let mut demand = Demand::new(10, 0);
        for at in 1..=1_000 {
            demand.add(1, at * 10, 1_000);
        }
        assert!((95..=105).contains(&demand.per_life()), "{demand:?}");
        for at in 0..100 {
            demand.add(1, 10_000 + at * 100, 1_000);
        }
        assert!((9..=20).contains(&demand.per_life()), "{demand:?}");
    }
}
