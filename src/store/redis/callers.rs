//! Who waits for one ask of a call, and how they are told.
//!
//! All of them share one answer, in which each finds its part by its place. Whoever makes the call tells them once; whoever
//! waits has left a waker until then. Those who have gone meanwhile get nothing, so what was for them is for the next.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::cause::Cause;
use super::dispatch::Dispatch;
use super::order::Order;
use super::queue::Answered;
use super::reply::{Answer, Share};
use crate::store::{KnownOutcome, Late, StoreError, StoreErrorKind};

/// What the callers of one ask share. Each has a place, which is that in the order of arrival.
pub(super) struct Callers {
    /// Theirs. It lives on while anybody waits, and its queue tells all whom it has.
    pub(super) dispatch: Arc<Dispatch>,
    waiting: Mutex<Waiting>,
    pub(super) told: OnceLock<Told>,
}

#[derive(Default)]
pub(super) struct Waiting {
    /// By place; those that have not been polled may be missing at the end.
    pub(super) seats: Seats,
    /// Whether anybody has gone.
    has_gone: bool,
    /// When the keeper looks after them: no later than the first deadline of those who rely on it.
    watched: Option<Instant>,
}

pub(super) type Seats = SmallVec<[Seat; 1]>;

/// Where a caller waits.
#[derive(Default)]
pub(super) struct Seat {
    pub(super) presence: Presence,
    /// And when to be woken at the latest.
    pub(super) waker: Option<(Waker, Instant)>,
    /// Whether it was woken for that.
    is_late: bool,
}

#[derive(Default)]
pub(super) enum Presence {
    #[default]
    Here,
    /// Has gone, or is not asked for any more.
    Gone,
    /// Has been told that there is no answer. Tells whether it passed all the same, so that what comes late is kept.
    Late(oneshot::Receiver<bool>),
}

/// What all are told, and each one's part of it.
pub(super) struct Told {
    pub(super) answer: Result<(Order, Answer), (StoreErrorKind, Cause)>,
    /// By place. None for who was not asked for, as its time was over before the call.
    pub(super) shares: SmallVec<[Option<Share>; 1]>,
    /// What it says to all whose ordinary ask got nothing, of whom there may be many.
    pub(super) refusal: Option<KnownOutcome>,
}

/// What came of leaving a waker.
pub(super) enum Left {
    /// There is an answer.
    Told,
    /// A wake-up comes with it.
    Waits,
    /// The same, or at the deadline.
    Watched,
    /// The deadline has passed.
    Late,
    /// The keeper has to be asked for one at the deadline.
    Unwatched,
}

impl Waiting {
    pub(super) fn is_gone(&self, place: usize) -> bool {
        let seat = self.seats.get(place);
        seat.is_some_and(|seat| matches!(seat.presence, Presence::Gone))
    }

    pub(super) fn seat(&mut self, place: usize) -> &mut Seat {
        // Nearly always one.
        while self.seats.len() <= place {
            self.seats.push(Seat::default());
        }
        &mut self.seats[place]
    }
}

impl Callers {
    pub(super) fn new(dispatch: Arc<Dispatch>) -> Self {
        Self::with_room(dispatch, 0)
    }

