//! Decisions that wait for the store.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;

use crate::decision::Decision;
use crate::engine::{Act, Engine, Learns, OwnedCharge, of_each};
use crate::failure::FailurePolicy;
use crate::store::{Answering, Charge, KnownOutcome, Mode};

/// A decision, if it needs no waiting. What waits is boxed: it is large, and futures that might have to hold it are moved by every
/// request, also by those that are decided at once.
pub(crate) enum Decided {
    Now(Decision),
    Later(Box<Deciding>),
}

/// A decision that waits, and what it is about.
pub(crate) struct Deciding {
    pub(crate) answer: Answering,
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
        let answer = ready!(Pin::new(&mut self.answer).poll(context));
        let how = (self.act, self.learns);
        Poll::Ready(self.engine.conclude(&self.charges(), &self.failures, how, answer))
    }
}

/// What the store was asked of one charge, which somebody else keeps.
pub(crate) struct Asked {
    pub(crate) answer: Answering,
    pub(crate) failure: FailurePolicy,
    pub(crate) learns: Option<Learns>,
}

impl Asked {
    /// The store's answer, if nothing else is made of it than a [decision](Engine::conclude_known). `None` if this is to be
    /// [polled](Self::poll_decision) for that.
    #[inline(always)]
    fn poll_known(&mut self, charge: &Charge<'_>, context: &mut Context<'_>) -> Poll<Option<KnownOutcome>> {
        if charge.mode != Mode::Enforce || charge.penalty.is_some() {
            return Poll::Ready(None);
        }
        let known = ready!(self.answer.poll_known(context));
        Poll::Ready(known.filter(|known| known.granted || self.learns.is_none()))
    }

    /// The decision on the charge that was asked of, whatever the answer is.
    #[inline(never)]
    fn poll_decision(
        &mut self,
        engine: &Engine,
        charge: &Charge<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Decision> {
        let answer = ready!(Pin::new(&mut self.answer).poll(context));
        Poll::Ready(engine.conclude_one(charge, self.failure, self.learns, answer))
    }

    /// The decision on the charge that was asked of, made where it is returned.
    #[inline(always)]
    pub(crate) fn poll(
        &mut self,
        engine: &Engine,
        charge: &Charge<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Decision> {
        match ready!(self.poll_known(charge, context)) {
            Some(known) => Poll::Ready(engine.conclude_known(charge, &known, self.learns)),
            None => self.poll_decision(engine, charge, context),
        }
    }
}
