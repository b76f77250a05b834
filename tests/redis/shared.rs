//! Callers who share the answer to equal asks, wherever they are polled and whenever they go.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, timeout};
use tollgate::store::{Ask, Charge, Outcome, RedisStats, Stamp, StoreError, StoreFuture};
use tollgate::{Key, Limiter, PolicyName, Quota, RedisStore, Source, Store};

use crate::callers::{acquire, ask, granted, ms, replies, runtime, scripted};
use crate::scripted::{Reply, Scripted};
use crate::server::{Server, Version};
use crate::support::{LONG, YEAR, connect};

/// A runtime whose tasks go on by themselves, on so many threads.
pub(crate) fn threads(count: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(count)
        .enable_all()
        .build()
        .expect("a runtime")
}

pub(crate) fn once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let waker = Waker::noop();
    match Pin::new(future).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// A caller whose time was over when the call left was not asked for: nobody has denied it anything.
#[tokio::test(start_paused = true)]
async fn c2_who_was_left_out_of_a_call_is_not_denied() {
    let connection = Scripted::new(|sent| match sent.index {
        0 | 1 => granted(ms(30)),
        _ => replies(&[1]).after(ms(5)),
    });
    let store = RedisStore::new(connection.clone());
    let (mut x, mut y) = (ask(&store, "x", ms(100)), ask(&store, "y", ms(100)));
    assert!(once(&mut x).is_none() && once(&mut y).is_none());
    // Its runtime rests, or is busy with something else.
    let mut short = ask(&store, "k", ms(10));
    let mut long = ask(&store, "k", ms(100));
    assert!(once(&mut short).is_none() && once(&mut long).is_none());
    let (_, _, long) = tokio::join!(x, y, long);
    assert_eq!(long.expect("an answer").granted, 1);
    let short = once(&mut short).expect("it is over");
    assert!(
        short.is_err(),
        "only one was asked for, and 99 are left, but the other is denied: {short:?}"
    );
}

/// Whose runtime rests when its answer is there holds no place meanwhile.
#[test]
fn c9_a_call_that_has_handed_out_its_answers_holds_no_place_while_its_runtime_rests() {
    let resting = runtime();
    let store = resting.block_on(async {
        RedisStore::new(scripted(|sent| match sent.index {
            0 | 1 => granted(ms(10)),
            _ => granted(ms(5)),
        }))
    });
    resting.block_on(async {
        let mut first = [ask(&store, "x", LONG), ask(&store, "y", LONG)];
        assert!(once(&mut first[0]).is_none() && once(&mut first[1]).is_none());
        let waits = ask(&store, "k", LONG);
        let [x, y] = first;
        let (x, y, waits) = tokio::join!(x, y, waits);
        assert!(x.is_ok() && y.is_ok() && waits.is_ok());
    });
    assert_eq!(store.stats().in_flight, 0, "all have been answered");
}

/// The same, seen by who lives elsewhere.
#[test]
fn c9_a_runtime_that_rests_after_its_answers_costs_others_no_answer() {
    let resting = runtime();
    let store = resting.block_on(async {
        RedisStore::new(scripted(|sent| match sent.index {
            0..4 => granted(ms(10)),
            _ => granted(ms(5)),
        }))
    });
    resting.block_on(async {
        let mut a = ask(&store, "x", ms(100));
        let mut b = ask(&store, "y", ms(100));
        assert!(once(&mut a).is_none() && once(&mut b).is_none());
        let mut c = ask(&store, "k", ms(100));
        assert!(once(&mut c).is_none());
        // a lands and takes c along; then d waits, and b takes it along.
        let a = a.await;
        assert!(a.is_ok());
        let d = ask(&store, "l", ms(100));
        let (b, c, d) = tokio::join!(b, c, d);
        assert!(b.is_ok() && c.is_ok() && d.is_ok());
    });
    let in_flight = store.stats().in_flight;
    let failed = runtime().block_on(async {
        let mut failed = 0;
        for _ in 0..10 {
            failed += usize::from(acquire(&store, "k", ms(20)).await.is_err());
        }
        failed
    });
    assert_eq!((failed, in_flight), (0, 0));
}

