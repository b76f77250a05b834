//! Random numbers that a seed determines on every machine (`SplitMix64`).

use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` up to `high`, both included.
    pub(super) const fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// The same, where each order of magnitude is as likely as any other.
    pub(super) fn scaled(&mut self, low: u64, high: u64) -> u64 {
        let (from, to) = ((low as f64).ln(), (high as f64).ln());
        let share = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((from + (to - from) * share).exp() as u64).clamp(low, high)
    }

    pub(super) fn micros(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.within(low, high))
    }

    pub(super) const fn percent(&mut self, percent: u64) -> bool {
        self.within(0, 99) < percent
    }

    pub(super) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.within(0, all.len() as u64 - 1) as usize]
    }
}
