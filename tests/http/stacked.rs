//! Layers inside of layers: which decision's fields the client sees, and which counters are shared.

use std::time::Duration;

use axum::Router;
use axum::middleware::{self, Next};
use axum::routing::get;
use http::StatusCode;
use tollgate::{Draft, Headers, MemoryStore, Quota, RateLimitLayer, Rejection, key};

use crate::support::{self, Reply, clocked, every_family};

/// A layer with a store of its own.
fn layer(limit: u64) -> RateLimitLayer {
    let (_, store) = clocked();
    RateLimitLayer::new(store, Quota::per_minute(limit), key::Global)
}

async fn serve(inner: RateLimitLayer, outer: RateLimitLayer) -> std::net::SocketAddr {
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(inner)
        .layer(outer);
    support::serve(app).await
}

/// Remaining requests by whichever family there is.
fn remaining(reply: &Reply) -> u64 {
    let named = ["x-ratelimit-remaining", "ratelimit-remaining"];
    if let Some(name) = named.into_iter().find(|name| reply.header(name).is_some()) {
        return reply.number(name);
    }
    let field = reply.header("ratelimit").expect("some family is written");
    let (_, rest) = field
        .split_once(";r=")
        .or_else(|| field.split_once("remaining="))
        .expect("it says what remains");
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().expect("a number")
}

#[tokio::test]
async fn the_more_binding_decision_is_shown_whichever_way_round() {
    for (inner, outer) in [(3, 9), (9, 3)] {
        let address = serve(layer(inner), layer(outer)).await;
        for remaining in [2, 1, 0] {
            let reply = support::get(address, "/").await;
            assert_eq!(reply.status, StatusCode::OK);
            assert_eq!(reply.number("x-ratelimit-limit"), 3, "{inner} in {outer}");
            assert_eq!(
                reply.number("x-ratelimit-remaining"),
                remaining,
                "{inner} in {outer}"
            );
        }
        let refused = support::get(address, "/").await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.number("x-ratelimit-limit"), 3, "{inner} in {outer}");
        assert_eq!(refused.number("x-ratelimit-remaining"), 0, "{inner} in {outer}");
        assert_eq!(refused.number("retry-after"), 60);
    }
}

#[tokio::test]
async fn of_two_as_binding_the_one_that_resets_later_is_shown() {
    for (inner, outer) in [(60, 3_600), (3_600, 60)] {
        let layer = |window| {
            let (_, store) = clocked();
            RateLimitLayer::new(store, Quota::new(5, Duration::from_secs(window)), key::Global)
        };
        let reply = support::get(serve(layer(inner), layer(outer)).await, "/").await;
        assert_eq!(reply.number("x-ratelimit-remaining"), 4);
        assert_eq!(reply.number("x-ratelimit-reset"), 3_600, "{inner} in {outer}");
    }
}

#[tokio::test]
async fn one_decision_is_shown_even_if_the_families_differ() {
    for inner_family in every_family() {
        for outer_family in every_family() {
            for (inner, outer) in [(3, 9), (9, 3)] {
                let case = format!("{inner} {inner_family:?} in {outer} {outer_family:?}");
                let address = serve(
                    layer(inner).headers(inner_family),
                    layer(outer).headers(outer_family),
                )
                .await;
                let reply = support::get(address, "/").await;
                assert_eq!(reply.status, StatusCode::OK);
                // A layer that writes nothing takes nothing away.
                let inner_wins = inner_family != Headers::none() && inner < outer;
                let (limit, family) = if inner_wins || outer_family == Headers::none() {
                    (inner, inner_family)
                } else {
                    (outer, outer_family)
                };
                let names = family.names();
                let mut names: Vec<&str> = names.iter().map(http::HeaderName::as_str).collect();
                names.retain(|name| *name != "retry-after");
                names.sort_unstable();
                assert_eq!(reply.limit_fields(), names, "{case}");
                if family != Headers::none() {
                    assert_eq!(remaining(&reply), limit - 1, "{case}");
                }
            }
        }
    }
}