/// A store that nobody has any more goes, with its connection, and does not wait for deadlines of who was answered long ago.
#[tokio::test(start_paused = true)]
async fn c11_a_store_goes_when_nobody_has_it() {
    let alive = Arc::new(());
    let witness = Arc::downgrade(&alive);
    let store = RedisStore::new(scripted(move |_| {
        let _alive = &alive;
        granted(ms(5))
    }));
    let (mut a, mut b) = (ask(&store, "a", YEAR), ask(&store, "b", YEAR));
    assert!(once(&mut a).is_none() && once(&mut b).is_none());
    let c = ask(&store, "c", YEAR);
    let (a, b, c) = tokio::join!(a, b, c);
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    drop(store);
    sleep(ms(200)).await;
    assert!(witness.upgrade().is_none(), "the store is still there");
}

/// As `timeout_at` was ready at once.
#[tokio::test(start_paused = true)]
async fn c7_who_is_first_polled_after_its_deadline_is_told_so_at_once() {
    let store = RedisStore::new(scripted(|_| Reply::never()));
    let (mut a, mut b) = (ask(&store, "a", LONG), ask(&store, "b", LONG));
    assert!(once(&mut a).is_none() && once(&mut b).is_none());
    let mut c = ask(&store, "c", ms(10));
    sleep(ms(50)).await;
    assert!(once(&mut c).is_some());
}

