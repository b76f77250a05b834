//! Responses whose cost becomes known while they are sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tollgate::{ChargeHandle, Limiter, Policy, Quota, RateLimitLayer};
use tower::ServiceExt;

use super::{Place, ask, get_as, left, left_by, user};
use crate::support::{self, within};

on_both_stores! {
    a_body_that_is_sent_is_counted,
    a_body_that_is_dropped_is_counted_as_far_as_it_came,
    a_body_that_fails_is_counted_as_far_as_it_came,
    a_body_of_a_head_request_is_not_sent,
    a_tally_adds_to_the_bytes,
    a_metered_body_is_the_same_body,
    over_sockets_a_body_is_counted_at_its_end,
    over_sockets_a_client_that_goes_away_pays_for_what_it_got,
}

const LIMIT: u64 = 1_000;

/// What the test feeds: chunks, or an error.
type Chunk = Result<Bytes, &'static str>;

struct Fed(mpsc::UnboundedReceiver<Chunk>);

impl HttpBody for Fed {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.0
            .poll_recv(cx)
            .map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

/// A layer that charges 50 at first.
fn layer(place: &Place) -> RateLimitLayer {
    let bytes = Policy::new("bytes", Quota::per_hour(LIMIT), user).cost(50);
    RateLimitLayer::with_policies(place.store(), [bytes]).charge_extension(true)
}

/// An app that streams what it is fed, 10 bytes to a unit.
fn fed(layer: &RateLimitLayer) -> (Router, mpsc::UnboundedSender<Chunk>) {
    let (feed, chunks) = mpsc::unbounded_channel();
    let chunks = std::sync::Arc::new(std::sync::Mutex::new(Some(chunks)));
    let stream = async move |charge: ChargeHandle| {
        let chunks = chunks.lock().expect("no test has failed under it").take();
        let body = Fed(chunks.expect("asked once"));
        Response::new(Body::new(charge.tally("bytes").metered(body, 10)))
    };
    let app = Router::new().route("/", get(stream)).layer(layer.clone());
    (app, feed)
}

fn feed(feed: &mpsc::UnboundedSender<Chunk>, bytes: usize) {
    feed.send(Ok(vec![b'#'; bytes].into())).expect("somebody reads");
}

async fn used(layer: &RateLimitLayer) -> u64 {
    assert_eq!(layer.shutdown().await, 0);
    LIMIT - left(layer, "bytes", get_as("ann", "/")).await
}

async fn start(app: Router) -> Body {
    let Ok(response) = within(app.oneshot(get_as("ann", "/"))).await;
    response.into_body()
}

/// The length of the next chunk.
async fn next(body: &mut Body) -> Option<usize> {
    let frame = within(body.frame()).await?;
    let data = frame.expect("no error").into_data().expect("data alone");
    Some(data.len())
}

async fn a_body_that_is_sent_is_counted(place: &Place) {
    let layer = layer(place);
    let (app, chunks) = fed(&layer);
    let mut body = start(app).await;
    for bytes in [7, 100, 0, 95] {
        feed(&chunks, bytes);
        assert_eq!(next(&mut body).await, Some(bytes));
    }
    // Nothing is settled before its end.
    assert_eq!(used(&layer).await, 50);
    drop(chunks);
    assert_eq!(next(&mut body).await, None);
    drop(body);
    // 202 bytes, rounded up at the end alone.
    assert_eq!(used(&layer).await, 21);

    // More than was charged at first.
    let (app, chunks) = fed(&layer);
    feed(&chunks, 3_001);
    drop(chunks);
    assert_eq!(ask(&app, get_as("ann", "/")).await.body.len(), 3_001);
    assert_eq!(used(&layer).await, 21 + 301);
}

async fn a_body_that_is_dropped_is_counted_as_far_as_it_came(place: &Place) {
    let layer = layer(place);
    let (app, chunks) = fed(&layer);
    let mut body = start(app).await;
    feed(&chunks, 33);
    feed(&chunks, 1_000);
    assert_eq!(next(&mut body).await, Some(33));
    drop(body);
    assert_eq!(used(&layer).await, 4);
    assert!(chunks.is_closed());
    // Never asked for at all.
    let (app, _chunks) = fed(&layer);
    drop(start(app).await);
    assert_eq!(used(&layer).await, 4);
}

async fn a_body_that_fails_is_counted_as_far_as_it_came(place: &Place) {
    let layer = layer(place);
    let (app, chunks) = fed(&layer);
    let mut body = start(app).await;
    feed(&chunks, 60);
    assert_eq!(next(&mut body).await, Some(60));
    chunks.send(Err("broken")).expect("somebody reads");
    let error = within(body.frame())
        .await
        .expect("it says so")
        .expect_err("it is an error");
    assert_eq!(error.to_string(), "broken");
    drop(body);
    assert_eq!(used(&layer).await, 6);
}

async fn a_body_of_a_head_request_is_not_sent(place: &Place) {
    let layer = layer(place);
    let (app, chunks) = fed(&layer);
    feed(&chunks, 500);
    let mut head = get_as("ann", "/");
    *head.method_mut() = http::Method::HEAD;
    assert_eq!(ask(&app, head).await.body, "");
    assert_eq!(used(&layer).await, 0);
}

async fn a_tally_adds_to_the_bytes(place: &Place) {
    let layer = layer(place);
    let stream = async |charge: ChargeHandle| {
        let mut tally = charge.tally("bytes");
        tally.add(7);
        Response::new(Body::new(tally.metered(Body::from("0123456789"), 4)))
    };
    let app = Router::new().route("/", get(stream)).layer(layer.clone());
    assert_eq!(ask(&app, get_as("ann", "/")).await.body, "0123456789");
    assert_eq!(used(&layer).await, 7 + 3);
    // A policy that is not there counts for nothing, and the body is sent.
    let stream = async |charge: ChargeHandle| {
        Response::new(Body::new(
            charge.tally("none").metered(Body::from("0123456789"), 4),
        ))
    };
    let app = Router::new().route("/", get(stream)).layer(layer.clone());
    assert_eq!(ask(&app, get_as("ann", "/")).await.body, "0123456789");
    assert_eq!(used(&layer).await, 7 + 3 + 50);
}

async fn a_metered_body_is_the_same_body(place: &Place) {
    let limiter = Limiter::new(place.store(), Quota::per_hour(LIMIT)).name("bytes");
    let charge = limiter.reserve("ann", 5).await.expect("there is room");
    let whole = charge.tally("bytes").metered(Body::from("0123456789"), 4);
    assert_eq!(whole.size_hint().exact(), Some(10));
    assert!(!whole.is_end_stream());
    drop(whole);
    let charge = limiter.reserve("ann", 5).await.expect("there is room");
    let empty = charge.tally("bytes").metered(Body::empty(), 4);
    assert!(empty.is_end_stream());
    assert_eq!(SizeHint::with_exact(0).exact(), empty.size_hint().exact());
    // Trailers are handed on, and are no data.
    let trailers = {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-sum", "45".parse().expect("a value"));
        trailers
    };
    let with_trailers = http_body_util::Full::new(Bytes::from("0123456789"))
        .with_trailers(std::future::ready(Some(Ok(trailers.clone()))));
    let charge = limiter.reserve("ann", 5).await.expect("there is room");
    let metered = charge.tally("bytes").metered(with_trailers, 4);
    let collected = metered.collect().await.expect("no error");
    assert_eq!(collected.trailers(), Some(&trailers));
    drop(empty);
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(LIMIT - left_by(&limiter.peek("ann").await, "bytes"), 3);
}

async fn over_sockets_a_body_is_counted_at_its_end(place: &Place) {
    let layer = layer(place);
    let stream = async |charge: ChargeHandle| {
        let body = Body::from(vec![b'x'; 100_000]);
        Response::new(Body::new(charge.tally("bytes").metered(body, 1_000)))
    };
    let app = Router::new().route("/", get(stream)).layer(layer.clone());
    let address = support::serve(app).await;
    for sent in 1..=2 {
        let request = super::of_user("ann", support::request(address, "/"));
        assert_eq!(support::send(request).await.body.len(), 100_000);
        until_used(&layer, 100 * sent).await;
    }
}

/// Waits for a server to drop a body that its client has seen the end of.
async fn until_used(layer: &RateLimitLayer, expected: u64) {
    within(async {
        while used(layer).await != expected {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn over_sockets_a_client_that_goes_away_pays_for_what_it_got(place: &Place) {
    let layer = layer(place);
    let (app, chunks) = fed(&layer);
    let address = support::serve(app).await;
    let mut client = within(TcpStream::connect(address)).await.expect("it listens");
    let request = "GET / HTTP/1.1\r\nhost: x\r\nx-user: ann\r\n\r\n";
    within(client.write_all(request.as_bytes()))
        .await
        .expect("it is sent");
    feed(&chunks, 345);
    let mut got = Vec::new();
    while got.iter().filter(|&&byte| byte == b'#').count() < 345 {
        let mut bytes = [0; 1_024];
        let length = within(client.read(&mut bytes)).await.expect("it answers");
        assert!(length > 0, "it goes on");
        got.extend_from_slice(&bytes[..length]);
    }
    assert_eq!(used(&layer).await, 50);
    drop(client);
    // The server finds out.
    within(chunks.closed()).await;
    until_used(&layer, 35).await;
}
