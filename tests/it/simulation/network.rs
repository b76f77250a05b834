//! The store as an instance sees it: behind a network that delays and loses.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate::store::{
    Ask, Change, Changing, Charge, Correction, CorrectionKind, LocalAnswers, Mode, Outcome, Stamp,
    StoreError, StoreErrorKind, StoreFuture,
};
use tollgate::{Key, PolicyName, Quota, Store};

use super::ledger::{Counter, Freed};
use super::world::World;

/// The store of one instance.
#[derive(Clone)]
pub(super) struct Remote {
    world: World,
    local: LocalAnswers,
    instance: u64,
    is_dead: Arc<AtomicBool>,
    deadline: Duration,
}

/// A charge on its way.
#[derive(Clone)]
struct Sent {
    key: Key,
    policy: PolicyName,
    quota: Quota,
    cost: u64,
    mode: Mode,
}

impl Sent {
    fn of(charges: &[Charge<'_>]) -> Vec<Self> {
        let sent = charges.iter().map(|charge| Self {
            key: charge.key.clone(),
            policy: charge.policy.clone(),
            quota: charge.quota,
            cost: charge.cost,
            mode: charge.mode,
        });
        sent.collect()
    }

    fn charge(&self) -> Charge<'_> {
        Charge::new(&self.key, &self.policy, self.quota)
            .cost(self.cost)
            .mode(self.mode)
    }
}

fn with_ask<T>(sent: &[Sent], act: impl FnOnce(&Ask<'_>) -> T) -> T {
    let charges: Vec<Charge<'_>> = sent.iter().map(Sent::charge).collect();
    act(&Ask::new(&charges))
}

/// The embedded store answers at once and never fails.
pub(super) fn at_once<T>(answer: StoreFuture<T>) -> T {
    match answer.into_ready() {
        Ok(Ok(answer)) => answer,
        _ => panic!("no answer"),
    }
}

/// When a change of this instance was over for it: what the store did before, it must heed from then on.
struct Under {
    changing: Option<Changing>,
    world: World,
    over: Arc<AtomicU64>,
}

impl Drop for Under {
    fn drop(&mut self) {
        self.changing = None;
        let now = self.world.now().as_nanos();
        self.over
            .store(u64::try_from(now).expect("a short time"), Ordering::Relaxed);
    }
}

impl Remote {
    pub(super) fn new(world: &World, instance: u64, (local, deadline): (LocalAnswers, Duration)) -> Self {
        Self {
            world: world.clone(),
            local,
            instance,
            is_dead: Arc::default(),
            deadline,
        }
    }

    pub(super) fn local(&self) -> &LocalAnswers {
        &self.local
    }

    /// Nothing leaves this instance any more, and nothing reaches it. What is on its way to the store gets there.
    pub(super) fn die(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// Sends a message that does `act` at the store. Whoever asked may have gone by then.
    fn send<T: Send + 'static>(
        &self,
        before: Duration,
        act: impl FnOnce(&World) -> T + Send + 'static,
    ) -> StoreFuture<T> {
        let fate = self.world.with_rng(|rng| self.world.network().fate(rng));
        let (reply, answer) = oneshot::channel();
        let (world, is_dead) = (self.world.clone(), Arc::clone(&self.is_dead));
        if !self.is_dead() && !fate.loses_request {
            self.world.after(before + fate.there, move || {
                let done = act(&world);
                if fate.loses_reply {
                    return;
                }
                world.after(fate.back, move || {
                    if !is_dead.load(Ordering::Relaxed) {
                        // They may have given up.
                        drop(reply.send(done));
                    }
                });
            });
        }
        StoreFuture::waiting(async move {
            match answer.await {
                Ok(answer) => Ok(answer),
                Err(_) if fate.tells_loss => Err(StoreError::new(StoreErrorKind::Unavailable)),
                Err(_) => pending().await,
            }
        })
    }

    fn under(&self, changing: Changing) -> Under {
        Under {
            changing: Some(changing),
            world: self.world.clone(),
            over: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }
}

impl Store for Remote {
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let (sent, want, hold) = (Sent::of(ask.charges), ask.want, ask.hold);
        let (before, tells) = self.world.with_rng(|rng| {
            let waits = rng.percent(30);
            let before = rng.micros(0, 400) * u32::from(waits);
            (before, rng.percent(50))
        });
        let sent_at = Instant::now() + before;
        let answer = self.send(before, move |world| {
            with_ask(&sent, |ask| {
                let outcome = at_once(world.store().acquire(&ask.want(want).hold(hold)));
                if outcome.granted == 0 && world.with_rng(|rng| rng.percent(10)) {
                    let peeked = at_once(world.store().peek(ask));
                    for (said, is) in outcome.states.iter().zip(&peeked.states) {
                        assert_eq!((said.remaining, said.retry), (is.remaining, is.retry));
                    }
                }
                outcome
            })
        });
        StoreFuture::waiting(async move {
            let outcome = answer.await?;
            Ok(if tells {
                outcome.sent(sent_at.into_std())
            } else {
                outcome
            })
        })
    }

    fn give_back(&self, ask: &Ask<'_>, times: u32, stamp: Stamp) -> StoreFuture<()> {
        self.settle(&[Correction::give_back(*ask, times, stamp)])
    }

    fn charge(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let sent = Sent::of(ask.charges);

        self.send(Duration::ZERO, move |world| {
            with_ask(&sent, |ask| at_once(world.store().charge(ask)))
        })
    }

    fn settle(&self, corrections: &[Correction<'_>]) -> StoreFuture<()> {
        let mut unders = Vec::new();
        let mut parts = Vec::new();
        for correction in corrections {
            let under = self.under(self.local.changing(&correction.ask, Change::GiveBack));
            parts.push((
                Sent::of(correction.ask.charges),
                correction.kind,
                Arc::clone(&under.over),
            ));
            unders.push(under);
        }
        let instance = self.instance;
        let answer = self.send(Duration::ZERO, move |world| {
            for (sent, kind, over) in parts {
                with_ask(&sent, |ask| match kind {
                    CorrectionKind::GiveBack { times, stamp } => {
                        at_once(world.store().give_back(ask, times, stamp));
                    }
                    _ => drop(at_once(world.store().charge(ask))),
                });
                let at = u64::try_from(world.now().as_nanos()).expect("a short time");
                world.with_ledger(|ledger| {
                    for charge in &sent {
                        let counter = Counter::of(&charge.key, &charge.policy);
                        let over = Arc::clone(&over);
                        ledger.freed(counter, Freed { instance, at, over });
                    }
                });
            }
        });
        StoreFuture::waiting(async move {
            let _unders = unders;
            answer.await
        })
    }

    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let sent = Sent::of(ask.charges);

        self.send(Duration::ZERO, move |world| {
            with_ask(&sent, |ask| at_once(world.store().peek(ask)))
        })
    }

    fn reset(&self, _: &Ask<'_>) -> StoreFuture<()> {
        unreachable!("nobody resets")
    }

    fn block(&self, _: &Ask<'_>, _: Duration) -> StoreFuture<()> {
        unreachable!("nobody blocks")
    }

    fn local_answers(&self) -> Option<&LocalAnswers> {
        Some(&self.local)
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }
}
