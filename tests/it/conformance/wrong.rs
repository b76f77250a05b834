//! Stores that are right but for one thing, which the suite must find.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tollgate::store::{
    Ask, Charge, ChargeState, Correction, Mode, Outcome, Retry, Stamp, StoreError, StoreFuture,
};
use tollgate::testing::{Harness, conformance};
use tollgate::{Algorithm, Clock, Key, ManualClock, MemoryStore, Penalty, PolicyName, Quota, Store};

use super::step_back;
use crate::embedded::at_once;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    NeverAnswers,
    NeverTakesBack,
    WedgesWhenDropped,
    LocksInAnyOrder,
    GivesBackTheFirst,
    GivesBackTwice,
    ChargesTheFirst,
    SettlesTheFirst,
    SettlesOnceAKey,
    LooksAtTheFirst,
    ResetsTheFirst,
    ResetsAllPolicies,
    ChargesUnheld,
    ChargesAsOftenAsWanted,
    ChargesAHundredAtMost,
    CutsCostsTo32Bits,
    WantsAThousandAtMost,
    GrantsThreeCharges,
    GrantsAboveAMillion,
    GrantsLongWindows,
    GrantsShortWindows,
    GrantsTheLargestLog,
    LowersPolicies,
    CutsPolicies,
    CutsKeys,
    ForgetsManyKeys,
    CountsWithoutTicks(Algorithm),
    ForgetsWhenSteppedBack,
    NeverStepsBack,
    IgnoresPenalties,
    PunishesShadows,
    PunishesAllPolicies,
    CountsDeniedAsksOnce,
    ProlongsBlocks,
    TellsNoBlocks,
    BlocksNobody,
    PardonsNobody,
    ResetsNoPenalties,
    CountsForever,
    GrowsForever,
}

use Wrong::*;

/// Each fault, and what the suite says of it.
const FOUND: [(Wrong, &str); 41] = [
    (NeverAnswers, "no answer within 50ms"),
    (
        NeverTakesBack,
        "what was granted can be given back, with 10 per minute: no answer",
    ),
    (
        WedgesWhenDropped,
        "a dropped ask harms nobody else, with 10 per minute: no answer",
    ),
    (
        LocksInAnyOrder,
        "concurrent asks share the limit, with 10 per minute: no answer",
    ),
    (GivesBackTheFirst, "all charges of an ask are given back"),
    (GivesBackTwice, "all charges of an ask are given back"),
    (ChargesTheFirst, "a charge is of all charges of the ask"),
    (
        SettlesTheFirst,
        "corrections made together do what each does alone",
    ),
    (
        SettlesOnceAKey,
        "corrections made together do what each does alone",
    ),
    (LooksAtTheFirst, "a look is at all charges of an ask"),
    (ResetsTheFirst, "a reset forgets its counters"),
    (ResetsAllPolicies, "a reset forgets its counters only"),
    (
        ChargesUnheld,
        "a charge is of all charges of the ask, once, held as asked for",
    ),
    (
        ChargesAsOftenAsWanted,
        "a charge is of all charges of the ask, once",
    ),
    (
        ChargesAHundredAtMost,
        "what a charge exceeds the limit by is counted",
    ),
    (CutsCostsTo32Bits, "denials are free"),
    (WantsAThousandAtMost, "as often as it is wanted"),
    (GrantsThreeCharges, "all charges of an ask or none"),
    (
        GrantsAboveAMillion,
        "of any size are exact, with 1000003 per millisecond",
    ),
    (
        GrantsLongWindows,
        "of any size are exact, with 10 per 1001000001 microseconds",
    ),
    (
        GrantsShortWindows,
        "of any size are exact, with 10 per millisecond",
    ),
    (
        GrantsTheLargestLog,
        "of any size are exact, with 4096 per millisecond",
    ),
    (LowersPolicies, "tell counters apart"),
    (CutsPolicies, "tell counters apart"),
    (CutsKeys, "tell counters apart"),
    (ForgetsManyKeys, "as many counters as there are keys are kept"),
    (
        CountsWithoutTicks(Algorithm::SlidingCounter),
        "time counts in ticks",
    ),
    (CountsWithoutTicks(Algorithm::TokenBucket), "time counts in ticks"),
    (ForgetsWhenSteppedBack, "a clock that steps back"),
    (NeverStepsBack, "holds no block for longer"),
    (IgnoresPenalties, "denied too often is blocked"),
    (PunishesShadows, "blocked and pardoned by hand"),
    (PunishesAllPolicies, "count for the policies that had no room"),
    (CountsDeniedAsksOnce, "count for the policies that had no room"),
    (ProlongsBlocks, "denied too often is blocked"),
    (TellsNoBlocks, "denied too often is blocked"),
    (BlocksNobody, "blocked and pardoned by hand"),
    (PardonsNobody, "blocked and pardoned by hand"),
    (ResetsNoPenalties, "blocked and pardoned by hand"),
    (CountsForever, "counted from the first of them on"),
    (GrowsForever, "up to the longest"),
];

