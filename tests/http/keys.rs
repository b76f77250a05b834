//! Whose request it is: forged addresses, requests without a key, routes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::HeaderName;
use tollgate::key::{self, ClientIp, KeyExtractor};
use tollgate::store::{Ask, Outcome, Stamp, StoreFuture};
use tollgate::{MemoryStore, MissingKey, Quota, RateLimitLayer, Store};

use crate::support;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// A memory store that remembers every key that it was asked about, as a store writes it.
#[derive(Clone, Default)]
struct Recorder {
    memory: MemoryStore,
    keys: Arc<Mutex<BTreeSet<String>>>,
}

impl Recorder {
    fn keys(&self) -> Vec<String> {
        let keys = self.keys.lock().expect("no test has failed under it");
        keys.iter().cloned().collect()
    }
}

impl Store for Recorder {
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let mut keys = self.keys.lock().expect("no test has failed under it");
        for charge in ask.charges {
            keys.insert(String::from_utf8_lossy(charge.key.as_bytes()).into_owned());
        }
        self.memory.acquire(ask)
    }

    fn give_back(&self, ask: &Ask<'_>, times: u32, stamp: Stamp) -> StoreFuture<()> {
        self.memory.give_back(ask, times, stamp)
    }

    fn charge(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.memory.charge(ask)
    }

    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.memory.peek(ask)
    }

    fn reset(&self, ask: &Ask<'_>) -> StoreFuture<()> {
        self.memory.reset(ask)
    }

    fn block(&self, ask: &Ask<'_>, time: Duration) -> StoreFuture<()> {
        self.memory.block(ask, time)
    }
}

async fn hello() -> &'static str {
    "hello"
}

