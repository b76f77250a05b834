//! What the log says of outages, denials and missing keys, and how often.

use std::error::Error as _;
use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio::time::Instant;
use tollgate::key::{self, PeerAddr};
use tollgate::store::{Ask, Outcome, Stamp, StoreError, StoreErrorKind, StoreFuture};
use tollgate::{
    AdminErrorKind, FailurePolicy, Limiter, MemoryStore, MissingKey, Quota, RateLimitLayer, Store,
};
use tower::{Layer, service_fn};
use tracing::Level;

use crate::support::{Behaviour, Events, TestStore, call};

fn hello()
-> impl tower::Service<Request<()>, Response = Response<String>, Error = std::convert::Infallible, Future: Send>
+ Clone {
    service_fn(|_request: Request<()>| async { Ok(Response::new(String::from("hello"))) })
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_one_line_and_its_end_another() {
    let events = Events::catch();
    let store = TestStore::new(Behaviour::Fails(StoreErrorKind::Unavailable));
    let limiter = Limiter::new(store.clone(), Quota::per_minute(100)).name("login");
    for _ in 0..3 {
        assert!(limiter.check("alice").await.is_degraded());
    }
    let [line] = &events.of(Level::WARN)[..] else {
        panic!("{:?}", events.all());
    };
    assert!(
        line.contains("login") && line.contains("cannot be reached"),
        "{line}"
    );
    assert_eq!(events.of(Level::INFO), [""; 0]);

    store.behave(Behaviour::Prompt);
    for _ in 0..3 {
        assert!(!limiter.check("alice").await.is_degraded());
    }
    assert_eq!(events.of(Level::INFO).len(), 1, "{:?}", events.all());

    // A store that comes and goes does not fill the log.
    for _ in 0..5 {
        store.behave(Behaviour::Fails(StoreErrorKind::Timeout));
        limiter.check("alice").await;
        store.behave(Behaviour::Prompt);
        limiter.check("alice").await;
    }
    assert_eq!(
        (events.of(Level::WARN).len(), events.of(Level::INFO).len()),
        (1, 1)
    );

    tokio::time::advance(Duration::from_secs(11)).await;
    store.behave(Behaviour::Fails(StoreErrorKind::Timeout));
    limiter.check("alice").await;
    store.behave(Behaviour::Prompt);
    limiter.check("alice").await;
    assert_eq!(
        (events.of(Level::WARN).len(), events.of(Level::INFO).len()),
        (2, 2)
    );
}

#[tokio::test]
async fn a_denial_without_a_store_names_policy_and_hashed_key() {
    let events = Events::catch();
    let store = TestStore::new(Behaviour::Fails(StoreErrorKind::Unavailable));
    let limiter = Limiter::new(store, Quota::per_minute(1))
        .name("login")
        .failure_policy(FailurePolicy::Deny);
    limiter.check("alice").await;
    let [line] = &events.of(Level::DEBUG)[..] else {
        panic!("{:?}", events.all());
    };
    let fingerprint = tollgate::Key::from("alice").fingerprint().to_string();
    assert!(line.contains("login") && line.contains(&fingerprint), "{line}");
    assert!(!line.contains("alice"), "{line}");
}

#[tokio::test]
async fn each_refusal_for_want_of_a_key_is_a_debug_event() {
    let events = Events::catch();
    let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(1), key::PeerIp)
        .name("address")
        .missing_key(MissingKey::Reject(StatusCode::UNAUTHORIZED));
    let mut service = layer.layer(hello());
    for _ in 0..3 {
        assert_eq!(call(&mut service, Request::new(())).await.status(), 401);
    }
    assert_eq!(events.of(Level::WARN).len(), 1);
    let refused = events.of(Level::DEBUG);
    assert_eq!(refused.len(), 3);
    assert!(
        refused
            .iter()
            .all(|line| line.contains("address") && line.contains("401")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn r1_a_lack_of_tokens_does_not_hide_a_lack_of_addresses() {
    let events = Events::catch();
    let layer = RateLimitLayer::new(
        MemoryStore::new(),
        Quota::per_minute(100),
        (key::PeerIp, key::Bearer),
    );
    let mut service = layer.layer(hello());
    for with_address in [true, false, true, false] {
        let mut request = Request::new(());
        if with_address {
            request
                .extensions_mut()
                .insert(PeerAddr(SocketAddr::from(([192, 0, 2, 1], 1))));
        }
        call(&mut service, request).await;
    }
    let warnings = events.of(Level::WARN);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings
            .iter()
            .any(|line| line.contains("into_make_service_with_connect_info"))
    );
}

#[test]
#[should_panic(expected = "use a status of 4xx or 5xx")]
fn a_refusal_cannot_look_like_success() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(1), key::PeerIp);
    let _ = layer.missing_key(MissingKey::Reject(StatusCode::OK));
}

/// A store that never answers, and one whose answer says nothing of the charges.
struct Broken {
    answers: bool,
}

impl Broken {
    fn outcome(&self) -> StoreFuture<Outcome> {
        if self.answers {
            StoreFuture::ready(Ok(Outcome::new(0, Stamp::from_micros(1), [])))
        } else {
            StoreFuture::waiting(pending())
        }
    }
}

impl Store for Broken {
    fn acquire(&self, _ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.outcome()
    }

    fn give_back(&self, _ask: &Ask<'_>, _times: u32, _stamp: Stamp) -> StoreFuture<()> {
        StoreFuture::waiting(pending())
    }

    fn charge(&self, _ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.outcome()
    }

    fn peek(&self, _ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.outcome()
    }

    fn reset(&self, _ask: &Ask<'_>) -> StoreFuture<()> {
        StoreFuture::waiting(pending())
    }

    fn block(&self, _ask: &Ask<'_>, _time: Duration) -> StoreFuture<()> {
        StoreFuture::waiting(pending())
    }
}

#[tokio::test(start_paused = true)]
async fn c7_a_reset_is_answered_within_the_deadline() {
    let limiter =
        Limiter::new(Broken { answers: false }, Quota::per_minute(1)).deadline(Duration::from_millis(30));
    let start = Instant::now();
    let error = limiter.reset("alice").await.expect_err("there is no answer");
    assert_eq!(error.kind(), AdminErrorKind::Store);
    let cause = error
        .source()
        .and_then(|source| source.downcast_ref::<StoreError>());
    assert_eq!(cause.map(StoreError::kind), Some(StoreErrorKind::Timeout));
    assert!(
        start.elapsed() <= Duration::from_millis(40),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn an_answer_about_other_charges_is_none() {
    let limiter = Limiter::new(Broken { answers: true }, Quota::per_minute(1));
    let decision = limiter.check("alice").await;
    assert!(decision.is_allowed() && decision.is_degraded());
}
