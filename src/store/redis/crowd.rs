//! All who wait for one ask of a call, and how they are told.
//!
//! They come in groups, of which each keeps what its callers share; nearly always there is one. Who is first gets first, whichever
//! group it is in.

use std::iter;
use std::mem;
use std::sync::{Arc, MutexGuard};

use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::callers::{Callers, Presence, Seats, Told, Waiting};
use super::cause::Cause;
use super::order::Order;
use super::reply::{Answer, Share};
use crate::store::{StoreError, StoreErrorKind};

/// One of those who share an ask, as the call knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) want: u32,
    pub(super) asked: Instant,
    pub(super) deadline: Instant,
}

/// Who shares an ask, and the place of who has come to them last.
pub(super) type Joined = (Arc<Callers>, usize);

/// Those of a crowd who came the same way, in order of arrival, those who have gone included.
#[derive(Debug)]
pub(super) struct Group {
    callers: Arc<Callers>,
    list: SmallVec<[Caller; 1]>,
}

/// Who must tell them. Dropped without having done so, as when the runtime of a call ends, it tells them that there is no answer.
#[derive(Debug)]
pub(super) struct Crowd {
    /// Nearly always all.
    first: Group,
    others: Vec<Group>,
    is_told: bool,
}

/// Those who are still there.
#[derive(Clone, Copy)]
pub(super) struct Present {
    pub(super) count: usize,
    pub(super) want: u32,
    pub(super) first_deadline: Instant,
    pub(super) last_deadline: Instant,
}

/// What remains to be done when all have been told.
pub(super) struct Remains {
    /// Some of those who know the answer now.
    pub(super) callers: Arc<Callers>,
    /// Grants that nobody got.
    pub(super) rest: Option<Share>,
    /// What goes to those who were told before that there is no answer.
    pub(super) late: Vec<(Share, oneshot::Receiver<bool>)>,
}

impl Group {
    pub(super) const fn new(callers: Arc<Callers>) -> Self {
        Self {
            callers,
            list: SmallVec::new_const(),
        }
    }

    /// Another one of the same crowd, with room for that many.
    pub(super) fn another(&self, room: usize) -> Self {
        Self {
            callers: Arc::new(Callers::with_room(Arc::clone(&self.callers.dispatch), room)),
            list: SmallVec::with_capacity(room),
        }
    }

    #[inline]
    pub(super) fn take_in(&mut self, caller: Caller) -> Joined {
        self.list.push(caller);
        (Arc::clone(&self.callers), self.list.len() - 1)
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }
}

impl Crowd {
    pub(super) const fn new(first: Group) -> Self {
        Self {
            first,
            others: Vec::new(),
            is_told: false,
        }
    }

    /// Those who were there before there were others.
    #[inline]
    pub(super) const fn first(&mut self) -> &mut Group {
        &mut self.first
    }

    pub(super) fn add(&mut self, group: Group) {
        self.others.push(group);
    }

    fn groups(&self) -> impl Iterator<Item = &Group> {
        iter::once(&self.first).chain(&self.others)
    }

    pub(super) fn has_gone(&self) -> bool {
        let has_gone = |group: &Group| group.callers.has_gone();
        has_gone(&self.first) || self.others.iter().any(has_gone)
    }

    /// Leaves out those who have gone or whose deadline has passed, for good. `None` if nobody is left.
    pub(super) fn leave_out_the_gone(&self, now: Instant) -> Option<Present> {
        let mut present: Option<Present> = None;
        for Group { callers, list } in self.groups() {
            let mut waiting = callers.waiting();
            for (place, caller) in list.iter().enumerate() {
                if waiting.is_gone(place) {
                    continue;
                }
                let deadline = caller.deadline;
                if deadline <= now {
                    waiting.seat(place).presence = Presence::Gone;
                    continue;
                }
                let present = present.get_or_insert(Present {
                    count: 0,
                    want: 0,
                    first_deadline: deadline,
                    last_deadline: deadline,
                });
                present.count += 1;
                // No more than were merged, which fits.
                present.want += caller.want;
                present.first_deadline = present.first_deadline.min(deadline);
                present.last_deadline = present.last_deadline.max(deadline);
            }
        }
        present
    }

    /// Gives each one that is still there its share.
    pub(super) fn tell(mut self, answer: Result<(Order, Answer), StoreError>) -> Remains {
        self.tell_all(answer)
    }

