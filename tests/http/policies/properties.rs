//! C2, C5 and settling, against a model that fits on a page.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tollgate::store::{AnyStore, Mode};
use tollgate::{ChargeHandle, Decision, Limiter, ManualClock, MemoryStore, Policy, PolicyMode, Quota, key};

use super::model::Model;
use super::{LONG, Place, YEAR, left_by};
use crate::support::within;

/// What is done to a limiter of several policies.
#[derive(Clone, Copy, Debug)]
enum Step {
    Check {
        key: usize,
        cost: u64,
    },
    Reserve {
        key: usize,
        cost: u64,
    },
    /// Of the reservations so far, one.
    Settle {
        which: usize,
        policy: usize,
        real: u64,
    },
    GiveBack {
        which: usize,
    },
    Limit {
        policy: usize,
        limit: u64,
    },
    Switch {
        policy: usize,
        mode: PolicyMode,
    },
    Reset {
        key: usize,
    },
    /// Only where the test has the clock.
    Wait {
        seconds: u64,
    },
}

const KEYS: [&str; 2] = ["ann", "ben"];
const POLICIES: [&str; 3] = ["a", "b", "c"];
const LIMITS: [u64; 3] = [8, 12, 15];

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS.len();
    let policy = || 0..POLICIES.len();
    let mode = prop_oneof![
        2 => Just(PolicyMode::Enforce),
        1 => Just(PolicyMode::Shadow),
        1 => Just(PolicyMode::Off)
    ];
    prop_oneof![
        6 => (key(), 0..=5_u64).prop_map(|(key, cost)| Step::Check { key, cost }),
        6 => (key(), 0..=5_u64).prop_map(|(key, cost)| Step::Reserve { key, cost }),
        4 => (0..64_usize, policy(), 0..=7_u64)
            .prop_map(|(which, policy, real)| Step::Settle { which, policy, real }),
        2 => (0..64_usize).prop_map(|which| Step::GiveBack { which }),
        1 => (policy(), 0..=20_u64).prop_map(|(policy, limit)| Step::Limit { policy, limit }),
        1 => (policy(), mode).prop_map(|(policy, mode)| Step::Switch { policy, mode }),
        1 => key().prop_map(|key| Step::Reset { key }),
        2 => (1..=40_u64).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

/// What was charged of each policy that counts: when, units, and whether it is settled.
type Items = [Option<(u64, u64, bool)>; 3];

/// What was reserved.
struct Reserved {
    handle: ChargeHandle,
    key: usize,
    items: Items,
    /// Its key was reset since, so nothing is given back.
    is_void: bool,
}

/// A limiter beside its model.
struct Pair {
    limiter: Limiter,
    model: Model,
    clock: Option<ManualClock>,
    reserved: Vec<Reserved>,
}

impl Pair {
    fn new(store: AnyStore, clock: Option<ManualClock>) -> Self {
        let windows = match clock {
            Some(_) => [60, 90, 60].map(Duration::from_secs),
            None => [YEAR; 3],
        };
        let [a, b, c] = [0, 1, 2].map(|index| {
            Policy::new(
                POLICIES[index],
                Quota::new(LIMITS[index], windows[index]),
                key::Global,
            )
        });
        let first = Quota::new(LIMITS[0], windows[0]);
        let limiter = Limiter::new(store, first).name(a.handle().name().as_str());
        Self {
            limiter: limiter.policy(b).policy(c).deadline(LONG),
            model: Model {
                limits: LIMITS,
                modes: [PolicyMode::Enforce; 3],
                windows: windows.map(|window| window.as_micros() as u64),
                logs: BTreeMap::new(),
            },
            clock,
            reserved: Vec::new(),
        }
    }

    async fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Check { key, cost } => {
                let before = self.limiter.peek(KEYS[key]).await;
                let decision = self.limiter.check_cost(KEYS[key], cost).await;
                let after = self.limiter.peek(KEYS[key]).await;
                self.compare(key, cost, &decision, [&before, &after])?;
            }
            Step::Reserve { key, cost } => {
                let before = self.limiter.peek(KEYS[key]).await;
                let result = self.limiter.reserve(KEYS[key], cost).await;
                let decision = match &result {
                    Ok(handle) => handle.decision().clone(),
                    Err(decision) => decision.clone(),
                };
                let after = self.limiter.peek(KEYS[key]).await;
                let items = self.compare(key, cost, &decision, [&before, &after])?;
                if let Ok(handle) = result {
                    for (index, item) in items.iter().enumerate() {
                        let charged = handle.charged(POLICIES[index]);
                        prop_assert_eq!(charged, item.map(|(_, units, _)| units));
                    }
                    self.reserved.push(Reserved {
                        handle,
                        key,
                        items,
                        is_void: false,
                    });
                }
            }
            Step::Settle { which, policy, real } => self.settle(which, policy, real)?,
            Step::GiveBack { which } => {
                for policy in 0..POLICIES.len() {
                    self.settle_in_model(which, policy, 0);
                }
                if let Some(reserved) = self.pick(which) {
                    reserved.handle.give_back();
                }
            }
            Step::Limit { policy, limit } => {
                let window = Duration::from_micros(self.model.windows[policy]);
                self.limiter.policies()[policy].set_quota(Quota::new(limit, window));
                self.model.limits[policy] = limit;
            }
            Step::Switch { policy, mode } => {
                self.limiter.policies()[policy].set_mode(mode);
                self.model.modes[policy] = mode;
            }
            Step::Reset { key } => {
                // What is under way would come after it.
                prop_assert_eq!(self.limiter.shutdown().await, 0);
                prop_assert!(self.limiter.reset(KEYS[key]).await.is_ok());
                for policy in 0..POLICIES.len() {
                    self.model.logs.remove(&(policy, key));
                }
                let of_key = self.reserved.iter_mut().filter(|reserved| reserved.key == key);
                of_key.for_each(|reserved| reserved.is_void = true);
            }
            Step::Wait { seconds } => {
                if let Some(clock) = &self.clock {
                    clock.advance(Duration::from_secs(seconds));
                }
            }
        }
        prop_assert_eq!(self.limiter.shutdown().await, 0);
        Ok(())
    }

    fn pick(&self, which: usize) -> Option<&Reserved> {
        let count = self.reserved.len();
        self.reserved.get(which.checked_rem(count)?)
    }

    fn settle(&mut self, which: usize, policy: usize, real: u64) -> Result<(), TestCaseError> {
        let expected = self.settle_in_model(which, policy, real);
        if let Some(reserved) = self.pick(which) {
            prop_assert_eq!(reserved.handle.settle(POLICIES[policy], real), expected);
        }
        Ok(())
    }

    /// Whether there was something to settle.
    fn settle_in_model(&mut self, which: usize, policy: usize, real: u64) -> bool {
        let count = self.reserved.len();
        let Some(which) = which.checked_rem(count) else {
            return false;
        };
        let reserved = &mut self.reserved[which];
        let Some((time, units, is_settled @ false)) = &mut reserved.items[policy] else {
            return false;
        };
        *is_settled = true;
        let (key, time, units) = (reserved.key, *time, *units);
        if real < units && reserved.is_void {
            return true;
        }
        if real < units {
            self.model.give_back(policy, key, units - real, time);
        } else {
            // As of now, whenever it was reserved; nobody gives it back.
            let now = self
                .clock
                .as_ref()
                .map_or(time, |clock| clock.now().as_micros() as u64);
            self.model.charge(policy, key, real - units, now);
        }
        true
    }

    /// Compares a decision, and what was and is left, with the model, which is then charged. What of each policy was
    /// charged.
    fn compare(
        &mut self,
        key: usize,
        cost: u64,
        decision: &Decision,
        [before, after]: [&Decision; 2],
    ) -> Result<Items, TestCaseError> {
        let model = &mut self.model;
        prop_assert!(!decision.is_degraded());
        let now = decision.now().as_micros();
        let mut fits = [false; 3];
        for (policy, fits) in fits.iter_mut().enumerate() {
            *fits = model.fits(policy, key, cost, now);
        }
        let enforced = |policy: usize| model.modes[policy] == PolicyMode::Enforce;
        let allowed = (0..3).all(|policy| fits[policy] || !enforced(policy));
        prop_assert_eq!(decision.is_allowed(), allowed, "{:?}", decision);
        let violated: Vec<&str> = decision.violated().map(|policy| policy.name().as_str()).collect();
        let expected: Vec<&str> = (0..3)
            .filter(|&policy| enforced(policy) && !fits[policy])
            .map(|policy| POLICIES[policy])
            .collect();
        prop_assert_eq!(violated, expected);

        let mut items = [None; 3];
        for policy in 0..3 {
            let said = decision
                .policies()
                .iter()
                .find(|said| said.name().as_str() == POLICIES[policy]);
            if model.modes[policy] == PolicyMode::Off {
                prop_assert!(said.is_none());
                continue;
            }
            let said = said.expect("it counts");
            let charged = if allowed && fits[policy] { cost } else { 0 };
            model.charge(policy, key, charged, said.stamp().as_micros());
            items[policy] = Some((said.stamp().as_micros(), charged, false));
            prop_assert_eq!(said.remaining(), model.left(policy, key, now));
            prop_assert_eq!(left_by(after, POLICIES[policy]), model.left(policy, key, now));
            if said.mode() == Mode::Shadow {
                prop_assert_eq!(said.is_violated(), !fits[policy], "{:?}", said);
            }
        }
        if !allowed {
            // C2: a denial changes nothing. Where the clock stands, that is all that there is to see.
            if self.clock.is_some() {
                prop_assert_eq!(before, after);
            }
            for (before, after) in before.policies().iter().zip(after.policies()) {
                prop_assert_eq!(before.remaining(), after.remaining());
            }
        }
        Ok(items)
    }
}

