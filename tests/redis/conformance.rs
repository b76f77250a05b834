//! The rules of every store, on real servers: once with a clock that is moved by hand, once with the server's own.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tollgate::store::RedisStoreBuilder;
use tollgate::testing::{Harness, conformance, conformance_with};
use tollgate::{ManualClock, Quota, Rate, RedisStore};

use crate::server::{Server, Version};
use crate::support::LONG;

/// A server whose scripts read the time from a hash.
pub(crate) struct ByHand {
    pub(crate) clock: ManualClock,
    connection: Mutex<MultiplexedConnection>,
    url: String,
    stores: AtomicU64,
}

/// The hash that tells the time.
const CLOCK: &str = "clock";

impl ByHand {
    pub(crate) async fn new(server: &Server) -> Self {
        let this = Self {
            clock: ManualClock::new(),
            connection: Mutex::new(server.connection().await.expect("the server is up")),
            url: server.url(),
            stores: AtomicU64::new(0),
        };
        this.told().await;
        this
    }

    /// Sends the time ahead of what follows: a store has a connection of its own, so it waits for the reply.
    async fn told(&self) {
        let now = self.clock.now();
        let mut connection = self.connection.lock().expect("no panic").clone();
        redis::cmd("HSET")
            .arg(CLOCK)
            .arg(&["s", &now.as_secs().to_string()])
            .arg(&["us", &now.subsec_micros().to_string()])
            .query_async::<()>(&mut connection)
            .await
            .expect("the server is up");
    }

    /// The same for who cannot await it.
    pub(crate) fn tell(&self) {
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(self.told()));
    }
}

impl ByHand {
    fn builder(&self) -> RedisStoreBuilder {
        let number = self.stores.fetch_add(1, Ordering::Relaxed);
        RedisStore::builder()
            .prefix(format!("store-{number}"))
            .deadline(LONG)
            .clock_from_hash(CLOCK)
    }

    /// A store in which all that arrives during a call goes in the next.
    pub(crate) async fn one_call_at_a_time(&self) -> RedisStore {
        let builder = self.builder().max_in_flight(1);
        builder.connect(&self.url).await.expect("a fit server")
    }
}

impl Harness for ByHand {
    type Store = RedisStore;

    async fn store(&self) -> RedisStore {
        self.builder().connect(&self.url).await.expect("a fit server")
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.told().await;
    }

    fn step_back(&self, by: Duration) -> bool {
        self.clock.set(self.clock.now() - by);
        self.tell();
        true
    }
}

/// A server as it is.
struct Real {
    url: String,
    stores: AtomicU64,
}

impl Harness for Real {
    type Store = RedisStore;

    async fn store(&self) -> RedisStore {
        let number = self.stores.fetch_add(1, Ordering::Relaxed);
        RedisStore::builder()
            .prefix(format!("store-{number}"))
            .deadline(LONG)
            .connect(&self.url)
            .await
            .expect("a fit server")
    }

    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }

    fn resolution(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn window(&self) -> Duration {
        Duration::from_secs(4)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c12_the_store_conforms_with_a_clock_moved_by_hand() {
    for version in Version::all() {
        let server = Server::start(version).await;
        conformance(&ByHand::new(&server).await).await;
    }
}

#[tokio::test]
async fn the_store_conforms_on_the_servers_clock() {
    let server = Server::start(Version::V7).await;
    let real = Real {
        url: server.url(),
        stores: AtomicU64::new(0),
    };
    let ten = Quota::new(10, real.window());
    for quota in [ten, Quota::token_bucket(Rate::new(10, real.window()), 10)] {
        conformance_with(&real, quota).await;
    }
}