    /// With seats for that many.
    pub(super) fn with_room(dispatch: Arc<Dispatch>, room: usize) -> Self {
        let waiting = Waiting {
            seats: SmallVec::with_capacity(room),
            ..Waiting::default()
        };
        Self {
            dispatch,
            waiting: Mutex::new(waiting),
            told: OnceLock::new(),
        }
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_gone(&self) -> bool {
        self.waiting().has_gone
    }

    pub(super) fn are_told(&self) -> bool {
        self.told.get().is_some()
    }

    /// Whether nobody waits any more. Then no keeper looks after them, unless it is asked to again.
    pub(super) fn are_over(&self) -> bool {
        let mut waiting = self.waiting();
        let are_over = waiting.seats.iter().all(|seat| seat.waker.is_none());
        if are_over {
            waiting.watched = None;
        }
        are_over
    }

    /// The answer, if there is one, to who has this place and asked then.
    pub(super) fn answer(&self, place: usize, asked: Instant) -> Option<Answered> {
        let told = self.told.get()?;
        Some(match &told.answer {
            Ok((order, answer)) => match told.shares[place] {
                Some(share) => Ok(answer.outcome(order, share)),
                None => Err(self.dispatch.timed_out(asked, None)),
            },
            Err((kind, cause)) => Err(StoreError::with_source(*kind, cause.clone())),
        })
    }

    /// The answer to who has this place, if it is one to the ordinary ask.
    pub(super) fn known(&self, place: usize) -> Option<KnownOutcome> {
        let told = self.told.get()?;
        let (order, answer) = told.answer.as_ref().ok()?;
        match told.shares[place]? {
            share if share.is_refused_one() => told.refusal,
            share => answer.known(order, share),
        }
    }

    /// Leaves a waker for who has this place, until a deadline that the keeper keeps, or whoever waits.
    pub(super) fn leave_waker(
        &self,
        place: usize,
        waker: &Waker,
        (deadline, is_kept): (Instant, bool),
    ) -> Left {
        let mut waiting = self.waiting();
        if self.are_told() {
            return Left::Told;
        }
        let Seat {
            waker: left, is_late, ..
        } = waiting.seat(place);
        if *is_late {
            return Left::Late;
        }
        let replaced = match left {
            Some((known, _)) if known.will_wake(waker) => None,
            _ => left.replace((waker.clone(), deadline)),
        };
        let is_watched = waiting.watched.is_some_and(|watched| watched <= deadline);
        if is_kept && !is_watched {
            waiting.watched = Some(deadline);
        }
        // A waker that is dropped may do anything.
        drop(waiting);
        drop(replaced);
        match (is_kept, is_watched) {
            (false, _) => Left::Waits,
            (true, true) => Left::Watched,
            (true, false) => Left::Unwatched,
        }
    }

    /// Wakes those whose deadline has passed. Returns when to do so again, unless that is another's turn than that of who
    /// was to come at `turn`.
    pub(super) fn wake_late(&self, turn: Instant, now: Instant) -> Option<Instant> {
        let mut late: SmallVec<[Waker; 8]> = SmallVec::new();
        let next = {
            let mut waiting = self.waiting();
            if waiting.watched != Some(turn) {
                return None;
            }
            let mut next: Option<Instant> = None;
            for seat in &mut waiting.seats {
                if let Some((_, deadline)) = &seat.waker {
                    if *deadline > now {
                        next = Some(next.map_or(*deadline, |next| next.min(*deadline)));
                    } else {
                        seat.is_late = true;
                        late.extend(seat.waker.take().map(|(waker, _)| waker));
                    }
                }
            }
            waiting.watched = next;
            next
        };
        late.into_iter().for_each(Waker::wake);
        next
    }

    /// Wakes all, for no keeper looks after them any more.
    pub(super) fn wake_unwatched(&self) {
        let wakers: SmallVec<[Waker; 8]> = {
            let mut waiting = self.waiting();
            waiting.watched = None;
            let left = waiting.seats.iter_mut().filter_map(|seat| seat.waker.take());
            left.map(|(waker, _)| waker).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whoever has this place waits no longer, and is told so; what comes all the same is decided by whoever has the
    /// error. `None` if there is an answer.
    pub(super) fn leave_late(&self, place: usize) -> Option<Late> {
        let mut waiting = self.waiting();
        if self.are_told() {
            return None;
        }
        let (late, keep) = Late::new();
        let seat = waiting.seat(place);
        let waker = seat.waker.take();
        // One that is not asked for any more gets nothing.
        if matches!(seat.presence, Presence::Here) {
            seat.presence = Presence::Late(keep);
        }
        drop(waiting);
        drop(waker);
        Some(late)
    }

    /// Whoever has this place goes without having been told. Returns what it would have got, if there is an answer.
    pub(super) fn leave(&self, place: usize) -> Option<Share> {
        let mut waiting = self.waiting();
        if let Some(told) = self.told.get() {
            return told.shares.get(place).copied().flatten();
        }
        waiting.has_gone = true;
        let seat = waiting.seat(place);
        seat.presence = Presence::Gone;
        let waker = seat.waker.take();
        drop(waiting);
        drop(waker);
        None
    }

    /// What was answered, where it was an answer.
    pub(super) fn answered(&self) -> Option<(&Order, &Answer)> {
        let told = self.told.get()?;
        told.answer.as_ref().ok().map(|(order, answer)| (order, answer))
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").finish_non_exhaustive()
    }
}