#[tokio::test]
async fn an_inner_refusal_is_left_alone() {
    for headers in [Headers::default(), Headers::from(Draft::V8), Headers::none()] {
        // The outer one has fewer left, and still what stopped the request is shown.
        let inner = layer(0).name("inner").headers(headers);
        let alone = {
            let app = Router::new().layer(inner.clone());
            support::get(support::serve(app).await, "/").await
        };
        let stacked = support::get(serve(inner, layer(1)).await, "/").await;
        assert_eq!(stacked.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(stacked.limit_fields(), alone.limit_fields());
        assert_eq!(
            stacked.header("x-ratelimit-limit"),
            alone.header("x-ratelimit-limit")
        );
        assert_eq!(stacked.header("ratelimit"), alone.header("ratelimit"));
        assert_eq!(stacked.body, alone.body);
    }
}

#[tokio::test]
async fn an_inner_refusal_of_another_status_is_left_alone_too() {
    let inner = layer(0).with_rejection_response(|_: &Rejection, _: &http::request::Parts| {
        let mut response = http::Response::new(axum::body::Body::from("come back later"));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
    });
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(inner)
        .layer(layer(1));
    let reply = support::get(support::serve(app).await, "/").await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(reply.number("x-ratelimit-limit"), 0);
}

#[tokio::test]
async fn what_a_handler_says_of_another_limit_counts_as_an_inner_layer() {
    for (theirs, shown) in [("2", "2"), ("50", "9"), ("garbage", "9")] {
        let upstream = middleware::from_fn(move |request, next: Next| async move {
            ([("x-ratelimit-remaining", theirs)], next.run(request).await)
        });
        let app = Router::new()
            .route("/", get(async || "hello"))
            .layer(upstream)
            .layer(layer(10));
        let reply = support::get(support::serve(app).await, "/").await;
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(shown));
    }
}

#[tokio::test]
async fn an_outer_refusal_takes_nothing_inside() {
    let store = MemoryStore::new();
    let inner = RateLimitLayer::new(store, Quota::per_minute(9), key::Global);
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(inner)
        .route("/inner", get(async || "hello"));
    let limited = app.clone().layer(layer(2));
    let address = support::serve(limited).await;
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(support::get(address, "/").await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 429, 429]);
    let reply = support::get(support::serve(app).await, "/").await;
    assert_eq!(reply.number("x-ratelimit-remaining"), 6);
}

/// Four requests through two layers on one store, around different routes.
async fn remaining_of_two(first: RateLimitLayer, second: RateLimitLayer) -> Vec<u64> {
    let app = Router::new()
        .route("/first", get(async || "hello").layer(first))
        .route("/second", get(async || "hello").layer(second));
    let address = support::serve(app).await;
    let mut remaining = Vec::new();
    for path in ["/first", "/second", "/first", "/second"] {
        remaining.push(support::get(address, path).await.number("x-ratelimit-remaining"));
    }
    remaining
}

#[tokio::test]
async fn b38_names_separate_layers_on_one_store() {
    let (_, store) = clocked();
    let new = |name: &str, limit| {
        let layer = RateLimitLayer::new(store.clone(), Quota::per_minute(limit), key::Global);
        layer.name(name)
    };
    assert_eq!(remaining_of_two(new("a", 5), new("b", 5)).await, [4, 4, 3, 3]);
    // Another key, another count.
    let by_host = RateLimitLayer::new(store.clone(), Quota::per_minute(5), key::Host).name("c");
    assert_eq!(remaining_of_two(new("c", 5), by_host).await, [4, 4, 3, 3]);
    assert_eq!(store.stats().keys, 4);
}

#[tokio::test]
async fn b38_layers_of_one_name_key_and_window_count_together() {
    let (_, store) = clocked();
    let new = |limit| RateLimitLayer::new(store.clone(), Quota::per_minute(limit), key::Global);
    assert_eq!(remaining_of_two(new(9), new(9)).await, [8, 7, 6, 5]);
    // A limit is not part of what identifies a counter.
    assert_eq!(
        remaining_of_two(new(9).name("d"), new(6).name("d")).await,
        [8, 4, 6, 2]
    );
    assert_eq!(store.stats().keys, 2);
}

#[tokio::test]
async fn b38_stacked_layers_of_one_name_charge_twice_and_those_of_two_names_once_each() {
    let (_, store) = clocked();
    let new = || RateLimitLayer::new(store.clone(), Quota::per_minute(9), key::Global);
    let reply = support::get(serve(new(), new()).await, "/").await;
    assert_eq!(reply.number("x-ratelimit-remaining"), 7);
    let reply = support::get(serve(new().name("a"), new().name("b")).await, "/").await;
    assert_eq!(reply.number("x-ratelimit-remaining"), 8);
}
