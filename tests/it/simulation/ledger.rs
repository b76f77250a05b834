//! What happened, and whether it was right.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::store::LocalStats;
use tollgate::{Algorithm, Decision, Key, PolicyName, Quota, Source};

use super::scenario::{POLICIES, Scenario};

/// Units of one key under one policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Counter {
    pub(super) key: Key,
    pub(super) policy: usize,
}

impl Counter {
    pub(super) fn new(key: &Key, policy: usize) -> Self {
        Self {
            key: key.clone(),
            policy,
        }
    }

    pub(super) fn of(key: &Key, policy: &PolicyName) -> Self {
        let at = POLICIES.iter().position(|name| policy.as_str() == *name);
        Self::new(key, at.expect("one of them"))
    }
}

/// Units that somebody used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    /// By the store's clock, in microseconds.
    at: u64,
    cost: u64,
    /// When they were said not to be needed; the end of time, if they were.
    refunded: u64,
}

impl Admission {
    pub(super) const fn new(at: u64, cost: u64) -> Self {
        Self {
            at,
            cost,
            refunded: u64::MAX,
        }
    }
}

/// Units came back to a counter. Times are the simulation's, in nanoseconds.
pub(super) struct Freed {
    /// Whose message it was.
    pub(super) instance: u64,
    pub(super) at: u64,
    /// When that instance had the answer, or had given it up.
    pub(super) over: Arc<AtomicU64>,
}

/// What all seeds together must have tried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) by_store: u64,
    pub(super) by_lease: u64,
    pub(super) denied_by_store: u64,
    pub(super) denied_by_cache: u64,
    pub(super) degraded: u64,
    /// Admissions that used the limit's last unit.
    pub(super) full: u64,
    pub(super) refunds: u64,
    pub(super) taken: u64,
    pub(super) returned: u64,
}

impl Totals {
    pub(super) const fn add(&mut self, other: Self) {
        self.by_store += other.by_store;
        self.by_lease += other.by_lease;
        self.denied_by_store += other.denied_by_store;
        self.denied_by_cache += other.denied_by_cache;
        self.degraded += other.degraded;
        self.full += other.full;
        self.refunds += other.refunds;
        self.taken += other.taken;
        self.returned += other.returned;
    }
}

pub(super) struct Ledger {
    quotas: Vec<Quota>,
    instances: u64,
    admitted: HashMap<Counter, Vec<Admission>>,
    freed: HashMap<Counter, Vec<Freed>>,
    wrong: Vec<String>,
    pub(super) totals: Totals,
}

