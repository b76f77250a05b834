//! Corrections: as many as fit in a call, each made by itself.

use std::mem;

use hashbrown::HashMap;
use redis::{RedisResult, Value};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::attempts::Attempts;
use super::call;
use super::cause::{TooLate, Unreadable};
use super::class::Class;
use super::dispatch::Dispatch;
use super::key::slot;
use super::link::{Report, Route};
use super::order::{Amend, Amendment, Order, Wanted};
use super::queue::Bounds;
use super::reply::is_too_late;
use super::script::By;
use crate::store::join::join;
use crate::store::{Stamp, StoreError, StoreErrorKind};

/// The corrections of one call.
type Amendments = Vec<Amendment>;

impl Dispatch {
    /// `ask.want` is the number of grants to give back.
    pub(super) async fn give_back(&self, ask: Wanted, stamp: Stamp) -> Result<(), StoreError> {
        if ask.order.counters().next().is_none() {
            return Ok(());
        }
        let amend = Amend::GiveBack(stamp);
        self.settle(vec![Amendment { ask, amend }]).await
    }

    /// Makes corrections, none of which is without a counter. Slots of a cluster wait for no other, calls in one slot for
    /// those before them.
    pub(super) async fn settle(&self, amendments: Amendments) -> Result<(), StoreError> {
        self.note_runtime();
        if !self.is_cluster() {
            return StoreError::of_all(self.settle_one_by_one(amendments).await);
        }
        self.settle_slots(amendments).await
    }

    async fn settle_slots(&self, amendments: Amendments) -> Result<(), StoreError> {
        let slots = by_slot(amendments).into_iter();
        let settled = join(slots.map(|slot| Box::pin(self.settle_one_by_one(slot)))).await;
        StoreError::of_all(settled.into_iter().flatten())
    }

    /// Makes calls of what is in one slot, as far as is known.
    async fn settle_one_by_one(&self, mut amendments: Amendments) -> Vec<Result<(), StoreError>> {
        let bounds = self.queue().bounds();
        let mut results = Vec::new();
        while !amendments.is_empty() {
            let rest = amendments.split_off(fitting(&amendments, bounds));
            let result = self.settle_in_one(mem::replace(&mut amendments, rest)).await;
            results.push(result);
        }
        results
    }

    /// One call, and another one of what came too late.
    async fn settle_in_one(&self, mut amendments: Amendments) -> Result<(), StoreError> {
        let asked = Instant::now();
        let count = amendments.len();
        let mut attempts = Attempts::default();
        let error = loop {
            let latest = amendments.iter().map(|each| each.ask.deadline).max();
            let Some(deadline) = latest.filter(|latest| *latest > Instant::now()) else {
                break self.timed_out(asked, None).undone();
            };
            let route = match self.link.route() {
                Ok(route) => route,
                Err(error) => break error.undone(),
            };
            let sent = Instant::now();
            let Some(result) = self
                .send_until(deadline, &route, attempts.by(), &amendments)
                .await
            else {
                break self.timed_out(asked, None);
            };
            match self.received(&route, sent, result) {
                Ok(replies) if replies.each().len() == amendments.len() => {
                    let mut replies = replies.each().iter();
                    amendments.retain(|_| replies.next().is_some_and(is_too_late));
                    self.stats.count_too_late(amendments.len());
                    if amendments.is_empty() {
                        return Ok(());
                    }
                    // The clock is known better now.
                    if !attempts.once_late() {
                        break StoreError::with_source(StoreErrorKind::Overloaded, TooLate).undone();
                    }
                }
                Ok(_) => break StoreError::with_source(StoreErrorKind::Protocol, Unreadable),
                Err((class, _)) if attempts.once_more_after(class) => {}
                Err((Class::CrossSlot, _)) if span_slots(&amendments) => {
                    self.note_cluster();
                    match Box::pin(self.settle_slots(amendments.clone())).await {
                        Ok(()) => return Ok(()),
                        Err(error) => break error,
                    }
                }
                Err((class, error)) => {
                    let error = StoreError::with_source(class.kind(), error);
                    break if class.proves_not_executed() {
                        error.undone()
                    } else {
                        error
                    };
                }
            }
        };
        // Those that came in time were made.
        let made = (amendments.len() < count).then_some(Ok(()));
        StoreError::of_all(made.into_iter().chain([Err(error)]))
    }

    /// `None` if there is no reply in time.
    async fn send_until(
        &self,
        deadline: Instant,
        route: &Route,
        by: By,
        amendments: &[Amendment],
    ) -> Option<RedisResult<Value>> {
        let sent = Instant::now();
        let command = call::settle(self.scripts, by, route.clock(), amendments);
        self.stats.count_settle_call(amendments.len());
        let result = route.send(command, deadline).await;
        if result.is_err() {
            self.stats.note_timeout();
            route.report(sent, Instant::now(), Report::TimedOut);
        }
        result.ok()
    }
}

/// How many fit in a call: at least one.
fn fitting(amendments: &[Amendment], bounds: Bounds) -> usize {
    let (mut charges, mut units) = (0, 0_u64);
    let beyond = amendments.iter().position(|each| {
        charges += each.ask.order.charges.len();
        units = units.saturating_add(each.units_written());
        charges > bounds.counters || units > bounds.units
    });
    beyond.map_or(amendments.len(), |beyond| beyond.max(1))
}

fn span_slots(amendments: &[Amendment]) -> bool {
    let counters = amendments.iter().flat_map(|each| each.ask.order.counters());
    let mut slots = counters.map(|counter| slot(&counter.key));
    let first = slots.next();
    slots.any(|slot| Some(slot) != first)
}

/// Those of each slot of a cluster, taken apart where they have several.
fn by_slot(amendments: Amendments) -> Vec<Amendments> {
    let mut slots: HashMap<u16, Amendments, foldhash::fast::RandomState> = HashMap::default();
    for amendment in amendments {
        let parts: SmallVec<[(u16, Amendment); 1]> = if amendment.ask.order.spans_slots() {
            let parts = amendment.ask.order.parts().into_iter();
            parts.map(|part| (part.slot, amendment.of(part.order))).collect()
        } else {
            let counter = amendment.ask.order.counters().next();
            let slot = counter.map_or(0, |counter| slot(&counter.key));
            SmallVec::from_buf([(slot, amendment)])
        };
        for (slot, part) in parts {
            slots.entry(slot).or_default().push(part);
        }
    }
    slots.into_values().collect()
}

impl Amendment {
    /// The same of a part of its order.
    fn of(&self, order: Order) -> Self {
        Self {
            ask: Wanted {
                order,
                ..self.ask.clone()
            },
            amend: self.amend,
        }
    }
}
