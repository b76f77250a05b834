//! Random sequences of everything that a store can be asked, and their run against the model.
//!
//! The model is given the times that the store reports, so the same run works for a store with any clock.

#[path = "steps/penalties.rs"]
mod penalties;

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tollgate::store::{Ask, Correction, Mode, Outcome, Retry, Stamp};
use tollgate::{Key, MAX_UNITS, ManualClock, Penalty, PolicyName, Store, store};

pub(crate) use self::penalties::any_offences;
use self::penalties::{any_block, any_penalties};
use crate::model::{Charge, Model, Punishment, Rule, Terms, micros};

/// What moves the time of a store's clock.
pub(crate) trait Time {
    /// Forward or back.
    fn step(&self, by: i128);

    /// Whether the store tells this clock's time even when it is asked about nothing that is counted.
    fn is_told_without_counters(&self) -> bool {
        true
    }
}

impl Time for ManualClock {
    fn step(&self, by: i128) {
        // Up to the last time that stores tell from later ones.
        let now = self.now().as_micros() as i128 + by;
        self.set(micros(now.clamp(0, 1 << 52)));
    }
}

/// A sequence: counters with the terms that they change between, and what happens to them.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) counters: Vec<Vec<Terms>>,
    /// The penalties that each counter's charges may carry.
    pub(crate) penalties: Vec<Vec<Punishment>>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Move(Move),
    Acquire(Vec<Part>, u32, Duration),
    Charge(Vec<Part>, Duration),
    Peek(Vec<Part>, u32),
    /// Gives back some grants of an earlier ask, the last ones being 0, 1, ..
    GiveBack(usize, u32),
    /// Corrects several at once.
    Settle(Vec<Amend>),
    Reset(Vec<Part>),
    /// For some microseconds.
    Block(Vec<Part>, i128),
    /// Asks with this many new keys, which make a store look for what it can drop.
    Others(u32),
}

#[derive(Clone, Debug)]
pub(crate) enum Amend {
    /// As [`Step::GiveBack`].
    GiveBack(usize, u32),
    /// As [`Step::Charge`].
    Charge(Vec<Part>, Duration),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    By(i128),
    /// A share of the first counter's window in thousandths, and some microseconds.
    Windows(i128, i128),
    /// To the last hint when to come again, or a microsecond before or after.
    Retry(i128),
    /// To the next time at which a penalty has forgotten somebody, or a microsecond before or after.
    Pardon(i128),
}

/// A charge of an ask: which counter, under which of its terms, and how much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    counter: usize,
    terms: usize,
    cost: Cost,
    shadow: bool,
    /// Which of the penalties; without, or where there are none, none.
    penalty: Option<usize>,
}

