//! What an error of the server or the connection means.

use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::StoreErrorKind;

/// One row of the error table for each kind of reply that calls for its own treatment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// The script is not in the server's cache.
    NoScript,
    /// The server is a replica.
    ReadOnly,
    /// The server is reading its data set from disk.
    Loading,
    /// A script holds the server.
    Busy,
    /// A replica that has lost its primary and serves nothing.
    MasterDown,
    /// The cluster does not serve this slot.
    ClusterDown,
    /// The key belongs to another node of the cluster.
    Redirected,
    /// The keys of one call are in several slots.
    CrossSlot,
    /// The server's memory is full and it may not evict.
    OutOfMemory,
    /// The user may not do this.
    NoPermission,
    /// The server does not know the user, or not by this password.
    Unauthenticated,
    /// The server's settings refuse writes for now: too few replicas, or a snapshot failed.
    WritesRefused,
    /// The script failed, or met a value of another type.
    Script,
    /// The server has no room for one more connection.
    MaxClients,
    /// The connection is broken.
    Io,
    /// The client gave up waiting.
    Timeout,
    /// What came is no reply of a Redis server.
    Protocol,
    /// Anything else.
    Other,
}

impl Class {
    pub(super) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Io => Self::of_io(error),
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Self::Protocol,
            ErrorKind::AuthenticationFailed => Self::Unauthenticated,
            ErrorKind::ClusterConnectionNotFound
            | ErrorKind::MasterNameNotFoundBySentinel
            | ErrorKind::NoValidReplicasFoundBySentinel => Self::Io,
            ErrorKind::Server(kind) => Self::of_server(kind, error.detail().unwrap_or_default()),
            ErrorKind::Extension => {
                let code = error.code().unwrap_or_default();
                Self::of_code(code)
                    .or_else(|| Self::of_code_inside(error.detail().unwrap_or_default()))
                    .unwrap_or(Self::Other)
            }
            _ => Self::Other,
        }
    }

    fn of_io(error: &RedisError) -> Self {
        // The kernel's ETIMEDOUT ends a connection, while the client's own timeout says nothing about it.
        let by_kernel = io_error(error).is_some_and(|error| error.raw_os_error().is_some());
        if error.is_timeout() && !by_kernel {
            Self::Timeout
        } else {
            Self::Io
        }
    }

    fn of_server(kind: ServerErrorKind, detail: &str) -> Self {
        match kind {
            ServerErrorKind::NoScript => Self::NoScript,
            ServerErrorKind::ReadOnly => Self::ReadOnly,
            ServerErrorKind::BusyLoading => Self::Loading,
            ServerErrorKind::MasterDown => Self::MasterDown,
            ServerErrorKind::ClusterDown => Self::ClusterDown,
            ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::TryAgain => Self::Redirected,
            ServerErrorKind::CrossSlot => Self::CrossSlot,
            ServerErrorKind::NoPerm => Self::NoPermission,
            ServerErrorKind::ResponseError => Self::of_response(detail),
            _ => Self::Other,
        }
    }

    /// An error with the general code `ERR`.
    fn of_response(detail: &str) -> Self {
        if detail.contains("max number of clients") {
            Self::MaxClients
        } else if detail.contains("executing the script can't") || detail.contains("ACL failure in script") {
            // Up to 7.0, a missing right that shows inside a script has no code of its own.
            Self::NoPermission
        } else if detail.contains("script") {
            // Up to 6.2, the code of an error that ends a script stands inside the text.
            Self::of_code_inside(detail).unwrap_or(Self::Script)
        } else {
            Self::Other
        }
    }

    /// The codes for which the client has no kind.
    fn of_code(code: &str) -> Option<Self> {
        Some(match code {
            "BUSY" => Self::Busy,
            "OOM" => Self::OutOfMemory,
            "NOAUTH" | "WRONGPASS" => Self::Unauthenticated,
            "NOREPLICAS" | "MISCONF" => Self::WritesRefused,
            "WRONGTYPE" => Self::Script,
            // Protected mode.
            "DENIED" => Self::NoPermission,
            // A blocked call when the server became a replica.
            "UNBLOCKED" => Self::ReadOnly,
            _ => return None,
        })
    }

    /// `... @user_script: 1: -OOM command not allowed ...`
    fn of_code_inside(detail: &str) -> Option<Self> {
        detail.split(": ").find_map(|part| {
            let code = part.strip_prefix('-')?.split(' ').next()?;
            match code {
                "READONLY" => Some(Self::ReadOnly),
                "MASTERDOWN" => Some(Self::MasterDown),
                code => Self::of_code(code),
            }
        })
    }

    /// The server has not executed the command: it may be sent again once, where
    /// [that helps](Self::may_pass_when_sent_again). A script's first write meets memory and write limits, so those
    /// prove it too; a missing right can show after other writes.
    pub(super) const fn proves_not_executed(self) -> bool {
        match self {
            Self::NoScript
            | Self::ReadOnly
            | Self::Loading
            | Self::Busy
            | Self::MasterDown
            | Self::ClusterDown
            | Self::Redirected
            | Self::CrossSlot
            | Self::OutOfMemory
            | Self::Unauthenticated
            | Self::WritesRefused
            | Self::MaxClients => true,
            Self::NoPermission | Self::Script | Self::Io | Self::Timeout | Self::Protocol | Self::Other => {
                false
            }
        }
    }

    /// Not executed, and worth another try.
    pub(super) const fn may_be_sent_again(self) -> bool {
        self.proves_not_executed() && self.may_pass_when_sent_again()
    }

    /// Sending it again within the deadline can succeed: the body instead of the hash, to the new primary, or to the
    /// node that a cluster client has meanwhile learnt of.
    pub(super) const fn may_pass_when_sent_again(self) -> bool {
        matches!(self, Self::NoScript | Self::ReadOnly | Self::Redirected)
    }

    /// A connection of our own is given up for this. It need not be broken: a server that loads its data, or has become a
    /// node of a cluster, is asked again by the attempts to connect.
    pub(super) const fn replaces_connection(self) -> bool {
        match self {
            Self::ReadOnly
            | Self::Loading
            | Self::Busy
            | Self::MasterDown
            | Self::ClusterDown
            | Self::Redirected
            | Self::NoPermission
            | Self::Unauthenticated
            | Self::MaxClients
            | Self::Io
            | Self::Protocol => true,
            Self::NoScript
            | Self::CrossSlot
            | Self::OutOfMemory
            | Self::WritesRefused
            | Self::Script
            | Self::Timeout
            | Self::Other => false,
        }
    }

    /// It is a failure of the server as a whole, not of this call. Refused writes are not: other calls pass, and this one
    /// was answered at once. Neither is what one shard of a cluster answers.
    pub(super) const fn is_outage(self) -> bool {
        match self {
            Self::ReadOnly
            | Self::Loading
            | Self::Busy
            | Self::MasterDown
            | Self::NoPermission
            | Self::Unauthenticated
            | Self::MaxClients
            | Self::Io
            | Self::Timeout
            | Self::Protocol => true,
            Self::NoScript
            | Self::ClusterDown
            | Self::Redirected
            | Self::CrossSlot
            | Self::OutOfMemory
            | Self::WritesRefused
            | Self::Script
            | Self::Other => false,
        }
    }

    /// The server has said it, so it is there.
    pub(super) const fn is_answer(self) -> bool {
        !matches!(self, Self::Io | Self::Timeout | Self::Protocol)
    }

    /// What the failure policy sees.
    pub(super) const fn kind(self) -> StoreErrorKind {
        match self {
            Self::Timeout => StoreErrorKind::Timeout,
            Self::CrossSlot | Self::Script | Self::Protocol | Self::Other => StoreErrorKind::Protocol,
            Self::NoScript
            | Self::ReadOnly
            | Self::Loading
            | Self::Busy
            | Self::MasterDown
            | Self::ClusterDown
            | Self::Redirected
            | Self::OutOfMemory
            | Self::NoPermission
            | Self::Unauthenticated
            | Self::WritesRefused
            | Self::MaxClients
            | Self::Io => StoreErrorKind::Unavailable,
        }
    }

    /// For statistics and logs.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::NoScript => "no_script",
            Self::ReadOnly => "read_only",
            Self::Loading => "loading",
            Self::Busy => "busy",
            Self::MasterDown => "master_down",
            Self::ClusterDown => "cluster_down",
            Self::Redirected => "redirected",
            Self::CrossSlot => "cross_slot",
            Self::OutOfMemory => "out_of_memory",
            Self::NoPermission => "no_permission",
            Self::Unauthenticated => "unauthenticated",
            Self::WritesRefused => "writes_refused",
            Self::Script => "script",
            Self::MaxClients => "max_clients",
            Self::Io => "io",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
            Self::Other => "other",
        }
    }
}

/// The client keeps the cause behind an `Arc`, which is then what its source can be cast to.
pub(super) fn io_error(error: &RedisError) -> Option<&io::Error> {
    let source = error.source()?;
    match source.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
        Some(shared) => shared.downcast_ref(),
        None => source.downcast_ref(),
    }
}

#[cfg(test)]
mod tests;
