//! A real tonic server and its clients.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tollgate::store::StoreErrorKind;
use tollgate::{FailurePolicy, MemoryStore, MissingKey, Quota, RateLimitLayer, key};
use tonic::service::{LayerExt, Routes};
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use tower::{Layer, ServiceBuilder};

use crate::support::{self, Behaviour, TestStore, clocked, within};

/// The peer's address where tonic puts it.
fn tonic_peer() -> key::Address {
    key::Address::new(|request: &Parts| -> Option<IpAddr> {
        let info: &TcpConnectInfo = request.extensions.get()?;
        Some(info.remote_addr()?.ip())
    })
}

async fn bind() -> (TcpIncoming, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (TcpIncoming::from(listener), address)
}

/// Serves the health service with a layer around all services.
pub(crate) async fn serve(layer: RateLimitLayer) -> SocketAddr {
    let (incoming, address) = bind().await;
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

pub(crate) async fn connect(address: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
    within(endpoint.connect()).await.expect("it listens")
}

pub(crate) fn request() -> HealthCheckRequest {
    HealthCheckRequest {
        service: String::new(),
    }
}

async fn check(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    within(client.check(request())).await.map(drop)
}

fn header<'a>(status: &'a Status, name: &str) -> Option<&'a str> {
    Some(status.metadata().get(name)?.to_str().expect("ASCII"))
}

#[tokio::test]
async fn r36_the_denied_call_is_told_so_with_a_hint() {
    let (clock, store) = clocked();
    let address = serve(RateLimitLayer::new(store, Quota::per_minute(2), tonic_peer())).await;
    let mut client = HealthClient::new(connect(address).await);
    let allowed = within(client.check(request())).await.expect("it is allowed");
    assert_eq!(
        allowed
            .metadata()
            .get("x-ratelimit-remaining")
            .expect("it is there"),
        "1"
    );
    check(&mut client).await.expect("it is allowed");

    clock.advance(Duration::from_micros(1_499_001));
    let denied = check(&mut client).await.expect_err("it is denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(denied.message(), "quota exceeded: retry after 59 seconds");
    // 58.500999 s, in whole milliseconds, rounded up.
    assert_eq!(header(&denied, "grpc-retry-pushback-ms"), Some("58501"));
    let details = denied.get_error_details();
    let retry = details.retry_info().expect("it says when to retry");
    assert_eq!(retry.retry_delay, Some(Duration::from_micros(58_500_999)));
    assert_eq!(header(&denied, "retry-after"), Some("59"));
    assert_eq!(header(&denied, "x-ratelimit-remaining"), Some("0"));

    // C3: as long as told, in each of the forms, is enough; a millisecond less is not.
    clock.advance(Duration::from_millis(58_500));
    check(&mut client).await.expect_err("it is denied still");
    clock.advance(Duration::from_millis(1));
    check(&mut client).await.expect("it is allowed");
}

#[tokio::test]
async fn streaming_calls_are_denied_before_they_begin() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(1), tonic_peer());
    let mut client = HealthClient::new(connect(serve(layer).await).await);
    let mut stream = within(client.watch(request()))
        .await
        .expect("it is allowed")
        .into_inner();
    assert!(within(stream.message()).await.expect("no error").is_some());
    let denied = within(client.watch(request())).await.expect_err("it is denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    // The stream that was allowed goes on: it waits for the next change.
    let mut next = std::pin::pin!(stream.message());
    assert!(support::poll_once(&mut next).await.is_pending());
}

#[tokio::test]
async fn r36_a_denial_is_one_block_of_headers_on_the_wire() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(0), tonic_peer());
    let address = serve(layer).await;
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http::<Full<Bytes>>();
    let call = Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::from(&[0; 5][..]))
        .expect("a request");
    let response = within(client.request(call)).await.expect("a response");
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/grpc");
    assert_eq!(response.headers()["grpc-status"], "8");
    assert!(response.body().is_end_stream());
    let rest = within(response.into_body().collect()).await.expect("a body");
    assert!(rest.trailers().is_none());
    assert!(rest.to_bytes().is_empty());
}

