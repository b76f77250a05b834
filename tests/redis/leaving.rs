//! C1, C3, C12: units leave their window to the microsecond, however many at once, in every way that the script reads a counter.

use std::time::Duration;

use tollgate::store::{Ask, Charge};
use tollgate::testing::Harness;
use tollgate::{Key, MemoryStore, PolicyName, Quota, RedisStore, Store};

use crate::conformance::ByHand;
use crate::server::{Server, Version};
use crate::support::LONG;

const SECOND: Duration = Duration::from_secs(1);

/// One in each second, and each second a slot.
const UNITS: u64 = 16;

const LOG: Quota = Quota::new(20, Duration::from_secs(64));

/// The counters that are charged together.
const KINDS: [&[(&str, Quota)]; 3] = [
    &[("log", LOG)],
    &[("slots", LOG.slots(64))],
    &[("log", LOG), ("slots", LOG.slots(64))],
];

/// A store and its twin.
struct Both {
    redis: RedisStore,
    memory: MemoryStore,
}

impl Both {
    /// Charges all counters of a kind, and compares what is said to it.
    async fn acquire(&self, (kind, key): (usize, &Key), cost: u64) -> u32 {
        let counters = KINDS[kind];
        let policies: Vec<PolicyName> = counters
            .iter()
            .map(|(name, _)| PolicyName::new(*name).expect("a name"))
            .collect();
        let charges: Vec<Charge<'_>> = counters
            .iter()
            .zip(&policies)
            .map(|((_, quota), policy)| Charge::new(key, policy, *quota).cost(cost))
            .collect();
        let ask = Ask::new(&charges).deadline(LONG);
        let one = self.redis.acquire(&ask).await.expect("the server answers");
        let other = self.memory.acquire(&ask).await.expect("it always does");
        assert_eq!(one.granted, other.granted, "{kind} {key:?} {cost}");
        assert_eq!(one.states, other.states, "{kind} {key:?} {cost}");
        one.granted
    }
}

#[tokio::test]
async fn c1_c12_what_has_left_is_told_to_the_microsecond_however_much_it_is() {
    let server = Server::start(Version::V7).await;
    let by_hand = ByHand::new(&server).await;
    let both = Both {
        redis: by_hand.store().await,
        memory: MemoryStore::builder().clock(by_hand.clock.clock()).build(),
    };
    let odd = by_hand.clock.now().as_micros() as u64 % 1_000_000;
    by_hand.advance(SECOND - Duration::from_micros(odd)).await;
    let start = by_hand.clock.now();
    // Each is looked at once, when so many have left and so many µs before: at first nothing has been cut off.
    let key = |kind: usize, left: u64, before: u64| Key::from(format!("{kind} {left} {before}"));
    for _ in 0..UNITS {
        for kind in 0..KINDS.len() {
            for (left, before) in (1..=UNITS).flat_map(|left| [0, 1, 2].map(|before| (left, before))) {
                assert_eq!(both.acquire((kind, &key(kind, left, before)), 1).await, 1);
            }
        }
        by_hand.advance(SECOND).await;
    }
    for left in 1..=UNITS {
        for before in [2, 1, 0] {
            // A slot is held until its last microsecond could have left, which is one before the next unit's of a log.
            let at = start + LOG.window() + SECOND * (left as u32 - 1) - Duration::from_micros(before);
            by_hand.advance(at - by_hand.clock.now()).await;
            for kind in 0..KINDS.len() {
                let key = key(kind, left, before);
                for cost in [10, 1, 15, 2] {
                    both.acquire((kind, &key), cost).await;
                }
            }
        }
    }
}
