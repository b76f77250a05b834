//! Keys that were reset, so that nothing is given back that was charged before: most counters could not tell its units from
//! those that were charged since.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::engine::OwnedCharge;
use crate::key::Key;
use crate::policy::PolicyName;
use crate::store::Charge;

/// Resets that are remembered: at least so many, at most twice as many.
const MOST: usize = 4_096;

/// Resets that limiters of one settler have made.
#[derive(Debug, Default)]
pub(crate) struct Resets {
    /// Grows when a reset begins, and when it ends.
    age: AtomicU64,
    remembered: Mutex<Remembered>,
}

/// The number of resets that had begun or ended before something was charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age(u64);

type Counter = (Key, PolicyName);

#[derive(Debug, Default)]
struct Remembered {
    young: HashMap<Counter, Age, foldhash::fast::RandomState>,
    old: HashMap<Counter, Age, foldhash::fast::RandomState>,
    /// Of the latest that is remembered no more.
    forgotten: Age,
}

/// A reset that is under way until this is dropped.
pub(crate) struct Resetting<'a> {
    resets: &'a Resets,
    counters: SmallVec<[Counter; 1]>,
}

impl Resets {
    /// To be asked before something is charged.
    #[inline]
    pub(crate) fn age(&self) -> Age {
        Age(self.age.load(Ordering::Acquire))
    }

    /// What was charged to these counters before the reset has ended is void: nobody knows when the store comes to it.
    pub(crate) fn begin(&self, charges: &[Charge<'_>]) -> Resetting<'_> {
        let counters = charges.iter();
        let counters = counters.map(|charge| (charge.key.clone(), charge.policy.clone()));
        let resetting = Resetting {
            resets: self,
            counters: counters.collect(),
        };
        resetting.remember();
        resetting
    }

    /// Whether what was charged may have been reset since. So it is if that is not known any more: it stays charged then, which
    /// is the strict side.
    pub(crate) fn is_void(&self, charge: &OwnedCharge, charged: Age) -> bool {
        if self.age() == charged {
            return false;
        }
        let counter = (charge.key.clone(), charge.policy.clone());
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let last = remembered.young.get(&counter);
        let last = last.or_else(|| remembered.old.get(&counter)).copied();
        charged < last.unwrap_or(remembered.forgotten)
    }
}

impl Resetting<'_> {
    fn remember(&self) {
        let mut remembered = self
            .resets
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let age = Age(self.resets.age.fetch_add(1, Ordering::AcqRel) + 1);
        for counter in &self.counters {
            remembered.young.insert(counter.clone(), age);
        }
        if remembered.young.len() >= MOST {
            let young = mem::take(&mut remembered.young);
            let dropped = mem::replace(&mut remembered.old, young);
            remembered.forgotten = dropped.into_values().max().unwrap_or_default();
        }
    }
}

impl Drop for Resetting<'_> {
    fn drop(&mut self) {
        self.remember();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Quota;

    fn name() -> PolicyName {
        PolicyName::new("test").unwrap()
    }

    fn reset(resets: &Resets, key: &Key) {
        let name = name();
        drop(resets.begin(&[Charge::new(key, &name, Quota::per_hour(1))]));
    }

    fn charge(key: &Key) -> OwnedCharge {
        OwnedCharge::from(&Charge::new(key, &name(), Quota::per_hour(1)))
    }

    #[test]
    fn what_was_charged_before_the_end_of_a_reset_is_void() {
        let resets = Resets::default();
        let (one, other) = (Key::from("one"), Key::from("other"));
        let before = resets.age();
        let name = name();
        let charges = [Charge::new(&one, &name, Quota::per_hour(1))];
        let resetting = resets.begin(&charges);
        let meanwhile = resets.age();
        assert!(resets.is_void(&charge(&one), before));
        assert!(!resets.is_void(&charge(&one), meanwhile), "that is not known yet");
        drop(resetting);
        for age in [before, meanwhile] {
            assert!(resets.is_void(&charge(&one), age));
            assert!(!resets.is_void(&charge(&other), age));
        }
        assert!(!resets.is_void(&charge(&one), resets.age()));
        let other_policy = OwnedCharge {
            policy: PolicyName::new("other").unwrap(),
            ..charge(&one)
        };
        assert!(!resets.is_void(&other_policy, before));
    }

    #[test]
    fn what_is_older_than_all_that_is_remembered_is_void() {
        let resets = Resets::default();
        let (first, last) = (Key::from("first"), Key::from("last"));
        let before = resets.age();
        reset(&resets, &first);
        let after = resets.age();
        let fill = |generation: usize| {
            for number in 1..MOST {
                reset(&resets, &Key::from(format!("{generation} {number}")));
            }
        };
        fill(0);
        assert!(resets.is_void(&charge(&first), before));
        assert!(!resets.is_void(&charge(&last), before));
        fill(1);
        reset(&resets, &last);
        let remembered = resets.remembered.lock().unwrap();
        assert!(remembered.young.len() + remembered.old.len() <= 2 * MOST);
        drop(remembered);
        for key in [&first, &last] {
            assert!(resets.is_void(&charge(key), before), "{key:?}");
            assert!(resets.is_void(&charge(key), after), "{key:?}");
            assert!(!resets.is_void(&charge(key), resets.age()), "{key:?}");
        }
    }
}
