use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::store::{Correction, LocalAnswers, MemoryStore, StoreFuture};
use crate::{Clock, Lease, Limiter, Quota, Source};

/// A store behind a network, in tokio's time.
#[derive(Clone)]
struct Remote {
    inner: MemoryStore,
    local: LocalAnswers,
    asks: Arc<AtomicU32>,
}

const TRIP: Duration = Duration::from_micros(500);

impl Remote {
    fn new() -> Self {
        let start = Instant::now();
        let clock = Clock::from_fn(move || Duration::from_secs(1_800_000_000) + start.elapsed());
        Self {
            inner: MemoryStore::builder().clock(clock).build(),
            local: LocalAnswers::builder().seed(7).build(),
            asks: Arc::default(),
        }
    }

    fn asks(&self) -> u32 {
        self.asks.load(Ordering::Relaxed)
    }
}

impl Store for Remote {
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.asks.fetch_add(1, Ordering::Relaxed);
        let charges: Vec<OwnedCharge> = ask.charges.iter().map(OwnedCharge::from).collect();
        let (inner, want, hold) = (self.inner.clone(), ask.want, ask.hold);
        StoreFuture::waiting(async move {
            sleep(TRIP).await;
            let charges: Vec<Charge<'_>> = charges.iter().map(OwnedCharge::borrow).collect();
            let outcome = inner.acquire(&Ask::new(&charges).want(want).hold(hold)).await;
            sleep(TRIP).await;
            outcome
        })
    }

    fn give_back(&self, ask: &Ask<'_>, times: u32, stamp: Stamp) -> StoreFuture<()> {
        drop(self.local.changing(ask, crate::store::Change::GiveBack));
        self.inner.give_back(ask, times, stamp)
    }

    fn charge(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.inner.charge(ask)
    }

    fn settle(&self, corrections: &[Correction<'_>]) -> StoreFuture<()> {
        for correction in corrections {
            drop(
                self.local
                    .changing(&correction.ask, crate::store::Change::GiveBack),
            );
        }
        self.inner.settle(corrections)
    }

    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.inner.peek(ask)
    }

    fn reset(&self, ask: &Ask<'_>) -> StoreFuture<()> {
        drop(self.local.changing(ask, crate::store::Change::Reset));
        self.inner.reset(ask)
    }

    fn block(&self, ask: &Ask<'_>, time: Duration) -> StoreFuture<()> {
        drop(self.local.changing(ask, crate::store::Change::Reset));
        self.inner.block(ask, time)
    }

    fn local_answers(&self) -> Option<&LocalAnswers> {
        Some(&self.local)
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_key_does_not_reach_the_store() {
    let store = Remote::new();
    let limiter = Limiter::new(store.clone(), Quota::new(2, Duration::from_millis(100)));
    for _ in 0..2 {
        assert!(limiter.check("a").await.is_allowed());
    }
    let first = limiter.check("a").await;
    assert_eq!((first.is_denied(), first.source()), (true, Source::Store));
    let asks = store.asks();
    for _ in 0..50 {
        let denied = limiter.check("a").await;
        assert_eq!((denied.is_denied(), denied.source()), (true, Source::DenyCache));
        assert_eq!(denied.retry_after(), first.retry_after());
    }
    assert_eq!(store.asks(), asks);
    sleep(first.retry_after().unwrap()).await;
    assert!(limiter.check("a").await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_is_paid_from_a_lease() {
    let store = Remote::new();
    let quota = Quota::per_minute(100_000).slots(64);
    let limiter = Limiter::new(store.clone(), quota).lease(Lease::new());
    let mut leased = 0;
    for _ in 0..2_000 {
        let decision = limiter.check("a").await;
        assert!(decision.is_allowed());
        leased += u32::from(decision.source() == Source::Lease);
        sleep(Duration::from_millis(1)).await;
    }
    assert!(leased > 1_900, "{leased} of 2000, {:?}", store.local.stats());
    assert!(
        store.asks() < 100,
        "{} asks, {:?}",
        store.asks(),
        store.local.stats()
    );
    assert_eq!(limiter.shutdown().await, 0);
    let stats = store.local.stats();
    assert_eq!(
        stats.units_taken - stats.units_returned,
        u64::from(leased),
        "{stats:?}"
    );
    assert_eq!(limiter.peek("a").await.remaining(), Some(100_000 - 2_000));
}