impl Ledger {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            quotas: scenario.policies.iter().map(|plan| plan.quota).collect(),
            instances: 0,
            admitted: HashMap::new(),
            freed: HashMap::new(),
            wrong: Vec::new(),
            totals: Totals::default(),
        }
    }

    pub(super) const fn new_instance(&mut self) -> u64 {
        self.instances += 1;
        self.instances
    }

    pub(super) fn claim(&mut self, is_so: bool, what: impl FnOnce() -> String) {
        if !is_so {
            self.wrong.push(what());
        }
    }

    pub(super) fn count(&mut self, decision: &Decision) {
        let totals = &mut self.totals;
        match (decision.source(), decision.is_allowed()) {
            (Source::Store, true) => totals.by_store += 1,
            (Source::Store, false) => totals.denied_by_store += 1,
            (Source::Lease, _) => totals.by_lease += 1,
            (Source::DenyCache, _) => totals.denied_by_cache += 1,
            _ => totals.degraded += 1,
        }
    }

    pub(super) const fn add_stats(&mut self, stats: LocalStats) {
        self.totals.taken += stats.units_taken;
        self.totals.returned += stats.units_returned;
    }

    pub(super) fn admit(&mut self, counter: &Counter, admission: Admission) -> usize {
        let admitted = self.admitted.entry(counter.clone()).or_default();
        admitted.push(admission);
        admitted.len() - 1
    }

    pub(super) fn refund(&mut self, places: &[(Counter, usize)], now: u64) {
        self.totals.refunds += 1;
        for (counter, place) in places {
            if let Some(admitted) = self.admitted.get_mut(counter) {
                admitted[*place].refunded = now;
            }
        }
    }

    pub(super) fn freed(&mut self, counter: Counter, freed: Freed) {
        self.freed.entry(counter).or_default().push(freed);
    }

    /// Whether something came back within the age that the instance need not have heeded yet.
    pub(super) fn was_freed(
        &self,
        counter: &Counter,
        (now, age): (Duration, Duration),
        instance: u64,
    ) -> bool {
        let since = now.saturating_sub(age).as_nanos();
        let freed = self.freed.get(counter).into_iter().flatten();
        freed.into_iter().any(|freed| {
            let is_heeded = freed.instance == instance && freed.at <= freed.over.load(Ordering::Relaxed) && {
                u128::from(freed.over.load(Ordering::Relaxed)) <= now.as_nanos()
            };
            u128::from(freed.at) >= since && !is_heeded
        })
    }

    /// Units of a counter that were used and not refunded, where nothing has left the window.
    pub(super) fn used(&self, counter: &Counter) -> u64 {
        let admitted = self.admitted.get(counter).into_iter().flatten();
        admitted
            .filter(|admission| admission.refunded == u64::MAX)
            .map(|admission| admission.cost)
            .sum()
    }

    pub(super) fn counters(&self) -> Vec<Counter> {
        self.admitted.keys().cloned().collect()
    }

    /// What was wrong, with what each algorithm promises of the true times of use.
    pub(super) fn verdict(&mut self) -> Vec<String> {
        let mut wrong = std::mem::take(&mut self.wrong);
        for (counter, admitted) in &self.admitted {
            let quota = self.quotas[counter.policy];
            let most = match quota.algorithm() {
                Some(Algorithm::TokenBucket) => most_above_refill(quota, admitted),
                Some(Algorithm::FixedWindow) => {
                    let window = quota.window().as_micros() as u64;
                    let offset = offset(quota, counter.key.as_bytes());
                    most_at_once(admitted, |at| (at - offset) / window * window + window + offset)
                }
                _ => most_at_once(admitted, |at| at + quota.window().as_micros() as u64),
            };
            let limit = quota.limit().unwrap_or(0);
            self.totals.full += u64::from(most == limit);
            if most > limit {
                wrong.push(format!("{most} of {limit} were used of {counter:?} by {quota:?}"));
            }
        }
        wrong
    }
}

fn offset(quota: Quota, key: &[u8]) -> u64 {
    let phase = blake3::hash(key);
    let phase = u64::from_be_bytes(phase.as_bytes()[..8].try_into().expect("eight bytes"));
    let window = quota.window().as_micros() as u64;
    quota
        .window_offset()
        .map_or(phase % window, |offset| offset.as_micros() as u64)
}

/// The most units that were used and neither refunded nor out of the window, at any admission.
fn most_at_once(admitted: &[Admission], leaves: impl Fn(u64) -> u64) -> u64 {
    // At one time, units leave before others come.
    let mut changes = BTreeMap::<(u64, bool), u64>::new();
    for admission in admitted {
        let leaves = leaves(admission.at).min(admission.refunded);
        if leaves > admission.at {
            *changes.entry((admission.at, true)).or_default() += admission.cost;
            *changes.entry((leaves, false)).or_default() += admission.cost;
        }
    }
    let (mut used, mut most) = (0, 0);
    for ((_, comes), units) in changes {
        if comes {
            used += units;
            most = most.max(used);
        } else {
            used -= units;
        }
    }
    most
}

/// The most units between two admissions, less those that were refilled between them.
fn most_above_refill(quota: Quota, admitted: &[Admission]) -> u64 {
    let mut admitted = admitted.to_vec();
    admitted.sort_unstable_by_key(|admission| admission.at);
    let rate = u128::from(quota.rate().expect("a bucket").units_per_window());
    let window = quota.window().as_micros();
    let mut most = 0;
    for (last, end) in admitted.iter().enumerate() {
        // Admissions at one time count together, whatever their order.
        if admitted.get(last + 1).is_some_and(|next| next.at == end.at) {
            continue;
        }
        let mut used = 0;
        for begin in admitted[..=last].iter().rev() {
            if begin.refunded > end.at {
                used += begin.cost;
            }
            let refilled = rate * u128::from(end.at - begin.at) / window;
            most = most.max(u128::from(used).saturating_sub(refilled));
        }
    }
    u64::try_from(most).expect("few units")
}
