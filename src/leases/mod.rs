//! Units of hot keys, taken ahead and spent without asking the store.
//!
//! Whoever asks the store for a request takes no more than that request needs. What is taken ahead is taken in the background: the
//! [`Book`] says when, for which key, and how much; a task asks for it, with a hold, so that the store counts the units until a
//! window after the last moment at which they may be spent. Another task gives back what is not going to be spent.

mod book;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use self::book::{Book, Debit, Refill, Return, Wanted};
use crate::handling::Handling;
use crate::lease::Lease;
use crate::settler::{Age, OwnedCorrection, Settler};
use crate::store::{
    Ask, Charge, ChargeState, KnownOutcome, LocalAnswers, Nanos, Outcome, Retry, Stamp, Store, add, nanos,
};

const LONGEST_SLEEP: Duration = Duration::from_millis(125);
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// What this instance has taken ahead of one store.
pub(crate) struct Leases {
    book: Book,
    store: Arc<dyn Store>,
    local: LocalAnswers,
    settler: Arc<Settler>,
    /// Nothing is taken ahead any more.
    is_closed: AtomicBool,
    flying: AtomicUsize,
    landed: Notify,
    is_swept: AtomicBool,
}

/// Which answers of the store leases are to [observe](Leases::observe).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observes {
    Nothing,
    /// Nothing was kept of the key when it was asked for. If something is now, then a grant says nothing that the answer to
    /// the request which began it does not say, but what was taken since a denial shows to be too much.
    Denials,
    All,
}

impl Observes {
    #[inline]
    pub(crate) fn observe(self, granted: bool) -> bool {
        match self {
            Self::Nothing => false,
            Self::Denials => !granted,
            Self::All => true,
        }
    }
}

/// What was paid of one charge.
struct Paid<'a> {
    hash: u64,
    charge: &'a Charge<'a>,
    outcome: KnownOutcome,
}

impl Leases {
    pub(crate) fn new(store: Arc<dyn Store>, local: LocalAnswers, settler: Arc<Settler>) -> Self {
        Self {
            book: Book::new(),
            store,
            local,
            settler,
            is_closed: AtomicBool::new(false),
            flying: AtomicUsize::new(0),
            landed: Notify::new(),
            is_swept: AtomicBool::new(false),
        }
    }

