//! One call on its way, from its place among those in flight to the answers of all its asks.

mod late;
mod next;

use std::error::Error;
use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use redis::{RedisResult, Value};
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::attempts::Attempts;
use super::call::AcquireCall;
use super::cause::{Cause, TooLate, Unreadable};
use super::class::Class;
use super::dispatch::Dispatch;
use super::link::{self, Report, Route};
use super::merged::Merged;
use super::order::Wanted;
use super::queue::Place;
use super::reply::{Answer, Replies, Reply};
use crate::store::{StoreError, StoreErrorKind};

/// The asks of a call, and who waits for them; nobody, if the call flies alone.
pub(super) type Asks = SmallVec<[Merged; 1]>;

type Answers = SmallVec<[Option<Result<Answer, StoreError>>; 1]>;

/// A call. Dropped before its reply is there, it is awaited in the background, in its place until its deadline: whoever
/// cancels checks takes no more of the server than who waits.
pub(super) struct Flight {
    pub(super) dispatch: Arc<Dispatch>,
    /// None for a call that needs none, has none yet, or has landed.
    pub(super) place: Option<Place>,
    pub(super) asks: Asks,
    /// To each ask, as far as there are any.
    pub(super) answers: Answers,
    attempts: Attempts,
    under_way: Option<UnderWay>,
    /// Tells whether the caller of a call that flew alone passed all the same, so that what comes late is kept.
    pub(super) keep: Option<oneshot::Receiver<bool>>,
}

/// What was sent.
struct UnderWay {
    route: Route,
    sent: Instant,
    deadline: Instant,
    reply: link::Reply,
    /// Which ask each reply is for.
    order: SmallVec<[u16; 16]>,
    /// Whether the breaker knows that the deadline has passed.
    is_reported: bool,
}

/// What came of a call.
pub(super) enum Flown {
    /// There is an answer to each ask.
    Answered,
    /// The latest deadline of who waits has passed.
    TimedOut,
    /// The server is a cluster, and the asks are in several of its slots.
    Crossed,
}

impl Flight {
    pub(super) fn new(dispatch: Arc<Dispatch>, place: Option<Place>, asks: Asks) -> Self {
        Self {
            dispatch,
            place,
            answers: unanswered(&asks),
            asks,
            attempts: Attempts::default(),
            under_way: None,
            keep: None,
        }
    }

    /// A call of one ask, in its caller's own future.
    pub(super) fn alone(dispatch: Arc<Dispatch>, ask: Wanted) -> Self {
        Self::new(dispatch, None, SmallVec::from_buf([Merged::alone(ask)]))
    }

    /// Makes the call, and waits for its reply. False if the time is over.
    pub(super) async fn fly(&mut self) -> bool {
        match poll_fn(|context| self.poll_flown(context)).await {
            Flown::Answered => {}
            Flown::TimedOut => return false,
            Flown::Crossed => self.split().await,
        }
        true
    }

    /// Makes the call, and waits for its reply until the latest deadline of who waits for it.
    pub(super) fn poll_flown(&mut self, context: &mut Context<'_>) -> Poll<Flown> {
        loop {
            let Some(under_way) = &mut self.under_way else {
                match self.dispatch.link.route() {
                    Ok(route) => self.send(route),
                    Err(error) => {
                        self.fail(error.kind(), error);
                        return Poll::Ready(Flown::Answered);
                    }
                }
                continue;
            };
            let Ok(result) = ready!(under_way.reply.as_mut().poll(context)) else {
                under_way.report_timeout(&self.dispatch);
                return Poll::Ready(Flown::TimedOut);
            };
            let Some(under_way) = self.under_way.take() else {
                continue;
            };
            match self.receive(&under_way, result) {
                Ok(0) => {}
                // Some came too late. The clock is known better now.
                Ok(_) if self.attempts.once_late() => {
                    if self.leave_those_in_time() {
                        continue;
                    }
                }
                Ok(_) => self.fail(StoreErrorKind::Overloaded, TooLate),
                Err((class, _)) if self.attempts.once_more_after(class) => continue,
                Err((Class::CrossSlot, _)) if self.asks.len() > 1 => {
                    self.dispatch.note_cluster();
                    return Poll::Ready(Flown::Crossed);
                }
                Err((class, error)) => self.fail(class.kind(), error),
            }
            return Poll::Ready(Flown::Answered);
        }
    }

