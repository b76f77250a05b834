use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, advance, sleep};

use super::*;
use crate::engine::OwnedCharge;
use crate::key::Key;
use crate::policy::PolicyName;
use crate::quota::Quota;
use crate::store::{
    Charge, Correction, CorrectionKind, MemoryStore, Mode, Outcome, Stamp, StoreError, StoreErrorKind,
};

const DEADLINE: Duration = Duration::from_millis(100);
const LIFE: Duration = Duration::from_secs(1);

/// What a call to settle comes to.
#[derive(Clone, Copy)]
enum Answer {
    Made(Duration),
    Failed(Duration),
    Undone,
    Never,
    Panics,
}

/// Answers as it is told, then makes all within a millisecond.
#[derive(Default)]
struct Scripted {
    script: Mutex<VecDeque<Answer>>,
    calls: Mutex<Vec<Call>>,
}

/// What was sent, when: subject, cost, kind, time left.
struct Call {
    at: Instant,
    corrections: Vec<(Key, u64, CorrectionKind, Duration)>,
}

impl Scripted {
    fn sizes(&self) -> Vec<usize> {
        let calls = self.calls.lock().unwrap();
        calls.iter().map(|call| call.corrections.len()).collect()
    }

    /// How long after the first each call was, and how much time its first correction had left.
    fn times(&self) -> Vec<(Duration, Duration)> {
        let calls = self.calls.lock().unwrap();
        let first = calls[0].at;
        calls
            .iter()
            .map(|call| (call.at - first, call.corrections[0].3))
            .collect()
    }
}

impl Store for Scripted {
    fn acquire(&self, _: &Ask<'_>) -> StoreFuture<Outcome> {
        unreachable!("a settler acquires nothing")
    }

    fn give_back(&self, _: &Ask<'_>, _: u32, _: Stamp) -> StoreFuture<()> {
        unreachable!("all is settled in batches")
    }

    fn charge(&self, _: &Ask<'_>) -> StoreFuture<Outcome> {
        unreachable!("all is settled in batches")
    }

    fn peek(&self, _: &Ask<'_>) -> StoreFuture<Outcome> {
        unreachable!("a settler looks at nothing")
    }

    fn block(&self, _ask: &Ask<'_>, _time: Duration) -> StoreFuture<()> {
        unreachable!("nothing is blocked here")
    }

    fn reset(&self, _: &Ask<'_>) -> StoreFuture<()> {
        unreachable!("a settler resets nothing")
    }

    fn settle(&self, corrections: &[Correction<'_>]) -> StoreFuture<()> {
        let each = corrections.iter().map(|correction| {
            let charge = &correction.ask.charges[0];
            assert_eq!(correction.ask.charges.len(), 1);
            (
                charge.key.clone(),
                charge.cost,
                correction.kind,
                correction.ask.deadline,
            )
        });
        self.calls.lock().unwrap().push(Call {
            at: Instant::now(),
            corrections: each.collect(),
        });
        let answer = self.script.lock().unwrap().pop_front();
        let answer = answer.unwrap_or(Answer::Made(Duration::from_millis(1)));
        let error = StoreError::new(StoreErrorKind::Unavailable);
        match answer {
            Answer::Panics => panic!("as the script says"),
            Answer::Never => StoreFuture::waiting(std::future::pending()),
            Answer::Undone => StoreFuture::waiting(async { Err(error.undone()) }),
            Answer::Made(after) => StoreFuture::waiting(async move {
                sleep(after).await;
                Ok(())
            }),
            Answer::Failed(after) => StoreFuture::waiting(async move {
                sleep(after).await;
                Err(error)
            }),
        }
    }
}

fn scripted(script: &[Answer]) -> (Arc<Scripted>, Arc<Settler>) {
    let store = Arc::new(Scripted {
        script: Mutex::new(script.iter().copied().collect()),
        ..Scripted::default()
    });
    let settler = Arc::new(Settler::new(Arc::clone(&store) as Arc<dyn Store>));
    (store, settler)
}

fn correction(key: &str, cost: u64, kind: CorrectionKind) -> OwnedCorrection {
    OwnedCorrection {
        charge: OwnedCharge {
            key: Key::from(key),
            policy: PolicyName::new("test").unwrap(),
            quota: Quota::per_hour(100),
            cost,
            mode: Mode::Enforce,
            penalty: None,
        },
        kind,
        charged: Age::default(),
    }
}

fn charge(number: usize) -> OwnedCorrection {
    correction(&format!("key {number}"), 1, CorrectionKind::Charge)
}

fn back(key: &str, times: u32, stamp: u64) -> OwnedCorrection {
    let stamp = Stamp::from_micros(stamp);
    correction(key, 1, CorrectionKind::GiveBack { times, stamp })
}

fn runtime(paused: bool) -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(paused).build().unwrap()
}

