//! The settings of a Redis store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;

use super::RedisStore;
use super::address::Address;
use super::call;
use super::connect_error::{ConnectError, ConnectErrorKind};
use super::dispatch::Dispatch;
use super::link::{Link, LinkSettings};
use super::queue::Bounds;
use super::script::{By, Script, Scripts};
use super::settings::{Password, ProbeForm};
use crate::store::{LocalAnswers, LocalAnswersBuilder};

/// Settings of a [`RedisStore`], and their defaults.
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::RedisStore;
///
/// # async fn run() -> Result<(), tollgate::store::ConnectError> {
/// let store = RedisStore::builder()
///     .prefix("api")
///     .deadline(Duration::from_millis(50))
///     .password(std::env::var("REDIS_PASSWORD").unwrap_or_default())
///     .connect("redis://limits.internal/")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct RedisStoreBuilder {
    prefix: String,
    deadline: Duration,
    bounds: Bounds,
    cluster: bool,
    local: LocalAnswersBuilder,
    link: LinkSettings,
    scripts: &'static Scripts,
}

impl RedisStoreBuilder {
    pub(super) fn new() -> Self {
        Self {
            prefix: "tollgate".to_owned(),
            deadline: Duration::from_millis(100),
            bounds: Bounds {
                counters: 128,
                units: 1_000,
                waiting: 16_384,
                in_flight: 2,
                place: Duration::from_millis(100),
            },
            cluster: false,
            local: LocalAnswers::builder(),
            link: LinkSettings::default(),
            scripts: Scripts::shipped(),
        }
    }

