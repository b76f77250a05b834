//! What waits for the next call: equal asks merged, in the order of their first arrival.

mod entry;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashTable, hash_table};
use smallvec::SmallVec;
use tokio::time::Instant;

use self::entry::Entry;
use super::callers::Callers;
use super::carried::Carried;
use super::crowd::{Caller, Crowd, Group, Joined};
use super::doors::{Door, Doors};
use super::key::slot;
use super::merged::Merged;
use super::order::{Order, Wanted};
use crate::store::{Outcome, StoreError};

/// What a waiting caller gets.
pub(super) type Answered = Result<Outcome, StoreError>;

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
    /// With those for whom there is room behind doors.
    callers: usize,
    /// Each call in flight, and until when its place counts.
    flights: SmallVec<[(u64, Instant); 4]>,
    last_flight: u64,
    /// When a call may lose its place, if all places are taken.
    busy_until: Option<Instant>,
    is_cluster: bool,
    doors: Arc<Doors>,
    /// How many of those that wait have doors.
    with_doors: usize,
}

/// So many wait for an ask before it has doors: few pay no more for what many need.
const MANY: usize = 8;

/// A door has room for so many at a time, or for fewer near a bound.
const MOST_ROOM: u64 = 64;

/// Room for fewer is not worth a door.
const LEAST_ROOM: u32 = 4;

/// Asks of other slots that are looked past for those of a call's.
const MOST_SKIPPED: usize = 256;

/// Places for each that one server has: a cluster's calls are of one slot each, and go to several servers.
const PLACES_IN_CLUSTER: usize = 32;

/// A call's place among those in flight.
pub(super) type Place = u64;

impl Queue {
    pub(super) fn new(bounds: Bounds, doors: Arc<Doors>) -> Self {
        Self {
            bounds,
            waiting: VecDeque::new(),
            equal: HashTable::new(),
            taken: 0,
            callers: 0,
            flights: SmallVec::new(),
            last_flight: 0,
            busy_until: None,
            is_cluster: false,
            doors,
            with_doors: 0,
        }
    }

    pub(super) const fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// How many wait at most: those included for whom there is room behind doors.
    pub(super) const fn callers(&self) -> usize {
        self.callers
    }

    /// How many wait.
    pub(super) fn present(&self) -> usize {
        let doors = self.with_doors().filter_map(|at| self.waiting[at].doors.as_ref());
        let room = doors
            .flat_map(|behind| &behind.doors)
            .map(|&door| self.doors.room(door));
        self.callers - room.sum::<u32>() as usize
    }

    /// Which of those that wait have doors.
    fn with_doors(&self) -> impl Iterator<Item = usize> {
        let all = match self.with_doors {
            0 => 0,
            _ => self.waiting.len(),
        };
        (0..all).filter(|&at| self.waiting[at].doors.is_some())
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
        match self.busy_until {
            None => true,
            Some(until) if until > now => false,
            Some(_) => {
                self.flights.retain(|(_, until)| *until > now);
                self.note_flights();
                true
            }
        }
    }

    fn places(&self) -> usize {
        match self.is_cluster {
            true => self.bounds.in_flight.saturating_mul(PLACES_IN_CLUSTER),
            false => self.bounds.in_flight,
        }
    }

    /// Notes until when all places are taken, here and at the doors.
    fn note_flights(&mut self) {
        let are_taken = self.flights.len() >= self.places();
        let first = self.flights.iter().map(|(_, until)| *until).min();
        self.busy_until = first.filter(|_| are_taken);
        self.doors.note_busy(self.busy_until);
    }

    fn place(&mut self, now: Instant, until: Instant) -> Place {
        let most = now + self.bounds.place;
        self.last_flight += 1;
        self.flights.push((self.last_flight, until.min(most)));
        self.note_flights();
        self.last_flight
    }