    /// Pays one charge, if units for it were taken ahead. Else which answers say something for the next ones.
    #[inline]
    pub(crate) fn pay(
        self: &Arc<Self>,
        counter: (u64, &Charge<'_>),
        lease: &Lease,
        (now, deadline): (Nanos, Duration),
    ) -> Result<KnownOutcome, Observes> {
        let Debit {
            paid, refill, is_hot, ..
        } = self.debit(counter, lease, now);
        if let Some(refill) = refill {
            self.fly(refill, deadline);
        }
        match paid {
            Some(paid) => {
                self.local.counters().count_leased();
                Ok(paid)
            }
            None if is_hot => Err(Observes::All),
            None => Err(Observes::Denials),
        }
    }

    /// Pays all charges or none, if units for all were taken ahead.
    pub(crate) fn pay_all(
        self: &Arc<Self>,
        charges: &[Charge<'_>],
        handlings: &[Handling<'_>],
        (now, deadline): (Nanos, Duration),
    ) -> Option<Outcome> {
        let is_leased = |(charge, handling): (&Charge<'_>, &Handling<'_>)| {
            charge.quota.is_unlimited() && charge.penalty.is_none() || handling.lease.is_some()
        };
        if !charges.iter().zip(handlings).all(is_leased) {
            return None;
        }
        let (mut all, mut is_paid, mut is_hot) = (SmallVec::<[Paid<'_>; 4]>::new(), true, true);
        let mut refills: SmallVec<[Refill; 2]> = SmallVec::new();
        for (charge, handling) in charges.iter().zip(handlings) {
            if charge.quota.is_unlimited() {
                continue;
            }
            let hash = self.local.hash(charge.key, charge.policy);
            let debit = self.debit((hash, charge), handling.lease?, now);
            refills.extend(debit.refill);
            is_hot &= debit.is_hot;
            match debit.paid {
                Some(outcome) => all.push(Paid {
                    hash,
                    charge,
                    outcome,
                }),
                None => is_paid = false,
            }
        }
        for refill in refills {
            // As long as one of them is not worth it, what the others take would be put back each time.
            if is_hot {
                self.fly(refill, deadline);
            } else {
                self.cancel(&refill, now);
            }
        }
        if !is_paid {
            self.put_back(&all);
            return None;
        }
        let first = all.first()?.outcome.now;
        self.local.counters().count_leased();
        let mut paid = all.iter();
        let (mut states, mut stamps) = (SmallVec::<[_; 4]>::new(), SmallVec::<[Stamp; 4]>::new());
        for charge in charges {
            let outcome = match charge.quota.is_unlimited() {
                true => None,
                false => paid.next().map(|paid| &paid.outcome),
            };
            states.push(outcome.map_or(ChargeState::UNKNOWN, KnownOutcome::state));
            stamps.push(outcome.map_or(first, |outcome| outcome.stamp));
        }
        Some(Outcome::new(1, first, states).stamps(stamps))
    }

    /// What of a charge can be paid.
    #[inline]
    fn debit(self: &Arc<Self>, (hash, charge): (u64, &Charge<'_>), lease: &Lease, now: Nanos) -> Debit {
        let wanted = Wanted {
            hash,
            charge,
            lease,
            now,
        };
        let debit = self.book.debit(&wanted, || self.local.voided_at(hash));
        if debit.is_new
            && let Ok(runtime) = Handle::try_current()
        {
            self.sweep_in(&runtime);
        }
        debit
    }

    /// What was paid for a request that is not paid in full.
    fn put_back(&self, all: &[Paid<'_>]) {
        for paid in all {
            self.book.credit(paid.hash, paid.charge, &paid.outcome);
        }
    }

    /// Learns what the store has said to a request.
    pub(crate) fn observe(&self, charges: &[Charge<'_>], outcome: &Outcome) {
        for (charge, state) in charges.iter().zip(&outcome.states) {
            self.observe_one(charge, state, outcome.granted == 0 && state.retry != Retry::Now);
        }
    }

    /// The same of one charge.
    pub(crate) fn observe_one(&self, charge: &Charge<'_>, state: &ChargeState, is_denied: bool) {
        let hash = self.local.hash(charge.key, charge.policy);
        let voided = self.local.voided_at(hash);
        for each in self.book.observe((hash, charge), (state, is_denied), voided) {
            self.give_back(each);
        }
    }

    /// Takes units ahead, in the background.
    #[cold]
    fn fly(self: &Arc<Self>, refill: Refill, deadline: Duration) {
        // In one order with who closes: either of the two sees the other.
        self.flying.fetch_add(1, Ordering::SeqCst);
        let is_closed = self.is_closed.load(Ordering::SeqCst);
        let flight = Flight {
            leases: Arc::clone(self),
            refill: Some(refill),
        };
        if let (Ok(runtime), false) = (Handle::try_current(), is_closed) {
            self.sweep_in(&runtime);
            runtime.spawn(flight.fly(deadline));
        }
    }

    /// Takes nothing now.
    fn cancel(&self, refill: &Refill, now: Nanos) {
        drop(self.book.fill(refill, None, (now, now, Age::default()), 0));
    }

    fn give_back(&self, back: Return) {
        add(&self.local.counters().units_returned, back.units.into());
        self.settler.push(OwnedCorrection::give_back(
            back.charge,
            back.units,
            back.stamp,
            back.charged,
        ));
    }

    /// Gives back what nobody spends, as long as there is anything.
    fn sweep_in(self: &Arc<Self>, runtime: &Handle) {
        if self.is_swept.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut sweeper = Sweeper {
            leases: Arc::clone(self),
            is_at_work: true,
        };
        runtime.spawn(async move {
            loop {
                let pause = sweeper.leases.pause();
                sleep(pause).await;
                sweeper.leases.sweep(pause, false);
                if !sweeper.goes_on() {
                    return;
                }
            }
        });
    }

    /// Between two sweeps: an eighth of the shortest life.
    fn pause(&self) -> Duration {
        Duration::from_nanos(self.book.shortest_life() / 8).clamp(SHORTEST_SLEEP, LONGEST_SLEEP)
    }

    fn sweep(&self, pause: Duration, all: bool) {
        let now = self.local.now();
        let next = now.saturating_add(nanos(pause));
        for back in self
            .book
            .sweep((now, next), |hash| self.local.voided_at(hash), all)
        {
            self.give_back(back);
        }
    }

    /// Takes nothing ahead any more, and gives back what there is. Waits for what is on its way, for at most so long.
    pub(crate) async fn close(&self, at_most: Duration) {
        self.is_closed.store(true, Ordering::SeqCst);
        let landed = async {
            loop {
                let landed = self.landed.notified();
                if self.flying.load(Ordering::SeqCst) == 0 {
                    return;
                }
                landed.await;
            }
        };
        // What is later than that is given back when it comes.
        drop(timeout(at_most, landed).await);
        self.sweep(Duration::ZERO, true);
    }
}

/// What sweeps leases. When it ends, with its runtime maybe, another may begin.
struct Sweeper {
    leases: Arc<Leases>,
    is_at_work: bool,
}

impl Sweeper {
    /// Whether there is more to do, and nobody else does it.
    fn goes_on(&mut self) -> bool {
        let Leases { book, is_swept, .. } = &*self.leases;
        if !book.is_empty() {
            return true;
        }
        // What is taken from now on is for another one; what was taken just before, for whoever is first.
        is_swept.store(false, Ordering::Release);
        self.is_at_work = !book.is_empty() && !is_swept.swap(true, Ordering::AcqRel);
        self.is_at_work
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        if self.is_at_work {
            self.leases.is_swept.store(false, Ordering::Release);
        }
    }
}

/// A refill on its way. Dropped before it is answered, it brought nothing.
struct Flight {
    leases: Arc<Leases>,
    refill: Option<Refill>,
}

impl Flight {
    async fn fly(mut self, deadline: Duration) {
        let Some(refill) = self.refill.clone() else { return };
        let (sent, charged) = (Instant::now(), self.leases.settler.resets.age());
        let answer = {
            let charge = [refill.charge.borrow()];
            let life = Duration::from_nanos(refill.life);
            let ask = Ask::new(&charge).want(refill.want).hold(life).deadline(deadline);
            self.leases.store.acquire(&ask)
        };
        add(&self.leases.local.counters().refills, 1);
        // Given up here, what comes late is given back by the store.
        let outcome = timeout(deadline, answer).await.ok().and_then(Result::ok);
        if let Some(outcome) = outcome {
            self.refill = None;
            let sent = outcome.sent.map_or(sent, Instant::from_std);
            self.land(&refill, &outcome, (sent, charged));
        }
    }

    fn land(&self, refill: &Refill, outcome: &Outcome, (sent, charged): (Instant, Age)) {
        let leases = &self.leases;
        let (sent, now): (Nanos, Nanos) = (leases.local.at(sent), leases.local.now());
        add(&leases.local.counters().units_taken, outcome.granted.into());
        let voided = leases.local.voided_at(refill.hash);
        if let Some(back) = leases
            .book
            .fill(refill, Some(outcome), (sent, now, charged), voided)
        {
            leases.give_back(back);
        }
        // Whoever closes sweeps after the last landing, or sees this one closed.
        if leases.is_closed.load(Ordering::SeqCst) {
            leases.sweep(Duration::ZERO, true);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(refill) = self.refill.take() {
            self.leases.cancel(&refill, self.leases.local.now());
        }
        self.leases.flying.fetch_sub(1, Ordering::SeqCst);
        self.leases.landed.notify_waiters();
    }
}
