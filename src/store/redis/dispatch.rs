//! How asks travel: alone in their caller's own future while nothing else is under way, else merged and batched.
//!
//! While as many calls as may be are in flight, what arrives waits in the [`Queue`]. The call that ends lets a task
//! take all of it along in the next. Nothing is added when idle: no task, no timer but the caller's deadline.
//!
//! Whoever stops waiting, because its deadline has passed or it was dropped, harms nobody else: a call that is under way
//! is awaited in the background, and what it grants to callers that have gone is given back.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::call::{self, AcquireCall};
use super::class::Class;
use super::clock::ServerClock;
use super::link::{Link, Report, Route};
use super::order::{Order, Wanted};
use super::queue::{Answered, Bounds, Caller, Flight, Merged, Queue};
use super::reply::{Answer, Reply, split};
use super::script::{By, Scripts};
use super::stats::Stats;
use crate::store::{Late, Outcome, Stamp, StoreError, StoreErrorKind};

/// How long a reply is awaited after its deadline, so that what it grants can be given back.
const GRACE: Duration = Duration::from_secs(10);

/// The place of calls that need none.
const NO_PLACE: Flight = 0;

type Replying = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// Sends asks and hands out answers.
pub(super) struct Dispatch {
    pub(super) link: Link,
    scripts: &'static Scripts,
    queue: Mutex<Queue>,
    /// Whether a call may only have keys of one slot: the server is a cluster.
    per_slot: AtomicBool,
    pub(super) stats: Stats,
    /// How long corrections of our own may take.
    patience: Duration,
    /// Where background work runs when something is dropped outside of a runtime.
    runtime: OnceLock<Handle>,
}

