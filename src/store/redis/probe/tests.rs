//! What connecting says about servers, real ones where that is possible.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::super::class::Class;
use super::super::connect_error::{ConnectError, ConnectErrorKind};
use super::super::link::{Link, LinkState};
use super::super::server::{SCRIPT, Server, free_port, probe, run_at, settings};
use super::super::settings::{LinkSettings, Password};
use super::*;

async fn connect(url: &str) -> Result<Link, ConnectError> {
    connect_with(url, settings()).await
}

async fn connect_with(url: &str, settings: LinkSettings) -> Result<Link, ConnectError> {
    Link::supervised(Address::parse(url)?, settings).await
}

/// That the link is up, or why not.
#[track_caller]
fn serves(link: Result<Link, ConnectError>) {
    let link = link.unwrap();
    assert_eq!(link.state(), LinkState::Closed);
    link.route().unwrap();
}

#[track_caller]
fn refuses(link: Result<Link, ConnectError>, kind: ConnectErrorKind, words: &[&str]) {
    let error = link.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
    for text in [text, format!("{error:?}")] {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[tokio::test]
async fn a_server_that_serves() {
    let server = Server::start(&[]);
    let link = connect(&server.url()).await.unwrap();
    let route = link.route().unwrap();
    let mut call = redis::cmd("EVALSHA");
    call.arg(redis::Script::new(SCRIPT).get_hash())
        .arg(1)
        .arg("tollgate:x");
    let soon = || Instant::now() + Duration::from_secs(1);
    let reply = route.send(call, soon()).await.expect("it comes in time");
    assert_eq!(reply, Ok(Value::Okay));

    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let latest = Duration::from_micros(route.clock().not_after(Instant::now()));
    assert!(latest <= now + Duration::from_millis(1), "{latest:?} {now:?}");
    assert!(latest + Duration::from_secs(1) >= now, "{latest:?} {now:?}");

    let reply = route.send(redis::cmd("NOSUCH"), soon()).await;
    let error = reply.expect("it comes in time").unwrap_err();
    assert_eq!(Class::of(&error), Class::Other);
    serves(connect(&format!("{}?protocol=resp2", server.url())).await);
    serves(connect_with(&server.url(), LinkSettings::default()).await);
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket() {
    let _server = Server::start(&["--unixsocket", "socket"]);
    let directory = std::env::temp_dir().join(format!("tollgate-{}-{}", std::process::id(), _server.port));
    serves(connect(&format!("unix://{}/socket?db=3", directory.display())).await);
}

#[tokio::test]
async fn passwords() {
    let server = Server::start(&["--requirepass", "right"]);
    run_at(
        &server.url_as("", "right"),
        "ACL SETUSER app on >s3cret-right ~* +@all",
    );
    let refused = |kind_of: &'static str| (ConnectErrorKind::Authentication, kind_of);
    for (url, (kind, words)) in [
        (server.url(), refused("needs a password")),
        (
            format!("{}?protocol=resp2", server.url()),
            refused("needs a password"),
        ),
        (server.url_as("", "s3cret"), refused("\"default\"")),
        (
            format!("{}?protocol=resp2", server.url_as("", "s3cret")),
            refused("\"default\""),
        ),
        (server.url_as("app", "s3cret"), refused("\"app\"")),
        (server.url_as("nobody", "s3cret"), refused("\"nobody\"")),
    ] {
        refuses(connect(&url).await, kind, &[words]);
    }
    serves(connect(&server.url_as("", "right")).await);
    serves(connect(&server.url_as("app", "s3cret-right")).await);
    let corrected = LinkSettings {
        password: Some(Password::fixed("s3cret-right")),
        ..settings()
    };
    serves(connect_with(&server.url_as("app", "wrong"), corrected).await);
}

#[tokio::test]
async fn databases() {
    let server = Server::start(&["--databases", "4"]);
    serves(connect(&format!("{}3", server.url())).await);
    assert_eq!(
        run_at(&format!("{}3", server.url()), "EXISTS tollgate:probe"),
        Value::Int(1)
    );
    assert_eq!(server.run("EXISTS tollgate:probe"), Value::Int(0));
    refuses(
        connect(&format!("{}4", server.url())).await,
        ConnectErrorKind::Database,
        &["no database 4"],
    );
    let settings = LinkSettings {
        database: Some(9),
        ..settings()
    };
    refuses(
        connect_with(&server.url(), settings).await,
        ConnectErrorKind::Database,
        &["no database 9"],
    );
}

#[tokio::test]
async fn rights() {
    let server = Server::start(&[]);
    let url = server.url_as("app", "s3cret");
    let denied = ConnectErrorKind::Permission;
    for (rights, words) in [
        (
            "+time",
            &[
                "\"app\"",
                "run EVALSHA",
                "ACL SETUSER app ~tollgate:* +evalsha +eval +script|load +time +get +mget +set +append +setrange +del",
            ] as &[_],
        ),
        ("+evalsha +eval +script|load +set", &["run TIME"]),
        ("+time +evalsha +set", &["run EVAL or SCRIPT LOAD"]),
        ("+time +evalsha +eval +script|load", &["to run ", "+set"]),
    ] {
        server.run(&format!("ACL SETUSER app reset on >s3cret ~tollgate:* {rights}"));
        refuses(connect(&url).await, denied, words);
    }
    server.run("ACL SETUSER app reset on >s3cret ~other:* +@all");
    refuses(connect(&url).await, denied, &["use the keys tollgate:*"]);
    server.run("ACL SETUSER app reset on >s3cret ~* +@all -select");
    refuses(
        connect(&format!("{url}1")).await,
        denied,
        &["run SELECT", "+select"],
    );

    server.run("SCRIPT FLUSH");
    server.run("ACL SETUSER app reset on >s3cret ~tollgate:* +time +set +evalsha +eval");
    serves(connect(&url).await);
    server.run("SCRIPT FLUSH");
    server.run("ACL SETUSER app reset on >s3cret ~tollgate:* +time +set +evalsha +script");
    serves(connect(&url).await);
}

#[tokio::test]
async fn a_refused_info_is_not_asked_for_again() {
    let mut server = Server::start(&[]);
    let grant = "ACL SETUSER app on >s3cret ~tollgate:* +time +set +evalsha +script";
    server.run(grant);
    let url = server.url_as("app", "s3cret");
    let target = Target::new(Address::parse(&url).unwrap(), settings());
    assert!(target.connect(|| {}).await.is_ok());
    assert!(target.connect(|| {}).await.is_ok());
    let Value::Array(log) = server.run("ACL LOG") else {
        panic!("ACL LOG is a list")
    };
    assert_eq!(log.len(), 1, "{log:?}");
    server.kill();
}

#[tokio::test]
async fn a_replica() {
    let server = Server::start(&[]);
    let primary = free_port();
    server.run(&format!("REPLICAOF 127.0.0.1 {primary}"));
    let named = format!("primary, 127.0.0.1:{primary}");
    refuses(connect(&server.url()).await, ConnectErrorKind::Replica, &[&named]);
    server.run("ACL SETUSER app on >s3cret ~* +@all -info");
    let url = server.url_as("app", "s3cret");
    refuses(connect(&url).await, ConnectErrorKind::Replica, &["is a replica"]);
    server.run("CONFIG SET replica-serve-stale-data no");
    refuses(connect(&url).await, ConnectErrorKind::Replica, &["is a replica"]);
    server.run("CONFIG SET replica-serve-stale-data yes");
    // What is written to a replica is lost, even where it lets itself be written to.
    server.run("CONFIG SET replica-read-only no");
    refuses(connect(&server.url()).await, ConnectErrorKind::Replica, &[&named]);
}

#[tokio::test]
async fn a_node_of_a_cluster() {
    let server = Server::start(&["--cluster-enabled", "yes"]);
    for url in [server.url(), format!("{}1", server.url())] {
        refuses(
            connect(&url).await,
            ConnectErrorKind::Cluster,
            &["cluster connection"],
        );
    }
    // All slots are here.
    let mut slots = String::from("CLUSTER ADDSLOTS");
    for slot in 0..16_384 {
        slots.push_str(&format!(" {slot}"));
    }
    server.run(&slots);
    refuses(
        connect(&server.url()).await,
        ConnectErrorKind::Cluster,
        &["cluster connection"],
    );
}

#[tokio::test]
async fn commands_that_are_not_there() {
    let serving = [&["EVAL"] as &[_], &["SCRIPT"]];
    let refusing = [
        (&["EVALSHA"] as &[_], ConnectErrorKind::NoScripting, "EVALSHA"),
        (&["EVAL", "SCRIPT"], ConnectErrorKind::NoScripting, "EVALSHA"),
        (&["HELLO"], ConnectErrorKind::Protocol, "?protocol=resp2"),
    ];
    let start = |removed: &[&str]| {
        let arguments: Vec<_> = removed
            .iter()
            .flat_map(|command| ["--rename-command", *command, ""])
            .collect();
        Server::start(&arguments)
    };
    for removed in serving {
        serves(connect(&start(removed).url()).await);
    }
    for (removed, kind, words) in refusing {
        let server = start(removed);
        refuses(connect(&server.url()).await, kind, &[words]);
        if removed == ["HELLO"] {
            serves(connect(&format!("{}?protocol=resp2", server.url())).await);
        }
    }
}

#[tokio::test]
async fn scripts_that_fail() {
    let server = Server::start(&[]);
    for script in ["return nonsense", "retrun 1"] {
        let settings = LinkSettings {
            scripts: std::sync::Arc::new([script]),
            probe: probe(script),
            ..settings()
        };
        refuses(
            connect_with(&server.url(), settings).await,
            ConnectErrorKind::Script,
            &["Redis 6.2"],
        );
    }
}

#[tokio::test]
async fn a_full_server_is_used() {
    let server = Server::start(&["--maxmemory", "1"]);
    serves(connect(&server.url()).await);
    let server = Server::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let target = Target::new(server.address(), settings());
    assert!(target.connect(|| {}).await.is_ok());
    assert!(target.eviction_reported.load(Ordering::Relaxed));
    server.run("CONFIG SET maxmemory 0");
    let target = Target::new(server.address(), settings());
    assert!(target.connect(|| {}).await.is_ok());
    assert!(!target.eviction_reported.load(Ordering::Relaxed));
}

/// What answers every connection with this text and, if it `ends`, closes it.
fn fake(text: &'static [u8], ends: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://app:s3cret@{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            let mut request = [0; 1_024];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(text);
            if !ends {
                open.push(stream);
            }
        }
    });
    url
}

