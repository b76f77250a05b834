//! What happens to a key that is denied again and again.

use std::time::Duration;

const MIN: u128 = 1_000;
const MAX: u128 = 366 * 24 * 3_600 * 1_000_000;

/// Blocks a key for a while, once it was denied too often.
///
/// While a key is blocked, its policy denies everything of it, and says when the block ends. The quota goes on as if there
/// were no penalty: neither denials nor blocks charge anything. State is kept for each policy name and key, and only where a
/// [charge](crate::store::Charge) carries a penalty; in shadow mode it is ignored.
///
/// The store keeps blocks: while it gives no answer, [`FailurePolicy::Local`](crate::FailurePolicy::Local) counts denials and blocks
/// of its own, and knows of no others.
///
/// In a Redis cluster, keys in several slots are asked one after another, in the order of their policies. When one denies, the
/// penalties of later slots count nothing, even where their policies have no room either: list the policies that have one first.
///
/// Times last from 1 ms to 366 days.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Penalty;
///
/// const MINUTE: Duration = Duration::from_secs(60);
///
/// // Ten denials within a minute: blocked for a minute.
/// const PLAIN: Penalty = Penalty::after(10, MINUTE);
/// // For five minutes; next time for ten, then for twenty, up to a day.
/// const HARD: Penalty = PLAIN.block_for(MINUTE.saturating_mul(5)).growing(2, MINUTE.saturating_mul(1_440));
/// # let _ = HARD;
/// ```
///
/// An impossible penalty in a `const` does not compile:
///
/// ```compile_fail
/// # use tollgate::Penalty;
/// const NEVER: Penalty = Penalty::after(0, std::time::Duration::from_secs(1));
/// # let _ = NEVER;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Penalty {
    /// 0: no number of denials blocks.
    denials: u32,
    /// In microseconds, as all times are here.
    within: u64,
    block: u64,
    factor: u32,
    longest: u64,
}

impl Penalty {
    /// Blocks a key after `denials` denials within `within`, counted from the first of them on. The block lasts `within`, unless
    /// [`block_for`](Self::block_for) says otherwise. Denials later than that are a new count, and so are those after a block.
    ///
    /// A denial counts if this policy itself had no room; a cost above the limit counts too.
    ///
    /// # Panics
    ///
    /// If `denials` is 0, or `within` shorter than 1 ms or longer than 366 days.
    #[must_use]
    #[track_caller]
    pub const fn after(denials: u32, within: Duration) -> Self {
        expect(Self::try_after(denials, within))
    }

