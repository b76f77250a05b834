use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use super::*;
use crate::engine::OwnedCharge;
use crate::store::{Correction, LocalAnswers, MemoryStore, StoreFuture};
use crate::{Clock, Key, Lease, Limiter, Penalty, Policy, PolicyDecision, PolicyName, Quota, Source, key};

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

#[tokio::test(start_paused = true)]
async fn a_grant_says_something_to_leases_once_its_key_is_hot() {
    let store = Remote::new();
    let settler = Arc::new(Settler::new(Arc::new(store.clone())));
    let leases = Arc::new(Leases::new(Arc::new(store.clone()), store.local.clone(), settler));
    let (key, policy) = (Key::from("a"), PolicyName::new("test").expect("a name"));
    let charge = Charge::new(&key, &policy, Quota::per_minute(100_000).slots(64));
    let hash = store.local.hash(&key, &policy);
    let observes: Vec<_> = (0..6)
        .map(|_| {
            let paid = leases.pay(
                (hash, &charge),
                &Lease::new(),
                (store.local.now(), Duration::from_secs(1)),
            );
            paid.err()
        })
        .collect();
    let (cold, hot) = observes.split_at(4);
    assert_eq!(cold, [Some(Observes::Denials); 4]);
    assert_eq!(hot, [Some(Observes::All); 2]);
}

#[tokio::test(start_paused = true)]
async fn a_denial_gives_back_also_what_was_taken_since_it_was_asked_for() {
    let store = Remote::new();
    let limiter = Limiter::new(store.clone(), Quota::per_minute(100_000).slots(64))
        .deadline(Duration::from_secs(10))
        .lease(Lease::new());
    let mut all = Box::pin(limiter.check_cost("a", 100_000));
    assert!(poll_once(&mut all).await.is_none());
    let mut source = Source::Store;
    for _ in 0..50 {
        source = limiter.check("a").await.source();
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(source, Source::Lease);
    let before = store.local.stats().units_returned;
    assert!(all.await.is_denied());
    assert!(
        store.local.stats().units_returned > before,
        "{:?}",
        store.local.stats()
    );
}

/// What a future says at once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|context| {
        Poll::Ready(match Pin::new(&mut *future).poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// The limiter of one policy.
fn only(store: &Remote, policy: Policy) -> Limiter {
    let name = policy.name.as_str().to_owned();
    let limiter = Limiter::new(store.clone(), Quota::unlimited()).policy(policy);
    limiter.only(&name).expect("it is there")
}

#[tokio::test(start_paused = true)]
async fn a_block_is_remembered_until_it_ends_whatever_was_asked_for_meanwhile() {
    for cost in [10, 11] {
        let store = Remote::new();
        let policy = Policy::new("p", Quota::per_minute(10), key::Global).penalty(Penalty::manual());
        let limiter = only(&store, policy);
        for _ in 0..5 {
            assert!(limiter.check("a").await.is_allowed());
        }
        limiter.block("a", Duration::from_millis(50)).await.unwrap();
        sleep(Duration::from_millis(1)).await;
        let denied = limiter.check_cost("a", cost).await;
        assert_eq!((denied.is_denied(), denied.is_never()), (true, cost > 10));
        let one = limiter.check("a").await;
        assert_eq!(one.source(), Source::DenyCache);
        assert!(
            one.retry_after()
                .is_some_and(|wait| wait <= Duration::from_millis(50)),
            "{one:?}"
        );
        sleep(Duration::from_millis(60)).await;
        assert!(limiter.check("a").await.is_allowed());
    }
}

#[tokio::test(start_paused = true)]
async fn denials_that_a_penalty_counts_reach_the_store() {
    let store = Remote::new();
    let block = Penalty::after(50, Duration::from_secs(10)).block_for(Duration::from_secs(3_600));
    let limiter = Limiter::new(store.clone(), Quota::per_second(5))
        .name("second")
        .policy(Policy::new("minute", Quota::per_minute(5), key::Global).penalty(block));
    let mut requests = 0;
    while !limiter
        .check("a")
        .await
        .policies()
        .iter()
        .any(PolicyDecision::is_blocked)
    {
        requests += 1;
        assert!(requests < 100, "not blocked");
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(limiter.check("a").await.source(), Source::DenyCache);
}

#[tokio::test(start_paused = true)]
async fn what_a_reset_has_made_void_is_not_given_back() {
    let store = Remote::new();
    let quota = Quota::per_minute(10_000).slots(64);
    let one = Limiter::new(store.clone(), quota).lease(Lease::new());
    let other = Limiter::new(store.clone(), quota);
    let mut source = Source::Store;
    for _ in 0..200 {
        source = one.check("a").await.source();
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(source, Source::Lease);
    other.reset("a").await.unwrap();
    // As many as fit, by another instance.
    let remote = Limiter::new(store.inner.clone(), quota);
    assert!(remote.check_cost("a", 10_000).await.is_allowed());
    assert!(one.check("a").await.is_denied());
    sleep(Duration::from_millis(5)).await;
    assert_eq!(remote.peek("a").await.remaining(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_ahead_for_requests_that_cannot_be_paid() {
    let store = Remote::new();
    let limiter = Limiter::new(store.clone(), Quota::per_minute(10_000).slots(64)).lease(Lease::new());
    for _ in 0..200 {
        assert!(limiter.check_cost("a", 20_000).await.is_denied());
        sleep(Duration::from_millis(1)).await;
    }
    for _ in 0..3 {
        assert!(limiter.check("a").await.is_allowed());
    }
    assert_eq!(store.local.stats().refills, 0);
    // Nor as long as another policy of the same requests is cold.
    let both = Limiter::new(store.clone(), Quota::per_minute(100_000).slots(64))
        .name("all")
        .lease(Lease::new());
    let both = both.policy(Policy::new("user", Quota::per_minute(100), key::Global).lease(Lease::new()));
    let all = crate::Key::from("all");
    for request in 0..500 {
        let user = crate::Key::from(request);
        assert!(
            both.check_keys(1, |policy| if policy == "all" { &all } else { &user })
                .await
                .is_allowed()
        );
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(store.local.stats().refills, 0);
}
