//! C6, C7, C9, C11: what callers do harms no other caller. They go, stop polling, live on other runtimes, or want much.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use redis::Value;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::store::{Ask, Charge, Outcome, StoreError, StoreErrorKind, StoreFuture};
use tollgate::{Key, Limiter, PolicyName, Quota, RedisStore, Source, Store};

use crate::scripted::{Reply, Scripted, Sent};
use crate::server::{Server, Version};
use crate::support::{LATE, LONG, RECOVERY, YEAR, connect, until};

const NOON: u64 = 1_700_000_000_000_000;

/// tokio's clock counts whole milliseconds, rounded up.
const TICK: Duration = Duration::from_millis(1);

pub(crate) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// What the server says to asks: the time, and for each the units in its log, or -1 for one that came too late.
pub(crate) fn replies(answers: &[i64]) -> Reply {
    let answers = answers.iter().map(|&answer| Value::Int(answer));
    let now = Value::Int(i64::try_from(NOON).expect("some years"));
    Reply::new(Ok(Value::Array(std::iter::once(now).chain(answers).collect())))
}

/// A grant, after so long.
pub(crate) fn granted(after: Duration) -> Reply {
    replies(&[1]).after(after)
}

/// A connection that knows the time, and answers calls like this.
pub(crate) fn scripted(answer: impl Fn(&Sent) -> Reply + Send + Sync + 'static) -> Scripted {
    Scripted::new(move |sent| match sent.name.as_str() {
        "TIME" => Reply::time(NOON),
        _ => answer(sent),
    })
}

pub(crate) async fn acquire(
    store: &RedisStore,
    key: &str,
    deadline: Duration,
) -> Result<u32, StoreErrorKind> {
    let answer = ask(store, key, deadline).await;
    answer
        .map(|outcome| outcome.granted)
        .map_err(|error| error.kind())
}

/// A check that is asked for, and polled or not as the test wants.
pub(crate) fn ask(store: &RedisStore, key: &str, deadline: Duration) -> StoreFuture<Outcome> {
    let (key, policy) = (Key::from(key), PolicyName::new("test").expect("a name"));
    let charges = [Charge::new(&key, &policy, Quota::per_minute(100))];
    store.acquire(&Ask::new(&charges).deadline(deadline))
}