#[tokio::test]
async fn r36_tonic_and_axum_share_one_budget() {
    let store = MemoryStore::new();
    let quota = Quota::per_hour(5);
    let grpc = serve(RateLimitLayer::new(store.clone(), quota, tonic_peer()).name("api")).await;
    let http = RateLimitLayer::new(store.clone(), quota, key::PeerIp).name("api");
    let http = support::serve(Router::new().route("/", get(async || "hello")).layer(http)).await;
    let mut client = HealthClient::new(connect(grpc).await);

    check(&mut client).await.expect("it is allowed");
    assert_eq!(support::get(http, "/").await.number("x-ratelimit-remaining"), 3);
    check(&mut client).await.expect("it is allowed");
    check(&mut client).await.expect("it is allowed");
    assert_eq!(support::get(http, "/").await.status, StatusCode::OK);
    assert_eq!(
        support::get(http, "/").await.status,
        StatusCode::TOO_MANY_REQUESTS
    );
    let denied = check(&mut client).await.expect_err("it is denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(store.stats().keys, 1);
}

#[tokio::test]
async fn r36_one_layer_serves_both_on_one_port() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(2), key::PeerIp);
    let (_, health) = tonic_health::server::health_reporter();
    let app = Routes::new(health)
        .into_axum_router()
        .route("/", get(async || "hello"))
        .layer(layer);
    let address = support::serve(app).await;
    let mut client = HealthClient::new(connect(address).await);
    check(&mut client).await.expect("it is allowed");
    assert_eq!(support::get(address, "/").await.body, "hello");
    assert_eq!(
        support::get(address, "/").await.status,
        StatusCode::TOO_MANY_REQUESTS
    );
    let denied = check(&mut client).await.expect_err("it is denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn one_service_of_a_server_can_be_limited() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(1), tonic_peer());
    let (incoming, address) = bind().await;
    let (_, health) = tonic_health::server::health_reporter();
    let limited = ServiceBuilder::new().layer(layer).named_layer(health);
    tokio::spawn(
        Server::builder()
            .add_service(limited)
            .serve_with_incoming(incoming),
    );
    let mut client = HealthClient::new(connect(address).await);
    check(&mut client).await.expect("it is allowed");
    let denied = check(&mut client).await.expect_err("it is denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn a_client_can_be_limited() {
    let served = RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(9), tonic_peer());
    let channel = connect(serve(served).await).await;
    let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(2), key::Global);
    let mut limited = HealthClient::new(layer.layer(channel.clone()));
    for _ in 0..2 {
        within(limited.check(request())).await.expect("it is allowed");
    }
    let denied = within(limited.check(request())).await.expect_err("it is denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    let seen = within(HealthClient::new(channel).check(request())).await;
    let seen = seen.expect("the server allows it");
    assert_eq!(
        seen.metadata().get("x-ratelimit-remaining").expect("it is there"),
        "6"
    );
}

#[tokio::test]
async fn waiting_does_not_help_a_call_that_costs_too_much() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(2), tonic_peer()).cost(3);
    let mut client = HealthClient::new(connect(serve(layer).await).await);
    let denied = check(&mut client).await.expect_err("it is denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(header(&denied, "grpc-retry-pushback-ms"), Some("-1"));
    assert!(denied.get_error_details().retry_info().is_none());
    assert_eq!(header(&denied, "retry-after"), None);
}

#[tokio::test]
async fn a_store_that_is_gone_is_unavailable() {
    let store = TestStore::new(Behaviour::Fails(StoreErrorKind::Unavailable));
    let layer = RateLimitLayer::new(store, Quota::per_hour(2), tonic_peer());
    let deny = layer.clone().failure_policy(FailurePolicy::Deny);
    let mut client = HealthClient::new(connect(serve(deny).await).await);
    let denied = check(&mut client).await.expect_err("it is denied");
    assert_eq!(denied.code(), Code::Unavailable);
    assert_eq!(header(&denied, "grpc-retry-pushback-ms"), Some("1000"));
    let details = denied.get_error_details();
    let retry = details.retry_info().expect("it says when to retry");
    assert_eq!(retry.retry_delay, Some(Duration::from_secs(1)));

    let allow = layer.failure_policy(FailurePolicy::Allow);
    let mut client = HealthClient::new(connect(serve(allow).await).await);
    for _ in 0..5 {
        check(&mut client).await.expect("it is allowed");
    }
}

#[tokio::test]
async fn calls_without_a_key_get_the_code_of_their_status() {
    let by_token = RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(2), key::Bearer);
    for (status, code) in [
        (StatusCode::UNAUTHORIZED, Code::Unauthenticated),
        (StatusCode::FORBIDDEN, Code::PermissionDenied),
        (StatusCode::BAD_REQUEST, Code::InvalidArgument),
    ] {
        let layer = by_token.clone().missing_key(MissingKey::Reject(status));
        let mut client = HealthClient::new(connect(serve(layer).await).await);
        let denied = check(&mut client).await.expect_err("it is refused");
        assert_eq!(denied.code(), code);
    }
}