impl Dispatch {
    pub(super) fn new(
        link: Link,
        scripts: &'static Scripts,
        bounds: Bounds,
        patience: Duration,
        per_slot: bool,
    ) -> Self {
        Self {
            link,
            scripts,
            queue: Mutex::new(Queue::new(bounds)),
            per_slot: AtomicBool::new(per_slot),
            stats: Stats::default(),
            patience,
            runtime: OnceLock::new(),
        }
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants the ask up to as often as it is wanted.
    pub(super) async fn acquire(self: Arc<Self>, ask: Wanted) -> Answered {
        self.note_runtime();
        let asked = Instant::now();
        if ask.deadline <= asked {
            return Err(self.timed_out(asked, None));
        }
        match self.enter(&ask, asked)? {
            // Boxed, for who waits has no need of the room that a call takes.
            Entered::Alone(flight) => Box::pin(self.fly_alone(flight, ask)).await,
            Entered::Waits(receiver) => {
                let mut waiting = Waiting {
                    dispatch: self,
                    order: ask.order,
                    receiver: Some(receiver),
                };
                waiting.answer(asked, ask.deadline).await
            }
        }
    }

    async fn fly_alone(self: Arc<Self>, flight: Flight, ask: Wanted) -> Answered {
        let alone = Merged {
            ask,
            callers: SmallVec::new(),
        };
        match self.fly(flight, SmallVec::from_buf([alone])).await {
            Flown::TimedOut(error) => Err(error),
            Flown::Landed(mut answers) => match answers.pop() {
                Some((merged, Ok(answer))) => Ok(answer.outcome(&merged.ask.order, 0, answer.granted)),
                Some((_, Err(error))) => Err(error),
                None => Err(StoreError::with_source(StoreErrorKind::Protocol, Unreadable)),
            },
        }
    }

    /// Gives an ask a call of its own, or lets it wait for one that others make.
    fn enter(self: &Arc<Self>, ask: &Wanted, now: Instant) -> Result<Entered, StoreError> {
        let mut queue = self.queue();
        if let Some(flight) = queue.take_off(now, ask.deadline) {
            return Ok(Entered::Alone(flight));
        }
        let (answer, receiver) = oneshot::channel();
        let caller = Caller {
            want: ask.want,
            deadline: ask.deadline,
            answer,
        };
        let is_in = queue.push(&ask.order, caller);
        // A call may have lost its place.
        let has_place = queue.has_place(now);
        drop(queue);
        if has_place {
            self.take_along();
        }
        if !is_in {
            self.stats.count_refused();
            return Err(StoreError::new(StoreErrorKind::Overloaded));
        }
        Ok(Entered::Waits(receiver))
    }

    /// Makes a call, and waits for its reply until the latest deadline of its asks.
    async fn fly(self: Arc<Self>, flight: Flight, asks: Asks) -> Flown {
        let asked = Instant::now();
        let deadline = asks
            .iter()
            .map(|merged| merged.ask.deadline)
            .max()
            .unwrap_or(asked);
        let mut call = InFlight {
            dispatch: Arc::clone(&self),
            flight,
            asks,
            answers: SmallVec::new(),
            under_way: None,
            keep: None,
        };
        let (mut by, mut was_late, mut was_sent_away) = (By::Hash, false, false);
        loop {
            let route = match self.link.route() {
                Ok(route) => route,
                Err(error) => return call.fail(error.kind(), error),
            };
            let AcquireCall { command, order } =
                AcquireCall::new(self.scripts, by, route.clock(), &call.asks);
            let sent = Instant::now();
            self.stats.count_call(&call.asks);
            let under_way = call.under_way.insert(UnderWay {
                reply: route.send(command),
                order,
            });
            let Ok(result) = timeout_at(deadline, &mut under_way.reply).await else {
                self.stats.note_timeout();
                route.report(sent, Report::TimedOut);
                return call.time_out(asked);
            };
            let order = call
                .under_way
                .take()
                .map(|under_way| under_way.order)
                .unwrap_or_default();
            match self.received(&route, sent, result) {
                Ok(value) => {
                    if let Err(error) = call.read(&value, &order) {
                        self.stats.count_error(Class::Protocol);
                        return call.fail(StoreErrorKind::Protocol, error);
                    }
                    if call.asks.is_empty() {
                        return call.land();
                    }
                    // Some came too late. The clock is known better now.
                    self.stats.count_too_late(call.asks.len());
                    if was_late || Instant::now() >= deadline {
                        return call.fail(StoreErrorKind::Overloaded, TooLate);
                    }
                    was_late = true;
                }
                Err((Class::NoScript, _)) if by == By::Hash => by = By::Text,
                // Once more on whatever route there is now. A script's text cannot be missing.
                Err((class, _))
                    if !was_sent_away && class != Class::NoScript && class.may_be_sent_again() =>
                {
                    was_sent_away = true;
                }
                Err((Class::CrossSlot, _))
                    if !self.per_slot.swap(true, Ordering::Relaxed) && call.asks.len() > 1 =>
                {
                    return call.split().await;
                }
                Err((class, error)) => return call.fail(class.kind(), error),
            }
        }
    }

    /// What a reply says to link and clock. An error comes with its class.
    fn received(
        &self,
        route: &Route,
        sent: Instant,
        result: RedisResult<Value>,
    ) -> Result<Value, (Class, redis::RedisError)> {
        let received = Instant::now();
        match result {
            Ok(value) => {
                self.stats.note_answer(received, received - sent);
                if let Ok((now, _)) = split(&value) {
                    route.clock().observe(sent, received, now);
                    route.report(sent, Report::Answered);
                } else {
                    self.stats.count_error(Class::Protocol);
                    route.report(sent, Report::Failed(Class::Protocol));
                }
                Ok(value)
            }
            Err(error) => {
                let class = Class::of(&error);
                self.stats.count_error(class);
                route.report(sent, Report::Failed(class));
                Err((class, error))
            }
        }
    }

    /// Ends a call: its place goes to what waits.
    fn land(self: &Arc<Self>, flight: Flight) {
        self.queue().land(flight);
        self.take_along();
    }

    /// Sends what waits, as far as there are places.
    fn take_along(self: &Arc<Self>) {
        let per_slot = self.per_slot.load(Ordering::Relaxed);
        loop {
            let next = self.queue().next_batch(per_slot);
            let Some((flight, batch)) = next else { return };
            let dispatch = Arc::clone(self);
            self.spawn(async move {
                if let Flown::Landed(answers) = Arc::clone(&dispatch).fly(flight, batch).await {
                    for (merged, answer) in answers {
                        dispatch.hand_out(&merged.ask.order, merged.callers, answer);
                    }
                }
            });
        }
    }

    /// Gives each caller that is still there its share, in order of arrival, and back what is left.
    fn hand_out(
        self: &Arc<Self>,
        order: &Order,
        callers: SmallVec<[Caller; 1]>,
        answer: Result<Answer, StoreError>,
    ) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let error = Arc::new(error);
                for caller in callers {
                    let shared = StoreError::with_source(error.kind(), Shared(Arc::clone(&error)));
                    drop(caller.answer.send(Err(shared)));
                }
                return;
            }
        };
        let mut given = 0;
        for caller in callers {
            if caller.answer.is_closed() {
                continue;
            }
            let take = caller.want.min(answer.granted - given);
            let sent = caller.answer.send(Ok(answer.outcome(order, given, take)));
            if sent.is_err() && take > 0 {
                self.give_back_grants(order, &answer, given, take);
            }
            given += take;
        }
        if given < answer.granted {
            self.give_back_grants(order, &answer, given, answer.granted - given);
        }
    }

    /// Gives back grants that nobody got, in the background.
    fn give_back_grants(self: &Arc<Self>, order: &Order, answer: &Answer, before: u32, take: u32) {
        self.stats.count_late(take);
        let charged = answer.charged(order, before, take);
        self.give_back_charged(order.clone(), charged, take, answer.stamp());
    }

    /// Gives back `take` grants, of which each charge was charged so often.
    fn give_back_charged(
        self: &Arc<Self>,
        order: Order,
        charged: SmallVec<[u32; 1]>,
        take: u32,
        stamp: Stamp,
    ) {
        let dispatch = Arc::clone(self);
        self.spawn(async move {
            let times: SmallVec<[u32; 2]> = {
                let mut times: SmallVec<[u32; 2]> =
                    charged.iter().copied().filter(|&times| times > 0).collect();
                times.sort_unstable();
                times.dedup();
                times
            };
            for times in times.into_iter().filter(|&times| times <= take) {
                let mut part = order.clone();
                let mut charged = charged.iter();
                part.charges.retain(|_| charged.next() == Some(&times));
                let ask = Wanted {
                    order: part,
                    want: times,
                    deadline: Instant::now() + dispatch.patience,
                };
                if dispatch.give_back(ask, stamp).await.is_err() {
                    dispatch.stats.count_lost(times);
                }
            }
        });
    }

    pub(super) async fn charge(&self, ask: Wanted) -> Answered {
        let (now, value) = self
            .single(ask.deadline, |by, clock| {
                call::charge(self.scripts, by, clock, &ask)
            })
            .await?;
        outcome(&value, now, &ask, 1)
    }

    pub(super) async fn peek(&self, ask: Wanted) -> Answered {
        let (now, value) = self
            .single(ask.deadline, |by, clock| {
                call::peek(self.scripts, by, clock, &ask)
            })
            .await?;
        let mut outcome = outcome(&value, now, &ask, ask.want)?;
        for state in &mut outcome.states {
            state.charged = 0;
        }
        Ok(outcome)
    }

    pub(super) async fn give_back(&self, ask: Wanted, stamp: Stamp) -> Result<(), StoreError> {
        if ask.order.counters().next().is_none() {
            return Ok(());
        }
        self.single(ask.deadline, |by, clock| {
            call::give_back(self.scripts, by, clock, &ask, stamp)
        })
        .await
        .map(drop)
    }

    pub(super) async fn reset(&self, ask: Wanted) -> Result<(), StoreError> {
        if ask.order.counters().next().is_none() {
            return Ok(());
        }
        self.single(ask.deadline, |by, clock| {
            call::reset(self.scripts, by, clock, &ask)
        })
        .await
        .map(drop)
    }

    /// A call that is not batched.
    async fn single(
        &self,
        deadline: Instant,
        command: impl Fn(By, &ServerClock) -> Cmd,
    ) -> Result<(u64, Value), StoreError> {
        self.note_runtime();
        let asked = Instant::now();
        let (mut by, mut was_late, mut was_sent_away) = (By::Hash, false, false);
        loop {
            if deadline <= Instant::now() {
                return Err(self.timed_out(asked, None));
            }
            let route = self.link.route()?;
            let sent = Instant::now();
            let Ok(result) = timeout_at(deadline, route.send(command(by, route.clock()))).await else {
                self.stats.note_timeout();
                route.report(sent, Report::TimedOut);
                return Err(self.timed_out(asked, None));
            };
            match self.received(&route, sent, result) {
                Ok(Value::Array(values)) => match <[Value; 2]>::try_from(values) {
                    Ok([Value::Int(now), Value::Int(-1)]) if now > 0 => {
                        if was_late {
                            return Err(StoreError::new(StoreErrorKind::Overloaded));
                        }
                        was_late = true;
                    }
                    Ok([Value::Int(now), answer]) if now > 0 => return Ok((now.unsigned_abs(), answer)),
                    _ => return Err(StoreError::with_source(StoreErrorKind::Protocol, Unreadable)),
                },
                Ok(_) => return Err(StoreError::with_source(StoreErrorKind::Protocol, Unreadable)),
                Err((Class::NoScript, _)) if by == By::Hash => by = By::Text,
                // Once more on whatever route there is now. A script's text cannot be missing.
                Err((class, _))
                    if !was_sent_away && class != Class::NoScript && class.may_be_sent_again() =>
                {
                    was_sent_away = true;
                }
                Err((class, error)) => return Err(StoreError::with_source(class.kind(), error)),
            }
        }
    }

    /// Overload, if the server has answered since this was asked; an outage, if it has not.
    fn timed_out(&self, asked: Instant, late: Option<Late>) -> StoreError {
        let kind = if self.stats.answered_since(asked) {
            StoreErrorKind::Overloaded
        } else {
            StoreErrorKind::Timeout
        };
        StoreError::new(kind).late(late)
    }

    fn note_runtime(&self) {
        if self.runtime.get().is_none()
            && let Ok(handle) = Handle::try_current()
        {
            let _ = self.runtime.set(handle);
        }
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let handle = Handle::try_current().ok().or_else(|| self.runtime.get().cloned());
        if let Some(handle) = handle {
            handle.spawn(work);
        }
    }
}

