//! Servers on loopback, and a client with a connection of its own for each request.

use std::net::SocketAddr;

use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower::BoxError;

use super::within;

/// A response, read to its end.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Reply {
    /// The only line of a field.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.get_all(name).iter();
        let line = lines.next()?;
        assert!(lines.next().is_none(), "`{name}` has several lines");
        Some(line.to_str().expect("it is ASCII"))
    }

    /// The number in a field.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        let value = self
            .header(name)
            .unwrap_or_else(|| panic!("no `{name}` in {self:?}"));
        value.parse().expect("it is a number")
    }

    /// The names of the fields about limits, sorted.
    pub(crate) fn limit_fields(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .headers
            .keys()
            .map(http::HeaderName::as_str)
            .filter(|name| name.contains("ratelimit") || *name == "retry-after")
            .collect();
        names.sort_unstable();
        names
    }
}

/// Serves a router that knows its peers.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let (listener, address) = listen().await;
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Serves a router as it is: peers are unknown.
pub(crate) async fn serve_without_peers(app: Router) -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// A GET request.
pub(crate) fn request(address: SocketAddr, path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://{address}{path}"))
        .body(Full::default())
        .expect("a request")
}

/// The reply to a GET request.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Reply {
    send(request(address, path)).await
}

/// The reply to a request, by HTTP/1.1 over a new connection.
pub(crate) async fn send(request: Request<Full<Bytes>>) -> Reply {
    exchange(request, false).await
}

/// The reply to a request, by HTTP/2 over a new connection.
pub(crate) async fn send_http2<B>(request: Request<B>) -> Reply
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    exchange(request, true).await
}

async fn exchange<B>(request: Request<B>, http2: bool) -> Reply
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    let client = Client::builder(TokioExecutor::new())
        .http2_only(http2)
        .build_http::<B>();
    let response = within(client.request(request)).await.expect("a response");
    let (head, body) = response.into_parts();
    let body = within(body.collect()).await.expect("a body").to_bytes();
    Reply {
        status: head.status,
        version: head.version,
        headers: head.headers,
        body: String::from_utf8(body.into()).expect("it is text"),
    }
}
