//! From charges to a decision.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, timeout};

use crate::deciding::{Decided, Deciding};
use crate::decision::{Decision, Source, Verdict};
use crate::failure::FailurePolicy;
use crate::handling::Handling;
use crate::key::Key;
use crate::leases::{Leases, Observes};
use crate::penalty::Penalty;
use crate::policy::PolicyName;
use crate::quota::Quota;
use crate::settler::{Age, OwnedCorrection, Settler};
use crate::store::{
    Answering, Ask, Charge, Correction, KnownOutcome, LocalAnswers, MemoryStore, Mode, Nanos, Outcome, Stamp,
    Store, StoreError, StoreErrorKind, StoreFuture,
};

const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Longer ones count as this, which any clock can add.
pub(crate) const MAX_DEADLINE: Duration = Duration::from_secs(366 * 86_400);

/// A store, and what answers when it cannot.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    /// The same store, if it is the embedded one: the ordinary request then needs no ask and no future.
    memory: Option<MemoryStore>,
    pub(crate) deadline: Duration,
    /// Corrects what was charged, off the path of requests.
    pub(crate) settler: Arc<Settler>,
    front: Option<Front>,
    /// Counts for [`FailurePolicy::Local`]; made when first needed.
    local: OnceLock<MemoryStore>,
    /// Whether the last answer was none.
    degraded: AtomicBool,
    outage: Mutex<Outage>,
}

/// What answers before the store is asked.
#[derive(Clone)]
struct Front {
    local: LocalAnswers,
    leases: Arc<Leases>,
}

/// What the log says of the store's outages.
#[derive(Default)]
struct Outage {
    logged_at: Option<Instant>,
    end_is_due: bool,
}

/// Whether an ask is charged, or only answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Charge,
    Peek,
}

impl Act {
    #[inline]
    fn ask(self, store: &dyn Store, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        match self {
            Self::Charge => store.acquire(ask),
            Self::Peek => store.peek(ask),
        }
    }
}

impl Engine {
    pub(crate) fn new(store: impl Store) -> Self {
        let memory = embedded(&store);
        let deadline = store.deadline();
        let store: Arc<dyn Store> = Arc::new(store);
        let settler = Arc::new(Settler::new(Arc::clone(&store)));
        let front = store.local_answers().map(|local| Front {
            local: local.clone(),
            leases: Arc::new(Leases::new(
                Arc::clone(&store),
                local.clone(),
                Arc::clone(&settler),
            )),
        });
        Self::around(store, memory, deadline, settler, front)
    }

    fn around(
        store: Arc<dyn Store>,
        memory: Option<MemoryStore>,
        deadline: Duration,
        settler: Arc<Settler>,
        front: Option<Front>,
    ) -> Self {
        Self {
            store,
            memory,
            deadline,
            settler,
            front,
            local: OnceLock::new(),
            degraded: AtomicBool::new(false),
            outage: Mutex::default(),
        }
    }

    /// Whether no key leaves this process.
    pub(crate) const fn is_in_process(&self) -> bool {
        self.memory.is_some()
    }

    /// The same store with another deadline.
    pub(crate) fn with_deadline(&self, deadline: Duration) -> Self {
        Self::around(
            Arc::clone(&self.store),
            self.memory.clone(),
            deadline,
            Arc::clone(&self.settler),
            self.front.clone(),
        )
    }

    /// Charges all or none. How each charge's policy is answered without the store is said in the same order.
    pub(crate) fn decide(self: &Arc<Self>, charges: &[Charge<'_>], handlings: &[Handling<'_>]) -> Decided {
        let decided = if let ([charge], [handling]) = (charges, handlings) {
            self.decide_one(charge, handling)
        } else if let Some(front) = &self.front {
            front
                .answer(charges, handlings, self.deadline)
                .inspect(|decision| {
                    if !decision.is_allowed() {
                        log_denial(charges, decision);
                    }
                })
        } else {
            Err(None)
        };
        match decided {
            Ok(decision) => Decided::Now(decision),
            Err(learns) => self.run(charges, handlings, (Act::Charge, learns)),
        }
    }