/// A right store behind a fault. Clones are one store.
#[derive(Clone)]
struct Faulty {
    store: MemoryStore,
    fault: Wrong,
    seen: Arc<Mutex<Seen>>,
}

/// What a fault needs to know.
#[derive(Default)]
struct Seen {
    locked: HashSet<(Key, PolicyName)>,
    charges: Vec<Owned>,
    keys: HashSet<Key>,
    latest: Stamp,
    /// Times and units of what was charged.
    counted: HashMap<(Key, Quota), Vec<(u64, u64)>>,
}

type Owned = (Key, PolicyName, Quota, u64, Mode, Option<Penalty>);

fn owned(charge: &Charge<'_>) -> Owned {
    (
        charge.key.clone(),
        charge.policy.clone(),
        charge.quota,
        charge.cost,
        charge.mode,
        charge.penalty.copied(),
    )
}

fn with<T>(charges: &[Owned], ask: impl FnOnce(&Ask<'_>) -> T) -> T {
    let charges: Vec<_> = charges
        .iter()
        .map(|(key, policy, quota, cost, mode, penalty)| {
            let mut charge = Charge::new(key, policy, *quota).cost(*cost).mode(*mode);
            charge.penalty = penalty.as_ref();
            charge
        })
        .collect();
    ask(&Ask::new(&charges))
}

fn first<'a>(ask: &Ask<'a>) -> Ask<'a> {
    let mut first = *ask;
    first.charges = &ask.charges[..ask.charges.len().min(1)];
    first
}

/// Is woken and polled so many times before it is ready.
struct Turns(u32);

impl Future for Turns {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Faulty {
    /// Calls `then` with the ask as the fault makes it.
    fn changed<T>(&self, ask: &Ask<'_>, then: impl FnOnce(&MemoryStore, &Ask<'_>) -> T) -> T {
        let charges: Vec<_> = ask
            .charges
            .iter()
            .map(|charge| {
                let (mut key, mut policy, quota, mut cost, mut mode, mut penalty) = owned(charge);
                let renamed = match self.fault {
                    LowersPolicies => policy.as_str().to_lowercase(),
                    CutsPolicies => policy.as_str().chars().take(32).collect(),
                    _ => policy.to_string(),
                };
                policy = PolicyName::new(renamed).expect("a name");
                match self.fault {
                    CutsCostsTo32Bits => cost &= u64::from(u32::MAX),
                    IgnoresPenalties => penalty = None,
                    PunishesShadows if penalty.is_some() => mode = Mode::Enforce,
                    CountsForever if penalty == Some(Penalty::after(2, MINUTE / 4)) => {
                        penalty = Some(Penalty::after(2, YEAR));
                    }
                    GrowsForever => {
                        let grows = Penalty::after(1, MINUTE).block_for(MINUTE / 16);
                        if penalty == Some(grows.growing(2, MINUTE / 16 * 3)) {
                            penalty = Some(grows.growing(2, YEAR));
                        }
                    }
                    CutsKeys if key.as_bytes().len() > 100 => key = Key::from(&key.as_bytes()[..100]),
                    _ => {}
                }
                (key, policy, quota, cost, mode, penalty)
            })
            .collect();
        let want = match self.fault {
            WantsAThousandAtMost => ask.want.min(1_000),
            _ => ask.want,
        };
        with(&charges, |changed| {
            then(&self.store, &changed.want(want).hold(ask.hold))
        })
    }

