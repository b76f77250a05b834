//! Waiting for a share of a call that others make.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

use super::callers::{Callers, Left};
use super::crowd::Joined;
use super::dispatch::Dispatch;
use super::queue::Answered;
use super::reply::Share;
use crate::store::KnownOutcome;

/// Waits for a share of somebody's call. Dropped, it gives back what it had got without anybody having seen it.
pub(in crate::store) struct Waiting {
    callers: Arc<Callers>,
    /// Among the callers.
    place: usize,
    asked: Instant,
    deadline: Instant,
    /// Keeps the deadline, if the keeper is on another runtime, which may rest or be busy.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the deadline was seen to have passed. Then nobody else need see it again.
    is_over: bool,
    is_answered: bool,
}

impl Waiting {
    #[inline(always)]
    pub(super) fn new((callers, place): Joined, asked: Instant, deadline: Instant) -> Self {
        Self {
            callers,
            place,
            asked,
            deadline,
            timer: None,
            is_over: false,
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

    /// Whether there is an answer, or else that the deadline has passed.
    fn poll_told(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if self.callers.are_told() {
            return Poll::Ready(true);
        }
        if self.is_over {
            return Poll::Ready(false);
        }
        let told = self.poll_told_in_time(context);
        self.is_over = told == Poll::Ready(false);
        told
    }

    fn poll_told_in_time(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let is_kept = self.timer.is_none() && self.callers.dispatch.keeps_time_of(context.waker());
        let until = (self.deadline, is_kept);
        match self.callers.leave_waker(self.place, context.waker(), until) {
            Left::Told => Poll::Ready(true),
            // Whether the deadline has passed need not be known: the keeper comes in time, or is overdue and comes.
            Left::Watched => Poll::Pending,
            Left::Late => Poll::Ready(false),
            Left::Unwatched => {
                self.callers.dispatch.keeper.watch(&self.callers, self.deadline);
                self.poll_deadline(context, is_kept).map(|()| false)
            }
            Left::Waits => self.poll_deadline(context, is_kept).map(|()| false),
        }
    }

    /// The answer, if it is one to the ordinary ask. `None` if the future itself is to be awaited.
    pub(in crate::store) fn poll_known(&mut self, context: &mut Context<'_>) -> Poll<Option<KnownOutcome>> {
        let known = match ready!(self.poll_told(context)) {
            true => self.callers.known(self.place),
            false => None,
        };
        self.is_answered |= known.is_some();
        Poll::Ready(known)
    }
}

impl Future for Waiting {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        let answer = match ready!(self.poll_told(context)) {
            true => self.answer(),
            false => None,
        };
        Poll::Ready(answer.unwrap_or_else(|| self.give_up()))
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
