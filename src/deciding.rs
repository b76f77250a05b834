//! Decisions that wait for the store.

use std::future::Future;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::decision::Decision;
use crate::engine::{Act, Engine, Learns, MAX_DEADLINE, OwnedCharge, of_each};
use crate::failure::FailurePolicy;
use crate::store::{Charge, KnownOutcome, Mode, Outcome, StoreError, StoreErrorKind, StoreFuture};

/// A decision, if it needs no waiting. What waits is boxed: it is large, and futures that might have to hold it are moved by every
/// request, also by those that are decided at once.
pub(crate) enum Decided {
    Now(Decision),
    Later(Box<Deciding>),
}

/// A decision that waits, and what it is about.
pub(crate) struct Deciding {
    pub(crate) answering: Answering,
    pub(crate) engine: Arc<Engine>,
    pub(crate) charges: SmallVec<[OwnedCharge; 1]>,
    pub(crate) failures: SmallVec<[FailurePolicy; 1]>,
    pub(crate) act: Act,
    pub(crate) learns: Option<Learns>,
}

impl Deciding {
    /// What is asked.
    pub(crate) fn charges(&self) -> SmallVec<[Charge<'_>; 1]> {
        of_each(&self.charges, OwnedCharge::borrow)
    }
}

impl Future for Deciding {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Decision> {
        let answer = ready!(Pin::new(&mut self.answering).poll(context));
        let how = (self.act, self.learns);
        Poll::Ready(self.engine.conclude(&self.charges(), &self.failures, how, answer))
    }
}

/// A decision on one charge, for who keeps that meanwhile.
pub(crate) struct DecidingOne<'a> {
    pub(crate) asked: Asked,
    pub(crate) engine: &'a Engine,
    pub(crate) charge: Charge<'a>,
}

impl DecidingOne<'_> {
    /// The decision, if it needs no waiting.
    pub(crate) fn take_ready(&mut self) -> Option<Decision> {
        let answer = self.asked.answering.answer.take_ready()?;
        Some(self.asked.conclude(self.engine, &self.charge, answer))
    }
}

impl Future for DecidingOne<'_> {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Decision> {
        let this = &mut *self;
        this.asked.poll(this.engine, &this.charge, context)
    }
}

/// What the store was asked of one charge, which somebody else keeps.
pub(crate) struct Asked {
    pub(crate) answering: Answering,
    pub(crate) failure: FailurePolicy,
    pub(crate) learns: Option<Learns>,
}

impl Asked {
    /// The decision on the charge that was asked of.
    pub(crate) fn poll(
        &mut self,
        engine: &Engine,
        charge: &Charge<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Decision> {
        let is_ordinary = charge.mode == Mode::Enforce && charge.penalty.is_none();
        if is_ordinary
            && let Some(known) = ready!(self.answering.poll_known(context))
            && (known.granted || self.learns.is_none())
        {
            return Poll::Ready(engine.conclude_known(charge, &known, self.learns));
        }
        let answer = ready!(Pin::new(&mut self.answering).poll(context));
        Poll::Ready(self.conclude(engine, charge, answer))
    }

    fn conclude(
        &self,
        engine: &Engine,
        charge: &Charge<'_>,
        answer: Result<Outcome, StoreError>,
    ) -> Decision {
        let how = (Act::Charge, self.learns);
        engine.conclude(slice::from_ref(charge), &[self.failure], how, answer)
    }
}

/// The store's answer, no later than the deadline, whatever the store does.
pub(crate) struct Answering {
    answer: StoreFuture<Outcome>,
    /// Where the answer is not there yet and the store does not keep the deadline by itself.
    until: Option<Instant>,
    /// Made when it is not there at first.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Answering {
    #[inline]
    pub(crate) fn new(engine: &Engine, answer: StoreFuture<Outcome>) -> Self {
        let until = || Instant::now() + engine.deadline.min(MAX_DEADLINE);
        let is_kept = answer.is_ready() || engine.store.keeps_deadlines();
        Self {
            answer,
            until: (!is_kept).then(until),
            timer: None,
        }
    }

    /// The answer to the ordinary ask, if the store tells it like that. `None` if the answer itself is to be awaited.
    fn poll_known(&mut self, context: &mut Context<'_>) -> Poll<Option<KnownOutcome>> {
        match self.answer.poll_known(context) {
            Poll::Ready(known) => Poll::Ready(known),
            Poll::Pending => self.poll_deadline(context).map(|()| None),
        }
    }

    /// Whether the deadline has passed, where the store does not keep it.
    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(until) = self.until else {
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        timer.as_mut().poll(context)
    }
}

impl Future for Answering {
    type Output = Result<Outcome, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(context) {
            return Poll::Ready(answer);
        }
        ready!(self.poll_deadline(context));
        Poll::Ready(Err(StoreError::new(StoreErrorKind::Timeout)))
    }
}