/// The answer, and how long it took from `delay` on.
pub(crate) async fn acquire_later(
    store: &RedisStore,
    delay: Duration,
    key: &str,
    deadline: Duration,
) -> (Result<u32, StoreErrorKind>, Duration) {
    sleep(delay).await;
    let start = Instant::now();
    (acquire(store, key, deadline).await, start.elapsed())
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|context| {
        Poll::Ready(match Pin::new(&mut *future).poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// A runtime that runs only while somebody blocks on it.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

#[tokio::test(start_paused = true)]
async fn c11_callers_that_go_at_once_leave_little_behind() {
    let connection = Scripted::new(|_| Reply::never());
    let limiter = Limiter::new(RedisStore::new(connection.clone()), Quota::per_minute(100));
    for index in 0_u32..5_000 {
        let mut check = Box::pin(limiter.check(index));
        assert!(poll_once(&mut check).await.is_none());
    }
    assert!(connection.sent().len() < 100, "{}", connection.sent().len());
    let tasks = Handle::current().metrics().num_alive_tasks();
    assert!(tasks < 100, "{tasks}");
}

#[tokio::test(start_paused = true)]
async fn c9_callers_that_go_before_their_deadline_open_the_breaker_too() {
    let store = RedisStore::new(Scripted::new(|_| Reply::never()));
    let limiter = Limiter::new(store.clone(), Quota::per_minute(100));
    for _ in 0..100 {
        let _gone = timeout(ms(80), limiter.check("k")).await;
    }
    assert!(store.stats().is_open, "{:?}", store.stats());
}

#[tokio::test(start_paused = true)]
async fn b33_a_server_that_is_late_but_answers_is_no_outage() {
    let store = RedisStore::new(scripted(|_| granted(ms(150))));
    let mut calls = JoinSet::new();
    for index in 0..1_000 {
        let store = store.clone();
        calls.spawn(async move {
            acquire_later(&store, ms(index), &index.to_string(), ms(100))
                .await
                .0
        });
    }
    for answer in calls.join_all().await {
        assert_ne!(answer, Err(StoreErrorKind::Unavailable), "{:?}", store.stats());
    }
}

#[tokio::test(start_paused = true)]
async fn c6_a_grant_is_not_lost_with_a_neighbour_that_came_too_late() {
    let connection = Scripted::new(|sent| match sent.index {
        0 | 1 => granted(ms(30)),
        2 => replies(&[1, -1]).after(ms(40)),
        _ => Reply::never(),
    });
    let store = RedisStore::new(connection.clone());
    let (_, _, (answer, took), _) = tokio::join!(
        acquire(&store, "x", ms(100)),
        acquire(&store, "y", ms(100)),
        acquire_later(&store, ms(1), "a", ms(500)),
        acquire_later(&store, ms(2), "b", ms(60)),
    );
    assert_eq!(answer, Ok(1), "{:?}", connection.sent());
    assert!(
        took < ms(80),
        "with the reply, not after the neighbour's second try: {took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn c7_a_caller_that_was_merged_keeps_its_own_deadline() {
    // What came too late for the first deadline is asked again for those that have time left.
    let connection = Scripted::new(|sent| match sent.index {
        0 | 1 => granted(ms(80)),
        2 => replies(&[-1]).after(ms(40)),
        _ => granted(Duration::ZERO),
    });
    let store = RedisStore::new(connection.clone());
    let (_, _, (first, took), (second, _)) = tokio::join!(
        acquire(&store, "x", ms(100)),
        acquire(&store, "y", ms(100)),
        acquire_later(&store, ms(1), "a", ms(100)),
        acquire_later(&store, ms(70), "a", ms(100)),
    );
    assert!(
        first.is_err() && took <= ms(100) + TICK,
        "{first:?} after {took:?}"
    );
    assert_eq!(second, Ok(1), "{:?}", connection.sent());
}

#[tokio::test(start_paused = true)]
async fn c7_each_of_many_that_wait_for_the_same_is_answered_at_its_own_deadline() {
    let store = RedisStore::new(scripted(|_| Reply::never()));
    let mut calls = JoinSet::new();
    for index in 0..300 {
        let store = store.clone();
        calls.spawn(async move {
            // Later ones wait less long, and some of all go.
            let (delay, deadline) = (ms(index % 7), ms(80 - index % 50));
            let answering = acquire_later(&store, delay, "k", deadline);
            let (answer, took) = match index % 5 {
                0 => timeout(delay + deadline / 2, answering).await.ok()?,
                _ => answering.await,
            };
            Some((answer, took, deadline))
        });
    }
    for (answer, took, deadline) in calls.join_all().await.into_iter().flatten() {
        assert!(answer.is_err());
        assert!(
            (deadline..=deadline + TICK).contains(&took),
            "{took:?} for {deadline:?}"
        );
    }
}

/// Checks that are under way, as many as may be at once, without an answer ever, and one that waits for them.
async fn three_without_answer(store: &RedisStore) -> [StoreFuture<Outcome>; 3] {
    let mut checks = ["a", "b", "c"].map(|key| ask(store, key, ms(50)));
    for check in &mut checks {
        assert!(poll_once(check).await.is_none());
    }
    checks
}

/// The answer to who is polled at first and when woken, and not otherwise.
async fn answer_when_woken(check: StoreFuture<Outcome>) -> Result<Outcome, StoreError> {
    let answered = timeout(LATE, tokio::spawn(check)).await;
    answered.expect("it is woken in time").expect("it does not panic")
}

#[test]
fn c7_a_store_whose_runtime_rests_answers_others_in_time() {
    let resting = runtime();
    let store = resting.block_on(async { RedisStore::new(scripted(|_| Reply::never())) });
    runtime().block_on(async {
        let [.., waiting] = three_without_answer(&store).await;
        assert!(answer_when_woken(waiting).await.is_err());
    });
}

#[test]
fn c7_who_waits_is_answered_in_time_where_it_goes_on_when_its_runtime_has_ended() {
    let ending = runtime();
    let store = ending.block_on(async { RedisStore::new(scripted(|_| Reply::never())) });
    let [first, second, waiting] = ending.block_on(three_without_answer(&store));
    drop(ending);
    runtime().block_on(async {
        assert!(answer_when_woken(waiting).await.is_err());
        drop((first, second));
    });
}

#[tokio::test(start_paused = true)]
async fn c6_who_goes_when_it_has_been_answered_gives_its_share_back() {
    let connection = Scripted::new(|sent| match sent.index {
        0 | 1 => granted(ms(20)),
        // Three that waited, and what one of them gives back.
        2 => replies(&[3]),
        _ => replies(&[0]),
    });
    let store = RedisStore::new(connection.clone());
    let [first, second, third, fourth, fifth] =
        ["x", "y", "k", "k", "k"].map(|key| ask(&store, key, ms(100)));
    let (mut first, mut second, mut unseen) = (first, second, fourth);
    assert!(poll_once(&mut first).await.is_none() && poll_once(&mut second).await.is_none());
    assert!(poll_once(&mut unseen).await.is_none());
    let (_, _, third, fifth) = tokio::join!(first, second, third, fifth);
    assert_eq!(third.expect("an answer").granted, 1);
    assert_eq!(fifth.expect("an answer").states[0].remaining, 97);
    assert_eq!(store.stats().late_grants, 0);
    drop(unseen);
    sleep(ms(1)).await;
    assert_eq!(store.stats().late_grants, 1);
    assert_eq!(store.stats().settle_calls, 1, "{:?}", connection.sent());
}

/// The checks of 8 threads that the store did not answer.
fn degraded_of_threads(
    limiter: &Limiter,
    each: impl Fn(&Limiter) -> usize + Send + Sync + Clone + 'static,
) -> usize {
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (limiter, each) = (limiter.clone(), each.clone());
            thread::spawn(move || each(&limiter))
        })
        .collect();
    let joined = threads.into_iter().map(|thread| thread.join().expect("it ends"));
    tokio::task::block_in_place(|| joined.sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c7_runtimes_that_rest_or_end_cost_others_no_answer() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let limiter = Limiter::new(store.clone(), Quota::new(1_000_000, YEAR)).deadline(ms(500));
    let rest = degraded_of_threads(&limiter, |limiter| {
        let runtime = runtime();
        let check = |_| {
            let decision = runtime.block_on(limiter.check("k"));
            // The runtime rests, with whatever it is driving.
            thread::sleep(ms(2));
            decision
        };
        (0..50)
            .map(check)
            .filter(|decision| decision.source() != Source::Store)
            .count()
    });
    assert_eq!(rest, 0, "{:?}", store.stats());
    let end = degraded_of_threads(&limiter, |limiter| {
        let check = |_| runtime().block_on(limiter.check("k"));
        (0..50)
            .map(check)
            .filter(|decision| decision.source() != Source::Store)
            .count()
    });
    assert_eq!(end, 0, "{:?}", store.stats());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c9_a_runtime_that_rests_does_not_hold_up_the_recovery() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let limiter = Limiter::new(store.clone(), Quota::new(1_000_000, YEAR));
    assert_eq!(limiter.check("k").await.source(), Source::Store);
    server.stop();
    let other = limiter.clone();
    let failing = thread::spawn(move || {
        let runtime = runtime();
        for _ in 0..4 {
            assert!(runtime.block_on(other.check("k")).is_degraded());
        }
        runtime
    });
    let resting = tokio::task::block_in_place(|| failing.join()).expect("it ends");
    server.cont();
    until("the server is found again", RECOVERY, async || {
        limiter.check("k").await.source() == Source::Store
    })
    .await;
    // Runtimes end only outside of others.
    let ending = thread::spawn(move || drop(resting));
    tokio::task::block_in_place(|| ending.join()).expect("it ends");
}

#[tokio::test]
async fn c9_callers_that_stop_polling_hold_nobody_up() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let limiter = Limiter::new(store.clone(), Quota::new(1_000_000, YEAR));
    let long = limiter.clone().deadline(LONG);
    let (mut a, mut b) = (Box::pin(long.check("a")), Box::pin(long.check("b")));
    assert!(poll_once(&mut a).await.is_none() && poll_once(&mut b).await.is_none());
    until("somebody else is answered", LATE, async || {
        !limiter.check("k").await.is_degraded()
    })
    .await;
}

#[tokio::test]
async fn c1_the_largest_wants_get_what_there_is() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let mut calls = JoinSet::new();
    for want in [u32::MAX; 6].into_iter().chain([1; 2]) {
        let store = store.clone();
        calls.spawn(async move {
            let (key, policy) = (Key::from("k"), PolicyName::new("test").expect("a name"));
            let charges = [Charge::new(&key, &policy, Quota::new(20, YEAR).fixed_window())];
            store.acquire(&Ask::new(&charges).want(want).deadline(LONG)).await
        });
    }
    let answers = calls.join_all().await;
    let granted = answers
        .into_iter()
        .map(|answer| answer.expect("an answer").granted);
    assert_eq!(granted.sum::<u32>(), 20);
}
