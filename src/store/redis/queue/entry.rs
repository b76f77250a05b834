//! An ask that waits for the next call.

use smallvec::SmallVec;

use super::super::doors::{Door, Doors};
use super::super::merged::Merged;
use super::Bounds;

/// Its place is that of who came for it first.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) merged: Merged,
    pub(super) hash: u64,
    /// Units that one grant of it writes one by one.
    pub(super) units: u64,
    /// Made when first needed.
    pub(super) doors: Option<Box<Behind>>,
}

/// Who may have joined an ask by doors.
#[derive(Debug, Default)]
pub(super) struct Behind {
    pub(super) doors: SmallVec<[Door; 8]>,
    /// How many there is room for, those who have come included.
    pub(super) room: u32,
}

impl Entry {
    /// How many more grants it can be wanted.
    pub(super) fn room(&self, bounds: Bounds) -> u64 {
        let behind = self.doors.as_ref().map_or(0, |behind| behind.room);
        let most = bounds.units.checked_div(self.units).unwrap_or(u64::MAX);
        let most = most.min(u32::MAX.into());
        most.saturating_sub(u64::from(self.merged.ask.want) + u64::from(behind))
    }

    pub(super) fn has_room(&self, bounds: Bounds, want: u32) -> bool {
        self.room(bounds) >= want.into()
    }

    /// Takes in who came by doors. For how many more there was room.
    pub(super) fn take_in(&mut self, behind: Behind, doors: &Doors) -> usize {
        let Merged {
            ask,
            latest,
            present,
            crowd,
        } = &mut self.merged;
        let mut room = 0;
        for open in behind.doors.into_iter().filter_map(|door| doors.close(door)) {
            // Each of them wants one grant.
            let count = open.group.len();
            ask.want += count as u32;
            ask.deadline = ask.deadline.min(open.first_deadline);
            *latest = open.last_deadline.max(*latest);
            *present += count;
            room += open.room as usize;
            if let Some(crowd) = crowd {
                crowd.add(open.group);
            }
        }
        room
    }
}