impl Part {
    /// Units of the first counter.
    pub(crate) fn units(units: u64) -> Self {
        Self {
            counter: 0,
            terms: 0,
            cost: Cost::Units(units),
            shadow: false,
            penalty: None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cost {
    Units(u64),
    /// The limit and some more or less.
    Limit(i128),
    /// A share of the limit in thousandths.
    Share(i128),
    Most,
}

const KEYS: [&str; 3] = [
    "a",
    "b{c}:\0 d",
    "a\u{0}long key that is told from another by its very last letter: e",
];

impl Scenario {
    fn charge(&self, part: &Part) -> Charge {
        let counter = part.counter % (self.counters.len() + 1);
        let terms = self
            .counters
            .get(counter)
            .map(|terms| terms[part.terms % terms.len()]);
        let limit = terms.map_or(1, |terms| terms.limit);
        let penalties = self.penalties.get(counter).filter(|each| !each.is_empty());
        Charge {
            key: KEYS[counter % KEYS.len()],
            policy: "p",
            terms,
            cost: match part.cost {
                Cost::Units(units) => units,
                Cost::Limit(more) => (limit + more).max(0) as u64,
                Cost::Share(share) => (limit * share / 1_000) as u64,
                Cost::Most => u64::MAX,
            },
            shadow: part.shadow,
            penalty: penalties.and_then(|each| Some(each[part.penalty? % each.len()])),
        }
    }

    fn charges(&self, parts: &[Part]) -> Vec<Charge> {
        parts.iter().map(|part| self.charge(part)).collect()
    }

    fn has_back_steps(&self) -> bool {
        let back = |step: &Step| matches!(step, Step::Move(Move::By(by)) if *by < 0);
        self.steps.iter().any(back)
    }

    /// Whether a key's penalty may be another one at another time.
    fn has_changing_penalties(&self) -> bool {
        // Where keys are few, counters share a penalty's state.
        self.penalties.iter().any(|each| each.len() > 1) || self.counters.len() >= KEYS.len()
    }

    /// Runs the sequence on a store and on the model, and asserts that they answer the same.
    pub(crate) async fn compare(&self, store: &impl Store, time: &impl Time) {
        let mut run = Run {
            told_without_counters: time.is_told_without_counters(),
            scenario: self,
            store,
            model: Model::default(),
            now: 0,
            retry: 0,
            grants: Vec::new(),
            others: 0,
        };
        run.now = run.read_clock().await;
        for (at, step) in self.steps.iter().enumerate() {
            run.step(at, step, time).await;
        }
    }
}

struct Run<'a, S> {
    told_without_counters: bool,
    scenario: &'a Scenario,
    store: &'a S,
    model: Model,
    now: i128,
    retry: i128,
    grants: Vec<(Vec<Charge>, u32, Stamp)>,
    others: u32,
}

impl<S: Store> Run<'_, S> {
    async fn read_clock(&self) -> i128 {
        let clock = Charge {
            key: "clock",
            policy: "clock",
            terms: Some(OTHERS),
            cost: 0,
            shadow: false,
            penalty: None,
        };
        let peeked = with_ask(&[clock], |ask| self.store.peek(&ask)).await;
        peeked.expect("an answer").now.as_micros().into()
    }

    async fn step(&mut self, at: usize, step: &Step, time: &impl Time) {
        match step {
            Step::Move(by) => {
                let by = match by {
                    Move::By(by) => *by,
                    Move::Windows(share, more) => self.window() * share / 1_000 + more,
                    Move::Retry(more) => (self.retry - self.now + more).max(0),
                    Move::Pardon(more) => {
                        let pardon = self.model.next_pardon(self.now).unwrap_or(self.now);
                        (pardon - self.now + more).max(0)
                    }
                };
                self.drop_what_may_be_gone().await;
                time.step(by);
                self.now = self.read_clock().await;
                self.drop_what_may_be_gone().await;
                if by < 0 {
                    self.look_at_all(at).await;
                }
            }
            Step::Acquire(parts, want, hold) => {
                let charges = self.scenario.charges(parts);
                let expected = self.model.acquire(self.now, &charges, *want, *hold);
                let answer = with_ask(&charges, |ask| self.store.acquire(&ask.want(*want).hold(*hold)));
                let answer = answer.await.expect("an answer");
                let (granted, stamp) = (answer.granted, answer.stamp);
                self.check(at, step, &charges, answer, &expected);
                if granted > 0 {
                    self.grants.push((charges, granted, stamp));
                }
            }
            Step::Charge(parts, hold) => {
                let charges = self.scenario.charges(parts);
                let expected = self.model.charge(self.now, &charges, *hold);
                let answer = with_ask(&charges, |ask| self.store.charge(&ask.hold(*hold)));
                let answer = answer.await.expect("an answer");
                let stamp = answer.stamp;
                self.check(at, step, &charges, answer, &expected);
                self.grants.push((charges, 1, stamp));
            }
            Step::Peek(parts, want) => {
                let charges = self.scenario.charges(parts);
                self.peek(at, &charges, *want).await;
            }
            Step::GiveBack(back, times) => {
                let Some((charges, granted, stamp)) = self.grants.iter().rev().nth(*back).cloned() else {
                    return;
                };
                let times = (*times).min(granted);
                self.model
                    .give_back(self.now, &charges, times, stamp.as_micros().into());
                let given = with_ask(&charges, |ask| self.store.give_back(&ask, times, stamp));
                given.await.expect("an answer");
                self.peek(at, &charges, 1).await;
            }
            Step::Settle(amends) => self.settle(at, amends).await,
            Step::Reset(parts) => {
                let charges = self.scenario.charges(parts);
                self.reset(&charges).await;
                self.peek(at, &charges, 1).await;
            }
            Step::Block(parts, time) => {
                let charges = self.scenario.charges(parts);
                self.block(&charges, *time).await;
                self.peek(at, &charges, 1).await;
            }
            Step::Others(count) => {
                for _ in 0..*count {
                    self.others += 1;
                    let key = Key::from(format!("other {}", self.others).as_str());
                    let policy = PolicyName::new("others").expect("a name");
                    let charges = [store::Charge::new(&key, &policy, OTHERS.quota())];
                    self.store.acquire(&Ask::new(&charges)).await.expect("an answer");
                }
            }
        }
    }

    /// The model makes one correction after another, at one time.
    async fn settle(&mut self, at: usize, amends: &[Amend]) {
        let mut lists: Vec<Vec<Charge>> = Vec::new();
        let mut how: Vec<(Option<(u32, Stamp)>, Duration)> = Vec::new();
        for amend in amends {
            match amend {
                Amend::GiveBack(back, times) => {
                    let Some((charges, granted, stamp)) = self.grants.iter().rev().nth(*back).cloned() else {
                        continue;
                    };
                    let times = (*times).min(granted);
                    self.model
                        .give_back(self.now, &charges, times, stamp.as_micros().into());
                    lists.push(charges);
                    how.push((Some((times, stamp)), Duration::ZERO));
                }
                Amend::Charge(parts, hold) => {
                    let charges = self.scenario.charges(parts);
                    self.model.charge(self.now, &charges, *hold);
                    lists.push(charges);
                    how.push((None, *hold));
                }
            }
        }
        let charges: Vec<&[Charge]> = lists.iter().map(Vec::as_slice).collect();
        let settled = with_asks(&charges, |asks| {
            let corrections: Vec<_> = asks
                .iter()
                .zip(&how)
                .map(|(ask, (give_back, hold))| match give_back {
                    Some((times, stamp)) => Correction::give_back(*ask, *times, *stamp),
                    None => Correction::charge(ask.hold(*hold)),
                })
                .collect();
            self.store.settle(&corrections)
        });
        settled.await.expect("an answer");
        for charges in &lists {
            self.peek(at, charges, 1).await;
        }
    }

    fn window(&self) -> i128 {
        self.scenario.counters[0][0].window
    }

    fn check(&mut self, at: usize, step: &Step, charges: &[Charge], mut answer: Outcome, expected: &Outcome) {
        if !self.told_without_counters && charges.iter().all(|charge| charge.terms.is_none()) {
            (answer.now, answer.stamp) = (expected.now, expected.stamp);
        }
        assert_eq!(
            answer, *expected,
            "step {at}, at {}: {step:?}\nleft: the store, right: the model",
            self.now
        );
        for state in &answer.states {
            if let Retry::After(retry) = state.retry {
                self.retry = self.now + retry.as_micros() as i128;
            }
        }
    }

    async fn peek(&mut self, at: usize, charges: &[Charge], want: u32) {
        let expected = self.model.peek(self.now, charges, want);
        let answer = with_ask(charges, |ask| self.store.peek(&ask.want(want)));
        let answer = answer.await.expect("an answer");
        self.check(at, &Step::Peek(Vec::new(), want), charges, answer, &expected);
    }

    async fn reset(&mut self, charges: &[Charge]) {
        self.model.reset(charges);
        let reset = with_ask(charges, |ask| self.store.reset(&ask));
        reset.await.expect("an answer");
    }

    async fn block(&mut self, charges: &[Charge], time: i128) {
        self.model.block(self.now, charges, time);
        let blocked = with_ask(charges, |ask| self.store.block(&ask, micros(time)));
        blocked.await.expect("an answer");
    }

    fn each_terms(&self) -> Vec<Charge> {
        let of = |counter: usize, terms: usize| Part {
            counter,
            terms,
            cost: Cost::Units(1),
            shadow: false,
            penalty: Some(terms),
        };
        let counters = self.scenario.counters.iter().enumerate();
        counters
            .flat_map(|(counter, terms)| (0..terms.len()).map(move |terms| of(counter, terms)))
            .map(|part| self.scenario.charge(&part))
            .collect()
    }

    /// A store may drop what has left the window whenever it likes. That makes a difference where the clock steps
    /// back into the window, or a bucket is asked again at a rate at which it is not full yet.
    async fn drop_what_may_be_gone(&mut self) {
        for charge in self.each_terms() {
            let changes = self.scenario.counters.iter().any(|terms| terms.len() > 1);
            let bucket = charge.terms.is_some_and(|terms| terms.rule == Rule::Bucket);
            if (bucket && changes || self.scenario.has_back_steps()) && self.model.is_empty(self.now, &charge)
            {
                let penalty = None;
                self.reset(&[Charge { penalty, ..charge }]).await;
            }
        }
        if self.scenario.has_changing_penalties() || self.scenario.has_back_steps() {
            for (key, policy) in self.model.pardoned(self.now) {
                let charge = Charge {
                    key,
                    policy,
                    terms: None,
                    cost: 0,
                    shadow: false,
                    penalty: Some(MANUAL),
                };
                self.block(&[charge], 0).await;
            }
        }
    }

    /// After a step back, the first look dates back what lies ahead, so both look at the same time.
    async fn look_at_all(&mut self, at: usize) {
        for charge in self.each_terms() {
            self.peek(at, &[charge], 1).await;
        }
    }
}

const MANUAL: Punishment = Punishment {
    denials: 0,
    within: 0,
    block: 0,
    factor: 1,
    longest: 0,
};

const OTHERS: Terms = Terms {
    rule: Rule::Counter,
    window: 60_000_000,
    limit: 5,
    rate: 5,
};

/// Calls `then` with the ask of some charges.
pub(crate) fn with_ask<T>(charges: &[Charge], then: impl FnOnce(Ask<'_>) -> T) -> T {
    with_asks(&[charges], |asks| then(asks[0]))
}

/// Calls `then` with an ask for each list of charges.
fn with_asks<T>(lists: &[&[Charge]], then: impl FnOnce(&[Ask<'_>]) -> T) -> T {
    let names: Vec<Vec<Names>> = lists
        .iter()
        .map(|charges| charges.iter().map(Names::of).collect())
        .collect();
    let charges: Vec<Vec<store::Charge<'_>>> = lists
        .iter()
        .zip(&names)
        .map(|(charges, names)| charges.iter().zip(names).map(to_charge).collect())
        .collect();
    // Long enough for servers on a busy machine.
    let ask = |charges| Ask::new(charges).deadline(Duration::from_secs(20));
    let asks: Vec<Ask<'_>> = charges.iter().map(|charges| ask(charges)).collect();
    then(&asks)
}

/// What a charge borrows.
struct Names {
    key: Key,
    policy: PolicyName,
    penalty: Option<Penalty>,
}

impl Names {
    fn of(charge: &Charge) -> Self {
        Self {
            key: Key::from(charge.key),
            policy: PolicyName::new(charge.policy).expect("a name"),
            penalty: charge.penalty.map(|punishment| punishment.penalty()),
        }
    }
}

fn to_charge<'a>((charge, names): (&Charge, &'a Names)) -> store::Charge<'a> {
    let quota = charge
        .terms
        .map_or(tollgate::Quota::unlimited(), |terms| terms.quota());
    let mode = if charge.shadow {
        Mode::Shadow
    } else {
        Mode::Enforce
    };
    let charge = store::Charge::new(&names.key, &names.policy, quota)
        .cost(charge.cost)
        .mode(mode);
    match &names.penalty {
        Some(penalty) => charge.penalty(penalty),
        None => charge,
    }
}

/// Any kind of counter.
pub(crate) fn any_rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        3 => Just(Rule::Log),
        2 => select(vec![2, 3, 16, 64, 256]).prop_map(Rule::Slots),
        2 => Just(Rule::Counter),
        1 => Just(Rule::Fixed(0)),
        1 => Just(Rule::Fixed(999)),
        1 => Just(Rule::FixedPerKey),
        3 => Just(Rule::Bucket),
    ]
}

