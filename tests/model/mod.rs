//! The reference model: each algorithm from its definition, in `i128` and without any optimisation.
//!
//! A counter keeps what was charged, with times, and can say what is used at any time ([`Counter::used`]).
//! Every question is put to that one function: what is left is the limit minus it, and the time at which a cost
//! fits is the first at which it is low enough, found by search. Stores are compared with this step for step.

mod counter;
mod penalty;

use std::collections::HashMap;
use std::time::Duration;

use tollgate::store::{ChargeState, Outcome, Retry, Stamp};
use tollgate::{MAX_LOG_UNITS, Quota, Rate};

use self::counter::Counter;
pub(crate) use self::penalty::Punishment;
use self::penalty::Record;

/// Times and products stay below this, so that a script whose only number is a double computes the same.
const EXACT: i128 = 1 << 53;
const SECOND: i128 = 1_000_000;

/// Asserts that a value which stores compute is an exact integer in a double.
fn exact(value: i128) -> i128 {
    assert!(value.abs() < EXACT, "{value} is not exact in a double");
    value
}

fn div_ceil(a: i128, b: i128) -> i128 {
    (a + b - 1).div_euclid(b)
}

/// What counts, with its layout: a part of what tells counters apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    Log,
    Slots(i128),
    Counter,
    Fixed(i128),
    FixedPerKey,
    Bucket,
}

/// A quota in the model's words. The limit of a bucket is its burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) rule: Rule,
    pub(crate) window: i128,
    pub(crate) limit: i128,
    pub(crate) rate: i128,
}

impl Terms {
    pub(crate) fn quota(&self) -> Quota {
        let window = micros(self.window);
        let limit = self.limit as u64;
        match self.rule {
            Rule::Log => Quota::new(limit, window),
            // The layout that a large limit has by itself.
            Rule::Slots(64) if limit > MAX_LOG_UNITS => Quota::new(limit, window),
            Rule::Slots(slots) => Quota::new(limit, window).slots(slots as u16),
            Rule::Counter => Quota::new(limit, window).sliding_counter(),
            Rule::Fixed(0) => Quota::new(limit, window).fixed_window(),
            Rule::Fixed(offset) => Quota::new(limit, window).fixed_window_offset(micros(offset)),
            Rule::FixedPerKey => Quota::new(limit, window).fixed_window_per_key(),
            Rule::Bucket => Quota::token_bucket(Rate::new(self.rate as u64, window), limit),
        }
    }

    /// How far ahead of the clock a charge may be dated.
    pub(crate) fn slack(&self) -> i128 {
        self.window.min(SECOND)
    }
}

pub(crate) fn micros(time: i128) -> Duration {
    Duration::from_micros(u64::try_from(time).expect("a time"))
}

/// A charge of an ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub(crate) key: &'static str,
    pub(crate) policy: &'static str,
    /// None: unlimited.
    pub(crate) terms: Option<Terms>,
    pub(crate) cost: u64,
    pub(crate) shadow: bool,
    pub(crate) penalty: Option<Punishment>,
}

type Identity = (&'static str, &'static str, Rule, i128);

impl Charge {
    fn identity(&self) -> Option<Identity> {
        self.terms
            .map(|terms| (self.key, self.policy, terms.rule, terms.window))
    }

    /// Whose penalty can stop it.
    fn judged(&self) -> Option<(Offender, Punishment)> {
        let penalty = self.penalty.filter(|_| !self.shadow)?;
        Some(((self.key, self.policy), penalty))
    }
}

/// Penalties are kept for each key and policy.
type Offender = (&'static str, &'static str);

/// All counters, and what penalties are kept for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    counters: HashMap<Identity, Counter>,
    records: HashMap<Offender, Record>,
}

/// The counters of one ask, each with the terms of its first charge and the sum of its enforced costs.
struct Parts(Vec<(Identity, Terms, i128)>);

