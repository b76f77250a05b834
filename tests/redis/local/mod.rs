//! Answers without the server, before a real one.

mod costs;
mod denials;
mod fleet;
mod learning;

use tollgate::RedisStore;

/// A store as it is by default.
async fn caching(url: &str) -> RedisStore {
    RedisStore::connect(url).await.expect("a fit server")
}