    fn grants_anything(&self, ask: &Ask<'_>) -> bool {
        let mut charges = ask.charges.iter().filter(|charge| !charge.quota.is_unlimited());
        match self.fault {
            GrantsThreeCharges => ask.charges.len() > 2,
            GrantsAboveAMillion => charges.any(|charge| charge.quota.limit() > Some(1_000_000)),
            GrantsLongWindows => charges.any(|charge| charge.quota.window() > Duration::from_secs(1_000)),
            GrantsShortWindows => charges.any(|charge| charge.quota.window() < Duration::from_secs(1)),
            GrantsTheLargestLog => charges.any(|charge| {
                (
                    charge.quota.algorithm(),
                    charge.quota.limit(),
                    charge.quota.slot_count(),
                ) == (Some(Algorithm::SlidingWindow), Some(4_096), None)
            }),
            _ => false,
        }
    }

    /// Acquires, with what may be wrong about penalties.
    fn acquire_punished(&self, store: &MemoryStore, ask: &Ask<'_>) -> Result<Outcome, StoreError> {
        if self.fault == CountsDeniedAsksOnce && ask.want > 1 {
            let bare: Vec<_> = ask.charges.iter().map(without_penalty).collect();
            let mut outcome = at_once(store.acquire(&Ask::new(&bare).want(ask.want).hold(ask.hold)))?;
            if outcome.granted < ask.want {
                let denied = at_once(store.acquire(&ask.want(1)))?;
                for (state, denied) in outcome.states.iter_mut().zip(&denied.states) {
                    *state =
                        ChargeState::new(state.charged, denied.remaining, denied.retry, denied.reset_after)
                            .blocked(denied.blocked);
                }
            }
            return Ok(outcome);
        }
        let mut outcome = at_once(store.acquire(ask))?;
        let is_blocked = outcome.states.iter().any(|state| state.blocked);
        match self.fault {
            PunishesAllPolicies if outcome.granted == 0 && ask.charges.len() > 1 => {
                for charge in ask.charges {
                    at_once(store.acquire(&Ask::new(&[charge.cost(u64::MAX)])))?;
                }
            }
            ProlongsBlocks if is_blocked => at_once(store.block(ask, Duration::from_secs(90)))?,
            TellsNoBlocks => outcome.states.iter_mut().for_each(|state| state.blocked = false),
            _ => {}
        }
        Ok(outcome)
    }

    /// Answers, and remembers what was charged.
    fn answer(&self, ask: &Ask<'_>, mut outcome: Outcome) -> Outcome {
        let mut seen = self.seen.lock().expect("no panic");
        let now = outcome.now.as_micros();
        let back = outcome.now < seen.latest;
        seen.latest = seen.latest.max(outcome.now);
        for (charge, state) in ask.charges.iter().zip(&mut outcome.states) {
            if self.fault == ForgetsWhenSteppedBack && back {
                *state = ChargeState::new(ask.want, 10, Retry::Now, Duration::ZERO);
            }
            let counter = (charge.key.clone(), charge.quota);
            let counted = seen.counted.entry(counter).or_default();
            counted.push((now, charge.cost.saturating_mul(u64::from(state.charged))));
            if self.fault == ForgetsWhenSteppedBack && back {
                outcome.granted = ask.want;
            }
            if matches!(self.fault, CountsWithoutTicks(algorithm) if charge.quota.algorithm() == Some(algorithm))
                && u128::from(charge.quota.limit().unwrap_or(0)) * charge.quota.window().as_micros()
                    >= 1 << 52
            {
                state.remaining = exactly_remaining(charge.quota, counted, now);
            }
        }
        outcome
    }
}

fn without_penalty<'a>(charge: &Charge<'a>) -> Charge<'a> {
    let mut charge = *charge;
    charge.penalty = None;
    charge
}

