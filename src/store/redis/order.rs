//! What a caller asks for, ready to be sent.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use foldhash::fast::RandomState;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::key::{CounterKey, counter_key, is_of, penalty_key, subject_and_policy};
use crate::algorithm::Terms;
use crate::clock::micros;
use crate::penalty::Penalty;
use crate::quota::{Layout, Quota};
use crate::store::ask::Heeds;
use crate::store::{Ask, Charge, Correction, CorrectionKind, Mode, Stamp};

/// More units than any counter holds; the scripts add up such numbers without loss.
const MOST_COST: u64 = 1 << 34;

/// An ask that outlives its caller's call: the charges with the names of their counters.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) charges: SmallVec<[OrderCharge; 1]>,
    /// In microseconds.
    pub(super) hold: u64,
}

#[derive(Clone, Debug)]
pub(super) struct OrderCharge {
    pub(super) mode: Mode,
    pub(super) cost: u64,
    /// `None` if unlimited: it fits always and nothing counts it.
    pub(super) counter: Option<OrderCounter>,
    /// Boxed, for few have one.
    pub(super) penalty: Option<Box<OrderPenalty>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OrderPenalty {
    pub(super) key: CounterKey,
    pub(super) penalty: Penalty,
}

#[derive(Clone, Debug)]
pub(super) struct OrderCounter {
    pub(super) key: CounterKey,
    /// Bytes of its last part.
    last: usize,
    pub(super) terms: Terms,
    quota: Quota,
    /// Units of all enforced charges on this counter: what the next grant takes.
    pub(super) enforced: u64,
}

impl Order {
    pub(super) fn new(prefix: &str, ask: &Ask<'_>, heeds: Heeds) -> Self {
        let order = |charge: &Charge<'_>| OrderCharge {
            mode: charge.mode,
            cost: charge.cost.min(MOST_COST),
            counter: OrderCounter::new(prefix, charge),
            penalty: heeds.penalty(charge).map(|penalty| {
                Box::new(OrderPenalty {
                    key: penalty_key(prefix, charge),
                    penalty: *penalty,
                })
            }),
        };
        let charges = if let [charge] = ask.charges {
            // Nearly all asks.
            let mut charge = order(charge);
            if let (Mode::Enforce, Some(counter)) = (charge.mode, &mut charge.counter) {
                counter.enforced = charge.cost;
            }
            SmallVec::from_buf([charge])
        } else {
            let mut charges: SmallVec<[OrderCharge; 1]> = ask.charges.iter().map(order).collect();
            add_up(&mut charges);
            charges
        };
        Self {
            charges,
            hold: micros(ask.hold),
        }
    }

    /// Whether two orders may be answered as one that is wanted more often. A shadow that shares its counter with another
    /// charge is granted its share after all others of a call, which is not what asks one after another would get.
    pub(super) fn merges_with(&self, other: &Self) -> bool {
        self.is_same(other) && (self.charges.len() < 2 || !self.has_shared_shadow())
    }

