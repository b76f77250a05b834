//! R30, B33: stores that fail or take too long.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use tokio::time::Instant;
use tollgate::store::StoreErrorKind;
use tollgate::{Decision, FailurePolicy, Quota, RateLimit, RateLimitLayer, Rejection, RejectionKind, key};
use tower::{Layer, Service, service_fn};

use crate::support::{self, Behaviour, Inner, TestStore, by_every_algorithm, call};

const DENY: FailurePolicy = FailurePolicy::Deny;
const ALLOW: FailurePolicy = FailurePolicy::Allow;

/// Far beyond any deadline here.
const TOO_SLOW: Behaviour = Behaviour::Slow(Duration::from_secs(2));

fn local(instances: u32) -> FailurePolicy {
    FailurePolicy::Local { instances }
}

fn layer(store: &TestStore, limit: u64, failure: FailurePolicy) -> RateLimitLayer {
    RateLimitLayer::new(store.clone(), Quota::per_hour(limit), key::Global).failure_policy(failure)
}

const OVERLOADED: [Behaviour; 2] = [
    Behaviour::Fails(StoreErrorKind::Overloaded),
    Behaviour::FailsHeld(StoreErrorKind::Overloaded),
];

/// Every way to give no answer.
fn failures() -> Vec<Behaviour> {
    let kinds = [
        StoreErrorKind::Unavailable,
        StoreErrorKind::Timeout,
        StoreErrorKind::Overloaded,
        StoreErrorKind::Protocol,
    ];
    let at_once = kinds.into_iter().map(Behaviour::Fails);
    let later = kinds.into_iter().map(Behaviour::FailsHeld);
    at_once.chain(later).chain([TOO_SLOW]).collect()
}

fn store(behaviour: Behaviour) -> TestStore {
    let store = TestStore::new(behaviour);
    store.release(1_000);
    store
}

/// Answers whether the decision was degraded.
async fn tell(request: Request<()>) -> Result<Response<String>, Infallible> {
    let decision: &Decision = request.extensions().get().expect("it is there");
    Ok(Response::new(format!("degraded: {}", decision.is_degraded())))
}

async fn statuses<S>(mut service: S, requests: usize) -> Vec<u16>
where
    S: Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    let mut statuses = Vec::new();
    for _ in 0..requests {
        let response = call(&mut service, Request::new(())).await;
        if response.status() == StatusCode::OK {
            assert_eq!(response.body(), "degraded: true");
        }
        statuses.push(response.status().as_u16());
    }
    statuses
}

fn limited(store: &TestStore, limit: u64, failure: FailurePolicy) -> RateLimit<impl Tell> {
    layer(store, limit, failure).layer(service_fn(tell))
}

/// What `tell` is.
trait Tell: Service<Request<()>, Response = Response<String>, Error = Infallible> + Clone {}

impl<S: Service<Request<()>, Response = Response<String>, Error = Infallible> + Clone> Tell for S {}

