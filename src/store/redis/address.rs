//! Where a server is, and as whom to log in: a URL, without its secrets wherever it is shown.

use std::fmt;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use super::connect_error::{ConnectError, ConnectErrorKind};
use super::settings::{LinkSettings, Password};

/// A vanished peer is noticed after these, also when nothing is sent.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// What was sent and is not acknowledged for so long ends the connection.
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// What a URL says.
#[derive(Clone)]
pub(super) struct Address {
    place: ConnectionAddr,
    username: Option<String>,
    password: Option<String>,
    database: u32,
    protocol: ProtocolVersion,
}

impl Address {
    /// `redis://`, `rediss://` (TLS): `[user][:password]@host[:port][/database][?protocol=resp2]`; `unix://` and
    /// `redis+unix://`: `/path[?db=..&user=..&pass=..&protocol=..]`.
    pub(super) fn parse(url: &str) -> Result<Self, ConnectError> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| malformed("it has no scheme; write redis://host:port/database"))?;
        let scheme = scheme.to_ascii_lowercase();
        match scheme.as_str() {
            "redis" | "rediss" => Self::parse_tcp(url, &scheme, rest),
            "unix" | "redis+unix" => Self::parse_unix(url, &scheme),
            _ => Err(unknown_scheme(&scheme)),
        }
    }

    fn parse_tcp(url: &str, scheme: &str, rest: &str) -> Result<Self, ConnectError> {
        // A password with such a character ends the host early, and what follows must not be shown.
        if let Some(end) = rest.find(['/', '?', '#'])
            && rest[end..].contains('@')
        {
            return Err(malformed(
                "there is an @ after the first /, ? or #; percent-encode these characters in user and password \
                 (/ is %2F, ? is %3F, # is %23, @ is %40)",
            ));
        }
        let parsed = redis::parse_redis_url(url).ok_or_else(|| {
            malformed(format!(
                "write {scheme}://user:password@host:port/database, and percent-encode special characters in user and \
                 password (/ is %2F, ? is %3F, # is %23, @ is %40)"
            ))
        })?;
        match parsed.host_str() {
            None | Some("") => {
                return Err(malformed(format!(
                    "it names no host; write {scheme}://host:port/database"
                )));
            }
            Some("0.0.0.0" | "[::]") => {
                return Err(malformed(
                    "its host is the address on which servers listen everywhere; write the address of one, such as 127.0.0.1",
                ));
            }
            Some(_) => {}
        }
        if parsed.fragment().is_some() {
            return Err(malformed(
                "it has a fragment (#); there are none here, certificates included: for a server whose certificate the \
                 system does not trust, make the connection yourself and hand it in",
            ));
        }
        let database = match parsed.path().trim_matches('/') {
            "" => 0,
            path => database(path, &format!("the path of a {scheme} URL"))?,
        };
        let mut resp2 = false;
        for (name, value) in parsed.query_pairs() {
            match &*name {
                "protocol" => resp2 = is_resp2(&value)?,
                "db" => {
                    return Err(malformed(format!(
                        "the database goes into the path: {scheme}://host:port/2"
                    )));
                }
                name => {
                    return Err(malformed(format!(
                        "its parameter {name:?} is unknown; there is only protocol"
                    )));
                }
            }
        }
        if scheme == "rediss" {
            supports_tls()?;
        }
        Self::of(parsed, database, resp2)
    }

    fn parse_unix(url: &str, scheme: &str) -> Result<Self, ConnectError> {
        if !cfg!(unix) {
            return Err(malformed(
                "there are no Unix sockets on this system; write redis://host:port/database",
            ));
        }
        let no_path = || malformed(format!("write {scheme}:///absolute/path, with three slashes"));
        let parsed = redis::parse_redis_url(url).ok_or_else(no_path)?;
        if parsed.host_str().is_some_and(|host| !host.is_empty())
            || parsed.path().trim_matches('/').is_empty()
        {
            return Err(no_path());
        }
        let (mut number, mut resp2) = (0, false);
        for (name, value) in parsed.query_pairs() {
            match &*name {
                "db" => number = database(&value, "the parameter db")?,
                "protocol" => resp2 = is_resp2(&value)?,
                "user" | "pass" => {}
                // A password that is not percent-encoded can show as a name.
                _ => {
                    return Err(malformed(
                        "it has an unknown parameter; there are db, user, pass and protocol, and & and + in their values are \
                         written %26 and %2B",
                    ));
                }
            }
        }
        Self::of(parsed, number, resp2)
    }

    fn of(parsed: impl IntoConnectionInfo, database: u32, resp2: bool) -> Result<Self, ConnectError> {
        let info = parsed
            .into_connection_info()
            .map_err(|_| malformed("user and password must be UTF-8 when percent-decoded"))?;
        let redis = info.redis_settings();
        Ok(Self {
            place: info.addr().clone(),
            username: redis.username().map(str::to_owned),
            password: redis.password().map(str::to_owned),
            database,
            protocol: if resp2 {
                ProtocolVersion::RESP2
            } else {
                ProtocolVersion::RESP3
            },
        })
    }

    pub(super) const fn with_database(mut self, database: Option<u32>) -> Self {
        if let Some(database) = database {
            self.database = database;
        }
        self
    }

    pub(super) const fn database(&self) -> u32 {
        self.database
    }

    pub(super) fn username<'a>(&'a self, settings: &'a LinkSettings) -> Option<&'a str> {
        settings.username.as_deref().or(self.username.as_deref())
    }

    pub(super) const fn is_tls(&self) -> bool {
        matches!(self.place, ConnectionAddr::TcpTls { .. })
    }

    /// Whether the server can tell of a connection's end when nothing is sent.
    pub(super) const fn is_resp3(&self) -> bool {
        matches!(self.protocol, ProtocolVersion::RESP3)
    }

    /// What to connect with, where the settings go before the URL.
    pub(super) fn connection_info(&self, settings: &LinkSettings) -> ConnectionInfo {
        let mut redis = RedisConnectionInfo::default()
            .set_protocol(self.protocol)
            // A refused command on each connect would fill the server's ACL log.
            .set_skip_set_lib_name();
        let username = self.username(settings);
        let password = settings
            .password
            .as_ref()
            .map(Password::read)
            .or_else(|| self.password.clone());
        if let Some(username) = username {
            redis = redis.set_username(username);
        }
        // A user without a password logs in with any.
        if let Some(password) = password.or_else(|| username.map(|_| String::new())) {
            redis = redis.set_password(password);
        }
        let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE_AFTER);
        #[cfg(any(target_os = "linux", target_os = "macos", target_os = "windows"))]
        let keepalive = keepalive.with_interval(KEEPALIVE_INTERVAL);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        let tcp = tcp.set_user_timeout(USER_TIMEOUT);
        self.place
            .clone()
            .into_connection_info()
            .expect("a place is always connection info")
            .set_redis_settings(redis)
            .set_tcp_settings(tcp)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                if host.contains(':') {
                    write!(f, "[{host}]:{port}/{}", self.database)
                } else {
                    write!(f, "{host}:{port}/{}", self.database)
                }
            }
            ConnectionAddr::Unix(path) => write!(f, "{}, database {}", path.display(), self.database),
            _ => write!(f, "database {}", self.database),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

