//! Asks whose counters lie in several slots of a cluster.
//!
//! No script can have them all, so each slot is asked in turn, and what was charged is given back when a later one grants
//! less, or does not answer. A give-back that is lost leaves its units charged: the strict side. Each slot's server has a clock
//! of its own: the answer tells the first one's time, and as of when each charge was charged.

use std::iter;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::cause::Cause;
use super::class::Class;
use super::dispatch::Dispatch;
use super::key::slot;
use super::order::{Order, Wanted};
use super::queue::Answered;
use crate::store::{ChargeState, Outcome, Retry, Stamp, StoreError};

/// The charges of an order in one slot.
pub(super) struct Part {
    pub(super) slot: u16,
    pub(super) order: Order,
    /// Which of the order's charges they are.
    charges: SmallVec<[usize; 4]>,
}

impl Order {
    pub(super) fn spans_slots(&self) -> bool {
        let mut slots = self.keys().map(|key| slot(key));
        let first = slots.next();
        slots.any(|slot| Some(slot) != first)
    }

    /// One part for each slot, in the order of their first charges.
    pub(super) fn parts(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for (index, charge) in self.charges.iter().enumerate() {
            let Some(key) = charge.key() else { continue };
            let slot = slot(key);
            let at = parts
                .iter()
                .position(|part| part.slot == slot)
                .unwrap_or_else(|| {
                    let order = Self {
                        charges: SmallVec::new(),
                        hold: self.hold,
                    };
                    let charges = SmallVec::new();
                    parts.push(Part { slot, order, charges });
                    parts.len() - 1
                });
            parts[at].order.charges.push(charge.clone());
            parts[at].charges.push(index);
        }
        parts
    }
}

/// What was charged so far, given back if dropped.
struct Charged {
    dispatch: Arc<Dispatch>,
    parts: Vec<(Part, Outcome)>,
}

impl Charged {
    /// Gives back what goes beyond so many grants.
    fn cut_to(&mut self, granted: u32) {
        for (part, outcome) in &mut self.parts {
            let mut beyond: SmallVec<[u32; 1]> = SmallVec::new();
            for (charge, state) in part.order.charges.iter().zip(&mut outcome.states) {
                let times = state.charged.saturating_sub(granted);
                beyond.push(times);
                state.charged -= times;
                if state.blocked {
                    continue;
                }
                state.remaining += charge.cost * u64::from(times);
                if times > 0 && charge.cost <= state.remaining {
                    state.retry = Retry::Now;
                }
            }
            if let Some(&most) = beyond.iter().max()
                && most > 0
            {
                self.dispatch
                    .give_back_charged(part.order.clone(), beyond, most, outcome.stamp);
            }
        }
    }

    /// The answer to the whole order, which keeps what is charged.
    fn merge(mut self, order: &Order, granted: u32) -> Outcome {
        let parts = mem::take(&mut self.parts);
        let mut merged = Merging::new(order, granted);
        for (part, outcome) in parts {
            merged.add(part, outcome);
        }
        merged.outcome()
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.cut_to(0);
    }
}

impl Dispatch {
    /// Whether an order must be taken apart, as far as is known.
    fn takes_apart(&self, order: &Order) -> bool {
        self.is_cluster() && order.spans_slots()
    }

    /// Whether an order failed because it had not been taken apart. Nothing was done then.
    fn must_take_apart(&self, order: &Order, error: &StoreError) -> bool {
        let crossed = Cause::class_in(error) == Some(Class::CrossSlot);
        if crossed {
            self.note_cluster();
        }
        crossed && order.spans_slots()
    }

    /// Grants an ask of several charges.
    pub(super) async fn acquire(self: Arc<Self>, ask: Wanted) -> Answered {
        if !self.takes_apart(&ask.order) {
            let answered = Arc::clone(&self).acquire_in_one(ask.clone()).await;
            match &answered {
                Err(error) if self.must_take_apart(&ask.order, error) => {}
                _ => return answered,
            }
        }
        let mut charged = Charged {
            dispatch: Arc::clone(&self),
            parts: Vec::new(),
        };
        let mut granted = ask.want;
        for part in ask.order.parts() {
            let outcome = if granted > 0 {
                Arc::clone(&self).acquire_in_one(part.wanted(&ask, granted)).await
            } else {
                // Denied already: what the others hold is told all the same.
                self.peek_in_one(&part.wanted(&ask, 1)).await
            };
            // Without what could keep it, what comes late of this part is given back, as all of the others is.
            let outcome = outcome.map_err(|error| StoreError::new(error.kind()))?;
            if outcome.granted < granted {
                granted = outcome.granted;
                charged.cut_to(granted);
            }
            charged.parts.push((part, outcome));
        }
        Ok(charged.merge(&ask.order, granted))
    }

