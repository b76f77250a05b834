//! When it opens and closes, on tokio's paused time.

use tokio::time::advance;

use super::*;

const LIMITS: Limits = Limits {
    failures: 5,
    timeouts: u32::MAX,
};

fn breaker(limits: Limits) -> Breaker {
    Breaker::new(limits, Backoff::of_probes())
}

fn failed(breaker: &mut Breaker, reason: Class) -> Change {
    breaker.failed(Instant::now(), Instant::now(), reason)
}

#[tokio::test(start_paused = true)]
async fn opens_after_failures_in_a_row() {
    let mut breaker = breaker(LIMITS);
    for _ in 0..4 {
        assert_eq!(failed(&mut breaker, Class::Io), Change::None);
    }
    breaker.answered(Instant::now());
    for _ in 0..4 {
        assert_eq!(failed(&mut breaker, Class::Io), Change::None);
        assert_eq!(breaker.state(), LinkState::Closed);
    }
    assert_eq!(failed(&mut breaker, Class::Loading), Change::Opened);
    let since = Instant::now();
    advance(Duration::from_secs(1)).await;
    assert_eq!(failed(&mut breaker, Class::Io), Change::None);
    assert_eq!(breaker.answered(Instant::now()), Change::None);
    let reason = Class::Loading;
    assert_eq!(breaker.state(), LinkState::Open { since, reason });
}

#[tokio::test(start_paused = true)]
async fn timeouts_count_only_without_answers_to_others() {
    let mut breaker = breaker(LIMITS);
    // A server that answers one call in ten: slow, not gone.
    for round in 0..100 {
        let sent = Instant::now();
        advance(Duration::from_millis(50)).await;
        if round % 10 == 0 {
            breaker.answered(Instant::now());
        }
        advance(Duration::from_millis(50)).await;
        for _ in 0..4 {
            if round % 10 == 0 {
                assert_eq!(breaker.timed_out(Instant::now(), sent), Change::None);
            }
        }
    }
    assert!(!breaker.is_open());

    let sent = Instant::now();
    advance(Duration::from_millis(100)).await;
    for _ in 0..4 {
        assert_eq!(breaker.timed_out(Instant::now(), sent), Change::None);
    }
    // Too late for its caller, but an answer.
    breaker.answered(Instant::now());
    for _ in 0..10 {
        assert_eq!(breaker.timed_out(Instant::now(), sent), Change::None);
    }
    advance(Duration::from_millis(1)).await;
    let sent = Instant::now();
    advance(Duration::from_millis(100)).await;
    for _ in 0..4 {
        assert_eq!(breaker.timed_out(Instant::now(), sent), Change::None);
    }
    assert_eq!(breaker.timed_out(Instant::now(), sent), Change::Opened);
}

#[tokio::test(start_paused = true)]
async fn timeouts_have_a_limit_of_their_own() {
    let mut breaker = breaker(Limits {
        failures: 5,
        timeouts: 3,
    });
    let sent = Instant::now();
    advance(Duration::from_millis(100)).await;
    assert_eq!(breaker.timed_out(Instant::now(), sent), Change::None);
    assert_eq!(breaker.timed_out(Instant::now(), sent), Change::None);
    // An answer, if a bad one.
    failed(&mut breaker, Class::Busy);
    advance(Duration::from_millis(1)).await;
    let sent = Instant::now();
    advance(Duration::from_millis(100)).await;
    assert_eq!(breaker.timed_out(Instant::now(), sent), Change::None);
    // The fifth failure, and only the second timeout.
    assert_eq!(breaker.timed_out(Instant::now(), sent), Change::Opened);
}

#[tokio::test(start_paused = true)]
async fn short_deadlines_do_not_open_it_at_once() {
    let mut breaker = breaker(Limits {
        failures: 5,
        timeouts: 3,
    });
    let start = Instant::now();
    loop {
        let sent = Instant::now();
        advance(Duration::from_millis(2)).await;
        if breaker.timed_out(Instant::now(), sent) == Change::Opened {
            break;
        }
    }
    assert_eq!(start.elapsed(), SHORTEST_SILENCE);
}

#[tokio::test(start_paused = true)]
async fn closes_by_proof() {
    let mut breaker = breaker(LIMITS);
    assert_eq!(breaker.open(Instant::now(), Class::Io), Change::Opened);
    assert!(!breaker.stays_open(Instant::now(), Class::Io));
    assert!(breaker.stays_open(Instant::now(), Class::Unauthenticated));
    breaker.probed(Instant::now(), true);
    assert_eq!(failed(&mut breaker, Class::Io), Change::None);
    assert_eq!(breaker.answered(Instant::now()), Change::None);
    assert_eq!(breaker.state(), LinkState::Closed);
}

#[tokio::test(start_paused = true)]
async fn is_on_trial_without_proof() {
    let mut breaker = breaker(LIMITS);
    breaker.open(Instant::now(), Class::ReadOnly);
    breaker.probed(Instant::now(), false);
    assert!(!breaker.is_open());
    assert_eq!(failed(&mut breaker, Class::ReadOnly), Change::Reopened);
    breaker.probed(Instant::now(), false);
    assert_eq!(breaker.answered(Instant::now()), Change::Closed);
    assert_eq!(failed(&mut breaker, Class::ReadOnly), Change::None);
}

#[tokio::test(start_paused = true)]
async fn forgets_calls_of_the_last_outage() {
    let mut breaker = breaker(LIMITS);
    let sent = Instant::now();
    breaker.open(Instant::now(), Class::Io);
    advance(Duration::from_millis(100)).await;
    breaker.probed(Instant::now(), false);
    assert_eq!(breaker.failed(Instant::now(), sent, Class::Io), Change::None);
    assert_eq!(breaker.timed_out(Instant::now(), sent), Change::None);
    assert_eq!(failed(&mut breaker, Class::Io), Change::Reopened);
}

#[test]
fn pauses_grow_to_their_bound_and_differ() {
    let mut backoff = Backoff::of_probes();
    let first = backoff.next();
    assert!((Duration::from_millis(100)..=Duration::from_millis(150)).contains(&first));
    let pauses: Vec<_> = (0..100).map(|_| backoff.next()).collect();
    assert!(
        pauses
            .iter()
            .all(|pause| *pause >= Duration::from_millis(100) && *pause <= Duration::from_secs(1))
    );
    assert!(pauses.iter().max() > Some(&Duration::from_millis(500)));
    assert!(pauses.iter().collect::<std::collections::HashSet<_>>().len() > 20);
    backoff.reset();
    assert!(backoff.next() <= Duration::from_millis(150));

    let mut backoff = Backoff::of_reconnects();
    assert!(backoff.next() <= Duration::from_millis(30));
    assert!((Duration::from_millis(20)..=Duration::from_millis(90)).contains(&backoff.next()));
}
