//! Where features meet: leases with counters, full stores with several charges, peeks with refunds and outages.

use std::time::Duration;

use tollgate::store::{Ask, Charge, Mode, Outcome, Retry, Stamp, StoreError, StoreErrorKind, StoreFuture};
use tollgate::{Key, Limiter, ManualClock, MemoryStore, PolicyName, Quota, Rate, Store};

fn now<T>(answer: StoreFuture<T>) -> T {
    let Ok(Ok(answer)) = answer.into_ready() else {
        panic!("a memory store answers at once");
    };
    answer
}

fn policy(name: &str) -> PolicyName {
    PolicyName::new(name).expect("a name")
}

fn store(max_keys: usize) -> (ManualClock, MemoryStore) {
    let clock = ManualClock::new();
    let store = MemoryStore::builder()
        .max_keys(max_keys)
        .clock(clock.clock())
        .build();
    (clock, store)
}

fn granted(store: &MemoryStore, charges: &[Charge<'_>]) -> u32 {
    now(store.acquire(&Ask::new(charges))).granted
}

#[test]
fn c1_a_lease_does_not_make_a_sliding_counter_forget() {
    let (clock, store) = store(10);
    let (key, policy) = (Key::from("k"), policy("p"));
    let quota = Quota::new(3, Duration::from_millis(1)).sliding_counter();
    let charges = [Charge::new(&key, &policy, quota)];
    let take = |want, hold| {
        now(store.acquire(&Ask::new(&charges).want(want).hold(Duration::from_micros(hold)))).granted
    };
    clock.advance(Duration::from_micros(2_335));
    let first = take(3, 0);
    clock.advance(Duration::from_micros(999));
    let rest = take(1, 666) + take(2, 0);
    assert!(first + rest < 6, "{first} and {rest} within 999 us");
}

/// A full store: `known` has a counter, and all counters that other keys could share are taken by other policies.
fn full() -> (MemoryStore, PolicyName, Key) {
    let (clock, store) = store(3);
    let (main, known) = (policy("main"), Key::from("known"));
    let hour = Quota::per_hour(1_000);
    for other in ["one", "two"] {
        granted(&store, &[Charge::new(&Key::from(other), &main, hour)]);
    }
    granted(&store, &[Charge::new(&known, &main, Quota::per_minute(3))]);
    for number in 0..40 {
        let policy = policy(&format!("p{number}"));
        for key in 0..300_u64 {
            granted(&store, &[Charge::new(&Key::from(key), &policy, hour)]);
        }
    }
    clock.advance(Duration::from_secs(61));
    (store, main, known)
}

#[test]
fn c11_a_charge_without_room_does_not_free_the_others_of_its_ask() {
    let minute = Quota::per_minute(3);
    let nowhere = policy("nowhere");
    for (mode, cost) in [(Mode::Shadow, 1), (Mode::Enforce, 0)] {
        let (store, main, known) = full();
        let mut passed = 0;
        for number in 0..100_u64 {
            let key = Key::from(number);
            let beside = Charge::new(&key, &nowhere, minute).mode(mode).cost(cost);
            passed += granted(&store, &[Charge::new(&known, &main, minute), beside]);
        }
        assert_eq!(passed, 3, "beside {mode:?} of cost {cost}");
    }
    let (store, main, known) = full();
    let stranger = Key::from("stranger");
    let charges = [
        Charge::new(&known, &main, minute).cost(3),
        Charge::new(&stranger, &nowhere, minute),
    ];
    now(store.charge(&Ask::new(&charges)));
    assert_eq!(granted(&store, &[Charge::new(&known, &main, minute)]), 0);
}

#[test]
fn c11_a_reset_leaves_the_counter_that_others_share() {
    let (_, store) = store(1);
    let policy = policy("p");
    let quota = Quota::per_hour(5);
    let mut passed = 0;
    for number in 0..2_000_u64 {
        passed += granted(&store, &[Charge::new(&Key::from(number), &policy, quota)]);
    }
    for number in 10_000..10_400_u64 {
        now(store.reset(&Ask::new(&[Charge::new(&Key::from(number), &policy, quota)])));
    }
    for number in 0..2_000_u64 {
        let again = granted(&store, &[Charge::new(&Key::from(number), &policy, quota)]);
        // Only the key that has a counter of its own may have room in it.
        assert!(again == 0 || number == 0, "{number} passed after {passed}");
    }
}

#[test]
fn c11_a_fast_bucket_does_not_pay_for_a_slow_one_at_the_cap() {
    let (clock, store) = store(1);
    let policy = policy("plan");
    let slow = Quota::token_bucket(Rate::per_minute(1), 10);
    let fast = Quota::token_bucket(Rate::per_minute(60_000), 1_000);
    granted(&store, &[Charge::new(&Key::from("first"), &policy, slow)]);
    let client = Key::from("client");
    let mut passed = 0;
    for number in 0..1_000_u64 {
        clock.advance(Duration::from_millis(10));
        granted(&store, &[Charge::new(&Key::from(number), &policy, fast)]);
        passed += granted(&store, &[Charge::new(&client, &policy, slow)]);
    }
    assert!(
        passed <= 10,
        "{passed} in ten seconds at one a minute with a burst of 10"
    );
}

#[test]
fn c11_many_quotas_of_one_key_share_one_counter_at_the_cap() {
    let (_, store) = store(1);
    let policy = policy("plan");
    granted(
        &store,
        &[Charge::new(&Key::from("hog"), &policy, Quota::per_day(5))],
    );
    let key = Key::from("k");
    let mut passed = 0;
    for burst in 5..45 {
        let quota = Quota::token_bucket(Rate::per_day(1), burst);
        for _ in 0..burst {
            passed += granted(&store, &[Charge::new(&key, &policy, quota)]);
        }
    }
    assert!(
        (1..=44).contains(&passed),
        "{passed} passed; alone, the key would have had 44"
    );
}

#[test]
fn a_refund_makes_no_counter() {
    let (_, store) = store(1);
    let policy = policy("p");
    let quota = Quota::per_minute(5);
    for number in 0..100_u64 {
        granted(&store, &[Charge::new(&Key::from(number), &policy, quota)]);
    }
    now(store.reset(&Ask::new(&[Charge::new(&Key::from(0_u64), &policy, quota)])));
    assert_eq!(store.stats().keys, 0);
    for number in 200..300_u64 {
        let key = Key::from(number);
        let charges = [Charge::new(&key, &policy, quota)];
        now(store.give_back(&Ask::new(&charges), 1, Stamp::from_micros(1_800_000_000_000_000)));
    }
    assert_eq!(store.stats().keys, 0);
}

#[tokio::test]
async fn what_was_reserved_is_given_back_once() {
    for quota in [
        Quota::per_minute(5),
        Quota::per_minute(5).fixed_window(),
        Quota::per_minute(5).slots(4),
        Quota::per_minute(5).sliding_counter(),
        Quota::token_bucket(Rate::per_minute(5), 5),
    ] {
        let (_, store) = store(10);
        let limiter = Limiter::new(store, quota);
        let first = limiter.reserve("k", 1).await.expect("there is room");
        for _ in 0..2 {
            limiter.check("k").await;
        }
        for _ in 0..2 {
            first.give_back_now().await.expect("it answers");
            assert_eq!(limiter.peek("k").await.remaining(), Some(3), "{quota}");
        }
    }
}

/// A store that fails, or denies without a wait.
struct Odd {
    denies: bool,
}

impl Odd {
    fn answer(&self) -> StoreFuture<Outcome> {
        StoreFuture::ready(if self.denies {
            let state = tollgate::store::ChargeState::new(0, 0, Retry::After(Duration::ZERO), Duration::ZERO);
            Ok(Outcome::new(0, Stamp::from_micros(1), [state]))
        } else {
            Err(StoreError::new(StoreErrorKind::Unavailable))
        })
    }
}

impl Store for Odd {
    fn acquire(&self, _ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.answer()
    }

    fn give_back(&self, _ask: &Ask<'_>, _times: u32, _stamp: Stamp) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }

    fn charge(&self, _ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.answer()
    }

    fn peek(&self, _ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.answer()
    }

    fn reset(&self, _ask: &Ask<'_>) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }

    fn block(&self, _ask: &Ask<'_>, _time: Duration) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }
}

#[tokio::test]
async fn a_peek_charges_nothing_when_the_store_is_down() {
    let limiter = Limiter::new(Odd { denies: false }, Quota::per_minute(3));
    for _ in 0..5 {
        let peeked = limiter.peek("k").await;
        assert!(peeked.is_degraded() && peeked.is_allowed());
        assert_eq!(peeked.remaining(), Some(3));
    }
    assert!(limiter.check("k").await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_even_if_the_store_asks_for_no_wait() {
    let limiter = Limiter::new(Odd { denies: true }, Quota::per_minute(3));
    let start = tokio::time::Instant::now();
    assert!(limiter.wait("k", Duration::from_millis(100)).await.is_denied());
    assert!(
        start.elapsed() <= Duration::from_millis(110),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn charges_on_one_counter_are_given_back_together_or_not_at_all() {
    let (_, store) = store(10);
    let (key, policy) = (Key::from("k"), policy("p"));
    for quota in [Quota::per_minute(9), Quota::per_minute(9).fixed_window()] {
        let charge = |cost| Charge::new(&key, &policy, quota).cost(cost);
        let outcome = now(store.acquire(&Ask::new(&[charge(3)])));
        now(store.give_back(&Ask::new(&[charge(2), charge(2)]), 1, outcome.stamp));
        assert_eq!(
            now(store.peek(&Ask::new(&[charge(1)]))).states[0].remaining,
            6,
            "{quota}"
        );
        now(store.give_back(&Ask::new(&[charge(2), charge(1)]), 1, outcome.stamp));
        assert_eq!(
            now(store.peek(&Ask::new(&[charge(1)]))).states[0].remaining,
            9,
            "{quota}"
        );
    }
}
