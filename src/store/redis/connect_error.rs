//! Why a Redis server cannot be used, and what to do about it.

use std::error::Error;
use std::fmt;

/// Why a Redis store was not opened: the settings are wrong, or the server answers and cannot serve. The text says what
/// to do; no password is ever part of it. A server that cannot be reached is no such error.
#[derive(Debug)]
pub struct ConnectError {
    kind: ConnectErrorKind,
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What keeps a Redis server from being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// A setting has an impossible value.
    Setting,
    /// The URL is malformed or asks for something that is not supported.
    Url,
    /// The URL asks for TLS, and no TLS feature of this crate is enabled.
    TlsFeature,
    /// The TLS handshake failed.
    Tls,
    /// A password is needed, or user and password do not match.
    Authentication,
    /// The server has no such database.
    Database,
    /// The server runs no scripts.
    NoScripting,
    /// The user lacks rights.
    Permission,
    /// The server is a replica.
    Replica,
    /// The server is one node of a cluster.
    Cluster,
    /// The server is in protected mode: it serves its own machine alone.
    ProtectedMode,
    /// The server failed on this crate's scripts.
    Script,
    /// The server is too old, or is none of Redis.
    Protocol,
    /// The call was made outside of a tokio runtime.
    Runtime,
}

impl ConnectError {
    pub(crate) fn new(kind: ConnectErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            source: None,
        }
    }

    pub(super) fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What is wrong.
    #[must_use]
    pub const fn kind(&self) -> ConnectErrorKind {
        self.kind
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}
