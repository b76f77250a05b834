//! Header fields on the wire.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use tollgate::{Draft, Headers, Quota, RateLimitLayer, key};

use crate::support::{self, Reply, by_every_algorithm, clocked, every_family};

/// Four requests to a limit of two per minute: the second one's reply and the fourth's.
async fn passed_and_refused(headers: Headers) -> (Reply, Reply) {
    let (clock, store) = clocked();
    let layer = RateLimitLayer::new(store, Quota::per_minute(2), key::Global)
        .name("api")
        .headers(headers);
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    let address = support::serve(app).await;
    support::get(address, "/").await;
    clock.advance(Duration::from_secs(10));
    let passed = support::get(address, "/").await;
    clock.advance(Duration::from_millis(20_500));
    support::get(address, "/").await;
    let refused = support::get(address, "/").await;
    assert_eq!(
        (passed.status, refused.status),
        (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS)
    );
    (passed, refused)
}

fn fields(reply: &Reply) -> Vec<(&str, &str)> {
    let names = reply.limit_fields();
    let value = |name| reply.header(name).expect("it is there");
    names.into_iter().map(|name| (name, value(name))).collect()
}

/// Sends requests until one is refused.
async fn use_up(address: SocketAddr) {
    for _ in 0..20 {
        if support::get(address, "/").await.status == StatusCode::TOO_MANY_REQUESTS {
            return;
        }
    }
    panic!("nothing is refused");
}

#[tokio::test]
async fn x_ratelimit_counts_seconds_from_now() {
    let (passed, refused) = passed_and_refused(Headers::default()).await;
    assert_eq!(
        fields(&passed),
        [
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "60"),
        ]
    );
    assert_eq!(
        fields(&refused),
        [
            ("retry-after", "30"),
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "30"),
        ]
    );
}

#[tokio::test]
async fn x_ratelimit_counts_from_the_epoch_if_told_to() {
    // Both are at 1 800 000 000.300001 + 70 or 60, rounded up once.
    let (passed, refused) = passed_and_refused(Headers::x_ratelimit().reset_as_epoch()).await;
    assert_eq!(passed.number("x-ratelimit-reset"), 1_800_000_071);
    assert_eq!(refused.number("x-ratelimit-reset"), 1_800_000_061);
    assert_eq!(refused.number("retry-after"), 30);
}

#[tokio::test]
async fn ietf_fields_have_the_form_of_their_draft() {
    for (draft, passed, refused) in [
        (
            Draft::V6,
            &[
                ("ratelimit-limit", "2"),
                ("ratelimit-policy", "2;w=60"),
                ("ratelimit-remaining", "0"),
                ("ratelimit-reset", "60"),
            ][..],
            &[
                ("ratelimit-limit", "2"),
                ("ratelimit-policy", "2;w=60"),
                ("ratelimit-remaining", "0"),
                ("ratelimit-reset", "30"),
                ("retry-after", "30"),
            ][..],
        ),
        (
            Draft::V7,
            &[
                ("ratelimit", "limit=2, remaining=0, reset=60"),
                ("ratelimit-policy", "2;w=60"),
            ],
            &[
                ("ratelimit", "limit=2, remaining=0, reset=30"),
                ("ratelimit-policy", "2;w=60"),
                ("retry-after", "30"),
            ],
        ),
        (
            Draft::V8,
            &[
                ("ratelimit", "\"api\";r=0;t=60"),
                ("ratelimit-policy", "\"api\";q=2;w=60"),
            ],
            &[
                ("ratelimit", "\"api\";r=0;t=30"),
                ("ratelimit-policy", "\"api\";q=2;w=60"),
                ("retry-after", "30"),
            ],
        ),
    ] {
        let replies = passed_and_refused(Headers::from(draft)).await;
        assert_eq!(fields(&replies.0), passed, "{draft:?}");
        assert_eq!(fields(&replies.1), refused, "{draft:?}");
    }
}

