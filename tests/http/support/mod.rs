//! What the tests share.

mod client;
mod events;
mod example;
mod inner;
mod redis;
mod store;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use http::Request;
use tollgate::{Draft, Headers, ManualClock, MemoryStore, Quota, Rate};
use tower::{Service, ServiceExt};

pub(crate) use self::client::{Reply, get, request, send, send_http2, serve, serve_without_peers};
pub(crate) use self::events::Events;
pub(crate) use self::example::{Example, built, command};
pub(crate) use self::inner::{Inner, InnerError};
pub(crate) use self::redis::Redis;
pub(crate) use self::store::{Behaviour, TestStore};

/// The output of a future that must not take for ever.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("done within 20 seconds")
}

/// What polling a future once comes to.
pub(crate) async fn poll_once<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Calls a service when it is ready.
pub(crate) async fn start<S, B>(service: &mut S, request: Request<B>) -> S::Future
where
    S: Service<Request<B>, Error: fmt::Debug>,
{
    let ready = service.ready().await.expect("it gets ready");
    ready.call(request)
}

/// The response of a service that does not fail.
pub(crate) async fn call<S, B>(service: &mut S, request: Request<B>) -> S::Response
where
    S: Service<Request<B>, Error: fmt::Debug>,
{
    start(service, request).await.await.expect("it does not fail")
}

/// A store whose clock stands until the test moves it. It starts between two whole seconds.
pub(crate) fn clocked() -> (ManualClock, MemoryStore) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_micros(300_001));
    let store = MemoryStore::builder().clock(clock.clock()).build();
    (clock, store)
}

/// The quota of `limit` per `window` by every algorithm. All start empty and admit exactly `limit` at one instant.
pub(crate) fn by_every_algorithm(limit: u64, window: Duration) -> Vec<Quota> {
    let quota = Quota::new(limit, window);
    vec![
        quota,
        quota.slots(64),
        quota.sliding_counter(),
        quota.fixed_window(),
        quota.fixed_window_per_key(),
        Quota::token_bucket(Rate::new(limit, window), limit),
    ]
}

/// Every family of header fields alone, and all that fit together.
pub(crate) fn every_family() -> Vec<Headers> {
    let mut families = vec![
        Headers::none(),
        Headers::x_ratelimit(),
        Headers::x_ratelimit().reset_as_epoch(),
        Headers::x_ratelimit().without_reset(),
    ];
    for draft in [Draft::V6, Draft::V7, Draft::V8] {
        families.push(Headers::from(draft));
        families.push(Headers::x_ratelimit().ietf(draft));
    }
    families
}
