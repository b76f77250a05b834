use tokio::time::advance;

use super::deny::DenyCache;
use super::*;
use crate::quota::Quota;
use crate::store::Retry;

const WAIT: Duration = Duration::from_millis(800);

/// Learns of a denial that is decided at once, and asks for it after a time.
async fn is_denied_after(passed: Duration) -> bool {
    let local = LocalAnswers::builder().seed(7).build();
    let (key, policy) = (Key::from("a"), PolicyName::new("test").expect("a name"));
    let charges = [Charge::new(&key, &policy, Quota::per_second(1))];
    let denied = Outcome::new(
        0,
        Stamp::default(),
        [ChargeState::new(0, 0, Retry::After(WAIT), WAIT)],
    );
    // What is asked for in the very moment of a change is not learned, and the first is that of the making.
    advance(Duration::from_nanos(1)).await;
    local.learn(&charges, &denied, local.now());
    advance(passed).await;
    local
        .denied((local.hash(&key, &policy), &charges[0]), local.now())
        .is_some()
}

#[tokio::test(start_paused = true)]
async fn no_denial_outlives_its_release_by_a_store_whose_clock_is_fast() {
    // By a clock that is 500 parts in a million fast, it has come.
    assert!(!is_denied_after(WAIT - WAIT / 2_000).await);
    assert!(is_denied_after(WAIT - WAIT / 500).await);
}

#[test]
fn a_denial_is_told_as_of_its_reply_and_served_from_then_on() {
    let cache = DenyCache::new(16, 1_000_000_000, (1, 2));
    let (key, policy) = (Key::from("a"), PolicyName::new("test").expect("a name"));
    let charge = Charge::new(&key, &policy, Quota::per_second(1));
    let (wait, reset_after) = (Duration::from_micros(800_000), Duration::from_micros(900_000));
    let state = ChargeState::new(0, 0, Retry::After(wait), reset_after);
    let (sent, received) = (1_000, 2_000_500);
    cache.learn(
        (&charge, 3),
        (&state, Stamp::from_micros(70)),
        (sent, received),
        0,
    );

    let told = |now| {
        let known = cache.find(&charge, 3, now, || 0)?;
        let Retry::After(wait) = known.retry.retry() else {
            panic!("{:?}", known.retry)
        };
        Some((wait.as_micros(), known.reset_after, known.now.as_micros()))
    };
    assert_eq!(told(received - 1), None);
    assert_eq!(told(received), Some((800_000, 900_000, 70)));
    for later in [1, 999] {
        assert_eq!(
            told(received + later),
            Some((800_000, 900_000, 71)),
            "{later} ns later"
        );
    }
    assert_eq!(told(received + 1_000), Some((799_999, 899_999, 71)));
    // A thousandth of the wait is left out, and what had passed when it was told.
    let until = sent + 799_200_000;
    assert_eq!(told(until - 1), Some((2_800, 102_800, 797_271)));
    assert_eq!(told(until), None);
}

/// A store may be used by several runtimes, each of which has stopped its clock at another time.
#[test]
fn no_time_that_was_told_is_in_the_future() {
    let stopped = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime")
    };
    let local = stopped().block_on(async {
        advance(Duration::from_secs(3_600)).await;
        LocalAnswers::new()
    });
    stopped().block_on(async {
        assert_eq!(local.time(local.now()), None);
        advance(Duration::from_secs(7_200)).await;
        assert_eq!(local.time(local.now()), Some(Instant::now()));
    });
}
