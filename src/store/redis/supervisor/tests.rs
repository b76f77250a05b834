//! Faults of real servers, and of a scripted connection.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisFuture, Value};

use super::super::link::{Link, Route};
use super::super::server::{Server, free_port, run_at, settings};
use super::super::settings::Password;
use super::*;
use crate::store::{StoreError, StoreErrorKind};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

async fn link(server: &Server) -> Link {
    Link::supervised(server.address(), settings()).await.unwrap()
}

/// A check's call, as the dispatcher makes it: it never waits longer than the deadline, and it reports.
async fn call(link: &Link) -> Result<Value, StoreErrorKind> {
    let route = route_at_once(link).map_err(|error| error.kind())?;
    let sent = Instant::now();
    let mut command = redis::cmd("SET");
    command.arg("tollgate:x").arg(1).arg("PX").arg(1_000);
    match route.send(command, sent + ms(100)).await {
        Ok(Ok(value)) => {
            route.report(sent, Instant::now(), Report::Answered);
            Ok(value)
        }
        Ok(Err(error)) => {
            let class = Class::of(&error);
            route.report(sent, Instant::now(), Report::Failed(class));
            Err(class.kind())
        }
        Err(_elapsed) => {
            route.report(sent, Instant::now(), Report::TimedOut);
            Err(StoreErrorKind::Timeout)
        }
    }
}

fn route_at_once(link: &Link) -> Result<Route, StoreError> {
    // Not async: it cannot wait.
    let route: fn(&Link) -> Result<Route, StoreError> = Link::route;
    let start = std::time::Instant::now();
    let found = route(link);
    assert!(start.elapsed() < ms(50), "{:?}", start.elapsed());
    found
}

fn reason(link: &Link) -> Option<Class> {
    match link.state() {
        LinkState::Open { reason, .. } => Some(reason),
        LinkState::Closed => None,
    }
}

/// Until a call passes; how long that took.
async fn recovers(link: &Link) -> Duration {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        if call(link).await.is_ok() {
            return start.elapsed();
        }
        tokio::time::sleep(ms(5)).await;
    }
    panic!("no call passes 5 s after the fault: {:?}", link.state());
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(5), "{what}");
        tokio::time::sleep(ms(2)).await;
    }
}

/// The ids of clients other than the one that asks.
fn client_ids(server: &Server) -> Vec<u64> {
    let Value::BulkString(list) = server.run("CLIENT LIST") else {
        panic!("CLIENT LIST is text")
    };
    let id = |line: &str| line.strip_prefix("id=")?.split(' ').next()?.parse().ok();
    String::from_utf8_lossy(&list)
        .lines()
        .filter(|line| !line.contains("cmd=client"))
        .map(|line| id(line).expect("it begins with an id"))
        .collect()
}

