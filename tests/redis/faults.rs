//! C7, C8, C9, B32: whatever happens to the server or the way there, checks are answered in time, by the policy,
//! and by the store again when it is over.

use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use redis::{Cmd, Value, cmd};
use tokio::task::{JoinHandle, JoinSet, LocalSet};
use tollgate::{Decision, FailurePolicy, Limiter, Quota, RedisStore, Source};

use crate::proxy::{Mode, Proxy};
use crate::server::{Server, Version};
use crate::support::{
    DEADLINE, LATE, NO_BOUND, NO_MEMORY, RECOVERY, YEAR, admitted, admitted_by_store,
    assert_every_key_expires, check_all, connect, until, used,
};

const POLICIES: [FailurePolicy; 3] = [
    FailurePolicy::Allow,
    FailurePolicy::Deny,
    FailurePolicy::Local { instances: 4 },
];

/// One limiter for each failure policy, with a counter of its own.
struct Watched {
    limiters: Vec<(FailurePolicy, &'static str, Limiter)>,
    /// What the store admitted, and how many checks there were, by limiter.
    admitted: [u64; 3],
    asked: [u64; 3],
}

const QUOTA: Quota = Quota::new(1_000, YEAR);

impl Watched {
    fn new(store: &RedisStore) -> Self {
        let limiter = |failure| {
            Limiter::new(store.clone(), QUOTA)
                .name("test")
                .failure_policy(failure)
        };
        let named = POLICIES.into_iter().zip(["allow", "deny", "local"]);
        Self {
            limiters: named
                .map(|(failure, key)| (failure, key, limiter(failure)))
                .collect(),
            admitted: [0; 3],
            asked: [0; 3],
        }
    }

    /// Checks so many times by every limiter at once, and answers whether none was degraded. None may be late.
    async fn check(&mut self, fault: &str, times: usize) -> bool {
        let mut checks = JoinSet::new();
        for (index, (_, key, limiter)) in self.limiters.iter().enumerate() {
            for _ in 0..times {
                let (key, limiter) = (*key, limiter.clone());
                checks.spawn(async move {
                    let start = Instant::now();
                    let decision = limiter.check(key).await;
                    (index, decision, start.elapsed())
                });
            }
        }
        let mut healthy = true;
        for (index, decision, took) in checks.join_all().await {
            assert!(took <= DEADLINE + LATE, "{fault}: {took:?} for {decision:?}");
            self.asked[index] += 1;
            self.admitted[index] += admitted_by_store(std::slice::from_ref(&decision));
            healthy &= !decision.is_degraded();
            let failure = self.limiters[index].0;
            assert!(
                decision.is_allowed() || decision.is_degraded(),
                "{fault}: {decision:?}"
            );
            match failure {
                FailurePolicy::Allow => assert!(decision.is_allowed(), "{fault}: {decision:?}"),
                FailurePolicy::Deny => assert!(!decision.is_denied(), "{fault}: it is a 503: {decision:?}"),
                _ => assert!(
                    decision.is_allowed() || decision.is_degraded(),
                    "{fault}: {decision:?}"
                ),
            }
        }
        healthy
    }

    /// The store comes to answer them all.
    async fn recover(&mut self, fault: &str) {
        until(&format!("recovery from {fault}"), RECOVERY, async || {
            self.check(fault, 1).await
        })
        .await;
        // And goes on.
        for _ in 0..3 {
            assert!(self.check(fault, 5).await, "{fault}: normal service");
        }
    }