    fn has_shared_shadow(&self) -> bool {
        self.charges.iter().enumerate().any(|(at, charge)| {
            let key = charge.counter.as_ref().map(|counter| &counter.key);
            charge.mode == Mode::Shadow
                && key.is_some()
                && self.charges.iter().enumerate().any(|(other_at, other)| {
                    other_at != at && other.counter.as_ref().map(|counter| &counter.key) == key
                })
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        self.hold == other.hold
            && self.charges.len() == other.charges.len()
            && self.charges.iter().zip(&other.charges).all(|(one, other)| {
                one.cost == other.cost
                    && one.mode == other.mode
                    && one.penalty == other.penalty
                    && match (&one.counter, &other.counter) {
                        (Some(one), Some(other)) => one.terms == other.terms && one.key == other.key,
                        (one, other) => one.is_none() && other.is_none(),
                    }
            })
    }

    /// Whether it is that of an ask of one charge, as far as this can be told without writing that down: of equal orders of
    /// unequal quotas it is not.
    pub(super) fn is_of(&self, prefix: &str, ask: &Ask<'_>, charge: &Charge<'_>) -> bool {
        let [own] = &*self.charges else {
            return false;
        };
        let Some(counter) = &own.counter else {
            return false;
        };
        let penalty = Heeds::Enforced.penalty(charge);
        counter.quota == charge.quota
            && own.cost == charge.cost.min(MOST_COST)
            && own.mode == charge.mode
            && self.hold == micros(ask.hold)
            && own.penalty.as_ref().map(|penalty| &penalty.penalty) == penalty
            && is_of(&counter.key, prefix, charge, counter.last)
    }

    /// What [`hash`] is of its charges.
    pub(super) fn hash(&self, hasher: &RandomState) -> u64 {
        let charges = self.charges.iter().filter_map(|charge| {
            let (subject, policy) = subject_and_policy(charge.key()?)?;
            Some((subject, policy, charge.cost))
        });
        hash(hasher, charges)
    }

    /// How far ahead of the server's time it is charged, in microseconds, if nothing was charged further ahead.
    pub(super) fn held(&self) -> u64 {
        let slack = self.counters().map(|counter| counter.terms.slack()).min();
        self.hold.min(slack.unwrap_or(0))
    }

    pub(super) fn counters(&self) -> impl Iterator<Item = &OrderCounter> {
        self.charges.iter().filter_map(|charge| charge.counter.as_ref())
    }

    /// What of it is about penalties.
    pub(super) fn penalties_alone(mut self) -> Self {
        self.charges.retain(|charge| charge.penalty.is_some());
        self.charges.iter_mut().for_each(|charge| charge.counter = None);
        self
    }

    pub(super) fn penalties(&self) -> impl Iterator<Item = &OrderPenalty> {
        self.charges.iter().filter_map(|charge| charge.penalty.as_deref())
    }

    /// The keys of all that it is about.
    pub(super) fn keys(&self) -> impl Iterator<Item = &CounterKey> {
        let counters = self.counters().map(|counter| &counter.key);
        counters.chain(self.penalties().map(|penalty| &penalty.key))
    }

    /// Whether no server knows anything of it.
    pub(super) fn is_uncounted(&self) -> bool {
        self.keys().next().is_none()
    }

    /// Units that one grant writes into logs, one by one.
    pub(super) fn units_written(&self) -> u64 {
        let logs = self.charges.iter().filter(|charge| {
            let counter = charge.counter.as_ref();
            counter.is_some_and(|counter| counter.terms.layout == Layout::Log)
        });
        logs.fold(0, |sum, charge| sum + charge.cost)
    }
}

impl OrderCharge {
    /// A key of the slot that it lies in.
    pub(super) fn key(&self) -> Option<&CounterKey> {
        let counter = self.counter.as_ref().map(|counter| &counter.key);
        counter.or_else(|| self.penalty.as_ref().map(|penalty| &penalty.key))
    }
}

/// Equal of equal orders. Of each charge, what is counted, under which policy, and its cost.
pub(super) fn hash<'a>(
    hasher: &RandomState,
    charges: impl IntoIterator<Item = (&'a [u8], &'a str, u64)>,
) -> u64 {
    let mut hasher = hasher.build_hasher();
    for (subject, policy, cost) in charges {
        hasher.write(subject);
        hasher.write(policy.as_bytes());
        hasher.write_u64(cost);
    }
    hasher.finish()
}

/// The same of the one charge of an ask.
pub(super) fn hash_of_one(hasher: &RandomState, charge: &Charge<'_>) -> u64 {
    let part = (
        charge.key.as_bytes(),
        charge.policy.as_str(),
        charge.cost.min(MOST_COST),
    );
    hash(hasher, [part])
}

/// Charges on one counter add up, under the terms of the first.
fn add_up(charges: &mut [OrderCharge]) {
    for index in 0..charges.len() {
        let Some(counter) = &charges[index].counter else {
            continue;
        };
        let same = |charge: &&OrderCharge| {
            charge.mode == Mode::Enforce
                && charge
                    .counter
                    .as_ref()
                    .is_some_and(|other| other.key == counter.key)
        };
        let enforced = charges.iter().filter(same).map(|charge| charge.cost).sum();
        let first = charges
            .iter()
            .filter_map(|charge| charge.counter.as_ref())
            .find(|other| other.key == counter.key);
        let terms = first.map_or(counter.terms, |first| first.terms);
        if let Some(counter) = &mut charges[index].counter {
            counter.enforced = enforced;
            counter.terms = terms;
        }
    }
}

impl OrderCounter {
    fn new(prefix: &str, charge: &Charge<'_>) -> Option<Self> {
        let terms = Terms::of(&charge.quota, charge.key.as_bytes())?;
        let (key, last) = counter_key(prefix, charge, &terms);
        Some(Self {
            key,
            last,
            terms,
            quota: charge.quota,
            enforced: 0,
        })
    }
}

/// An order and how often, until when, it is wanted.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) order: Order,
    pub(super) want: u32,
    pub(super) deadline: Instant,
}

