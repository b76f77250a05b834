use tokio::time::advance;

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
    local.learn(&charges, &denied, Instant::now());
    advance(passed).await;
    local
        .denied((local.hash(&key, &policy), &charges[0]), Instant::now())
        .is_some()
}

#[tokio::test(start_paused = true)]
async fn no_denial_outlives_its_release_by_a_store_whose_clock_is_fast() {
    // By a clock that is 500 parts in a million fast, it has come.
    assert!(!is_denied_after(WAIT - WAIT / 2_000).await);
    assert!(is_denied_after(WAIT - WAIT / 500).await);
}