    /// # Errors
    ///
    /// Where [`after`](Self::after) panics.
    pub(crate) const fn try_after(denials: u32, within: Duration) -> Result<Self, &'static str> {
        if denials == 0 {
            return Err(
                "a penalty after 0 denials would block everybody: say after how many, or `Penalty::manual()` for none",
            );
        }
        let Some(within) = micros(within) else {
            return Err("denials count within 1 ms to 366 days: choose a time in between");
        };
        Ok(Self {
            denials,
            within,
            block: within,
            factor: 1,
            longest: MAX as u64,
        })
    }

    /// Sets how long a block lasts, or the first of [growing](Self::growing) ones.
    ///
    /// # Panics
    ///
    /// If `block` is shorter than 1 ms or longer than 366 days.
    #[must_use]
    #[track_caller]
    pub const fn block_for(self, block: Duration) -> Self {
        expect(self.try_block_for(block))
    }

    /// # Errors
    ///
    /// Where [`block_for`](Self::block_for) panics.
    pub(crate) const fn try_block_for(mut self, block: Duration) -> Result<Self, &'static str> {
        let Some(block) = micros(block) else {
            return Err("a block lasts 1 ms to 366 days: choose a time in between, or leave the penalty out");
        };
        self.block = block;
        Ok(self)
    }

    /// Lets each further block last `factor` times as long as the one before, and no block longer than `longest`, until the key has
    /// had no block for `longest` after the end of its last one. By a factor of 1, nothing grows.
    ///
    /// # Panics
    ///
    /// If `factor` is 0, or `longest` shorter than 1 ms or longer than 366 days.
    #[must_use]
    #[track_caller]
    pub const fn growing(self, factor: u32, longest: Duration) -> Self {
        expect(self.try_growing(factor, longest))
    }

    /// # Errors
    ///
    /// Where [`growing`](Self::growing) panics.
    pub(crate) const fn try_growing(mut self, factor: u32, longest: Duration) -> Result<Self, &'static str> {
        if factor == 0 {
            return Err("blocks that grow by a factor of 0 would end at once: choose 2 or more");
        }
        let Some(longest) = micros(longest) else {
            return Err("the longest block lasts 1 ms to 366 days: choose a time in between");
        };
        self.factor = factor;
        self.longest = longest;
        Ok(self)
    }

    /// No number of denials blocks a key; only [`Store::block`](crate::Store::block) does.
    #[must_use]
    pub const fn manual() -> Self {
        Self {
            denials: 0,
            within: 0,
            block: 0,
            factor: 1,
            longest: 0,
        }
    }

    /// Denials that block a key; 0 if none do.
    pub(crate) const fn denials(&self) -> u32 {
        self.denials
    }

    /// How long the first denial of a count is remembered, in microseconds.
    pub(crate) const fn within(&self) -> u64 {
        self.within
    }

    /// How long the first block of a row lasts, in microseconds, unless that is longer than the longest.
    pub(crate) const fn block(&self) -> u64 {
        self.block
    }

    pub(crate) const fn factor(&self) -> u32 {
        self.factor
    }

    /// The most that a block lasts, in microseconds.
    pub(crate) const fn longest(&self) -> u64 {
        self.longest
    }
}

#[track_caller]
const fn expect(penalty: Result<Penalty, &'static str>) -> Penalty {
    match penalty {
        Ok(penalty) => penalty,
        Err(error) => panic!("{}", error),
    }
}

const fn micros(time: Duration) -> Option<u64> {
    let micros = time.as_micros();
    if MIN <= micros && micros <= MAX {
        Some(micros as u64)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_block_lasts_as_long_as_denials_count_unless_said() {
        let penalty = Penalty::after(3, SECOND);
        assert_eq!(penalty, penalty.block_for(SECOND));
        assert_ne!(penalty, penalty.block_for(2 * SECOND));
    }

    #[test]
    fn the_order_of_settings_does_not_matter() {
        let penalty = Penalty::after(3, SECOND);
        assert_eq!(
            penalty.block_for(2 * SECOND).growing(2, SECOND),
            penalty.growing(2, SECOND).block_for(2 * SECOND)
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_a_hint() {
        let year = 366 * 24 * 3_600 * SECOND;
        let _ = Penalty::after(u32::MAX, year)
            .block_for(year)
            .growing(u32::MAX, year);
        type Make = fn() -> Penalty;
        let wrong: [(Make, &str); 6] = [
            (|| Penalty::after(0, SECOND), "Penalty::manual()"),
            (|| Penalty::after(1, Duration::ZERO), "denials count within 1 ms"),
            (|| Penalty::after(1, Duration::MAX), "denials count within 1 ms"),
            (
                || Penalty::after(1, SECOND).block_for(Duration::from_micros(999)),
                "a block lasts 1 ms",
            ),
            (
                || Penalty::after(1, SECOND).growing(0, SECOND),
                "choose 2 or more",
            ),
            (
                || Penalty::after(1, SECOND).growing(2, 367 * 24 * 3_600 * SECOND),
                "the longest block lasts 1 ms",
            ),
        ];
        for (make, hint) in wrong {
            let panic = catch_unwind(make).expect_err(hint);
            let message = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .expect("a message");
            assert!(message.contains(hint), "{message}");
        }
    }
}