/// The asks of a call, and who waits for them; nobody, if the call flies alone.
type Asks = SmallVec<[Merged; 1]>;

type Answers = SmallVec<[(Merged, Result<Answer, StoreError>); 1]>;

/// How an ask is going to travel.
enum Entered {
    Alone(Flight),
    Waits(oneshot::Receiver<Answered>),
}

/// How a call ended.
#[allow(
    clippy::large_enum_variant,
    reason = "a box would cost each lone check an allocation"
)]
enum Flown {
    /// With an answer to each ask.
    Landed(Answers),
    /// With its deadline. Who waits with a deadline of their own has been told already.
    TimedOut(StoreError),
}

/// A call on its way.
struct UnderWay {
    reply: Replying,
    /// Which ask each reply is for.
    order: SmallVec<[u16; 16]>,
}

/// A call's place, and the call. Dropped before its reply is there, the place is free at once, and the reply is
/// awaited in the background.
struct InFlight {
    dispatch: Arc<Dispatch>,
    flight: Flight,
    /// Those that have no answer yet.
    asks: Asks,
    answers: Answers,
    under_way: Option<UnderWay>,
    /// Tells whether the caller of a call that flew alone passed all the same, so that what comes late is kept.
    keep: Option<oneshot::Receiver<bool>>,
}

