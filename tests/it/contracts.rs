//! The contracts of the algorithms, on histories of random use, for every kind of counter.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::store::{Outcome, Retry};

use crate::algorithms::cases;
use crate::embedded::{Embedded, unit};
use crate::model::{Charge, Rule, Terms};
use crate::steps::{any_rule, any_terms};

/// Where clocks of tests stand at first.
const START: i128 = 1_800_000_000_000_000;

/// One request and what comes before it.
#[derive(Clone, Copy, Debug)]
struct Use {
    wait: Wait,
    /// A share of the limit in thousandths; 0 takes one unit.
    share: i128,
    want: u32,
    /// A lease, which may be used until it ends.
    hold: Duration,
    /// Gives back one grant of the request that many before.
    give_back: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Wait {
    Micros(i128),
    /// A share of the window in thousandths, and some microseconds.
    Windows(i128, i128),
    Retry,
}

fn any_use() -> impl Strategy<Value = Use> {
    let wait = prop_oneof![
        3 => Just(Wait::Micros(0)),
        1 => (1i128..1_000).prop_map(Wait::Micros),
        4 => (0i128..400).prop_map(|share| Wait::Windows(share, 0)),
        1 => (0i128..3_000, 0i128..2).prop_map(|(share, more)| Wait::Windows(share, more)),
        3 => Just(Wait::Retry),
    ];
    let share = prop_oneof![3 => Just(0), 1 => 0i128..=1_000, 1 => Just(1_000)];
    let hold = prop_oneof![4 => Just(0u64), 1 => 0u64..1_500_000];
    let give_back = prop::option::weighted(0.15, 0usize..3);
    (wait, share, 1u32..4, hold, give_back).prop_map(|(wait, share, want, hold, give_back)| Use {
        wait,
        share,
        want,
        hold: Duration::from_micros(hold),
        give_back,
    })
}

fn any_uses() -> impl Strategy<Value = Vec<Use>> {
    prop::collection::vec(any_use(), 1..50)
}

fn any_single_terms() -> impl Strategy<Value = Terms> {
    any_rule().prop_flat_map(any_terms).prop_map(|terms| terms[0])
}

/// What was admitted: when, until when it may be used, how much of it has not been given back, and until when at
/// most it counts.
#[derive(Clone, Copy, Debug)]
struct Admission {
    at: i128,
    until: i128,
    units: i128,
    full_at: i128,
}

/// A counter in use.
struct User {
    embedded: Embedded,
    charge: Charge,
    terms: Terms,
    admitted: Vec<Admission>,
    grants: Vec<(Charge, u32, Outcome)>,
    retry: i128,
}

impl User {
    fn new(terms: Terms) -> Self {
        Self {
            embedded: Embedded::new(),
            charge: unit("k", terms),
            terms,
            admitted: Vec::new(),
            grants: Vec::new(),
            retry: 0,
        }
    }

    fn after(terms: Terms, uses: &[Use]) -> Self {
        let mut this = Self::new(terms);
        for one in uses {
            this.take(one);
        }
        this
    }

    fn wait(&self, wait: Wait) {
        let now = self.embedded.now();
        let wait = match wait {
            Wait::Micros(micros) => micros,
            Wait::Windows(share, more) => self.terms.window * share / 1_000 + more,
            Wait::Retry => (self.retry - now).max(0),
        };
        // The longest waits, one after another, would pass the last time that stores tell from later ones.
        if now + wait < START + (1 << 50) {
            self.embedded.advance(wait);
        }
    }

    fn cost(&self, share: i128) -> Charge {
        self.charge.of((self.terms.limit * share / 1_000).max(1))
    }