/// Polled first within the runtime, then from a thread that is of none.
#[test]
fn c7_who_was_polled_in_a_runtime_may_be_polled_outside() {
    let home = threads(1);
    let store = home.block_on(async { RedisStore::new(scripted(|_| Reply::never())) });
    let mut kept = home.block_on(async {
        let mut kept = [
            ask(&store, "a", LONG),
            ask(&store, "b", LONG),
            ask(&store, "c", ms(50)),
        ];
        for each in &mut kept {
            assert!(once(each).is_none());
        }
        kept
    });
    let start = Instant::now();
    while once(&mut kept[2]).is_none() {
        assert!(start.elapsed() < LONG, "its deadline has long passed");
        thread::yield_now();
    }
    drop(kept);
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn c7_who_is_polled_with_another_waker_is_woken_by_that() {
    let store = RedisStore::new(scripted(|_| granted(ms(10))));
    let (mut a, mut b) = (ask(&store, "a", LONG), ask(&store, "b", LONG));
    assert!(once(&mut a).is_none() && once(&mut b).is_none());
    let mut c = ask(&store, "c", ms(50));
    let counts = [0; 3].map(|_| Arc::new(Count(AtomicUsize::new(0))));
    for count in &counts {
        let waker = Waker::from(Arc::clone(count));
        assert!(
            Pin::new(&mut c)
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    let _ = tokio::join!(a, b);
    sleep(ms(30)).await;
    assert_eq!(
        counts.each_ref().map(|count| count.0.load(Ordering::SeqCst)),
        [0, 0, 1]
    );
    assert!(once(&mut c).is_some());
}

/// Who was answered together asks again together: one call for each round, not one for who is first and one for the rest.
#[test]
fn who_is_answered_together_shares_the_next_call_too() {
    // For one key, or each for its own.
    for keys in [1, CALLERS] {
        let stats = ask_together(keys);
        assert_eq!(stats.callers, CALLERS * ROUNDS);
        // Whoever is first of all flies alone, and comes last to the end.
        assert!(stats.calls <= ROUNDS + 2, "{keys}: {stats:?}");
    }
}

const CALLERS: u64 = 32;
const ROUNDS: u64 = 20;

/// Callers on one worker, who ask again as soon as they are answered.
fn ask_together(keys: u64) -> RedisStats {
    let busy = threads(1);
    busy.block_on(async {
        let connection = scripted(|sent| {
            let keys = std::str::from_utf8(&sent.arguments[1]).expect("a number");
            replies(&vec![1; keys.parse().expect("a number")]).after(ms(1))
        });
        let store = RedisStore::builder().max_in_flight(1).build(connection);
        // All on the one worker.
        let work = tokio::spawn(async move {
            let mut tasks = tokio::task::JoinSet::new();
            for caller in 0..CALLERS {
                let (store, key) = (store.clone(), format!("k{}", caller % keys));
                tasks.spawn(async move {
                    for _ in 0..ROUNDS {
                        ask(&store, &key, LONG).await.expect("an answer");
                    }
                });
            }
            tasks.join_all().await;
            store.stats()
        });
        work.await.expect("it does not panic")
    })
}

/// Each is polled when it asks and when its time is over, however many share an ask.
#[test]
fn c7_many_who_share_an_ask_give_up_at_once() {
    const CALLERS: usize = 2_000;
    let busy = threads(2);
    let work = async {
        let store = RedisStore::new(scripted(|_| Reply::never()));
        let mut first = [ask(&store, "a", LONG), ask(&store, "b", LONG)];
        assert!(first.iter_mut().all(|each| once(each).is_none()));
        let polls = Arc::new(AtomicUsize::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..CALLERS {
            let (store, polls) = (store.clone(), Arc::clone(&polls));
            tasks.spawn(async move {
                let mut waits = ask(&store, "k", ms(80));
                let answer = poll_fn(|context| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    Pin::new(&mut waits).poll(context)
                });
                assert!(answer.await.is_err());
            });
        }
        tasks.join_all().await;
        drop(first);
        polls.load(Ordering::Relaxed)
    };
    let polls = busy.block_on(async { tokio::spawn(work).await.expect("it does not panic") });
    assert!(polls < 4 * CALLERS, "{polls} polls of {CALLERS} callers");
}

/// All threads of the store's runtime do something else.
#[test]
fn c7_a_busy_home_costs_callers_elsewhere_no_deadline() {
    let home = threads(1);
    let (store, first) = home.block_on(async {
        let store = RedisStore::new(scripted(|_| Reply::never()));
        let mut first = [ask(&store, "a", LONG), ask(&store, "b", LONG)];
        assert!(first.iter_mut().all(|each| once(each).is_none()));
        (store, first)
    });
    let (is_busy, became_busy) = std::sync::mpsc::channel();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    home.spawn(async move {
        is_busy.send(()).expect("it is awaited");
        // Until the test is over.
        let _ = is_done.recv();
    });
    became_busy.recv().expect("it runs");
    let answer = runtime().block_on(async { timeout(LONG, acquire(&store, "c", ms(30))).await });
    assert!(answer.expect("it gives up in time").is_err());
    drop((done, first));
}

/// Nor does it who blocks on another runtime from within one of its own tasks.
#[test]
fn c7_a_busy_home_costs_who_blocks_on_another_runtime_there_no_deadline() {
    let home = threads(1);
    let (is_answered, answered) = std::sync::mpsc::channel();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    home.spawn(async move {
        let store = RedisStore::new(scripted(|_| Reply::never()));
        let mut first = [ask(&store, "a", LONG), ask(&store, "b", LONG)];
        assert!(first.iter_mut().all(|each| once(each).is_none()));
        // Whose runtime this thread is, is known from here on.
        assert!(acquire(&store, "c", ms(30)).await.is_err());
        tokio::spawn(async move {
            // Until the test is over.
            let _ = is_done.recv();
        });
        tokio::task::block_in_place(|| {
            let answer = runtime().block_on(async { timeout(LONG, acquire(&store, "c", ms(30))).await });
            is_answered.send(answer).expect("it is awaited");
        });
        drop(first);
    });
    let answer = answered.recv().expect("it ends");
    assert!(answer.expect("it gives up in time").is_err());
    drop(done);
}

/// A store around another, as in an application that has its own idea of patience.
struct Patient(RedisStore);

impl Store for Patient {
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.0.acquire(&ask.deadline(LONG))
    }
    fn give_back(&self, ask: &Ask<'_>, times: u32, stamp: Stamp) -> StoreFuture<()> {
        self.0.give_back(ask, times, stamp)
    }
    fn charge(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.0.charge(ask)
    }
    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.0.peek(ask)
    }
    fn reset(&self, ask: &Ask<'_>) -> StoreFuture<()> {
        self.0.reset(ask)
    }
    fn block(&self, ask: &Ask<'_>, time: Duration) -> StoreFuture<()> {
        self.0.block(ask, time)
    }
}

#[tokio::test(start_paused = true)]
async fn c7_a_store_around_another_is_given_no_more_time() {
    let inner = RedisStore::new(scripted(|_| Reply::never()));
    let limiter = Limiter::new(Patient(inner), Quota::per_minute(100));
    let checks = async {
        let timed = |key: &'static str| {
            let limiter = limiter.clone();
            async move {
                let start = Instant::now();
                let _ = limiter.check(key).await;
                start.elapsed()
            }
        };
        tokio::join!(timed("a"), timed("b"), timed("c"), timed("d"))
    };
    let (a, b, c, d) = checks.await;
    for took in [a, b, c, d] {
        assert!(took <= ms(110), "{:?}", (a, b, c, d));
    }
}

