//! The ordinary request: one grant of one charge, whose counter exists.

use super::Shared;
use super::entry::Identity;
use crate::algorithm::Terms;
use crate::store::{Charge, KnownOutcome, Mode};

/// One grant of an enforced charge without a penalty on a counter that exists and need not grow: the ordinary request. `None` for
/// any other, to be decided in general; this is the same with one counter, for speed.
#[inline]
pub(super) fn acquire_known(shared: &Shared, charge: &Charge<'_>) -> Option<KnownOutcome> {
    if charge.mode != Mode::Enforce || charge.penalty.is_some() {
        return None;
    }
    let terms = Terms::of(&charge.quota, charge.key.as_bytes())?;
    let identity = Identity::new(charge, &terms);
    let hash = identity.hash(&shared.seed);
    let mut shard = shared.shards[shared.shard_of(hash)].lock();
    // Before the counter is looked up: reading a clock waits for what memory has not answered yet, and what is read of the
    // counter need not wait for each other.
    let now = shared.clock.now();
    let entry = shard.find_mut(hash, &identity)?;
    let taken = entry.take(&terms, now, charge.cost)?;
    drop(shard);
    Some(KnownOutcome::after(
        &taken.after,
        (now, taken.stamp),
        taken.granted,
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::clock::ManualClock;
    use crate::quota::{Quota, Rate};
    use crate::store::{Ask, MemoryStore, Outcome, Store};
    use crate::{Key, PolicyName};

    const WINDOW: Duration = Duration::from_millis(700);

    /// One of each layout, and one of a log whose times need all their bits.
    fn quota(kind: usize, limit: u64) -> Quota {
        let sliding = Quota::new(limit, WINDOW);
        match kind {
            0 => sliding,
            1 => sliding.slots(8),
            2 => sliding.sliding_counter(),
            3 => sliding.fixed_window(),
            4 => sliding.fixed_window_per_key(),
            5 => Quota::token_bucket(Rate::new(limit.max(1), WINDOW), limit),
            _ => Quota::per_day(limit),
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Take(u64),
        /// Taken ahead, so that a later stamp stands in the state.
        Hold(u64),
        Advance(u64),
        Back(u64),
        GiveBack,
        Limit(u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => prop_oneof![4 => Just(1u64), 1 => 0u64..15].prop_map(Step::Take),
            1 => (1u64..4).prop_map(Step::Hold),
            3 => (0u64..300_000).prop_map(Step::Advance),
            1 => (0u64..5_000_000).prop_map(Step::Advance),
            1 => (0u64..3_000_000).prop_map(Step::Back),
            1 => Just(Step::GiveBack),
            1 => (0u64..14).prop_map(Step::Limit),
        ]
    }

    fn at_once(store: &MemoryStore, ask: &Ask<'_>) -> Outcome {
        let answer = store.acquire(ask).into_ready();
        answer
            .unwrap_or_else(|_| panic!("a memory store answers at once"))
            .expect("it never fails")
    }

    proptest! {
        /// Whatever has become of the counter, with or without room for it.
        #[test]
        fn c12_the_ordinary_request_is_answered_as_any_other(
            kind in 0usize..7,
            max_bytes in prop_oneof![3 => Just(usize::MAX), 1 => 150usize..500],
            steps in prop::collection::vec(any_step(), 1..80),
        ) {
            let clock = ManualClock::new();
            let store = || MemoryStore::builder().clock(clock.clock()).max_bytes(max_bytes).build();
            let (quick, general) = (store(), store());
            let (key, policy) = (Key::from("k"), PolicyName::new("p").expect("a name"));
            let (mut limit, mut last) = (10, None);
            for step in steps {
                let charge = |cost| Charge::new(&key, &policy, quota(kind, limit)).cost(cost);
                match step {
                    Step::Take(cost) => {
                        let charges = [charge(cost)];
                        let other = at_once(&general, &Ask::new(&charges));
                        match quick.acquire_known(&charges[0]) {
                            Some(known) => {
                                prop_assert_eq!(known.granted, other.granted == 1);
                                prop_assert_eq!((known.now, known.stamp), (other.now, other.stamp));
                                prop_assert_eq!(known.state(), other.states[0]);
                            }
                            None => prop_assert_eq!(&at_once(&quick, &Ask::new(&charges)), &other),
                        }
                        last = (other.granted == 1).then_some((cost, other.stamp));
                    }
                    Step::Hold(cost) => {
                        let charges = [charge(cost)];
                        let ask = Ask::new(&charges).hold(Duration::from_millis(400));
                        prop_assert_eq!(at_once(&quick, &ask), at_once(&general, &ask));
                    }
                    Step::Advance(micros) => clock.advance(Duration::from_micros(micros)),
                    Step::Back(micros) => clock.set(clock.now() - Duration::from_micros(micros)),
                    Step::GiveBack => if let Some((cost, stamp)) = last.take() {
                        for store in [&quick, &general] {
                            drop(store.give_back(&Ask::new(&[charge(cost)]), 1, stamp));
                        }
                    },
                    Step::Limit(new) => limit = new,
                }
                prop_assert_eq!(quick.stats(), general.stats());
            }
        }
    }
}