const MINUTE: Duration = Duration::from_secs(60);
const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// What is left where times are not cut to ticks.
fn exactly_remaining(quota: Quota, counted: &[(u64, u64)], now: u64) -> u64 {
    let window = quota.window().as_micros();
    let limit = quota.limit().unwrap_or(0);
    let used = match quota.rate() {
        Some(rate) => {
            let (mut at, mut debt) = (0, 0);
            for &(time, units) in counted.iter().chain(&[(now, 0)]) {
                debt =
                    u128::saturating_sub(debt, u128::from(time - at) * u128::from(rate.units_per_window()));
                debt += u128::from(units) * window;
                at = time;
            }
            debt.div_ceil(window)
        }
        None => {
            let index = |time: u64| u128::from(time) / window;
            let units = |wanted| -> u128 {
                let inside = counted.iter().filter(|(time, _)| index(*time) == wanted);
                inside.map(|(_, units)| u128::from(*units)).sum()
            };
            let rest = window - u128::from(now) % window;
            units(index(now)) + (units(index(now) - 1) * rest).div_ceil(window)
        }
    };
    u64::try_from(u128::from(limit).saturating_sub(used)).expect("below the limit")
}

impl Store for Faulty {
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let charges: Vec<_> = ask.charges.iter().map(owned).collect();
        let (this, want, hold) = (self.clone(), ask.want, ask.hold);
        match self.fault {
            NeverAnswers => return StoreFuture::waiting(std::future::pending()),
            WedgesWhenDropped | LocksInAnyOrder => {
                return StoreFuture::waiting(async move {
                    let locks = this.locks(&charges);
                    for lock in &locks {
                        while !this.seen.lock().expect("no panic").locked.insert(lock.clone()) {
                            Turns(1).await;
                        }
                        Turns(1).await;
                    }
                    let outcome = with(&charges, |ask| {
                        at_once(this.store.acquire(&ask.want(want).hold(hold)))
                    });
                    let mut seen = this.seen.lock().expect("no panic");
                    seen.locked.retain(|lock| !locks.contains(lock));
                    drop(seen);
                    outcome
                });
            }
            _ => {}
        }
        self.remember(&charges);
        let outcome = if self.grants_anything(ask) {
            let mut outcome = at_once(self.store.peek(ask)).expect("an answer");
            outcome.granted = ask.want;
            outcome
        } else {
            let outcome = self.changed(ask, |store, ask| self.acquire_punished(store, ask));
            self.answer(ask, outcome.expect("an answer"))
        };
        StoreFuture::ready(Ok(outcome))
    }

    fn give_back(&self, ask: &Ask<'_>, times: u32, stamp: Stamp) -> StoreFuture<()> {
        match self.fault {
            NeverTakesBack => return StoreFuture::waiting(std::future::pending()),
            GivesBackTheFirst => return self.store.give_back(&first(ask), times, stamp),
            GivesBackTwice => at_once(self.store.give_back(ask, times, stamp)).expect("an answer"),
            _ => {}
        }
        self.changed(ask, |store, ask| store.give_back(ask, times, stamp))
    }

    fn charge(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let outcome = self.changed(ask, |store, ask| match self.fault {
            ChargesTheFirst => {
                at_once(store.charge(&first(ask))).expect("an answer");
                let mut outcome = at_once(store.peek(ask)).expect("an answer");
                outcome.granted = 1;
                outcome.states.iter_mut().for_each(|state| state.charged = 1);
                outcome
            }
            ChargesUnheld => at_once(store.charge(&ask.hold(Duration::ZERO))).expect("an answer"),
            ChargesAsOftenAsWanted => {
                for _ in 1..ask.want {
                    at_once(store.charge(ask)).expect("an answer");
                }
                at_once(store.charge(ask)).expect("an answer")
            }
            ChargesAHundredAtMost => {
                let charges: Vec<_> = ask
                    .charges
                    .iter()
                    .map(|charge| charge.cost(charge.cost.min(100)))
                    .collect();
                let small = ask.charges.iter().all(|charge| charge.quota.limit() == Some(10));
                let mut cut = *ask;
                cut.charges = if small { &charges } else { ask.charges };
                at_once(store.charge(&cut)).expect("an answer")
            }
            _ => at_once(store.charge(ask)).expect("an answer"),
        });
        StoreFuture::ready(Ok(self.answer(ask, outcome)))
    }

    fn settle(&self, corrections: &[Correction<'_>]) -> StoreFuture<()> {
        let mut keys = HashSet::new();
        let mut made: Vec<_> = corrections.to_vec();
        match self.fault {
            SettlesTheFirst => made.truncate(1),
            SettlesOnceAKey => made.retain(|correction| {
                let mut charges = correction.ask.charges.iter();
                charges.all(|charge| keys.insert(charge.key))
            }),
            _ => {}
        }
        self.store.settle(&made)
    }

    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let outcome = self.changed(ask, |store, ask| {
            let mut outcome = at_once(store.peek(ask)).expect("an answer");
            if self.fault == LooksAtTheFirst {
                outcome.granted = at_once(store.peek(&first(ask))).expect("an answer").granted;
            }
            outcome
        });
        StoreFuture::ready(Ok(self.answer(ask, outcome)))
    }

    fn reset(&self, ask: &Ask<'_>) -> StoreFuture<()> {
        for charge in ask.charges {
            let counter = (charge.key.clone(), charge.quota);
            self.seen.lock().expect("no panic").counted.remove(&counter);
        }
        match self.fault {
            ResetsTheFirst => self.store.reset(&first(ask)),
            ResetsNoPenalties => {
                let bare: Vec<_> = ask.charges.iter().map(without_penalty).collect();
                self.store.reset(&Ask::new(&bare))
            }
            ResetsAllPolicies => {
                for (key, policy, quota, ..) in &self.seen.lock().expect("no panic").charges {
                    if ask.charges.iter().any(|charge| charge.key == key) {
                        let reset = self.store.reset(&Ask::new(&[Charge::new(key, policy, *quota)]));
                        at_once(reset).expect("an answer");
                    }
                }
                StoreFuture::ready(Ok(()))
            }
            _ => self.changed(ask, Store::reset),
        }
    }

    fn block(&self, ask: &Ask<'_>, time: Duration) -> StoreFuture<()> {
        match self.fault {
            BlocksNobody if !time.is_zero() => StoreFuture::ready(Ok(())),
            PardonsNobody if time.is_zero() => StoreFuture::ready(Ok(())),
            _ => self.changed(ask, |store, ask| store.block(ask, time)),
        }
    }
}

