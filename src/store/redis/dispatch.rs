//! How asks travel: alone in their caller's own future while nothing else is under way, else merged and batched.
//!
//! While as many calls as may be are in flight, what arrives waits in the [`Queue`]; who asks for what many wait for comes by a
//! door of its thread ([`Doors`]). The call that ends lets a task
//! take all of it along in the next. Where one answer went to several callers, or more were answered than wait, the task makes
//! the next call itself, once they have had their turn: who was answered together often asks again together, and shares that one
//! too. What waits already waits for that turn as well: as long as those callers keep their runtime's threads. Nothing is added
//! when idle: no task, and no timer but for the callers' deadlines.
//!
//! Whoever stops waiting, because its deadline has passed or it was dropped, harms nobody else: a call that is under way
//! is awaited in the background, and what it grants to callers that have gone is given back.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use foldhash::fast::RandomState;
use redis::{RedisResult, Value};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::cause::{Cause, Unreadable};
use super::class::Class;
use super::crowd::Remains;
use super::doors::Doors;
use super::enter::Entered;
use super::flight::{Asks, Flight};
use super::home::Home;
use super::keeper::Keeper;
use super::key::subject_and_policy;
use super::link::{Link, Report, Route};
use super::merged::Merged;
use super::order::{Order, Wanted};
use super::queue::{Answered, Bounds, Place, Queue};
use super::reply::{Answer, Replies, Share};
use super::script::Scripts;
use super::stats::Stats;
use crate::policy::PolicyName;
use crate::store::{Change, Changing, Late, LocalAnswers, Stamp, StoreError, StoreErrorKind};

/// Sends asks and hands out answers.
pub(super) struct Dispatch {
    pub(super) link: Link,
    pub(super) scripts: &'static Scripts,
    queue: Mutex<Queue>,
    pub(super) doors: Arc<Doors>,
    pub(super) hasher: RandomState,
    pub(super) keeper: Arc<Keeper>,
    /// Whether a call may only have keys of one slot: the server is a cluster.
    per_slot: AtomicBool,
    pub(super) stats: Stats,
    /// What needs no call.
    pub(super) local: LocalAnswers,
    /// How long corrections of our own may take.
    patience: Duration,
    home: OnceLock<Home>,
}

impl Dispatch {
    pub(super) fn new(
        (link, scripts, local): (Link, &'static Scripts, LocalAnswers),
        bounds: Bounds,
        patience: Duration,
        per_slot: bool,
    ) -> Self {
        let doors = Arc::new(Doors::new());
        let this = Self {
            link,
            scripts,
            queue: Mutex::new(Queue::new(bounds, Arc::clone(&doors))),
            doors,
            hasher: RandomState::default(),
            keeper: Arc::default(),
            per_slot: AtomicBool::new(per_slot),
            stats: Stats::default(),
            local,
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
        Entered::alone(&self, ask).await
    }

    /// Reads a reply, and tells link and clock of it. An error comes with its class.
    pub(super) fn received(
        &self,
        route: &Route,
        sent: Instant,
        result: RedisResult<Value>,
    ) -> Result<Replies, (Class, Cause)> {
        let received = Instant::now();
        let (class, cause) = match result {
            Ok(value) => {
                self.stats.note_answer(received, received - sent);
                match Replies::read(value) {
                    Ok(replies) => {
                        route.clock().observe(sent, received, replies.now);
                        route.report(sent, received, Report::Answered);
                        return Ok(replies);
                    }
                    Err(_) => (Class::Protocol, Cause::new(Unreadable)),
                }
            }
            Err(error) => (Class::of(&error), Cause::new(error)),
        };
        self.stats.count_error(class);
        route.report(sent, received, Report::Failed(class));
        Err((class, cause))
    }

    /// Ends a call: its place goes to what waits.
    pub(super) fn land(self: &Arc<Self>, place: Place) {
        self.queue().land(place);
        self.take_along();
    }

    /// The place and the asks of the next call, if there is one to make; that of a call that has landed is free for it.
    pub(super) fn next_batch(&self, landed: Option<Place>) -> Option<(Place, Asks)> {
        let per_slot = self.is_cluster();
        let mut queue = self.queue();
        if let Some(landed) = landed {
            queue.land(landed);
        }
        queue.next_batch(per_slot)
    }

    /// Sends what waits, as far as there are places.
    pub(super) fn take_along(self: &Arc<Self>) {
        while let Some((place, batch)) = self.next_batch(None) {
            let mut call = Flight::new(Arc::clone(self), Some(place), batch);
            self.spawn(async move {
                // Where the time is over, who waits has been told already.
                while call.fly().await && call.goes_on().await {}
            });
        }
    }

    /// Gives each caller that is still there its share, and back what is left.
    pub(super) fn hand_out(self: &Arc<Self>, merged: Merged, answer: Result<Answer, StoreError>) {
        let order = merged.ask.order;
        let Some(crowd) = merged.crowd else {
            // Who asked alone has gone, or has its answer.
            if let Ok(answer) = answer {
                self.give_back_grants(&order, &answer, Share::new(0, answer.granted, 0));
            }
            return;
        };
        let Remains { callers, rest, late } = crowd.tell(answer.map(|answer| (order, answer)));
        if let Some(rest) = rest {
            self.give_back_share(&callers, rest);
        }
        for (share, keep) in late {
            let (dispatch, callers) = (Arc::clone(self), Arc::clone(&callers));
            self.spawn(async move {
                if !keep.await.unwrap_or(false) {
                    dispatch.give_back_share(&callers, share);
                }
            });
        }
    }

    /// Gives back grants that nobody got, in the background.
    pub(super) fn give_back_grants(self: &Arc<Self>, order: &Order, answer: &Answer, share: Share) {
        if share.take > 0 {
            self.stats.count_late(share.take);
            let charged = answer.charged(order, share);
            self.give_back_charged(order.clone(), charged, share.take, answer.stamp());
        }
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
        let changing = self.giving_back(&order);
        self.spawn(async move {
            let _changing = changing;
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
                part.charges.iter_mut().for_each(|charge| charge.penalty = None);
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

    /// Tells the local answers that units of an order come back.
    fn giving_back(&self, order: &Order) -> Changing {
        let subjects = order
            .counters()
            .filter_map(|counter| subject_and_policy(&counter.key));
        let hashes = subjects.map(|(key, policy)| self.local.hash_text(key, PolicyName::hash_of(policy)));
        self.local.changing_hashes(hashes.collect(), Change::GiveBack)
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
        match self.home.get().and_then(Home::runtime) {
            Some(runtime) => drop(runtime.spawn(work)),
            None => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(work);
                }
            }
        }
    }

    pub(super) fn note_runtime(&self) {
        if self.home.get().is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            self.home
                .get_or_init(|| Home::new(runtime, Arc::clone(&self.keeper).keep()));
        }
    }

    /// Whether the keeper runs where somebody is polled with this waker.
    #[inline]
    pub(super) fn keeps_time_of(&self, waker: &Waker) -> bool {
        self.home.get().is_some_and(|home| home.keeps_time_of(waker))
    }
}