fn clients(server: &Server) -> usize {
    client_ids(server).len()
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn killed_and_restarted() {
    let mut server = Server::start(&[]);
    let link = link(&server).await;
    call(&link).await.unwrap();
    server.kill();
    until("it is noticed without a call", || reason(&link).is_some()).await;
    for _ in 0..50 {
        assert_eq!(call(&link).await, Err(StoreErrorKind::Unavailable));
        tokio::time::sleep(ms(5)).await;
    }
    server.restart();
    let took = recovers(&link).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(clients(&server), 1);
}

#[tokio::test]
async fn idle_connections_are_replaced_before_the_next_call() {
    let server = Server::start(&[]);
    let link = link(&server).await;
    for _ in 0..3 {
        let before = client_ids(&server);
        server.run("CLIENT KILL TYPE normal");
        // That it is noticed can pass unseen, so soon is it replaced.
        until("it is replaced", || {
            let now = client_ids(&server);
            !now.is_empty() && now.iter().all(|id| !before.contains(id)) && reason(&link).is_none()
        })
        .await;
        call(&link).await.unwrap();
    }
    assert_eq!(clients(&server), 1);
}

#[tokio::test]
async fn halted_and_resumed() {
    let server = Server::start(&[]);
    let link = link(&server).await;
    call(&link).await.unwrap();
    server.signal("-STOP");
    let start = Instant::now();
    let mut timeouts = 0;
    while start.elapsed() < Duration::from_secs(3) {
        match call(&link).await {
            Err(StoreErrorKind::Timeout) => timeouts += 1,
            other => assert_eq!(other, Err(StoreErrorKind::Unavailable)),
        }
        tokio::time::sleep(ms(5)).await;
    }
    assert_eq!(timeouts, 3);
    server.signal("-CONT");
    let took = recovers(&link).await;
    assert!(took < Duration::from_millis(2_500), "{took:?}");
    until("replaced connections end", || clients(&server) == 1).await;
}

#[tokio::test]
async fn password_changed_and_corrected() {
    let server = Server::start(&[]);
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let password = Arc::new(Mutex::new(String::from("s3cret-old")));
    let read = Arc::clone(&password);
    let settings = LinkSettings {
        password: Some(Password::from_fn(move || read.lock().unwrap().clone())),
        ..settings()
    };
    server.run("CONFIG SET requirepass s3cret-old");
    let link = Link::supervised(server.address(), settings).await.unwrap();
    call(&link).await.unwrap();

    let change =
        |from: &str, to: &str| run_at(&server.url_as("", from), &format!("CONFIG SET requirepass {to}"));
    change("s3cret-old", "s3cret-new");
    run_at(&server.url_as("", "s3cret-new"), "CLIENT KILL TYPE normal");
    until("the new password is unknown here", || {
        reason(&link) == Some(Class::Unauthenticated)
    })
    .await;
    change("s3cret-new", "s3cret-old");
    recovers(&link).await;

    change("s3cret-old", "s3cret-new");
    run_at(&server.url_as("", "s3cret-new"), "CLIENT KILL TYPE normal");
    until("the new password is unknown here", || {
        reason(&link) == Some(Class::Unauthenticated)
    })
    .await;
    "s3cret-new".clone_into(&mut password.lock().unwrap());
    recovers(&link).await;

    // A line for each change of state, and none with a password.
    let lines = log.lines.lock().unwrap().clone();
    let kinds: Vec<_> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(
        kinds,
        ["WARN", "WARN", "INFO", "WARN", "WARN", "INFO"],
        "{lines:#?}"
    );
    assert!(
        lines
            .iter()
            .all(|line| line.contains(&format!("127.0.0.1:{}/0", server.port))),
        "{lines:#?}"
    );
    assert!(lines.iter().all(|line| !line.contains("s3cret")), "{lines:#?}");
}

/// Lines that this crate logs on this thread, with their level.
#[derive(Clone, Default)]
struct Log {
    lines: Arc<Mutex<Vec<String>>>,
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("tollgate") && *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Line(String);
        impl tracing::field::Visit for Line {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!(" {field}={value:?}"));
            }
        }
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.lines.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn demoted_and_promoted() {
    let server = Server::start(&[]);
    let link = link(&server).await;
    call(&link).await.unwrap();
    server.run(&format!("REPLICAOF 127.0.0.1 {}", free_port()));
    assert_eq!(call(&link).await, Err(StoreErrorKind::Unavailable));
    assert_eq!(reason(&link), Some(Class::ReadOnly));
    let start = Instant::now();
    while start.elapsed() < ms(300) {
        assert_eq!(call(&link).await, Err(StoreErrorKind::Unavailable));
        tokio::time::sleep(ms(5)).await;
    }
    assert_eq!(reason(&link), Some(Class::ReadOnly));
    server.run("REPLICAOF NO ONE");
    recovers(&link).await;
    assert_eq!(clients(&server), 1);
}

#[tokio::test]
async fn rights_taken_and_given_back() {
    let server = Server::start(&[]);
    server.run("ACL SETUSER app on >pass ~tollgate:* +@all");
    let link = Link::supervised(Address::parse(&server.url_as("app", "pass")).unwrap(), settings())
        .await
        .unwrap();
    server.run("ACL SETUSER app -set");
    assert_eq!(call(&link).await, Err(StoreErrorKind::Unavailable));
    assert_eq!(reason(&link), Some(Class::NoPermission));
    server.run("ACL SETUSER app +set");
    recovers(&link).await;
}

#[tokio::test]
async fn a_server_that_starts_later_is_found() {
    let mut server = Server::start(&[]);
    server.kill();
    let link = link(&server).await;
    assert_eq!(reason(&link), Some(Class::Io));
    assert_eq!(call(&link).await, Err(StoreErrorKind::Unavailable));
    server.restart();
    recovers(&link).await;
}

