//! What waits for the next call: equal asks merged, in the order of their first arrival.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use hashbrown::HashTable;
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::carried::Carried;
use super::key::slot;
use super::order::{Order, Wanted};
use crate::store::{Outcome, StoreError};

/// What a waiting caller gets.
pub(super) type Answered = Result<Outcome, StoreError>;

/// Somebody who waits for an answer.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) want: u32,
    pub(super) deadline: Instant,
    pub(super) answer: oneshot::Sender<Answered>,
}

/// Equal asks, to be sent as one that is wanted as often as all of them, and who waits for it.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) ask: Wanted,
    /// In order of arrival.
    pub(super) callers: SmallVec<[Caller; 1]>,
}

impl Merged {
    /// Until when anybody waits for it.
    pub(super) fn latest(&self) -> Instant {
        let callers = self.callers.iter().map(|caller| caller.deadline);
        callers.max().unwrap_or(self.ask.deadline)
    }

    /// Asks for those alone who are still there. Without callers, it is its own.
    pub(super) fn leave_out_the_gone(&mut self, now: Instant) {
        if self.callers.is_empty() {
            return;
        }
        self.callers
            .retain(|caller| !caller.answer.is_closed() && caller.deadline > now);
        let deadlines = self.callers.iter().map(|caller| caller.deadline);
        self.ask.deadline = deadlines.min().unwrap_or(self.ask.deadline);
        // No more than were merged, which fits.
        self.ask.want = self.callers.iter().map(|caller| caller.want).sum();
    }
}

/// How much a call carries, and how much may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Counters in one call, each once however many of its asks charge it, and half of its charges at most.
    pub(super) counters: usize,
    /// Units that one call writes one by one.
    pub(super) units: u64,
    /// Callers that wait at once.
    pub(super) waiting: usize,
    /// Calls in flight at once.
    pub(super) in_flight: usize,
    /// How long a call keeps its place at most.
    pub(super) place: Duration,
}

/// Asks that wait while calls are in flight, and the calls in flight.
#[derive(Debug)]
pub(super) struct Queue {
    bounds: Bounds,
    waiting: VecDeque<Merged>,
    /// Asks by what they ask for: positions, counted from the first ask ever.
    equal: HashTable<u64>,
    hasher: foldhash::fast::RandomState,
    taken: u64,
    callers: usize,
    /// Each call in flight, and until when its place counts.
    flights: SmallVec<[(u64, Instant); 4]>,
    last_flight: u64,
    is_cluster: bool,
}

/// Asks of other slots that are looked past for those of a call's.
const MOST_SKIPPED: usize = 256;

/// Places for each that one server has: a cluster's calls are of one slot each, and go to several servers.
const PLACES_IN_CLUSTER: usize = 32;

/// A call's place among those in flight.
pub(super) type Place = u64;

