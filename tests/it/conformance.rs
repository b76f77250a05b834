//! The suite for third parties' stores, run on the embedded one.

mod wrong;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tollgate::store::{Ask, Charge, Mode, Outcome, Retry, Stamp, StoreFuture};
use tollgate::testing::{Harness, conformance};
use tollgate::{Clock, Key, ManualClock, MemoryStore, PolicyName, Store};

use crate::embedded::at_once;

struct Embedded {
    clock: ManualClock,
}

impl Harness for Embedded {
    type Store = MemoryStore;

    async fn store(&self) -> MemoryStore {
        MemoryStore::builder().clock(self.clock.clock()).build()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn step_back(&self, by: Duration) -> bool {
        step_back(&self.clock, by)
    }
}

fn step_back(clock: &ManualClock, by: Duration) -> bool {
    clock.set(clock.now() - by);
    true
}

#[tokio::test]
async fn the_embedded_store_conforms() {
    let clock = ManualClock::new();
    conformance(&Embedded { clock }).await;
}

/// A clock that runs by itself: every call takes time, and waits take longer than they should.
struct Running {
    clock: ManualClock,
}

impl Harness for Running {
    type Store = MemoryStore;

    async fn store(&self) -> MemoryStore {
        let clock = self.clock.clone();
        let running = Clock::from_fn(move || {
            clock.advance(Duration::from_micros(137));
            clock.now()
        });
        MemoryStore::builder().clock(running).build()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by + Duration::from_millis(3));
    }

    fn step_back(&self, by: Duration) -> bool {
        step_back(&self.clock, by)
    }

    fn resolution(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn window(&self) -> Duration {
        Duration::from_secs(1)
    }
}

#[tokio::test]
async fn a_store_with_a_running_clock_conforms() {
    let clock = ManualClock::new();
    conformance(&Running { clock }).await;
}

/// A store with a fault.
struct Faulty {
    store: MemoryStore,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    GrantsAll,
    ChargesDenials,
    ChargesOneByOne,
    GrantsOnce,
    IgnoresHold,
    EnforcesShadows,
    IgnoresShadows,
    GivesNothingBack,
    GivesBackByAnyStamp,
    ChargesWhatFits,
    ChargesOnPeek,
    ResetsNothing,
    RetriesEarly,
    RetriesLate,
    LosesOneUnit,
    CutsCosts,
    TrimsKeys,
    FoldsCase,
    IgnoresPolicies,
    KeepsLimitsApart,
}

/// Each fault and the rule that finds it.
const FAULTS: [(Fault, &str); 20] = [
    (Fault::GrantsAll, "the limit is granted, and no more"),
    (Fault::ChargesDenials, "denials are free"),
    (Fault::ChargesOneByOne, "all charges of an ask or none"),
    (Fault::GrantsOnce, "as often as it is wanted"),
    (Fault::IgnoresHold, "held units are charged ahead"),
    (Fault::EnforcesShadows, "never stop an ask"),
    (Fault::IgnoresShadows, "shadow charges are counted"),
    (Fault::GivesNothingBack, "can be given back"),
    (
        Fault::GivesBackByAnyStamp,
        "nothing is given back that was not granted",
    ),
    (
        Fault::ChargesWhatFits,
        "a charge is counted whether it fits or not",
    ),
    (Fault::ChargesOnPeek, "a fresh counter is full"),
    (Fault::ResetsNothing, "a reset forgets its counters"),
    (Fault::RetriesEarly, "the limit is granted"),
    (Fault::RetriesLate, "the limit is granted"),
    (Fault::LosesOneUnit, "a fresh counter is full"),
    (Fault::CutsCosts, "denials are free"),
    (Fault::TrimsKeys, "tell counters apart"),
    (Fault::FoldsCase, "tell counters apart"),
    (Fault::IgnoresPolicies, "all charges of an ask or none"),
    (Fault::KeepsLimitsApart, "a changed limit finds the same counter"),
];

impl Faulty {
    /// A key that some other key is taken for.
    fn renamed(&self, key: &Key) -> Key {
        let written = std::str::from_utf8(key.as_bytes()).expect("keys are ASCII");
        match (self.fault, written) {
            (Fault::TrimsKeys, "key=a%20") | (Fault::FoldsCase, "key=A") => Key::from("a"),
            _ => key.clone(),
        }
    }