/// What is said to who waits with others is learned as well.
#[tokio::test(start_paused = true)]
async fn what_is_denied_to_who_waits_is_remembered() {
    let connection = scripted(|sent| match sent.index {
        0 | 1 => replies(&[1]).after(ms(10)),
        _ => Reply::new(Ok(redis::Value::Array(vec![
            redis::Value::Int(1_700_000_000_000_000),
            redis::Value::Array(
                [0, 0, 0, 100, 30_000_000, 59_000_000]
                    .map(redis::Value::Int)
                    .to_vec(),
            ),
        ])))
        .after(ms(5)),
    });
    let limiter = Limiter::new(RedisStore::new(connection.clone()), Quota::per_minute(100)).deadline(LONG);
    let (_, _, first) = tokio::join!(limiter.check("a"), limiter.check("b"), limiter.check("c"));
    assert!(first.is_denied() && first.source() == Source::Store, "{first:?}");
    let second = limiter.check("c").await;
    assert!(
        second.is_denied() && second.source() == Source::DenyCache,
        "{second:?}"
    );
}

/// Nor does who shared an answer hold a place while its runtime rests.
#[test]
fn c9_a_call_whose_answer_was_shared_holds_no_place_while_its_runtime_rests() {
    let resting = runtime();
    let store = resting.block_on(async { RedisStore::new(scripted(|_| replies(&[1]).after(ms(5)))) });
    resting.block_on(async {
        // More than the runtime runs before it looks whether it is done.
        for _ in 0..200 {
            tokio::spawn(async {
                loop {
                    tokio::task::yield_now().await;
                }
            });
        }
        let (x, y, one, other) = tokio::join!(
            acquire(&store, "x", LONG),
            acquire(&store, "y", LONG),
            acquire(&store, "k", LONG),
            acquire(&store, "k", LONG),
        );
        assert!(x.is_ok() && y.is_ok() && one.is_ok() && other.is_ok());
    });
    assert_eq!(store.stats().in_flight, 0, "all have been answered");
}