fn malformed(what: impl fmt::Display) -> ConnectError {
    ConnectError::new(
        ConnectErrorKind::Url,
        format!("the Redis URL cannot be used: {what}"),
    )
}

fn unknown_scheme(scheme: &str) -> ConnectError {
    match scheme {
        "redis-sentinel" | "rediss-sentinel" | "redis+sentinel" | "redis-cluster" | "rediss-cluster"
        | "redis+cluster" => malformed(format!(
            "{scheme}:// is not supported yet; make the connection with the redis crate and hand it in"
        )),
        "valkey" => malformed("write redis:// for a Valkey server"),
        "valkeys" => malformed("write rediss:// for a Valkey server with TLS"),
        "valkey+unix" => malformed("write unix:// for a Valkey server"),
        _ => malformed("its scheme is unknown; there are redis://, rediss:// (TLS) and unix://"),
    }
}

fn database(text: &str, place: &str) -> Result<u32, ConnectError> {
    text.parse()
        .map_err(|_| malformed(format!("{place} must be the number of a database, such as 0")))
}

fn is_resp2(text: &str) -> Result<bool, ConnectError> {
    match text {
        "3" | "resp3" => Ok(false),
        "2" | "resp2" => Ok(true),
        _ => Err(malformed(
            "its parameter protocol must be resp3 (the default) or resp2",
        )),
    }
}

fn supports_tls() -> Result<(), ConnectError> {
    let place = ConnectionAddr::TcpTls {
        host: String::new(),
        port: 0,
        insecure: false,
        tls_params: None,
    };
    if place.is_supported() {
        return Ok(());
    }
    Err(ConnectError::new(
        ConnectErrorKind::TlsFeature,
        "a rediss:// URL needs TLS, for which no feature of the crate tollgate is enabled: redis-rustls (the system's root \
         certificates; install a rustls crypto provider in main), redis-rustls-webpki-roots (Mozilla's), or redis-native-tls \
         (the system's TLS library)",
    ))
}

#[cfg(test)]
mod tests;
