//! An embedded store on a clock that stands still.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::store::{MemoryStoreBuilder, Outcome, Stamp};
use tollgate::{ManualClock, MemoryStore, Store};

use crate::model::{Charge, Rule, Terms};
use crate::steps::with_ask;

#[derive(Debug)]
pub(crate) struct Embedded {
    pub(crate) clock: ManualClock,
    pub(crate) store: MemoryStore,
}

impl Embedded {
    pub(crate) fn new() -> Self {
        Self::with(MemoryStore::builder())
    }

    pub(crate) fn with(builder: MemoryStoreBuilder) -> Self {
        let clock = ManualClock::new();
        let store = builder.clock(clock.clock()).build();
        Self { clock, store }
    }

    pub(crate) fn now(&self) -> i128 {
        self.clock.now().as_micros() as i128
    }

    pub(crate) fn advance(&self, micros: i128) {
        self.clock
            .advance(Duration::from_micros(u64::try_from(micros).expect("forward")));
    }

    pub(crate) fn ask(&self, charges: &[Charge], want: u32) -> Outcome {
        self.lease(charges, want, Duration::ZERO)
    }

    pub(crate) fn lease(&self, charges: &[Charge], want: u32, hold: Duration) -> Outcome {
        let asked = with_ask(charges, |ask| self.store.acquire(&ask.want(want).hold(hold)));
        at_once(asked).expect("an answer")
    }

    pub(crate) fn acquire(&self, charge: Charge) -> Outcome {
        self.ask(&[charge], 1)
    }

    pub(crate) fn takes(&self, charge: Charge) -> bool {
        self.acquire(charge).granted == 1
    }

    pub(crate) fn charge(&self, charge: Charge) -> Outcome {
        at_once(with_ask(&[charge], |ask| self.store.charge(&ask))).expect("an answer")
    }

    pub(crate) fn peek(&self, charge: Charge) -> Outcome {
        at_once(with_ask(&[charge], |ask| self.store.peek(&ask))).expect("an answer")
    }

    pub(crate) fn give_back(&self, charges: &[Charge], times: u32, stamp: Stamp) {
        at_once(with_ask(charges, |ask| self.store.give_back(&ask, times, stamp))).expect("an answer");
    }

    pub(crate) fn reset(&self, charge: Charge) {
        at_once(with_ask(&[charge], |ask| self.store.reset(&ask))).expect("an answer");
    }

    pub(crate) fn remaining(&self, charge: Charge) -> u64 {
        self.peek(charge).states[0].remaining
    }
}

/// The answer of a future that need not wait.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("an embedded store never waits"),
    }
}

/// One enforced unit of a counter.
pub(crate) fn unit(key: &'static str, terms: Terms) -> Charge {
    Charge {
        key,
        policy: "p",
        terms: Some(terms),
        cost: 1,
        shadow: false,
        penalty: None,
    }
}

impl Charge {
    pub(crate) fn of(self, cost: i128) -> Self {
        let cost = u64::try_from(cost).expect("a cost");
        Self { cost, ..self }
    }

    pub(crate) fn under(self, limit: i128) -> Self {
        let terms = self.terms.map(|terms| Terms { limit, ..terms });
        Self { terms, ..self }
    }
}

impl Terms {
    /// `limit` per `window` µs; a bucket of that burst, which fills in one window.
    pub(crate) fn new(rule: Rule, limit: i128, window: i128) -> Self {
        Self {
            rule,
            window,
            limit,
            rate: limit.max(1),
        }
    }
}

/// One of each kind.
pub(crate) const RULES: [Rule; 8] = [
    Rule::Log,
    Rule::Slots(64),
    Rule::Slots(3),
    Rule::Counter,
    Rule::Fixed(0),
    Rule::Fixed(123_456),
    Rule::FixedPerKey,
    Rule::Bucket,
];
