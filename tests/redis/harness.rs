//! The servers, the network and the scripted connection do what the other tests rely on.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value, cmd};

use crate::proxy::{FullPort, Mode, Proxy};
use crate::scripted::{Reply, Scripted};
use crate::server::{Server, Version};

/// Well below what clients are made to wait, well above what loopback takes.
const SOON: Duration = Duration::from_millis(300);

async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(SOON))
        .set_response_timeout(Some(SOON));
    Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

async fn increment(connection: &mut MultiplexedConnection) -> RedisResult<u64> {
    cmd("INCR").arg("k").query_async(connection).await
}

async fn counted(server: &Server) -> u64 {
    let count: Option<u64> = server.cli(&["GET", "k"]).await;
    count.unwrap_or_default()
}

fn timed_out<T>(reply: RedisResult<T>) -> bool {
    reply.is_err_and(|error| error.is_timeout())
}

/// Polls until it is so, however long a busy machine takes.
async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "it never comes to that"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn servers_of_every_version_start() {
    for version in Version::all() {
        let server = Server::start(version).await;
        assert_eq!(server.info("connected_slaves").await, Some(0));
        let info: String = server.cli(&["INFO", "server"]).await;
        let expected = match version {
            Version::V6 => "redis_version:6.2.",
            Version::V7 => "redis_version:",
            Version::V8 => "redis_version:8.2.",
        };
        assert!(info.contains(expected), "{info}");
    }
}

#[tokio::test]
async fn a_test_may_start_two_servers() {
    let first = Server::start(Version::V7).await;
    let second = Server::start(Version::V7).await;
    let (): () = first.cli(&["SET", "k", "1"]).await;
    assert_eq!((counted(&first).await, counted(&second).await), (1, 0));
}

#[tokio::test]
async fn a_killed_server_restarts_empty_on_its_port() {
    let mut server = Server::start_with(Version::V7, &["--maxclients", "50"]).await;
    let (): () = server.cli(&["SET", "k", "1"]).await;
    server.kill();
    let error = connect(&server.url()).await.expect_err("nobody listens");
    assert!(error.is_connection_refusal(), "{error}");
    server.revive().await;
    assert_eq!(counted(&server).await, 0);
    let (_, clients): (String, u64) = server.cli(&["CONFIG", "GET", "maxclients"]).await;
    assert_eq!(clients, 50);
    server.restart().await;
    assert_eq!(counted(&server).await, 0);
}

#[tokio::test]
async fn a_stopped_server_does_all_of_it_later() {
    let server = Server::start(Version::V7).await;
    let mut connection = connect(&server.url()).await.expect("it listens");
    server.stop();
    assert!(timed_out(increment(&mut connection).await));
    server.cont();
    until(async || counted(&server).await == 1).await;
}

#[tokio::test]
async fn a_password_is_asked_for() {
    let mut server = Server::start(Version::V7).await;
    let open = server.url();
    server.set_password("secret").await;
    assert_eq!(counted(&server).await, 0);
    let mut connection = connect(&open).await.expect("only commands are refused");
    let error = increment(&mut connection).await.expect_err("no password");
    assert_eq!(error.code(), Some("NOAUTH"));
    server.set_password("").await;
    assert_eq!(server.url(), open);
    assert_eq!(counted(&server).await, 0);
}

