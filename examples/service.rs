//! A service of which several instances share one limit, behind one proxy. `docker-compose.yml` runs three.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1/ LISTEN=127.0.0.1:8001 cargo run --example service
//! REDIS_URL=redis://127.0.0.1/ LISTEN=127.0.0.1:8002 cargo run --example service
//! for i in 1 2 3; do curl -i http://127.0.0.1:8001/; curl -i http://127.0.0.1:8002/; done
//! ```
//!
//! | variable | default | |
//! |---|---|---|
//! | `REDIS_URL` | `memory:` | where to count |
//! | `LISTEN` | `127.0.0.1:8080` | |
//! | `LIMIT` | `10/minute` | for each client |
//! | `INSTANCES` | `1` | how many share the limit: each takes its part while Redis is away |
//! | `HOSTNAME` | the address | what it calls itself in its answers |

use std::env;
use std::error::Error;
use std::fmt::Display;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::str::FromStr;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::{Decision, FailurePolicy, Quota, RateLimitLayer, Store, key, store};

fn app(store: impl Store, quota: Quota, instances: NonZeroU32, name: String) -> Router {
    // The proxy is the only way in, and the last address in `X-Forwarded-For` is the one that it saw.
    let limit = RateLimitLayer::new(store, quota, key::ClientIp::trusted_hops(1))
        .name("client")
        .failure_policy(FailurePolicy::Local {
            instances: instances.get(),
        });
    let hello = async move |decision: Decision| match decision.remaining() {
        Some(more) => format!("hello from {name}, {more} more\n"),
        None => format!("hello from {name}, without a limit\n"),
    };
    // A layer limits the routes that are there when it is added, so the health check is free. It does not ask Redis:
    // the service goes on without.
    Router::new()
        .route("/", get(hello))
        .layer(limit)
        .route("/healthz", get(|| async { "ok\n" }))
}

/// A variable, or what it is when it is not set or empty.
fn variable<T: FromStr<Err: Display>>(name: &str, default: &str) -> Result<T, String> {
    let text = env::var(name).ok().filter(|text| !text.is_empty());
    let text = text.as_deref().unwrap_or(default);
    text.parse()
        .map_err(|error| format!("{name}={text}: {error}; set it as in {name}={default}"))
}

/// Ends when the process is asked to.
async fn stopped() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

#[tokio::main]
async fn main() -> ExitCode {
    // The store says here that Redis is away, and that it is back.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let Err(error) = serve().await else {
        return ExitCode::SUCCESS;
    };
    eprintln!("service: {error}");
    ExitCode::FAILURE
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let quota = variable("LIMIT", "10/minute")?;
    let instances = variable("INSTANCES", "1")?;
    let listen: String = variable("LISTEN", "127.0.0.1:8080")?;
    let url: String = variable("REDIS_URL", "memory:")?;
    let store = store::open(&url)
        .await
        .map_err(|error| format!("REDIS_URL: {error}"))?;
    let listener = TcpListener::bind(&listen).await.map_err(|error| {
        format!("LISTEN={listen}: {error}; set a free port, such as LISTEN=127.0.0.1:8081")
    })?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}/");
    let name = variable("HOSTNAME", &address.to_string())?;
    let app = app(store, quota, instances, name).into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app)
        .with_graceful_shutdown(stopped())
        .await?;
    Ok(())
}
