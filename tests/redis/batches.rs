//! C4, C5, C12: asks of every kind that travel in one call take what they would take one after another.
//!
//! The embedded store is asked the same in order of arrival, at the same time, with equal asks as one. What is held by both
//! must be the same afterwards, and so must the answers.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::Builder;
use tollgate::store::{Ask, Charge, Correction, Mode, Outcome, Stamp, StoreError, StoreFuture};
use tollgate::testing::Harness;
use tollgate::{Key, MemoryStore, Penalty, PolicyName, Quota, RedisStore, Store};

use crate::conformance::ByHand;
use crate::model::Terms;
use crate::server::{Server, Version};
use crate::steps::any_rule;
use crate::support::LONG;

const WINDOW: i128 = 60_000_000;

/// Counters, asks of them, and when how many of these arrive together.
#[derive(Clone, Debug)]
struct Plan {
    counters: Vec<Counter>,
    asks: Vec<PlannedAsk>,
    rounds: Vec<Round>,
}

#[derive(Clone, Debug)]
struct Counter {
    /// `None` if it is unlimited.
    terms: Option<Terms>,
    key: usize,
    penalty: Option<Penalty>,
}

#[derive(Clone, Debug)]
struct PlannedAsk {
    charges: Vec<PlannedCharge>,
    want: u32,
    hold: Duration,
}

#[derive(Clone, Debug)]
struct PlannedCharge {
    counter: usize,
    cost: u64,
    shadow: bool,
    penalized: bool,
}

#[derive(Clone, Debug)]
struct Round {
    wait: Duration,
    /// Which of the asks arrive.
    arrive: Vec<usize>,
    /// Of earlier grants, counted from the last: how many are given back afterwards.
    back: Vec<(usize, u32)>,
}

fn any_counter() -> impl Strategy<Value = Counter> {
    let terms = (any_rule(), 0i128..15, 1i128..15).prop_map(|(rule, limit, rate)| Terms {
        rule,
        window: WINDOW,
        limit,
        rate,
    });
    let penalty = (1u32..8, 1u64..40, 1u64..40, 1u32..3).prop_map(|(denials, within, block, factor)| {
        let [within, block] = [within, block].map(Duration::from_secs);
        Penalty::after(denials, within)
            .block_for(block)
            .growing(factor, Duration::from_secs(60))
    });
    let terms = prop_oneof![9 => terms.prop_map(Some), 1 => Just(None)];
    let penalty = prop_oneof![2 => Just(None), 1 => penalty.prop_map(Some)];
    (terms, 0..3_usize, penalty).prop_map(|(terms, key, penalty)| Counter { terms, key, penalty })
}

fn any_ask() -> impl Strategy<Value = PlannedAsk> {
    let charge = (
        0..6_usize,
        prop_oneof![4 => Just(1u64), 1 => 0u64..4],
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.7),
    )
        .prop_map(|(counter, cost, shadow, penalized)| PlannedCharge {
            counter,
            cost,
            shadow,
            penalized,
        });
    let hold = prop_oneof![
        9 => Just(Duration::ZERO),
        1 => (0u64..1_000_000).prop_map(Duration::from_micros)
    ];
    let want = prop_oneof![2 => Just(1u32), 1 => 0u32..5];
    (prop::collection::vec(charge, 1..4), want, hold).prop_map(|(charges, want, hold)| PlannedAsk {
        charges,
        want,
        hold,
    })
}

fn any_plan() -> impl Strategy<Value = Plan> {
    let wait = prop_oneof![
        1 => Just(0),
        2 => 0u64..2_000_000,
        2 => 0u64..70_000_000,
        1 => select(vec![1_000_000, 30_000_000, 60_000_000])
    ];
    let round = (
        wait.prop_map(Duration::from_micros),
        prop::collection::vec(0..8_usize, 2..20),
        prop::collection::vec((0..12_usize, 1u32..4), 0..4),
    )
        .prop_map(|(wait, arrive, back)| Round { wait, arrive, back });
    (
        prop::collection::vec(any_counter(), 6),
        prop::collection::vec(any_ask(), 8),
        prop::collection::vec(round, 1..8),
    )
        .prop_map(|(counters, asks, rounds)| Plan {
            counters,
            asks,
            rounds,
        })
}

/// The names and quotas of a plan's counters, which charges borrow.
struct Named {
    counters: Vec<(Key, PolicyName, Quota, Option<Penalty>)>,
}