    /// The decision on one charge, if it needs no asking: nearly all, and made where they are returned, as decisions are large. Else
    /// what is to be learned from the answer to an ask that is made now.
    #[inline(always)]
    pub(crate) fn decide_one(
        &self,
        charge: &Charge<'_>,
        handling: &Handling<'_>,
    ) -> Result<Decision, Option<Learns>> {
        let (outcome, source) = self.answer_one(charge, handling)?;
        Ok(decision_of(charge, &outcome, source))
    }

    /// The answer to nearly all asks, if it needs no waiting. By itself, so that what is made of it is small enough to be made in
    /// place.
    #[inline(never)]
    pub(crate) fn answer_one(
        &self,
        charge: &Charge<'_>,
        handling: &Handling<'_>,
    ) -> Result<(KnownOutcome, Source), Option<Learns>> {
        match (&self.memory, &self.front) {
            (Some(memory), _) => Ok((memory.acquire_known(charge).ok_or(None)?, Source::Store)),
            (None, Some(front)) => front.answer_one(charge, handling, self.deadline),
            (None, None) => Err(None),
        }
    }

    /// What [`decide`](Self::decide) would answer, charging nothing.
    pub(crate) fn peek(self: &Arc<Self>, charges: &[Charge<'_>], handlings: &[Handling<'_>]) -> Decided {
        self.run(charges, handlings, (Act::Peek, None))
    }

    /// Gives back units that were charged as of `stamp`, off the critical path.
    pub(crate) fn give_back(&self, charge: OwnedCharge, stamp: Stamp, charged: Age, is_local: bool) {
        self.correct(OwnedCorrection::give_back(charge, 1, stamp, charged), is_local);
    }

    /// Charges units whether they fit or not, off the critical path.
    pub(crate) fn charge_more(&self, charge: OwnedCharge, is_local: bool) {
        self.correct(OwnedCorrection::charge(charge), is_local);
    }

    /// Makes corrections, and waits until the store has made them.
    pub(crate) async fn correct_now(&self, corrections: &[OwnedCorrection]) -> Result<(), StoreError> {
        let charges: SmallVec<[[Charge<'_>; 1]; 1]> =
            corrections.iter().map(|each| [each.charge.borrow()]).collect();
        let corrections: SmallVec<[Correction<'_>; 1]> = corrections
            .iter()
            .zip(&charges)
            .map(|(each, charge)| each.of(Ask::new(charge).deadline(self.deadline)))
            .collect();
        self.in_time(self.store.settle(&corrections)).await
    }

    /// The answer of the store, or a timeout when the deadline has passed.
    pub(crate) async fn in_time(&self, answer: StoreFuture<()>) -> Result<(), StoreError> {
        match answer.into_ready() {
            Ok(answer) => answer,
            Err(answer) => timeout(self.deadline, answer)
                .await
                .unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout))),
        }
    }

    /// Corrects what the store has charged, or what has been counted in its place.
    fn correct(&self, correction: OwnedCorrection, is_local: bool) {
        if is_local {
            // A memory store answers at once and never fails.
            if let Some(local) = self.local.get() {
                correction.make_in(local);
            }
        } else {
            self.settler.push(correction);
        }
    }

    /// Waits for what is corrected in the background. How much of it was not made.
    pub(crate) async fn shutdown(&self) -> u64 {
        if let Some(front) = &self.front {
            front.leases.close(self.deadline).await;
        }
        self.settler.flush(self.settler.lifetime()).await
    }