fn any_window() -> impl Strategy<Value = i128> {
    let year = 366 * 86_400 * 1_000_000;
    prop_oneof![
        4 => select(vec![1_000, 1_001, 20_000, 1_000_000, 60_000_000, 3_600_000_000, year]),
        1 => 1_000..=year,
        2 => 1_000i128..10_000_000,
    ]
}

fn any_units(rule: Rule) -> impl Strategy<Value = i128> {
    let most = match rule {
        Rule::Log => tollgate::MAX_LOG_UNITS,
        _ => MAX_UNITS,
    } as i128;
    prop_oneof![
        8 => 1i128..=12,
        1 => Just(0),
        1 => Just(100),
        1 => 1..=most,
        1 => Just(most),
    ]
}

/// Terms of one counter that differ in limit and rate.
pub(crate) fn any_terms(rule: Rule) -> impl Strategy<Value = Vec<Terms>> {
    (
        any_window(),
        prop::collection::vec((any_units(rule), any_units(rule)), 1..3),
    )
        .prop_map(move |(window, units)| {
            let terms = |(limit, rate): (i128, i128)| Terms {
                rule,
                window,
                // A bucket refills within 2⁵⁰ µs.
                limit: match rule {
                    Rule::Bucket => limit.min((1 << 50) * rate.max(1) / window),
                    _ => limit,
                },
                rate: rate.max(1),
            };
            units.into_iter().map(terms).collect()
        })
}