#[test]
fn a_store_that_answers_at_once_has_corrected_at_once() {
    let store = MemoryStore::new();
    let settler = Arc::new(Settler::new(Arc::new(store.clone())));
    let remaining = || {
        let owned = charge(1).charge;
        let peeked = store.peek(&Ask::new(&[owned.borrow()])).into_ready();
        peeked.unwrap().unwrap().states[0].remaining
    };
    let owned = charge(1).charge;
    let acquired = store.acquire(&Ask::new(&[owned.borrow()]).want(3)).into_ready();
    let stamp = acquired.unwrap().unwrap().stamp.as_micros();
    assert_eq!(remaining(), 97);
    settler.push(back("key 1", 2, stamp));
    assert_eq!(remaining(), 99);
    settler.push(correction("key 1", 10, CorrectionKind::Charge));
    assert_eq!(remaining(), 89);
    // And there is nothing to wait for, with a timer or without.
    let flushed = runtime(false).block_on(settler.flush(Duration::ZERO));
    assert_eq!((flushed, settler.lost()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_arrives_while_a_call_is_under_way_goes_in_the_next() {
    let (store, settler) = scripted(&[]);
    settler.push(charge(0));
    assert_eq!(store.sizes(), [1], "nothing waits when idle");
    for number in 1..=300 {
        settler.push(charge(number));
    }
    assert_eq!(store.sizes(), [1]);
    assert_eq!(settler.flush(LIFE).await, 0);
    assert_eq!(store.sizes(), [1, 128, 128, 44]);
    assert_eq!(settler.tasks.load(Ordering::Relaxed), 0, "the task has ended");
    settler.push(charge(301));
    assert_eq!(store.sizes(), [1, 128, 128, 44, 1]);
    assert_eq!(settler.flush(LIFE).await, 0);
    let mut keys: Vec<Key> = Vec::new();
    for call in store.calls.lock().unwrap().iter() {
        keys.extend(call.corrections.iter().map(|(key, ..)| key.clone()));
    }
    let expected: Vec<Key> = (0..=301).map(|number| charge(number).charge.key).collect();
    assert_eq!(keys, expected, "each once, in order");
}

#[tokio::test(start_paused = true)]
async fn corrections_of_one_counter_become_one() {
    let (store, settler) = scripted(&[]);
    settler.push(charge(0));
    for each in [
        back("a", 1, 7),
        back("a", 2, 7),
        back("a", 1, 8),
        back("b", 1, 7),
        correction("a", 5, CorrectionKind::Charge),
        correction("a", 6, CorrectionKind::Charge),
        correction("b", u64::MAX, CorrectionKind::Charge),
        correction("b", 1, CorrectionKind::Charge),
        back("c", u32::MAX, 7),
        back("c", 1, 7),
    ] {
        settler.push(each);
    }
    let mut doubled = back("a", 1, 7);
    doubled.charge.cost = 2;
    let mut of_another_limit = back("a", 1, 7);
    of_another_limit.charge.quota = Quota::per_hour(99);
    settler.push(doubled);
    settler.push(of_another_limit);
    assert_eq!(settler.flush(LIFE).await, 0);
    let calls = store.calls.lock().unwrap();
    let kind = |times, stamp| CorrectionKind::GiveBack {
        times,
        stamp: Stamp::from_micros(stamp),
    };
    let sent = calls[1].corrections.iter();
    let sent: Vec<_> = sent
        .map(|(key, cost, kind, _)| (key.clone(), *cost, *kind))
        .collect();
    let expected = [
        ("a", 1, kind(3, 7)),
        ("a", 1, kind(1, 8)),
        ("b", 1, kind(1, 7)),
        ("a", 11, CorrectionKind::Charge),
        ("b", u64::MAX, CorrectionKind::Charge),
        ("b", 1, CorrectionKind::Charge),
        ("c", 1, kind(u32::MAX, 7)),
        ("c", 1, kind(1, 7)),
        ("a", 2, kind(1, 7)),
        ("a", 1, kind(1, 7)),
    ];
    assert_eq!(
        sent,
        expected.map(|(key, cost, kind)| (Key::from(key), cost, kind))
    );
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_done_is_not_sent_again() {
    let (store, settler) = scripted(&[
        Answer::Failed(Duration::from_millis(5)),
        Answer::Made(Duration::ZERO),
    ]);
    settler.push(back("a", 1, 7));
    settler.push(back("a", 1, 7));
    settler.push(back("a", 1, 7));
    assert_eq!(settler.flush(LIFE).await, 1);
    assert_eq!((store.sizes(), settler.lost()), (vec![1, 1], 1));
    let calls = store.calls.lock().unwrap();
    let two = CorrectionKind::GiveBack {
        times: 2,
        stamp: Stamp::from_micros(7),
    };
    assert_eq!(calls[1].corrections[0].2, two);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_done_is_sent_again_until_its_time_is_over() {
    let (store, settler) = scripted(&[Answer::Undone, Answer::Undone]);
    settler.push(charge(1));
    settler.push(charge(2));
    assert_eq!(settler.flush(LIFE).await, 0);
    assert_eq!(store.sizes(), [1, 2, 2]);
    assert_eq!(
        store.times(),
        [
            (Duration::ZERO, LIFE),
            (DEADLINE, LIFE - DEADLINE),
            (DEADLINE * 2, LIFE - DEADLINE * 2)
        ]
    );

    let (store, settler) = scripted(&[Answer::Undone; 100]);
    let start = Instant::now();
    settler.push(charge(1));
    sleep(LIFE / 2).await;
    settler.push(charge(2));
    assert_eq!(settler.flush(LIFE * 2).await, 2);
    assert_eq!(settler.lost(), 2);
    assert!(start.elapsed() < LIFE * 2, "{:?}", start.elapsed());
    assert!(store.sizes().len() < 20);
    store.script.lock().unwrap().clear();
    settler.push(charge(3));
    assert_eq!(settler.flush(LIFE).await, 0, "it goes on");
}

#[tokio::test(start_paused = true)]
async fn what_is_fresh_is_not_lost_with_what_is_old() {
    // An outage of a little more than ten deadlines.
    let (store, settler) = scripted(&[Answer::Undone; 12]);
    settler.push(correction("a", 1, CorrectionKind::Charge));
    settler.push(correction("a", 2, CorrectionKind::Charge));
    // So that a call takes the old and the fresh along.
    sleep(LIFE - DEADLINE * 3 / 2).await;
    settler.push(correction("a", 4, CorrectionKind::Charge));
    settler.push(correction("a", 8, CorrectionKind::Charge));
    assert_eq!(settler.flush(LIFE).await, 2);
    assert_eq!(settler.lost(), 2, "those of the beginning");
    let calls = store.calls.lock().unwrap();
    let sent = |call: &Call| -> Vec<u64> { call.corrections.iter().map(|(_, cost, ..)| *cost).collect() };
    assert_eq!(sent(&calls[1]), [3], "those of one time are one");
    assert_eq!(sent(&calls[9]), [3, 12], "at nine deadlines");
    assert_eq!(sent(&calls[12]), [12]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_takes_no_more_than_the_time_of_what_it_was_asked() {
    let (store, settler) = scripted(&[Answer::Never]);
    let start = Instant::now();
    settler.push(charge(1));
    sleep(LIFE / 2).await;
    settler.push(charge(2));
    assert_eq!(settler.flush(LIFE).await, 1);
    assert_eq!((store.sizes(), settler.lost()), (vec![1, 1], 1));
    assert!(start.elapsed() < LIFE + DEADLINE, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_flush_waits_no_longer_than_it_is_told() {
    let (_, settler) = scripted(&[Answer::Made(DEADLINE), Answer::Made(DEADLINE)]);
    let start = Instant::now();
    settler.push(charge(1));
    settler.push(charge(2));
    settler.push(charge(3));
    assert_eq!(
        settler.flush(DEADLINE / 2).await,
        3,
        "all are unsent or unanswered"
    );
    assert_eq!(start.elapsed(), DEADLINE / 2);
    assert_eq!(settler.flush(DEADLINE).await, 2);
    let (one, other) = tokio::join!(settler.flush(LIFE), settler.flush(LIFE));
    assert_eq!((one, other, settler.lost()), (0, 0, 0));
    assert_eq!(start.elapsed(), DEADLINE * 2);
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_bounded() {
    let (store, settler) = scripted(&[Answer::Made(DEADLINE)]);
    for number in 0..MOST_PENDING + 5 {
        settler.push(charge(number));
    }
    assert_eq!(settler.lost(), 5);
    assert_eq!(settler.flush(LIFE).await, 5);
    let sent: usize = store.sizes().iter().sum();
    assert_eq!(sent, MOST_PENDING);
    settler.push(charge(0));
    assert_eq!((settler.flush(LIFE).await, settler.lost()), (0, 5));
}

#[test]
fn without_a_runtime_a_correction_is_lost() {
    let (store, settler) = scripted(&[]);
    settler.push(charge(1));
    settler.push(charge(2));
    assert_eq!(settler.lost(), 2);
    runtime(true).block_on(async {
        settler.push(charge(3));
        assert_eq!(settler.flush(LIFE).await, 2, "those before");
    });
    assert_eq!((store.sizes().len(), settler.lost()), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_does_not_wedge_it() {
    let (store, settler) = scripted(&[Answer::Made(DEADLINE), Answer::Panics]);
    for number in 0..=130 {
        settler.push(charge(number));
    }
    // The task is gone, and the flush starts another for what waits.
    assert_eq!(settler.flush(LIFE).await, 128);
    assert_eq!((store.sizes(), settler.lost()), (vec![1, 128, 2], 128));

    let (store, settler) = scripted(&[Answer::Made(DEADLINE), Answer::Panics]);
    settler.push(charge(1));
    settler.push(charge(2));
    sleep(DEADLINE * 2).await;
    assert_eq!(settler.lost(), 1);
    settler.push(charge(3));
    assert_eq!(settler.flush(LIFE).await, 1, "that before");
    assert_eq!((store.sizes(), settler.lost()), (vec![1, 1, 1], 1));
}

#[test]
fn a_runtime_that_ends_loses_what_is_under_way_and_nothing_else() {
    let (store, settler) = scripted(&[Answer::Never]);
    let first = runtime(true);
    first.block_on(async {
        settler.push(charge(1));
        settler.push(charge(2));
        assert_eq!(settler.flush(DEADLINE).await, 2);
    });
    drop(first);
    assert_eq!(settler.lost(), 1);
    runtime(true).block_on(async {
        assert_eq!(settler.flush(LIFE).await, 1, "the other is sent from here");
        settler.push(charge(3));
        assert_eq!(settler.flush(LIFE).await, 0);
    });
    assert_eq!((store.sizes(), settler.lost()), (vec![1, 1, 1], 1));
}

#[test]
fn a_runtime_that_nobody_drives_holds_nothing_up_for_long() {
    let (store, settler) = scripted(&[]);
    let parked = runtime(false);
    parked.block_on(async { settler.push(charge(0)) });
    runtime(true).block_on(async {
        settler.push(charge(1));
        assert_eq!(store.sizes(), [1], "it waits for the first call");
        advance(LIFE * 2).await;
        settler.push(charge(2));
        assert_eq!(
            settler.flush(LIFE).await,
            2,
            "the first is unanswered, the second was too old"
        );
        assert_eq!(settler.lost(), 1);
        settler.push(charge(3));
        assert_eq!(store.sizes(), [1, 1, 1], "at once");
        settler.flush(LIFE).await;
    });
    // The first comes to its end all the same.
    parked.block_on(async { assert_eq!(settler.flush(LIFE).await, 0) });
    assert_eq!(settler.tasks.load(Ordering::Relaxed), 0);
    assert_eq!(settler.lost(), 1);
}

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_reset_while_it_waited_is_not_given_back() {
    let (store, settler) = scripted(&[Answer::Undone]);
    settler.push(back("a", 1, 7));
    settler.push(back("a", 1, 8));
    settler.push(back("b", 1, 7));
    settler.push(correction("a", 1, CorrectionKind::Charge));
    let owned = charge(0).charge;
    let key = Key::from("a");
    let reset = Charge {
        key: &key,
        ..owned.borrow()
    };
    drop(settler.resets.begin(&[reset]));
    assert_eq!(settler.flush(LIFE).await, 0);
    // Not even what was sent before and not done.
    assert_eq!(store.sizes(), [1, 2]);
    settler.push(back("a", 1, 7));
    assert_eq!(store.sizes(), [1, 2]);
    let since = OwnedCorrection {
        charged: settler.resets.age(),
        ..back("a", 1, 9)
    };
    settler.push(since);
    assert_eq!(settler.flush(LIFE).await, 0);
    assert_eq!(store.sizes(), [1, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_once_whenever_it_was() {
    let (_, settler) = scripted(&[
        Answer::Failed(DEADLINE),
        Answer::Failed(DEADLINE),
        Answer::Made(DEADLINE),
        Answer::Failed(DEADLINE),
    ]);
    settler.push(charge(1));
    sleep(DEADLINE * 2).await;
    settler.push(charge(2));
    assert_eq!(settler.flush(LIFE).await, 2, "one of them before");
    settler.push(charge(3));
    assert_eq!(settler.flush(LIFE).await, 0);
    settler.push(charge(4));
    let both = tokio::join!(settler.flush(LIFE), settler.flush(LIFE));
    assert_eq!(both.0 + both.1, 1);
    assert_eq!(settler.lost(), 3);
}

#[test]
fn what_fills_the_queue_lets_nothing_past_it() {
    let (store, settler) = scripted(&[]);
    let parked = runtime(false);
    parked.block_on(async {
        for number in 0..MOST_PENDING {
            settler.push(charge(number));
        }
    });
    runtime(true).block_on(async {
        settler.push(charge(0));
        assert_eq!((settler.lost(), store.sizes().len()), (1, 1));
        advance(LIFE * 2).await;
        // Nobody drives the task: who comes now sends what waits, but all of it was too old.
        settler.push(charge(0));
        assert_eq!(settler.lost(), 2);
        sleep(DEADLINE).await;
        assert_eq!(settler.queue().pending, 1);
        settler.push(charge(0));
        assert_eq!(store.sizes(), [1, 1]);
        settler.flush(LIFE).await;
        // And if what is under way is all there may be, nothing is added to it.
        settler.queue().pending = MOST_PENDING;
        let lost = settler.lost();
        settler.push(charge(0));
        let queue = settler.queue();
        assert_eq!((queue.pending, queue.lost), (MOST_PENDING, lost + 1));
    });
}

#[test]
fn what_is_lost_is_not_pending_at_the_same_time() {
    let (_, settler) = scripted(&[Answer::Failed(DEADLINE)]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let writer = {
        let (settler, seen) = (Arc::clone(&settler), Arc::clone(&seen));
        move || {
            // Whoever looks while the loss is told of.
            seen.lock().unwrap().push(settler.missing());
            io::sink()
        }
    };
    let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
    tracing::subscriber::with_default(subscriber, || {
        runtime(true).block_on(async {
            settler.push(charge(1));
            sleep(DEADLINE * 2).await;
        });
    });
    assert_eq!(*seen.lock().unwrap(), [1]);
}

#[test]
fn losses_are_logged_once() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let (_, settler) = scripted(&[]);
        for number in 0..3 {
            settler.push(charge(number));
        }
        assert_eq!(settler.lost(), 3);
    });
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(log.matches("corrections").count(), 1, "{log}");
    assert!(!log.contains("key"), "{log}");
}
