//! Who decides: the same question to each, by the same kind of connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tollgate::store::{Ask, Charge};
use tollgate::{Key, Limiter, PolicyName, Quota, RedisStore, Store};

use crate::server::{Console, connect};

pub(crate) const KEYS: usize = 10_000;
pub(crate) const WINDOW: Duration = Duration::from_secs(60);
/// For what is not about deadlines.
const PATIENCE: Duration = Duration::from_secs(10);

/// A sliding-window log as it stands in many a textbook: a sorted set of timestamps with unique members, on the
/// server's clock.
const TEXTBOOK: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local window, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - window)
if redis.call('ZCARD', KEYS[1]) < limit then
  redis.call('ZADD', KEYS[1], now, ARGV[3])
  redis.call('PEXPIRE', KEYS[1], window / 1000)
  return 1
end
return 0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// Counts and decides nothing: the floor.
    Incr,
    Textbook,
    Tollgate,
}

impl Name {
    pub(crate) const ALL: [Self; 3] = [Self::Incr, Self::Textbook, Self::Tollgate];

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Incr => "INCR",
            Self::Textbook => "textbook",
            Self::Tollgate => "tollgate",
        }
    }
}

#[derive(Clone)]
pub(crate) enum Contestant {
    Incr {
        connection: MultiplexedConnection,
        keys: Arc<Vec<String>>,
    },
    Textbook {
        connection: MultiplexedConnection,
        hash: String,
        limit: u64,
        keys: Arc<Vec<String>>,
        members: Arc<AtomicU64>,
    },
    Tollgate {
        limiter: Limiter,
        store: RedisStore,
        keys: Arc<Vec<Key>>,
    },
    /// The first `count` policies of those that [`policies`](super::policies) are about.
    Policies {
        store: RedisStore,
        policies: Arc<[(PolicyName, Quota); 3]>,
        count: usize,
        users: Arc<Vec<Key>>,
        everyone: Key,
    },
}

/// What a contestant says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Allowed,
    Denied,
    /// The server was not asked, or too slow.
    Degraded,
}

impl Contestant {
    pub(crate) async fn new(name: Name, url: &str, limit: u64) -> Self {
        // So that they do not meet on a server.
        let kind = if name == Name::Incr { "incr" } else { "user" };
        let texts = (0..KEYS).map(|index| format!("{kind}:{index:06}"));
        match name {
            Name::Incr => Self::Incr {
                connection: connect(url).await,
                keys: Arc::new(texts.collect()),
            },
            Name::Textbook => Self::Textbook {
                connection: connect(url).await,
                hash: Console::new(url).await.run(&["SCRIPT", "LOAD", TEXTBOOK]).await,
                limit,
                keys: Arc::new(texts.collect()),
                members: Arc::default(),
            },
            Name::Tollgate => {
                // What needs no server is measured elsewhere.
                let store = RedisStore::builder().deny_cache_size(0).connect(url).await;
                let store = store.expect("the server can serve");
                Self::Tollgate {
                    limiter: Limiter::new(store.clone(), Quota::new(limit, WINDOW)),
                    store,
                    keys: Arc::new(texts.map(Key::from).collect()),
                }
            }
        }
    }

    pub(crate) async fn policies(url: &str, count: usize) -> Self {
        let policies = [
            ("second", Quota::per_second(10)),
            ("hour", Quota::per_hour(1_000)),
            ("all", Quota::per_second(5_000)),
        ];
        let named = |(name, quota)| (PolicyName::new(name).expect("a name"), quota);
        Self::Policies {
            store: RedisStore::connect(url).await.expect("the server can serve"),
            policies: Arc::new(policies.map(named)),
            count,
            users: Arc::new(
                (0..KEYS)
                    .map(|index| Key::from(format!("user:{index:06}")))
                    .collect(),
            ),
            everyone: Key::from("everyone"),
        }
    }

    pub(crate) async fn decide(&mut self, key: usize) -> Answer {
        match self {
            Self::Incr { connection, keys } => {
                let mut command = redis::cmd("INCR");
                command.arg(&keys[key]);
                decided(command.query_async(connection).await)
            }
            Self::Textbook {
                connection,
                hash,
                limit,
                keys,
                members,
            } => {
                let member = members.fetch_add(1, Ordering::Relaxed);
                let mut command = redis::cmd("EVALSHA");
                command
                    .arg(&*hash)
                    .arg(1)
                    .arg(&keys[key])
                    .arg(WINDOW.as_micros() as u64)
                    .arg(*limit)
                    .arg(format!("{KEYS:08x}-{member:016x}"));
                decided(command.query_async(connection).await)
            }
            Self::Tollgate { limiter, keys, .. } => {
                let decision = limiter.check(&keys[key]).await;
                if decision.is_degraded() {
                    Answer::Degraded
                } else if decision.is_allowed() {
                    Answer::Allowed
                } else {
                    Answer::Denied
                }
            }
            Self::Policies {
                store,
                policies,
                count,
                users,
                everyone,
            } => {
                let keys = [&users[key], &users[key], everyone];
                let charges = policies.each_ref();
                let charges: [Charge<'_>; 3] =
                    std::array::from_fn(|at| Charge::new(keys[at], &charges[at].0, charges[at].1));
                let ask = Ask::new(&charges[..*count]).deadline(PATIENCE);
                match store.acquire(&ask).await.expect("the server answers").granted {
                    0 => Answer::Denied,
                    _ => Answer::Allowed,
                }
            }
        }
    }

    pub(crate) const fn store(&self) -> Option<&RedisStore> {
        match self {
            Self::Tollgate { store, .. } => Some(store),
            Self::Incr { .. } | Self::Textbook { .. } | Self::Policies { .. } => None,
        }
    }
}

fn decided(reply: redis::RedisResult<u64>) -> Answer {
    match reply.expect("the server answers") {
        0 => Answer::Denied,
        _ => Answer::Allowed,
    }
}