fn any_cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        8 => Just(Cost::Units(1)),
        2 => (0u64..5).prop_map(Cost::Units),
        3 => (-2i128..=1).prop_map(Cost::Limit),
        4 => (0i128..1_000).prop_map(Cost::Share),
        1 => Just(Cost::Most),
    ]
}

fn any_part() -> impl Strategy<Value = Part> {
    let penalty = prop_oneof![1 => Just(None), 3 => (0usize..2).prop_map(Some)];
    (
        0usize..12,
        0usize..2,
        any_cost(),
        prop::bool::weighted(0.2),
        penalty,
    )
        .prop_map(|(counter, terms, cost, shadow, penalty)| Part {
            counter,
            terms,
            cost,
            shadow,
            penalty,
        })
}

fn any_move(back: bool) -> impl Strategy<Value = Move> {
    let forward = prop_oneof![
        2 => (0i128..5_000_000).prop_map(Move::By),
        1 => select(vec![1_000, 3_600_000_000, 400 * 86_400 * 1_000_000]).prop_map(Move::By),
        4 => (0i128..1_200, -1i128..=1)
            .prop_map(|(share, more)| Move::Windows(share, if share > 0 { more } else { 0 })),
        1 => (select(vec![1_000i128, 2_000, 5_000]), -1i128..=1)
            .prop_map(|(share, more)| Move::Windows(share, more)),
        3 => (-1i128..=1).prop_map(Move::Retry),
        1 => (-1i128..=1).prop_map(Move::Pardon),
    ];
    let backward = prop_oneof![
        Just(Move::By(-1_000)),
        Just(Move::By(-1_000_000)),
        Just(Move::By(-3_600_000_000)),
        (1i128..90_000_000).prop_map(|by| Move::By(-by)),
    ];
    if back {
        prop_oneof![3 => forward, 1 => backward].boxed()
    } else {
        forward.boxed()
    }
}

