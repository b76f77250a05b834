//! What waits for the next call: equal asks merged, in the order of their first arrival.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashTable, hash_table};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::callers::{Caller, Callers, Teller};
use super::carried::Carried;
use super::key::slot;
use super::order::{Order, Wanted};
use crate::store::{Outcome, StoreError};

/// What a waiting caller gets.
pub(super) type Answered = Result<Outcome, StoreError>;

/// Equal asks, to be sent as one that is wanted as often as all of them, and who waits for it.
#[derive(Debug)]
pub(super) struct Merged {
    /// With the first of their deadlines.
    pub(super) ask: Wanted,
    /// Until when anybody waits for it.
    pub(super) latest: Instant,
    /// In order of arrival, those who have gone included.
    pub(super) callers: SmallVec<[Caller; 1]>,
    /// How many of them are asked for.
    pub(super) present: usize,
    /// None for an ask that travels alone, in its caller's own future.
    pub(super) teller: Option<Teller>,
}

impl Merged {
    pub(super) fn alone(ask: Wanted) -> Self {
        Self {
            latest: ask.deadline,
            ask,
            callers: SmallVec::new(),
            present: 1,
            teller: None,
        }
    }

    /// Asks for those alone who are still there. False if nobody is.
    pub(super) fn leave_out_the_gone(&mut self, now: Instant) -> bool {
        let Some(teller) = &self.teller else {
            return true;
        };
        if self.ask.deadline > now && !teller.callers().has_gone() {
            return true;
        }
        let Some(present) = teller.callers().leave_out_the_gone(&self.callers, now) else {
            return false;
        };
        self.ask.want = present.want;
        self.ask.deadline = present.first_deadline;
        self.latest = present.last_deadline;
        self.present = present.count;
        true
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
    waiting: VecDeque<Entry>,
    /// Asks by their hash: positions, counted from the first ask ever.
    equal: HashTable<u64>,
    taken: u64,
    callers: usize,
    /// Each call in flight, and until when its place counts.
    flights: SmallVec<[(u64, Instant); 4]>,
    last_flight: u64,
    is_cluster: bool,
}

#[derive(Debug)]
struct Entry {
    merged: Merged,
    hash: u64,
    /// Units that one grant of it writes one by one.
    units: u64,
}

/// Who shares an ask, and the place of who has come to them last.
pub(super) type Joined = (Arc<Callers>, usize);

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

    /// Whether a call can be made now: a place is free, and nobody waits who came before.
    pub(super) fn is_free(&mut self, now: Instant) -> bool {
        self.waiting.is_empty() && self.has_place(now)
    }

