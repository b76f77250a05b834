//! What all instances share: the time, what is on its way, and the one store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Instant, advance};
use tollgate::{Clock, MemoryStore};

use super::ledger::Ledger;
use super::rng::Rng;
use super::scenario::{Network, Scenario};

type Event = Box<dyn FnOnce() + Send>;

/// Instances follow tokio's clock, which stands still but for this; the store has one of its own.
#[derive(Clone)]
pub(super) struct World(Arc<Inner>);

struct Inner {
    start: Instant,
    store: MemoryStore,
    clock: StoreClock,
    network: Network,
    age: Duration,
    /// Time passes in steps of at most so much. Timers that are due within one fire at its end, as on a busy machine.
    step: Duration,
    state: Mutex<State>,
}

struct State {
    rng: Rng,
    /// By time in microseconds, then in the order in which they were planned.
    events: BTreeMap<(u64, u64), Event>,
    planned: u64,
    ledger: Ledger,
}

/// Where the store's clock stands, and how many parts in a million it is fast.
#[derive(Clone)]
struct StoreClock {
    start: Instant,
    at_start: Duration,
    fast: i64,
    /// Nanoseconds since the start, as last seen: the store clears up on a thread that is of no runtime, where tokio's clock
    /// does not stand still.
    seen: Arc<AtomicU64>,
}

impl StoreClock {
    fn now(&self) -> Duration {
        if Handle::try_current().is_ok() {
            let passed = u64::try_from(self.start.elapsed().as_nanos()).expect("a short time");
            self.seen.store(passed, Ordering::Relaxed);
        }
        let passed = i128::from(self.seen.load(Ordering::Relaxed));
        let passed = passed + passed * i128::from(self.fast) / 1_000_000;
        self.at_start + Duration::from_nanos(u64::try_from(passed).expect("a short time"))
    }
}

impl World {
    pub(super) fn new(scenario: &Scenario, rng: Rng) -> Self {
        let start = Instant::now();
        let clock = StoreClock {
            start,
            at_start: scenario.store_starts,
            fast: scenario.store_is_fast,
            seen: Arc::default(),
        };
        let of_store = clock.clone();
        let store = MemoryStore::builder()
            .clock(Clock::from_fn(move || of_store.now()))
            .build();
        Self(Arc::new(Inner {
            start,
            store,
            clock,
            network: scenario.network,
            age: scenario.deny_age,
            step: (scenario.length / 100).max(Duration::from_millis(1)),
            state: Mutex::new(State {
                rng,
                events: BTreeMap::new(),
                planned: 0,
                ledger: Ledger::new(scenario),
            }),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("nobody panics with it")
    }

    pub(super) fn store(&self) -> &MemoryStore {
        &self.0.store
    }

    pub(super) fn network(&self) -> &Network {
        &self.0.network
    }

    pub(super) fn deny_age(&self) -> Duration {
        self.0.age
    }

    pub(super) fn with_rng<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.state().rng)
    }

    pub(super) fn with_ledger<T>(&self, act: impl FnOnce(&mut Ledger) -> T) -> T {
        act(&mut self.state().ledger)
    }

    /// By how much timers can be late, which count in milliseconds.
    pub(super) fn late(&self) -> Duration {
        self.0.step + Duration::from_millis(2)
    }

    /// Since the beginning, in tokio's time.
    pub(super) fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// The store's time, in microseconds.
    pub(super) fn store_now(&self) -> u64 {
        u64::try_from(self.0.clock.now().as_micros()).expect("some decades")
    }

    pub(super) fn after(&self, wait: Duration, event: impl FnOnce() + Send + 'static) {
        self.at(self.now() + wait, event);
    }

    pub(super) fn at(&self, time: Duration, event: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        state.planned += 1;
        let place = (
            u64::try_from(time.as_micros()).expect("a short time"),
            state.planned,
        );
        state.events.insert(place, Box::new(event));
    }

    /// Lets everything happen that is planned, and all that comes of it.
    pub(super) async fn run(&self) {
        loop {
            let next = self.state().events.first_entry().map(|entry| entry.key().0);
            let Some(at) = next else { return };
            let wait = Duration::from_micros(at).saturating_sub(self.now());
            if wait > self.0.step {
                advance(self.0.step).await;
                continue;
            }
            if !wait.is_zero() {
                advance(wait).await;
            }
            let event = self.state().events.pop_first();
            if let Some((_, event)) = event {
                event();
            }
            // Lets tasks run that can: who has more to do than that does it later.
            yield_now().await;
        }
    }
}