#[tokio::test]
async fn a_busy_server_is_asked_until_it_has_time() {
    let server = Server::start(&["--lua-time-limit", "50"]);
    let link = link(&server).await;
    let url = server.url();
    let hog = std::thread::spawn(move || {
        let client = redis::Client::open(url).unwrap();
        let mut connection = client.get_connection().unwrap();
        let loops =
            "local t = redis.call('time') repeat local n = redis.call('time') until n[1] - t[1] > 1 return 1";
        redis::cmd("EVAL").arg(loops).arg(0).query::<i64>(&mut connection)
    });
    until_busy(&link).await;
    hog.join().unwrap().unwrap();
    recovers(&link).await;
}

async fn until_busy(link: &Link) {
    let start = Instant::now();
    while reason(link).is_none() {
        assert!(start.elapsed() < Duration::from_secs(2));
        let _ = call(link).await;
    }
}

#[tokio::test]
async fn nothing_is_left_behind() {
    let mut server = Server::start(&[]);
    assert_eq!(tasks(), 0);
    let healthy = link(&server).await;
    let route = healthy.route().unwrap();
    assert_eq!(tasks(), 1, "the connection's own");
    drop(healthy);
    let ping = route.send(redis::cmd("PING"), Instant::now() + ms(100));
    assert!(ping.await.is_ok_and(|reply| reply.is_ok()));
    drop(route);
    until("the connection ends with its last handle", || tasks() == 0).await;
    until("the server sees it", || clients(&server) == 0).await;

    let down = link(&server).await;
    server.kill();
    until("it is noticed", || reason(&down).is_some()).await;
    until("it is being mended", || tasks() == 1).await;
    // In the middle of a pause, or of an attempt.
    tokio::time::sleep(ms(200)).await;
    drop(down);
    until("mending ends with the last handle", || tasks() == 0).await;

    server.restart();
    let silent = link(&server).await;
    server.signal("-STOP");
    for _ in 0..3 {
        let _ = call(&silent).await;
    }
    tokio::time::sleep(ms(100)).await;
    drop(silent);
    until("an attempt ends with the last handle", || tasks() == 0).await;
    server.signal("-CONT");
}

#[test]
fn outlives_its_runtime() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let mut server = Server::start(&[]);
    let first = runtime();
    let link = first.block_on(async {
        let link = link(&server).await;
        call(&link).await.unwrap();
        link
    });
    drop(first);
    runtime().block_on(async { recovers(&link).await });

    // Also when it was being mended there.
    let second = runtime();
    second.block_on(async {
        recovers(&link).await;
        server.kill();
        until("it is noticed", || reason(&link).is_some()).await;
    });
    drop(second);
    assert!(link.route().is_err());
    server.restart();
    runtime().block_on(async { recovers(&link).await });
    assert!(link.route().is_err() || link.state() == LinkState::Closed);
}

/// A connection that answers as it is told.
#[derive(Clone, Default)]
struct Scripted {
    answers: Arc<Mutex<VecDeque<Result<Value, RedisError>>>>,
    probes: Arc<AtomicUsize>,
    answers_probes: Arc<AtomicUsize>,
}

impl ConnectionLike for Scripted {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            if command.args_iter().next() == Some(redis::Arg::Simple(b"TIME")) {
                self.probes.fetch_add(1, Ordering::SeqCst);
                if self.answers_probes.load(Ordering::SeqCst) == 0 {
                    std::future::pending::<()>().await;
                }
                return Ok(Value::Array(vec![Value::Int(1), Value::Int(1)]));
            }
            let answer = self.answers.lock().unwrap().pop_front();
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn get_db(&self) -> i64 {
        0
    }
}

impl Scripted {
    fn answer(&self, line: &str) {
        let answer = redis::parse_redis_value(format!("{line}\r\n").as_bytes()).unwrap();
        self.answers.lock().unwrap().push_back(Ok(answer));
    }
}

