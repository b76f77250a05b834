//! Which types the layer goes with: bodies of requests and responses, and names for all that it makes.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Empty, Full};
use tollgate::response::DefaultResponse;
use tollgate::{
    Decision, Key, MemoryStore, Quota, RateLimit, RateLimitLayer, Rejection, ResponseFuture, key,
};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

use crate::support::{Behaviour, Inner, TestStore, call, start};

fn layer(limit: u64) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(limit), key::Global)
}

/// What a refusal with a response body of this type has to say.
async fn refusal<B>() -> (StatusCode, Option<String>, String)
where
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug> + Default + Send + 'static,
{
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(B::default())));
    let mut service = layer(1).layer(inner);
    let passed = call(&mut service, Request::new(())).await;
    assert_eq!(passed.status(), StatusCode::OK);
    assert_eq!(passed.headers()["x-ratelimit-remaining"], "0");
    let refused = call(&mut service, Request::new(())).await;
    assert_eq!(refused.headers()["retry-after"], "60");
    let (head, body) = refused.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let content_type = head.headers.get("content-type");
    (
        head.status,
        content_type.map(|value| value.to_str().expect("ASCII").to_owned()),
        String::from_utf8(body.into()).expect("it is text"),
    )
}

#[tokio::test]
async fn bodies_that_hold_text_are_filled() {
    let expected = (
        StatusCode::TOO_MANY_REQUESTS,
        Some("text/plain; charset=utf-8".to_owned()),
        "quota exceeded: retry after 60 seconds\n".to_owned(),
    );
    assert_eq!(refusal::<String>().await, expected);
    assert_eq!(refusal::<Full<Bytes>>().await, expected);
    assert_eq!(refusal::<axum::body::Body>().await, expected);
}

#[tokio::test]
async fn other_bodies_are_their_default() {
    let expected = (StatusCode::TOO_MANY_REQUESTS, None, String::new());
    assert_eq!(refusal::<Empty<Bytes>>().await, expected);
    assert_eq!(refusal::<BoxBody<Bytes, Infallible>>().await, expected);
    assert_eq!(refusal::<UnsyncBoxBody<Bytes, Infallible>>().await, expected);
    assert_eq!(refusal::<tonic::body::Body>().await, expected);
}

/// Neither `Default` nor `Clone`, `Send`, `Sync` or `Unpin`.
struct Awkward {
    text: Rc<Cell<&'static str>>,
    _pinned: std::marker::PhantomPinned,
}

impl Awkward {
    fn new(text: &'static str) -> Self {
        Self {
            text: Rc::new(Cell::new(text)),
            _pinned: std::marker::PhantomPinned,
        }
    }
}

impl http_body::Body for Awkward {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }
}

#[tokio::test]
async fn a_closure_fills_any_body() {
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Awkward::new("passed"))));
    let service = layer(0)
        .with_rejection_response(|rejection: &Rejection, _: &Parts| {
            let mut response = Response::new(Awkward::new("refused"));
            *response.status_mut() = rejection.status();
            response
        })
        .layer(inner);
    let Ok(response) = service.oneshot(Request::new(())).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.body().text.get(), "refused");
}

#[tokio::test]
async fn requests_carry_any_body_through() {
    for behaviour in [Behaviour::Prompt, Behaviour::Held] {
        let store = TestStore::new(behaviour);
        store.release(1);
        let inner = service_fn(async |request: Request<Awkward>| {
            Ok::<_, Infallible>(Response::new(request.body().text.get().to_owned()))
        });
        let service = RateLimitLayer::new(store, Quota::per_minute(1), key::Global).layer(inner);
        let Ok(response) = service.oneshot(Request::new(Awkward::new("sent"))).await;
        assert_eq!(response.body(), "sent", "{behaviour:?}");
    }
}

#[tokio::test]
async fn all_but_the_extension_arrives_as_it_was_sent() {
    #[derive(Clone, Debug, PartialEq)]
    struct Mark(u8);

    for behaviour in [Behaviour::Prompt, Behaviour::Held] {
        let store = TestStore::new(behaviour);
        store.release(1);
        let inner = service_fn(async |request: Request<Full<Bytes>>| {
            let (parts, body) = request.into_parts();
            assert_eq!((parts.method.as_str(), parts.uri.path()), ("PUT", "/a"));
            assert_eq!(parts.version, http::Version::HTTP_2);
            assert_eq!(parts.headers["x-a"], "b");
            assert_eq!(parts.extensions.get(), Some(&Mark(7)));
            assert!(
                parts
                    .extensions
                    .get::<Decision>()
                    .is_some_and(Decision::is_allowed)
            );
            Ok::<_, Infallible>(Response::new(body))
        });
        let service = RateLimitLayer::new(store, Quota::per_minute(1), key::Global).layer(inner);
        let request = Request::put("/a")
            .version(http::Version::HTTP_2)
            .header("x-a", "b")
            .extension(Mark(7))
            .body(Full::from("body"))
            .expect("a request");
        let Ok(response) = service.oneshot(request).await;
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        assert_eq!(body, "body");
    }
}

/// Everything that a user may have to write down has a name.
struct Named {
    layer: RateLimitLayer,
    custom: RateLimitLayer<fn(&Rejection, &Parts) -> Response<String>>,
    service: RateLimit<Inner>,
    response: Pin<Box<ResponseFuture<Inner, String, DefaultResponse>>>,
}

fn sorry(_: &Rejection, _: &Parts) -> Response<String> {
    Response::new("sorry".to_owned())
}

fn limited<S>(layer: &RateLimitLayer, inner: S) -> RateLimit<S> {
    layer.layer(inner)
}

#[tokio::test]
async fn everything_has_a_name() {
    let mut service = limited(&layer(1), Inner::default());
    let response = start(&mut service, Request::new(String::new())).await;
    let mut named = Named {
        layer: layer(1),
        custom: layer(0).with_rejection_response(sorry),
        service: limited(&layer(1), Inner::default()),
        response: Box::pin(response),
    };
    assert_eq!(named.response.as_mut().await.expect("it answers").body(), "hello");
    let response = named.service.oneshot(Request::new(String::new())).await;
    assert_eq!(response.expect("it answers").body(), "hello");
    let refused = named.custom.layer(Inner::default()).oneshot(Request::new(()));
    assert_eq!(refused.await.expect("it answers").body(), "sorry");
    drop(named.layer);
}

#[test]
fn traits() {
    fn shared<T: Clone + Send + Sync + Unpin + std::fmt::Debug + 'static>() {}
    fn sendable<T: Send + 'static>(_: &T) {}

    struct NotClone;

    shared::<RateLimitLayer>();
    shared::<RateLimit<Inner>>();
    shared::<RateLimit<Inner, NotClone>>();
    shared::<Decision>();
    shared::<Rejection>();
    shared::<Key>();
    let _: RateLimitLayer<NotClone> = layer(1).with_rejection_response(NotClone).clone();

    // axum's body is `Send` and not `Sync`.
    let service = layer(1).layer(service_fn(async |_: Request<axum::body::Body>| {
        Ok::<_, Infallible>(Response::new(axum::body::Body::empty()))
    }));
    sendable(&service.oneshot(Request::new(axum::body::Body::empty())));
    let _: BoxCloneSyncService<Request<axum::body::Body>, Response<axum::body::Body>, Infallible> =
        ServiceBuilder::new()
            .layer(BoxCloneSyncService::layer())
            .layer(layer(1))
            .service(service_fn(async |_: Request<axum::body::Body>| {
                Ok::<_, Infallible>(Response::new(axum::body::Body::empty()))
            }));
}
