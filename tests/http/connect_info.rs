//! R1: routers that are served without connect info. What happens is chosen, logged once with how to mend it, and
//! never a 500.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::get;
use http::{Request, StatusCode};
use tollgate::key::PeerAddr;
use tollgate::{Decision, MemoryStore, MissingKey, Quota, RateLimitLayer, key};
use tower::ServiceExt;
use tracing::Level;

use crate::support::{self, Events};

fn layer(missing: MissingKey) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(2), key::PeerIp).missing_key(missing)
}

async fn hello() -> &'static str {
    "hello"
}

/// The layer outside and inside of nested routers: name, router, path.
fn routers(missing: MissingKey) -> [(&'static str, Router, &'static str); 4] {
    let flat = || Router::new().route("/x", get(hello));
    [
        ("flat", flat().layer(layer(missing)), "/x"),
        (
            "around a nest",
            Router::new().nest("/api", flat()).layer(layer(missing)),
            "/api/x",
        ),
        (
            "in a nest",
            Router::new().nest("/api", flat().layer(layer(missing))),
            "/api/x",
        ),
        (
            "on a method router",
            Router::new().route("/x", get(hello).layer(layer(missing))),
            "/x",
        ),
    ]
}

/// Statuses of four requests each, through a socket and through `oneshot`, and the warnings that were logged.
async fn statuses(app: Router, path: &str) -> ([Vec<u16>; 2], Vec<String>) {
    let events = Events::catch();
    let address = support::serve_without_peers(app.clone()).await;
    let mut through_socket = Vec::new();
    for _ in 0..4 {
        through_socket.push(support::get(address, path).await.status.as_u16());
    }
    let mut through_oneshot = Vec::new();
    for _ in 0..4 {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let Ok(response) = app.clone().oneshot(request).await;
        through_oneshot.push(response.status().as_u16());
    }
    assert!(events.of(Level::ERROR).is_empty());
    ([through_socket, through_oneshot], events.of(Level::WARN))
}

#[tokio::test]
async fn r1_each_choice_is_kept_and_logged_once() {
    for (missing, expected, consequence) in [
        (
            MissingKey::Shared,
            [[200, 200, 429, 429], [429, 429, 429, 429]],
            "all requests without a key share one counter",
        ),
        (
            MissingKey::Skip,
            [[200; 4], [200; 4]],
            "requests without a key are not limited by this policy",
        ),
        (
            MissingKey::Reject(StatusCode::FORBIDDEN),
            [[403; 4], [403; 4]],
            "requests without a key are refused",
        ),
    ] {
        for (placement, app, path) in routers(missing) {
            let (statuses, warnings) = statuses(app, path).await;
            assert_eq!(statuses, expected, "{missing:?} {placement}");
            let [warning] = &warnings[..] else {
                panic!("{missing:?} {placement}: {warnings:?}");
            };
            for part in [
                "policy=2-per-60s",
                "into_make_service_with_connect_info::<SocketAddr>()",
                "tollgate::key::PeerAddr",
                consequence,
            ] {
                assert!(warning.contains(part), "{warning}");
            }
        }
    }
}

#[tokio::test]
async fn r1_sharing_is_the_default() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(2), key::PeerIp);
    let app = Router::new().route("/x", get(hello)).layer(layer);
    let ([socket, oneshot], _) = statuses(app, "/x").await;
    assert_eq!((socket, oneshot), (vec![200, 200, 429, 429], vec![429; 4]));
}

#[tokio::test]
async fn r1_a_refusal_for_want_of_a_key_explains_itself() {
    let app = Router::new().layer(layer(MissingKey::Reject(StatusCode::BAD_REQUEST)));
    let reply = support::get(support::serve_without_peers(app).await, "/").await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert_eq!(reply.body, "the request has nothing to count it by\n");
    assert_eq!(reply.limit_fields(), [""; 0]);
}

#[tokio::test]
async fn r1_a_handler_that_takes_the_decision_of_a_skipped_request_does_not_fail() {
    let app = Router::new()
        .route(
            "/",
            get(async |decision: Decision| format!("{:?}", decision.source())),
        )
        .layer(layer(MissingKey::Skip));
    let reply = support::get(support::serve_without_peers(app).await, "/").await;
    assert_eq!((reply.status, reply.body.as_str()), (StatusCode::OK, "Exempt"));
}

#[tokio::test]
async fn with_connect_info_there_is_nothing_to_warn_of() {
    for (placement, app, path) in routers(MissingKey::Shared) {
        let events = Events::catch();
        let address = support::serve(app).await;
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(support::get(address, path).await.status.as_u16());
        }
        assert_eq!(statuses, [200, 200, 429], "{placement}");
        assert_eq!(events.of(Level::WARN), [""; 0], "{placement}");
    }
}

#[tokio::test]
async fn peers_can_be_mocked() {
    let address = |last| SocketAddr::from(([192, 0, 2, last], 80));
    let (_, app, path) = routers(MissingKey::Reject(StatusCode::FORBIDDEN))[0].clone();
    let app = app.layer(MockConnectInfo(address(1)));
    for (peer, expected) in [(None, 200), (None, 200), (None, 429), (Some(2), 200)] {
        let mut request = Request::get(path).body(Body::empty()).expect("a request");
        if let Some(last) = peer {
            request.extensions_mut().insert(PeerAddr(address(last)));
        }
        let Ok(response) = app.clone().oneshot(request).await;
        assert_eq!(response.status().as_u16(), expected, "{peer:?}");
    }
}