/// The status of a request with these header lines.
async fn status(address: SocketAddr, path: &str, lines: &[(&'static str, &str)]) -> u16 {
    let mut request = support::request(address, path);
    for (name, value) in lines {
        request
            .headers_mut()
            .append(*name, value.parse().expect("a header value"));
    }
    support::send(request).await.status.as_u16()
}

#[tokio::test]
async fn r2_b43_forged_hops_change_nothing() {
    for client in [
        ClientIp::trusted_hops(1),
        ClientIp::trusted_proxies(["127.0.0.0/8"]).expect("a network"),
    ] {
        let recorder = Recorder::default();
        let layer = RateLimitLayer::new(recorder.clone(), Quota::per_minute(5), client);
        let address = support::serve(Router::new().route("/", get(hello)).layer(layer)).await;
        let mut admitted = 0;
        for i in 0..20 {
            let forged = format!("198.51.100.{i}");
            let real = "203.0.113.9";
            let one_line = format!("{forged}, {real}");
            let statuses = match i % 4 {
                0 => status(address, "/", &[("x-forwarded-for", &one_line)]).await,
                1 => {
                    status(
                        address,
                        "/",
                        &[("x-forwarded-for", &forged), ("x-forwarded-for", real)],
                    )
                    .await
                }
                2 => {
                    let lines = [("x-forwarded-for", "garbage \"'"), ("x-forwarded-for", real)];
                    status(address, "/", &lines).await
                }
                // Other headers are not read.
                _ => status(address, "/", &[("x-real-ip", &forged), ("x-forwarded-for", real)]).await,
            };
            admitted += usize::from(statuses == 200);
        }
        assert_eq!((admitted, recorder.keys().len()), (5, 1));
        // Somebody else behind the same proxy has a count of their own.
        assert_eq!(
            status(address, "/", &[("x-forwarded-for", "203.0.113.10")]).await,
            200
        );
    }
}

#[tokio::test]
async fn r5_requests_without_a_key_take_nothing_from_those_with_one() {
    let recorder = Recorder::default();
    let layer = RateLimitLayer::new(recorder.clone(), Quota::per_minute(3), key::Header::new(API_KEY));
    let address = support::serve(Router::new().route("/", get(hello)).layer(layer)).await;
    let mut admitted = 0;
    for _ in 0..50 {
        admitted += usize::from(status(address, "/", &[]).await == 200);
    }
    assert_eq!(admitted, 3);
    for expected in [200, 200, 200, 429] {
        assert_eq!(
            status(address, "/", &[("x-api-key", "s3cret-of-alice")]).await,
            expected
        );
    }
    let keys = recorder.keys();
    assert_eq!(keys.len(), 2);
    assert!(keys.iter().all(|key| !key.contains("s3cret")), "{keys:?}");
}

#[tokio::test]
async fn r5_what_happens_without_a_key_is_chosen() {
    for (missing, expected) in [
        (MissingKey::Skip, [200, 200]),
        (MissingKey::Reject(http::StatusCode::UNAUTHORIZED), [401, 401]),
        (MissingKey::Shared, [200, 429]),
    ] {
        let key = key::Header::new(API_KEY);
        let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(1), key).missing_key(missing);
        let address = support::serve(Router::new().route("/", get(hello)).layer(layer)).await;
        for expected in expected {
            assert_eq!(status(address, "/", &[]).await, expected, "{missing:?}");
        }
        assert_eq!(
            status(address, "/", &[("x-api-key", "alice")]).await,
            200,
            "{missing:?}"
        );
    }
}

#[tokio::test]
async fn c14_a_store_sees_neither_addresses_nor_credentials() {
    let recorder = Recorder::default();
    let key = (key::PeerIp, key::Bearer.or(key::Header::new(API_KEY)));
    let layer = RateLimitLayer::new(recorder.clone(), Quota::per_minute(3), key);
    let address = support::serve(Router::new().route("/", get(hello)).layer(layer)).await;
    assert_eq!(status(address, "/", &[("x-api-key", "hunter2")]).await, 200);
    assert_eq!(
        status(address, "/", &[("authorization", "Bearer hunter2")]).await,
        200
    );
    let keys = recorder.keys();
    assert_eq!(keys.len(), 2, "different credentials are different keys");
    for key in keys {
        assert!(!key.contains("127.0.0.1") && !key.contains("hunter2"), "{key}");
    }
}

#[tokio::test]
async fn r7_routes_are_counted_by_their_pattern_wherever_the_layer_is() {
    let by_route = |recorder: &Recorder| {
        RateLimitLayer::new(recorder.clone(), Quota::per_minute(3), key::MatchedPath).name("route")
    };
    let users = || {
        Router::new()
            .route("/users/{id}", get(hello))
            .route("/teams/{id}", get(hello))
    };
    for inside in [false, true] {
        let recorder = Recorder::default();
        let app = if inside {
            Router::new()
                .nest("/api", users().layer(by_route(&recorder)))
                .fallback(hello)
        } else {
            Router::new()
                .nest("/api", users())
                .fallback(hello)
                .layer(by_route(&recorder))
        };
        let address = support::serve(app).await;
        let mut statuses = Vec::new();
        for path in [
            "/api/users/1",
            "/api/users/2",
            "/api/users/3",
            "/api/users/4",
            "/api/teams/1",
        ] {
            statuses.push(status(address, path, &[]).await);
        }
        assert_eq!(statuses, [200, 200, 200, 429, 200], "inside: {inside}");
        // What no route matches is the fallback's: one key for all such paths, however many a client invents.
        let mut admitted = 0;
        for i in 0..10 {
            admitted += usize::from(status(address, &format!("/none/{i}"), &[]).await == 200);
        }
        assert_eq!(admitted, if inside { 10 } else { 3 });
        let mut expected = vec!["route=/api/teams/%7Bid%7D", "route=/api/users/%7Bid%7D"];
        if !inside {
            expected.insert(0, "route:none=");
        }
        assert_eq!(recorder.keys(), expected, "inside: {inside}");
    }
}