    pub(super) async fn charge(&self, ask: Wanted) -> Answered {
        self.ask(ask, Act::Charge).await
    }

    pub(super) async fn peek(&self, ask: Wanted) -> Answered {
        self.ask(ask, Act::Peek).await
    }

    /// Asks all slots at once or one by one.
    async fn ask(&self, ask: Wanted, act: Act) -> Answered {
        if !self.takes_apart(&ask.order) {
            let answered = self.ask_one(&ask, act).await;
            match &answered {
                Err(error) if self.must_take_apart(&ask.order, error) => {}
                _ => return answered,
            }
        }
        let charged = u32::from(act == Act::Charge);
        let mut merged = Merging::new(&ask.order, charged);
        merged.outcome.granted = ask.want;
        for part in ask.order.parts() {
            let outcome = self.ask_one(&part.wanted(&ask, ask.want), act).await?;
            merged.outcome.granted = merged.outcome.granted.min(outcome.granted);
            merged.add(part, outcome);
        }
        Ok(merged.outcome())
    }

    async fn ask_one(&self, ask: &Wanted, act: Act) -> Answered {
        match act {
            Act::Charge => self.charge_in_one(ask).await,
            Act::Peek => self.peek_in_one(ask).await,
        }
    }

    pub(super) async fn reset(&self, ask: Wanted) -> Result<(), StoreError> {
        self.change(ask, Change::Reset).await
    }

    pub(super) async fn block(&self, ask: Wanted, time: u64) -> Result<(), StoreError> {
        self.change(ask, Change::Block(time)).await
    }

    async fn change_one(&self, ask: &Wanted, change: Change) -> Result<(), StoreError> {
        match change {
            Change::Reset => self.reset_in_one(ask).await,
            Change::Block(time) => self.block_in_one(ask, time).await,
        }
    }

    /// Changes what each slot has, all of it or one by one, whether the others fail or not.
    async fn change(&self, ask: Wanted, change: Change) -> Result<(), StoreError> {
        if ask.order.is_uncounted() {
            return Ok(());
        }
        if !self.takes_apart(&ask.order) {
            match self.change_one(&ask, change).await {
                Err(error) if self.must_take_apart(&ask.order, &error) => {}
                result => return result,
            }
        }
        let mut result = Ok(());
        for part in ask.order.parts() {
            let changed = self.change_one(&part.wanted(&ask, ask.want), change).await;
            result = result.and(changed);
        }
        result
    }
}

/// What is asked of each slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Charge,
    Peek,
}

#[derive(Clone, Copy)]
enum Change {
    Reset,
    /// For so many microseconds.
    Block(u64),
}

/// The answer to a whole order, put together.
struct Merging {
    outcome: Outcome,
    stamps: SmallVec<[Option<Stamp>; 4]>,
}

impl Merging {
    fn new(order: &Order, granted: u32) -> Self {
        Self {
            outcome: Outcome::new(granted, Stamp::default(), uncounted_states(order, granted)),
            stamps: order.charges.iter().map(|_| None).collect(),
        }
    }

    fn add(&mut self, part: Part, outcome: Outcome) {
        if self.stamps.iter().all(Option::is_none) {
            (self.outcome.now, self.outcome.stamp) = (outcome.now, outcome.stamp);
        }
        for (index, state) in part.charges.into_iter().zip(outcome.states) {
            self.outcome.states[index] = state;
            self.stamps[index] = Some(outcome.stamp);
        }
    }

    /// What nothing counts has the stamp of the first part.
    fn outcome(self) -> Outcome {
        let stamp = self.outcome.stamp;
        let stamps = self.stamps.into_iter().map(|each| each.unwrap_or(stamp));
        self.outcome.stamps(stamps)
    }
}

impl Part {
    fn wanted(&self, ask: &Wanted, want: u32) -> Wanted {
        Wanted {
            order: self.order.clone(),
            want,
            deadline: ask.deadline,
        }
    }
}

/// What is told of charges that nothing counts, standing in the places of all.
fn uncounted_states(order: &Order, charged: u32) -> impl Iterator<Item = ChargeState> {
    let state = ChargeState::new(charged, u64::MAX, Retry::Now, Duration::ZERO);
    iter::repeat_n(state, order.charges.len())
}