#[tokio::test(start_paused = true)]
async fn c8_who_is_never_polled_gives_back_when_dropped() {
    let connection = scripted(|sent| match sent.index {
        0 | 1 => granted(ms(10)),
        2 => replies(&[2]),
        _ => replies(&[0]),
    });
    let store = RedisStore::new(connection.clone());
    let (mut a, mut b) = (ask(&store, "a", LONG), ask(&store, "b", LONG));
    assert!(once(&mut a).is_none() && once(&mut b).is_none());
    let (c, d, e) = (
        ask(&store, "c", LONG),
        ask(&store, "c", LONG),
        ask(&store, "c", LONG),
    );
    drop(d);
    assert_eq!(store.stats().waiting, 3);
    let _ = tokio::join!(a, b);
    sleep(ms(50)).await;
    assert_eq!((store.stats().waiting, store.stats().in_flight), (0, 0));
    assert_eq!(store.stats().late_grants, 0);
    drop(c);
    sleep(ms(5)).await;
    assert_eq!(store.stats().late_grants, 1, "{:?}", connection.sent());
    assert_eq!(e.await.expect("an answer").granted, 1);
}

/// The server grants it all the same, and nobody else wants it.
#[tokio::test(start_paused = true)]
async fn c8_what_was_for_who_goes_while_the_call_is_under_way_is_given_back() {
    let connection = scripted(|sent| match sent.index {
        0 | 1 => granted(ms(10)),
        2 => replies(&[3]).after(ms(10)),
        _ => replies(&[0]),
    });
    let store = RedisStore::new(connection.clone());
    let (mut a, mut b) = (ask(&store, "a", LONG), ask(&store, "b", LONG));
    assert!(once(&mut a).is_none() && once(&mut b).is_none());
    let [c, d, e] = ["c"; 3].map(|key| ask(&store, key, LONG));
    let _ = tokio::join!(a, b);
    sleep(ms(1)).await;
    assert_eq!((store.stats().calls, store.stats().in_flight), (3, 1));
    drop(d);
    let (c, e) = tokio::join!(c, e);
    // Who comes after has what was for who has gone.
    let remaining = [c, e].map(|answer| answer.expect("an answer").states[0].remaining);
    assert_eq!(remaining, [99, 98]);
    sleep(ms(1)).await;
    assert_eq!(store.stats().late_grants, 1, "{:?}", connection.sent());
    assert_eq!(store.stats().settle_calls, 1);
}

/// Callers of several runtimes that go, time out and stay; what is used in the end is what they kept.
#[test]
fn c6_nothing_is_lost_or_charged_twice_whatever_callers_do() {
    let main = threads(2);
    let quota = Quota::new(1_000_000, YEAR);
    let (server, store) = main.block_on(async {
        let server = Server::start(Version::V7).await;
        let store = connect(&server.url()).await;
        (server, store)
    });
    let kept = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..3_u64)
        .map(|thread| {
            let (store, kept, main) = (store.clone(), Arc::clone(&kept), main.handle().clone());
            thread::spawn(move || {
                let own = runtime();
                let work = async move {
                    let mut tasks = tokio::task::JoinSet::new();
                    for index in 0..2_000_u64 {
                        let (store, kept) = (store.clone(), Arc::clone(&kept));
                        let random = (index * 7 + thread * 13) % 11;
                        tasks.spawn(async move {
                            let (key, policy) = (Key::from("k"), PolicyName::new("test").expect("a name"));
                            let charges = [Charge::new(&key, &policy, quota)];
                            let deadline = if random == 0 {
                                Duration::from_micros(1_200)
                            } else {
                                LONG
                            };
                            let want = 1 + (index % 3) as u32;
                            let mut answer = store.acquire(&Ask::new(&charges).want(want).deadline(deadline));
                            // Who has seen its answer has it, whatever it does then.
                            let keep = |answer: Option<Result<Outcome, StoreError>>| {
                                if let Some(Ok(outcome)) = answer {
                                    kept.fetch_add(outcome.granted as usize, Ordering::SeqCst);
                                }
                            };
                            match random {
                                1 => return,
                                2 => {
                                    keep(once(&mut answer));
                                    return;
                                }
                                3 => {
                                    sleep(ms(index % 5)).await;
                                    return;
                                }
                                4 => {
                                    sleep(ms(index % 5)).await;
                                }
                                5 => {
                                    let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut answer).poll(cx)));
                                    keep(match first.await {
                                        Poll::Ready(answer) => Some(answer),
                                        Poll::Pending => None,
                                    });
                                    sleep(ms(3)).await;
                                    return;
                                }
                                6 => {
                                    keep(timeout(Duration::from_micros(index % 3_000), answer).await.ok());
                                    return;
                                }
                                _ => {}
                            }
                            keep(Some(answer.await));
                        });
                        if index % 50 == 0 {
                            sleep(ms(1)).await;
                        }
                    }
                    tasks.join_all().await;
                };
                match thread {
                    0 => main.block_on(work),
                    _ => own.block_on(work),
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("it ends");
    }
    main.block_on(async {
        let start = Instant::now();
        loop {
            let (key, policy) = (Key::from("k"), PolicyName::new("test").expect("a name"));
            let charges = [Charge::new(&key, &policy, quota)];
            let peeked = store
                .peek(&Ask::new(&charges).deadline(LONG))
                .await
                .expect("an answer");
            let used = 1_000_000 - peeked.states[0].remaining as usize;
            let kept = kept.load(Ordering::SeqCst);
            let stats = store.stats();
            if used.abs_diff(kept) == 0 && stats.waiting == 0 && stats.in_flight == 0 {
                break;
            }
            assert!(start.elapsed() < LONG, "used {used} kept {kept} {stats:?}");
            sleep(ms(20)).await;
        }
    });
    drop(server);
}

