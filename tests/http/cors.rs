//! R18: browsers, preflights and what scripts may read.

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use std::net::SocketAddr;
use tollgate::{Draft, Headers, MemoryStore, Quota, RateLimitLayer, key};
use tower_http::cors::{Any, CorsLayer};

use crate::support::{self, Reply};

const PAGE: &str = "https://page.example";

fn layer(limit: u64) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(limit), key::Global)
}

fn cors(limit: &RateLimitLayer) -> CorsLayer {
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::GET, Method::PUT])
        .expose_headers(limit.exposed_headers())
}

fn cross_origin(address: SocketAddr) -> Request<Full<Bytes>> {
    let mut request = support::request(address, "/");
    request
        .headers_mut()
        .insert(ORIGIN, PAGE.parse().expect("a value"));
    request
}

async fn preflight(address: SocketAddr) -> Reply {
    let mut request = cross_origin(address);
    *request.method_mut() = Method::OPTIONS;
    request
        .headers_mut()
        .insert(ACCESS_CONTROL_REQUEST_METHOD, "PUT".parse().expect("a value"));
    support::send(request).await
}

fn router() -> Router {
    Router::new().route("/", get(async || "hello").put(async || "put"))
}

#[tokio::test]
async fn r18_with_cors_outside_scripts_can_read_refusals() {
    for headers in [Headers::default(), Headers::from(Draft::V8)] {
        let limit = layer(1).headers(headers);
        let cors = cors(&limit);
        // The order that is documented: CORS wraps the limit.
        let address = support::serve(router().layer(limit).layer(cors)).await;
        for expected in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
            let reply = support::send(cross_origin(address)).await;
            assert_eq!(reply.status, expected);
            assert_eq!(reply.header(ACCESS_CONTROL_ALLOW_ORIGIN.as_str()), Some("*"));
            let exposed = reply
                .header(ACCESS_CONTROL_EXPOSE_HEADERS.as_str())
                .expect("some are exposed");
            let exposed: Vec<&str> = exposed.split(',').map(str::trim).collect();
            let fields = reply.limit_fields();
            assert!(!fields.is_empty());
            for field in fields {
                assert!(exposed.contains(&field), "{field} of {exposed:?}");
            }
        }
    }
}

#[tokio::test]
async fn r18_with_cors_outside_preflights_cost_nothing() {
    let limit = layer(1);
    let cors = cors(&limit);
    let address = support::serve(router().layer(limit).layer(cors)).await;
    for _ in 0..5 {
        let reply = preflight(address).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.header(ACCESS_CONTROL_ALLOW_ORIGIN.as_str()), Some("*"));
        assert_eq!(reply.limit_fields(), [""; 0]);
    }
    assert_eq!(support::send(cross_origin(address)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn r18_with_cors_inside_preflights_pass_if_they_are_exempt() {
    let limit = layer(1).exempt_preflight(true);
    let cors = cors(&limit);
    let address = support::serve(router().layer(cors).layer(limit)).await;
    for _ in 0..5 {
        let reply = preflight(address).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.header(ACCESS_CONTROL_ALLOW_ORIGIN.as_str()), Some("*"));
    }
    assert_eq!(support::send(cross_origin(address)).await.status, StatusCode::OK);
    let refused = support::send(cross_origin(address)).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    // This is why the other order is the documented one.
    assert_eq!(refused.header(ACCESS_CONTROL_ALLOW_ORIGIN.as_str()), None);
    assert_eq!(preflight(address).await.status, StatusCode::OK);
}

#[tokio::test]
async fn r18_preflights_count_unless_they_are_exempt() {
    let limit = layer(2);
    let cors = cors(&limit);
    let address = support::serve(router().layer(cors).layer(limit)).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(preflight(address).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn other_options_requests_are_never_exempt() {
    let limit = layer(1).exempt_preflight(true);
    let app = Router::new()
        .route("/", axum::routing::options(async || "options"))
        .layer(limit);
    let address = support::serve(app).await;
    let request = || {
        let mut request = cross_origin(address);
        *request.method_mut() = Method::OPTIONS;
        request
    };
    assert_eq!(support::send(request()).await.status, StatusCode::OK);
    assert_eq!(
        support::send(request()).await.status,
        StatusCode::TOO_MANY_REQUESTS
    );
}
