//! One instance of the service.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::request::Parts;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tollgate::{FailurePolicy, Key, Quota, RateLimitLayer, Store};

/// A server on a loopback port. It stops accepting when this is dropped.
pub(crate) struct Instance {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Instance {
    /// All instances of a `run` count together, if their stores do.
    pub(crate) async fn start(store: impl Store, quota: Quota, run: String) -> io::Result<Self> {
        let limit = RateLimitLayer::new(store, quota, move |_: &Parts| Some(Key::named("run", &run)))
            // What the store has not decided is no admission: it would hide a store that does not work.
            .failure_policy(FailurePolicy::Deny)
            // A busy machine is no outage.
            .deadline(Duration::from_secs(5));
        let app = Router::new().route("/", get(|| async { "hello\n" })).layer(limit);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                eprintln!("fleet: {address}: {error}");
            }
        });
        Ok(Self { address, serving })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
