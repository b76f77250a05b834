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
    use std::sync::Arc;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::clock::ManualClock;
    use crate::quota::{Quota, Rate};
    use crate::store::{Ask, MemoryStore, Outcome, Store};
    use crate::{Key, PolicyName};

    const WINDOW: Duration = Duration::from_millis(700);
    /// Short ones, and one that no entry holds itself.
    const KEYS: [&str; 3] = ["k", "other", "one that is longer than what an entry has room for"];

    /// One of each layout, and one of a log whose times need all their bits.
    fn quota(kind: usize, (limit, rate): (u64, u64)) -> Quota {
        let sliding = Quota::new(limit, WINDOW);
        match kind {
            0 => sliding,
            1 => sliding.slots(8),
            2 => sliding.sliding_counter(),
            3 => sliding.fixed_window(),
            4 => sliding.fixed_window_per_key(),
            5 => Quota::token_bucket(Rate::new(rate, WINDOW), limit),
            _ => Quota::per_day(limit),
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Take(usize, u64),
        /// Taken ahead, so that a later stamp stands in the state.
        Hold(usize, u64),
        GiveBack,
        Advance(u64),
        Back(u64),
        Limit(u64, u64),
        /// Drops what is over.
        Sweep,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let key = || prop_oneof![3 => Just(0), 1 => 1..KEYS.len()];
        prop_oneof![
            8 => (key(), prop_oneof![4 => Just(1u64), 1 => 0u64..15]).prop_map(|(key, cost)| Step::Take(key, cost)),
            1 => (key(), 1u64..4).prop_map(|(key, cost)| Step::Hold(key, cost)),
            1 => Just(Step::GiveBack),
            3 => (0u64..300_000).prop_map(Step::Advance),
            1 => (0u64..5_000_000).prop_map(Step::Advance),
            1 => (0u64..3_000_000).prop_map(Step::Back),
            1 => (0u64..14, 1u64..20).prop_map(|(limit, rate)| Step::Limit(limit, rate)),
            2 => Just(Step::Sweep),
        ]
    }

    fn at_once(store: &MemoryStore, ask: &Ask<'_>) -> Outcome {
        let answer = store.acquire(ask).into_ready();
        answer
            .unwrap_or_else(|_| panic!("a memory store answers at once"))
            .expect("it never fails")
    }

    fn sweep(store: &MemoryStore) {
        for shard in &store.shared.shards {
            let now = store.shared.clock.now();
            while !shard.lock().sweep(now, 64, &store.shared.budget) {}
        }
    }

    proptest! {
        /// Whatever has become of the counter, with or without room for it.
        #[test]
        fn c12_the_ordinary_request_is_answered_as_any_other(
            kind in 0usize..7,
            max_keys in prop_oneof![2 => Just(1_000usize), 1 => 1usize..3],
            max_bytes in prop_oneof![3 => Just(usize::MAX), 1 => 150usize..1_500],
            steps in prop::collection::vec(any_step(), 1..120),
        ) {
            let clock = ManualClock::new();
            let builder = MemoryStore::builder().clock(clock.clock()).max_keys(max_keys).max_bytes(max_bytes);
            let (mut quick, general) = (builder.clone().build(), builder.build());
            // So that the same keys share a counter where there is no room.
            Arc::get_mut(&mut quick.shared).expect("no clone").seed = general.shared.seed.clone();
            let (keys, policy) = (KEYS.map(Key::from), PolicyName::new("p").expect("a name"));
            let (mut terms, mut last) = ((10, 5), None);
            for step in steps {
                let charge = |key: usize, cost| Charge::new(&keys[key], &policy, quota(kind, terms)).cost(cost);
                match step {
                    Step::Take(key, cost) => {
                        let charges = [charge(key, cost)];
                        let other = at_once(&general, &Ask::new(&charges));
                        match quick.acquire_known(&charges[0]) {
                            Some(known) => {
                                prop_assert_eq!(known.granted, other.granted == 1);
                                prop_assert_eq!((known.now, known.stamp), (other.now, other.stamp));
                                prop_assert_eq!(known.state(), other.states[0]);
                            }
                            None => prop_assert_eq!(&at_once(&quick, &Ask::new(&charges)), &other),
                        }
                        last = (other.granted == 1).then_some((key, cost, other.stamp));
                    }
                    Step::Hold(key, cost) => {
                        let charges = [charge(key, cost)];
                        let ask = Ask::new(&charges).hold(Duration::from_millis(400));
                        prop_assert_eq!(at_once(&quick, &ask), at_once(&general, &ask));
                    }
                    Step::GiveBack => if let Some((key, cost, stamp)) = last.take() {
                        for store in [&quick, &general] {
                            drop(store.give_back(&Ask::new(&[charge(key, cost)]), 1, stamp));
                        }
                    },
                    Step::Advance(micros) => clock.advance(Duration::from_micros(micros)),
                    Step::Back(micros) => clock.set(clock.now() - Duration::from_micros(micros)),
                    Step::Limit(limit, rate) => terms = (limit, rate),
                    Step::Sweep => [&quick, &general].into_iter().for_each(sweep),
                }
                prop_assert_eq!(quick.stats(), general.stats());
            }
            clock.advance(Duration::from_secs(400 * 86_400));
            sweep(&quick);
            prop_assert_eq!((quick.stats().keys, quick.stats().bytes), (0, 0));
        }
    }
}
