//! A store whose answers get lost.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tollgate::Store;
use tollgate::store::{
    AnyStore, Ask, Correction, CorrectionKind, Outcome, Stamp, StoreError, StoreErrorKind, StoreFuture,
};

/// What becomes of what is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is done, and answered.
    Done,
    /// It is done, and the answer is lost.
    DoneUnheard,
    /// It never arrives.
    Lost,
    /// It is refused: it is certain that nothing was done.
    Refused,
}

/// A store behind a bad connection. Each call has its fate in turn; those without one are done.
#[derive(Clone)]
pub(super) struct Lossy {
    store: AnyStore,
    deadline: Duration,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    acquires: VecDeque<Fate>,
    settles: VecDeque<Fate>,
    /// Units of corrections that were done: given back, and charged on top.
    given_back: u64,
    charged: u64,
}

impl Lossy {
    pub(super) fn new(store: AnyStore, deadline: Duration) -> Self {
        Self {
            store,
            deadline,
            shared: Arc::default(),
        }
    }

    /// The fates of the next asks for a grant.
    pub(super) fn acquires(&self, fates: impl IntoIterator<Item = Fate>) {
        self.shared().acquires = fates.into_iter().collect();
    }

    /// The fates of the next calls that correct something.
    pub(super) fn settles(&self, fates: impl IntoIterator<Item = Fate>) {
        self.shared().settles = fates.into_iter().collect();
    }

    /// Units that have really been given back, and charged on top.
    pub(super) fn corrected(&self) -> (u64, u64) {
        let shared = self.shared();
        (shared.given_back, shared.charged)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("no test has failed under it")
    }
}

/// Answers late, after the store has or has not done it.
fn answer<T: Send + Unpin + 'static>(fate: Fate, done: Option<StoreFuture<T>>) -> StoreFuture<T> {
    StoreFuture::waiting(async move {
        tokio::task::yield_now().await;
        let answer = match done {
            Some(done) => Some(done.await),
            None => None,
        };
        match (fate, answer) {
            (Fate::Done, Some(answer)) => answer,
            (Fate::Refused, _) => Err(StoreError::new(StoreErrorKind::Unavailable).undone()),
            _ => Err(StoreError::new(StoreErrorKind::Timeout)),
        }
    })
}

fn is_done(fate: Fate) -> bool {
    matches!(fate, Fate::Done | Fate::DoneUnheard)
}

impl Store for Lossy {
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let fate = self.shared().acquires.pop_front().unwrap_or(Fate::Done);
        answer(fate, is_done(fate).then(|| self.store.acquire(ask)))
    }

    fn give_back(&self, ask: &Ask<'_>, times: u32, stamp: Stamp) -> StoreFuture<()> {
        self.settle(&[Correction::give_back(*ask, times, stamp)])
    }

    fn charge(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.store.charge(ask)
    }

    fn settle(&self, corrections: &[Correction<'_>]) -> StoreFuture<()> {
        let mut shared = self.shared();
        let fate = shared.settles.pop_front().unwrap_or(Fate::Done);
        if is_done(fate) {
            for correction in corrections {
                let units: u64 = correction.ask.charges.iter().map(|charge| charge.cost).sum();
                match correction.kind {
                    CorrectionKind::GiveBack { times, .. } => shared.given_back += units * u64::from(times),
                    _ => shared.charged += units,
                }
            }
        }
        drop(shared);
        answer(fate, is_done(fate).then(|| self.store.settle(corrections)))
    }

    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.store.peek(ask)
    }

    fn reset(&self, ask: &Ask<'_>) -> StoreFuture<()> {
        self.store.reset(ask)
    }

    fn block(&self, ask: &Ask<'_>, time: Duration) -> StoreFuture<()> {
        self.store.block(ask, time)
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }
}
