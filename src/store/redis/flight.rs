//! One call on its way, from its place among those in flight to the answers of all its asks.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis::{RedisResult, Value};
use smallvec::SmallVec;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::attempts::Attempts;
use super::call::AcquireCall;
use super::cause::{Cause, TooLate, Unreadable};
use super::class::Class;
use super::dispatch::Dispatch;
use super::link::{Report, Route};
use super::order::Wanted;
use super::queue::{Answered, Merged, Place};
use super::reply::{Answer, Replies, Reply, Share};
use super::script::By;
use crate::store::{Late, StoreError, StoreErrorKind};

/// How long a reply is awaited after its deadline, so that what it grants can be given back.
const GRACE: Duration = Duration::from_secs(10);

/// The asks of a call, and who waits for them; nobody, if the call flies alone.
pub(super) type Asks = SmallVec<[Merged; 1]>;

type Replying = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// A call. Dropped before its reply is there, it is awaited in the background, in its place until its deadline: whoever
/// cancels checks takes no more of the server than who waits.
pub(super) struct Flight {
    dispatch: Arc<Dispatch>,
    /// None for a call that needs none, or has landed.
    place: Option<Place>,
    /// Those that have no answer yet.
    asks: Asks,
    pub(super) answers: SmallVec<[(Merged, Result<Answer, StoreError>); 1]>,
    under_way: Option<UnderWay>,
    /// Tells whether the caller of a call that flew alone passed all the same, so that what comes late is kept.
    keep: Option<oneshot::Receiver<bool>>,
}

/// What was sent.
struct UnderWay {
    route: Route,
    sent: Instant,
    deadline: Instant,
    reply: Replying,
    /// Which ask each reply is for.
    order: SmallVec<[u16; 16]>,
    /// Whether the breaker knows that the deadline has passed.
    is_reported: bool,
}

impl Flight {
    pub(super) fn new(dispatch: Arc<Dispatch>, place: Option<Place>, asks: Asks) -> Self {
        Self {
            dispatch,
            place,
            asks,
            answers: SmallVec::new(),
            under_way: None,
            keep: None,
        }
    }

    /// A call of one ask, in its caller's own future.
    pub(super) fn alone(dispatch: Arc<Dispatch>, place: Place, ask: Wanted) -> Self {
        Self::new(dispatch, Some(place), SmallVec::from_buf([Merged::alone(ask)]))
    }

    pub(super) async fn fly_alone(mut self) -> Answered {
        self.fly().await?;
        self.land();
        match self.answers.pop() {
            Some((Merged { ask, .. }, Ok(answer))) => {
                Ok(answer.outcome(&ask.order, Share::new(0, answer.granted, ask.want)))
            }
            Some((_, Err(error))) => Err(error),
            None => Err(StoreError::with_source(StoreErrorKind::Protocol, Unreadable)),
        }
    }

    /// Makes the call, and waits for its reply until the latest deadline of who waits for it. Then there is an answer to
    /// each ask, or an error if the time is over.
    pub(super) async fn fly(&mut self) -> Result<(), StoreError> {
        let asked = Instant::now();
        let mut attempts = Attempts::default();
        loop {
            let route = match self.dispatch.link.route() {
                Ok(route) => route,
                Err(error) => {
                    self.fail(error.kind(), error);
                    break;
                }
            };
            let Some(result) = self.send(route, attempts.by()).await else {
                let (late, keep) = Late::new();
                self.keep = Some(keep);
                return Err(self.dispatch.timed_out(asked, Some(late)));
            };
            match result {
                Ok(()) if self.asks.is_empty() => {}
                // Some came too late. The clock is known better now.
                Ok(()) if attempts.once_late() => {
                    self.leave_those_in_time();
                    if !self.asks.is_empty() {
                        continue;
                    }
                }
                Ok(()) => self.fail(StoreErrorKind::Overloaded, TooLate),
                Err((class, _)) if attempts.once_more_after(class) => continue,
                Err((Class::CrossSlot, _)) if self.asks.len() > 1 => {
                    self.dispatch.note_cluster();
                    self.split().await;
                }
                Err((class, error)) => self.fail(class.kind(), error),
            }
            break;
        }
        Ok(())
    }

