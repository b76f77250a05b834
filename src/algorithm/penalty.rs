//! Blocks after denials.

use super::MAX_SLACK;
use crate::penalty::Penalty;

/// The longest block: 366 days.
const MAX_BLOCK: u64 = 366 * 24 * 3_600 * 1_000_000;

/// Blocks in a row that are told from each other. So many doublings make the shortest block the longest.
const MOST_BLOCKS: u32 = 64;

/// What is known of a key under a policy's penalty. Times are the store's, in microseconds.
///
/// First [`repair`](Self::repair), then questions, then at most one change, all with the same `now`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offences {
    /// Denials counted since `first`.
    denials: u32,
    first: u64,
    /// Blocks in a row, the last one included.
    blocks: u32,
    /// When the last block ends, and how long it was.
    until: u64,
    length: u64,
}

impl Offences {
    /// Undoes what another clock wrote. A block ends at the latest when one of its length that began now would; denials
    /// whose first is more than the slack ahead of `now` are forgotten. True if anything was changed.
    pub(crate) fn repair(&mut self, penalty: &Penalty, now: u64) -> bool {
        let before = *self;
        self.until = self.until.min(now + self.length);
        if self.first > now + penalty.within().min(MAX_SLACK) {
            (self.denials, self.first) = (0, 0);
        }
        *self != before
    }

    /// When the block ends, if there is one.
    pub(crate) fn blocked_until(&self, now: u64) -> Option<u64> {
        (self.until > now).then_some(self.until)
    }

    /// Counts denials of a key that is not blocked. When there are enough, the block begins.
    pub(crate) fn count(&mut self, penalty: &Penalty, now: u64, denials: u32) {
        if penalty.denials() == 0 || denials == 0 {
            return;
        }
        if self.denials == 0 || now >= self.first + penalty.within() {
            (self.denials, self.first) = (0, now);
        }
        self.denials = self.denials.saturating_add(denials);
        if self.denials >= penalty.denials() {
            let blocks = self.blocks_in_a_row(penalty, now);
            let length = length(penalty, blocks);
            *self = Self {
                blocks: (blocks + 1).min(MOST_BLOCKS),
                until: now + length,
                length,
                ..Self::default()
            };
        }
    }

    /// Blocks the key for `time` from now on, whatever it did; for no time, it is as if it had done nothing.
    pub(crate) fn block(&mut self, penalty: &Penalty, now: u64, time: u64) {
        let length = time.min(MAX_BLOCK);
        *self = match length {
            0 => Self::default(),
            _ => Self {
                blocks: self.blocks_in_a_row(penalty, now),
                until: now + length,
                length,
                ..Self::default()
            },
        };
    }

    /// From this time on the state equals no state.
    pub(crate) fn expires_at(&self, penalty: &Penalty) -> u64 {
        let counted = match self.denials {
            0 => 0,
            _ => self.first + penalty.within(),
        };
        let repeated = match self.blocks {
            0 => self.until,
            _ => self.until + memory(penalty),
        };
        counted.max(repeated)
    }

    /// A state of this length lasts no longer than this from the time on at which it was written.
    pub(crate) fn lasts(&self, penalty: &Penalty) -> u64 {
        (penalty.within() + MAX_SLACK).max(self.length + memory(penalty))
    }

    fn blocks_in_a_row(&self, penalty: &Penalty, now: u64) -> u32 {
        if now < self.until + memory(penalty) {
            self.blocks
        } else {
            0
        }
    }
}

/// How long after a block the next one counts as a repetition.
fn memory(penalty: &Penalty) -> u64 {
    if penalty.factor() > 1 {
        penalty.longest()
    } else {
        0
    }
}

/// How long a block lasts after so many in a row.
fn length(penalty: &Penalty, blocks: u32) -> u64 {
    let (factor, longest) = (u64::from(penalty.factor()), penalty.longest());
    let mut length = penalty.block().min(longest);
    let mut grown = 0;
    while grown < blocks && length < longest {
        length = if length > longest / factor {
            longest
        } else {
            length * factor
        };
        grown += 1;
    }
    length
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = 1_000_000;
    const NOW: u64 = 1_800_000_000 * SECOND;

    fn penalty() -> Penalty {
        let second = Duration::from_secs(1);
        Penalty::after(3, 10 * second)
            .block_for(2 * second)
            .growing(3, 60 * second)
    }

    fn counted(times: &[u64]) -> Offences {
        let mut offences = Offences::default();
        for &time in times {
            offences.repair(&penalty(), time);
            if offences.blocked_until(time).is_none() {
                offences.count(&penalty(), time, 1);
            }
        }
        offences
    }

    #[test]
    fn denials_count_from_the_first_of_them_on() {
        let end = NOW + 10 * SECOND;
        let offences = counted(&[NOW, end - 2, end - 1]);
        assert_eq!(offences.blocked_until(end - 1), Some(end - 1 + 2 * SECOND));
        assert_eq!(offences.blocked_until(end - 1 + 2 * SECOND), None);
        assert_eq!(counted(&[NOW, end - 1, end]).blocked_until(end), None);
    }

    #[test]
    fn blocks_grow_up_to_the_longest_and_start_anew_after_as_long_a_pause() {
        let mut offences = Offences::default();
        let mut now = NOW;
        for seconds in [2, 6, 18, 54, 60, 60] {
            offences.count(&penalty(), now, 3);
            assert_eq!(offences.blocked_until(now), Some(now + seconds * SECOND));
            now += seconds * SECOND;
        }
        assert_eq!(offences.expires_at(&penalty()), now + 60 * SECOND);
        let mut repeated = offences;
        repeated.count(&penalty(), now + 60 * SECOND - 1, 3);
        assert_eq!(repeated.length, 60 * SECOND);
        offences.count(&penalty(), now + 60 * SECOND, 3);
        assert_eq!(offences.length, 2 * SECOND);
    }

    #[test]
    fn the_longest_row_of_the_fastest_growth_stays_exact() {
        let year = Duration::from_micros(MAX_BLOCK);
        for factor in [2, 3, u32::MAX] {
            let penalty = Penalty::after(1, Duration::from_millis(1)).growing(factor, year);
            assert_eq!(length(&penalty, MOST_BLOCKS), MAX_BLOCK);
            assert!(length(&penalty, 1) == u64::from(factor) * 1_000);
        }
        const { assert!(super::super::MAX_TIME + 2 * MAX_BLOCK < 1 << 53) };
    }

    #[test]
    fn c10_a_step_back_holds_nobody_longer_than_the_block_and_forgets_its_count() {
        let mut blocked = counted(&[NOW, NOW, NOW]);
        assert!(blocked.repair(&penalty(), NOW - 100 * SECOND));
        assert_eq!(blocked.blocked_until(NOW - 100 * SECOND), Some(NOW - 98 * SECOND));
        let mut counting = counted(&[NOW, NOW]);
        assert!(!counting.repair(&penalty(), NOW - SECOND));
        assert!(counting.repair(&penalty(), NOW - SECOND - 1));
        assert_eq!(counting, Offences::default());
    }

    #[test]
    fn a_block_by_hand_keeps_its_own_length() {
        let mut offences = counted(&[NOW, NOW]);
        offences.block(&penalty(), NOW, 1_000 * SECOND);
        assert!(!offences.repair(&penalty(), NOW + SECOND));
        assert_eq!(offences.blocked_until(NOW + SECOND), Some(NOW + 1_000 * SECOND));
        offences.block(&Penalty::manual(), NOW, 0);
        assert_eq!(offences, Offences::default());
    }
}
