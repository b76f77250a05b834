//! What a request to a known key allocates: in process, nothing but its headers and the extension; before a store that has to be
//! waited for, what it waits in.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocation_counter::measure;
use http::{Request, Response};
use tollgate::key::{self, KeyExtractor, PeerAddr};
use tollgate::store::{Ask, Outcome, Stamp, StoreFuture};
use tollgate::{DecisionEvent, Headers, Key, Limiter, MemoryStore, Quota, RateLimitLayer, Store};
use tower::{Layer, Service};

#[derive(Clone)]
struct Inner;

impl Service<Request<String>> for Inner {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<String>) -> Self::Future {
        ready(Ok(Response::new(String::new())))
    }
}

fn request() -> Request<String> {
    let mut request = Request::new(String::new());
    request
        .extensions_mut()
        .insert(PeerAddr(SocketAddr::from(([192, 0, 2, 7], 40_000))));
    request
        .headers_mut()
        .insert("x-api-key", http::HeaderValue::from_static("alice"));
    request
}

fn send<S>(service: &mut S, request: Request<String>)
where
    S: Service<Request<String>, Response = Response<String>, Error = Infallible>,
{
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut cx) else {
        panic!("in process nothing waits");
    };
    assert_eq!(response.status(), 200);
}

/// Allocations of one request, once its key is known and its log has room.
fn allocations(layer: &RateLimitLayer) -> u64 {
    let mut service = layer.layer(Inner);
    for _ in 0..9 {
        send(&mut service, request());
    }
    let request = request();
    measure(|| send(&mut service, request)).count_total
}

/// Allocations of one refusal.
fn refused(layer: &RateLimitLayer) -> u64 {
    let mut service = layer.layer(Inner);
    let mut refuse = |request| {
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut cx) else {
            panic!("in process nothing waits");
        };
        assert_eq!(response.status(), 429);
    };
    refuse(request());
    let request = request();
    measure(|| refuse(request)).count_total
}

/// A store whose answers are there when they are asked for the second time.
#[derive(Clone)]
struct Remote(MemoryStore);

impl Store for Remote {
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let answer = self.0.acquire(ask);
        let mut is_asked = false;
        StoreFuture::waiting(async move {
            poll_fn(|_| match std::mem::replace(&mut is_asked, true) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
            answer.await
        })
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

    fn keeps_deadlines(&self) -> bool {
        true
    }
}

#[test]
fn a_request_that_waits_allocates_what_it_waits_in() {
    let quota = Quota::new(100, Duration::from_secs(900));
    let layer = RateLimitLayer::new(Remote(MemoryStore::new()), quota, key::PeerIp)
        .headers(Headers::none())
        .decision_extension(false);
    let mut service = layer.layer(Inner);
    let mut send = |request| {
        let mut cx = Context::from_waker(Waker::noop());
        let mut response = pin!(service.call(request));
        assert!(response.as_mut().poll(&mut cx).is_pending());
        assert!(response.as_mut().poll(&mut cx).is_ready());
    };
    for _ in 0..9 {
        send(request());
    }
    let request = request();
    // The store's own future, and the request with its service.
    assert_eq!(measure(|| send(request)).count_total, 2);
}

fn layer(key: impl KeyExtractor) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), Quota::new(100, Duration::from_secs(900)), key)
}

fn silent(key: impl KeyExtractor) -> RateLimitLayer {
    layer(key).headers(Headers::none()).decision_extension(false)
}

#[test]
fn a_known_key_allocates_nothing() {
    let header = || key::Header::new(http::HeaderName::from_static("x-api-key"));
    assert_eq!(allocations(&silent(key::PeerIp)), 0);
    assert_eq!(allocations(&silent(header())), 0);
    assert_eq!(allocations(&silent(key::Global)), 0);
    assert_eq!(allocations(&silent((key::PeerIp, key::Method))), 0);
    assert_eq!(allocations(&silent(header().or(key::PeerIp))), 0);
}

#[test]
fn headers_and_the_extension_allocate_what_they_must() {
    // The table of a header map and its entries; the values are short numbers.
    assert_eq!(allocations(&layer(key::PeerIp).decision_extension(false)), 2);
    // The extension's box: the request's own extensions have a table already.
    assert_eq!(allocations(&layer(key::PeerIp).headers(Headers::none())), 1);
}

#[test]
fn no_copy_of_the_decision_is_made_where_nothing_is_listed() {
    // Refusals have the decision; it need not be copied to be written.
    let none = || {
        RateLimitLayer::new(
            MemoryStore::new(),
            Quota::new(0, Duration::from_secs(900)),
            key::PeerIp,
        )
    };
    let silent = refused(&none().headers(Headers::none()));
    assert_eq!(refused(&none().headers(Headers::none().shadow(true))), silent);
    // Nothing limits the request, and no policy is in shadow mode.
    let exempt = |headers| allocations(&silent_but(headers).skip_when(|_: &http::request::Parts| true));
    let silent = exempt(Headers::none());
    assert_eq!(exempt(Headers::none().ietf(tollgate::Draft::V8)), silent);
    assert_eq!(exempt(Headers::none().shadow(true)), silent);
}

fn silent_but(headers: Headers) -> RateLimitLayer {
    silent(key::PeerIp).headers(headers)
}

#[test]
fn a_check_in_process_that_somebody_is_told_of_allocates_nothing() {
    let quota = Quota::new(1_000, Duration::from_secs(900));
    let limiter = Limiter::new(MemoryStore::new(), quota).on_decision(|_: &DecisionEvent<'_>| ());
    let key = Key::from("k");
    let check = || {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pin!(limiter.check(&key)).as_mut().poll(&mut cx).is_ready());
    };
    check();
    assert_eq!(measure(check).count_total, 0);
}
