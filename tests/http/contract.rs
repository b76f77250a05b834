//! The contract of `tower::Service`: readiness, what a refusal leaves, errors.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use http::{Request, Response, StatusCode};
use tollgate::{MemoryStore, Quota, RateLimit, RateLimitLayer, key};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{Behaviour, Inner, InnerError, TestStore, call, poll_once, start};

fn layer(store: impl tollgate::Store, limit: u64) -> RateLimitLayer {
    RateLimitLayer::new(store, Quota::per_minute(limit), key::Global)
}

/// Whether a service is ready right now.
async fn readiness<S: Service<Request<()>>>(service: &mut S) -> Poll<Result<(), S::Error>> {
    poll_fn(|cx| Poll::Ready(service.poll_ready(cx))).await
}

#[tokio::test]
async fn readiness_is_that_of_the_inner_service() {
    let inner = Inner::default();
    let mut service = layer(MemoryStore::new(), 1).layer(inner.watch());

    inner.set_not_ready(true);
    assert_eq!(readiness(&mut service).await, Poll::Pending);
    inner.set_not_ready(false);
    assert_eq!(readiness(&mut service).await, Poll::Ready(Ok(())));
    inner.fail_to_be_ready();
    assert_eq!(
        readiness(&mut service).await,
        Poll::Ready(Err(InnerError::new("never ready")))
    );
}