#[tokio::test(start_paused = true)]
async fn local_admits_this_instance_its_share() {
    for behaviour in failures() {
        for (instances, share) in [(1, 10), (3, 3), (4, 2), (10, 1), (1_000, 1), (0, 10)] {
            let store = store(behaviour);
            let statuses = statuses(limited(&store, 10, local(instances)), 15).await;
            let mut expected = vec![200; share];
            expected.resize(15, 429);
            assert_eq!(statuses, expected, "{behaviour:?} {instances}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn local_is_the_default_as_if_alone() {
    let store = store(TOO_SLOW);
    let layer = RateLimitLayer::new(store, Quota::per_hour(3), key::Global);
    assert_eq!(
        statuses(layer.layer(service_fn(tell)), 4).await,
        [200, 200, 200, 429]
    );
}

#[tokio::test]
async fn local_counts_by_every_algorithm() {
    let store = store(Behaviour::Fails(StoreErrorKind::Unavailable));
    for quota in by_every_algorithm(10, Duration::from_secs(366 * 86_400)) {
        let layer = RateLimitLayer::new(store.clone(), quota, key::Global).failure_policy(local(2));
        let statuses = statuses(layer.layer(service_fn(tell)), 7).await;
        assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429], "{quota:?}");
    }
}

#[tokio::test]
async fn local_shows_its_share() {
    let store = store(Behaviour::Fails(StoreErrorKind::Unavailable));
    let mut service = limited(&store, 10, local(4));
    let response = call(&mut service, Request::new(())).await;
    assert_eq!(response.headers()["x-ratelimit-limit"], "2");
    assert_eq!(response.headers()["x-ratelimit-remaining"], "1");
}

#[tokio::test]
async fn local_limits_what_the_limit_stops_anyway() {
    let store = store(Behaviour::Fails(StoreErrorKind::Unavailable));
    assert_eq!(statuses(limited(&store, 0, local(4)), 2).await, [429, 429]);
}

#[tokio::test(start_paused = true)]
async fn allow_lets_everything_pass_and_says_nothing_of_limits() {
    for behaviour in failures() {
        if OVERLOADED.contains(&behaviour) {
            continue;
        }
        let store = store(behaviour);
        assert_eq!(
            statuses(limited(&store, 1, ALLOW), 20).await,
            [200; 20],
            "{behaviour:?}"
        );
        let response = call(&mut limited(&store, 1, ALLOW), Request::new(())).await;
        assert!(response.headers().is_empty(), "{behaviour:?}: {response:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn b33_who_floods_the_store_does_not_switch_the_limit_off() {
    for behaviour in OVERLOADED {
        let store = store(behaviour);
        let statuses = statuses(limited(&store, 2, ALLOW), 4).await;
        assert_eq!(statuses, [200, 200, 429, 429], "{behaviour:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn deny_is_a_503_that_says_when_to_retry() {
    for behaviour in failures() {
        let inner = Inner::default();
        let store = store(behaviour);
        let mut service = layer(&store, 1, DENY).layer(inner.watch());
        for _ in 0..3 {
            let response = call(&mut service, Request::new(())).await;
            assert_eq!(
                response.status(),
                StatusCode::SERVICE_UNAVAILABLE,
                "{behaviour:?}"
            );
            assert_eq!(response.headers()["retry-after"], "1");
            assert!(!response.headers().contains_key("x-ratelimit-limit"));
            assert_eq!(
                response.body(),
                "the quota cannot be checked at the moment: retry after 1 second\n"
            );
            let reason: &Rejection = response.extensions().get().expect("the reason");
            assert_eq!(reason.kind(), RejectionKind::StoreUnavailable);
            assert!(reason.decision().is_some_and(Decision::is_degraded));
        }
        assert_eq!(inner.calls(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn c7_every_check_is_answered_within_its_deadline() {
    for (deadline, wait) in [(None, 100), (Some(30), 30), (Some(1_500), 1_500)] {
        for failure in [local(1), ALLOW, DENY] {
            let store = store(TOO_SLOW);
            let mut layer = layer(&store, 5, failure);
            if let Some(deadline) = deadline {
                layer = layer.deadline(Duration::from_millis(deadline));
            }
            let mut service = layer.layer(service_fn(tell));
            let start = Instant::now();
            let response = call(&mut service, Request::new(())).await;
            // tokio's clock counts whole milliseconds, rounded up.
            let took = start.elapsed();
            assert!(
                took >= Duration::from_millis(wait) && took <= Duration::from_millis(wait + 1),
                "{deadline:?} {failure:?}: {took:?}"
            );
            let expected = if failure == DENY { 503 } else { 200 };
            assert_eq!(response.status().as_u16(), expected);
            assert_eq!(store.deadline(), Some(Duration::from_millis(wait)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_in_time_are_taken() {
    let store = store(Behaviour::Slow(Duration::from_millis(29)));
    let layer = layer(&store, 1, DENY).deadline(Duration::from_millis(30));
    let mut service = layer.layer(service_fn(tell));
    let response = call(&mut service, Request::new(())).await;
    assert_eq!(response.body(), "degraded: false");
    assert_eq!(response.headers()["x-ratelimit-remaining"], "0");
    let response = call(&mut service, Request::new(())).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_may_be_without_end() {
    let store = store(TOO_SLOW);
    let layer = layer(&store, 1, DENY).deadline(Duration::MAX);
    let mut service = layer.layer(service_fn(tell));
    let response = call(&mut service, Request::new(())).await;
    assert_eq!(response.body(), "degraded: false");
}

#[tokio::test(start_paused = true)]
async fn a_limiter_has_a_deadline_too() {
    let store = store(TOO_SLOW);
    let limiter = tollgate::Limiter::new(store, Quota::per_hour(1))
        .failure_policy(DENY)
        .deadline(Duration::from_millis(30));
    let start = Instant::now();
    assert!(limiter.check("somebody").await.is_degraded());
    assert!(start.elapsed() <= Duration::from_millis(31));
}

#[tokio::test(start_paused = true)]
async fn b33_a_slow_store_never_makes_a_429_of_fail_open() {
    let store = store(TOO_SLOW);
    let mut service = limited(&store, 1, ALLOW);
    let mut waiting = Vec::new();
    let start = Instant::now();
    for _ in 0..200 {
        waiting.push(support::start(&mut service, Request::new(())).await);
    }
    for response in waiting {
        let Ok(response) = response.await;
        assert_eq!(response.status(), StatusCode::OK);
    }
    assert!(start.elapsed() <= Duration::from_millis(101));
}

#[tokio::test(start_paused = true)]
async fn c9_a_store_that_is_back_decides_again() {
    for failure in [local(1), ALLOW, DENY] {
        for behaviour in failures() {
            let store = store(behaviour);
            let mut service = limited(&store, 2, failure);
            call(&mut service, Request::new(())).await;
            // Whatever a slow store charged.
            let charged = u64::from(behaviour == TOO_SLOW);
            store.behave(Behaviour::Prompt);
            let response = call(&mut service, Request::new(())).await;
            assert_eq!(response.body(), "degraded: false", "{behaviour:?} {failure:?}");
            let remaining = (1 - charged).to_string();
            assert_eq!(response.headers()["x-ratelimit-remaining"], remaining.as_str());
        }
    }
}

#[tokio::test]
async fn r30_a_store_that_is_gone_is_never_a_500() {
    for (failure, expected) in [
        (local(1), [200, 200, 429]),
        (ALLOW, [200, 200, 200]),
        (DENY, [503, 503, 503]),
    ] {
        let store = store(Behaviour::Fails(StoreErrorKind::Unavailable));
        let app = Router::new()
            .route(
                "/",
                get(async |decision: Decision| format!("{}", decision.is_degraded())),
            )
            .layer(layer(&store, 2, failure));
        let address = support::serve(app).await;
        for expected in expected {
            let reply = support::get(address, "/").await;
            assert_eq!(reply.status.as_u16(), expected, "{failure:?}");
            assert_eq!(reply.header("retry-after").is_some(), expected != 200);
            assert!(expected != 200 || reply.body == "true", "{reply:?}");
        }
    }
}
