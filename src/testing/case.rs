//! A store under test beside an embedded one that is asked the same at the same times.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::Harness;
use super::alarm::Alarm;
use super::counter::Counter;
use crate::clock::{ManualClock, micros};
use crate::quota::{Algorithm, Quota};
use crate::store::{
    Ask, Charge, ChargeState, Correction, MemoryStore, Outcome, Retry, Stamp, Store, StoreError, StoreFuture,
};

/// One kind of quota, tried on one store.
pub(super) struct Case<'a, H: Harness> {
    harness: &'a H,
    store: Arc<H::Store>,
    pub(super) quota: Quota,
    twin: MemoryStore,
    twin_clock: ManualClock,
    alarm: Arc<Alarm>,
}

impl<'a, H: Harness> Case<'a, H> {
    pub(super) async fn new(harness: &'a H, quota: Quota) -> Self {
        let twin_clock = ManualClock::new();
        Self {
            harness,
            store: Arc::new(harness.store().await),
            quota,
            twin: MemoryStore::builder().clock(twin_clock.clock()).build(),
            twin_clock,
            alarm: Arc::new(Alarm::new(harness.patience())),
        }
    }

    /// Another quota, tried on the same store.
    pub(super) fn with(&self, quota: Quota) -> Self {
        Self {
            harness: self.harness,
            store: Arc::clone(&self.store),
            quota,
            twin: self.twin.clone(),
            twin_clock: self.twin_clock.clone(),
            alarm: Arc::clone(&self.alarm),
        }
    }

    pub(super) fn window(&self) -> Duration {
        self.harness.window()
    }

    pub(super) fn resolution(&self) -> Duration {
        self.harness.resolution()
    }

    /// Whether the clock is moved by hand: then waits cost nothing, and nothing happens between two calls.
    pub(super) fn by_hand(&self) -> bool {
        self.resolution().is_zero()
    }

    pub(super) fn is(&self, algorithm: Algorithm) -> bool {
        self.quota.algorithm() == Some(algorithm)
    }

    /// Units that a bucket may refill while a rule is tried. What it takes back depends on the time at which it is
    /// asked to, which no store reports.
    pub(super) fn refilled(&self) -> u64 {
        u64::from(self.is(Algorithm::TokenBucket) && !self.by_hand())
    }

    pub(super) async fn advance(&self, by: Duration) {
        self.harness.advance(by).await;
    }

    /// Steps the clock back, if the harness can.
    pub(super) fn step_back(&self, by: Duration) -> bool {
        self.harness.step_back(by)
    }

    /// A counter that nothing is charged to, with at least half a window ahead in which its window does not end.
    pub(super) async fn counter(&self, rule: &str, key: &str) -> Counter {
        let counter = Counter::new(key, "policy", self.quota);
        if self.is(Algorithm::FixedWindow) || self.is(Algorithm::SlidingCounter) {
            let charges = [counter.tenths(1)];
            let reset_after = self.acquire(rule, &charges).await.states[0].reset_after;
            let window = micros(self.window());
            let left = Duration::from_micros(micros(reset_after) % window);
            self.reset(rule, &charges).await;
            if left < self.window() / 2 {
                self.advance(left).await;
            }
        }
        counter
    }

