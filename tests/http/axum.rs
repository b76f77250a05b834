//! Every place in an axum application where a layer can be.

use std::convert::Infallible;

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::routing::{any, get};
use bytes::Bytes;
use http::{Method, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tollgate::{MemoryStore, MissingKey, Quota, RateLimitLayer, key};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

use crate::support::{self, within};

fn layer(limit: u64) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(limit), key::PeerIp)
        .missing_key(MissingKey::Reject(StatusCode::FORBIDDEN))
}

async fn hello() -> &'static str {
    "hello"
}

fn flat() -> Router {
    Router::new().route("/x", get(hello))
}

/// One layer in each place: the place, the application, and a path that is limited.
pub(crate) fn placements(layer: &dyn Fn() -> RateLimitLayer) -> Vec<(&'static str, Router, &'static str)> {
    let service = || {
        service_fn(async |_: axum::extract::Request| {
            Ok::<_, Infallible>(axum::response::Response::new(axum::body::Body::from("hello")))
        })
    };
    vec![
        ("Router::layer", flat().layer(layer()), "/x"),
        ("Router::route_layer", flat().route_layer(layer()), "/x"),
        (
            "MethodRouter::layer",
            Router::new().route("/x", get(hello).layer(layer())),
            "/x",
        ),
        (
            "MethodRouter::route_layer",
            Router::new().route("/x", get(hello).route_layer(layer())),
            "/x",
        ),
        (
            "ServiceBuilder on a Router",
            flat().layer(ServiceBuilder::new().layer(layer())),
            "/x",
        ),
        (
            "ServiceBuilder on a service",
            Router::new().route_service("/x", ServiceBuilder::new().layer(layer()).service(service())),
            "/x",
        ),
        (
            "around a nest",
            Router::new().nest("/api", flat()).layer(layer()),
            "/api/x",
        ),
        (
            "in a nest",
            Router::new().nest("/api", flat().layer(layer())),
            "/api/x",
        ),
        (
            "in two nests",
            Router::new().nest("/a", Router::new().nest("/b", flat().layer(layer()))),
            "/a/b/x",
        ),
        (
            "merged",
            Router::new().route("/y", get(hello)).merge(flat().layer(layer())),
            "/x",
        ),
        (
            "around a Router",
            Router::new().fallback_service(layer().layer(flat())),
            "/x",
        ),
        (
            "on a fallback",
            Router::new().fallback(hello).layer(layer()),
            "/none",
        ),
        (
            "on a fallback alone",
            Router::new().fallback_service(get(hello).layer(layer())),
            "/none",
        ),
    ]
}

#[tokio::test]
async fn r31_one_limit_for_all_connections_in_each_place() {
    for (place, app, path) in placements(&|| layer(5)) {
        let address = support::serve(app).await;
        let mut admitted = 0;
        for _ in 0..50 {
            let reply = support::get(address, path).await;
            match reply.status {
                StatusCode::OK => admitted += 1,
                // R35: nothing has to turn an error into a response.
                StatusCode::TOO_MANY_REQUESTS => assert!(reply.headers.contains_key("retry-after")),
                other => panic!("{place}: {other}"),
            }
        }
        assert_eq!(admitted, 5, "{place}");
    }
}

#[tokio::test]
async fn r31_clones_of_a_layer_and_of_its_services_share_the_limit() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(5), key::Global);
    let mut services = Vec::new();
    for _ in 0..5 {
        let service = layer.clone().layer(service_fn(async |_: http::Request<()>| {
            Ok::<_, Infallible>(http::Response::new(String::new()))
        }));
        services.extend((0..10).map(|_| service.clone()));
    }
    let mut admitted = 0;
    for service in services {
        let Ok(response) = service.oneshot(http::Request::new(())).await;
        admitted += usize::from(response.status().is_success());
    }
    assert_eq!(admitted, 5);
}