#[tokio::test]
async fn a_proxy_passes_and_counts() {
    let server = Server::start(Version::V7).await;
    let proxy = Proxy::start(server.port()).await;
    let mut connection = connect(&proxy.url()).await.expect("it listens");
    for count in 1..=3 {
        assert_eq!(increment(&mut connection).await, Ok(count));
    }
    let long = "x".repeat(100_000);
    let (): () = cmd("SET")
        .arg("k")
        .arg(&long)
        .query_async(&mut connection)
        .await
        .expect("a reply");
    let got: String = cmd("GET")
        .arg("k")
        .query_async(&mut connection)
        .await
        .expect("a reply");
    assert_eq!(got, long);
    assert_eq!(
        (proxy.sent("INCR"), proxy.sent("GET"), proxy.sent("EVAL")),
        (3, 1, 0)
    );
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test]
async fn a_proxy_delays() {
    let server = Server::start(Version::V7).await;
    let proxy = Proxy::start(server.port()).await;
    let mut connection = connect(&proxy.url()).await.expect("it listens");
    proxy.set(Mode::slow(SOON / 3));
    let start = Instant::now();
    assert_eq!(increment(&mut connection).await, Ok(1));
    let took = start.elapsed();
    assert!(took >= SOON / 3 && took < SOON, "{took:?}");
    proxy.set(Mode::Delay {
        commands: Duration::ZERO,
        replies: SOON * 2,
    });
    assert!(timed_out(increment(&mut connection).await));
    assert_eq!(counted(&server).await, 2, "only the reply is late");
    proxy.set(Mode::Delay {
        commands: SOON * 2,
        replies: Duration::ZERO,
    });
    assert!(timed_out(increment(&mut connection).await));
    assert_eq!(counted(&server).await, 2);
    until(async || counted(&server).await == 3).await;
}

#[tokio::test]
async fn a_proxy_holds_all_back() {
    let server = Server::start(Version::V7).await;
    let proxy = Proxy::start(server.port()).await;
    let mut connection = connect(&proxy.url()).await.expect("it listens");
    proxy.set(Mode::Hold);
    assert!(timed_out(increment(&mut connection).await));
    assert!(
        connect(&proxy.url()).await.is_err(),
        "new connections get no answer either"
    );
    // What a client has sent arrives, whether or not it is still there.
    drop(connection);
    assert_eq!(counted(&server).await, 0);
    proxy.set(Mode::Pass);
    until(async || counted(&server).await == 1).await;
}

#[tokio::test]
async fn a_proxy_swallows_commands_or_replies() {
    let server = Server::start(Version::V7).await;
    let proxy = Proxy::start(server.port()).await;
    for (mode, arrives) in [(Mode::Blackhole, 0), (Mode::Mute, 1)] {
        let mut connection = connect(&proxy.url()).await.expect("it listens");
        proxy.set(mode);
        assert!(timed_out(increment(&mut connection).await), "{mode:?}");
        assert!(connect(&proxy.url()).await.is_err(), "{mode:?}");
        assert_eq!(counted(&server).await, arrives, "{mode:?}");
        proxy.set(Mode::Pass);
        assert!(
            timed_out(increment(&mut connection).await),
            "{mode:?}: it has lost bytes"
        );
        let _: Value = server.cli(&["DEL", "k"]).await;
        let mut connection = connect(&proxy.url()).await.expect("it listens");
        assert_eq!(increment(&mut connection).await, Ok(1), "{mode:?}");
        let _: Value = server.cli(&["DEL", "k"]).await;
    }
}

#[tokio::test]
async fn a_proxy_cuts_replies() {
    let server = Server::start(Version::V7).await;
    let proxy = Proxy::start(server.port()).await;
    // Before `:1\r\n`, and in the middle of it.
    for after in [0, 2] {
        let mut connection = connect(&proxy.url()).await.expect("it listens");
        proxy.set(Mode::CutReply { after });
        let error = increment(&mut connection).await.expect_err("a reply cut off");
        let half = error.kind() == ErrorKind::Parse;
        assert!(
            if after == 0 {
                error.is_connection_dropped()
            } else {
                half
            },
            "{error}"
        );
        assert!(connect(&proxy.url()).await.is_err(), "so is every other");
        proxy.set(Mode::Pass);
    }
    assert_eq!(counted(&server).await, 2, "the commands have arrived");
}

