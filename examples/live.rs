//! Limits that change while the service runs: another number, only counting, or off. What is counted stays.
//!
//! ```text
//! cargo run --example live
//! curl -i http://127.0.0.1:3000/
//! curl http://127.0.0.1:3000/admin/api
//! curl -X PUT -d 10/minute http://127.0.0.1:3000/admin/api/quota
//! curl -X PUT -d shadow http://127.0.0.1:3000/admin/api/mode
//! ```

use std::error::Error;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, put};
use tokio::net::TcpListener;
use tollgate::{DecisionEvent, Headers, MemoryStore, PolicyHandle, PolicyMode, Quota, RateLimitLayer, key};

type Answer = Result<String, (StatusCode, String)>;

fn named(limit: &RateLimitLayer, name: &str) -> Result<PolicyHandle, (StatusCode, String)> {
    let policy = limit.handle(name);
    policy.ok_or_else(|| (StatusCode::NOT_FOUND, format!("no policy is called {name}\n")))
}

fn description(policy: &PolicyHandle) -> String {
    let quota = policy.quota().map_or_else(
        || "a function of the request".to_owned(),
        |quota| quota.to_string(),
    );
    format!("{}: {quota}, {}\n", policy.name(), policy.mode())
}

async fn show(State(limit): State<RateLimitLayer>, Path(name): Path<String>) -> Answer {
    named(&limit, &name).map(|policy| description(&policy))
}

async fn set_quota(State(limit): State<RateLimitLayer>, Path(name): Path<String>, quota: String) -> Answer {
    let policy = named(&limit, &name)?;
    let quota: Quota = quota
        .parse()
        .map_err(|error| (StatusCode::BAD_REQUEST, format!("{error}\n")))?;
    policy.set_quota(quota);
    Ok(description(&policy))
}

async fn set_mode(State(limit): State<RateLimitLayer>, Path(name): Path<String>, mode: String) -> Answer {
    let policy = named(&limit, &name)?;
    let mode: PolicyMode = mode
        .parse()
        .map_err(|error| (StatusCode::BAD_REQUEST, format!("{error}\n")))?;
    policy.set_mode(mode);
    Ok(description(&policy))
}

/// Who may call the admin's routes is another layer's business.
fn app(limit: RateLimitLayer) -> Router {
    Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limit.clone())
        .route("/admin/{policy}", get(show))
        .route("/admin/{policy}/quota", put(set_quota))
        .route("/admin/{policy}/mode", put(set_mode))
        .with_state(limit)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limit = RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(5), key::Global)
        .name("api")
        .headers(Headers::default().shadow(true))
        .on_decision(|event: &DecisionEvent<'_>| {
            for policy in event
                .decision()
                .policies()
                .iter()
                .filter(|policy| policy.is_violated())
            {
                println!("{} is violated in mode {:?}", policy.name(), policy.mode());
            }
        });
    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))
        .await
        .unwrap_or_else(|error| {
            eprintln!("PORT={port}: {error}; set a free port, such as PORT=3001");
            std::process::exit(1)
        });
    println!("listening on http://{}/", listener.local_addr()?);
    axum::serve(listener, app(limit)).await?;
    Ok(())
}
