//! Limits per route: a strict one on the login, one per route and client elsewhere.
//!
//! ```text
//! cargo run --example per_route
//! for i in 1 2 3 4; do curl -i -X POST http://127.0.0.1:3000/login; done
//! for i in 1 2 3 4 5 6; do curl -i http://127.0.0.1:3000/users/$i; done
//! ```

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::Path;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tollgate::{MemoryStore, Quota, RateLimitLayer, key};

fn app() -> Router {
    let store = MemoryStore::new();
    let login = RateLimitLayer::new(store.clone(), Quota::per_minute(3), key::PeerIp).name("login");
    // The route as the router matched it, so that `/users/1` and `/users/2` count together, and a client that
    // walks through paths makes no new counters.
    let each_route =
        RateLimitLayer::new(store, Quota::per_minute(5), (key::PeerIp, key::MatchedPath)).name("route");
    Router::new()
        .route(
            "/users/{id}",
            get(|Path(id): Path<String>| async move { format!("user {id}\n") }),
        )
        .route("/search", get(|| async { "found nothing\n" }))
        .route_layer(each_route)
        .route("/login", post(|| async { "welcome\n" }).layer(login))
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
    let app = app().into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}