    /// What the names of all keys begin with: `tollgate`. Services with other prefixes share nothing. 1 to 64 printable ASCII
    /// characters, no spaces, braces or quotes.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a check waits for its answer, waiting for its turn included, unless the limiter or layer says otherwise:
    /// 100 ms.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self.bounds.place = deadline;
        self
    }

    /// How long [`connect`](Self::connect) waits, and every later attempt in the background, for all of it: look-up, TCP, TLS,
    /// login and scripts: one second.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.link.connect_timeout = timeout;
        self
    }

    /// The user, before the URL's.
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.link.username = Some(username.into());
        self
    }

    /// The password, before the URL's. An empty one is none.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        let password = password.into();
        self.link.password = (!password.is_empty()).then(|| Password::fixed(password));
        self
    }

    /// Where to get the password, before the URL's. Asked on every connect, so that a new one is found; it must not block.
    pub fn password_from(mut self, read: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.link.password = Some(Password::from_fn(read));
        self
    }

    /// The number of the database, before the URL's.
    pub const fn database(mut self, database: u32) -> Self {
        self.link.database = Some(database);
        self
    }

    /// How many counters one call charges: 128. One that several of its checks charge, such as that of a limit for all, is
    /// read and written once, and counts once, up to twice as many charges in all. At least one check travels, whatever it
    /// charges.
    pub const fn max_batch(mut self, counters: usize) -> Self {
        self.bounds.counters = counters;
        self
    }

    /// How many calls are in flight at once: 2. More gain nothing on one server, and each holds the others up.
    pub const fn max_in_flight(mut self, calls: usize) -> Self {
        self.bounds.in_flight = calls;
        self
    }

    /// How many checks wait for their turn at once: 16 384. What comes above that is answered at once, as overload.
    pub const fn max_waiting(mut self, checks: usize) -> Self {
        self.bounds.waiting = checks;
        self
    }

    /// So many failures in a row, and the server is not asked any more until a probe in the background gets an answer: 5.
    pub const fn breaker_failures(mut self, failures: u32) -> Self {
        self.link.breaker_failures = failures;
        self
    }

    /// How many denials are remembered at once at most, so that what cannot fit yet does not reach the server: 65 536. It may be up to
    /// seven fewer, and is never more than 2²⁴. They take memory in pieces of 1.8 kB, of eight denials that come to stand together.
    /// 0 turns the deny cache off. See [local answers](crate::local_answers).
    pub fn deny_cache_size(mut self, denials: usize) -> Self {
        self.local = self.local.deny_cache_size(denials);
        self
    }

    /// How long a denial is remembered at most: one second. What other instances give back, reset, raise or unblock is seen
    /// after that. Zero turns the deny cache off.
    pub fn deny_cache_age(mut self, age: Duration) -> Self {
        self.local = self.local.deny_cache_age(age);
        self
    }

    /// The connection is to a cluster: calls only have keys of one slot. Found out by itself if not said, at the cost of the
    /// first call that spans slots.
    pub const fn cluster(mut self, cluster: bool) -> Self {
        self.cluster = cluster;
        self
    }

    /// Tells the time from a hash in the server, with the fields `s` and `us`, in place of the server's clock, and keeps all
    /// keys for ten minutes. For tests that move the clock.
    #[cfg(feature = "test-util")]
    pub fn clock_from_hash(mut self, key: &str) -> Self {
        self.scripts = Scripts::with_clock_from_hash(key);
        self
    }

    /// Connects to the server of a URL, as [`RedisStore::connect`] does.
    ///
    /// # Errors
    ///
    /// If a setting or the URL is malformed, or the server answers and cannot serve; the text says what to do.
    pub async fn connect(mut self, url: &str) -> Result<RedisStore, ConnectError> {
        self.check()?;
        let address = Address::parse(url)?;
        self.link.prefix.clone_from(&self.prefix);
        self.link.commands = call::COMMANDS;
        self.link.scripts = self.scripts.all().map(Script::text).into();
        let (scripts, prefix) = (self.scripts, self.prefix.clone());
        self.link.probe = Arc::new(move |form| {
            let by = match form {
                ProbeForm::Hash => By::Hash,
                ProbeForm::Text => By::Text,
            };
            call::probe(scripts, by, &prefix)
        });
        let link = Link::supervised(address, self.link.clone()).await?;
        Ok(self.with(link))
    }

    /// Uses a connection of your own, as [`RedisStore::new`] does. The settings about connecting do not apply.
    ///
    /// # Panics
    ///
    /// If a setting is malformed.
    #[must_use]
    #[track_caller]
    pub fn build<C>(self, connection: C) -> RedisStore
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        if let Err(error) = self.check() {
            panic!("{error}");
        }
        let link = Link::given(connection, self.link.breaker_failures);
        self.with(link)
    }

    fn with(self, link: Link) -> RedisStore {
        let patience = self.deadline.max(Duration::from_secs(1));
        let local = self.local.build();
        RedisStore {
            dispatch: Arc::new(Dispatch::new(
                (link, self.scripts, local),
                self.bounds,
                patience,
                self.cluster,
            )),
            prefix: self.prefix.into(),
            deadline: self.deadline,
        }
    }

    fn check(&self) -> Result<(), ConnectError> {
        let refuse = |what: String| Err(ConnectError::new(ConnectErrorKind::Setting, what));
        let fits = |byte: u8| byte.is_ascii_graphic() && !b"{}\"'\\".contains(&byte);
        if self.prefix.is_empty() || self.prefix.len() > 64 || !self.prefix.bytes().all(fits) {
            return refuse(format!(
                "the prefix {:?} cannot begin keys: use 1 to 64 printable ASCII characters, no spaces, braces or quotes",
                self.prefix
            ));
        }
        let bounds = [
            ("max_batch", self.bounds.counters),
            ("max_in_flight", self.bounds.in_flight),
            ("max_waiting", self.bounds.waiting),
            ("breaker_failures", self.link.breaker_failures as usize),
        ];
        for (name, value) in bounds {
            if value == 0 {
                return refuse(format!(
                    "{name} is 0, so that nothing could ever be sent: set at least 1"
                ));
            }
        }
        // One call's asks are numbered in 16 bits, and a script's arguments are bounded.
        if self.bounds.counters > 1_000 {
            return refuse(format!(
                "max_batch is {}, which would hold up the server for all others: set at most 1000",
                self.bounds.counters
            ));
        }
        for (name, value) in [
            ("deadline", self.deadline),
            ("connect_timeout", self.link.connect_timeout),
        ] {
            if value.is_zero() {
                return refuse(format!(
                    "{name} is zero, so that nothing could ever be answered: set some milliseconds"
                ));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("deadline", &self.deadline)
            .field("bounds", &self.bounds)
            .field("cluster", &self.cluster)
            .field("local", &self.local)
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}
