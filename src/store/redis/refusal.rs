//! What to say when a server cannot be used.

use std::any::Any;
use std::error::Error;
use std::io;

use redis::{ErrorKind, RedisError};

use super::class::{Class, io_error};
use super::connect_error::{ConnectError, ConnectErrorKind};
use super::probe::{Target, field};

/// Why a server cannot be used.
pub(super) enum Refusal {
    /// It cannot be reached, or is busy with something that passes.
    NotNow {
        class: Class,
        error: Box<dyn Error + Send + Sync>,
    },
    /// It answers, and will not serve before something has been changed.
    Unfit { class: Class, error: ConnectError },
}

impl Refusal {
    pub(super) fn timeout() -> Self {
        Self::NotNow {
            class: Class::Timeout,
            error: "no answer within the timeout".into(),
        }
    }
}

impl Target {
    pub(super) fn at_login(&self, error: RedisError) -> Refusal {
        let class = Class::of(&error);
        let text = error.to_string();
        match error.code() {
            Some("DENIED") => {
                let what = "is in protected mode, in which it serves its own machine alone: give the default user a password, \
                            or bind the server to the addresses that clients use, and turn protected-mode off";
                return self.unfit(class, ConnectErrorKind::ProtectedMode, what, error);
            }
            Some("NOAUTH") => return self.needs_password(error),
            _ => {}
        }
        let knows_no_hello = error.kind() == ErrorKind::RESP3NotSupported
            || error.code() == Some("NOPROTO")
            || text.contains("unknown command") && text.to_ascii_uppercase().contains("HELLO");
        if knows_no_hello {
            let what = "does not know HELLO: it is older than Redis 6, or a proxy; if its scripts are those of Redis 6.2 or \
                        later, append ?protocol=resp2 to the URL";
            // A server that does not know a command repeats its arguments, the password among them.
            return self.unfit_with(class, ConnectErrorKind::Protocol, what, None);
        }
        match class {
            Class::Unauthenticated => self.wrong_password(error),
            Class::Protocol => self.unfit(
                class,
                ConnectErrorKind::Protocol,
                "does not speak the protocol of Redis",
                error,
            ),
            _ if self.address.is_tls() && is_tls_error(&error) => {
                let what = format!(
                    "cannot be used with TLS ({error}): is this its TLS port, and is its certificate trusted?"
                );
                self.unfit(Class::Io, ConnectErrorKind::Tls, what, error)
            }
            // Names that do not resolve, and the like.
            Class::Other => not_now(Class::Io, error),
            _ => not_now(class, error),
        }
    }

    pub(super) fn at_select(&self, error: RedisError) -> Refusal {
        let text = error.detail().unwrap_or_default();
        if text.contains("DB index") {
            let what = format!(
                "has no database {}: use a lower number, or raise the setting databases of the server",
                self.address.database()
            );
            self.unfit(Class::Other, ConnectErrorKind::Database, what, error)
        } else if text.contains("cluster mode") {
            self.is_cluster(Some(error))
        } else {
            self.at_call(error, None, None)
        }
    }

    /// `load_error`: why a script could not be loaded.
    pub(super) fn at_call(
        &self,
        error: RedisError,
        load_error: Option<&RedisError>,
        info: Option<&str>,
    ) -> Refusal {
        let class = Class::of(&error);
        match class {
            Class::Unauthenticated if error.code() == Some("NOAUTH") => self.needs_password(error),
            Class::Unauthenticated => self.wrong_password(error),
            Class::NoPermission => self.lacks_right(error, load_error),
            Class::ReadOnly | Class::MasterDown => self.is_replica(class, info, Some(error)),
            Class::Redirected | Class::ClusterDown | Class::CrossSlot => self.is_cluster(Some(error)),
            Class::Script | Class::NoScript => {
                let what = format!(
                    "cannot run the scripts ({error}): they need Redis 6.2 or later, or a server that runs the same Lua"
                );
                self.unfit(class, ConnectErrorKind::Script, what, error)
            }
            Class::Protocol => self.unfit(
                class,
                ConnectErrorKind::Protocol,
                "does not speak the protocol of Redis",
                error,
            ),
            Class::Other if is_unknown_command(&error) => {
                let what = format!(
                    "runs no scripts ({error}): EVALSHA and TIME are needed, and SCRIPT LOAD or EVAL; allow them \
                     (rename-command), or use a server or service that has them"
                );
                self.unfit(class, ConnectErrorKind::NoScripting, what, error)
            }
            _ => not_now(class, error),
        }
    }