#[tokio::test]
async fn what_is_no_server_or_not_ready() {
    let denied = fake(
        b"-DENIED Redis is running in protected mode because protected mode is enabled\r\n",
        true,
    );
    refuses(
        connect(&denied).await,
        ConnectErrorKind::ProtectedMode,
        &["protected-mode"],
    );
    let http = fake(b"HTTP/1.1 400 Bad Request\r\n\r\n", true);
    refuses(
        connect(&http).await,
        ConnectErrorKind::Protocol,
        &["protocol of Redis"],
    );

    for (url, reason) in [
        (
            fake(b"-ERR max number of clients reached\r\n", true),
            Class::MaxClients,
        ),
        (
            fake(b"-LOADING Redis is loading the dataset in memory\r\n", false),
            Class::Loading,
        ),
        (fake(b"", true), Class::Io),
        (fake(b"", false), Class::Timeout),
        (format!("redis://127.0.0.1:{}", free_port()), Class::Io),
        (String::from("redis://no-such-host.invalid"), Class::Io),
    ] {
        let start = Instant::now();
        let settings = LinkSettings {
            connect_timeout: Duration::from_millis(300),
            ..settings()
        };
        let link = connect_with(&url, settings).await.unwrap();
        assert!(
            start.elapsed() < Duration::from_millis(600),
            "{reason:?} after {:?}",
            start.elapsed()
        );
        let LinkState::Open { reason: found, .. } = link.state() else {
            panic!("{url} is no server")
        };
        // A name that does not resolve can also take too long to.
        assert!(
            found == reason || url.ends_with(".invalid"),
            "{found:?} is not {reason:?}"
        );
        assert!(link.route().is_err());
    }
}

#[cfg(any(feature = "redis-rustls", feature = "redis-native-tls"))]
#[tokio::test]
async fn tls_to_what_speaks_none() {
    let url = fake(b"-ERR Protocol error: unbalanced quotes in request\r\n", false);
    let url = url.replace("redis://", "rediss://");
    refuses(connect(&url).await, ConnectErrorKind::Tls, &["TLS"]);
}

#[test]
fn no_runtime_is_an_error() {
    let mut future = Box::pin(connect("redis://127.0.0.1/"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(link) = future.as_mut().poll(&mut context) else {
        panic!("nothing to wait for")
    };
    refuses(link, ConnectErrorKind::Runtime, &["tokio"]);

    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    refuses(
        bare.block_on(connect("redis://127.0.0.1/")),
        ConnectErrorKind::Runtime,
        &["enable"],
    );
}