fn any_hold() -> impl Strategy<Value = Duration> {
    prop_oneof![
        10 => Just(Duration::ZERO),
        2 => (0u64..1_000_000).prop_map(Duration::from_micros),
        1 => Just(Duration::MAX),
    ]
}

fn any_amend() -> impl Strategy<Value = Amend> {
    prop_oneof![
        (0usize..4, 0u32..4).prop_map(|(back, times)| Amend::GiveBack(back, times)),
        (prop::collection::vec(any_part(), 0..3), any_hold())
            .prop_map(|(parts, hold)| Amend::Charge(parts, hold)),
    ]
}

fn any_step(back: bool) -> impl Strategy<Value = Step> {
    let parts = || {
        prop_oneof![
            3 => prop::collection::vec(any_part(), 1),
            2 => prop::collection::vec(any_part(), 0..4),
        ]
    };
    let want = || prop_oneof![4 => Just(1u32), 2 => 0u32..6, 1 => Just(u32::MAX)];
    prop_oneof![
        5 => any_move(back).prop_map(Step::Move),
        10 => (parts(), want(), any_hold()).prop_map(|(parts, want, hold)| Step::Acquire(parts, want, hold)),
        1 => (parts(), any_hold()).prop_map(|(parts, hold)| Step::Charge(parts, hold)),
        2 => (parts(), want()).prop_map(|(parts, want)| Step::Peek(parts, want)),
        3 => (0usize..4, 0u32..4).prop_map(|(back, times)| Step::GiveBack(back, times)),
        2 => prop::collection::vec(any_amend(), 0..5).prop_map(Step::Settle),
        1 => parts().prop_map(Step::Reset),
        1 => (parts(), any_block()).prop_map(|(parts, time)| Step::Block(parts, time)),
        1 => (1u32..20).prop_map(Step::Others),
    ]
}

/// Sequences on up to three counters of the rules that `rule` makes, with back steps of the clock if `back`.
pub(crate) fn any_scenario<R: Strategy<Value = Rule>>(
    rule: impl Fn() -> R,
    back: bool,
) -> impl Strategy<Value = Scenario> {
    let counters = prop::collection::vec(rule().prop_flat_map(any_terms), 1..4);
    (
        counters,
        any_penalties(),
        prop::collection::vec(any_step(back), 1..60),
    )
        .prop_map(|(counters, penalties, steps)| Scenario {
            counters,
            penalties,
            steps,
        })
}