    fn take(&mut self, one: &Use) -> Outcome {
        self.wait(one.wait);
        if let Some(back) = one.give_back
            && let Some(at) = self.grants.len().checked_sub(back + 1)
            && self.grants[at].1 > 0
        {
            let (charge, left, outcome) = &mut self.grants[at];
            *left -= 1;
            self.embedded.give_back(&[*charge], 1, outcome.stamp);
            self.admitted[at].units -= i128::from(charge.cost);
        }
        let charge = self.cost(one.share);
        let outcome = self.embedded.lease(&[charge], one.want, one.hold);
        if outcome.granted > 0 {
            let at = self.embedded.now();
            self.admitted.push(Admission {
                at,
                until: outcome.stamp.as_micros().into(),
                units: i128::from(outcome.granted) * i128::from(charge.cost),
                full_at: at + micros(outcome.states[0].reset_after),
            });
            self.grants.push((charge, outcome.granted, outcome.clone()));
        }
        if let Retry::After(retry) = outcome.states[0].retry {
            self.retry = self.embedded.now() + micros(retry);
        }
        outcome
    }

    /// What the algorithm promises of the admissions up to the last one.
    fn assert_bound(&self) {
        let Terms {
            rule,
            window,
            limit,
            rate,
        } = self.terms;
        let Some(last) = self.admitted.last() else { return };
        let sum = |counts: &dyn Fn(&Admission) -> bool| -> i128 {
            let counted = self.admitted.iter().filter(|admission| counts(admission));
            counted.map(|admission| admission.units).sum()
        };
        let in_window = |time: fn(&Admission) -> i128| sum(&|admission| time(admission) > last.at - window);
        match rule {
            Rule::Log | Rule::Slots(_) => {
                let used = in_window(|admission| admission.until);
                assert!(used <= limit, "{:?}", self.admitted);
            }
            Rule::Counter => {
                let admitted = in_window(|admission| admission.at);
                assert!(admitted < 2 * limit, "{:?}", self.admitted);
            }
            Rule::Fixed(_) | Rule::FixedPerKey => {
                let admitted = sum(&|admission| admission.full_at == last.full_at);
                assert!(admitted <= limit, "{:?}", self.admitted);
            }
            Rule::Bucket => {
                for first in &self.admitted {
                    let admitted = sum(&|admission| admission.at >= first.at);
                    let refilled = rate * (last.at - first.at);
                    assert!(
                        admitted * window <= limit * window + refilled,
                        "since {}: {:?}",
                        first.at,
                        self.admitted
                    );
                }
            }
        }
    }
}

fn micros(time: Duration) -> i128 {
    i128::try_from(time.as_micros()).expect("a time")
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn c1_no_more_is_admitted_than_the_algorithm_promises(terms in any_single_terms(), uses in any_uses()) {
        let mut user = User::new(terms);
        for one in &uses {
            user.take(one);
            user.assert_bound();
        }
    }

    /// Two counters in the same use, one of them also asked for what does not fit.
    #[test]
    fn c2_denials_are_free(
        terms in any_single_terms(),
        uses in prop::collection::vec((any_use(), 0u32..4, 1i128..2_000), 1..40),
    ) {
        let (mut asked, mut spared) = (User::new(terms), User::new(terms));
        for (one, denials, more) in &uses {
            for _ in 0..*denials {
                let free = i128::from(spared.embedded.remaining(spared.charge));
                let too_much = asked.charge.of(free + (terms.limit * more / 1_000).max(1));
                prop_assert_eq!(asked.embedded.ask(&[too_much], 3).granted, 0);
                prop_assert!(!asked.embedded.takes(asked.charge.of(i128::from(u64::MAX))));
            }
            prop_assert_eq!(asked.take(one), spared.take(one));
        }
    }

    #[test]
    fn c3_retry_after_is_true(terms in any_single_terms(), uses in any_uses(), share in 0i128..=1_000) {
        let user = User::after(terms, &uses);
        let (embedded, charge) = (&user.embedded, user.cost(share));
        match embedded.peek(charge).states[0].retry {
            Retry::Never => prop_assert!(i128::from(charge.cost) > terms.limit),
            Retry::Now => prop_assert!(embedded.takes(charge)),
            Retry::After(retry) => {
                prop_assert!(i128::from(charge.cost) <= terms.limit);
                embedded.advance(micros(retry) - 1);
                prop_assert!(!embedded.takes(charge), "a microsecond before");
                embedded.advance(1);
                prop_assert!(embedded.takes(charge), "after {retry:?}");
            }
            _ => unreachable!("no other answers"),
        }
        let too_much = embedded.acquire(charge.of(terms.limit + 1));
        prop_assert_eq!((too_much.granted, too_much.states[0].retry), (0, Retry::Never));
    }

    #[test]
    fn c4_remaining_is_true(terms in any_single_terms(), uses in any_uses()) {
        let user = User::after(terms, &uses);
        let (embedded, charge) = (&user.embedded, user.charge);
        let remaining = embedded.remaining(charge);
        let merged = User::after(terms, &uses);
        let granted = merged.embedded.ask(&[charge], u32::MAX).granted;
        prop_assert_eq!(u64::from(granted), remaining.min(u32::MAX.into()));
        if remaining <= 100 {
            for left in (0..remaining).rev() {
                let outcome = embedded.acquire(charge);
                prop_assert_eq!((outcome.granted, outcome.states[0].remaining), (1, left));
            }
        } else {
            prop_assert!(embedded.takes(charge.of(remaining.into())));
        }
        prop_assert!(!embedded.takes(charge));
    }

    /// A merged ask against as many asks one after another, with a second policy and a shadow beside.
    #[test]
    fn c4_merged_grants_are_those_of_single_asks(
        terms in any_single_terms(),
        beside in any_single_terms(),
        uses in any_uses(),
        share in 0i128..400,
        want in 1u32..20,
    ) {
        let charges = |user: &User| {
            let second = Charge { policy: "second", ..unit("k", beside) };
            let shadow = Charge { policy: "shadow", shadow: true, ..unit("k", beside) };
            [user.cost(share), second, shadow.of(2)]
        };
        let (one_by_one, merged) = (User::after(terms, &uses), User::after(terms, &uses));
        let together = merged.embedded.ask(&charges(&merged), want);
        let mut granted = 0;
        let mut shadows = 0;
        let mut last = None;
        for _ in 0..want {
            let outcome = one_by_one.embedded.ask(&charges(&one_by_one), 1);
            granted += outcome.granted;
            shadows += outcome.states[2].charged;
            last = Some(outcome);
        }
        let last = last.expect("at least one");
        prop_assert_eq!(together.granted, granted);
        prop_assert_eq!(together.states[2].charged, shadows);
        for (together, single) in together.states.iter().zip(&last.states) {
            prop_assert_eq!(
                (together.remaining, together.retry, together.reset_after),
                (single.remaining, single.retry, single.reset_after)
            );
        }
    }

    #[test]
    fn c5_all_or_nothing(
        counters in prop::collection::vec((any_single_terms(), any_uses(), 0i128..=1_100), 1..4),
        want in 1u32..4,
    ) {
        const POLICIES: [&str; 3] = ["a", "b", "c"];
        let embedded = Embedded::new();
        let charges: Vec<Charge> = counters
            .iter()
            .zip(POLICIES)
            .map(|((terms, uses, share), policy)| {
                let charge = Charge { policy, ..unit("k", *terms) };
                for one in uses.iter().take(5) {
                    embedded.acquire(charge.of((terms.limit * one.share / 1_000).max(1)));
                }
                charge.of(terms.limit * share / 1_000)
            })
            .collect();
        let before: Vec<u64> = charges.iter().map(|charge| embedded.remaining(*charge)).collect();
        let fits = |charge: &Charge, free: u64| match (charge.terms.expect("a limit").limit, charge.cost) {
            (0, _) => 0,
            (_, 0) => u64::from(want),
            (_, cost) => free / cost,
        };
        let expected = charges.iter().zip(&before).map(|(charge, free)| fits(charge, *free)).min().expect("one");
        let granted = embedded.ask(&charges, want).granted;
        prop_assert_eq!(u64::from(granted), expected.min(want.into()));
        for (charge, before) in charges.iter().zip(before) {
            prop_assert_eq!(embedded.remaining(*charge), before - charge.cost * u64::from(granted));
        }
    }

    /// Nobody is held longer than two windows and the slack (and what was held for leases, a slot's length more
    /// where units share slots, or the time to fill a bucket); and a step forth admits at most one limit more.
    #[test]
    fn c10_clock_steps_are_bounded(
        terms in any_single_terms(),
        uses in any_uses(),
        step in prop_oneof![1i128..10_000, 1i128..5_000_000, 1i128..100_000_000_000],
    ) {
        let mut user = User::new(terms);
        for one in &uses {
            user.take(&Use { give_back: None, ..*one });
        }
        let (embedded, charge) = (&user.embedded, user.charge);
        embedded.clock.set(Duration::from_micros((embedded.now() - step) as u64));
        let held = match terms.rule {
            Rule::Slots(slots) => 2 * (terms.window + (terms.window + slots - 1) / slots),
            Rule::Bucket => {
                let fill = terms.limit * terms.window / terms.rate;
                // Whole ticks, where the tick rule applies, and a tick's worth of window in each unit.
                fill + fill / 1_000 + terms.tick_length()
            }
            _ => 2 * terms.window,
        } + terms.slack() + uses.iter().map(|one| micros(one.hold).min(terms.slack())).max().unwrap_or(0);
        let seen = embedded.peek(charge);
        prop_assert!(micros(seen.states[0].reset_after) <= held, "{:?} > {held}", seen.states[0]);
        embedded.advance(held);
        prop_assert_eq!(i128::from(embedded.remaining(charge)), terms.limit);

        let fill = || {
            let free = embedded.remaining(charge).into();
            if embedded.takes(charge.of(free)) { free } else { 0 }
        };
        let first = fill();
        embedded.advance(step);
        let second = fill();
        embedded.clock.set(Duration::from_micros((embedded.now() - step) as u64));
        let third = fill();
        prop_assert!(first + second + third <= 2 * terms.limit, "{first} + {second} + {third}");
    }

    #[test]
    fn r23_b21_a_raise_frees_room_at_once(
        terms in any_single_terms().prop_filter("room for a raise", |terms| terms.limit <= 4_000),
        uses in any_uses(),
        raise in 1i128..=90,
    ) {
        let fill = (terms.limit + raise) * terms.window / terms.rate;
        prop_assume!(terms.rule != Rule::Bucket || fill < 1 << 50);
        let mut user = User::after(terms, &uses);
        let (embedded, charge) = (&user.embedded, user.charge);
        let before = i128::from(embedded.remaining(charge));
        for lower in [0, 1, terms.limit / 2] {
            prop_assert!(!embedded.takes(charge.under(lower).of(lower + 1)));
        }
        for _ in 0..3 {
            embedded.acquire(charge.of(terms.limit + 1));
        }
        let used = terms.limit - before;
        let raised = charge.under(terms.limit + raise);
        let now = i128::from(embedded.remaining(raised));
        // The tick that keeps products exact grows with the limit, and rounds to the strict side (C12).
        let is_coarser = matches!(terms.rule, Rule::Counter | Rule::Bucket) && (terms.limit + raise) * terms.window >= 1 << 52;
        let exact = terms.limit + raise - used;
        prop_assert!(now == exact || is_coarser && now == exact - 1, "{now} of {exact}");
        prop_assert!(embedded.takes(raised.of(now)));
        user.charge = raised;
        prop_assert_eq!(user.embedded.remaining(raised), 0);
    }

    /// What has expired answers as what never was.
    #[test]
    fn i8_expired_state_equals_none(terms in any_single_terms(), uses in any_uses(), after in any_uses()) {
        let mut used = User::after(terms, &uses);
        let full = used.embedded.peek(used.charge).states[0].reset_after;
        if !full.is_zero() {
            used.embedded.advance(micros(full) - 1);
            let almost = used.embedded.peek(used.charge).states[0];
            prop_assert_eq!(almost.reset_after, Duration::from_micros(1));
            prop_assert!(almost.remaining < terms.limit as u64 || terms.limit == 0);
            used.embedded.advance(1);
        }
        let mut fresh = User::new(terms);
        fresh.embedded.clock.set(used.embedded.clock.now());
        used.grants.clear();
        used.admitted.clear();
        used.retry = 0;
        for one in &after {
            prop_assert_eq!(used.take(one), fresh.take(one));
        }
    }
}
