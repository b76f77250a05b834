//! Five requests per sliding ten seconds and client, and twenty from each address, whatever keys it shows. With `REDIS_URL` all instances share the limit.
//!
//! ```text
//! cargo run --example quickstart
//! REDIS_URL=redis://127.0.0.1/ cargo run --example quickstart
//! for i in 1 2 3 4 5 6; do curl -i http://127.0.0.1:3000/; done
//! ```

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderName;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::key::{self, KeyExtractor};
use tollgate::store::{self, AnyStore};
use tollgate::{Decision, Policy, Quota, RateLimitLayer};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

fn app(store: AnyStore) -> Router {
    let window = Duration::from_secs(10);
    let client = key::Header::new(API_KEY).or(key::PeerIp);
    let limit = RateLimitLayer::with_policies(
        store,
        [
            Policy::new("client", Quota::new(5, window), client),
            // Nobody has verified the key at this point, so a client that invents keys gets a fresh count for each. Its
            // address it cannot invent. What one of the two denies is charged to neither.
            Policy::new("address", Quota::new(20, window), key::PeerIp),
        ],
    );
    Router::new().route("/", get(hello)).layer(limit)
}

async fn hello(decision: Decision) -> String {
    format!("hello, {} more\n", decision.remaining().unwrap_or_default())
}

/// A variable, or what it is when it is not set or empty.
fn variable(name: &str, default: &str) -> String {
    let text = env::var(name).ok().filter(|text| !text.is_empty());
    text.unwrap_or_else(|| default.to_owned())
}

#[tokio::main]
async fn main() -> ExitCode {
    // The store says here that Redis is away, and that it is back.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let Err(error) = serve().await else {
        return ExitCode::SUCCESS;
    };
    eprintln!("quickstart: {error}");
    ExitCode::FAILURE
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let store = store::open(&variable("REDIS_URL", "memory:"))
        .await
        .map_err(|error| format!("REDIS_URL: {error}"))?;
    let place = match store {
        AnyStore::Memory(_) => "in this process",
        _ => "in Redis",
    };
    let port = variable("PORT", "3000");
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))
        .await
        .map_err(|error| format!("PORT={port}: {error}; set a free port, such as PORT=3001"))?;
    let url = format!("http://{}/", listener.local_addr()?);
    println!("listening on {url}, counting {place}");
    println!("Try six requests within ten seconds; the sixth is refused until the first is ten seconds old:");
    println!("  for i in 1 2 3 4 5 6; do curl -i {url}; done");
    println!("Clients with a key have a limit of their own, and each address one of 20:");
    println!("  curl -i -H 'x-api-key: alice' {url}");
    // The limit by address needs to know the peer's.
    let app = app(store).into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}
