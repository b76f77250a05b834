//! R30: starting without a server, or with one that is of no use.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tollgate::{FailurePolicy, Limiter, Quota, RedisStore};

use crate::proxy::{FullPort, Mode, Proxy};
use crate::server::{Server, Version};
use crate::support::{DEADLINE, LATE, RECOVERY, YEAR, admitted, check_all, connect, strict, until};

/// Connecting, with all that belongs to it, takes no longer.
const CONNECT: Duration = Duration::from_secs(1);

/// Service starts, degraded.
async fn starts(url: &str) -> Limiter {
    let start = Instant::now();
    let store = connect(url).await;
    assert!(start.elapsed() <= CONNECT + LATE, "{:?}", start.elapsed());
    let limiter = Limiter::new(store, Quota::new(100, YEAR))
        .name("test")
        .failure_policy(FailurePolicy::Deny);
    for _ in 0..10 {
        let start = Instant::now();
        assert!(limiter.check("k").await.is_degraded());
        assert!(start.elapsed() <= DEADLINE + LATE, "nobody waits for a connect");
    }
    limiter
}

async fn recovers(limiter: &Limiter) {
    until("the server is found", RECOVERY, async || {
        !limiter.check("k").await.is_degraded()
    })
    .await;
    assert_eq!(admitted(&check_all(limiter, "other", 5).await), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r30_without_a_server() {
    let mut server = Server::start(Version::V7).await;
    server.kill();
    let limiter = starts(&server.url()).await;
    server.revive().await;
    recovers(&limiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r30_with_a_server_that_hangs() {
    let server = Server::start(Version::V7).await;
    server.stop();
    let limiter = starts(&server.url()).await;
    server.cont();
    recovers(&limiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r30_behind_networks_that_fail() {
    let server = Server::start(Version::V7).await;
    for mode in [
        Mode::Blackhole,
        Mode::Mute,
        Mode::Hold,
        Mode::slow(Duration::from_secs(4)),
    ] {
        let proxy = Proxy::start(server.port()).await;
        proxy.set(mode);
        let limiter = starts(&proxy.url()).await;
        proxy.set(Mode::Pass);
        recovers(&limiter).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r30_where_nobody_accepts() {
    let port = FullPort::open().await;
    let _ = starts(&port.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r30_no_host_has_that_name() {
    let _ = starts("redis://no-such-host.invalid/").await;
}

/// What `connect` says of a server that answers and is of no use.
async fn refusal(url: &str) -> String {
    let start = Instant::now();
    let error = RedisStore::connect(url).await.expect_err("it is unfit");
    assert!(start.elapsed() <= CONNECT + LATE, "{:?}", start.elapsed());
    let shown = format!("{error}");
    assert!(!format!("{shown} {error:?}").contains("secret"), "{error:?}");
    shown
}

#[tokio::test]
async fn unfit_servers_are_told_at_once() {
    let mut server = Server::start(Version::V7).await;
    let () = server.cli(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let said = refusal(&server.url()).await;
    assert!(said.contains("replica"), "{said}");
    let () = server.cli(&["REPLICAOF", "NO", "ONE"]).await;

    let () = server.cli(&["ACL", "SETUSER", "default", "-evalsha"]).await;
    let said = refusal(&server.url()).await.to_lowercase();
    assert!(said.contains("evalsha") || said.contains("acl"), "{said}");
    let () = server.cli(&["ACL", "SETUSER", "default", "+@all"]).await;

    // Each right that the scripts need, also to read: who may not would find nothing charged.
    for right in ["time", "get", "mget", "set", "append", "setrange", "del"] {
        let () = server
            .cli(&["ACL", "SETUSER", "default", &format!("-{right}")])
            .await;
        let said = refusal(&server.url()).await;
        assert!(said.contains(&format!("+{right}")), "{right}: {said}");
        let () = server.cli(&["ACL", "SETUSER", "default", "+@all"]).await;
    }

    server.set_password("right").await;
    let wrong = server.url().replace("right", "secret");
    let said = refusal(&wrong).await;
    assert!(said.contains("password"), "{said}");
}

#[tokio::test]
async fn prefixes_separate() {
    let server = Server::start(Version::V7).await;
    let quota = Quota::new(3, YEAR);
    for prefix in ["a", "b", "a:b"] {
        let store = RedisStore::builder().prefix(prefix).connect(&server.url()).await;
        let limiter = strict(&store.expect("a fit server"), quota);
        assert_eq!(admitted(&check_all(&limiter, "k", 5).await), 3, "{prefix}");
    }
}

/// An error with all its causes, by both their texts.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = format!("{error} {error:?}");
    if let Some(source) = error.source() {
        text += &told(source);
    }
    text
}

/// A server that sends back what it is sent, its port.
async fn echo() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ended = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn errors_never_tell_the_password() {
    let mut texts = Vec::new();
    let error = tollgate::store::open("memory://:hunter2@host:6379/").await;
    texts.push(told(&error.expect_err("memory has no host")));
    let mut urls = Vec::new();
    let mut servers = Vec::new();
    for unknown in ["HELLO", "AUTH"] {
        let mut server = Server::start_with(Version::V7, &["--rename-command", unknown, ""]).await;
        server.set_password("hunter2").await;
        urls.push(server.url());
        servers.push(server);
    }
    urls.push(format!("redis://:hunter2@127.0.0.1:{}/", echo().await));
    for url in urls {
        for query in ["", "?protocol=resp2"] {
            match RedisStore::connect(&format!("{url}{query}")).await {
                Ok(store) => texts.push(format!("{store:?}")),
                Err(error) => texts.push(told(&error)),
            }
        }
    }
    for text in texts {
        assert!(!text.contains("hunter2"), "{text}");
    }
}
