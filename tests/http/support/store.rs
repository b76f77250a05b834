//! A store that does what a test wants.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tollgate::store::{Ask, Outcome, Stamp, StoreError, StoreErrorKind, StoreFuture};
use tollgate::{MemoryStore, Store};

/// How a [`TestStore`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// At once.
    Prompt,
    /// When released.
    Held,
    /// After other tasks had their turn.
    Late,
    /// After a time by tokio's clock, which is for tests that pause it.
    Slow(Duration),
    /// With an error, at once.
    Fails(StoreErrorKind),
    /// With an error, when released.
    FailsHeld(StoreErrorKind),
}

/// A memory store whose answers to `acquire` come as the test wants. It decides when it is asked, and the answer
/// waits.
#[derive(Clone)]
pub(crate) struct TestStore {
    memory: MemoryStore,
    behaviour: Arc<Mutex<Behaviour>>,
    releases: Arc<Semaphore>,
    asked: Arc<AtomicUsize>,
    deadline: Arc<Mutex<Option<Duration>>>,
}

impl TestStore {
    pub(crate) fn new(behaviour: Behaviour) -> Self {
        Self::around(MemoryStore::new(), behaviour)
    }

    pub(crate) fn around(memory: MemoryStore, behaviour: Behaviour) -> Self {
        Self {
            memory,
            behaviour: Arc::new(Mutex::new(behaviour)),
            releases: Arc::new(Semaphore::new(0)),
            asked: Arc::default(),
            deadline: Arc::default(),
        }
    }

    /// Answers differently from now on.
    pub(crate) fn behave(&self, behaviour: Behaviour) {
        *self.behaviour.lock().expect("no test has failed under it") = behaviour;
    }

    /// Lets so many held answers go.
    pub(crate) fn release(&self, answers: usize) {
        self.releases.add_permits(answers);
    }

    /// How often it was asked to acquire.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// The deadline of the last ask.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        *self.deadline.lock().expect("no test has failed under it")
    }
}

impl Store for TestStore {
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        *self.deadline.lock().expect("no test has failed under it") = Some(ask.deadline);
        let behaviour = *self.behaviour.lock().expect("no test has failed under it");
        let answer = match behaviour {
            Behaviour::Fails(kind) | Behaviour::FailsHeld(kind) => {
                StoreFuture::ready(Err(StoreError::new(kind)))
            }
            Behaviour::Prompt | Behaviour::Held | Behaviour::Late | Behaviour::Slow(_) => {
                self.memory.acquire(ask)
            }
        };
        match behaviour {
            Behaviour::Prompt | Behaviour::Fails(_) => answer,
            Behaviour::Held | Behaviour::FailsHeld(_) => {
                let releases = Arc::clone(&self.releases);
                StoreFuture::waiting(async move {
                    releases.acquire().await.expect("it is never closed").forget();
                    answer.await
                })
            }
            Behaviour::Late => StoreFuture::waiting(async move {
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                answer.await
            }),
            Behaviour::Slow(delay) => StoreFuture::waiting(async move {
                tokio::time::sleep(delay).await;
                answer.await
            }),
        }
    }

    fn give_back(&self, ask: &Ask<'_>, times: u32, stamp: Stamp) -> StoreFuture<()> {
        self.memory.give_back(ask, times, stamp)
    }

    fn charge(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.memory.charge(ask)
    }

    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.memory.peek(ask)
    }

    fn reset(&self, ask: &Ask<'_>) -> StoreFuture<()> {
        self.memory.reset(ask)
    }

    fn block(&self, ask: &Ask<'_>, time: Duration) -> StoreFuture<()> {
        self.memory.block(ask, time)
    }
}