#[tokio::test]
async fn the_listed_names_are_those_on_the_wire() {
    for headers in every_family() {
        for headers in [headers, headers.retry_after(false)] {
            let (passed, refused) = passed_and_refused(headers).await;
            let names = headers.names();
            let mut listed: Vec<&str> = names.iter().map(http::HeaderName::as_str).collect();
            listed.sort_unstable();
            assert_eq!(refused.limit_fields(), listed, "{headers:?}");
            listed.retain(|name| *name != "retry-after");
            assert_eq!(passed.limit_fields(), listed, "{headers:?}");
        }
    }
}

#[tokio::test]
async fn r9_r38_waiting_as_told_is_admitted_by_every_algorithm() {
    for quota in by_every_algorithm(10, Duration::from_secs(1))
        .into_iter()
        .chain(by_every_algorithm(3, Duration::from_secs(7)))
    {
        let (clock, store) = clocked();
        let limit = quota.limit().expect("it has one");
        let layer = RateLimitLayer::new(store, quota, key::Global);
        let app = Router::new().route("/", get(async || "hello")).layer(layer);
        let address = support::serve(app).await;
        for remaining in (0..limit).rev() {
            let reply = support::get(address, "/").await;
            assert_eq!(reply.status, StatusCode::OK, "{quota:?}");
            assert_eq!(reply.number("x-ratelimit-remaining"), remaining, "{quota:?}");
        }
        for _ in 0..3 {
            let reply = support::get(address, "/").await;
            assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS, "{quota:?}");
            assert_eq!(reply.number("x-ratelimit-remaining"), 0, "{quota:?}");
            let wait = reply.number("retry-after");
            assert!(wait >= 1, "{quota:?}");
            clock.advance(Duration::from_secs(wait));
            assert_eq!(
                support::get(address, "/").await.status,
                StatusCode::OK,
                "{quota:?}"
            );
            use_up(address).await;
        }
    }
}

#[tokio::test]
async fn c2_refusals_do_not_move_the_release() {
    for quota in by_every_algorithm(3, Duration::from_secs(8)) {
        let (clock, store) = clocked();
        let layer = RateLimitLayer::new(store, quota, key::Global);
        let app = Router::new().route("/", get(async || "hello")).layer(layer);
        let address = support::serve(app).await;
        use_up(address).await;
        let wait = support::get(address, "/").await.number("retry-after");
        for passed in 1..wait {
            clock.advance(Duration::from_secs(1));
            let reply = support::get(address, "/").await;
            if reply.status == StatusCode::OK {
                // Only what was rounded up to whole seconds may come free before.
                assert_eq!(passed, wait - 1, "{quota:?}");
                break;
            }
            assert_eq!(reply.number("retry-after"), wait - passed, "{quota:?}");
        }
    }
}

#[tokio::test]
async fn b25_an_epoch_reset_stands_still_within_a_fixed_window() {
    let (clock, store) = clocked();
    let layer = RateLimitLayer::new(store, Quota::per_minute(3).fixed_window(), key::Global)
        .headers(Headers::x_ratelimit().reset_as_epoch());
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    let address = support::serve(app).await;
    let mut refused = 0;
    for step in [1, 999_999, 500_000, 7_123_456, 1_000_000, 20_000_001, 400_000, 3] {
        clock.advance(Duration::from_micros(step));
        let reply = support::get(address, "/").await;
        assert_eq!(reply.number("x-ratelimit-reset"), 1_800_000_060, "{step}");
        if reply.status == StatusCode::TOO_MANY_REQUESTS {
            refused += 1;
            assert_eq!(reply.number("x-ratelimit-remaining"), 0);
        }
    }
    assert_eq!(refused, 5);
}

#[tokio::test]
async fn r15_a_request_that_costs_more_than_the_limit_is_given_no_hint() {
    let (_, store) = clocked();
    let layer = RateLimitLayer::new(store, Quota::per_minute(5), key::Global).cost(6);
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    let reply = support::get(support::serve(app).await, "/").await;
    assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        fields(&reply),
        [("x-ratelimit-limit", "5"), ("x-ratelimit-remaining", "5")]
    );
    assert!(reply.body.contains("waiting does not help"), "{}", reply.body);
}