    /// The next call's place and asks, if a place is free and somebody waits.
    pub(super) fn next_batch(&mut self, per_slot: bool) -> Option<(Place, SmallVec<[Merged; 1]>)> {
        if self.is_cluster != per_slot {
            self.is_cluster = per_slot;
            self.note_flights();
        }
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
        self.note_flights();
    }

    pub(super) fn is_full(&mut self) -> bool {
        if self.callers >= self.bounds.waiting && self.with_doors > 0 {
            // There may be room behind them yet.
            (0..self.waiting.len()).for_each(|at| self.close_doors(at));
        }
        self.callers >= self.bounds.waiting
    }

    /// Lets a caller wait with those who ask for the same, if there are any and the call can take that many.
    pub(super) fn join(
        &mut self,
        hash: u64,
        is_equal: impl Fn(&Order) -> bool,
        caller: Caller,
    ) -> Option<Joined> {
        let taken = self.taken;
        let waiting = &self.waiting;
        let position = *self.equal.find(hash, |&position| {
            is_equal(&waiting[(position - taken) as usize].merged.ask.order)
        })?;
        let at = (position - taken) as usize;
        if let Some(joined) = self.join_by_door(at, caller) {
            return Some(joined);
        }
        if !self.waiting[at].has_room(self.bounds, caller.want) {
            // There may be room behind its doors yet. If not, nobody is to come by one who comes after this caller.
            self.close_doors(at);
        }
        let entry = &mut self.waiting[at];
        if !entry.has_room(self.bounds, caller.want) {
            return None;
        }
        let Merged {
            ask,
            latest,
            present,
            crowd,
        } = &mut entry.merged;
        ask.want += caller.want;
        ask.deadline = ask.deadline.min(caller.deadline);
        *latest = caller.deadline.max(*latest);
        *present += 1;
        self.callers += 1;
        Some(crowd.as_mut()?.first().take_in(caller))
    }

    /// Opens a door of this thread for an ask that many wait for, or makes more room behind it.
    fn join_by_door(&mut self, at: usize, caller: Caller) -> Option<Joined> {
        let entry = &mut self.waiting[at];
        if entry.merged.present < MANY || caller.want != 1 {
            return None;
        }
        // Parts of what is left, so that each thread leaves some to others.
        let left = self.bounds.waiting.saturating_sub(self.callers) as u64 / 64;
        let room = (entry.room(self.bounds) / 8).min(left).min(MOST_ROOM) as u32;
        if room < LEAST_ROOM {
            return None;
        }
        let door = Door::here(entry.hash);
        let joined = match &mut entry.doors {
            Some(behind) if behind.doors.contains(&door) => self.doors.widen(door, room, caller)?,
            doors => {
                let Merged { ask, crowd, .. } = &mut entry.merged;
                let ask = (entry.hash, &ask.order, &*crowd.as_mut()?.first());
                let joined = self.doors.open(door, ask, (room, caller))?;
                self.with_doors += usize::from(doors.is_none());
                doors.get_or_insert_default().doors.push(door);
                joined
            }
        };
        if let Some(behind) = &mut entry.doors {
            behind.room += room;
        }
        self.callers += room as usize;
        Some(joined)
    }

    /// Takes in who came by doors to one of those that wait.
    #[inline]
    fn close_doors(&mut self, at: usize) {
        if let Some(behind) = self.waiting[at].doors.take() {
            self.with_doors -= 1;
            self.callers -= self.waiting[at].take_in(*behind, &self.doors);
        }
    }

    /// Lets a caller wait by itself. From now on, others who ask for the same join it.
    pub(super) fn push(&mut self, hash: u64, ask: Wanted, caller: Caller, shared: Arc<Callers>) -> Joined {
        let mut group = Group::new(shared);
        let joined = group.take_in(caller);
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
                present: 1,
                crowd: Some(Crowd::new(group)),
            },
            hash,
            doors: None,
        });
        self.callers += 1;
        joined
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
        if !self.waiting.is_empty() {
            self.close_doors(0);
        }
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