impl Parts {
    fn of(charges: &[Charge]) -> Self {
        let mut parts: Vec<(Identity, Terms, i128)> = Vec::new();
        for charge in charges {
            let (Some(identity), Some(terms)) = (charge.identity(), charge.terms) else {
                continue;
            };
            let cost = if charge.shadow { 0 } else { i128::from(charge.cost) };
            match parts.iter_mut().find(|part| part.0 == identity) {
                Some(part) => part.2 += cost,
                None => parts.push((identity, terms, cost)),
            }
        }
        Self(parts)
    }

    fn index(&self, charge: &Charge) -> Option<usize> {
        let identity = charge.identity()?;
        self.0.iter().position(|part| part.0 == identity)
    }

    fn get(&self, charge: &Charge) -> Option<&(Identity, Terms, i128)> {
        self.index(charge).map(|at| &self.0[at])
    }
}

impl Model {
    fn repaired(&mut self, now: i128, charges: &[Charge]) -> Parts {
        let parts = Parts::of(charges);
        for (identity, terms, _) in &parts.0 {
            let counter = self
                .counters
                .entry(*identity)
                .or_insert_with(|| Counter::new(identity.0, terms));
            counter.repair(terms, now);
        }
        parts
    }

    /// The penalties of an ask, each that of the first charge, with their records repaired.
    fn judge(&mut self, now: i128, charges: &[Charge]) -> Vec<(Offender, Punishment)> {
        let mut judged: Vec<(Offender, Punishment)> = Vec::new();
        for (offender, punishment) in charges.iter().filter_map(Charge::judged) {
            if judged.iter().all(|(other, _)| *other != offender) {
                judged.push((offender, punishment));
                if let Some(record) = self.records.get_mut(&offender) {
                    record.repair(&punishment, now);
                }
            }
        }
        judged
    }

    fn blocked_until(&self, offender: &Offender, now: i128) -> Option<i128> {
        self.records.get(offender)?.blocked_until(now)
    }

    fn is_blocked(&self, judged: &[(Offender, Punishment)], now: i128) -> bool {
        let mut judged = judged.iter();
        judged.any(|(offender, _)| self.blocked_until(offender, now).is_some())
    }

    /// Counts what was denied for the penalties of charges that do not fit one time more.
    fn deny(&mut self, now: i128, charges: &[Charge], parts: &Parts, granted: u32, denied: u32) {
        for (offender, punishment) in self.judge(now, charges) {
            let stops = |charge: &&Charge| {
                let of_this = charge.judged().is_some_and(|(other, _)| other == offender);
                of_this
                    && parts.get(charge).is_some_and(|(identity, terms, cost)| {
                        fits(self.free(identity, terms, now), terms, *cost, granted + 1) <= granted
                    })
            };
            if charges.iter().find(stops).is_some() {
                let record = self.records.entry(offender).or_default();
                record.deny(&punishment, now, denied.into());
            }
        }
    }

    /// Blocks the keys of all charges with a penalty, or forgets what they did.
    pub(crate) fn block(&mut self, now: i128, charges: &[Charge], time: i128) {
        let mut blocked = Vec::new();
        for charge in charges {
            let offender = (charge.key, charge.policy);
            let Some(punishment) = charge.penalty.filter(|_| !blocked.contains(&offender)) else {
                continue;
            };
            blocked.push(offender);
            if time == 0 {
                self.records.remove(&offender);
            } else {
                let record = self.records.entry(offender).or_default();
                record.repair(&punishment, now);
                record.block(&punishment, now, time);
            }
        }
    }

    /// The next time at which a record means nothing more.
    pub(crate) fn next_pardon(&self, now: i128) -> Option<i128> {
        let pardons = self.records.values().map(|record| record.over);
        pardons.filter(|over| *over > now).min()
    }

    /// Of whom nothing is known any more, under the penalty that was written last.
    pub(crate) fn pardoned(&self, now: i128) -> Vec<(&'static str, &'static str)> {
        let records = self.records.iter().filter(|(_, record)| record.over <= now);
        records.map(|(offender, _)| *offender).collect()
    }

