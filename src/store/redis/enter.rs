//! How an ask begins: with a call of its own, or among those who wait for one.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::alone::Alone;
use super::callers::Callers;
use super::crowd::Caller;
use super::dispatch::Dispatch;
use super::order::{Order, Wanted, deadline_after, hash_of_one};
use super::queue::{Answered, Queue};
use super::waiting::Waiting;
use crate::store::{Ask, Charge, KnownOutcome, StoreError, StoreErrorKind};

/// How an ask travels.
pub(in crate::store) enum Entered {
    /// By a call of its own, if that can be made when it is first polled. Boxed, for who waits has no need of the room that a
    /// call takes.
    Alone(Box<Alone>),
    Waits(Waiting),
}

impl Entered {
    pub(super) fn alone(dispatch: &Arc<Dispatch>, ask: Wanted) -> Self {
        Self::Alone(Box::new(Alone::new(dispatch, ask)))
    }

    /// The answer, if it is one to the ordinary ask. `None` if the future itself is to be awaited.
    #[inline]
    pub(in crate::store) fn poll_known(&mut self, context: &mut Context<'_>) -> Poll<Option<KnownOutcome>> {
        match self.begun() {
            Self::Alone(call) => call.poll_known(context),
            Self::Waits(waiting) => waiting.poll_known(context),
        }
    }

    #[inline]
    fn begun(&mut self) -> &mut Self {
        if let Self::Alone(call) = self
            && let Some(waiting) = call.begin()
        {
            *self = Self::Waits(waiting);
        }
        self
    }
}

impl Future for Entered {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        match self.begun() {
            Self::Alone(call) => Pin::new(call).poll(context),
            Self::Waits(waiting) => Pin::new(waiting).poll(context),
        }
    }
}

/// What becomes of an ask that nothing has been written down for yet.
pub(super) enum Met {
    /// It waits with equal ones.
    Joined(Waiting),
    /// Too many wait.
    Refused(StoreError),
    /// It has to wait by itself. Its hash, when it was asked, and its deadline.
    Busy(u64, Instant, Instant),
    /// A call can be made for it. Its deadline.
    Free(Instant),
}

impl Dispatch {
    /// Lets an ask of one charge wait with those that ask for the same.
    // Inlined, so that who waits is made where it stays: nearly all who come to a hot key do.
    #[inline(always)]
    pub(super) fn meet(self: &Arc<Self>, prefix: &str, ask: &Ask<'_>, charge: &Charge<'_>) -> Met {
        let asked = ask.asked_at();
        let deadline = deadline_after(asked, ask.deadline);
        let caller = Caller {
            want: ask.want,
            asked,
            deadline,
        };
        let hash = hash_of_one(&self.hasher, charge);
        let is_equal = |order: &Order| order.is_of(prefix, ask, charge);
        if deadline > asked
            && let Some(joined) = self.doors.join(hash, is_equal, caller)
        {
            return Met::Joined(Waiting::new(joined, asked, deadline));
        }
        let mut queue = self.queue();
        if deadline <= asked || queue.is_free(asked) {
            return Met::Free(deadline);
        }
        if queue.is_full() {
            return Met::Refused(self.refuse(queue, asked));
        }
        let Some(joined) = queue.join(hash, is_equal, caller) else {
            return Met::Busy(hash, asked, deadline);
        };
        self.go_on(queue, asked);
        Met::Joined(Waiting::new(joined, asked, deadline))
    }

    /// Lets an ask wait for a call that others make.
    pub(super) fn wait(
        self: &Arc<Self>,
        hash: u64,
        ask: Wanted,
        asked: Instant,
    ) -> Result<Waiting, StoreError> {
        let deadline = ask.deadline;
        let mut queue = self.queue();
        if queue.is_full() {
            return Err(self.refuse(queue, asked));
        }
        let is_equal = |order: &Order| order.merges_with(&ask.order);
        let caller = Caller {
            want: ask.want,
            asked,
            deadline,
        };
        let joined = queue
            .join(hash, is_equal, caller)
            .unwrap_or_else(|| queue.push(hash, ask, caller, Arc::new(Callers::new(Arc::clone(self)))));
        self.go_on(queue, asked);
        Ok(Waiting::new(joined, asked, deadline))
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
