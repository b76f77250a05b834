//! Callers of several threads who wait for the same: together they are what they would be on one.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::time::{Instant, advance, sleep};
use tollgate::store::{Ask, Charge, Outcome, StoreErrorKind, StoreFuture};
use tollgate::{Key, PolicyName, Quota, RedisStore, Store};

use crate::callers::{ask, granted, ms, replies, scripted};
use crate::scripted::Reply;
use crate::shared::{once, threads};
use crate::support::LONG;

/// Threads of the runtime that makes them, which do what they are told one after another.
struct Threads(Vec<mpsc::Sender<Work>>);

type Work = Box<dyn FnOnce() + Send>;

/// What is asked of the key.
struct Asked {
    quota: Quota,
    cost: u64,
    want: u32,
    deadline: Duration,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            quota: Quota::per_minute(100),
            cost: 1,
            want: 1,
            deadline: LONG,
        }
    }
}

/// A thousand times that is less than a call keeps its place.
const LITTLE: Duration = Duration::from_micros(10);

impl Threads {
    fn new(count: usize) -> Self {
        let thread = |_| {
            let (tell, told) = mpsc::channel::<Work>();
            let runtime = Handle::current();
            thread::spawn(move || {
                let _here = runtime.enter();
                told.into_iter().for_each(|work| work());
            });
            tell
        };
        Self((0..count).map(thread).collect())
    }

    /// Does it on one of them.
    fn on<T: Send + 'static>(&self, thread: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        let work = Box::new(move || drop(tell.send(work())));
        self.0[thread % self.0.len()]
            .send(work)
            .expect("it waits for work");
        told.recv().expect("it does its work")
    }

    /// Asks of one key, each on the next thread and a little after the one before.
    async fn ask(&self, store: &RedisStore, deadlines: &[Duration]) -> Vec<StoreFuture<Outcome>> {
        let mut asks = Vec::new();
        for (index, &deadline) in deadlines.iter().enumerate() {
            asks.push(
                self.ask_of(
                    index,
                    store,
                    Asked {
                        deadline,
                        ..Asked::default()
                    },
                )
                .await,
            );
        }
        asks
    }

    async fn ask_of(&self, thread: usize, store: &RedisStore, asked: Asked) -> StoreFuture<Outcome> {
        let store = store.clone();
        let answer = self.on(thread, move || {
            let (key, policy) = (Key::from("k"), PolicyName::new("test").expect("a name"));
            let charges = [Charge::new(&key, &policy, asked.quota).cost(asked.cost)];
            store.acquire(&Ask::new(&charges).want(asked.want).deadline(asked.deadline))
        });
        advance(LITTLE).await;
        answer
    }
}

/// What the server says that granted so many, and no more.
fn granted_no_more(count: i64) -> Reply {
    let numbers = [count, 0, count, 100, 30_000_000, 59_000_000].map(Value::Int);
    let now = Value::Int(1_700_000_000_000_000);
    Reply::new(Ok(Value::Array(vec![now, Value::Array(numbers.to_vec())])))
}

/// One call at a time, the first of which is answered after so long.
fn store(first: Duration, then: impl Fn() -> Reply + Send + Sync + 'static) -> RedisStore {
    let connection = scripted(move |sent| match sent.index {
        0 => granted(first),
        _ => then(),
    });
    RedisStore::builder().max_in_flight(1).build(connection)
}

async fn granted_of(asks: Vec<StoreFuture<Outcome>>) -> Vec<u32> {
    let mut each = Vec::new();
    for answer in asks {
        each.push(answer.await.expect("an answer").granted);
    }
    each
}