#[tokio::test]
async fn r31_requests_on_one_connection_count_like_those_on_many() {
    for http2 in [false, true] {
        let address = support::serve(flat().layer(layer(5))).await;
        let client = Client::builder(TokioExecutor::new())
            .http2_only(http2)
            .build_http::<Full<Bytes>>();
        let mut admitted = 0;
        for _ in 0..20 {
            let response = client.request(support::request(address, "/x"));
            let response = within(response).await.expect("a response");
            admitted += usize::from(response.status().is_success());
            within(response.into_body().collect()).await.expect("a body");
        }
        assert_eq!(admitted, 5, "http2: {http2}");
    }
}

#[tokio::test]
async fn http2_refusals_look_like_those_of_http1() {
    let address = support::serve(flat().layer(layer(0))).await;
    let first = support::get(address, "/x").await;
    let second = support::send_http2(support::request(address, "/x")).await;
    assert_eq!(
        (first.version, second.version),
        (Version::HTTP_11, Version::HTTP_2)
    );
    assert_eq!(
        (first.status, second.status),
        (StatusCode::TOO_MANY_REQUESTS, first.status)
    );
    assert_eq!(first.body, second.body);
    assert_eq!(first.limit_fields(), second.limit_fields());
    let mut head = support::request(address, "/x");
    *head.method_mut() = Method::HEAD;
    let head = support::send_http2(head).await;
    assert_eq!((head.status, head.body.as_str()), (first.status, ""));
    assert_eq!(head.header("content-length"), first.header("content-length"));
}

#[tokio::test]
async fn a_route_layer_leaves_unknown_paths_alone() {
    let address = support::serve(flat().route_layer(layer(0))).await;
    assert_eq!(support::get(address, "/none").await.status, StatusCode::NOT_FOUND);
    assert_eq!(
        support::get(address, "/x").await.status,
        StatusCode::TOO_MANY_REQUESTS
    );
    let address = support::serve(flat().layer(layer(0))).await;
    assert_eq!(
        support::get(address, "/none").await.status,
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn routes_and_the_fallback_count_together() {
    let address = support::serve(flat().route("/y", get(hello)).layer(layer(3))).await;
    for (path, expected) in [
        ("/x", 200),
        ("/none", 404),
        ("/y", 200),
        ("/x", 429),
        ("/none", 429),
    ] {
        assert_eq!(support::get(address, path).await.status, expected, "{path}");
    }
}

#[tokio::test]
async fn methods_of_a_route_can_have_limits_of_their_own() {
    let app = Router::new().route("/x", get(hello).layer(layer(1)).post(hello));
    let address = support::serve(app).await;
    let post = || {
        let mut request = support::request(address, "/x");
        *request.method_mut() = Method::POST;
        request
    };
    for (get, posted) in [(200, 200), (429, 200), (429, 200)] {
        assert_eq!(support::get(address, "/x").await.status, get);
        assert_eq!(support::send(post()).await.status, posted);
    }
}

#[tokio::test]
async fn statuses_of_handlers_pass_with_fields_added() {
    let app = Router::new()
        .route(
            "/x",
            any(async || (StatusCode::IM_A_TEAPOT, [("x-mine", "1")], "tea")),
        )
        .layer(layer(5));
    let reply = support::get(support::serve(app).await, "/x").await;
    assert_eq!(
        (reply.status, reply.body.as_str()),
        (StatusCode::IM_A_TEAPOT, "tea")
    );
    assert_eq!(reply.header("x-mine"), Some("1"));
    assert_eq!(reply.number("x-ratelimit-remaining"), 4);
}

#[tokio::test]
async fn r35_errors_of_the_inner_service_are_still_handled_outside() {
    let fails = service_fn(async |_: axum::extract::Request| {
        Err::<axum::response::Response, tower::BoxError>("out of order".into())
    });
    let handled =
        HandleErrorLayer::new(async |error: tower::BoxError| (StatusCode::BAD_GATEWAY, error.to_string()));
    let service = ServiceBuilder::new()
        .layer(handled)
        .layer(layer(1))
        .service(fails);
    let address = support::serve(Router::new().route_service("/x", service)).await;
    let failed = support::get(address, "/x").await;
    assert_eq!(
        (failed.status, failed.body.as_str()),
        (StatusCode::BAD_GATEWAY, "out of order")
    );
    assert_eq!(
        support::get(address, "/x").await.status,
        StatusCode::TOO_MANY_REQUESTS
    );
}
