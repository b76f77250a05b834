//! Equal asks of a call.

use tokio::time::Instant;

use super::crowd::Crowd;
use super::order::Wanted;

/// Equal asks, to be sent as one that is wanted as often as all of them, and who waits for it.
#[derive(Debug)]
pub(super) struct Merged {
    /// With the first of their deadlines.
    pub(super) ask: Wanted,
    /// Until when anybody waits for it.
    pub(super) latest: Instant,
    /// How many callers are asked for.
    pub(super) present: usize,
    /// None for an ask that travels alone, in its caller's own future.
    pub(super) crowd: Option<Crowd>,
}

impl Merged {
    pub(super) fn alone(ask: Wanted) -> Self {
        Self {
            latest: ask.deadline,
            ask,
            present: 1,
            crowd: None,
        }
    }

    /// Asks for those alone who are still there. False if nobody is.
    pub(super) fn leave_out_the_gone(&mut self, now: Instant) -> bool {
        let Some(crowd) = &self.crowd else {
            return true;
        };
        if self.ask.deadline > now && !crowd.has_gone() {
            return true;
        }
        let Some(present) = crowd.leave_out_the_gone(now) else {
            return false;
        };
        self.ask.want = present.want;
        self.ask.deadline = present.first_deadline;
        self.latest = present.last_deadline;
        self.present = present.count;
        true
    }
}