    /// C6: every check is charged at most once, and what the store admitted is. Exactly that, if nothing can have
    /// been charged of which the reply was lost.
    async fn audit(&self, fault: &str, server: &Server, exactly: bool) {
        for (index, (_, key, _)) in self.limiters.iter().enumerate() {
            let (admitted, asked) = (self.admitted[index], self.asked[index]);
            let used = used(server, QUOTA, key).await;
            let most = if exactly { admitted } else { asked };
            assert!(
                admitted <= used && used <= most,
                "{fault}: {used} units for {asked} checks, {admitted} of them admitted, by {key}"
            );
        }
        assert_every_key_expires(server).await;
    }
}

/// Breaks the server, and mends it.
struct Fault {
    name: &'static str,
    break_it: &'static [&'static [&'static str]],
    mend_it: &'static [&'static [&'static str]],
    /// Open connections notice nothing: end them.
    ends_connections: bool,
}

static FAULTS: [Fault; 6] = [
    Fault {
        name: "out of memory",
        break_it: &[&NO_MEMORY],
        mend_it: &[&NO_BOUND],
        ends_connections: false,
    },
    Fault {
        name: "too few replicas",
        break_it: &[&["CONFIG", "SET", "min-replicas-to-write", "1"]],
        mend_it: &[&["CONFIG", "SET", "min-replicas-to-write", "0"]],
        ends_connections: false,
    },
    Fault {
        name: "demoted",
        break_it: &[&["REPLICAOF", "127.0.0.1", "1"]],
        mend_it: &[&["REPLICAOF", "NO", "ONE"]],
        ends_connections: false,
    },
    Fault {
        name: "demoted, and serves nothing stale",
        break_it: &[
            &["CONFIG", "SET", "replica-serve-stale-data", "no"],
            &["REPLICAOF", "127.0.0.1", "1"],
        ],
        mend_it: &[&["REPLICAOF", "NO", "ONE"]],
        ends_connections: false,
    },
    Fault {
        name: "no rights to scripts",
        break_it: &[&["ACL", "SETUSER", "default", "-eval", "-evalsha"]],
        mend_it: &[&["ACL", "SETUSER", "default", "+@all"]],
        ends_connections: false,
    },
    Fault {
        name: "no rights, and no connection",
        break_it: &[&["ACL", "SETUSER", "default", "-@all", "+acl", "+ping", "+client"]],
        mend_it: &[&["ACL", "SETUSER", "default", "+@all"]],
        ends_connections: true,
    },
];

/// Mends it, and the store answers again.
async fn suffer(server: &Server, store: &RedisStore, fault: &Fault) {
    let mut watched = Watched::new(store);
    assert!(
        watched.check(fault.name, 5).await,
        "{}: normal service",
        fault.name
    );
    for command in fault.break_it {
        let _: Value = server.cli(command).await;
    }
    if fault.ends_connections {
        server.end_connections().await;
    }
    let start = Instant::now();
    while start.elapsed() < DEADLINE * 4 {
        let healthy = watched.check(fault.name, 3).await;
        assert!(!healthy, "{}: nothing was broken", fault.name);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for command in fault.mend_it {
        let _: Value = server.cli(command).await;
    }
    watched.recover(fault.name).await;
    // Refusals say that nothing was done; only of a connection that ended nobody knows.
    watched.audit(fault.name, server, !fault.ends_connections).await;
}

/// Runs them all at once, as most of them wait most of the time. Each has servers of its own.
async fn together(tests: impl IntoIterator<Item = impl Future<Output = ()> + 'static>) {
    let local = LocalSet::new();
    let running: Vec<_> = tests.into_iter().map(|test| local.spawn_local(test)).collect();
    local.await;
    for test in running {
        if let Err(error) = test.await {
            resume_unwind(error.into_panic());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c9_b32_servers_that_refuse() {
    let mut tests = Vec::new();
    for fault in &FAULTS {
        let server = Server::start(Version::V7).await;
        tests.push(async move { suffer(&server, &connect(&server.url()).await, fault).await });
    }
    together(tests).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c9_b32_servers_that_refuse_on_a_connection_handed_in() {
    let mut tests = Vec::new();
    for fault in FAULTS.iter().filter(|fault| !fault.ends_connections) {
        let server = Server::start(Version::V7).await;
        tests.push(async move {
            let connection = server.connection().await.expect("it listens");
            suffer(&server, &RedisStore::new(connection), fault).await;
        });
    }
    together(tests).await;
}

/// A client of the test's own that goes on working while others are refused.
async fn control(server: &Server) -> impl AsyncFnMut(&[&str]) {
    let mut connection = server.connection().await.expect("it listens");
    async move |command: &[&str]| {
        let (name, arguments) = command.split_first().expect("a command");
        let sent: Cmd = cmd(name).arg(arguments).take();
        let _: Value = sent.query_async(&mut connection).await.expect("a reply");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c9_a_wrong_password_is_corrected() {
    let fault = "wrong password";
    let mut server = Server::start(Version::V7).await;
    server.set_password("first").await;
    let mut watched = Watched::new(&connect(&server.url()).await);
    assert!(watched.check(fault, 5).await);
    server.set_password("second").await;
    server.end_connections().await;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        assert!(!watched.check(fault, 1).await, "it knows the password");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.set_password("first").await;
    watched.recover(fault).await;
    watched.audit(fault, &server, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c9_no_client_fits_in() {
    let fault = "maxclients";
    let server = Server::start(Version::V7).await;
    let mut watched = Watched::new(&connect(&server.url()).await);
    assert!(watched.check(fault, 5).await);
    let mut control = control(&server).await;
    control(&["CONFIG", "SET", "maxclients", "1"]).await;
    control(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(500) {
        assert!(!watched.check(fault, 1).await, "it has a connection");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    control(&["CONFIG", "SET", "maxclients", "10000"]).await;
    watched.recover(fault).await;
    watched.audit(fault, &server, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c9_a_script_of_somebody_else_keeps_the_server_busy() {
    let fault = "busy";
    let server = Server::start_with(Version::V7, &["--busy-reply-threshold", "10"]).await;
    let mut watched = Watched::new(&connect(&server.url()).await);
    assert!(watched.check(fault, 5).await);
    let mut other = server.connection().await.expect("it listens");
    let busy: JoinHandle<()> = tokio::spawn(async move {
        let endless = cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .exec_async(&mut other)
            .await;
        assert!(endless.is_err(), "it is killed in the end");
    });
    // PING is refused too as soon as the server says that it is busy.
    until("the server is busy", RECOVERY, async || {
        server.try_cli::<Value>(&["PING"]).await.is_err()
    })
    .await;
    for _ in 0..5 {
        assert!(!watched.check(fault, 3).await, "nothing was broken");
    }
    let _ = server.try_cli::<Value>(&["SCRIPT", "KILL"]).await;
    busy.await.expect("it ends");
    watched.recover(fault).await;
    watched.audit(fault, &server, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c9_r25_a_server_is_killed_and_comes_back() {
    let fault = "kill -9";
    let mut server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let mut watched = Watched::new(&store);
    assert!(watched.check(fault, 5).await);
    server.kill();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        assert!(!watched.check(fault, 3).await, "nobody is there");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.revive().await;
    // What was counted has gone with the server.
    (watched.admitted, watched.asked) = ([0; 3], [0; 3]);
    watched.recover(fault).await;
    watched.audit(fault, &server, false).await;
}

/// What is still on its way arrives with connections that the store has given up, before they end.
async fn old_connections_end(server: &Server) {
    until("old connections end", RECOVERY, async || {
        let clients = server.info("connected_clients").await;
        clients.is_some_and(|clients| clients <= 2)
    })
    .await;
}

/// Stops the server for a while, under load. Nothing is charged afterwards for checks that the policy has answered.
async fn stopped(server: &Server, store: &RedisStore, time: Duration) {
    let fault = "SIGSTOP";
    let mut watched = Watched::new(store);
    assert!(watched.check(fault, 10).await);
    server.stop();
    let start = Instant::now();
    while start.elapsed() < time {
        assert!(!watched.check(fault, 5).await, "it is stopped");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.cont();
    watched.recover(fault).await;
    old_connections_end(server).await;
    watched.audit(fault, server, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_stopped_server_charges_nothing_afterwards() {
    let server = Server::start(Version::V7).await;
    stopped(&server, &connect(&server.url()).await, Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_stopped_server_charges_nothing_afterwards_on_a_connection_handed_in() {
    let server = Server::start(Version::V7).await;
    let connection = server.connection().await.expect("it listens");
    stopped(&server, &RedisStore::new(connection), Duration::from_secs(1)).await;
}

/// What the network does, for how long, and whether what the store charges is always told.
const NETWORKS: [(Mode, bool); 8] = [
    (
        Mode::Delay {
            commands: Duration::from_secs(1),
            replies: Duration::from_secs(1),
        },
        true,
    ),
    (
        Mode::Delay {
            commands: Duration::from_secs(2),
            replies: Duration::ZERO,
        },
        true,
    ),
    (
        Mode::Delay {
            commands: Duration::ZERO,
            replies: Duration::from_secs(2),
        },
        false,
    ),
    (Mode::Hold, true),
    (Mode::Blackhole, true),
    (Mode::Mute, false),
    (Mode::CutReply { after: 0 }, false),
    (Mode::Garbage(b"\0\xffwhat\r\n*1\r\n"), false),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c7_c8_c9_networks_that_fail() {
    let mut tests = Vec::new();
    for (mode, exactly) in NETWORKS {
        let server = Server::start(Version::V7).await;
        tests.push(async move { behind(&server, mode, exactly).await });
    }
    together(tests).await;
}

async fn behind(server: &Server, mode: Mode, exactly: bool) {
    let fault = format!("{mode:?}");
    let proxy = Proxy::start(server.port()).await;
    let mut watched = Watched::new(&connect(&proxy.url()).await);
    assert!(watched.check(&fault, 5).await, "{fault}: normal service");
    proxy.set(mode);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_200) {
        assert!(!watched.check(&fault, 3).await, "{fault}: nothing was broken");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    proxy.set(Mode::Pass);
    watched.recover(&fault).await;
    if exactly && mode != Mode::Blackhole {
        old_connections_end(server).await;
    }
    watched.audit(&fault, server, exactly).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c9_a_port_that_refuses_opens_again() {
    let fault = "connection refused";
    let server = Server::start(Version::V7).await;
    let mut proxy = Proxy::start(server.port()).await;
    let mut watched = Watched::new(&connect(&proxy.url()).await);
    assert!(watched.check(fault, 5).await);
    proxy.close().await;
    proxy.cut();
    until("the connection has ended", RECOVERY, async || {
        !watched.check(fault, 1).await
    })
    .await;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(500) {
        assert!(!watched.check(fault, 3).await, "nobody listens");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    proxy.open().await;
    watched.recover(fault).await;
    watched.audit(fault, &server, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_a_reply_that_is_cut_off_is_one_charge_at_most() {
    let server = Server::start(Version::V7).await;
    let proxy = Proxy::start(server.port()).await;
    let store = connect(&proxy.url()).await;
    let limiter = Limiter::new(store, QUOTA)
        .name("test")
        .failure_policy(FailurePolicy::Deny);
    for (index, after) in [0, 1, 3, 0, 1, 3, 0, 1, 3].into_iter().enumerate() {
        let (fresh, cut) = (format!("fresh{index}"), format!("cut{index}"));
        until("it answers", RECOVERY, async || {
            limiter.check("probe").await.source() == Source::Store
        })
        .await;
        assert_eq!(admitted(&check_all(&limiter, &fresh, 1).await), 1);
        let sent = proxy.sent("EVALSHA") + proxy.sent("EVAL");
        proxy.set(Mode::CutNextReply { after });
        let decision = limiter.check(cut.as_str()).await;
        assert!(decision.is_degraded(), "after {after} bytes: {decision:?}");
        until("it was sent", RECOVERY, async || {
            proxy.sent("EVALSHA") + proxy.sent("EVAL") > sent
        })
        .await;
        assert!(used(&server, QUOTA, &cut).await <= 1, "after {after} bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b33_a_slow_server_never_makes_a_429_of_fail_open() {
    let server = Server::start(Version::V7).await;
    let proxy = Proxy::start(server.port()).await;
    let store = connect(&proxy.url()).await;
    let limiter = Limiter::new(store, QUOTA)
        .name("test")
        .failure_policy(FailurePolicy::Allow);
    assert!(!limiter.check("k").await.is_degraded());
    proxy.set(Mode::slow(Duration::from_secs(2)));
    // 200 requests a second.
    let mut checks = JoinSet::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    for _ in 0..400 {
        ticks.tick().await;
        let limiter = limiter.clone();
        checks.spawn(async move {
            let start = Instant::now();
            (limiter.check("k").await, start.elapsed())
        });
    }
    let answers = checks.join_all().await;
    let mut times: Vec<_> = answers.iter().map(|(_, took)| *took).collect();
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100];
    assert!(p99 <= DEADLINE + Duration::from_millis(50), "{p99:?}");
    assert!(answers.iter().all(|(decision, _)| decision.is_allowed()));
    // While the breaker is open nobody waits.
    let at_once = times.iter().filter(|&&took| took < DEADLINE / 2).count();
    assert!(
        at_once > times.len() / 2,
        "{at_once} of {} were answered at once",
        times.len()
    );
    proxy.set(Mode::Pass);
    until("it answers again", RECOVERY, async || {
        !limiter.check("k").await.is_degraded()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_grant_whose_reply_is_late_is_given_back() {
    let server = Server::start(Version::V7).await;
    let proxy = Proxy::start(server.port()).await;
    let store = connect(&proxy.url()).await;
    let deny = Limiter::new(store, QUOTA)
        .name("test")
        .failure_policy(FailurePolicy::Deny);
    assert_eq!(admitted(&check_all(&deny, "k", 1).await), 1);
    let decisions: Vec<Decision> = {
        proxy.set(Mode::Delay {
            commands: Duration::ZERO,
            replies: DEADLINE * 3,
        });
        check_all(&deny, "k", 4).await
    };
    assert!(decisions.iter().all(Decision::is_degraded), "{decisions:?}");
    proxy.set(Mode::Pass);
    until("they are given back", RECOVERY, async || {
        used(&server, QUOTA, "k").await == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_grants_of_callers_that_have_gone_are_given_back() {
    let server = Server::start(Version::V7).await;
    let proxy = Proxy::start(server.port()).await;
    let limiter = Limiter::new(connect(&proxy.url()).await, QUOTA)
        .name("test")
        .failure_policy(FailurePolicy::Deny)
        .deadline(Duration::from_secs(2));
    assert_eq!(admitted(&check_all(&limiter, "k", 1).await), 1);
    proxy.set(Mode::slow(Duration::from_millis(20)));
    let mut staying = JoinSet::new();
    let mut leaving = Vec::new();
    for index in 0..200_u64 {
        let task = limiter.clone();
        if index % 2 == 0 {
            staying.spawn(async move { task.check("k").await });
        } else {
            leaving.push(tokio::spawn(async move { task.check("k").await }));
        }
        if index % 20 == 0 {
            tokio::time::sleep(Duration::from_millis(index % 7)).await;
        }
    }
    let mut finished = Vec::new();
    for task in leaving {
        task.abort();
        finished.extend(task.await);
    }
    // Nobody else is harmed.
    assert_eq!(admitted(&staying.join_all().await), 100);
    proxy.set(Mode::Pass);
    let expected = 1 + 100 + admitted_by_store(&finished);
    until("they are given back", RECOVERY, async || {
        used(&server, QUOTA, "k").await == expected
    })
    .await;
}