impl InFlight {
    fn land(mut self) -> Flown {
        Flown::Landed(mem::take(&mut self.answers))
    }

    /// Those that have no answer get none.
    fn fail(mut self, kind: StoreErrorKind, source: impl Error + Send + Sync + 'static) -> Flown {
        let source = Arc::new(source);
        for merged in mem::take(&mut self.asks) {
            let error = StoreError::with_source(kind, Shared(Arc::clone(&source)));
            self.answers.push((merged, Err(error)));
        }
        self.land()
    }

    fn time_out(mut self, asked: Instant) -> Flown {
        let (late, keep) = Late::new();
        self.keep = Some(keep);
        Flown::TimedOut(self.dispatch.timed_out(asked, Some(late)))
    }

    /// Reads the replies, and keeps the asks that the server came to too late.
    fn read(&mut self, value: &Value, order: &[u16]) -> Result<(), Unreadable> {
        let (now, replies) = split(value).map_err(|_| Unreadable)?;
        if replies.len() != order.len() {
            return Err(Unreadable);
        }
        let mut read: SmallVec<[Option<Reply>; 1]> = self.asks.iter().map(|_| None).collect();
        for (value, &index) in replies.iter().zip(order) {
            let ask = &self.asks[usize::from(index)].ask;
            let reply = Reply::read(value, now, &ask.order, ask.want).map_err(|_| Unreadable)?;
            read[usize::from(index)] = Some(reply);
        }
        for (merged, reply) in mem::take(&mut self.asks).into_iter().zip(read) {
            match reply {
                Some(Reply::Answer(answer)) => self.answers.push((merged, Ok(answer))),
                Some(Reply::TooLate) | None => self.asks.push(merged),
            }
        }
        Ok(())
    }