    /// A place for a call that can be made now.
    pub(super) fn take_off(&mut self, now: Instant, deadline: Instant) -> Option<Place> {
        self.is_free(now).then(|| self.place(now, deadline))
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

    fn place(&mut self, now: Instant, until: Instant) -> Place {
        let most = now + self.bounds.place;
        self.last_flight += 1;
        self.flights.push((self.last_flight, until.min(most)));
        self.last_flight
    }

    /// The next call's place and asks, if a place is free and somebody waits.
    pub(super) fn next_batch(&mut self, per_slot: bool) -> Option<(Place, SmallVec<[Merged; 1]>)> {
        self.is_cluster = per_slot;
        if self.waiting.is_empty() {
            return None;
        }
        let now = Instant::now();
        if !self.has_place(now) {
            return None;
        }
        let batch = self.take(now, per_slot);
        let until = batch.iter().map(|merged| merged.latest).max()?;
        Some((self.place(now, until), batch))
    }

    /// Ends a call. It may have lost its place before.
    pub(super) fn land(&mut self, place: Place) {
        self.flights.retain(|(each, _)| *each != place);
    }

    pub(super) const fn is_full(&self) -> bool {
        self.callers >= self.bounds.waiting
    }

    /// Lets a caller wait with those who ask for the same, if there are any and the call can take that many.
    pub(super) fn join(
        &mut self,
        hash: u64,
        is_equal: impl Fn(&Order) -> bool,
        (want, deadline): (u32, Instant),
    ) -> Option<Joined> {
        let taken = self.taken;
        let waiting = &self.waiting;
        let position = *self.equal.find(hash, |&position| {
            is_equal(&waiting[(position - taken) as usize].merged.ask.order)
        })?;
        let Entry { merged, units, .. } = &mut self.waiting[(position - taken) as usize];
        let Merged {
            ask,
            latest,
            callers,
            present,
            teller,
        } = merged;
        let sum = ask.want.checked_add(want)?;
        if units.saturating_mul(sum.into()) > self.bounds.units {
            return None;
        }
        let shared = teller.as_ref()?.callers();
        ask.want = sum;
        ask.deadline = ask.deadline.min(deadline);
        *latest = deadline.max(*latest);
        callers.push(Caller { want, deadline });
        *present += 1;
        self.callers += 1;
        Some((Arc::clone(shared), callers.len() - 1))
    }

    /// Lets a caller wait by itself. From now on, others who ask for the same join it.
    pub(super) fn push(&mut self, hash: u64, ask: Wanted, shared: Arc<Callers>) -> Joined {
        let caller = Caller {
            want: ask.want,
            deadline: ask.deadline,
        };
        let position = self.taken + self.waiting.len() as u64;
        let (waiting, taken) = (&self.waiting, self.taken);
        let entry = |position: u64| &waiting[(position - taken) as usize];
        let equal = self.equal.entry(
            hash,
            |&each| entry(each).merged.ask.order.merges_with(&ask.order),
            |&each| entry(each).hash,
        );
        match equal {
            // That one is full.
            hash_table::Entry::Occupied(mut full) => *full.get_mut() = position,
            hash_table::Entry::Vacant(vacant) => drop(vacant.insert(position)),
        }
        self.waiting.push_back(Entry {
            units: ask.order.units_written(),
            merged: Merged {
                latest: ask.deadline,
                ask,
                callers: SmallVec::from_buf([caller]),
                present: 1,
                teller: Some(Teller::new(Arc::clone(&shared))),
            },
            hash,
        });
        self.callers += 1;
        (shared, 0)
    }

    /// The next call's asks; with `per_slot`, of one slot of a cluster. Callers who have gone are left out.
    fn take(&mut self, now: Instant, per_slot: bool) -> SmallVec<[Merged; 1]> {
        let mut batch: SmallVec<[Merged; 1]> =
            SmallVec::with_capacity(self.waiting.len().min(self.bounds.counters));
        let mut carried = Carried::default();
        let mut slots = per_slot.then_some(None);
        let mut skipped = Vec::new();
        while skipped.len() < MOST_SKIPPED
            && let Some(mut next) = self.pop()
        {
            if !next.merged.leave_out_the_gone(now) {
                continue;
            }
            let ask = &next.merged.ask;
            if let Some(only_slot) = &mut slots {
                let slot = ask.order.keys().next().map(|key| slot(key));
                if *only_slot.get_or_insert(slot) != slot {
                    skipped.push(next);
                    continue;
                }
            }
            let fits = carried.add(ask, self.bounds);
            if !batch.is_empty() && !fits {
                skipped.push(next);
                break;
            }
            batch.push(next.merged);
        }
        for entry in skipped.into_iter().rev() {
            self.unpop(entry);
        }
        batch
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.waiting.pop_front()?;
        let position = self.taken;
        self.taken += 1;
        self.callers -= entry.merged.present;
        if let Ok(equal) = self.equal.find_entry(entry.hash, |&each| each == position) {
            equal.remove();
        }
        Some(entry)
    }

    /// Puts back what was popped last.
    fn unpop(&mut self, entry: Entry) {
        let hash = entry.hash;
        self.callers += entry.merged.present;
        self.waiting.push_front(entry);
        self.taken -= 1;
        let (position, taken) = (self.taken, self.taken);
        let waiting = &self.waiting;
        self.equal
            .insert_unique(hash, position, |&each| waiting[(each - taken) as usize].hash);
    }
}
