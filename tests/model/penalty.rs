//! Penalties of the model.

use tollgate::Penalty;

use super::{SECOND, exact, micros};

const MAX_BLOCK: i128 = 366 * 86_400 * SECOND;

/// A penalty in the model's words; of 0 denials, one that only blocks by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Punishment {
    pub(crate) denials: i128,
    pub(crate) within: i128,
    pub(crate) block: i128,
    pub(crate) factor: i128,
    pub(crate) longest: i128,
}

impl Punishment {
    pub(crate) fn penalty(&self) -> Penalty {
        if self.denials == 0 {
            return Penalty::manual();
        }
        Penalty::after(self.denials as u32, micros(self.within))
            .block_for(micros(self.block))
            .growing(self.factor as u32, micros(self.longest))
    }

    /// A count is forgotten this long after its first denial.
    fn within(&self) -> i128 {
        if self.denials == 0 { 0 } else { self.within }
    }

    /// A row of blocks is forgotten this long after its last one.
    fn memory(&self) -> i128 {
        if self.denials == 0 || self.factor == 1 {
            0
        } else {
            self.longest
        }
    }

    /// The block after so many in a row.
    fn length(&self, row: u32) -> i128 {
        let grown = self
            .factor
            .checked_pow(row)
            .and_then(|factor| factor.checked_mul(self.block));
        grown.map_or(self.longest, |grown| grown.min(self.longest))
    }
}

/// What a key did under a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// The time of the first denial that is counted, and how many are.
    counted: Option<(i128, i128)>,
    /// When the last block ends, and how long it was.
    block: Option<(i128, i128)>,
    row: u32,
    /// When it means nothing any more, under the penalty that it was written for.
    pub(super) over: i128,
}

impl Record {
    pub(super) fn repair(&mut self, punishment: &Punishment, now: i128) {
        let before = *self;
        self.block = self.block.map(|(end, length)| (end.min(now + length), length));
        self.counted = self
            .counted
            .filter(|(first, _)| *first <= now + punishment.within().min(SECOND));
        if *self != before {
            self.note(punishment);
        }
    }

    pub(super) fn blocked_until(&self, now: i128) -> Option<i128> {
        self.block.map(|(end, _)| end).filter(|end| *end > now)
    }

    pub(super) fn deny(&mut self, punishment: &Punishment, now: i128, denials: i128) {
        if punishment.denials == 0 || denials == 0 || self.blocked_until(now).is_some() {
            return;
        }
        let (first, before) = self
            .counted
            .filter(|(first, _)| now < first + punishment.within())
            .unwrap_or((now, 0));
        self.counted = Some((first, before + denials));
        if before + denials >= punishment.denials {
            let row = self.row_at(punishment, now);
            self.begin(now, punishment.length(row), row + 1);
        }
        self.note(punishment);
    }

    pub(super) fn block(&mut self, punishment: &Punishment, now: i128, time: i128) {
        let row = self.row_at(punishment, now);
        self.begin(now, time.min(MAX_BLOCK), row);
        self.note(punishment);
    }

    fn begin(&mut self, now: i128, length: i128, row: u32) {
        self.counted = None;
        self.block = Some((exact(now + length), length));
        self.row = row;
    }

    fn row_at(&self, punishment: &Punishment, now: i128) -> u32 {
        match self.block {
            Some((end, _)) if now < end + punishment.memory() => self.row,
            _ => 0,
        }
    }

    fn note(&mut self, punishment: &Punishment) {
        let counted = self.counted.map(|(first, _)| first + punishment.within());
        let blocked = self.block.map(|(end, _)| match self.row {
            0 => end,
            _ => end + punishment.memory(),
        });
        self.over = exact(counted.max(blocked).unwrap_or(0));
    }
}