    /// Sends the asks.
    fn send(&mut self, route: Route) {
        let AcquireCall { command, order } = AcquireCall::new(
            self.dispatch.scripts,
            self.attempts.by(),
            route.clock(),
            &self.asks,
        );
        self.dispatch.stats.count_call(&self.asks);
        let sent = Instant::now();
        let deadline = self.asks.iter().map(|merged| merged.latest).max().unwrap_or(sent);
        self.under_way = Some(UnderWay {
            sent,
            deadline,
            reply: route.send(command, deadline),
            route,
            order,
            is_reported: false,
        });
    }

    /// Reads the replies. How many asks have no answer, as the server came to them too late.
    fn receive(&mut self, under_way: &UnderWay, result: RedisResult<Value>) -> Result<usize, (Class, Cause)> {
        let replies = self.dispatch.received(&under_way.route, under_way.sent, result)?;
        self.read(&replies, under_way).map_err(|error| {
            self.answers.fill_with(|| None);
            self.dispatch.stats.count_error(Class::Protocol);
            (Class::Protocol, Cause::new(error))
        })?;
        let too_late = self.answers.iter().filter(|answer| answer.is_none()).count();
        self.dispatch.stats.count_too_late(too_late);
        Ok(too_late)
    }

    fn read(&mut self, replies: &Replies, under_way: &UnderWay) -> Result<(), Unreadable> {
        let mut values = replies.each();
        for &index in &under_way.order {
            let index = usize::from(index);
            let ask = &self.asks[index].ask;
            match Reply::read(&mut values, replies.now, &ask.order, ask.want) {
                Ok(Reply::Answer(mut answer)) => {
                    answer.sent = Some(under_way.sent.into_std());
                    self.answers[index] = Some(Ok(answer));
                }
                Ok(Reply::TooLate) => {}
                Err(_) => return Err(Unreadable),
            }
        }
        if values.is_empty() {
            Ok(())
        } else {
            Err(Unreadable)
        }
    }

    /// Hands out the answers that are there, so that nobody waits for those that are asked again, and gives up asks whose
    /// own time is over. Whether any are to be asked again.
    fn leave_those_in_time(&mut self) -> bool {
        let now = Instant::now();
        for (merged, answer) in self.asks.iter().zip(&mut self.answers) {
            if merged.latest <= now {
                answer
                    .get_or_insert_with(|| Err(StoreError::with_source(StoreErrorKind::Overloaded, TooLate)));
            }
        }
        // Who asks alone takes its answer itself.
        if self.asks.iter().any(|merged| merged.crowd.is_some()) {
            self.hand_out();
            self.asks.retain(|merged| merged.leave_out_the_gone(now));
            self.answers.truncate(self.asks.len());
        }
        self.answers.iter().any(Option::is_none)
    }

    /// Those that have no answer get none.
    pub(super) fn fail(&mut self, kind: StoreErrorKind, source: impl Error + Send + Sync + 'static) {
        let cause = Cause::new(source);
        for answer in self.answers.iter_mut().filter(|answer| answer.is_none()) {
            *answer = Some(Err(StoreError::with_source(kind, cause.clone())));
        }
    }

    /// Each ask travels by itself, this once.
    async fn split(&mut self) {
        self.answers.clear();
        for merged in mem::take(&mut self.asks) {
            // The place stays with this call.
            let mut part = Self::new(Arc::clone(&self.dispatch), None, SmallVec::from_buf([merged]));
            if Box::pin(part.fly()).await {
                self.asks.append(&mut part.asks);
                self.answers.append(&mut part.answers);
            }
        }
    }

    /// Gives the answers to who waits, and back what nobody is there for. What has no answer stays.
    pub(super) fn hand_out(&mut self) {
        let mut left = Asks::new();
        for (merged, answer) in self.asks.drain(..).zip(self.answers.drain(..)) {
            match answer {
                Some(answer) => self.dispatch.hand_out(merged, answer),
                None => left.push(merged),
            }
        }
        if !left.is_empty() {
            self.answers = unanswered(&left);
            self.asks = left;
        }
    }

    /// Frees the call's place.
    pub(super) fn land(&mut self) {
        if let Some(place) = self.place.take() {
            self.dispatch.land(place);
        }
    }
}

impl UnderWay {
    fn report_timeout(&mut self, dispatch: &Dispatch) {
        if !mem::replace(&mut self.is_reported, true) {
            dispatch.stats.note_timeout();
            self.route.report(self.sent, Instant::now(), Report::TimedOut);
        }
    }
}

/// As many answers as there are asks, none of which is there.
fn unanswered(asks: &[Merged]) -> Answers {
    // Made in place for one.
    let mut answers = Answers::from_buf([None]);
    answers.resize_with(asks.len(), || None);
    answers
}
