//! A quota in the numbers that counting needs.

use super::MAX_SLACK;
use crate::quota::{Kind, Layout, Phase, Quota};

const PRODUCT_BOUND: u64 = 1 << 52;

/// A quota as the arithmetic needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) layout: Layout,
    /// Units that fit at once: the limit, or a bucket's burst.
    pub(crate) capacity: u64,
    /// Units per window: the limit, or a bucket's rate.
    pub(crate) rate: u64,
    pub(crate) window: u64,
    /// Where fixed windows begin, less than the window.
    pub(crate) offset: u64,
    /// Ticks of sliding counters and buckets last 2^`shift` µs.
    pub(super) shift: u32,
}

impl Terms {
    /// `key_hash` places the windows of a quota that is phased per key. `None` if unlimited.
    #[inline]
    pub(crate) fn new(quota: &Quota, key_hash: impl FnOnce() -> u64) -> Option<Self> {
        let layout = quota.layout()?;
        let window = quota.window_micros();
        let (capacity, rate) = (quota.limit()?, quota.units_per_window());
        Some(Self {
            layout,
            capacity,
            rate,
            window,
            shift: match layout {
                Layout::Counter | Layout::Bucket => tick_shift(capacity.max(rate), window),
                _ => 0,
            },
            offset: match quota.kind() {
                Kind::Fixed(Phase::Utc(offset)) => offset,
                Kind::Fixed(Phase::PerKey) => key_hash() % window,
                _ => 0,
            },
        })
    }

    /// The terms of a quota for a key. `None` if unlimited.
    #[inline]
    pub(crate) fn of(quota: &Quota, key: &[u8]) -> Option<Self> {
        Self::new(quota, || stable_hash(key))
    }

    /// Ticks of sliding counters and buckets last 2 to the power of this in µs.
    #[cfg(feature = "redis")]
    pub(crate) const fn shift(&self) -> u32 {
        self.shift
    }

    /// How far ahead of the clock an entry may lie: more is from another clock.
    pub(crate) fn slack(&self) -> u64 {
        self.window.min(MAX_SLACK)
    }

    /// Whether a time was written under another clock.
    pub(super) fn is_foreign(&self, time: u64, now: u64) -> bool {
        time > now + self.slack()
    }
}

/// The same on every instance and in every version: places the windows of a quota that is phased per key.
fn stable_hash(key: &[u8]) -> u64 {
    let hash = blake3::hash(key);
    let (first, _) = hash.as_bytes().split_at(8);
    first.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// The k of the tick rule: time counts in ticks of 2ᵏ µs.
pub(super) fn tick_shift(units: u64, window: u64) -> u32 {
    let mut shift = 0;
    while units.saturating_mul(ticks(window, shift)) >= PRODUCT_BOUND {
        shift += 1;
    }
    shift
}

/// `time` in ticks of 2^`shift` µs, rounded up.
pub(super) fn ticks(time: u64, shift: u32) -> u64 {
    (time + (1 << shift) - 1) >> shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::MAX_UNITS;

    #[test]
    fn c12_the_tick_rule_is_the_smallest_that_keeps_products_exact() {
        let year = 366 * 24 * 3_600 * 1_000_000;
        assert_eq!(tick_shift(100, 60_000_000), 0);
        assert_eq!(tick_shift(1_000_000, 3_600_000_000), 0);
        assert_eq!(tick_shift(MAX_UNITS, 1_000), 0);
        for (units, window) in [(MAX_UNITS, year), (MAX_UNITS, 60_000_000), (1 << 20, year)] {
            let shift = tick_shift(units, window);
            assert!(shift > 0);
            assert!(u128::from(units) * u128::from(ticks(window, shift)) < 1 << 52);
            assert!(u128::from(units) * u128::from(ticks(window, shift - 1)) >= 1 << 52);
        }
    }
}
