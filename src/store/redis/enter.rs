//! How an ask begins: with a call of its own, or among those who wait for one.

use std::sync::{Arc, MutexGuard};

use tokio::time::Instant;

use super::callers::Callers;
use super::dispatch::Dispatch;
use super::flight::Flight;
use super::order::{Order, Wanted, deadline_after, hash_of_one};
use super::queue::Queue;
use super::waiting::Waiting;
use crate::store::{Ask, Charge, StoreError, StoreErrorKind};

/// How an ask is going to travel.
pub(super) enum Entered {
    Alone(Box<Flight>),
    Waits(Waiting),
}

/// What becomes of an ask that nothing has been written down for yet.
pub(super) enum Met {
    /// It waits with equal ones.
    Joined(Waiting),
    /// Too many wait.
    Refused(StoreError),
    /// It has to wait by itself. Its hash, when it was asked, and its deadline.
    Busy(u64, Instant, Instant),
    /// A call can be made for it.
    Free,
}

impl Dispatch {
    /// Lets an ask of one charge wait with those that ask for the same.
    pub(super) fn meet(self: &Arc<Self>, prefix: &str, ask: &Ask<'_>, charge: &Charge<'_>) -> Met {
        let asked = Instant::now();
        let deadline = deadline_after(asked, ask.deadline);
        let hash = hash_of_one(&self.hasher, charge);
        let mut queue = self.queue();
        if deadline <= asked || queue.is_free(asked) {
            return Met::Free;
        }
        if queue.is_full() {
            return Met::Refused(self.refuse(queue, asked));
        }
        let is_equal = |order: &Order| order.is_of(prefix, ask, charge);
        let Some(joined) = queue.join(hash, is_equal, (ask.want, deadline)) else {
            return Met::Busy(hash, asked, deadline);
        };
        self.go_on(queue, asked);
        Met::Joined(Waiting::new(joined, asked, deadline))
    }

    /// Gives an ask a call of its own, or lets it wait for one that others make.
    pub(super) fn enter(
        self: &Arc<Self>,
        hash: u64,
        ask: Wanted,
        asked: Instant,
    ) -> Result<Entered, StoreError> {
        let deadline = ask.deadline;
        let mut queue = self.queue();
        if let Some(place) = queue.take_off(asked, deadline) {
            drop(queue);
            return Ok(Entered::Alone(Box::new(Flight::alone(
                Arc::clone(self),
                place,
                ask,
            ))));
        }
        if queue.is_full() {
            return Err(self.refuse(queue, asked));
        }
        let is_equal = |order: &Order| order.merges_with(&ask.order);
        let joined = queue.join(hash, is_equal, (ask.want, deadline));
        let joined =
            joined.unwrap_or_else(|| queue.push(hash, ask, Arc::new(Callers::new(Arc::clone(self)))));
        self.go_on(queue, asked);
        Ok(Entered::Waits(Waiting::new(joined, asked, deadline)))
    }

    /// Too many wait.
    fn refuse(self: &Arc<Self>, queue: MutexGuard<'_, Queue>, asked: Instant) -> StoreError {
        self.go_on(queue, asked);
        self.stats.count_refused();
        StoreError::new(StoreErrorKind::Overloaded)
    }

    /// Sends what waits, if there is a place: a call may have lost its own.
    fn go_on(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>, asked: Instant) {
        let has_place = queue.has_place(asked);
        drop(queue);
        if has_place {
            self.take_along();
        }
    }
}
