//! What requests cost.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::any;
use http::request::Parts;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use tollgate::{Cost, Policy, Quota, RateLimitLayer, Rule, Rules};

use super::{Decisions, Place, ask, get_as, left, of_user, statuses, user};
use crate::support;

on_both_stores! {
    a_cost_is_the_same_for_all_requests,
    a_cost_can_be_by_route,
    a_cost_can_be_by_content_length,
    a_cost_can_be_a_function,
    each_policy_has_a_cost_of_its_own,
    what_costs_nothing_always_passes_and_leaves_no_state,
}

fn app(layer: &RateLimitLayer) -> Router {
    let hello = async |body: Bytes| body.len().to_string();
    Router::new()
        .route("/", any(hello))
        .route("/search", any(hello))
        .route("/export/{what}", any(hello))
        .layer(layer.clone())
}

fn with(place: &Place, limit: u64, cost: impl Into<Cost>) -> RateLimitLayer {
    let policy = Policy::new("units", Quota::per_hour(limit), user).cost(cost);
    RateLimitLayer::with_policies(place.store(), [policy])
}

async fn remaining(app: &Router, request: Request<Body>) -> (u16, u64) {
    let reply = ask(app, request).await;
    (reply.status.as_u16(), reply.number("x-ratelimit-remaining"))
}

async fn a_cost_is_the_same_for_all_requests(place: &Place) {
    let layer = with(place, 10, 4);
    let app = app(&layer);
    for expected in [(200, 6), (200, 2), (429, 2), (429, 2)] {
        assert_eq!(remaining(&app, get_as("ann", "/")).await, expected);
    }
    // More than there ever is.
    let reply = ask(&self::app(&layer.cost(11)), get_as("ben", "/")).await;
    assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(reply.header("retry-after"), None);
    assert_eq!(
        reply.body,
        "quota exceeded: the request costs more than the limit allows at once, so waiting does not help\n"
    );
}

async fn a_cost_can_be_by_route(place: &Place) {
    let cost = Rules::new(1)
        .on(Rule::path("/export/{what}"), 25)
        .on(Rule::path("/search"), 5);
    let app = app(&with(place, 40, cost));
    for (path, expected) in [
        ("/search?q=x", (200, 35)),
        ("/", (200, 34)),
        ("/export/all", (200, 9)),
        ("/export/none", (429, 9)),
        ("/none", (404, 8)),
        ("/search", (200, 3)),
        ("/search", (429, 3)),
    ] {
        assert_eq!(remaining(&app, get_as("ann", path)).await, expected, "{path}");
    }
}

async fn a_cost_can_be_by_content_length(place: &Place) {
    let cost = Cost::by_content_length(100).or_unknown(7);
    let app = app(&with(place, 20, cost));
    let post = |body: Body, length: Option<&str>| {
        let mut request = Request::post("/").body(body).expect("a request");
        if let Some(length) = length {
            let length = length.parse().expect("a value");
            request.headers_mut().insert("content-length", length);
        }
        of_user("ann", request)
    };
    for (length, expected) in [
        (Some("250"), (200, 17)),
        (Some("0"), (200, 16)),
        (None, (200, 15)),
        (Some("99999"), (429, 15)),
        (Some("x"), (200, 8)),
    ] {
        let request = post(Body::empty(), length);
        assert_eq!(remaining(&app, request).await, expected, "{length:?}");
    }
    let mut chunked = post(Body::empty(), None);
    chunked
        .headers_mut()
        .insert("transfer-encoding", "chunked".parse().expect("a value"));
    assert_eq!(remaining(&app, chunked).await, (200, 1));

    // As a real client declares it.
    let address = support::serve(app).await;
    let mut upload = support::request(address, "/");
    *upload.method_mut() = Method::POST;
    *upload.body_mut() = http_body_util::Full::from(vec![b'x'; 101]);
    let reply = support::send(of_user("ben", upload)).await;
    assert_eq!(reply.body, "101");
    assert_eq!(reply.number("x-ratelimit-remaining"), 18);
}

/// What is documented of lengths that HTTP/2 need not tell, on the wire.
#[tokio::test]
async fn bodies_streamed_without_a_length_cost_what_is_said_of_them() {
    let cost = Cost::by_content_length(100).or_unknown(7);
    let layer = RateLimitLayer::new(tollgate::MemoryStore::new(), Quota::per_hour(20), user).cost(cost);
    let address = support::serve(app(&layer)).await;
    for (method, left) in [(Method::POST, 13), (Method::GET, 12), (Method::PUT, 5)] {
        // A body that is mapped tells no size.
        let body = http_body_util::Full::from(vec![b'x'; 1_000]).map_frame(|frame| frame);
        let mut streamed = support::request(address, "/").map(|_| body);
        *streamed.method_mut() = method.clone();
        let reply = support::send_http2(of_user("ann", streamed)).await;
        assert_eq!(reply.body, "1000", "{method}");
        assert_eq!(reply.number("x-ratelimit-remaining"), left, "{method}");
    }
}

async fn a_cost_can_be_a_function(place: &Place) {
    let cost = |request: &Parts| {
        let query = request.uri.query().unwrap_or_default();
        query.split_terminator('&').count() as u64 * 3
    };
    let app = app(&with(place, 10, cost));
    for (path, expected) in [
        ("/?a", (200, 7)),
        ("/?a&b", (200, 1)),
        ("/?a", (429, 1)),
        ("/", (200, 1)),
        ("/search?a", (429, 1)),
    ] {
        assert_eq!(remaining(&app, get_as("ann", path)).await, expected, "{path}");
    }
}

async fn each_policy_has_a_cost_of_its_own(place: &Place) {
    let seen = Decisions::default();
    let policies = [
        Policy::new("requests", Quota::per_hour(4), user),
        Policy::new("units", Quota::per_hour(100), user).cost(30),
        Policy::new("bytes", Quota::per_hour(1_000), user).cost(Cost::by_content_length(1).or_unknown(500)),
    ];
    let layer = RateLimitLayer::with_policies(place.store(), policies).on_decision(seen.clone());
    let app = app(&layer);
    assert_eq!(
        statuses(&app, 5, || get_as("ann", "/")).await,
        [200, 200, 200, 429, 429]
    );
    let decision = seen.take().pop().expect("there were some");
    let costs: Vec<u64> = decision
        .policies()
        .iter()
        .map(tollgate::PolicyDecision::cost)
        .collect();
    assert_eq!(costs, [1, 30, 1]);
    assert_eq!(decision.violated().count(), 1);
    for (policy, expected) in [("requests", 1), ("units", 10), ("bytes", 997)] {
        assert_eq!(
            left(&layer, policy, get_as("ann", "/")).await,
            expected,
            "{policy}"
        );
    }
}

async fn what_costs_nothing_always_passes_and_leaves_no_state(place: &Place) {
    let layer = with(place, 1, |request: &Parts| u64::from(request.uri.path() != "/"));
    let app = app(&layer);
    assert_eq!(statuses(&app, 3, || get_as("ann", "/")).await, [200; 3]);
    assert_eq!(place.keys().await, 0);
    assert_eq!(statuses(&app, 2, || get_as("ann", "/search")).await, [200, 429]);
    // Even where nothing is left.
    assert_eq!(statuses(&app, 2, || get_as("ann", "/")).await, [200; 2]);
}