#[tokio::test]
async fn a_used_up_quota_is_no_reason_not_to_be_ready() {
    let mut service = layer(MemoryStore::new(), 0).layer(Inner::default());
    assert_eq!(
        call(&mut service, Request::new(())).await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
    assert_eq!(readiness(&mut service).await, Poll::Ready(Ok(())));
}

#[tokio::test]
async fn nothing_is_reserved_before_the_call() {
    let store = TestStore::new(Behaviour::Prompt);
    let layer = layer(store.clone(), 3);
    let mut services: Vec<_> = (0..10).map(|_| layer.layer(Inner::default())).collect();
    for service in &mut services {
        for _ in 0..3 {
            assert_eq!(readiness(service).await, Poll::Ready(Ok(())));
        }
    }
    assert_eq!(store.asked(), 0);
    drop(services.split_off(1));
    let response = call(&mut services[0], Request::new(())).await;
    assert_eq!(response.headers()["x-ratelimit-remaining"], "2");
}

#[tokio::test]
async fn the_service_that_was_made_ready_is_called_in_process() {
    // `Inner` panics when another instance than the ready one is called.
    let inner = Inner::default();
    let mut service = layer(MemoryStore::new(), 2).layer(inner.watch());
    for _ in 0..2 {
        assert_eq!(call(&mut service, Request::new(())).await.body(), "hello");
    }
    assert_eq!((inner.calls(), inner.clones()), (2, 0));
}

#[tokio::test]
async fn the_service_that_was_made_ready_is_called_after_waiting() {
    let inner = Inner::default();
    let store = TestStore::new(Behaviour::Held);
    let mut service = layer(store.clone(), 2).layer(inner.watch());

    let mut waiting = pin!(start(&mut service, Request::new(())).await);
    assert!(poll_once(&mut waiting).await.is_pending());
    assert_eq!((inner.calls(), store.asked()), (0, 1));
    // What is left behind is another instance, and must be made ready for a call of its own, meanwhile or not.
    let mut second = pin!(start(&mut service, Request::new(())).await);
    assert!(poll_once(&mut second).await.is_pending());

    store.release(2);
    assert_eq!(waiting.await.expect("it answers").body(), "hello");
    assert_eq!(second.await.expect("it answers").body(), "hello");
    assert_eq!((inner.calls(), inner.clones()), (2, 2));
}

#[tokio::test]
#[should_panic(expected = "called without having been made ready")]
async fn a_caller_who_skips_readiness_is_not_covered_up_for() {
    let mut service = layer(MemoryStore::new(), 2).layer(Inner::default());
    drop(service.call(Request::new(())));
}

#[tokio::test]
async fn r34_the_inner_service_is_called_as_often_as_admitted() {
    for behaviour in [Behaviour::Prompt, Behaviour::Held] {
        let inner = Inner::default();
        let store = TestStore::new(behaviour);
        store.release(1_000);
        let mut service = layer(store, 7).layer(inner.watch());
        let mut admitted = 0;
        for _ in 0..17 {
            admitted += usize::from(call(&mut service, Request::new(())).await.status().is_success());
        }
        assert_eq!((admitted, inner.calls()), (7, 7), "{behaviour:?}");
    }
}

#[tokio::test]
async fn a_refusal_does_not_hold_the_inner_service() {
    for behaviour in [Behaviour::Prompt, Behaviour::Held] {
        let store = TestStore::new(behaviour);
        store.release(1_000);
        let inner = Inner::default();
        let mut refused = layer(store, 0).layer(ConcurrencyLimit::new(inner.watch(), 1));
        let mut other = refused.clone();

        assert!(readiness(&mut refused).await.is_ready());
        assert!(readiness(&mut other).await.is_pending(), "there is one permit");
        let mut response = pin!(refused.call(Request::new(())));
        if behaviour == Behaviour::Held {
            let Poll::Ready(Ok(response)) = poll_once(&mut response).await else {
                panic!("the answer was released");
            };
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        }
        // The refusal's future, polled or not, and the service that it came from are still there.
        assert!(readiness(&mut other).await.is_ready(), "{behaviour:?}");
        assert_eq!(inner.calls(), 0);
    }
}

#[tokio::test]
async fn a_service_that_refused_can_be_used_again() {
    let inner = Inner::default();
    let by_path = RateLimitLayer::new(
        MemoryStore::new(),
        Quota::per_minute(1),
        |request: &http::request::Parts| Some(request.uri.path().to_owned()),
    );
    let mut service = by_path.layer(ConcurrencyLimit::new(inner.watch(), 1));
    let mut statuses = Vec::new();
    for path in ["/a", "/a", "/b", "/b", "/c"] {
        let request = Request::get(path).body(()).expect("a request");
        statuses.push(call(&mut service, request).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 200, 429, 200]);
    assert_eq!(inner.calls(), 3);
}

#[tokio::test]
async fn r35_errors_are_those_of_the_inner_service() {
    for behaviour in [Behaviour::Prompt, Behaviour::Held] {
        let inner = Inner::default();
        inner.fail();
        let store = TestStore::new(behaviour);
        store.release(2);
        let mut service = layer(store, 1).layer(inner);
        let result: Result<Response<String>, InnerError> = start(&mut service, Request::new(())).await.await;
        assert_eq!(result.expect_err("it fails"), InnerError::new("out of order"));
        // A refusal is a response.
        assert_eq!(
            call(&mut service, Request::new(())).await.status(),
            StatusCode::TOO_MANY_REQUESTS
        );
    }
}

#[tokio::test]
async fn the_inner_service_can_be_reached_and_taken_out() {
    let inner = Inner::default();
    let mut service: RateLimit<Inner> = layer(MemoryStore::new(), 1).layer(inner.watch());
    service.get_mut().fail();
    assert_eq!(service.get_ref().calls(), 0);
    assert!(start(&mut service, Request::new(())).await.await.is_err());
    assert_eq!(service.into_inner().calls(), 1);
}

#[tokio::test]
async fn services_that_never_fail_stay_that_way() {
    let echo =
        service_fn(async |request: Request<String>| Ok::<_, Infallible>(Response::new(request.into_body())));
    let service = layer(MemoryStore::new(), 1).layer(echo);
    // The pattern has no case for errors: there are none.
    let Ok(response) = service.oneshot(Request::new("x".to_owned())).await;
    assert_eq!(response.body(), "x");
}
