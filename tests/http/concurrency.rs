//! R42: many tasks at once, and exactly the limit is admitted.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tollgate::{Limiter, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{self, Behaviour, TestStore, by_every_algorithm, clocked, within};

const TASKS: usize = 64;
const EACH: usize = 3;
const LIMIT: u64 = 100;

/// Runs a check in all tasks, several times in each: how many were admitted.
async fn admitted<F>(check: impl Fn(usize) -> F + Send + Sync + 'static) -> usize
where
    F: Future<Output = bool> + Send,
{
    let check = Arc::new(check);
    let start = Arc::new(Barrier::new(TASKS));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (check, start) = (Arc::clone(&check), Arc::clone(&start));
        tasks.spawn(async move {
            start.wait().await;
            let mut admitted = 0;
            for _ in 0..EACH {
                admitted += usize::from(check(task).await);
            }
            admitted
        });
    }
    within(tasks.join_all()).await.into_iter().sum()
}

/// The same over sockets, each task with a connection of its own.
async fn admitted_over_sockets(address: SocketAddr, path: &'static str) -> usize {
    let clients: Vec<_> = (0..TASKS)
        .map(|_| Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>())
        .collect();
    admitted(move |task| {
        let response = clients[task].request(support::request(address, path));
        async move {
            let response: Response<Incoming> = response.await.expect("a response");
            let status = response.status();
            response.into_body().collect().await.expect("a body");
            assert!(status == StatusCode::OK || status == StatusCode::TOO_MANY_REQUESTS);
            status == StatusCode::OK
        }
    })
    .await
}

fn layers() -> impl Iterator<Item = RateLimitLayer> {
    let quotas = by_every_algorithm(LIMIT, Duration::from_secs(3_600));
    quotas.into_iter().cycle().map(|quota| {
        // The clock stands, as windows that end would admit more.
        let (_, store) = clocked();
        RateLimitLayer::new(store, quota, key::Global)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r42_exactly_the_limit_in_each_place_of_a_router() {
    let layers = std::sync::Mutex::new(layers());
    let next = || layers.lock().expect("one at a time").next().expect("endless");
    for (place, app, path) in crate::axum::placements(&next) {
        let address = support::serve(app).await;
        assert_eq!(admitted_over_sockets(address, path).await, 100, "{place}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r42_exactly_the_limit_under_hyper() {
    for layer in layers().take(2) {
        let address = crate::hyper::serve_http1(layer).await;
        assert_eq!(admitted_over_sockets(address, "/").await, 100);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r42_exactly_the_limit_by_every_algorithm() {
    for quota in by_every_algorithm(LIMIT, Duration::from_secs(3_600)) {
        let (_, store) = clocked();
        let layer = RateLimitLayer::new(store, quota, key::Global);
        let service = layer.layer(service_fn(async |_: Request<()>| {
            tokio::task::yield_now().await;
            Ok::<_, std::convert::Infallible>(Response::new(String::new()))
        }));
        let admitted = admitted(move |_| {
            let response = service.clone().oneshot(Request::new(()));
            async move {
                let Ok(response) = response.await;
                response.status() == StatusCode::OK
            }
        });
        assert_eq!(admitted.await, 100, "{quota:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r42_exactly_the_limit_with_answers_that_take_time() {
    let (_, memory) = clocked();
    let store = TestStore::around(memory, Behaviour::Late);
    let layer = RateLimitLayer::new(store, tollgate::Quota::per_hour(LIMIT), key::Global)
        .deadline(Duration::from_secs(20));
    let service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    }));
    let admitted = admitted(move |_| {
        let response = service.clone().oneshot(Request::new(()));
        async move {
            let Ok(response) = response.await;
            response.status() == StatusCode::OK
        }
    });
    assert_eq!(admitted.await, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r42_exactly_the_limit_without_http() {
    for quota in by_every_algorithm(LIMIT, Duration::from_secs(3_600)) {
        let (_, store) = clocked();
        let limiter = Limiter::new(store, quota);
        let admitted = admitted(move |_| {
            let limiter = limiter.clone();
            async move { limiter.check("somebody").await.is_allowed() }
        });
        assert_eq!(admitted.await, 100, "{quota:?}");
    }
}