#[tokio::test(start_paused = true)]
async fn c9_who_came_first_gets_first_whichever_thread_it_came_by() {
    for count in [0, 1, 25, 59] {
        let store = store(ms(100), move || granted_no_more(count));
        let mut first = ask(&store, "x", LONG);
        assert!(once(&mut first).is_none());
        let asks = Threads::new(3).ask(&store, &[LONG; 60]).await;
        assert_eq!(store.stats().waiting, 60);
        assert_eq!(first.await.expect("an answer").granted, 1);
        let got = granted_of(asks).await;
        let expected: Vec<u32> = (0..60).map(|index| u32::from(index < count)).collect();
        assert_eq!(got, expected, "{count}");
        let stats = store.stats();
        assert_eq!((stats.calls, stats.asks, stats.waiting), (2, 2, 0), "{stats:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c12_each_is_told_what_it_would_be_told_had_all_asked_one_after_another() {
    let store = store(ms(100), || replies(&[60]));
    let mut first = ask(&store, "x", LONG);
    assert!(once(&mut first).is_none());
    let asks = Threads::new(3).ask(&store, &[LONG; 60]).await;
    first.await.expect("an answer");
    for (index, answer) in asks.into_iter().enumerate() {
        let state = answer.await.expect("an answer").states[0];
        assert_eq!(state.remaining, 99 - index as u64);
    }
}

/// Those who have gone get nothing, and the call does not ask for them, were they the first or came by a door.
#[tokio::test(start_paused = true)]
async fn c8_who_has_gone_or_is_too_late_is_not_asked_for() {
    for (is_short, goes) in [(4, 5), (usize::MAX, 21), (21, usize::MAX)] {
        let of = |index: usize, each: usize| index > 0 && index.is_multiple_of(each);
        let store = store(ms(100), || granted_no_more(10));
        let mut first = ask(&store, "x", LONG);
        assert!(once(&mut first).is_none());
        let deadlines: Vec<_> = (0..60)
            .map(|index| if of(index, is_short) { ms(70) } else { LONG })
            .collect();
        let asks = Threads::new(3).ask(&store, &deadlines).await;
        let asks = asks.into_iter().enumerate();
        let asks: Vec<_> = asks.filter(|(index, _)| !of(*index, goes)).collect();
        first.await.expect("an answer");
        let (mut left, mut present) = (10, 1);
        for (index, answer) in asks {
            let answer = answer.await.map_err(|error| error.kind());
            if of(index, is_short) {
                assert_eq!(answer.err(), Some(StoreErrorKind::Overloaded), "{index}");
            } else {
                let granted = answer.expect("an answer").granted;
                assert_eq!(granted, u32::from(left > 0), "{index}");
                left -= granted;
                present += 1;
            }
        }
        assert_eq!(left, 0);
        sleep(ms(1)).await;
        let stats = store.stats();
        assert_eq!((stats.late_grants, stats.callers), (0, present));
    }
}

/// A call is awaited as long as any of those who share it waits.
#[tokio::test(start_paused = true)]
async fn c7_who_came_by_a_door_may_wait_longer_than_who_came_first() {
    let store = store(ms(50), || granted_no_more(60).after(ms(100)));
    let mut first = ask(&store, "x", LONG);
    assert!(once(&mut first).is_none());
    let deadlines: Vec<_> = (0..60)
        .map(|index| if index < 12 { ms(70) } else { LONG })
        .collect();
    let asks = Threads::new(3).ask(&store, &deadlines).await;
    first.await.expect("an answer");
    let mut answers = Vec::new();
    for answer in asks {
        answers.push(answer.await.map(|outcome| outcome.granted).ok());
    }
    assert_eq!(answers[..12], [None; 12]);
    assert_eq!(answers[12..], [Some(1); 48]);
}

/// A rolling deploy has two quotas for one key. Nobody is answered by that of others.
#[tokio::test(start_paused = true)]
async fn c3_who_asks_for_something_else_does_not_come_by_the_same_door() {
    let store = store(ms(50), || {
        let numbers = |count, limit| {
            let numbers = [count, 0, count, limit, 30_000_000, 59_000_000].map(Value::Int);
            Value::Array(numbers.to_vec())
        };
        let now = Value::Int(1_700_000_000_000_000);
        Reply::new(Ok(Value::Array(vec![now, numbers(30, 100), numbers(0, 50)])))
    });
    let mut first = ask(&store, "x", LONG);
    assert!(once(&mut first).is_none());
    let threads = Threads::new(2);
    let asks = threads.ask(&store, &[LONG; 30]).await;
    let other = Asked {
        quota: Quota::per_minute(50),
        ..Asked::default()
    };
    let other = threads.ask_of(0, &store, other).await;
    first.await.expect("an answer");
    assert_eq!(granted_of(asks).await, [1; 30]);
    assert_eq!(other.await.expect("an answer").granted, 0);
    assert_eq!(store.stats().asks, 3);
}

/// Who wants more than one is asked for as often.
#[tokio::test(start_paused = true)]
async fn c5_each_gets_as_many_as_it_wants() {
    let store = store(ms(50), || replies(&[90]));
    let mut first = ask(&store, "x", LONG);
    assert!(once(&mut first).is_none());
    let (threads, mut asks) = (Threads::new(2), Vec::new());
    let wants: Vec<u32> = (0..60).map(|index| 1 + index % 4 / 2).collect();
    for (index, &want) in wants.iter().enumerate() {
        let asked = Asked {
            want,
            ..Asked::default()
        };
        asks.push(threads.ask_of(index, &store, asked).await);
    }
    first.await.expect("an answer");
    assert_eq!(granted_of(asks).await, wants);
    assert_eq!((store.stats().calls, store.stats().asks), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn c7_each_is_answered_at_its_own_deadline_whichever_thread_it_came_by() {
    let store = store(LONG, Reply::never);
    let mut first = ask(&store, "x", LONG);
    assert!(once(&mut first).is_none());
    let start = Instant::now();
    // Later ones before earlier ones, too.
    let deadlines: Vec<_> = (0..60).map(|index| ms(300 - 4 * index)).collect();
    let asks = Threads::new(3).ask(&store, &deadlines).await;
    let mut tasks = tokio::task::JoinSet::new();
    for (index, answer) in asks.into_iter().enumerate() {
        let due = start + LITTLE * index as u32 + deadlines[index];
        tasks.spawn(async move {
            let error = answer.await.expect_err("there is no answer");
            (
                error.kind(),
                Instant::now().saturating_duration_since(due),
                due <= Instant::now(),
            )
        });
    }
    for (kind, late, is_due) in tasks.join_all().await {
        assert_eq!(kind, StoreErrorKind::Timeout);
        assert!(is_due && late <= ms(2), "{is_due} {late:?}");
    }
}

/// However many threads they come by, to the last one, and whatever room others have left.
#[tokio::test(start_paused = true)]
async fn c9_no_more_wait_than_may() {
    for (most, even) in [(100, 150), (1_000, 1_050), (1_000, 60)] {
        let connection = scripted(|sent| match sent.index {
            0 => granted(ms(50)),
            _ => replies(&[1]),
        });
        let store = RedisStore::builder()
            .max_in_flight(1)
            .max_waiting(most)
            .build(connection);
        let mut first = ask(&store, "x", LONG);
        assert!(once(&mut first).is_none());
        let (threads, mut asks) = (Threads::new(5), Vec::new());
        for index in 0..most + 50 {
            let thread = if index < even { index } else { 0 };
            asks.push(threads.ask_of(thread, &store, Asked::default()).await);
        }
        assert_eq!((store.stats().waiting, store.stats().refused), (most, 50));
        for (index, mut answer) in asks.into_iter().enumerate() {
            let refused = once(&mut answer).map(|answer| answer.map_err(|error| error.kind()));
            let is_refused = matches!(refused, Some(Err(StoreErrorKind::Overloaded)));
            assert_eq!(is_refused, index >= most, "{index}");
        }
        first.await.expect("an answer");
        sleep(ms(1)).await;
        assert_eq!(store.stats().waiting, 0);
    }
}

/// A call writes no more units than it may, and as many as it may; nobody who comes later comes before who has to wait for the next.
#[tokio::test(start_paused = true)]
async fn c11_a_call_writes_all_that_it_may_and_no_more_whichever_threads_ask() {
    for alone in [0..0, 20..120, 30..90] {
        let connection = scripted(move |sent| match sent.index {
            0 => granted(ms(50)),
            1 => replies(&[1_000]).after(ms(10)),
            _ => replies(&[1_500]).after(ms(10)),
        });
        let store = RedisStore::builder().max_in_flight(1).build(connection);
        let mut first = ask(&store, "x", LONG);
        assert!(once(&mut first).is_none());
        let (threads, mut asks) = (Threads::new(3), Vec::new());
        for index in 0..150 {
            let asked = Asked {
                quota: Quota::per_minute(4_000),
                cost: 10,
                ..Asked::default()
            };
            let thread = if alone.contains(&index) { 0 } else { index };
            asks.push(threads.ask_of(thread, &store, asked).await);
        }
        first.await.expect("an answer");
        for (index, answer) in asks.into_iter().enumerate() {
            let used = 4_000 - answer.await.expect("an answer").states[0].remaining;
            assert_eq!(used, 10 * (index as u64 + 1), "{alone:?}");
        }
        assert_eq!(store.stats().calls, 3, "{alone:?}");
    }
}

/// A call that nobody polls loses its place, and whoever comes then sees to it, whatever door it comes by.
#[tokio::test(start_paused = true)]
async fn c9_who_comes_by_a_door_sends_what_waits_behind_a_call_that_nobody_polls() {
    let store = store(Duration::MAX, || replies(&[31]).after(ms(1)));
    let mut first = ask(&store, "x", LONG);
    assert!(once(&mut first).is_none());
    let threads = Threads::new(2);
    let start = Instant::now();
    let mut asks = threads.ask(&store, &[LONG; 30]).await;
    // As long as a call keeps its place.
    sleep(ms(100) - start.elapsed() + ms(1)).await;
    assert_eq!(store.stats().calls, 1);
    asks.extend(threads.ask(&store, &[LONG]).await);
    assert_eq!(granted_of(asks).await, [1; 31]);
    assert!(start.elapsed() < ms(150), "{:?}", start.elapsed());
    drop(first);
}

/// Whose call ends with its runtime is told so, whichever thread it came by.
#[test]
fn c7_a_runtime_that_ends_with_its_call_answers_all_who_share_it() {
    let (ending, other) = (threads(1), threads(1));
    let store = ending.block_on(async { store(ms(50), Reply::never) });
    let asks = other.block_on(async {
        let mut first = ask(&store, "x", LONG);
        assert!(once(&mut first).is_none());
        let threads = Threads::new(3);
        let asks = (0..60).map(|index| {
            let store = store.clone();
            threads.on(index, move || ask(&store, "k", LONG))
        });
        let asks: Vec<_> = asks.collect();
        first.await.expect("an answer");
        while store.stats().calls < 2 {
            sleep(ms(1)).await;
        }
        asks
    });
    drop(ending);
    let start = Instant::now();
    other.block_on(async {
        for answer in asks {
            let error = answer.await.expect_err("there is no answer");
            assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        }
    });
    assert!(start.elapsed() < LONG);
}
