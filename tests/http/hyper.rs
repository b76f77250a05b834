//! Bare hyper: around a function that serves connections, and around a client.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tollgate::{Decision, MemoryStore, MissingKey, Quota, RateLimit, RateLimitLayer, Source, key};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

use crate::support::{self, clocked, within};

async fn hello(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let decision: Option<&Decision> = request.extensions().get();
    assert!(decision.is_some_and(|decision| decision.source() == Source::Store));
    Ok(Response::new(Full::from("hello")))
}

/// Accepts connections and serves each with a clone of one limited service, whose requests know their peer.
async fn serve(layer: RateLimitLayer, http2: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let limited = ServiceBuilder::new().layer(layer).service_fn(hello);
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let limited = limited
                .clone()
                .map_request(move |mut request: Request<Incoming>| {
                    request.extensions_mut().insert(key::PeerAddr(peer));
                    request
                });
            tokio::spawn(connection(stream, TowerToHyperService::new(limited), http2));
        }
    });
    address
}

pub(crate) async fn serve_http1(layer: RateLimitLayer) -> SocketAddr {
    serve(layer, false).await
}

async fn connection<S>(stream: TcpStream, service: S, http2: bool)
where
    S: hyper::service::Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = Infallible>
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    // Clients close their connections when they have seen enough.
    let _ = if http2 {
        http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await
    } else {
        http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await
    };
}

#[tokio::test]
async fn r31_connections_share_one_limit() {
    for http2 in [false, true] {
        let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(5), key::PeerIp)
            .missing_key(MissingKey::Reject(StatusCode::FORBIDDEN));
        let address = serve(layer, http2).await;
        let mut admitted = 0;
        for _ in 0..50 {
            let request = support::request(address, "/");
            let reply = if http2 {
                support::send_http2(request).await
            } else {
                support::send(request).await
            };
            assert_eq!(
                reply.version,
                if http2 { Version::HTTP_2 } else { Version::HTTP_11 }
            );
            match reply.status {
                StatusCode::OK => {
                    assert_eq!(reply.body, "hello");
                    admitted += 1;
                    assert_eq!(reply.number("x-ratelimit-remaining"), 5 - admitted);
                }
                StatusCode::TOO_MANY_REQUESTS => {
                    assert!(
                        reply.body.starts_with("quota exceeded: retry after "),
                        "{}",
                        reply.body
                    );
                    assert!((3_590..=3_600).contains(&reply.number("retry-after")));
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(admitted, 5, "http2: {http2}");
    }
}

#[tokio::test]
async fn head_is_refused_without_a_body() {
    for http2 in [false, true] {
        let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(0), key::PeerIp);
        let address = serve(layer, http2).await;
        let mut head = support::request(address, "/");
        *head.method_mut() = Method::HEAD;
        let (get, head) = if http2 {
            (
                support::send_http2(support::request(address, "/")).await,
                support::send_http2(head).await,
            )
        } else {
            (support::get(address, "/").await, support::send(head).await)
        };
        assert_eq!(
            (head.status, head.body.as_str()),
            (StatusCode::TOO_MANY_REQUESTS, "")
        );
        assert_eq!(get.number("content-length"), get.body.len() as u64);
        assert_eq!(head.number("content-length"), get.body.len() as u64);
    }
}

#[tokio::test]
async fn streams_of_one_connection_share_the_limit() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(5), key::PeerIp);
    let address = serve(layer, true).await;
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http::<Full<Bytes>>();
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let response = client.request(support::request(address, "/"));
        streams.spawn(async move { response.await.expect("a response").status() });
    }
    let statuses = within(streams.join_all()).await;
    assert_eq!(statuses.iter().filter(|status| status.is_success()).count(), 5);
}

/// A client whose requests are limited here, before they leave. Its response body has no default, so it is mapped
/// to one that has, which holds the text of refusals too.
fn limited_client<C>(
    layer: &RateLimitLayer,
    client: C,
) -> RateLimit<
    impl Service<Request<Full<Bytes>>, Response = Response<axum::body::Body>, Error = C::Error, Future: Send>
    + Clone,
>
where
    C: Service<Request<Full<Bytes>>, Response = Response<Incoming>, Future: Send> + Clone,
{
    layer.layer(client.map_response(|response: Response<Incoming>| response.map(axum::body::Body::new)))
}

#[tokio::test]
async fn a_client_can_be_limited() {
    let served = RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(1_000), key::PeerIp);
    let address = serve(served, false).await;
    let (clock, store) = clocked();
    // Three calls per minute to each host.
    let layer = RateLimitLayer::new(store, Quota::per_minute(3), key::Host);
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut client = limited_client(&layer, client);

    for wave in 0..2 {
        for left in [2, 1, 0] {
            let response = support::call(&mut client, support::request(address, "/")).await;
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(
                response.headers()["x-ratelimit-remaining"],
                left.to_string().as_str()
            );
            let body = within(response.into_body().collect()).await.expect("a body");
            assert_eq!(body.to_bytes(), "hello");
        }
        let refused = support::call(&mut client, support::request(address, "/")).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{wave}");
        let body = within(refused.into_body().collect()).await.expect("a body");
        assert_eq!(body.to_bytes(), "quota exceeded: retry after 60 seconds\n");
        clock.advance(Duration::from_secs(60));
    }
    // A refused call never left: the server counted six.
    let seen = support::get(address, "/").await;
    assert_eq!(seen.number("x-ratelimit-remaining"), 993);
}

#[tokio::test]
async fn errors_of_a_client_are_its_own() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(1), key::Host);
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut client = limited_client(&layer, client);
    // Nobody listens on a port that was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let result = support::start(&mut client, support::request(address, "/")).await;
    let error: hyper_util::client::legacy::Error = within(result).await.expect_err("nobody answers");
    assert!(error.is_connect(), "{error}");
}