    fn tell_all(&mut self, answer: Result<(Order, Answer), StoreError>) -> Remains {
        self.is_told = true;
        let mut handing = Handing::of(answer.as_ref().map_or(0, |(_, answer)| answer.granted));
        let answer = answer.map_err(|error| (error.kind(), Cause::new(error)));
        if self.others.is_empty() {
            let mut telling = Telling::new(&self.first);
            telling.hand_to_all(&mut handing);
            wake(&mut telling.tell(answer, &handing));
        } else {
            let mut telling: Vec<_> = self.groups().map(Telling::new).collect();
            if handing.granted == 0 {
                telling
                    .iter_mut()
                    .for_each(|group| group.hand_to_all(&mut handing));
            } else {
                hand_out_in_order(&mut telling, &mut handing);
            }
            let told = telling
                .into_iter()
                .map(|group| group.tell(answer.clone(), &handing));
            let mut told: Vec<Seats> = told.collect();
            told.iter_mut().for_each(wake);
        }
        handing.remains(&self.first.callers)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        if !self.is_told {
            self.tell_all(Err(StoreError::new(StoreErrorKind::Unavailable)));
        }
    }
}

/// Who came first gets first.
fn hand_out_in_order(telling: &mut [Telling<'_>], handing: &mut Handing) {
    let each = telling.iter().enumerate().flat_map(|(index, telling)| {
        let list = telling.group.list.iter().enumerate();
        list.map(move |(place, caller)| (caller.asked, index, place))
    });
    let mut each: Vec<_> = each.collect();
    // Those of a group stay in the order in which they joined it.
    each.sort_by_key(|(asked, ..)| *asked);
    for group in &mut *telling {
        group.shares.resize(group.group.list.len(), None);
    }
    for (_, index, place) in each {
        telling[index].shares[place] = telling[index].share_of(place, handing);
    }
}

#[inline]
fn wake(seats: &mut Seats) {
    for (waker, _) in seats.iter_mut().filter_map(|seat| seat.waker.take()) {
        waker.wake();
    }
}

/// A group that is being told. Nobody of it goes meanwhile.
struct Telling<'a> {
    group: &'a Group,
    waiting: MutexGuard<'a, Waiting>,
    /// By place.
    shares: SmallVec<[Option<Share>; 1]>,
}

impl<'a> Telling<'a> {
    #[inline]
    fn new(group: &'a Group) -> Self {
        Self {
            group,
            waiting: group.callers.waiting(),
            shares: SmallVec::with_capacity(group.list.len()),
        }
    }

    #[inline]
    fn hand_to_all(&mut self, handing: &mut Handing) {
        for place in 0..self.group.list.len() {
            let share = self.share_of(place, handing);
            self.shares.push(share);
        }
    }

    #[inline]
    fn share_of(&mut self, place: usize, handing: &mut Handing) -> Option<Share> {
        let seat = self.waiting.seats.get_mut(place);
        let presence = seat.map_or(Presence::Here, |seat| mem::take(&mut seat.presence));
        handing.share_of(presence, self.group.list[place].want)
    }

    /// Who waits is to be woken then. Who comes back finds what was told, and needs no seat.
    #[inline(always)]
    fn tell(mut self, answer: Result<(Order, Answer), (StoreErrorKind, Cause)>, handing: &Handing) -> Seats {
        let refusal = match (&answer, handing.refused) {
            (Ok((order, answer)), Some(share)) => answer.known(order, share),
            _ => None,
        };
        // Nobody else tells them, and nobody twice.
        drop(self.group.callers.told.set(Told {
            answer,
            shares: self.shares,
            refusal,
        }));
        mem::take(&mut self.waiting.seats)
    }
}

/// What is handed out.
struct Handing {
    granted: u32,
    given: u32,
    late: Vec<(Share, oneshot::Receiver<bool>)>,
    /// Of one who wanted one, and gets nothing.
    refused: Option<Share>,
}

impl Handing {
    const fn of(granted: u32) -> Self {
        Self {
            granted,
            given: 0,
            late: Vec::new(),
            refused: None,
        }
    }

    /// Of the next one; `None` for who is not there.
    #[inline]
    fn share_of(&mut self, presence: Presence, want: u32) -> Option<Share> {
        if matches!(presence, Presence::Gone) {
            return None;
        }
        let take = want.min(self.granted - self.given);
        let share = Share::new(self.given, take, want);
        self.given += take;
        if share.is_refused_one() {
            self.refused = Some(share);
        }
        if let Presence::Late(keep) = presence
            && take > 0
        {
            self.late.push((share, keep));
        }
        Some(share)
    }

    fn remains(self, callers: &Arc<Callers>) -> Remains {
        let rest = self.granted - self.given;
        Remains {
            callers: Arc::clone(callers),
            rest: (rest > 0).then(|| Share::new(self.given, rest, 0)),
            late: self.late,
        }
    }
}
