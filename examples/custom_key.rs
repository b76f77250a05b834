//! A key of one's own: a closure, and a refusal of one's own beside it.
//!
//! ```text
//! cargo run --example custom_key
//! for i in 1 2 3 4; do curl -i 'http://127.0.0.1:3000/?tenant=acme'; done
//! curl -i http://127.0.0.1:3000/
//! ```

use std::error::Error;

use axum::Router;
use axum::http::request::Parts;
use axum::http::{Response, StatusCode};
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::{Headers, Key, MemoryStore, MissingKey, Quota, RateLimitLayer, Rejection};

/// `acme` of `?tenant=acme`, if it is a tenant there is: a client must not be able to make up keys.
fn tenant(request: &Parts) -> Option<Key> {
    let query = request.uri.query()?;
    let tenant = query.split('&').find_map(|pair| pair.strip_prefix("tenant="))?;
    ["acme", "umbrella"]
        .contains(&tenant)
        .then(|| Key::named("tenant", tenant))
}

fn sorry(rejection: &Rejection, _request: &Parts) -> Response<axum::body::Body> {
    let text = match rejection.retry_after() {
        Some(wait) => format!("come back in {} s\n", wait.as_secs_f32().ceil()),
        None => "who are you?\n".to_owned(),
    };
    let mut response = Response::new(text.into());
    *response.status_mut() = rejection.status();
    response
}

fn app() -> Router {
    let limit = RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(3), tenant)
        .missing_key(MissingKey::Reject(StatusCode::BAD_REQUEST))
        .headers(Headers::none().ietf(tollgate::Draft::V8))
        .with_rejection_response(sorry);
    Router::new().route("/", get(|| async { "hello\n" })).layer(limit)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))
        .await
        .unwrap_or_else(|error| {
            eprintln!("PORT={port}: {error}; set a free port, such as PORT=3001");
            std::process::exit(1)
        });
    println!("listening on http://{}/", listener.local_addr()?);
    axum::serve(listener, app()).await?;
    Ok(())
}
