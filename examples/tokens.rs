//! A budget of tokens, as services in front of a language model have: an estimate is charged before the model runs, and
//! settled when the real number is known.
//!
//! ```text
//! cargo run --example tokens
//! curl -i -H 'x-api-key: ann' -d 'to be or not to be' http://127.0.0.1:3000/complete
//! curl -i -H 'x-api-key: ann' -d 'to be or not to be' http://127.0.0.1:3000/stream
//! curl -H 'x-api-key: ann' http://127.0.0.1:3000/budget
//! ```

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderName;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tollgate::{ChargeHandle, MemoryStore, Policy, Quota, RateLimitLayer, key};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// What an answer is taken to cost until it is known.
const ESTIMATE: u64 = 100;
const BYTES_PER_TOKEN: u64 = 4;

/// Stands where a model would run: says everything twice.
fn model(prompt: &str) -> (String, u64) {
    let answer = format!("{prompt} {prompt}\n");
    let tokens = (prompt.split_whitespace().count() + answer.split_whitespace().count()) as u64;
    (answer, tokens)
}

async fn complete(charge: ChargeHandle, prompt: String) -> String {
    let (answer, tokens) = model(&prompt);
    charge.settle("tokens", tokens);
    answer
}

/// Counts what is sent, and is settled when the answer has been sent or its client has gone.
async fn stream(charge: ChargeHandle, prompt: String) -> Response {
    let mut tally = charge.tally("tokens");
    tally.add(prompt.split_whitespace().count() as u64);
    let answer = Body::from(model(&prompt).0);
    Response::new(Body::new(tally.metered(answer, BYTES_PER_TOKEN)))
}

/// What is left of the budget. Asking costs nothing.
async fn budget(State(limit): State<RateLimitLayer>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    match limit.peek(&parts).await {
        Ok(decision) => format!("{} tokens left\n", decision.remaining().unwrap_or_default()).into_response(),
        Err(rejection) => (rejection.status(), rejection.to_string()).into_response(),
    }
}

fn app(limit: RateLimitLayer) -> Router {
    Router::new()
        .route("/complete", post(complete))
        .route("/stream", post(stream))
        .route_layer(limit.clone())
        .route("/budget", get(budget))
        .with_state(limit)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Nobody has verified the key: where that matters, add a policy by address (see `quickstart`).
    let client = key::KeyExtractor::or(key::Header::new(API_KEY), key::PeerIp);
    let tokens = Policy::new("tokens", Quota::per_minute(1_000), client).cost(ESTIMATE);
    let limit = RateLimitLayer::with_policies(MemoryStore::new(), [tokens]).charge_extension(true);

    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))
        .await
        .unwrap_or_else(|error| {
            eprintln!("PORT={port}: {error}; set a free port, such as PORT=3001");
            std::process::exit(1)
        });
    println!("listening on http://{}/", listener.local_addr()?);
    let app = app(limit).into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}
