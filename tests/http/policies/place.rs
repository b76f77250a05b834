//! Where a test counts.

use redis::AsyncCommands;
use tollgate::store::{AnyStore, RedisStoreBuilder};
use tollgate::{MemoryStore, RedisStore};

use super::LONG;
use crate::support::Redis;

/// A store, and the server behind it if it has one.
pub(super) struct Place {
    store: AnyStore,
    server: Option<Redis>,
}

impl Place {
    pub(super) fn memory() -> Self {
        Self {
            store: AnyStore::Memory(MemoryStore::new()),
            server: None,
        }
    }

    /// An empty server of its own.
    pub(super) async fn redis() -> Self {
        let server = Redis::start().await;
        Self {
            store: connect(&server, "tollgate").await,
            server: Some(server),
        }
    }

    pub(super) fn store(&self) -> AnyStore {
        self.store.clone()
    }

    /// The same state over another connection; the same store, if it is in memory.
    pub(super) async fn another(&self) -> AnyStore {
        match &self.server {
            Some(server) => connect(server, "tollgate").await,
            None => self.store(),
        }
    }

    /// Empty, and separate from all others.
    pub(super) async fn fresh(&self, name: &str) -> AnyStore {
        match &self.server {
            Some(server) => connect(server, name).await,
            None => AnyStore::Memory(MemoryStore::new()),
        }
    }

    /// The same, asked about each request, so that every answer tells what all policies have left.
    pub(super) async fn fresh_without_deny_cache(&self, name: &str) -> AnyStore {
        match &self.server {
            Some(server) => open(server, builder(name).deny_cache_size(0)).await,
            None => self.fresh(name).await,
        }
    }

    /// How many keys there are.
    pub(super) async fn keys(&self) -> usize {
        match &self.store {
            AnyStore::Memory(store) => store.stats().keys,
            _ => self.names().await.len(),
        }
    }

    /// What the keys are called, sorted; nothing of a store that does not tell.
    pub(super) async fn names(&self) -> Vec<String> {
        let Some(server) = &self.server else {
            return Vec::new();
        };
        let client = redis::Client::open(server.url()).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await;
        let names = connection.expect("it listens").keys("*").await;
        let mut names: Vec<String> = names.expect("they are text");
        names.sort_unstable();
        names
    }
}

async fn connect(server: &Redis, prefix: &str) -> AnyStore {
    open(server, builder(prefix)).await
}

fn builder(prefix: &str) -> RedisStoreBuilder {
    RedisStore::builder().deadline(LONG).prefix(prefix)
}

async fn open(server: &Redis, builder: RedisStoreBuilder) -> AnyStore {
    let store = builder.connect(&server.url()).await;
    AnyStore::Redis(store.expect("a fit server"))
}