#[tokio::test(start_paused = true)]
async fn a_given_connection_has_a_breaker_with_one_probe_at_a_time() {
    let connection = Scripted::default();
    let link = Link::given(connection.clone(), 5);
    for _ in 0..5 {
        assert_eq!(call(&link).await, Err(StoreErrorKind::Timeout));
    }
    assert_eq!(reason(&link), Some(Class::Timeout));
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        assert_eq!(call(&link).await, Err(StoreErrorKind::Unavailable));
        tokio::time::sleep(ms(1)).await;
    }
    // Each waits a second for its answer, after a pause of up to one.
    let probes = connection.probes.load(Ordering::SeqCst);
    assert!((5..=9).contains(&probes), "{probes}");
    assert_eq!(tasks(), 1);

    connection.answers_probes.store(1, Ordering::SeqCst);
    until("a probe is answered", || reason(&link).is_none()).await;
    // On trial: one failure is enough, until a call has been answered.
    connection.answer("-LOADING Redis is loading the dataset in memory");
    assert_eq!(call(&link).await, Err(StoreErrorKind::Unavailable));
    assert_eq!(reason(&link), Some(Class::Loading));
    until("a probe is answered", || reason(&link).is_none()).await;
    connection.answer("+OK");
    assert_eq!(call(&link).await, Ok(Value::Okay));
    connection.answer("-LOADING Redis is loading the dataset in memory");
    assert_eq!(call(&link).await, Err(StoreErrorKind::Unavailable));
    assert_eq!(reason(&link), None);
    until("nothing runs while all is well", || tasks() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_no_outage_leave_the_breaker_closed() {
    let connection = Scripted::default();
    let link = Link::given(connection.clone(), 5);
    for _ in 0..3 {
        for line in [
            "-NOSCRIPT No matching script.",
            "-CROSSSLOT Keys in request don't hash to the same slot",
            "-MOVED 1 127.0.0.1:7000",
            "-CLUSTERDOWN Hash slot not served",
            "-OOM command not allowed when used memory > 'maxmemory'.",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
            "-ERR user_script:1: boom script: 82903a, on @user_script:1.",
        ] {
            connection.answer(line);
            assert!(call(&link).await.is_err());
            assert_eq!(reason(&link), None, "{line}");
        }
    }
    for class in [
        "-READONLY You can't write",
        "-BUSY Redis is busy",
        "-NOAUTH Authentication required.",
    ] {
        for _ in 0..5 {
            connection.answer(class);
            let _ = call(&link).await;
        }
        assert!(reason(&link).is_some(), "{class}");
        connection.answers_probes.store(1, Ordering::SeqCst);
        until("a probe is answered", || reason(&link).is_none()).await;
        connection.answer("+OK");
        call(&link).await.unwrap();
    }
    drop(link);
}

#[tokio::test(start_paused = true)]
async fn probing_ends_with_the_last_handle() {
    let connection = Scripted::default();
    let link = Link::given(connection, 5);
    let route = link.route().unwrap();
    for _ in 0..5 {
        let _ = call(&link).await;
    }
    assert_eq!(tasks(), 1);
    drop(link);
    tokio::time::sleep(ms(500)).await;
    assert_eq!(tasks(), 1);
    drop(route);
    until("probing ends", || tasks() == 0).await;
}

#[test]
fn a_given_connection_needs_no_runtime() {
    let link = Link::given(Scripted::default(), 5);
    let fail = |link: &Link| {
        link.route()
            .unwrap()
            .report(Instant::now(), Instant::now(), Report::Failed(Class::Io));
    };
    for _ in 0..5 {
        fail(&link);
    }
    assert_eq!(reason(&link), Some(Class::Io));
    // Nobody can probe, so after the pause a call does.
    let start = std::time::Instant::now();
    while link.route().is_err() {
        assert!(start.elapsed() < Duration::from_secs(5));
        std::thread::sleep(ms(5));
    }
    assert!(start.elapsed() >= ms(90), "{:?}", start.elapsed());
    fail(&link);
    assert_eq!(reason(&link), Some(Class::Io));
    let start = std::time::Instant::now();
    while link.route().is_err() {
        assert!(start.elapsed() < Duration::from_secs(5));
        std::thread::sleep(ms(5));
    }
    link.route()
        .unwrap()
        .report(Instant::now(), Instant::now(), Report::Answered);
    fail(&link);
    assert_eq!(reason(&link), None);
}
