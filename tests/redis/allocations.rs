//! What a check allocates, on a connection that has its answers ready.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisFuture, Value};
use tokio::task::yield_now;
use tollgate::{Decision, Limiter, Quota, RedisStore, Source};

use crate::callers::runtime;
use crate::support::LONG;

/// What the connection itself allocates for a call: its future, and the list that it replies.
const OF_CONNECTION: u64 = 2;

/// Answers to asks of one counter.
#[derive(Clone, Copy)]
enum Ready {
    /// All that was wanted, with so many units then.
    Granted(i64),
    /// What it allocates does not count.
    Denied,
}

impl ConnectionLike for Ready {
    fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            // So that others come meanwhile.
            yield_now().await;
            let answer = match *self {
                Self::Granted(units) => Value::Int(units),
                Self::Denied => {
                    let numbers = [0, 0, 0, 1_000, 30_000_000, 60_000_000];
                    Value::Array(numbers.map(Value::Int).to_vec())
                }
            };
            Ok(Value::Array(vec![Value::Int(1_700_000_000_000_000), answer]))
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        unreachable!("checks send no pipelines")
    }

    fn get_db(&self) -> i64 {
        0
    }
}

fn limiter(connection: Ready) -> (RedisStore, Limiter) {
    let store = RedisStore::builder().max_in_flight(1).build(connection);
    let limiter = Limiter::new(store.clone(), Quota::per_minute(1_000)).deadline(LONG);
    (store, limiter)
}

/// Polls all until each has its decision, and says how many were allowed by the store.
async fn decide<F: Future<Output = Decision>>(checks: &mut [Pin<Box<F>>]) -> usize {
    let (mut is_decided, mut allowed) = ([false; 64], 0);
    while is_decided[..checks.len()].contains(&false) {
        for (check, is_decided) in checks.iter_mut().zip(&mut is_decided).filter(|(_, it)| !**it) {
            if let Poll::Ready(decision) = check.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                *is_decided = true;
                allowed += usize::from(decision.is_allowed() && decision.source() == Source::Store);
            }
        }
        yield_now().await;
    }
    allowed
}

/// The allocations of so many checks of one key at once, when others like them were made before.
fn allocations(checks: usize) -> u64 {
    let runtime = runtime();
    let (store, limiter) = runtime.block_on(async { limiter(Ready::Granted(checks as i64)) });
    let counts = [(); 3].map(|()| {
        let mut checks: Vec<_> = (0..checks).map(|_| Box::pin(limiter.check("k"))).collect();
        let mut allowed = 0;
        let counted = measure(|| allowed = runtime.block_on(decide(&mut checks)));
        assert_eq!(allowed, checks.len());
        runtime.block_on(async {
            while store.stats().in_flight > 0 {
                yield_now().await;
            }
        });
        counted.count_total
    });
    counts[2]
}

#[test]
fn a_call_for_one_check_allocates_little() {
    let alone = allocations(1) - OF_CONNECTION;
    assert!(alone <= 5, "{alone}");
}

#[test]
fn who_shares_a_call_with_others_allocates_nothing_of_its_own() {
    // But for lists that grow, each to twice its size.
    let (few, many) = (allocations(33), allocations(64));
    assert!(many <= few + 3, "{few} for 33, {many} for 64");
}

#[test]
fn what_is_denied_without_the_server_allocates_nothing() {
    let runtime = runtime();
    let (_, limiter) = runtime.block_on(async { limiter(Ready::Denied) });
    let mut source = Source::Store;
    let mut check = || measure(|| source = runtime.block_on(limiter.check("k")).source()).count_total;
    check();
    assert_eq!(check(), 0);
    assert_eq!(source, Source::DenyCache);
}
