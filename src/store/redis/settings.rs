//! How a connection of our own is made and kept.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

/// Settings of a supervised connection, with their defaults.
#[derive(Clone)]
pub(super) struct LinkSettings {
    /// For everything until a connection serves: name lookup, TCP, TLS, login, clock, scripts.
    pub(super) connect_timeout: Duration,
    /// So many failures in a row open the breaker.
    pub(super) breaker_failures: u32,
    /// So many calls in a row without an answer, and none to others meanwhile, replace the connection.
    pub(super) timeouts_in_a_row: u32,
    /// Goes before the URL's, like the next two.
    pub(super) username: Option<String>,
    pub(super) password: Option<Password>,
    pub(super) database: Option<u32>,
    /// What all keys begin with; named in messages about rights.
    pub(super) prefix: String,
    /// The commands that the scripts call and that call them, in lower case; named in messages about rights.
    pub(super) commands: &'static [&'static str],
    /// Bodies that are loaded into the server's cache.
    pub(super) scripts: Arc<[&'static str]>,
    /// Calls of the real scripts on a scratch key under the prefix.
    pub(super) probe: Probe,
}

/// Makes the calls that a server must answer without an error before it is used: by hash or, where that is not cached, with
/// the whole text. Both forms are the same calls in the same order.
pub(super) type Probe = Arc<dyn Fn(ProbeForm) -> Vec<Cmd> + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeForm {
    /// `EVALSHA`.
    Hash,
    /// `EVAL`.
    Text,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(1),
            breaker_failures: 5,
            timeouts_in_a_row: 3,
            username: None,
            password: None,
            database: None,
            prefix: String::from("tollgate"),
            commands: &[],
            scripts: Arc::new([]),
            probe: Arc::new(|_| Vec::new()),
        }
    }
}

impl fmt::Debug for LinkSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkSettings")
            .field("connect_timeout", &self.connect_timeout)
            .field("breaker_failures", &self.breaker_failures)
            .field("timeouts_in_a_row", &self.timeouts_in_a_row)
            .field("username", &self.username)
            .field("password", &self.password)
            .field("database", &self.database)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// A password, or where to get it. Asked for on every connect, so that one that is changed is found.
#[derive(Clone)]
pub(super) struct Password(Arc<dyn Fn() -> String + Send + Sync>);

impl Password {
    pub(super) fn fixed(password: impl Into<String>) -> Self {
        let password = password.into();
        Self::from_fn(move || password.clone())
    }

    pub(super) fn from_fn(read: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub(super) fn read(&self) -> String {
        (self.0)()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}
