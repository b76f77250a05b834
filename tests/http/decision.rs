//! What handlers learn of the decision.

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use http::StatusCode;
use http::request::Parts;
use tollgate::{Decision, MemoryStore, Quota, Quotas, RateLimitLayer, key};

use crate::support;

fn layer(limit: u64) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(limit), key::Global)
}

async fn tell(decision: Option<Decision>) -> String {
    match decision {
        Some(decision) => format!("{:?} of {:?}", decision.remaining(), decision.limit()),
        None => "none".to_owned(),
    }
}

#[tokio::test]
async fn handlers_extract_the_decision() {
    let app = Router::new()
        .route(
            "/",
            get(async |decision: Decision| {
                assert!(decision.is_allowed() && !decision.is_degraded());
                assert_eq!(
                    decision.leading().expect("one leads").name().as_str(),
                    "100-per-60s"
                );
                format!("{:?} left", decision.remaining())
            }),
        )
        .route(
            "/extension",
            get(async |request: Request| {
                let decision: &Decision = request.extensions().get().expect("it is there");
                format!("{:?} left", decision.remaining())
            }),
        )
        .layer(layer(100));
    let address = support::serve(app).await;
    assert_eq!(support::get(address, "/").await.body, "Some(99) left");
    assert_eq!(support::get(address, "/extension").await.body, "Some(98) left");
}

#[tokio::test]
async fn the_extension_can_be_switched_off() {
    let app = Router::new()
        .route("/", get(tell))
        .layer(layer(5).decision_extension(false));
    let reply = support::get(support::serve(app).await, "/").await;
    assert_eq!(reply.body, "none");
    assert_eq!(reply.number("x-ratelimit-remaining"), 4);
}

#[tokio::test]
async fn handlers_get_the_decision_of_the_innermost_layer() {
    let app = Router::new()
        .route("/", get(tell))
        .layer(layer(7))
        .layer(layer(3));
    let reply = support::get(support::serve(app).await, "/").await;
    assert_eq!(reply.body, "Some(6) of Some(7)");
}

#[tokio::test]
async fn a_missing_layer_is_named() {
    let app = Router::new().route("/", get(async |_: Decision| ()));
    let reply = support::get(support::serve(app).await, "/").await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(reply.body.contains("tollgate::RateLimitLayer"), "{}", reply.body);
}

#[tokio::test]
async fn nothing_limits_a_request_of_an_unlimited_tier() {
    let quota = Quotas::by("tier", |request: &Parts| match request.headers.get("x-tier") {
        Some(_) => Quota::unlimited(),
        None => Quota::per_minute(1),
    });
    let app = Router::new()
        .route(
            "/",
            get(async |decision: Decision| format!("{:?}", decision.source())),
        )
        .layer(RateLimitLayer::new(MemoryStore::new(), quota, key::Global));
    let address = support::serve(app).await;
    for _ in 0..3 {
        let mut request = support::request(address, "/");
        request
            .headers_mut()
            .insert("x-tier", "gold".parse().expect("a value"));
        let reply = support::send(request).await;
        assert_eq!((reply.status, reply.body.as_str()), (StatusCode::OK, "Exempt"));
        assert_eq!(reply.limit_fields(), [""; 0]);
    }
    assert_eq!(support::get(address, "/").await.body, "Store");
    assert_eq!(
        support::get(address, "/").await.status,
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn an_exempt_layer_leaves_what_another_decided() {
    let exempt = RateLimitLayer::new(MemoryStore::new(), Quota::unlimited(), key::Global);
    let app = Router::new().route("/", get(tell)).layer(exempt).layer(layer(3));
    let reply = support::get(support::serve(app).await, "/").await;
    assert_eq!(reply.body, "Some(2) of Some(3)");
    assert_eq!(reply.number("x-ratelimit-remaining"), 2);
}