impl Named {
    fn new(plan: &Plan) -> Self {
        let counters = plan.counters.iter().enumerate().map(|(number, counter)| {
            let quota = counter
                .terms
                .map_or(Quota::unlimited(), |terms: Terms| terms.quota());
            let name = PolicyName::new(format!("policy-{number}").as_str()).expect("a name");
            (
                Key::from(format!("key {}", counter.key)),
                name,
                quota,
                counter.penalty,
            )
        });
        Self {
            counters: counters.collect(),
        }
    }

    fn charges(&self, ask: &PlannedAsk) -> Vec<Charge<'_>> {
        let charge = |planned: &PlannedCharge| {
            let (key, policy, quota, penalty) = &self.counters[planned.counter];
            let charge = Charge::new(key, policy, *quota).cost(planned.cost);
            let charge = match planned.shadow {
                true => charge.mode(Mode::Shadow),
                false => charge,
            };
            match penalty {
                Some(penalty) if planned.penalized => charge.penalty(penalty),
                _ => charge,
            }
        };
        ask.charges.iter().map(charge).collect()
    }

    /// Whether a server is asked.
    fn is_counted(&self, ask: &PlannedAsk) -> bool {
        self.charges(ask).iter().any(|charge| {
            !charge.quota.is_unlimited() || charge.penalty.is_some() && charge.mode == Mode::Enforce
        })
    }
}

/// Whether two asks become one: they are equal in all that counts. A shadow that shares its counter gets its share after
/// all others of its ask, so these do not.
fn merge(one: &[Charge<'_>], other: &[Charge<'_>]) -> bool {
    type Counted<'a> = Option<(&'a Key, &'a PolicyName)>;
    fn counted<'a>(charge: &Charge<'a>) -> Counted<'a> {
        (!charge.quota.is_unlimited()).then_some((charge.key, charge.policy))
    }
    fn penalized<'a>(charge: &Charge<'a>) -> Counted<'a> {
        let heeded = charge.penalty.is_some() && charge.mode == Mode::Enforce;
        heeded.then_some((charge.key, charge.policy))
    }
    let equal = |(one, other): (&Charge<'_>, &Charge<'_>)| {
        (one.cost, one.mode) == (other.cost, other.mode)
            && counted(one) == counted(other)
            && penalized(one) == penalized(other)
    };
    let shares = |(at, shadow): (usize, &Charge<'_>)| {
        let mut others = one.iter().enumerate().filter(|(other, _)| *other != at);
        let counted_too = |(_, other)| counted(other) == counted(shadow);
        shadow.mode == Mode::Shadow && counted(shadow).is_some() && others.any(counted_too)
    };
    one.len() == other.len() && one.iter().zip(other).all(equal) && !one.iter().enumerate().any(shares)
}

/// The answers of all, which are first asked in order.
async fn all(mut answers: Vec<StoreFuture<Outcome>>) -> Vec<Result<Outcome, StoreError>> {
    let mut done: Vec<Option<_>> = answers.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (answer, done) in answers.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(answer) = Pin::new(answer).poll(cx)
            {
                *done = Some(answer);
            }
        }
        match done.iter().all(Option::is_some) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// Both stores, and what they have granted.
struct Pair<'a> {
    plan: &'a Plan,
    named: &'a Named,
    redis: RedisStore,
    memory: MemoryStore,
    /// Which ask, how often, when.
    grants: Vec<(usize, u32, Stamp)>,
}