    fn run(
        self: &Arc<Self>,
        charges: &[Charge<'_>],
        handlings: &[Handling<'_>],
        (act, learns): (Act, Option<Learns>),
    ) -> Decided {
        if charges
            .iter()
            .all(|charge| charge.quota.is_unlimited() && charge.penalty.is_none())
        {
            return Decided::Now(Decision::exempt());
        }
        let failures = of_each(handlings, |each| each.failure);
        match self.ask((act, learns), charges) {
            Ok(answer) => Decided::Now(self.conclude(charges, &failures, (act, learns), answer)),
            Err(answer) => Decided::Later(Box::new(Deciding {
                answer,
                engine: Arc::clone(self),
                charges: of_each(charges, OwnedCharge::from),
                failures,
                act,
                learns,
            })),
        }
    }

    fn to_ask<'a>(&self, charges: &'a [Charge<'a>], learns: Option<Learns>) -> Ask<'a> {
        let asked = match (&self.front, learns) {
            (Some(front), Some(learns)) => front.local.time(learns.asked),
            _ => None,
        };
        Ask::new(charges).deadline(self.deadline).asked(asked)
    }

    /// Charges if it fits, as the store decides: its answer, if that is there.
    #[inline(always)]
    pub(crate) fn ask_one(
        &self,
        charge: &Charge<'_>,
        learns: Option<Learns>,
    ) -> Result<Result<Outcome, StoreError>, Answering> {
        self.ask((Act::Charge, learns), slice::from_ref(charge))
    }

    /// The store's answer, if it is there, else one that comes no later than the deadline, whatever the store does.
    #[inline(always)]
    fn ask(
        &self,
        (act, learns): (Act, Option<Learns>),
        charges: &[Charge<'_>],
    ) -> Result<Result<Outcome, StoreError>, Answering> {
        let keeps_deadlines = self.store.keeps_deadlines();
        match act
            .ask(&*self.store, &self.to_ask(charges, learns))
            .into_answering()
        {
            Err(answer) if !keeps_deadlines => {
                Err(answer.until(Instant::now() + self.deadline.min(MAX_DEADLINE)))
            }
            answer => answer,
        }
    }

    /// What a store that can tell it like that said of one charge.
    #[inline(always)]
    pub(crate) fn conclude_known(
        &self,
        charge: &Charge<'_>,
        known: &KnownOutcome,
        learns: Option<Learns>,
    ) -> Decision {
        self.note_recovery();
        if let Some(front) = &self.front
            && learns.is_some_and(|learns| learns.leases.observe(known.granted))
        {
            front.leases.observe_one(charge, &known.state(), !known.granted);
        }
        decision_of(charge, known, Source::Store)
    }

    /// What a store said of one charge.
    #[inline(never)]
    pub(crate) fn conclude_one(
        &self,
        charge: &Charge<'_>,
        failure: FailurePolicy,
        learns: Option<Learns>,
        answer: Result<Outcome, StoreError>,
    ) -> Decision {
        self.conclude(slice::from_ref(charge), &[failure], (Act::Charge, learns), answer)
    }

    pub(crate) fn conclude(
        &self,
        charges: &[Charge<'_>],
        failures: &[FailurePolicy],
        (act, learns): (Act, Option<Learns>),
        answer: Result<Outcome, StoreError>,
    ) -> Decision {
        let answer = answer.and_then(|outcome| {
            if outcome.states.len() == charges.len() {
                Ok(outcome)
            } else {
                Err(StoreError::new(StoreErrorKind::Protocol))
            }
        });
        let decision = match answer {
            Ok(outcome) => {
                self.note_recovery();
                if let (Some(learns), Some(front)) = (learns, &self.front) {
                    front.learn(charges, &outcome, learns);
                }
                Decision::new(charges, &outcome, Source::Store)
            }
            Err(error) => {
                self.log_failure(&error, charges);
                let decision = self.without_store(charges, failures, act, error.kind());
                if decision.is_allowed() {
                    error.keep_late_grant();
                }
                decision
            }
        };
        if act == Act::Charge && !decision.is_allowed() {
            log_denial(charges, &decision);
        }
        decision
    }

    /// One line for an outage and one for its end, and no more than that in [`LOG_INTERVAL`], or a store that fails
    /// every other request would fill the log.
    #[cold]
    fn log_failure(&self, error: &StoreError, charges: &[Charge<'_>]) {
        if self.degraded.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        if outage
            .logged_at
            .is_some_and(|logged| logged.elapsed() < LOG_INTERVAL)
        {
            return;
        }
        outage.logged_at = Some(Instant::now());
        outage.end_is_due = true;
        tracing::warn!(
            error = error as &(dyn Error + 'static),
            policy = charges
                .first()
                .map(|charge| tracing::field::display(charge.policy)),
            "the store gives no answer: failure policies decide until it does"
        );
    }

    #[inline]
    fn note_recovery(&self) {
        if self.degraded.load(Ordering::Relaxed) {
            self.log_recovery();
        }
    }

    #[cold]
    fn log_recovery(&self) {
        if self.degraded.swap(false, Ordering::Relaxed) {
            let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
            if std::mem::take(&mut outage.end_is_due) {
                tracing::info!("the store answers again");
            }
        }
    }

    /// Each policy answers by its own failure policy; the request passes if all let it.
    ///
    /// Where too much is asked of the store, those who flood it must not switch a limit off: who would let all pass
    /// counts in this process then.
    fn without_store(
        &self,
        charges: &[Charge<'_>],
        failures: &[FailurePolicy],
        act: Act,
        why: StoreErrorKind,
    ) -> Decision {
        let each = || charges.iter().zip(failures);
        let denies = |(charge, failure): (&Charge<'_>, &FailurePolicy)| {
            let limits = charge.mode == Mode::Enforce && !charge.quota.is_unlimited();
            *failure == FailurePolicy::Deny && limits
        };
        if each().any(denies) {
            return Decision::degraded(Verdict::Unavailable);
        }
        let shares: SmallVec<[Charge<'_>; 1]> = each()
            .filter_map(|(charge, failure)| {
                let instances = match failure {
                    FailurePolicy::Local { instances } => (*instances).max(1),
                    FailurePolicy::Allow if why == StoreErrorKind::Overloaded => 1,
                    FailurePolicy::Allow | FailurePolicy::Deny => return None,
                };
                Some(Charge {
                    quota: charge.quota.share(u64::from(instances)),
                    ..*charge
                })
            })
            .collect();
        if shares.is_empty() {
            return Decision::degraded(Verdict::Allowed);
        }
        let local = self.local.get_or_init(MemoryStore::new);
        match act.ask(local, &Ask::new(&shares)).into_ready() {
            Ok(Ok(outcome)) => Decision::new(&shares, &outcome, Source::Fallback),
            // A memory store answers at once and never fails.
            Ok(Err(_)) | Err(_) => Decision::degraded(Verdict::Allowed),
        }
    }
}

impl Front {
    /// What needs no asking: whether units have been taken ahead, else whether there cannot be any. Else what is to be learned.
    #[inline(always)]
    fn answer_one(
        &self,
        charge: &Charge<'_>,
        handling: &Handling<'_>,
        deadline: Duration,
    ) -> Result<(KnownOutcome, Source), Option<Learns>> {
        if handling.lease.is_none() && !self.local.remembers_denials() {
            return Err(None);
        }
        let now = self.local.now();
        let hash = self.local.hash(charge.key, charge.policy);
        let leases = match handling.lease {
            Some(lease) => match self.leases.pay((hash, charge), lease, (now, deadline)) {
                Ok(paid) => return Ok((paid, Source::Lease)),
                Err(observes) => observes,
            },
            None => Observes::Nothing,
        };
        match self.local.denied((hash, charge), now) {
            Some(denied) => {
                self.local.count_denied();
                Ok((denied, Source::DenyCache))
            }
            None => Err(Some(Learns { asked: now, leases })),
        }
    }

    /// The same for several charges.
    fn answer(
        &self,
        charges: &[Charge<'_>],
        handlings: &[Handling<'_>],
        deadline: Duration,
    ) -> Result<Decision, Option<Learns>> {
        let now = self.local.now();
        if let Some(paid) = self.leases.pay_all(charges, handlings, (now, deadline)) {
            return Ok(Decision::new(charges, &paid, Source::Lease));
        }
        if let Some(denied) = self.local.denied_of(charges, now) {
            return Ok(Decision::new(charges, &denied, Source::DenyCache));
        }
        let leases = match handlings.iter().any(|each| each.lease.is_some()) {
            true => Observes::All,
            false => Observes::Nothing,
        };
        Err(Some(Learns { asked: now, leases }))
    }

    fn learn(&self, charges: &[Charge<'_>], outcome: &Outcome, learns: Learns) {
        let sent = outcome
            .sent
            .map_or(learns.asked, |sent| self.local.at(Instant::from_std(sent)));
        self.local.learn(charges, outcome, sent);
        if learns.leases.observe(outcome.granted > 0) {
            self.leases.observe(charges, outcome);
        }
    }
}

/// What is to be learned from the store's answer.
#[derive(Clone, Copy)]
pub(crate) struct Learns {
    /// When it was asked, or a little earlier: when the local answers were looked up.
    asked: Nanos,
    leases: Observes,
}

/// Nearly always of one, which is made in place.
pub(crate) fn of_each<'a, T, U>(all: &'a [T], of: impl Fn(&'a T) -> U) -> SmallVec<[U; 1]> {
    match all {
        [only] => SmallVec::from_buf([of(only)]),
        all => all.iter().map(of).collect(),
    }
}

/// The store, if it is the embedded one, which then needs no ask and no future.
fn embedded(store: &dyn Any) -> Option<MemoryStore> {
    #[cfg(feature = "redis")]
    if let Some(crate::store::AnyStore::Memory(store)) = store.downcast_ref() {
        return Some(store.clone());
    }
    store.downcast_ref().cloned()
}

/// The decision on the ordinary ask, made where it is returned, as it is large: who logs it makes one of its own.
#[inline(always)]
pub(crate) fn decision_of(charge: &Charge<'_>, known: &KnownOutcome, source: Source) -> Decision {
    if !known.granted && tracing::enabled!(tracing::Level::DEBUG) {
        log_known(charge, *known, source);
    }
    Decision::of_known(charge, known, source)
}

/// Takes a copy, and makes a decision of its own: what is returned is large, and need not be in memory for this.
#[cold]
fn log_known(charge: &Charge<'_>, known: KnownOutcome, source: Source) {
    log_denial(
        slice::from_ref(charge),
        &Decision::of_known(charge, &known, source),
    );
}

#[cold]
fn log_denial(charges: &[Charge<'_>], decision: &Decision) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    // Without an answer nothing leads, and the first policy stands for all.
    let charge = match decision.leading() {
        Some(leading) => charges.iter().find(|charge| charge.policy == leading.name()),
        None => charges.first(),
    };
    tracing::debug!(
        policy = charge.map(|charge| tracing::field::display(charge.policy)),
        key = charge.map(|charge| tracing::field::display(charge.key.fingerprint())),
        retry_after = ?decision.retry_after(),
        degraded = decision.is_degraded(),
        "denied"
    );
}

/// A charge that outlives its request's call.
#[derive(Clone, Debug)]
pub(crate) struct OwnedCharge {
    pub(crate) key: Key,
    pub(crate) policy: PolicyName,
    pub(crate) quota: Quota,
    pub(crate) cost: u64,
    pub(crate) mode: Mode,
    pub(crate) penalty: Option<Penalty>,
}

impl From<&Charge<'_>> for OwnedCharge {
    fn from(charge: &Charge<'_>) -> Self {
        Self {
            key: charge.key.clone(),
            policy: charge.policy.clone(),
            quota: charge.quota,
            cost: charge.cost,
            mode: charge.mode,
            penalty: charge.penalty.copied(),
        }
    }
}

impl OwnedCharge {
    pub(crate) fn with_cost(&self, cost: u64) -> Self {
        Self { cost, ..self.clone() }
    }

    pub(crate) fn borrow(&self) -> Charge<'_> {
        Charge {
            penalty: self.penalty.as_ref(),
            ..Charge::new(&self.key, &self.policy, self.quota)
                .cost(self.cost)
                .mode(self.mode)
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