    /// The server is a cluster, and the asks are in several of its slots: each travels by itself, this once.
    async fn split(mut self) -> Flown {
        for merged in mem::take(&mut self.asks) {
            // The place stays with this call.
            let part = Arc::clone(&self.dispatch).fly(NO_PLACE, SmallVec::from_buf([merged]));
            if let Flown::Landed(answers) = Box::pin(part).await {
                self.answers.extend(answers);
            }
        }
        self.land()
    }

    /// Hands out what comes late, and gives back what nobody is there for.
    async fn await_late(mut self, mut under_way: UnderWay) {
        let Ok(Ok(value)) = timeout(GRACE, &mut under_way.reply).await else {
            return;
        };
        if self.read(&value, &under_way.order).is_err() {
            return;
        }
        if let Some(keep) = self.keep.take()
            && keep.await.unwrap_or(false)
        {
            return;
        }
        for (merged, answer) in mem::take(&mut self.answers) {
            self.dispatch.hand_out(&merged.ask.order, merged.callers, answer);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.dispatch.land(self.flight);
        if let Some(under_way) = self.under_way.take() {
            let late = Self {
                dispatch: Arc::clone(&self.dispatch),
                flight: NO_PLACE,
                asks: mem::take(&mut self.asks),
                answers: SmallVec::new(),
                under_way: None,
                keep: self.keep.take(),
            };
            self.dispatch.spawn(late.await_late(under_way));
        }
    }
}

/// Waits for a share of somebody's call. Dropped, it gives back what it had got without anybody having seen it.
struct Waiting {
    dispatch: Arc<Dispatch>,
    order: Order,
    receiver: Option<oneshot::Receiver<Answered>>,
}

impl Waiting {
    async fn answer(&mut self, asked: Instant, deadline: Instant) -> Answered {
        let answered = match &mut self.receiver {
            Some(receiver) => timeout_at(deadline, receiver).await.ok(),
            None => None,
        };
        match answered {
            Some(answered) => {
                self.receiver = None;
                // The task that had the call is gone with its runtime.
                answered.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable)))
            }
            None => {
                let late = self.outlast();
                Err(self.dispatch.timed_out(asked, Some(late)))
            }
        }
    }

    /// Awaits in the background what comes too late.
    fn outlast(&mut self) -> Late {
        let (late, keep) = Late::new();
        if let Some(receiver) = self.receiver.take() {
            let (dispatch, order) = (Arc::clone(&self.dispatch), self.order.clone());
            self.dispatch.spawn(async move {
                if let Ok(Ok(outcome)) = receiver.await
                    && outcome.granted > 0
                    && !keep.await.unwrap_or(false)
                {
                    dispatch.give_back_unseen(order, &outcome);
                }
            });
        }
        late
    }
}

impl Dispatch {
    fn give_back_unseen(self: &Arc<Self>, order: Order, outcome: &Outcome) {
        self.stats.count_late(outcome.granted);
        let charged = outcome.states.iter().map(|state| state.charged).collect();
        self.give_back_charged(order, charged, outcome.granted, outcome.stamp);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(mut receiver) = self.receiver.take() else {
            return;
        };
        receiver.close();
        if let Ok(Ok(outcome)) = receiver.try_recv()
            && outcome.granted > 0
        {
            self.dispatch.give_back_unseen(self.order.clone(), &outcome);
        }
    }
}

fn outcome(value: &Value, now: u64, ask: &Wanted, want: u32) -> Answered {
    match Reply::read(value, now, &ask.order, want) {
        Ok(Reply::Answer(answer)) => Ok(answer.outcome(&ask.order, 0, answer.granted)),
        Ok(Reply::TooLate) | Err(_) => Err(StoreError::with_source(StoreErrorKind::Protocol, Unreadable)),
    }
}

/// The server came to it after its deadline, twice, and did nothing.
#[derive(Debug)]
struct TooLate;

impl fmt::Display for TooLate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server came to it after its deadline, and did nothing")
    }
}

impl Error for TooLate {}

/// A reply that no script of this crate gives.
#[derive(Debug)]
struct Unreadable;

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reply is none that a script of this crate gives")
    }
}

impl Error for Unreadable {}

/// The cause of several callers' failure.
#[derive(Debug)]
struct Shared<E>(Arc<E>);

impl<E: fmt::Display> fmt::Display for Shared<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<E: Error> Error for Shared<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
