//! A call of one ask, in its caller's own future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::cause::Unreadable;
use super::dispatch::Dispatch;
use super::flight::{Flight, Flown};
use super::merged::Merged;
use super::order::Wanted;
use super::queue::Answered;
use super::reply::{Answer, Share};
use super::waiting::Waiting;
use crate::store::{KnownOutcome, Late, StoreError, StoreErrorKind};

/// Makes a call of its own. Dropped before its end, it leaves that to the background.
pub(in crate::store) struct Alone {
    flight: Flight,
    /// When it was first polled.
    asked: Option<Instant>,
    has_landed: bool,
    /// Whether the answer has been told, so that nothing of it is given back.
    is_answered: bool,
}

impl Alone {
    pub(super) fn new(dispatch: &Arc<Dispatch>, ask: Wanted) -> Self {
        Self {
            flight: Flight::alone(Arc::clone(dispatch), ask),
            asked: None,
            has_landed: false,
            is_answered: false,
        }
    }

    /// Takes a place, if it has not begun. If there is none, it waits for a call that others make.
    pub(super) fn begin(&mut self) -> Option<Waiting> {
        if self.asked.is_some() {
            return None;
        }
        self.flight.dispatch.note_runtime();
        let asked = Instant::now();
        self.asked = Some(asked);
        let deadline = self.flight.asks.first()?.ask.deadline;
        if deadline <= asked {
            self.end(self.flight.dispatch.timed_out(asked, None));
            return None;
        }
        self.flight.place = self.flight.dispatch.queue().take_off(asked, deadline);
        if self.flight.place.is_some() {
            return None;
        }
        let ask = self.flight.asks.pop()?.ask;
        let hash = ask.order.hash(&self.flight.dispatch.hasher);
        match self.flight.dispatch.wait(hash, ask, asked) {
            Ok(waiting) => Some(waiting),
            Err(error) => {
                self.end(error);
                None
            }
        }
    }

    /// There is no answer.
    fn end(&mut self, error: StoreError) {
        self.flight.answers = SmallVec::from_buf([Some(Err(error))]);
        self.has_landed = true;
    }

    fn poll_landed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.has_landed {
            return Poll::Ready(());
        }
        match ready!(self.flight.poll_flown(context)) {
            Flown::Answered | Flown::Crossed => self.flight.land(),
            Flown::TimedOut => {
                let (late, keep) = Late::new();
                self.flight.keep = Some(keep);
                self.flight.leave();
                let asked = self.asked.unwrap_or_else(Instant::now);
                self.end(self.flight.dispatch.timed_out(asked, Some(late)));
            }
        }
        self.has_landed = true;
        Poll::Ready(())
    }

    /// The answer, if it is one to the ordinary ask. `None` if the future itself is to be awaited.
    pub(in crate::store) fn poll_known(&mut self, context: &mut Context<'_>) -> Poll<Option<KnownOutcome>> {
        ready!(self.poll_landed(context));
        let ([Merged { ask, .. }], [Some(Ok(answer))]) = (&*self.flight.asks, &*self.flight.answers) else {
            return Poll::Ready(None);
        };
        let known = answer.known(&ask.order, share_of(ask, answer));
        self.is_answered |= known.is_some();
        Poll::Ready(known)
    }
}

/// All that was granted is the one caller's.
const fn share_of(ask: &Wanted, answer: &Answer) -> Share {
    Share::new(0, answer.granted, ask.want)
}

impl Future for Alone {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        ready!(self.poll_landed(context));
        let answer = self.flight.answers.pop().flatten();
        Poll::Ready(match (&*self.flight.asks, answer) {
            ([Merged { ask, .. }], Some(Ok(answer))) => {
                Ok(answer.outcome(&ask.order, share_of(ask, &answer)))
            }
            (_, Some(Err(error))) => Err(error),
            _ => Err(StoreError::with_source(StoreErrorKind::Protocol, Unreadable)),
        })
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if self.is_answered {
            self.flight.answers.clear();
        }
    }
}