    fn free(&self, identity: &Identity, terms: &Terms, now: i128) -> i128 {
        (terms.limit - self.counters[identity].used(terms, now)).max(0)
    }

    /// What an ask takes of one counter is charged at once.
    fn add(&mut self, parts: &Parts, now: i128, stamp: i128, units: &[i128]) {
        for ((identity, terms, _), units) in parts.0.iter().zip(units) {
            let counter = self.counters.get_mut(identity).expect("repaired");
            counter.charge(terms, now, stamp, *units);
        }
    }

    /// Stamps are the store's time plus the hold, as far as every counter takes one, and never before an
    /// earlier charge of any counter.
    fn stamp(&self, parts: &Parts, now: i128, hold: Duration) -> i128 {
        let hold = i128::try_from(hold.as_micros()).expect("micros");
        let latest = parts
            .0
            .iter()
            .map(|(identity, terms, _)| self.counters[identity].latest(terms, now))
            .fold(now + hold.min(SECOND), i128::min);
        parts
            .0
            .iter()
            .map(|(identity, terms, _)| self.counters[identity].newest(terms))
            .fold(latest, i128::max)
    }

    fn granted(&self, parts: &Parts, charges: &[Charge], now: i128, want: u32) -> u32 {
        charges
            .iter()
            .filter(|charge| !charge.shadow)
            .filter_map(|charge| parts.get(charge))
            .map(|(identity, terms, cost)| fits(self.free(identity, terms, now), terms, *cost, want))
            .min()
            .unwrap_or(want)
    }

    pub(crate) fn acquire(&mut self, now: i128, charges: &[Charge], want: u32, hold: Duration) -> Outcome {
        let parts = self.repaired(now, charges);
        let judged = self.judge(now, charges);
        let granted = match self.is_blocked(&judged, now) {
            true => 0,
            false => self.granted(&parts, charges, now, want),
        };
        if granted < want {
            self.deny(now, charges, &parts, granted, want - granted);
        }
        let stamp = self.stamp(&parts, now, hold);
        let mut charged = vec![granted; charges.len()];
        let mut units = vec![0; parts.0.len()];
        // Enforced charges come first: what they need is no room for shadows.
        for shadow in [false, true] {
            for (charge, charged) in charges.iter().zip(&mut charged) {
                let Some(at) = parts.index(charge).filter(|_| charge.shadow == shadow) else {
                    continue;
                };
                let (identity, terms, _) = &parts.0[at];
                if shadow {
                    let free = self.free(identity, terms, now) - units[at];
                    *charged = fits(free, terms, charge.cost.into(), granted);
                }
                units[at] += i128::from(charge.cost) * i128::from(*charged);
            }
        }
        self.add(&parts, now, stamp, &units);
        let outcome = self.outcome(&parts, charges, granted, &charged, now, stamp);
        self.with_blocks(outcome, charges, now)
    }

    pub(crate) fn charge(&mut self, now: i128, charges: &[Charge], hold: Duration) -> Outcome {
        let parts = self.repaired(now, charges);
        let stamp = self.stamp(&parts, now, hold);
        let mut units = vec![0; parts.0.len()];
        for charge in charges {
            if let Some(at) = parts.index(charge) {
                units[at] += i128::from(charge.cost);
            }
        }
        self.add(&parts, now, stamp, &units);
        self.outcome(&parts, charges, 1, &vec![1; charges.len()], now, stamp)
    }

    pub(crate) fn peek(&mut self, now: i128, charges: &[Charge], want: u32) -> Outcome {
        let parts = self.repaired(now, charges);
        let judged = self.judge(now, charges);
        let granted = match self.is_blocked(&judged, now) {
            true => 0,
            false => self.granted(&parts, charges, now, want),
        };
        let outcome = self.outcome(&parts, charges, granted, &vec![0; charges.len()], now, now);
        self.with_blocks(outcome, charges, now)
    }

