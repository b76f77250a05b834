//! How a thread's callers join an ask that many wait for, without what all threads share.
//!
//! A lock that every thread takes for every check goes from core to core, and so does all that lies behind it. So an ask that many
//! wait for gets a door for each thread that comes for it. Who comes by a door waits in a group of its own, which the queue takes in
//! when the ask is sent. Behind a door there is room for some callers at a time, which the queue has counted as if they were there:
//! who finds no room left asks the queue for more, so that no bound of it is ever passed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::time::Instant;

use super::crowd::{Caller, Group, Joined};
use super::order::Order;
use crate::lock::Lock;
use crate::store::{Nanos, nanos};
use crate::stripe::Stripe;

/// Asks that each thread has doors for at once: few have that many callers.
const DOORS: usize = 4;

/// Room that is made for a group before anybody is there, if so many came the last time.
const MOST_USUAL: usize = 256;

/// The doors of all threads. Only who has the queue's lock opens and closes them.
#[derive(Debug)]
pub(super) struct Doors {
    /// By thread.
    hashes: Box<[Hashes]>,
    doors: Box<[Lock<Doorway>]>,
    /// Until when no call can be made, as far as is known: who comes later asks the queue, which finds out.
    busy_until: AtomicU64,
    start: Instant,
}

/// Of the asks that a thread has open doors for.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Hashes([AtomicU64; DOORS]);

#[derive(Debug, Default)]
struct Doorway {
    open: Option<Box<Open>>,
    /// How many came when it was open last.
    usual: usize,
}

/// What is behind an open door.
#[derive(Debug)]
pub(super) struct Open {
    order: Order,
    pub(super) group: Group,
    /// How many more may come.
    pub(super) room: u32,
    pub(super) first_deadline: Instant,
    pub(super) last_deadline: Instant,
}

impl Open {
    #[inline]
    fn take_in(&mut self, caller: Caller) -> Joined {
        self.room -= 1;
        self.first_deadline = self.first_deadline.min(caller.deadline);
        self.last_deadline = self.last_deadline.max(caller.deadline);
        self.group.take_in(caller)
    }
}

/// One of a thread's doors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Door {
    thread: u8,
    at: u8,
}

impl Door {
    /// That of this thread for asks of this hash.
    #[inline]
    pub(super) fn here(hash: u64) -> Self {
        Self {
            thread: Stripe::here().index() as u8,
            at: (hash % DOORS as u64) as u8,
        }
    }
}

impl Doors {
    pub(super) fn new() -> Self {
        Self {
            hashes: (0..Stripe::COUNT).map(|_| Hashes::default()).collect(),
            doors: (0..Stripe::COUNT * DOORS).map(|_| Lock::default()).collect(),
            busy_until: AtomicU64::new(0),
            start: Instant::now(),
        }
    }

    #[inline]
    fn hash_of(&self, door: Door) -> &AtomicU64 {
        &self.hashes[usize::from(door.thread)].0[usize::from(door.at)]
    }

    #[inline]
    fn doorway(&self, door: Door) -> &Lock<Doorway> {
        &self.doors[usize::from(door.thread) * DOORS + usize::from(door.at)]
    }

    fn at(&self, time: Instant) -> Nanos {
        nanos(time.saturating_duration_since(self.start))
    }

    /// Lets a caller who wants one grant wait behind an open door of this thread, if there is room and no call can be made.
    #[inline]
    pub(super) fn join(
        &self,
        hash: u64,
        is_equal: impl Fn(&Order) -> bool,
        caller: Caller,
    ) -> Option<Joined> {
        let door = Door::here(hash);
        // Few asks have doors.
        if caller.want != 1
            || self.hash_of(door).load(Relaxed) != hash
            || self.at(caller.asked) >= self.busy_until.load(Relaxed)
        {
            return None;
        }
        let mut doorway = self.doorway(door).lock();
        let open = doorway.open.as_mut()?;
        (open.room > 0 && is_equal(&open.order)).then(|| open.take_in(caller))
    }

    /// Opens a door for an ask, with room for so many, of whom one comes now. None if it is open for another one.
    pub(super) fn open(
        &self,
        door: Door,
        (hash, order, first): (u64, &Order, &Group),
        (room, caller): (u32, Caller),
    ) -> Option<Joined> {
        let mut doorway = self.doorway(door).lock();
        if doorway.open.is_some() {
            return None;
        }
        let usual = doorway.usual;
        let open = doorway.open.insert(Box::new(Open {
            order: order.clone(),
            group: first.another(usual),
            room,
            first_deadline: caller.deadline,
            last_deadline: caller.deadline,
        }));
        self.hash_of(door).store(hash, Relaxed);
        Some(open.take_in(caller))
    }

    /// Makes room for so many more behind an open door, of whom one comes now.
    pub(super) fn widen(&self, door: Door, room: u32, caller: Caller) -> Option<Joined> {
        let mut doorway = self.doorway(door).lock();
        let open = doorway.open.as_mut()?;
        open.room += room;
        Some(open.take_in(caller))
    }

    pub(super) fn close(&self, door: Door) -> Option<Box<Open>> {
        self.hash_of(door).store(0, Relaxed);
        let mut doorway = self.doorway(door).lock();
        let open = doorway.open.take()?;
        doorway.usual = open.group.len().min(MOST_USUAL);
        Some(open)
    }

    /// How many more may come by a door.
    pub(super) fn room(&self, door: Door) -> u32 {
        let doorway = self.doorway(door).lock();
        doorway.open.as_ref().map_or(0, |open| open.room)
    }

    /// Says until when no call can be made; none if one can be made now.
    pub(super) fn note_busy(&self, until: Option<Instant>) {
        let until = until.map_or(0, |until| self.at(until));
        self.busy_until.store(until, Relaxed);
    }
}
