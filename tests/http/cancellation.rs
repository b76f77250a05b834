//! Requests whose callers go away, at every point where they can.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use http::{Request, Response};
use tollgate::{MemoryStore, Quota, RateLimitLayer, key};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{Behaviour, Inner, TestStore, call, poll_once, start};

fn layer(store: impl tollgate::Store) -> RateLimitLayer {
    RateLimitLayer::new(store, Quota::per_minute(5), key::Global)
}

/// Whether a service with one permit has it.
async fn has_permit<S: Service<Request<()>> + Clone>(service: &S) -> bool {
    let mut other = service.clone();
    let mut ready = pin!(async move { drop(other.ready().await) });
    poll_once(&mut ready).await.is_ready()
}

#[tokio::test]
async fn dropped_before_it_is_polled() {
    let inner = Inner::default();
    let store = TestStore::new(Behaviour::Held);
    let mut service = layer(store.clone()).layer(ConcurrencyLimit::new(inner.watch(), 1));
    drop(start(&mut service, Request::new(())).await);
    assert!(has_permit(&service).await);
    store.release(10);
    assert_eq!(inner.calls(), 0);
}

#[tokio::test]
async fn dropped_while_the_store_is_asked() {
    let inner = Inner::default();
    let store = TestStore::new(Behaviour::Held);
    let mut service = layer(store.clone()).layer(ConcurrencyLimit::new(inner.watch(), 1));
    {
        let mut response = pin!(start(&mut service, Request::new(())).await);
        assert!(poll_once(&mut response).await.is_pending());
        assert!(
            !has_permit(&service).await,
            "the ready service waits with the request"
        );
    }
    assert!(has_permit(&service).await);
    // The answer that nobody waits for comes too late to run anything.
    store.release(10);
    assert_eq!(inner.calls(), 0);
    assert_eq!(call(&mut service, Request::new(())).await.body(), "hello");
    assert_eq!(inner.calls(), 1);
}

#[tokio::test]
async fn dropped_while_the_inner_service_is_at_work() {
    for behaviour in [Behaviour::Prompt, Behaviour::Held] {
        let started = Arc::new(AtomicUsize::new(0));
        let never_done = {
            let started = Arc::clone(&started);
            service_fn(move |_: Request<()>| {
                started.fetch_add(1, Ordering::SeqCst);
                pending::<Result<Response<String>, std::convert::Infallible>>()
            })
        };
        let store = TestStore::new(behaviour);
        store.release(1);
        let mut service = layer(store).layer(ConcurrencyLimit::new(never_done, 1));
        {
            let mut response = pin!(start(&mut service, Request::new(())).await);
            for _ in 0..3 {
                assert!(poll_once(&mut response).await.is_pending());
            }
            assert_eq!(started.load(Ordering::SeqCst), 1);
            assert!(!has_permit(&service).await);
        }
        assert!(has_permit(&service).await, "{behaviour:?}");
    }
}

#[tokio::test]
async fn dropped_when_it_is_done() {
    let inner = Inner::default();
    let mut service = layer(MemoryStore::new()).layer(inner.watch());
    let mut response = pin!(start(&mut service, Request::new(())).await);
    assert!(matches!(poll_once(&mut response).await, Poll::Ready(Ok(_))));
    assert_eq!(inner.calls(), 1);
}

#[tokio::test]
async fn one_caller_who_goes_harms_no_other() {
    let inner = Inner::default();
    let store = TestStore::new(Behaviour::Held);
    let mut service = layer(store.clone()).layer(inner.watch());
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let mut response = Box::pin(start(&mut service, Request::new(())).await);
        assert!(poll_once(&mut response.as_mut()).await.is_pending());
        waiting.push(response);
    }
    let mut waiting = waiting.into_iter();
    drop(waiting.next());
    store.release(4);
    for response in waiting {
        assert_eq!(response.await.expect("it answers").body(), "hello");
    }
    assert_eq!(inner.calls(), 3);
}