/// A correction of what was charged. What is given back is wanted as often as that.
#[derive(Clone, Debug)]
pub(super) struct Amendment {
    pub(super) ask: Wanted,
    pub(super) amend: Amend,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amend {
    GiveBack(Stamp),
    Charge,
}

impl Amendment {
    pub(super) fn new(prefix: &str, correction: &Correction<'_>) -> Self {
        let (want, amend) = match correction.kind {
            CorrectionKind::GiveBack { times, stamp } => (times, Amend::GiveBack(stamp)),
            CorrectionKind::Charge => (1, Amend::Charge),
        };
        Self {
            ask: Wanted {
                order: Order::new(prefix, &correction.ask, Heeds::None),
                want,
                deadline: deadline_after(Instant::now(), correction.ask.deadline),
            },
            amend,
        }
    }

    /// Units that it writes into logs, one by one.
    pub(super) fn units_written(&self) -> u64 {
        match self.amend {
            Amend::GiveBack(_) => 0,
            Amend::Charge => self.ask.order.units_written(),
        }
    }
}

/// The time that a caller waits until. Longer times than a clock can add count as a year.
pub(super) fn deadline_after(asked: Instant, wait: Duration) -> Instant {
    asked + wait.min(Duration::from_secs(366 * 86_400))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, PolicyName};

    #[test]
    fn only_equal_asks_of_one_charge_are_found_as_such() {
        let (key, other) = (Key::from("a"), Key::from("b"));
        let (policy, second) = (name("p"), name("q"));
        let (quota, minute) = (Quota::per_minute(5), Duration::from_secs(60));
        let penalties = [Penalty::after(1, minute), Penalty::after(2, minute)];
        let charge = Charge::new(&key, &policy, quota);
        let hold = Duration::from_millis(5);
        let asked = [
            (charge, Duration::ZERO),
            (charge, hold),
            (charge.cost(2), Duration::ZERO),
            (charge.mode(Mode::Shadow), Duration::ZERO),
            (charge.penalty(&penalties[0]), Duration::ZERO),
            (charge.penalty(&penalties[1]), Duration::ZERO),
            (Charge::new(&key, &policy, Quota::per_minute(6)), Duration::ZERO),
            (Charge::new(&key, &policy, Quota::per_second(5)), Duration::ZERO),
            (Charge::new(&key, &policy, quota.slots(8)), Duration::ZERO),
            (Charge::new(&key, &second, quota), Duration::ZERO),
            (Charge::new(&other, &policy, quota), Duration::ZERO),
        ];
        for (index, (ordered, hold)) in asked.iter().enumerate() {
            let charges = [*ordered];
            let order = Order::new("t", &Ask::new(&charges).hold(*hold), Heeds::Enforced);
            for (at, (charge, hold)) in asked.iter().enumerate() {
                let charges = [*charge];
                let ask = Ask::new(&charges).hold(*hold);
                assert_eq!(order.is_of("t", &ask, charge), at == index, "{index} {at}");
                let equal = Order::new("t", &ask, Heeds::Enforced);
                assert_eq!(order.merges_with(&equal), at == index, "{index} {at}");
            }
        }
    }

    fn name(text: &str) -> PolicyName {
        PolicyName::new(text).expect("a name")
    }
}