    /// Hands out the answers of a call that is done. Whether there is another one to make in its place, for what waits.
    pub(super) async fn goes_on(&mut self) -> bool {
        // A task that could rest keeps no place meanwhile.
        if !self.pays_to_wait() || !runs_by_itself() {
            self.land();
            self.hand_out();
            return false;
        }
        self.hand_out();
        after_the_ready().await;
        let Some(landed) = self.place.take() else {
            return false;
        };
        let Some((place, asks)) = self.dispatch.next_batch(Some(landed)) else {
            return false;
        };
        self.place = Some(place);
        self.asks = asks;
        // There may be more places, and more that waits.
        self.dispatch.take_along();
        true
    }

    /// Whether those who get the answers are to ask first before the next call leaves: they are likely to share an ask of it, or
    /// more of them ask than wait, so that one call for all is fewer than one for who waits or comes first, and one for the rest.
    fn pays_to_wait(&self) -> bool {
        let is_shared = self.answers.iter().any(|(merged, _)| merged.present > 1);
        let answered = self.answers.len();
        is_shared || answered > 1 && self.dispatch.queue().callers() < answered
    }

    /// Sends the asks and reads the replies. `None` if the deadline has passed.
    async fn send(&mut self, route: Route, by: By) -> Option<Result<(), (Class, Cause)>> {
        let AcquireCall { command, order } =
            AcquireCall::new(self.dispatch.scripts, by, route.clock(), &self.asks);
        self.dispatch.stats.count_call(&self.asks);
        let deadline = self.asks.iter().map(|merged| merged.latest).max();
        let under_way = self.under_way.insert(UnderWay {
            sent: Instant::now(),
            deadline: deadline.unwrap_or_else(Instant::now),
            reply: route.send(command),
            route,
            order,
            is_reported: false,
        });
        let Ok(result) = timeout_at(under_way.deadline, &mut under_way.reply).await else {
            under_way.report_timeout(&self.dispatch);
            return None;
        };
        let under_way = self.under_way.take()?;
        Some(self.receive(&under_way, result))
    }

    fn receive(&mut self, under_way: &UnderWay, result: RedisResult<Value>) -> Result<(), (Class, Cause)> {
        let replies = self.dispatch.received(&under_way.route, under_way.sent, result)?;
        self.read(&replies, under_way).map_err(|error| {
            self.dispatch.stats.count_error(Class::Protocol);
            (Class::Protocol, Cause::new(error))
        })?;
        self.dispatch.stats.count_too_late(self.asks.len());
        Ok(())
    }

    /// Reads the replies, and keeps the asks that the server came to too late.
    fn read(&mut self, replies: &Replies, under_way: &UnderWay) -> Result<(), Unreadable> {
        let (order, sent) = (&under_way.order, under_way.sent.into_std());
        let mut read: SmallVec<[Option<Reply>; 1]> = self.asks.iter().map(|_| None).collect();
        let mut values = replies.each();
        for &index in order {
            let ask = &self.asks[usize::from(index)].ask;
            let reply =
                Reply::read(&mut values, replies.now, &ask.order, ask.want).map_err(|_| Unreadable)?;
            read[usize::from(index)] = Some(reply);
        }
        if !values.is_empty() {
            return Err(Unreadable);
        }
        for (merged, reply) in mem::take(&mut self.asks).into_iter().zip(read) {
            match reply {
                Some(Reply::Answer(mut answer)) => {
                    answer.sent = Some(sent);
                    self.answers.push((merged, Ok(answer)));
                }
                Some(Reply::TooLate) | None => self.asks.push(merged),
            }
        }
        Ok(())
    }

