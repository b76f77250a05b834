//! A store under test beside an embedded one that is asked the same at the same times.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::{Harness, TENTHS};
use crate::clock::{ManualClock, micros};
use crate::key::Key;
use crate::policy::PolicyName;
use crate::quota::{Algorithm, Quota};
use crate::store::{Ask, Charge, ChargeState, MemoryStore, Outcome, Retry, Stamp, Store, StoreFuture};

/// One kind of quota, tried on one store.
pub(super) struct Case<'a, H: Harness> {
    harness: &'a H,
    store: H::Store,
    pub(super) quota: Quota,
    twin: MemoryStore,
    twin_clock: ManualClock,
}

/// A key and a policy, of which charges can be made.
pub(super) struct Counter {
    pub(super) key: Key,
    pub(super) policy: PolicyName,
    pub(super) quota: Quota,
}

impl Counter {
    pub(super) fn new(key: &str, policy: &str, quota: Quota) -> Self {
        Self {
            key: Key::from(key),
            policy: PolicyName::new(policy).expect("the suite's names are names"),
            quota,
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.quota.limit().unwrap_or(u64::MAX)
    }

    /// A charge of some tenths of the limit.
    pub(super) fn tenths(&self, tenths: u64) -> Charge<'_> {
        self.cost(self.limit() / TENTHS * tenths)
    }

    pub(super) fn cost(&self, cost: u64) -> Charge<'_> {
        Charge::new(&self.key, &self.policy, self.quota).cost(cost)
    }

    /// The same counter under another quota.
    pub(super) fn under(&self, quota: Quota) -> Self {
        Self {
            key: self.key.clone(),
            policy: self.policy.clone(),
            quota,
        }
    }
}

impl<'a, H: Harness> Case<'a, H> {
    pub(super) async fn new(harness: &'a H, quota: Quota) -> Self {
        let twin_clock = ManualClock::new();
        Self {
            harness,
            store: harness.store().await,
            quota,
            twin: MemoryStore::builder().clock(twin_clock.clock()).build(),
            twin_clock,
        }
    }

    pub(super) fn window(&self) -> Duration {
        self.harness.window()
    }

    pub(super) fn resolution(&self) -> Duration {
        self.harness.resolution()
    }

    pub(super) fn is(&self, algorithm: Algorithm) -> bool {
        self.quota.algorithm() == Some(algorithm)
    }

    /// Units that a bucket may refill while a rule is tried. What it takes back depends on the time at which it is
    /// asked to, which no store reports.
    pub(super) fn refilled(&self) -> u64 {
        u64::from(self.is(Algorithm::TokenBucket) && !self.resolution().is_zero())
    }

    pub(super) async fn advance(&self, by: Duration) {
        self.harness.advance(by).await;
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
        let answer = self.answer(rule, self.store.acquire(ask)).await;
        self.compare(rule, answer, |twin| twin.acquire(ask))
    }

    pub(super) async fn charge(&self, rule: &str, charges: &[Charge<'_>]) -> Outcome {
        let ask = Ask::new(charges);
        let answer = self.answer(rule, self.store.charge(&ask)).await;
        self.compare(rule, answer, |twin| twin.charge(&ask))
    }

    pub(super) async fn peek(&self, rule: &str, charges: &[Charge<'_>]) -> Outcome {
        self.peek_ask(rule, &Ask::new(charges)).await
    }

    pub(super) async fn peek_ask(&self, rule: &str, ask: &Ask<'_>) -> Outcome {
        let answer = self.answer(rule, self.store.peek(ask)).await;
        self.compare(rule, answer, |twin| twin.peek(ask))
    }

    pub(super) async fn remaining(&self, rule: &str, charge: Charge<'_>) -> u64 {
        self.peek(rule, &[charge]).await.states[0].remaining
    }

    /// Gives back, with a look before, which tells the twin the time.
    pub(super) async fn give_back(&self, rule: &str, charges: &[Charge<'_>], times: u32, stamp: Stamp) {
        self.peek(rule, charges).await;
        let ask = Ask::new(charges);
        self.answer(rule, self.store.give_back(&ask, times, stamp)).await;
        self.answer(rule, self.twin.give_back(&ask, times, stamp)).await;
    }

    pub(super) async fn reset(&self, rule: &str, charges: &[Charge<'_>]) {
        let ask = Ask::new(charges);
        self.answer(rule, self.store.reset(&ask)).await;
        self.answer(rule, self.twin.reset(&ask)).await;
    }

    /// As many asks at once as `times`, and how often they were granted.
    pub(super) async fn at_once(&self, rule: &str, charges: &[Charge<'_>], times: usize) -> u32 {
        let ask = Ask::new(charges);
        let mut waiting: Vec<_> = (0..times).map(|_| self.store.acquire(&ask)).collect();
        let mut granted = 0;
        poll_fn(|cx| {
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
        })
        .await;
        granted
    }

    /// Begins an ask and drops it.
    pub(super) async fn drop_halfway(&self, charges: &[Charge<'_>]) {
        let mut future = self.store.acquire(&Ask::new(charges));
        poll_fn(|cx| {
            let _ = Pin::new(&mut future).poll(cx);
            Poll::Ready(())
        })
        .await;
    }

    /// Panics unless `holds`.
    #[track_caller]
    pub(super) fn check(&self, rule: &str, holds: bool, what: std::fmt::Arguments<'_>) {
        assert!(holds, "{rule}, with {}: {what}", self.quota);
    }

    #[track_caller]
    fn expect<T>(&self, rule: &str, answer: Result<T, crate::store::StoreError>) -> T {
        answer.unwrap_or_else(|error| panic!("{rule}, with {}: no answer: {error}", self.quota))
    }

    async fn answer<T: Unpin>(&self, rule: &str, future: StoreFuture<T>) -> T {
        let answer = future.await;
        self.expect(rule, answer)
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
            && answer.remaining.abs_diff(expected.remaining) <= self.refilled()
    }
}
