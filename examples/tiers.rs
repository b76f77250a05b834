//! A quota for each plan, and routes that cost more than others.
//!
//! An outer layer finds out whose the key is, and puts the account into the request's extensions; the limit is
//! per account then, and no client can invent one.
//!
//! ```text
//! cargo run --example tiers
//! curl -i -H 'authorization: Bearer free-token' http://127.0.0.1:3000/
//! curl -i -H 'authorization: Bearer pro-token' http://127.0.0.1:3000/export
//! ```

use std::error::Error;

use axum::Router;
use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::{MemoryStore, Quota, Quotas, RateLimitLayer, key};

#[derive(Clone, Copy)]
enum Plan {
    Free,
    Pro,
}

#[derive(Clone)]
struct Account {
    id: &'static str,
    plan: Plan,
}

/// Stands where a service would ask its database or verify a signed token.
fn account(headers: &HeaderMap) -> Option<Account> {
    let (id, plan) = match headers.get(AUTHORIZATION)?.as_bytes() {
        b"Bearer free-token" => ("ann", Plan::Free),
        b"Bearer pro-token" => ("ben", Plan::Pro),
        _ => return None,
    };
    Some(Account { id, plan })
}

async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let account = account(request.headers()).ok_or(StatusCode::UNAUTHORIZED)?;
    request.extensions_mut().insert(account);
    Ok(next.run(request).await)
}

fn app() -> Router {
    let quota = Quotas::by("plan", |request: &Parts| {
        match request.extensions.get::<Account>() {
            Some(Account { plan: Plan::Pro, .. }) => Quota::per_minute(100),
            _ => Quota::per_minute(5),
        }
    });
    let limit = RateLimitLayer::new(
        MemoryStore::new(),
        quota,
        key::extension("account", |account: &Account| account.id),
    )
    .cost(|request: &Parts| if request.uri.path() == "/export" { 25 } else { 1 });
    Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/export", get(|| async { "all of it\n" }))
        .layer(limit)
        .layer(middleware::from_fn(authenticate))
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