#[tokio::test]
async fn a_proxy_cuts_one_reply() {
    let server = Server::start(Version::V7).await;
    let proxy = Proxy::start(server.port()).await;
    let mut cut = connect(&proxy.url()).await.expect("it listens");
    let mut other = connect(&proxy.url()).await.expect("it listens");
    proxy.set(Mode::CutNextReply { after: 1 });
    assert!(increment(&mut cut).await.is_err());
    assert_eq!(increment(&mut other).await, Ok(2));
    assert!(increment(&mut cut).await.is_err());
    assert_eq!(increment(&mut other).await, Ok(3));
}

#[tokio::test]
async fn a_proxy_answers_garbage() {
    let server = Server::start(Version::V7).await;
    let proxy = Proxy::start(server.port()).await;
    let mut connection = connect(&proxy.url()).await.expect("it listens");
    proxy.set(Mode::Garbage(b"\0\xffwhat\r\n"));
    let error = increment(&mut connection).await.expect_err("no reply");
    assert_eq!(error.kind(), ErrorKind::Parse);
    assert_eq!(counted(&server).await, 1);
}

#[tokio::test]
async fn a_proxy_refuses_and_cuts_connections() {
    let server = Server::start(Version::V7).await;
    let mut proxy = Proxy::start(server.port()).await;
    let mut connection = connect(&proxy.url()).await.expect("it listens");
    proxy.close().await;
    let error = connect(&proxy.url()).await.expect_err("the port is closed");
    assert!(error.is_connection_refusal(), "{error}");
    assert_eq!(increment(&mut connection).await, Ok(1), "connections stay");
    proxy.cut();
    until(async || {
        increment(&mut connection)
            .await
            .is_err_and(|error| error.is_connection_dropped())
    })
    .await;
    proxy.open().await;
    let mut connection = connect(&proxy.url()).await.expect("it listens again");
    assert_eq!(increment(&mut connection).await, Ok(2));
}

#[tokio::test]
async fn a_full_port_does_not_even_accept() {
    let port = FullPort::open().await;
    let start = Instant::now();
    assert!(timed_out(connect(&port.url()).await));
    assert!(start.elapsed() >= SOON);
}

#[tokio::test(start_paused = true)]
async fn a_scripted_connection_answers_as_it_is_told() {
    let second = Duration::from_secs(1);
    let scripted = Scripted::new(move |sent| match (sent.name.as_str(), sent.index) {
        ("TIME", _) => Reply::time(1_700_000_000_000_042),
        ("INCR", index) => Reply::integer(i64::try_from(index).expect("few")).after(second),
        _ => Reply::error("READONLY You can't write against a read only replica."),
    });
    let start = tokio::time::Instant::now();
    let mut connection = scripted.clone();
    let time: (u64, u64) = cmd("TIME").query_async(&mut connection).await.expect("a reply");
    assert_eq!(time, (1_700_000_000, 42));
    assert_eq!(start.elapsed(), Duration::ZERO);
    let count: RedisResult<u64> = cmd("incr").arg("k").query_async(&mut connection).await;
    assert_eq!((count, start.elapsed()), (Ok(1), second));
    let error: RedisError = cmd("SET")
        .exec_async(&mut connection)
        .await
        .expect_err("an error");
    assert_eq!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly));

    scripted.behave(|_| Reply::never());
    let reply = tokio::time::timeout(second, cmd("GET").exec_async(&mut connection)).await;
    assert!(reply.is_err());
    scripted.behave(|_| Reply::broken());
    let error = cmd("GET")
        .exec_async(&mut connection)
        .await
        .expect_err("an error");
    assert!(error.is_connection_dropped(), "{error}");

    let sent = scripted.sent();
    let names: Vec<_> = sent.iter().map(|sent| sent.name.as_str()).collect();
    assert_eq!(names, ["TIME", "INCR", "SET", "GET", "GET"]);
    assert_eq!(sent[1].arguments, [b"k"]);
    assert_eq!((sent[1].at, sent[2].at), (start, start + second));
}