    pub(super) async fn acquire(&self, rule: &str, charges: &[Charge<'_>]) -> Outcome {
        self.ask(rule, &Ask::new(charges)).await
    }

    pub(super) async fn ask(&self, rule: &str, ask: &Ask<'_>) -> Outcome {
        let ask = &self.patient(ask);
        let answer = self.answer(rule, self.store.acquire(ask)).await;
        self.compare(rule, answer, |twin| twin.acquire(ask))
    }

    pub(super) async fn charge(&self, rule: &str, charges: &[Charge<'_>]) -> Outcome {
        self.charge_ask(rule, &Ask::new(charges)).await
    }

    pub(super) async fn charge_ask(&self, rule: &str, ask: &Ask<'_>) -> Outcome {
        let ask = &self.patient(ask);
        let answer = self.answer(rule, self.store.charge(ask)).await;
        self.compare(rule, answer, |twin| twin.charge(ask))
    }

    pub(super) async fn peek(&self, rule: &str, charges: &[Charge<'_>]) -> Outcome {
        self.peek_ask(rule, &Ask::new(charges)).await
    }

    pub(super) async fn peek_ask(&self, rule: &str, ask: &Ask<'_>) -> Outcome {
        let ask = &self.patient(ask);
        let answer = self.answer(rule, self.store.peek(ask)).await;
        self.compare(rule, answer, |twin| twin.peek(ask))
    }

    pub(super) async fn remaining(&self, rule: &str, charge: Charge<'_>) -> u64 {
        self.peek(rule, &[charge]).await.states[0].remaining
    }

    /// Gives back, with a look before, which tells the twin the time.
    pub(super) async fn give_back(&self, rule: &str, charges: &[Charge<'_>], times: u32, stamp: Stamp) {
        self.peek(rule, charges).await;
        let ask = self.patient(&Ask::new(charges));
        self.answer(rule, self.store.give_back(&ask, times, stamp)).await;
        self.answer(rule, self.twin.give_back(&ask, times, stamp)).await;
    }

    /// Makes corrections, of which the first is of something that is counted, with a look before.
    pub(super) async fn settle(&self, rule: &str, corrections: &[Correction<'_>]) {
        if let Some(first) = corrections.first() {
            self.peek(rule, first.ask.charges).await;
        }
        let patient: Vec<_> = corrections
            .iter()
            .map(|correction| Correction {
                ask: self.patient(&correction.ask),
                ..*correction
            })
            .collect();
        self.answer(rule, self.store.settle(&patient)).await;
        self.answer(rule, self.twin.settle(&patient)).await;
    }

    pub(super) async fn reset(&self, rule: &str, charges: &[Charge<'_>]) {
        let ask = self.patient(&Ask::new(charges));
        self.answer(rule, self.store.reset(&ask)).await;
        self.answer(rule, self.twin.reset(&ask)).await;
    }

    /// Blocks, with a look before, which tells the twin the time.
    pub(super) async fn block(&self, rule: &str, charges: &[Charge<'_>], time: Duration) {
        self.peek(rule, charges).await;
        let ask = self.patient(&Ask::new(charges));
        self.answer(rule, self.store.block(&ask, time)).await;
        self.answer(rule, self.twin.block(&ask, time)).await;
    }

    /// How often asks that are begun together are granted.
    pub(super) async fn at_once(&self, rule: &str, asks: &[Ask<'_>]) -> u32 {
        let mut waiting: Vec<_> = asks
            .iter()
            .map(|ask| self.store.acquire(&self.patient(ask)))
            .collect();
        let mut granted = 0;
        let all = poll_fn(|cx| {
            waiting.retain_mut(|future| match Pin::new(future).poll(cx) {
                Poll::Ready(answer) => {
                    granted += self.expect(rule, answer).granted;
                    false
                }
                Poll::Pending => true,
            });
            if waiting.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        let all = self.alarm.within(all).await;
        self.in_time(rule, all);
        granted
    }

    /// No store is expected to meet a deadline on a busy machine; how long the suite waits is the harness's to say.
    fn patient<'c>(&self, ask: &Ask<'c>) -> Ask<'c> {
        ask.deadline(self.alarm.patience())
    }

    /// Begins an ask of each kind, and drops it after it was polled so many times.
    pub(super) async fn drop_halfway(&self, ask: &Ask<'_>, polls: u32) {
        drop_after(polls, self.store.acquire(ask)).await;
        drop_after(polls, self.store.charge(ask)).await;
        drop_after(polls, self.store.peek(ask)).await;
        drop_after(polls, self.store.give_back(ask, 1, Stamp::default())).await;
        let corrections = [
            Correction::charge(*ask),
            Correction::give_back(*ask, 1, Stamp::default()),
        ];
        drop_after(polls, self.store.settle(&corrections)).await;
        drop_after(polls, self.store.reset(ask)).await;
        drop_after(polls, self.store.block(ask, Duration::ZERO)).await;
    }

    /// Panics unless `holds`.
    #[track_caller]
    pub(super) fn check(&self, rule: &str, holds: bool, what: std::fmt::Arguments<'_>) {
        assert!(holds, "{rule}, with {}: {what}", self.quota);
    }

    #[track_caller]
    fn expect<T>(&self, rule: &str, answer: Result<T, StoreError>) -> T {
        answer.unwrap_or_else(|error| panic!("{rule}, with {}: no answer: {error}", self.quota))
    }

    async fn answer<T: Unpin>(&self, rule: &str, future: StoreFuture<T>) -> T {
        let answer = self.alarm.within(future).await;
        self.expect(rule, self.in_time(rule, answer))
    }

    #[track_caller]
    fn in_time<T>(&self, rule: &str, answer: Option<T>) -> T {
        answer.unwrap_or_else(|| {
            let patience = self.alarm.patience();
            panic!("{rule}, with {}: no answer within {patience:?}", self.quota)
        })
    }

    /// Asks the twin at the time of the store's answer.
    #[track_caller]
    fn compare(
        &self,
        rule: &str,
        answer: Outcome,
        ask: impl FnOnce(&MemoryStore) -> StoreFuture<Outcome>,
    ) -> Outcome {
        self.twin_clock.set(Duration::from_micros(answer.now.as_micros()));
        let Ok(expected) = ask(&self.twin).into_ready() else {
            unreachable!("an embedded store never waits");
        };
        let expected = self.expect(rule, expected);
        let same = answer.granted == expected.granted
            && (answer.granted == 0 || answer.stamp == expected.stamp)
            && answer.states.len() == expected.states.len()
            && answer
                .states
                .iter()
                .zip(&expected.states)
                .all(|(answer, expected)| self.is_same(answer, expected));
        self.check(
            rule,
            same,
            format_args!("the store answers\n{answer:?}\nand the rules ask for\n{expected:?}"),
        );
        answer
    }

    fn is_same(&self, answer: &ChargeState, expected: &ChargeState) -> bool {
        let near = |a: Duration, b: Duration| a.abs_diff(b) <= self.resolution();
        let retry = match (answer.retry, expected.retry) {
            (Retry::After(answer), Retry::After(expected)) => near(answer, expected),
            (answer, expected) => answer == expected,
        };
        retry
            && near(answer.reset_after, expected.reset_after)
            && answer.charged == expected.charged
            && answer.blocked == expected.blocked
            && answer.remaining.abs_diff(expected.remaining) <= self.refilled()
    }
}

async fn drop_after<T: Unpin>(polls: u32, mut future: StoreFuture<T>) {
    let mut polled = 0;
    poll_fn(|cx| {
        if polled == polls || Pin::new(&mut future).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        polled += 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