fn check<T: std::fmt::Debug>(
    cases: u32,
    strategy: &impl Strategy<Value = T>,
    test: impl Fn(T) -> Result<(), TestCaseError>,
) {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if let Err(error) = TestRunner::new(config).run(strategy, test) {
        panic!("{error}");
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

async fn walk(mut pair: Pair, steps: Vec<Step>) -> Result<(), TestCaseError> {
    for (number, step) in steps.into_iter().enumerate() {
        let result = pair.step(step).await;
        result.map_err(|error| TestCaseError::fail(format!("step {number}, {step:?}: {error}")))?;
    }
    Ok(())
}

#[test]
fn decisions_and_settling_are_those_of_the_model_in_memory() {
    let runtime = runtime();
    check(400, &vec(step(), 1..80), |steps| {
        let clock = ManualClock::new();
        let store = AnyStore::Memory(MemoryStore::builder().clock(clock.clock()).build());
        runtime.block_on(walk(Pair::new(store, Some(clock)), steps))
    });
}

#[test]
fn decisions_and_settling_are_those_of_the_model_in_redis() {
    let runtime = runtime();
    let place = runtime.block_on(Place::redis());
    let number = AtomicU64::new(0);
    check(40, &vec(step(), 1..60), |steps| {
        let number = number.fetch_add(1, Ordering::SeqCst);
        runtime.block_on(async {
            let store = place.fresh_without_deny_cache(&format!("case-{number}")).await;
            walk(Pair::new(store, None), steps).await
        })
    });
}

/// What one of many tasks does: for whom, how much, and what it has really cost.
type Job = (usize, u64, u64);

/// All jobs at once. At no time is more than the limit reserved, and in the end exactly the real costs are there.
async fn at_once(store: AnyStore, jobs: Vec<Job>) -> Result<(), TestCaseError> {
    const LIMIT: u64 = 40;
    const ALL: u64 = 60;
    let limiter = Limiter::new(store, Quota::new(LIMIT, YEAR))
        .name("user")
        .policy(Policy::new("all", Quota::new(ALL, YEAR), key::Global))
        .deadline(LONG);
    let keys: [tollgate::Key; 3] = [KEYS[0].into(), KEYS[1].into(), "all".into()];
    let keys = Arc::new(keys);
    // Never more than the store holds: raised after a grant, lowered before a give-back.
    let held = Arc::new([const { AtomicU64::new(0) }; 3]);
    let mut tasks = JoinSet::new();
    for (user, cost, real) in jobs {
        let (limiter, keys, held) = (limiter.clone(), Arc::clone(&keys), Arc::clone(&held));
        tasks.spawn(async move {
            let key_of = |policy: &str| if policy == "all" { &keys[2] } else { &keys[user] };
            let handle = limiter.reserve_keys(cost, key_of).await.ok()?;
            let mut most = [0; 2];
            for (most, index) in most.iter_mut().zip([user, 2]) {
                *most = held[index].fetch_add(cost, Ordering::SeqCst) + cost;
            }
            tokio::task::yield_now().await;
            for (index, policy) in [(user, "user"), (2, "all")] {
                held[index].fetch_sub(cost - real, Ordering::SeqCst);
                assert!(handle.settle(policy, real));
            }
            Some((user, real, most))
        });
    }
    let mut used = [0; 3];
    for (user, real, most) in within(tasks.join_all()).await.into_iter().flatten() {
        prop_assert!(most[0] <= LIMIT && most[1] <= ALL, "{:?}", most);
        used[user] += real;
        used[2] += real;
    }
    prop_assert_eq!(limiter.shutdown().await, 0);
    for (index, policy, limit) in [(0, "user", LIMIT), (1, "user", LIMIT), (2, "all", ALL)] {
        let peeked = limiter
            .only(policy)
            .expect("it is there")
            .peek(&keys[index])
            .await;
        prop_assert_eq!(
            limit - left_by(&peeked, policy),
            used[index],
            "{} {}",
            policy,
            index
        );
    }
    Ok(())
}

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let job = (0..2_usize, 1..=9_u64).prop_flat_map(|(user, cost)| (Just(user), Just(cost), 0..=cost));
    vec(job, 1..80)
}

#[test]
fn settling_at_once_adds_up_in_memory() {
    let runtime = runtime();
    check(64, &jobs(), |jobs| {
        runtime.block_on(at_once(AnyStore::Memory(MemoryStore::new()), jobs))
    });
}

#[test]
fn settling_at_once_adds_up_in_redis() {
    let runtime = runtime();
    let place = runtime.block_on(Place::redis());
    let number = AtomicU64::new(0);
    check(24, &jobs(), |jobs| {
        let number = number.fetch_add(1, Ordering::SeqCst);
        runtime.block_on(async {
            let store = place.fresh(&format!("case-{number}")).await;
            at_once(store, jobs).await
        })
    });
}