    /// Hands out the answers that are there, so that nobody waits for those that are asked again, and gives up asks whose
    /// own time is over.
    fn leave_those_in_time(&mut self) {
        let now = Instant::now();
        if self.answers.iter().any(|(merged, _)| merged.teller.is_some()) {
            self.hand_out();
        }
        let (in_time, over): (Asks, Asks) = mem::take(&mut self.asks)
            .into_iter()
            .partition(|merged| merged.latest > now);
        self.asks = over;
        self.fail(StoreErrorKind::Overloaded, TooLate);
        for mut merged in in_time {
            if merged.leave_out_the_gone(now) {
                self.asks.push(merged);
            }
        }
    }

    /// Those that have no answer get none.
    fn fail(&mut self, kind: StoreErrorKind, source: impl Error + Send + Sync + 'static) {
        let cause = Cause::new(source);
        for merged in mem::take(&mut self.asks) {
            let error = StoreError::with_source(kind, cause.clone());
            self.answers.push((merged, Err(error)));
        }
    }

    /// The server is a cluster, and the asks are in several of its slots: each travels by itself, this once.
    async fn split(&mut self) {
        for merged in mem::take(&mut self.asks) {
            // The place stays with this call.
            let mut part = Self::new(Arc::clone(&self.dispatch), None, SmallVec::from_buf([merged]));
            if Box::pin(part.fly()).await.is_ok() {
                self.answers.extend(part.answers.drain(..));
            }
        }
    }

    /// Gives the answers to who waits, and back what nobody is there for.
    pub(super) fn hand_out(&mut self) {
        for (merged, answer) in mem::take(&mut self.answers) {
            self.dispatch.hand_out(merged, answer);
        }
    }

    /// Frees the call's place.
    fn land(&mut self) {
        if let Some(place) = self.place.take() {
            self.dispatch.land(place);
        }
    }

    /// Awaits a reply that nobody polls any more.
    async fn outlast(mut self, mut under_way: UnderWay) {
        let result = match timeout_at(under_way.deadline, &mut under_way.reply).await {
            Ok(result) => Some(result),
            Err(_) => {
                under_way.report_timeout(&self.dispatch);
                self.land();
                timeout(GRACE, &mut under_way.reply).await.ok()
            }
        };
        self.land();
        match result.map(|result| self.receive(&under_way, result)) {
            Some(Ok(())) => self.fail(StoreErrorKind::Overloaded, TooLate),
            Some(Err((class, cause))) => self.fail(class.kind(), cause),
            None => self.fail(StoreErrorKind::Timeout, TooLate),
        }
        if let Some(keep) = self.keep.take()
            && keep.await.unwrap_or(false)
        {
            self.answers.clear();
        }
        self.hand_out();
    }
}

impl UnderWay {
    fn report_timeout(&mut self, dispatch: &Dispatch) {
        if !mem::replace(&mut self.is_reported, true) {
            dispatch.stats.note_timeout();
            self.route.report(self.sent, Report::TimedOut);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(under_way) = self.under_way.take() {
            let late = Self {
                dispatch: Arc::clone(&self.dispatch),
                place: self.place.take(),
                asks: mem::take(&mut self.asks),
                answers: mem::take(&mut self.answers),
                under_way: None,
                keep: self.keep.take(),
            };
            self.dispatch.spawn(late.outlast(under_way));
        }
        self.land();
        self.hand_out();
    }
}

/// Whether tasks go on by themselves here. On other runtimes they rest while nobody drives them.
fn runs_by_itself() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}

/// Lets all run that are ready now. Tokio's own way of yielding comes back after a fixed number of them.
async fn after_the_ready() {
    let mut is_first = true;
    poll_fn(|context| match mem::take(&mut is_first) {
        true => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        false => Poll::Ready(()),
    })
    .await;
}