    /// Calls `then` with the charges of an ask as the fault makes them.
    fn charges<T>(&self, ask: &Ask<'_>, then: impl FnOnce(&MemoryStore, &Ask<'_>) -> T) -> T {
        let renamed: Vec<(Key, PolicyName)> = ask
            .charges
            .iter()
            .map(|charge| {
                let key = self.renamed(charge.key);
                let policy = match self.fault {
                    Fault::IgnoresPolicies => "p".to_owned(),
                    Fault::KeepsLimitsApart => {
                        format!("{}-{:?}", charge.policy, charge.quota.limit()).replace(['(', ')'], "")
                    }
                    _ => charge.policy.to_string(),
                };
                (key, PolicyName::new(policy).expect("a name"))
            })
            .collect();
        let charges: Vec<Charge<'_>> = ask
            .charges
            .iter()
            .zip(&renamed)
            .filter(|(charge, _)| self.fault != Fault::IgnoresShadows || charge.mode == Mode::Enforce)
            .map(|(charge, (key, policy))| {
                let cost = match (self.fault, charge.quota.limit()) {
                    (Fault::CutsCosts, Some(limit)) => charge.cost.min(limit),
                    _ => charge.cost,
                };
                let mode = match self.fault {
                    Fault::EnforcesShadows => Mode::Enforce,
                    _ => charge.mode,
                };
                let mut changed = Charge::new(key, policy, charge.quota).cost(cost).mode(mode);
                changed.penalty = charge.penalty;
                changed
            })
            .collect();
        let mut changed = Ask::new(&charges).want(ask.want).hold(ask.hold);
        if self.fault == Fault::GrantsOnce {
            changed.want = changed.want.min(1);
        }
        if self.fault == Fault::IgnoresHold {
            changed.hold = Duration::ZERO;
        }
        then(&self.store, &changed)
    }

    fn answer(&self, mut outcome: Outcome) -> StoreFuture<Outcome> {
        for state in &mut outcome.states {
            if let Retry::After(retry) = &mut state.retry {
                match self.fault {
                    Fault::RetriesEarly => *retry -= Duration::from_micros(1),
                    Fault::RetriesLate => *retry += Duration::from_micros(1),
                    _ => {}
                }
            }
            if self.fault == Fault::LosesOneUnit {
                state.remaining = state.remaining.saturating_sub(1);
            }
        }
        StoreFuture::ready(Ok(outcome))
    }
}

impl Store for Faulty {
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let outcome = self.charges(ask, |store, ask| {
            let mut outcome = at_once(store.acquire(ask)).expect("an answer");
            match self.fault {
                Fault::GrantsAll => outcome.granted = ask.want,
                Fault::ChargesDenials if outcome.granted == 0 && ask.want > 0 => {
                    let one: Vec<_> = ask.charges.iter().map(|charge| charge.cost(1)).collect();
                    at_once(store.acquire(&Ask::new(&one))).expect("an answer");
                }
                Fault::ChargesOneByOne if outcome.granted == 0 && ask.charges.len() > 1 => {
                    for charge in ask.charges {
                        at_once(store.acquire(&Ask::new(&[*charge]))).expect("an answer");
                    }
                }
                _ => {}
            }
            outcome
        });
        self.answer(outcome)
    }

    fn give_back(&self, ask: &Ask<'_>, times: u32, stamp: Stamp) -> StoreFuture<()> {
        match self.fault {
            Fault::GivesNothingBack => StoreFuture::ready(Ok(())),
            Fault::GivesBackByAnyStamp if stamp == Stamp::default() => self.charges(ask, Store::reset),
            _ => self.charges(ask, |store, ask| store.give_back(ask, times, stamp)),
        }
    }

    fn charge(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let outcome = self.charges(ask, |store, ask| match self.fault {
            Fault::ChargesWhatFits => at_once(store.acquire(ask)),
            _ => at_once(store.charge(ask)),
        });
        self.answer(outcome.expect("an answer"))
    }

    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let outcome = self.charges(ask, |store, ask| {
            let outcome = at_once(store.peek(ask));
            if self.fault == Fault::ChargesOnPeek {
                at_once(store.acquire(ask)).expect("an answer");
            }
            outcome
        });
        self.answer(outcome.expect("an answer"))
    }

    fn reset(&self, ask: &Ask<'_>) -> StoreFuture<()> {
        match self.fault {
            Fault::ResetsNothing => StoreFuture::ready(Ok(())),
            _ => self.charges(ask, Store::reset),
        }
    }

    fn block(&self, ask: &Ask<'_>, time: Duration) -> StoreFuture<()> {
        self.charges(ask, |store, ask| store.block(ask, time))
    }
}

struct FaultyHarness {
    clock: ManualClock,
    fault: Fault,
}

impl Harness for FaultyHarness {
    type Store = Faulty;

    async fn store(&self) -> Faulty {
        Faulty {
            store: MemoryStore::builder().clock(self.clock.clock()).build(),
            fault: self.fault,
        }
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

#[test]
fn the_suite_names_the_rule_that_a_store_breaks() {
    let mut missed = Vec::new();
    for (fault, rule) in FAULTS {
        let harness = FaultyHarness {
            clock: ManualClock::new(),
            fault,
        };
        let run = catch_unwind(AssertUnwindSafe(|| at_once(conformance(&harness))));
        let message = run.expect_err(&format!("{fault:?} was not found"));
        let message = message.downcast_ref::<String>().expect("a message");
        let found = message.contains(rule) && message.contains(" per minute");
        missed.extend((!found).then(|| format!("{fault:?} was found as {message}")));
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