    /// While a key is blocked, nothing is left, and nothing fits before the block's end.
    fn with_blocks(&self, mut outcome: Outcome, charges: &[Charge], now: i128) -> Outcome {
        for (charge, state) in charges.iter().zip(&mut outcome.states) {
            let offender = charge.judged().map(|(offender, _)| offender);
            if let Some(until) = offender.and_then(|offender| self.blocked_until(&offender, now)) {
                let end = Retry::After(micros(until - now));
                state.retry = if state.retry < end { end } else { state.retry };
                state.remaining = 0;
                state.blocked = true;
            }
        }
        outcome
    }

    pub(crate) fn give_back(&mut self, now: i128, charges: &[Charge], times: u32, stamp: i128) {
        let parts = self.repaired(now, charges);
        let mut units = vec![0; parts.0.len()];
        for charge in charges {
            if let Some(at) = parts.index(charge) {
                units[at] += i128::from(charge.cost) * i128::from(times);
            }
        }
        for ((identity, terms, _), units) in parts.0.iter().zip(units) {
            let counter = self.counters.get_mut(identity).expect("repaired");
            counter.give_back(terms, now, stamp, units);
        }
    }

    pub(crate) fn reset(&mut self, charges: &[Charge]) {
        for charge in charges {
            if let Some(identity) = charge.identity() {
                self.counters.remove(&identity);
            }
            if charge.penalty.is_some() {
                self.records.remove(&(charge.key, charge.policy));
            }
        }
    }

    /// Whether nothing is left of what was charged.
    pub(crate) fn is_empty(&self, now: i128, charge: &Charge) -> bool {
        let (Some(identity), Some(terms)) = (charge.identity(), charge.terms) else {
            return true;
        };
        self.counters
            .get(&identity)
            .is_none_or(|counter| counter.used(&terms, now) == 0)
    }

    fn outcome(
        &self,
        parts: &Parts,
        charges: &[Charge],
        granted: u32,
        charged: &[u32],
        now: i128,
        stamp: i128,
    ) -> Outcome {
        let states = charges.iter().zip(charged).map(|(charge, &charged)| {
            let Some((identity, terms, enforced)) = parts.get(charge) else {
                return ChargeState::new(charged, u64::MAX, Retry::Now, Duration::ZERO);
            };
            let counter = &self.counters[identity];
            let cost = if charge.shadow {
                charge.cost.into()
            } else {
                *enforced
            };
            let remaining = self.free(identity, terms, now);
            let retry = if terms.limit == 0 || cost > terms.limit {
                Retry::Never
            } else if cost <= remaining {
                Retry::Now
            } else {
                let fits = |time| counter.used(terms, time) + cost <= terms.limit;
                Retry::After(micros(first(now, fits) - now))
            };
            let empty = first(now, |time| counter.used(terms, time) == 0);
            ChargeState::new(charged, remaining as u64, retry, micros(empty - now))
        });
        let stamp_of = |time: i128| Stamp::from_micros(u64::try_from(exact(time)).expect("a time"));
        Outcome::new(granted, stamp_of(now), states).stamp(stamp_of(stamp))
    }
}

/// How often a cost fits. A charge of 0 fits wherever the limit is not 0.
fn fits(free: i128, terms: &Terms, cost: i128, want: u32) -> u32 {
    match cost {
        _ if terms.limit == 0 => 0,
        0 => want,
        cost => i128::from(want).min(free / cost) as u32,
    }
}

/// The first time from `now` on at which `holds`, which holds from then on.
fn first(now: i128, holds: impl Fn(i128) -> bool) -> i128 {
    if holds(now) {
        return now;
    }
    let mut step = 1;
    while !holds(now + step) {
        step *= 2;
        assert!(step < EXACT, "never");
    }
    let (mut before, mut after) = (now + step / 2, now + step);
    while after - before > 1 {
        let middle = (before + after) / 2;
        if holds(middle) {
            after = middle;
        } else {
            before = middle;
        }
    }
    after
}
