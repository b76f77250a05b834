//! Who decides: the same question to each, by the same kind of connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tollgate::{Key, Limiter, Quota, RedisStore};

use super::server::{Console, connect};

pub(crate) const KEYS: usize = 10_000;
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

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
                let store = RedisStore::connect(url).await.expect("the server can serve");
                Self::Tollgate {
                    limiter: Limiter::new(store.clone(), Quota::new(limit, WINDOW)),
                    store,
                    keys: Arc::new(texts.map(Key::from).collect()),
                }
            }
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
        }
    }

    pub(crate) const fn store(&self) -> Option<&RedisStore> {
        match self {
            Self::Tollgate { store, .. } => Some(store),
            Self::Incr { .. } | Self::Textbook { .. } => None,
        }
    }
}

fn decided(reply: redis::RedisResult<u64>) -> Answer {
    match reply.expect("the server answers") {
        0 => Answer::Denied,
        _ => Answer::Allowed,
    }
}
