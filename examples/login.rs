//! Failed logins are limited, right ones are not.
//!
//! Each attempt is charged before the password is looked at, so fifty guesses at once are five guesses; a right one is
//! given back. Whoever does not stop is blocked, longer each time.
//!
//! ```text
//! cargo run --example login
//! for i in 1 2 3 4 5 6; do curl -i -d guess http://127.0.0.1:3000/login/ann; done
//! curl -i -d correct-horse http://127.0.0.1:3000/login/ben
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::post;
use tokio::net::TcpListener;
use tollgate::{MemoryStore, Penalty, Policy, Quota, RateLimitLayer, key};

/// Stands where a service would compare hashes.
async fn login(Path(user): Path<String>, password: String) -> (StatusCode, &'static str) {
    match (user.as_str(), password.as_str()) {
        ("ann" | "ben", "correct-horse") => (StatusCode::OK, "welcome\n"),
        _ => (StatusCode::UNAUTHORIZED, "wrong\n"),
    }
}

/// The account that somebody wants to log in to.
#[derive(Clone)]
struct Account(String);

/// Finds the account as the handler does: a path can be written in many ways (`/login/a%6en`), and each would be a key of
/// its own.
async fn find_account(Path(user): Path<String>, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(Account(user));
    next.run(request).await
}

fn app() -> Router {
    let minute = Duration::from_secs(60);
    let is_right = |status: StatusCode| status.is_success();
    let limit = RateLimitLayer::with_policies(
        MemoryStore::new(),
        [
            Policy::new("address", Quota::per_minute(5), key::PeerIp)
                .give_back_on(is_right)
                // 20 refusals within a minute: blocked for 5 minutes, then 10, 20, and so on, up to a day.
                .penalty(
                    Penalty::after(20, minute)
                        .block_for(5 * minute)
                        .growing(2, 24 * 60 * minute),
                ),
            // Guesses at one account count together, wherever they come from.
            Policy::new(
                "account",
                Quota::per_hour(20),
                key::extension("account", |account: &Account| account.0.clone()),
            )
            .give_back_on(is_right),
        ],
    );
    Router::new()
        .route("/login/{user}", post(login))
        .layer(limit)
        .layer(middleware::from_fn(find_account))
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
