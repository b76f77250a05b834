//! A store from a URL.

use std::time::Duration;

use super::redis::{ConnectError, ConnectErrorKind, RedisStore};
use super::{Ask, Correction, LocalAnswers, MemoryStore, Outcome, Stamp, Store, StoreFuture};

/// Opens the store of a URL, so that one setting moves a service from the embedded store to a shared one: `memory:` is
/// a [`MemoryStore`], everything else a server for a [`RedisStore`].
///
/// ```
/// use tollgate::{Quota, RateLimitLayer, key, store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), store::ConnectError> {
/// let url = std::env::var("RATE_LIMIT_URL").unwrap_or_else(|_| String::from("memory:"));
/// let store = store::open(&url).await?;
/// let layer = RateLimitLayer::new(store, Quota::per_minute(100), key::PeerIp);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the URL is malformed, or the server answers and cannot serve; the text says what to do. A server that cannot be
/// reached is no error: see [`RedisStore::connect`].
pub async fn open(url: &str) -> Result<AnyStore, ConnectError> {
    match url.strip_prefix("memory:") {
        Some("" | "//") => Ok(AnyStore::Memory(MemoryStore::new())),
        // Not shown: it may have been meant for a server, with a password.
        Some(_) => Err(ConnectError::new(
            ConnectErrorKind::Url,
            "memory: takes nothing after it: write memory: alone, or the URL of a server, such as redis://host/",
        )),
        None => RedisStore::connect(url).await.map(AnyStore::Redis),
    }
}

/// A store that [`open`] has opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyStore {
    /// Counts in this process alone.
    Memory(MemoryStore),
    /// Counts in a server that all instances share.
    Redis(RedisStore),
}

impl AnyStore {
    fn store(&self) -> &dyn Store {
        match self {
            Self::Memory(store) => store,
            Self::Redis(store) => store,
        }
    }
}

impl Store for AnyStore {
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.store().acquire(ask)
    }

    fn give_back(&self, ask: &Ask<'_>, times: u32, stamp: Stamp) -> StoreFuture<()> {
        self.store().give_back(ask, times, stamp)
    }

    fn charge(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.store().charge(ask)
    }

    fn settle(&self, corrections: &[Correction<'_>]) -> StoreFuture<()> {
        self.store().settle(corrections)
    }

    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.store().peek(ask)
    }

    fn reset(&self, ask: &Ask<'_>) -> StoreFuture<()> {
        self.store().reset(ask)
    }

    fn block(&self, ask: &Ask<'_>, time: Duration) -> StoreFuture<()> {
        self.store().block(ask, time)
    }

    fn local_answers(&self) -> Option<&LocalAnswers> {
        self.store().local_answers()
    }

    fn deadline(&self) -> Duration {
        self.store().deadline()
    }

    fn keeps_deadlines(&self) -> bool {
        self.store().keeps_deadlines()
    }
}
