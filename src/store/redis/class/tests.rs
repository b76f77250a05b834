//! The error table, row by row.

use super::*;

fn reply(line: &str) -> RedisError {
    redis::parse_redis_value(format!("-{line}\r\n").as_bytes())
        .unwrap()
        .extract_error()
        .unwrap_err()
}

#[test]
fn every_reply_has_its_row() {
    for (line, class) in [
        ("NOSCRIPT No matching script. Please use EVAL.", Class::NoScript),
        (
            "READONLY You can't write against a read only replica. script: beef, on @user_script:1.",
            Class::ReadOnly,
        ),
        (
            "UNBLOCKED force unblock from blocking operation, instance state changed",
            Class::ReadOnly,
        ),
        ("LOADING Redis is loading the dataset in memory", Class::Loading),
        (
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL.",
            Class::Busy,
        ),
        (
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            Class::MasterDown,
        ),
        ("CLUSTERDOWN Hash slot not served", Class::ClusterDown),
        ("MOVED 3999 127.0.0.1:6381", Class::Redirected),
        ("ASK 3999 127.0.0.1:6381", Class::Redirected),
        (
            "TRYAGAIN Multiple keys request during rehashing of slot",
            Class::Redirected,
        ),
        (
            "CROSSSLOT Keys in request don't hash to the same slot",
            Class::CrossSlot,
        ),
        (
            "OOM command not allowed when used memory > 'maxmemory'. script: beef, on @user_script:1.",
            Class::OutOfMemory,
        ),
        (
            "NOPERM this user has no permissions to run the 'evalsha' command",
            Class::NoPermission,
        ),
        ("NOPERM No permissions to access a key", Class::NoPermission),
        (
            "ERR The user executing the script can't run this command or subcommand script: 12, on @user_script:1.",
            Class::NoPermission,
        ),
        (
            "ERR ACL failure in script: User app has no permissions to run the 'time' command script: 12, on @user_script:1.",
            Class::NoPermission,
        ),
        (
            "DENIED Redis is running in protected mode because protected mode is enabled",
            Class::NoPermission,
        ),
        ("NOAUTH Authentication required.", Class::Unauthenticated),
        (
            "WRONGPASS invalid username-password pair or user is disabled.",
            Class::Unauthenticated,
        ),
        (
            "NOREPLICAS Not enough good replicas to write.",
            Class::WritesRefused,
        ),
        (
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to",
            Class::WritesRefused,
        ),
        (
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            Class::Script,
        ),
        (
            "ERR user_script:1: boom script: 82903a, on @user_script:1.",
            Class::Script,
        ),
        (
            "ERR Error compiling script (new function): user_script:1: '=' expected near 'xx'",
            Class::Script,
        ),
        ("ERR max number of clients reached", Class::MaxClients),
        (
            "ERR unknown command 'EVALSHA', with args beginning with:",
            Class::Other,
        ),
        (
            "EXECABORT Transaction discarded because of previous errors.",
            Class::Other,
        ),
        ("SOMETHING new", Class::Other),
    ] {
        assert_eq!(Class::of(&reply(line)), class, "{line}");
    }
}

#[test]
fn errors_inside_scripts_of_old_servers_keep_their_class() {
    for (text, class) in [
        (
            "-OOM command not allowed when used memory > 'maxmemory'.",
            Class::OutOfMemory,
        ),
        (
            "-READONLY You can't write against a read only replica.",
            Class::ReadOnly,
        ),
        (
            "-NOREPLICAS Not enough good replicas to write.",
            Class::WritesRefused,
        ),
        (
            "-MISCONF Redis is configured to save RDB snapshots",
            Class::WritesRefused,
        ),
        (
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            Class::Script,
        ),
        (
            "The user executing the script can't run this command or subcommand",
            Class::NoPermission,
        ),
        (
            "Script attempted to access nonexistent global variable 'xx'",
            Class::Script,
        ),
    ] {
        let raised =
            format!("ERR Error running script (call to f_beef): @user_script:1: @user_script: 1: {text}");
        assert_eq!(Class::of(&reply(&raised)), class, "{raised}");
    }
    let caught = "@user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(Class::of(&reply(caught)), Class::OutOfMemory);
}

#[test]
fn errors_of_the_connection() {
    let io = |kind: io::ErrorKind| Class::of(&io::Error::from(kind).into());
    for kind in [
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::BrokenPipe,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::UnexpectedEof,
    ] {
        assert_eq!(io(kind), Class::Io);
    }
    assert_eq!(io(io::ErrorKind::TimedOut), Class::Timeout);
    #[cfg(target_os = "linux")]
    assert_eq!(Class::of(&io::Error::from_raw_os_error(110).into()), Class::Io);
    let garbage = redis::parse_redis_value(b"HTTP/1.1 400 Bad Request\r\n").unwrap_err();
    assert_eq!(Class::of(&garbage), Class::Protocol);
    for (kind, class) in [
        (ErrorKind::AuthenticationFailed, Class::Unauthenticated),
        (ErrorKind::UnexpectedReturnType, Class::Protocol),
        (ErrorKind::ClusterConnectionNotFound, Class::Io),
        (ErrorKind::Client, Class::Other),
    ] {
        assert_eq!(Class::of(&(kind, "text").into()), class);
    }
}

#[test]
fn an_outage_is_unavailable_or_a_timeout() {
    assert_eq!(Class::Timeout.kind(), StoreErrorKind::Timeout);
    assert_eq!(Class::Script.kind(), StoreErrorKind::Protocol);
    for class in [Class::ReadOnly, Class::OutOfMemory, Class::Io, Class::NoScript] {
        assert_eq!(class.kind(), StoreErrorKind::Unavailable);
    }
    // What may have run is never sent again.
    for class in [
        Class::Io,
        Class::Timeout,
        Class::Protocol,
        Class::Script,
        Class::NoPermission,
        Class::Other,
    ] {
        assert!(!class.proves_not_executed());
        assert!(!class.may_pass_when_sent_again());
    }
}
