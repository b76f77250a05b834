//! How asks travel: alone in their caller's own future while nothing else is under way, else merged and batched.
//!
//! While as many calls as may be are in flight, what arrives waits in the [`Queue`]. The call that ends lets a task
//! take all of it along in the next. Nothing is added when idle: no task, no timer but the caller's deadline.
//!
//! Whoever stops waiting, because its deadline has passed or it was dropped, harms nobody else: a call that is under way
//! is awaited in the background, and what it grants to callers that have gone is given back.

use std::future::{Future, pending};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::call::{self};
use super::cause::{Cause, Unreadable};
use super::class::Class;
use super::clock::ServerClock;
use super::flight::Flight;
use super::link::{Link, Report, Route};
use super::order::{Order, Wanted};
use super::queue::{Answered, Bounds, Caller, Merged, Place, Queue};
use super::reply::{Answer, Reply, split};
use super::script::{By, Scripts};
use super::stats::Stats;
use crate::store::{Late, Outcome, Stamp, StoreError, StoreErrorKind};

/// Sends asks and hands out answers.
pub(super) struct Dispatch {
    pub(super) link: Link,
    pub(super) scripts: &'static Scripts,
    queue: Mutex<Queue>,
    /// Whether a call may only have keys of one slot: the server is a cluster.
    per_slot: AtomicBool,
    pub(super) stats: Stats,
    /// How long corrections of our own may take.
    patience: Duration,
    home: OnceLock<Home>,
}

/// A runtime, and a task that ends with it.
struct Home {
    runtime: Handle,
    lives: AbortHandle,
}

impl Drop for Home {
    fn drop(&mut self) {
        self.lives.abort();
    }
}

impl Dispatch {
    pub(super) fn new(
        link: Link,
        scripts: &'static Scripts,
        bounds: Bounds,
        patience: Duration,
        per_slot: bool,
    ) -> Self {
        let this = Self {
            link,
            scripts,
            queue: Mutex::new(Queue::new(bounds)),
            per_slot: AtomicBool::new(per_slot),
            stats: Stats::default(),
            patience,
            home: OnceLock::new(),
        };
        this.note_runtime();
        this
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.per_slot.load(Ordering::Relaxed)
    }

    pub(super) fn note_cluster(&self) {
        self.per_slot.store(true, Ordering::Relaxed);
    }