/// Each is a call's worth of units, and two of them are more.
#[tokio::test(start_paused = true)]
async fn c11_equal_asks_share_a_call_as_long_as_it_may_write_them_all() {
    for (want, calls) in [(500, 2), (501, 3)] {
        let connection = scripted(move |sent| match sent.index {
            0 => granted(ms(10)),
            _ if want == 500 => replies(&[1_000]),
            _ => replies(&[501]),
        });
        let store = RedisStore::builder().max_in_flight(1).build(connection);
        let (key, policy) = (Key::from("k"), PolicyName::new("test").expect("a name"));
        let charges = [Charge::new(&key, &policy, Quota::new(4_000, YEAR))];
        let many = || store.acquire(&Ask::new(&charges).want(want).deadline(LONG));
        let mut first = ask(&store, "x", LONG);
        assert!(once(&mut first).is_none());
        let (_, one, other) = tokio::join!(first, many(), many());
        assert_eq!(one.expect("an answer").granted, want);
        assert_eq!(other.expect("an answer").granted, want);
        assert_eq!(store.stats().calls, calls, "{want}");
    }
}

/// Nobody polls the first call, which has lost its place meanwhile, and nobody else comes.
#[tokio::test(start_paused = true)]
async fn c9_who_gives_up_sends_what_waits_behind_a_call_that_nobody_polls() {
    let connection = scripted(|sent| match sent.index {
        0 => Reply::never(),
        _ => granted(ms(5)),
    });
    let store = RedisStore::builder().max_in_flight(1).build(connection);
    let mut first = ask(&store, "a", LONG);
    assert!(once(&mut first).is_none());
    let start = Instant::now();
    let (short, long) = tokio::join!(acquire(&store, "b", ms(300)), acquire(&store, "c", LONG));
    assert!(short.is_err());
    assert_eq!(long, Ok(1));
    assert!(start.elapsed() < ms(350), "{:?}", start.elapsed());
    drop(first);
}

/// Who relies on a runtime for its deadline is woken when that ends, so that it can see to it itself.
#[test]
fn c7_who_waits_is_woken_when_the_runtime_that_keeps_its_deadline_ends() {
    let ending = threads(1);
    let store = ending.block_on(async { RedisStore::new(scripted(|_| Reply::never())) });
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let [mut first, mut second, mut waits] = ["a", "b", "c"].map(|key| ask(&store, key, LONG));
    ending.block_on(async {
        assert!(once(&mut first).is_none() && once(&mut second).is_none());
    });
    // Of no runtime, and so without a timer.
    assert!(
        Pin::new(&mut waits)
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    drop(ending);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    drop((first, second, waits));
}