impl Pair<'_> {
    async fn arrive(&mut self, round: &Round) {
        let counted = |ask: &&usize| self.named.is_counted(&self.plan.asks[**ask]);
        let arriving: Vec<usize> = round.arrive.iter().filter(counted).copied().collect();
        let charges: Vec<Vec<Charge<'_>>> = arriving
            .iter()
            .map(|&ask| self.named.charges(&self.plan.asks[ask]))
            .collect();
        let asks: Vec<Ask<'_>> = arriving
            .iter()
            .zip(&charges)
            .map(|(&ask, charges)| {
                let PlannedAsk { want, hold, .. } = self.plan.asks[ask];
                Ask::new(charges).want(want).hold(hold).deadline(LONG)
            })
            .collect();
        let before = self.redis.stats().calls;
        let answers = all(asks.iter().map(|ask| self.redis.acquire(ask)).collect()).await;
        let answers: Vec<Outcome> = answers
            .into_iter()
            .map(|answer| answer.expect("an answer"))
            .collect();
        let calls = self.redis.stats().calls - before;
        assert_eq!(
            calls,
            arriving.len().min(2) as u64,
            "the first alone, and all others"
        );

        // Who shares an ask, in order of arrival: nobody shares the first.
        let mut shares: Vec<Vec<usize>> = Vec::new();
        for at in 0..arriving.len() {
            let equal = |share: &&mut Vec<usize>| {
                let first = share[0];
                first > 0 && asks[first].hold == asks[at].hold && merge(&charges[first], &charges[at])
            };
            match shares.iter_mut().find(equal) {
                Some(share) => share.push(at),
                None => shares.push(vec![at]),
            }
        }
        for share in shares {
            let first = share[0];
            let want = share.iter().map(|&at| asks[at].want).sum();
            let expected = self.memory.acquire(&asks[first].want(want)).await;
            let expected = expected.expect("it always answers");
            if let [only] = *share {
                assert_eq!(told(&answers[only]), told(&expected), "{:?}", asks[only]);
            }
            let mut left = expected.granted;
            for at in share {
                let granted = asks[at].want.min(left);
                left -= granted;
                assert_eq!(answers[at].granted, granted, "{:?} of {expected:?}", asks[at]);
                if granted > 0 {
                    assert_eq!(answers[at].stamp, expected.stamp, "{:?}", asks[at]);
                    self.grants.push((arriving[at], granted, expected.stamp));
                }
            }
        }
    }

    /// Gives back in one call, each at most once.
    async fn give_back(&mut self, back: &[(usize, u32)]) {
        let mut given = Vec::new();
        for &(nth, times) in back {
            if let Some(at) = self.grants.len().checked_sub(nth + 1) {
                let (ask, granted, stamp) = self.grants.remove(at);
                given.push((
                    self.named.charges(&self.plan.asks[ask]),
                    times.min(granted),
                    stamp,
                ));
            }
        }
        let corrections: Vec<Correction<'_>> = given
            .iter()
            .map(|(charges, times, stamp)| {
                Correction::give_back(Ask::new(charges).deadline(LONG), *times, *stamp)
            })
            .collect();
        self.redis.settle(&corrections).await.expect("an answer");
        self.memory.settle(&corrections).await.expect("it always answers");
    }

    /// What is left of each counter, and who is blocked.
    async fn compare(&self, when: &str) {
        for (key, policy, quota, penalty) in &self.named.counters {
            if quota.is_unlimited() && penalty.is_none() {
                continue;
            }
            let charge = Charge::new(key, policy, *quota);
            let charges = [penalty.as_ref().map_or(charge, |penalty| charge.penalty(penalty))];
            let plain = [charge];
            let asks = match quota.is_unlimited() {
                true => vec![Ask::new(&charges)],
                false => vec![Ask::new(&charges), Ask::new(&plain)],
            };
            for ask in asks.into_iter().map(|ask| ask.want(20).deadline(LONG)) {
                let held = self.redis.peek(&ask).await.expect("an answer");
                let expected = self.memory.peek(&ask).await.expect("it always answers");
                assert_eq!(told(&held), told(&expected), "{when}: {ask:?}");
            }
        }
    }
}

/// All of an answer but the time of one about nothing that is counted, which is the store's own.
fn told(outcome: &Outcome) -> impl PartialEq + std::fmt::Debug + use<> {
    (outcome.granted, outcome.states.to_vec())
}

async fn run(plan: &Plan, harness: &ByHand) {
    let (named, redis) = (Named::new(plan), harness.one_call_at_a_time().await);
    let memory = MemoryStore::builder().clock(harness.clock.clock()).build();
    let mut pair = Pair {
        plan,
        named: &named,
        redis,
        memory,
        grants: Vec::new(),
    };
    for (number, round) in plan.rounds.iter().enumerate() {
        harness.advance(round.wait).await;
        // That tells the store the new time, too, without which the first call would come too late.
        pair.compare(&format!("before round {number}")).await;
        pair.arrive(round).await;
        pair.compare(&format!("after the asks of round {number}")).await;
        pair.give_back(&round.back).await;
        pair.compare(&format!("after what was given back in round {number}"))
            .await;
    }
}

/// On one thread, so that no answer comes before all have asked.
#[test]
fn c5_c12_mixed_batches_take_what_their_asks_take_one_after_another() {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    for version in Version::all() {
        let (server, harness) = runtime.block_on(async {
            let server = Server::start(version).await;
            let harness = ByHand::new(&server).await;
            (server, harness)
        });
        let seed = fastrand::u64(..);
        let config = Config {
            cases: 40,
            failure_persistence: None,
            ..Config::default()
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        TestRunner::new_with_rng(config, rng)
            .run(&any_plan(), |plan| {
                runtime.block_on(run(&plan, &harness));
                Ok(())
            })
            .unwrap_or_else(|error| panic!("seed {seed}, {version:?}: {error}"));
        drop(server);
    }
}