    /// Grants the ask up to as often as it is wanted. Its counters are in one slot, as far as is known.
    pub(super) async fn acquire_in_one(self: Arc<Self>, ask: Wanted) -> Answered {
        self.note_runtime();
        let asked = Instant::now();
        if ask.deadline <= asked {
            return Err(self.timed_out(asked, None));
        }
        match self.enter(&ask, asked)? {
            // Boxed, for who waits has no need of the room that a call takes.
            Entered::Alone(place) => Box::pin(self.fly_alone(place, ask)).await,
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

    async fn fly_alone(self: Arc<Self>, place: Place, ask: Wanted) -> Answered {
        let alone = Merged {
            ask,
            callers: SmallVec::new(),
        };
        let mut call = Flight::new(self, Some(place), SmallVec::from_buf([alone]));
        call.fly().await?;
        match call.answers.pop() {
            Some((merged, Ok(answer))) => Ok(answer.outcome(&merged.ask.order, 0, answer.granted)),
            Some((_, Err(error))) => Err(error),
            None => Err(StoreError::with_source(StoreErrorKind::Protocol, Unreadable)),
        }
    }

    /// Gives an ask a call of its own, or lets it wait for one that others make.
    fn enter(self: &Arc<Self>, ask: &Wanted, now: Instant) -> Result<Entered, StoreError> {
        let mut queue = self.queue();
        if let Some(place) = queue.take_off(now, ask.deadline) {
            return Ok(Entered::Alone(place));
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

    /// What a reply says to link and clock. An error comes with its class.
    pub(super) fn received(
        &self,
        route: &Route,
        sent: Instant,
        result: RedisResult<Value>,
    ) -> Result<Value, (Class, Cause)> {
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
                Err((class, Cause::new(error)))
            }
        }
    }

    /// Ends a call: its place goes to what waits.
    pub(super) fn land(self: &Arc<Self>, place: Place) {
        self.queue().land(place);
        self.take_along();
    }

    /// Sends what waits, as far as there are places.
    fn take_along(self: &Arc<Self>) {
        let per_slot = self.is_cluster();
        loop {
            let next = self.queue().next_batch(per_slot);
            let Some((place, batch)) = next else { return };
            let mut call = Flight::new(Arc::clone(self), Some(place), batch);
            self.spawn(async move {
                // Where the time is over, who waits has been told already.
                if call.fly().await.is_ok() {
                    call.hand_out();
                }
            });
        }
    }

    /// Gives each caller that is still there its share, in order of arrival, and back what is left.
    pub(super) fn hand_out(
        self: &Arc<Self>,
        order: &Order,
        callers: SmallVec<[Caller; 1]>,
        answer: Result<Answer, StoreError>,
    ) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let (kind, cause) = (error.kind(), Cause::new(error));
                for caller in callers {
                    let shared = StoreError::with_source(kind, cause.clone());
                    drop(caller.answer.send(Err(shared)));
                }
                return;
            }
        };
        let mut given = 0;
        // All who get nothing are told the same.
        let mut denied: Option<Outcome> = None;
        for caller in callers {
            let take = caller.want.min(answer.granted - given);
            let outcome = if take > 0 {
                answer.outcome(order, given, take)
            } else {
                denied
                    .get_or_insert_with(|| answer.outcome(order, given, 0))
                    .clone()
            };
            // What was for one who has gone is for the next.
            if caller.answer.send(Ok(outcome)).is_ok() {
                given += take;
            }
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
    pub(super) fn give_back_charged(
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

    pub(super) async fn charge_in_one(&self, ask: &Wanted) -> Answered {
        let command = |by, clock: &_| call::charge(self.scripts, by, clock, ask);
        let (now, value) = self.single(ask.deadline, command).await?;
        outcome(&value, now, ask, 1)
    }

    pub(super) async fn peek_in_one(&self, ask: &Wanted) -> Answered {
        let command = |by, clock: &_| call::peek(self.scripts, by, clock, ask);
        let (now, value) = self.single(ask.deadline, command).await?;
        let mut outcome = outcome(&value, now, ask, ask.want)?;
        for state in &mut outcome.states {
            state.charged = 0;
        }
        Ok(outcome)
    }

    pub(super) async fn give_back_in_one(&self, ask: &Wanted, stamp: Stamp) -> Result<(), StoreError> {
        let command = |by, clock: &_| call::give_back(self.scripts, by, clock, ask, stamp);
        self.single(ask.deadline, command).await.map(drop)
    }

    pub(super) async fn reset_in_one(&self, ask: &Wanted) -> Result<(), StoreError> {
        let command = |by, clock: &_| call::reset(self.scripts, by, clock, ask);
        self.single(ask.deadline, command).await.map(drop)
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
    pub(super) fn timed_out(&self, asked: Instant, late: Option<Late>) -> StoreError {
        let kind = if self.stats.answered_since(asked) {
            StoreErrorKind::Overloaded
        } else {
            StoreErrorKind::Timeout
        };
        StoreError::new(kind).late(late)
    }

    /// Runs work in the background: where the store was made, or first used, for the runtime that asks now may be driven
    /// now and then only. If that one has ended, on the one that asks.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        match self.home.get() {
            Some(home) if !home.lives.is_finished() => drop(home.runtime.spawn(work)),
            _ => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(work);
                }
            }
        }
    }

    fn note_runtime(&self) {
        if self.home.get().is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            self.home.get_or_init(|| Home {
                lives: runtime.spawn(pending::<()>()).abort_handle(),
                runtime,
            });
        }
    }
}

/// How an ask is going to travel.
enum Entered {
    Alone(Place),
    Waits(oneshot::Receiver<Answered>),
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
                // A call that nobody polls any more may have lost its place meanwhile.
                self.dispatch.take_along();
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