impl Queue {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            waiting: VecDeque::new(),
            equal: HashTable::new(),
            hasher: foldhash::fast::RandomState::default(),
            taken: 0,
            callers: 0,
            flights: SmallVec::new(),
            last_flight: 0,
            is_cluster: false,
        }
    }

    pub(super) const fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(super) const fn callers(&self) -> usize {
        self.callers
    }

    pub(super) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// A place for a call, if one is free and nobody waits who came before.
    pub(super) fn take_off(&mut self, now: Instant, deadline: Instant) -> Option<Place> {
        (self.waiting.is_empty() && self.has_place(now)).then(|| self.place(deadline))
    }

    /// A caller that has stopped polling its call keeps its place for a while, and no longer.
    pub(super) fn has_place(&mut self, now: Instant) -> bool {
        let places = match self.is_cluster {
            true => self.bounds.in_flight.saturating_mul(PLACES_IN_CLUSTER),
            false => self.bounds.in_flight,
        };
        if self.flights.len() >= places {
            self.flights.retain(|(_, until)| *until > now);
        }
        self.flights.len() < places
    }

    fn place(&mut self, until: Instant) -> Place {
        let most = Instant::now() + self.bounds.place;
        self.last_flight += 1;
        self.flights.push((self.last_flight, until.min(most)));
        self.last_flight
    }

    /// The next call's place and asks, if a place is free and somebody waits.
    pub(super) fn next_batch(&mut self, per_slot: bool) -> Option<(Place, SmallVec<[Merged; 1]>)> {
        self.is_cluster = per_slot;
        if self.waiting.is_empty() || !self.has_place(Instant::now()) {
            return None;
        }
        let batch = self.take(per_slot);
        let until = batch.iter().map(Merged::latest).max()?;
        Some((self.place(until), batch))
    }

    /// Ends a call. It may have lost its place before.
    pub(super) fn land(&mut self, place: Place) {
        self.flights.retain(|(each, _)| *each != place);
    }

    /// Lets a caller wait. False if too many do.
    pub(super) fn push(&mut self, order: &Order, caller: Caller) -> bool {
        if self.callers >= self.bounds.waiting {
            return false;
        }
        self.callers += 1;
        let hash = self.hash(order);
        let taken = self.taken;
        let at = |position: u64| (position - taken) as usize;
        let waiting = &self.waiting;
        let found = self.equal.find_mut(hash, |&position| {
            waiting[at(position)].ask.order.merges_with(order)
        });
        if let Some(position) = found {
            let merged = &mut self.waiting[at(*position)];
            let want = merged.ask.want.checked_add(caller.want);
            let units = |want: u32| order.units_written().saturating_mul(u64::from(want));
            if let Some(want) = want.filter(|&want| units(want) <= self.bounds.units) {
                merged.ask.want = want;
                merged.ask.deadline = merged.ask.deadline.min(caller.deadline);
                merged.callers.push(caller);
                return true;
            }
            // Full: from now on another one stands for the same.
            *position = taken + self.waiting.len() as u64;
        } else {
            let position = taken + waiting.len() as u64;
            let (waiting, hasher) = (&self.waiting, &self.hasher);
            self.equal.insert_unique(hash, position, |&position| {
                hash_of(hasher, &waiting[at(position)].ask.order)
            });
        }
        self.waiting.push_back(Merged {
            ask: Wanted {
                order: order.clone(),
                want: caller.want,
                deadline: caller.deadline,
            },
            callers: SmallVec::from_buf([caller]),
        });
        true
    }

    /// The next call's asks; with `per_slot`, of one slot of a cluster. Callers who have gone are left out.
    fn take(&mut self, per_slot: bool) -> SmallVec<[Merged; 1]> {
        let mut batch: SmallVec<[Merged; 1]> =
            SmallVec::with_capacity(self.waiting.len().min(self.bounds.counters));
        let now = Instant::now();
        let mut carried = Carried::default();
        let mut slots = per_slot.then_some(None);
        let mut skipped = Vec::new();
        while !self.waiting.is_empty() && skipped.len() < MOST_SKIPPED {
            let mut next = self.pop();
            let callers = next.callers.len();
            next.leave_out_the_gone(now);
            self.callers -= callers - next.callers.len();
            if next.callers.is_empty() {
                continue;
            }
            if let Some(only_slot) = &mut slots {
                let slot = next.ask.order.keys().next().map(|key| slot(key));
                if *only_slot.get_or_insert(slot) != slot {
                    skipped.push(next);
                    continue;
                }
            }
            let fits = carried.add(&next.ask, self.bounds);
            if !batch.is_empty() && !fits {
                skipped.push(next);
                break;
            }
            self.callers -= next.callers.len();
            batch.push(next);
        }
        for merged in skipped.into_iter().rev() {
            self.unpop(merged);
        }
        batch
    }

    fn pop(&mut self) -> Merged {
        let Some(merged) = self.waiting.pop_front() else {
            unreachable!("popped from an empty queue");
        };
        let (position, hash) = (self.taken, self.hash(&merged.ask.order));
        self.taken += 1;
        if let Ok(entry) = self.equal.find_entry(hash, |&each| each == position) {
            entry.remove();
        }
        merged
    }

    /// Puts back what was popped last.
    fn unpop(&mut self, merged: Merged) {
        let hash = self.hash(&merged.ask.order);
        self.waiting.push_front(merged);
        self.taken -= 1;
        let (position, taken) = (self.taken, self.taken);
        let (waiting, hasher) = (&self.waiting, &self.hasher);
        self.equal.insert_unique(hash, position, |&position| {
            hash_of(hasher, &waiting[(position - taken) as usize].ask.order)
        });
    }

    fn hash(&self, order: &Order) -> u64 {
        hash_of(&self.hasher, order)
    }
}

fn hash_of(hasher: &foldhash::fast::RandomState, order: &Order) -> u64 {
    let mut hasher = hasher.build_hasher();
    for key in order.keys() {
        hasher.write(key);
    }
    for charge in &order.charges {
        hasher.write_u64(charge.cost);
    }
    hasher.finish()
}
