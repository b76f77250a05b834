//! Responses that tell what their requests really cost.

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::any;
use http::{Method, Request, StatusCode};
use tollgate::{Policy, Quota, RateLimitLayer, Rule, Rules};
use tower::{Layer, ServiceExt, service_fn};

use super::settle::{ann, settled, settling, units};
use super::{Place, ask, get_as, statuses, user};

on_both_stores! {
    responses_give_back_by_status,
    responses_tell_the_cost,
    the_handler_comes_before_the_response,
    a_failing_service_keeps_its_charge,
    each_rule_settles_its_own_way,
}

/// Answers with the status and the cost that the path says: `/404/7`.
fn answering(layer: &RateLimitLayer) -> Router {
    let answer = async |axum::extract::Path((status, cost)): axum::extract::Path<(u16, String)>| {
        Response::builder()
            .status(status)
            .header("x-cost", cost)
            .body(Body::empty())
            .expect("a response")
    };
    Router::new()
        .route("/{status}/{cost}", any(answer))
        .layer(layer.clone())
}

fn cost_of(response: &http::response::Parts) -> Option<u64> {
    response.headers.get("x-cost")?.to_str().ok()?.parse().ok()
}

async fn responses_give_back_by_status(place: &Place) {
    let policies = [
        units(100, 10).give_back_on(|status| status.is_success()),
        Policy::new("requests", Quota::per_hour(99), user),
        Policy::new("errors", Quota::per_hour(99), user).give_back_on(|status| !status.is_server_error()),
    ];
    let layer = RateLimitLayer::with_policies(place.store(), policies);
    let app = answering(&layer);
    for (status, expected) in [
        (200, [100, 98, 99]),
        (204, [100, 97, 99]),
        (401, [90, 96, 99]),
        (500, [80, 95, 98]),
        (201, [80, 94, 98]),
        (302, [70, 93, 98]),
    ] {
        let reply = ask(&app, get_as("ann", &format!("/{status}/x"))).await;
        assert_eq!(reply.status, status);
        let mut lefts = Vec::new();
        for policy in ["units", "requests", "errors"] {
            lefts.push(settled(&layer, policy, "ann").await);
        }
        assert_eq!(lefts, expected, "{status}");
    }
    // What is refused was charged nothing, and gets nothing back.
    layer
        .handle("units")
        .expect("it is there")
        .set_quota(Quota::per_hour(30));
    assert_eq!(
        ask(&app, get_as("ann", "/200/x")).await.status,
        StatusCode::TOO_MANY_REQUESTS
    );
    layer
        .handle("units")
        .expect("it is there")
        .set_quota(Quota::per_hour(100));
    assert_eq!(settled(&layer, "units", "ann").await, 70);
}

async fn responses_tell_the_cost(place: &Place) {
    let policy = units(100, 10)
        .cost_after(cost_of)
        .cost_after(|response| (response.status == StatusCode::NOT_FOUND).then_some(1));
    let layer = RateLimitLayer::with_policies(place.store(), [policy]);
    let app = answering(&layer);
    for (path, expected) in [
        ("/200/3", 97),
        ("/200/30", 67),
        ("/200/10", 57),
        // Who knows first decides; nobody here.
        ("/404/2", 55),
        ("/404/x", 54),
        ("/200/x", 44),
        ("/500/0", 44),
        ("/200/1000", 0),
    ] {
        ask(&app, get_as("ann", path)).await;
        assert_eq!(settled(&layer, "units", "ann").await, expected, "{path}");
    }
    assert_eq!(statuses(&app, 1, || get_as("ann", "/200/0")).await, [429]);
}

async fn the_handler_comes_before_the_response(place: &Place) {
    let policy = units(100, 10).give_back_on(|status| status.is_success());
    let layer = RateLimitLayer::with_policies(place.store(), [policy]).charge_extension(true);
    let app = settling(&layer);
    assert_eq!(ask(&app, get_as("ann", "/units/7")).await.body, "true");
    assert_eq!(settled(&layer, "units", "ann").await, 93);
    // A handler that settles nothing leaves it to the response.
    ask(&app, ann()).await;
    assert_eq!(settled(&layer, "units", "ann").await, 93);
    // As does one that settles what is not there.
    assert_eq!(ask(&app, get_as("ann", "/none/7")).await.body, "false");
    assert_eq!(settled(&layer, "units", "ann").await, 93);
}

async fn a_failing_service_keeps_its_charge(place: &Place) {
    let policy = units(100, 10).give_back_on(|_| true).cost_after(|_| Some(0));
    let layer = RateLimitLayer::with_policies(place.store(), [policy]);
    let failing = layer.layer(service_fn(async |_: Request<Body>| {
        Err::<Response, _>("out of order")
    }));
    assert_eq!(
        failing.oneshot(ann()).await.expect_err("it fails"),
        "out of order"
    );
    assert_eq!(settled(&layer, "units", "ann").await, 90);
}

async fn each_rule_settles_its_own_way(place: &Place) {
    // One limit, which only one of the two kinds of requests gets back.
    let shared = units(100, 10);
    let reads = shared.clone().give_back_on(|status| status.is_success());
    let writes = shared.clone().cost_after(cost_of).cost(20);
    let rules = Rules::new(vec![shared])
        .on(Rule::any().method(Method::GET), vec![reads])
        .on(Rule::any().method(Method::PUT), vec![writes]);
    let layer = RateLimitLayer::with_policies(place.store(), []).rules(rules);
    let app = answering(&layer);
    for (method, path, expected) in [
        (Method::GET, "/200/5", 100),
        (Method::POST, "/200/5", 90),
        (Method::PUT, "/200/5", 85),
        (Method::GET, "/404/5", 75),
        (Method::PUT, "/404/x", 55),
        (Method::POST, "/200/5", 45),
        (Method::GET, "/200/5", 45),
    ] {
        let mut request = get_as("ann", path);
        *request.method_mut() = method.clone();
        ask(&app, request).await;
        assert_eq!(settled(&layer, "units", "ann").await, expected, "{method} {path}");
    }
}