    fn needs_password(&self, error: RedisError) -> Refusal {
        let what = "needs a password: give one in the URL (redis://user:password@host) or the settings";
        self.unfit(
            Class::Unauthenticated,
            ConnectErrorKind::Authentication,
            what,
            error,
        )
    }

    fn wrong_password(&self, error: RedisError) -> Refusal {
        let what = format!(
            "does not let the user {:?} in: the password is wrong, or the user does not exist or is off; in a URL, special \
             characters are percent-encoded",
            self.user()
        );
        self.unfit(
            Class::Unauthenticated,
            ConnectErrorKind::Authentication,
            what,
            error,
        )
    }

    /// The server names a command or says that it is about a key, but not inside scripts.
    fn lacks_right(&self, error: RedisError, load_error: Option<&RedisError>) -> Refusal {
        let (user, prefix) = (self.user(), &self.settings.prefix);
        let text = error.detail().unwrap_or_default();
        let command = text.split('\'').nth(1).filter(|_| text.contains("to run the '"));
        let lacks = match command {
            Some(command) if load_error.is_some_and(|error| Class::of(error) == Class::NoPermission) => {
                format!("run {} or SCRIPT LOAD, of which one is needed", shout(command))
            }
            Some(command) => format!("run {}", shout(command)),
            None if text.contains("key") => format!("use the keys {prefix}:*"),
            None => String::from("run a command that the scripts call"),
        };
        let mut rights = vec!["evalsha", "eval", "script|load", "time"];
        for command in self.settings.commands {
            if !rights.contains(command) {
                rights.push(command);
            }
        }
        if self.address.database() != 0 {
            rights.push("select");
        }
        let what = format!(
            "does not allow the user {user:?} to {lacks}; all rights that are needed: ACL SETUSER {user} ~{prefix}:* +{}",
            rights.join(" +")
        );
        self.unfit(Class::NoPermission, ConnectErrorKind::Permission, what, error)
    }

    pub(super) fn is_replica(&self, class: Class, info: Option<&str>, error: Option<RedisError>) -> Refusal {
        let primary = info.and_then(|info| Some((field(info, "master_host")?, field(info, "master_port")?)));
        let what = match primary {
            Some((host, port)) => format!("is a replica: connect to its primary, {host}:{port}"),
            None => String::from("is a replica: connect to its primary"),
        };
        self.unfit_with(class, ConnectErrorKind::Replica, what, error)
    }

    pub(super) fn is_cluster(&self, error: Option<RedisError>) -> Refusal {
        let class = error.as_ref().map_or(Class::Redirected, Class::of);
        let class = if class == Class::Other {
            Class::Redirected
        } else {
            class
        };
        let what = "is a node of a cluster, which a connection to one server cannot use: make a cluster connection with the \
                    redis crate, with its retries at 0, and hand it in";
        self.unfit_with(class, ConnectErrorKind::Cluster, what, error)
    }

    pub(super) fn panicked(&self, panic: &(dyn Any + Send)) -> Refusal {
        let text = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("a panic");
        let text = text.trim_start().lines().next().unwrap_or_default();
        let (kind, what) = if self.address.is_tls() {
            let what = format!("cannot be used with TLS ({text}): install a rustls crypto provider in main");
            (ConnectErrorKind::Tls, what)
        } else {
            let what = format!("cannot be connected to ({text}): enable time and I/O of the tokio runtime");
            (ConnectErrorKind::Runtime, what)
        };
        self.unfit_with(Class::Other, kind, what, None)
    }

    fn user(&self) -> &str {
        self.address.username(&self.settings).unwrap_or("default")
    }

    fn unfit(
        &self,
        class: Class,
        kind: ConnectErrorKind,
        what: impl AsRef<str>,
        error: RedisError,
    ) -> Refusal {
        self.unfit_with(class, kind, what, Some(error))
    }

    fn unfit_with(
        &self,
        class: Class,
        kind: ConnectErrorKind,
        what: impl AsRef<str>,
        error: Option<RedisError>,
    ) -> Refusal {
        let mut refused = ConnectError::new(
            kind,
            format!("the Redis server {} {}", self.address, what.as_ref()),
        );
        if let Some(error) = error {
            refused = refused.caused_by(error);
        }
        Refusal::Unfit {
            class,
            error: refused,
        }
    }
}

fn not_now(class: Class, error: RedisError) -> Refusal {
    Refusal::NotNow {
        class,
        error: error.into(),
    }
}

/// `script|load` as it is typed.
fn shout(command: &str) -> String {
    command.replace('|', " ").to_ascii_uppercase()
}

fn is_unknown_command(error: &RedisError) -> bool {
    error
        .detail()
        .is_some_and(|text| text.contains("unknown command"))
}

fn is_tls_error(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Client
        || io_error(error).is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
}
