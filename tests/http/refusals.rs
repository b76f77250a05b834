//! What a refused client gets, and what the service's own side learns of it.

use axum::Router;
use axum::middleware::{self, Next};
use axum::routing::get;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tollgate::key::KeyExtractor;
use tollgate::response::{DefaultResponse, ResponseForRejection};
use tollgate::{Headers, MemoryStore, Quota, RateLimitLayer, Rejection, RejectionKind, key};
use tracing::Level;

use crate::support::{self, Events, clocked};

fn app<R>(layer: RateLimitLayer<R>) -> Router
where
    R: ResponseForRejection<axum::body::Body>,
{
    Router::new().route("/", get(async || "hello")).layer(layer)
}

/// Refuses everything, for a minute.
fn refusing() -> RateLimitLayer {
    let (_, store) = clocked();
    RateLimitLayer::new(store, Quota::per_minute(0), key::Global)
}

/// Lets one request through, and refuses all others for a minute.
fn once() -> RateLimitLayer {
    let (_, store) = clocked();
    RateLimitLayer::new(store, Quota::per_minute(1), key::Global)
}

fn with(mut request: Request<Full<Bytes>>, name: HeaderName, value: &str) -> Request<Full<Bytes>> {
    request
        .headers_mut()
        .insert(name, value.parse().expect("a value"));
    request
}

#[tokio::test]
async fn r35_the_refusal_reaches_the_client_as_text() {
    let address = support::serve(app(once())).await;
    assert_eq!(support::get(address, "/").await.body, "hello");
    let refused = support::get(address, "/").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.body, "quota exceeded: retry after 60 seconds\n");
    assert_eq!(refused.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(refused.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn clients_that_prefer_json_get_problem_details() {
    let address = support::serve(app(once().name("login"))).await;
    support::get(address, "/").await;
    for (accept, json) in [
        ("application/json", true),
        ("application/problem+json, text/plain;q=0.5", true),
        ("*/*", false),
        ("text/html, */*;q=0.8", false),
    ] {
        let refused = support::send(with(support::request(address, "/"), ACCEPT, accept)).await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{accept}");
        if !json {
            assert!(refused.body.starts_with("quota exceeded"), "{accept}");
            continue;
        }
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        let problem: Value = serde_json::from_str(&refused.body).expect("it is JSON");
        assert_eq!(
            problem,
            json!({
                "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "title": "Quota exceeded",
                "status": 429,
                "detail": "quota exceeded: retry after 60 seconds",
                "violated-policies": ["login"],
            })
        );
    }
}

#[tokio::test]
async fn head_is_answered_like_get_without_a_body() {
    let address = support::serve(app(once())).await;
    let request = || {
        let mut request = support::request(address, "/");
        *request.method_mut() = Method::HEAD;
        request
    };
    let passed = support::send(request()).await;
    assert_eq!((passed.status, passed.body.as_str()), (StatusCode::OK, ""));
    assert_eq!(passed.number("x-ratelimit-remaining"), 0);
    let head = support::send(request()).await;
    let get = support::get(address, "/").await;
    assert_eq!((head.status, head.body.as_str()), (get.status, ""));
    for name in [&CONTENT_TYPE, &CONTENT_LENGTH, &CACHE_CONTROL, &RETRY_AFTER] {
        assert_eq!(head.header(name.as_str()), get.header(name.as_str()), "{name}");
    }
    assert_eq!(head.limit_fields(), get.limit_fields());
}

#[tokio::test]
async fn a_closure_says_it_in_its_own_words() {
    let layer = refusing().with_rejection_response(|rejection: &Rejection, request: &Parts| {
        let mut response = Response::new(axum::body::Body::from(format!(
            "{} {}: {rejection}",
            request.method, request.uri
        )));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(
            "x-kind",
            format!("{:?}", rejection.kind()).parse().expect("ASCII"),
        );
        response
    });
    let refused = support::get(support::serve(app(layer)).await, "/?q=1").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        refused.body.starts_with("GET /?q=1: quota exceeded"),
        "{}",
        refused.body
    );
    assert_eq!(refused.header("x-kind"), Some("QuotaExceeded"));
    assert_eq!(refused.number("x-ratelimit-limit"), 0);
    assert_eq!(refused.header("cache-control"), None);
}

#[tokio::test]
async fn a_builder_may_know_better_when_to_retry() {
    let address = support::serve(app(once().with_rejection_response(later))).await;
    support::get(address, "/").await;
    let refused = support::get(address, "/").await;
    assert_eq!(refused.header("retry-after"), Some("77"));
    assert_eq!(refused.number("x-ratelimit-reset"), 60);
}

fn later(rejection: &Rejection, request: &Parts) -> Response<axum::body::Body> {
    let mut response = DefaultResponse::new().response(rejection, request);
    response.headers_mut().insert(RETRY_AFTER, 77.into());
    response
}

#[tokio::test]
async fn retry_after_can_be_switched_off() {
    let address = support::serve(app(once().headers(Headers::none().retry_after(false)))).await;
    support::get(address, "/").await;
    let refused = support::get(address, "/").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.limit_fields(), [""; 0]);
}

#[tokio::test]
async fn outer_layers_find_the_reason_in_the_response() {
    let tell = middleware::from_fn(async |request: axum::extract::Request, next: Next| {
        let response = next.run(request).await;
        let reason = response.extensions().get::<Rejection>().map(|rejection| {
            assert_eq!(rejection.kind(), RejectionKind::QuotaExceeded);
            assert_eq!(rejection.status(), response.status());
            let decision = rejection.decision().expect("a quota was asked");
            let violated: Vec<&str> = decision.violated().map(|policy| policy.name().as_str()).collect();
            assert_eq!(rejection.retry_after(), decision.retry_after());
            violated.join(",")
        });
        ([("x-reason", reason.unwrap_or_default())], response)
    });
    let address = support::serve(app(once().name("login")).layer(tell)).await;
    assert_eq!(support::get(address, "/").await.header("x-reason"), Some(""));
    assert_eq!(support::get(address, "/").await.header("x-reason"), Some("login"));
}

#[tokio::test]
async fn c14_each_denial_is_logged_with_its_policy_and_no_raw_key() {
    let key = key::Header::new(HeaderName::from_static("x-api-key")).readable();
    let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(1), key).name("login");
    let address = support::serve(app(layer)).await;
    let events = Events::catch();
    for user in ["alice-hunter2", "bob-hunter2"] {
        for _ in 0..3 {
            let request = support::request(address, "/");
            support::send(with(request, HeaderName::from_static("x-api-key"), user)).await;
        }
    }
    let denials = events.of(Level::DEBUG);
    assert_eq!(denials.len(), 4, "{denials:?}");
    for denial in &denials {
        assert!(denial.contains("message=denied;"), "{denial}");
        assert!(denial.contains("policy=login;"), "{denial}");
        let (_, key) = denial.split_once("key=").expect("the key is named");
        let fingerprint = key.split(';').next().expect("it has a value");
        assert!(
            fingerprint.len() == 16 && fingerprint.bytes().all(|b| b.is_ascii_hexdigit()),
            "{denial}"
        );
    }
    let fingerprint = |denial: &str| denial.split("key=").nth(1).map(|key| key[..16].to_owned());
    assert_eq!(fingerprint(&denials[0]), fingerprint(&denials[1]));
    assert_ne!(fingerprint(&denials[0]), fingerprint(&denials[2]));
    for event in events.all() {
        assert!(
            !event.text.contains("hunter2") && event.level >= Level::DEBUG,
            "{event:?}"
        );
    }
}
