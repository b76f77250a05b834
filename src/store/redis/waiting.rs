//! Waiting for a share of a call that others make.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

use super::callers::{Callers, Left};
use super::dispatch::Dispatch;
use super::queue::{Answered, Joined};
use super::reply::Share;

/// Waits for a share of somebody's call. Dropped, it gives back what it had got without anybody having seen it.
pub(in crate::store) struct Waiting {
    callers: Arc<Callers>,
    /// Among the callers.
    place: usize,
    asked: Instant,
    deadline: Instant,
    /// Keeps the deadline, if who waits is not on the runtime that the keeper is on, which may rest.
    timer: Option<Pin<Box<Sleep>>>,
    is_answered: bool,
}

impl Waiting {
    pub(super) fn new((callers, place): Joined, asked: Instant, deadline: Instant) -> Self {
        Self {
            callers,
            place,
            asked,
            deadline,
            timer: None,
            is_answered: false,
        }
    }

    fn answer(&mut self) -> Option<Answered> {
        let answer = self.callers.answer(self.place, self.asked)?;
        self.is_answered = true;
        Some(answer)
    }

    /// Whether the deadline has passed. If not, who waits is woken then.
    fn poll_deadline(&mut self, context: &mut Context<'_>, is_kept: bool) -> Poll<()> {
        if Instant::now() >= self.deadline {
            return Poll::Ready(());
        }
        if is_kept {
            return Poll::Pending;
        }
        let deadline = self.deadline;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        timer.as_mut().poll(context)
    }

    /// Waits no longer.
    fn give_up(&mut self) -> Answered {
        let late = self.callers.leave_late(self.place);
        if late.is_none()
            && let Some(answer) = self.answer()
        {
            return answer;
        }
        self.is_answered = true;
        // A call that nobody polls any more may have lost its place meanwhile.
        self.callers.dispatch.take_along();
        Err(self.callers.dispatch.timed_out(self.asked, late))
    }
}

impl Future for Waiting {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        let this = &mut *self;
        if let Some(answer) = this.answer() {
            return Poll::Ready(answer);
        }
        let is_kept = this.timer.is_none() && this.callers.dispatch.keeps_time_here();
        match this
            .callers
            .leave_waker(this.place, context.waker(), (this.deadline, is_kept))
        {
            Left::Told => {}
            Left::Unwatched => {
                this.callers.dispatch.keeper.watch(&this.callers, this.deadline);
                ready!(this.poll_deadline(context, is_kept));
            }
            Left::Waits => ready!(this.poll_deadline(context, is_kept)),
        }
        Poll::Ready(this.give_up())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_answered
            && let Some(share) = self.callers.leave(self.place)
        {
            self.callers.dispatch.give_back_share(&self.callers, share);
        }
    }
}

impl Dispatch {
    /// Gives back a share that nobody has seen.
    pub(super) fn give_back_share(self: &Arc<Self>, callers: &Callers, share: Share) {
        if share.take > 0
            && let Some((order, answer)) = callers.answered()
        {
            self.give_back_grants(order, answer, share);
        }
    }
}