impl Faulty {
    /// What an ask locks, in this order.
    fn locks(&self, charges: &[Owned]) -> Vec<(Key, PolicyName)> {
        if self.fault == WedgesWhenDropped {
            return vec![(Key::from("all"), PolicyName::new("all").expect("a name"))];
        }
        let mut locks: Vec<_> = charges
            .iter()
            .map(|(key, policy, ..)| (key.clone(), policy.clone()))
            .collect();
        let mut known = HashSet::new();
        locks.retain(|lock| known.insert(lock.clone()));
        locks
    }

    fn remember(&self, charges: &[Owned]) {
        let mut seen = self.seen.lock().expect("no panic");
        seen.charges.extend_from_slice(charges);
        seen.keys.extend(charges.iter().map(|(key, ..)| key.clone()));
        if self.fault == ForgetsManyKeys && seen.keys.len() > 1_000 {
            with(&seen.charges, |ask| at_once(self.store.reset(ask))).expect("an answer");
            seen.keys.clear();
        }
    }
}

struct FaultyHarness {
    clock: ManualClock,
    fault: Wrong,
}

impl Harness for FaultyHarness {
    type Store = Faulty;

    async fn store(&self) -> Faulty {
        let clock = match self.fault {
            NeverStepsBack => {
                let (clock, latest) = (self.clock.clone(), Mutex::new(Duration::ZERO));
                Clock::from_fn(move || {
                    let mut latest = latest.lock().expect("no panic");
                    *latest = clock.now().max(*latest);
                    *latest
                })
            }
            _ => self.clock.clock(),
        };
        Faulty {
            store: MemoryStore::builder().clock(clock).build(),
            fault: self.fault,
            seen: Arc::default(),
        }
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn step_back(&self, by: Duration) -> bool {
        step_back(&self.clock, by)
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(50)
    }
}

/// In a runtime that has no timers: the suite needs none.
#[test]
fn the_suite_finds_stores_that_are_right_but_for_one_thing() {
    let mut missed = Vec::new();
    for (fault, rule) in FOUND {
        let harness = FaultyHarness {
            clock: ManualClock::new(),
            fault,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let run = catch_unwind(AssertUnwindSafe(|| runtime.block_on(conformance(&harness))));
        let message = match &run {
            Ok(()) => "nothing",
            Err(message) => message.downcast_ref::<String>().expect("a message"),
        };
        missed.extend((!message.contains(rule)).then(|| format!("{fault:?} was found as {message}")));
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
