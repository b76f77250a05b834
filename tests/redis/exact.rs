//! C1, C5, C12: exactly the limit, at any concurrency and whatever the script cache does.

use std::collections::BTreeMap;

use redis::cmd;
use tokio::task::JoinSet;
use tollgate::{Decision, Quota};

use crate::proxy::Proxy;
use crate::server::{Server, Version};
use crate::support::{
    DEADLINE, LONG, RECOVERY, YEAR, admitted, admitted_by_store, assert_every_key_expires,
    by_every_algorithm, check_all, connect, keys, strict, until, used,
};

#[tokio::test]
async fn r42_64_tasks_get_exactly_the_limit() {
    for version in Version::all() {
        let server = Server::start(version).await;
        let store = connect(&server.url()).await;
        for quota in by_every_algorithm(100, YEAR) {
            let limiter = strict(&store, quota);
            let mut tasks = JoinSet::new();
            for _ in 0..64 {
                let limiter = limiter.clone();
                tasks.spawn(async move {
                    let mut decisions = Vec::new();
                    for _ in 0..4 {
                        decisions.push(limiter.check("k").await);
                    }
                    admitted(&decisions)
                });
            }
            let total: usize = tasks.join_all().await.into_iter().sum();
            assert_eq!(total, 100, "{quota:?} on {version:?}");
            let denied = limiter.check("k").await;
            assert!(
                denied.retry_after().is_some(),
                "{quota:?} on {version:?}: {denied:?}"
            );
        }
        assert_every_key_expires(&server).await;
    }
}

#[tokio::test]
async fn b12_calls_in_one_tick_are_all_counted() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    for quota in by_every_algorithm(20, YEAR) {
        // One call of the store takes several, at one time of the server.
        let decisions = check_all(&strict(&store, quota), "k", 50).await;
        assert_eq!(admitted(&decisions), 20, "{quota:?}");
        let mut left: Vec<_> = decisions
            .iter()
            .filter(|it| it.is_allowed())
            .filter_map(Decision::remaining)
            .collect();
        left.sort_unstable();
        assert_eq!(left, (0..20).collect::<Vec<_>>(), "{quota:?}");
    }
}

#[tokio::test]
async fn c1_many_keys_at_once_each_get_their_limit() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    for quota in by_every_algorithm(3, YEAR) {
        let limiter = strict(&store, quota);
        let mut checks = JoinSet::new();
        for request in 0..2_000 {
            let limiter = limiter.clone();
            checks.spawn(async move {
                let key = request % 200;
                (key, limiter.check(key).await)
            });
        }
        let mut by_key = BTreeMap::<_, Vec<_>>::new();
        for (key, decision) in checks.join_all().await {
            by_key.entry(key).or_default().push(decision);
        }
        for (key, decisions) in by_key {
            assert_eq!(admitted(&decisions), 3, "{key} by {quota:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r22_b30_flushed_scripts_cost_nobody_an_answer() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    for quota in by_every_algorithm(1_500, YEAR) {
        let limiter = strict(&store, quota);
        let mut tasks = JoinSet::new();
        for _ in 0..32 {
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let mut decisions = Vec::new();
                while decisions.iter().filter(|it: &&Decision| it.is_denied()).count() < 5 {
                    decisions.push(limiter.check("k").await);
                    assert!(decisions.len() < 10_000, "never denied");
                }
                admitted(&decisions)
            });
        }
        let mut connection = server.connection().await.expect("it listens");
        let mut flushed = 0;
        let mut total = 0;
        while !tasks.is_empty() {
            while let Some(done) = tasks.try_join_next() {
                total += done.expect("it is answered");
            }
            let () = cmd("SCRIPT")
                .arg("FLUSH")
                .query_async(&mut connection)
                .await
                .expect("a reply");
            flushed += 1;
        }
        assert_eq!(total, 1_500, "{quota:?}");
        assert!(flushed > 10, "{flushed}");
    }
}

#[tokio::test]
async fn c6_a_flushed_script_charges_once() {
    for version in Version::all() {
        let server = Server::start(version).await;
        let store = connect(&server.url()).await;
        for quota in by_every_algorithm(100, YEAR) {
            let limiter = strict(&store, quota);
            for count in 1..=10 {
                let () = server.cli(&["SCRIPT", "FLUSH"]).await;
                assert_eq!(admitted(&check_all(&limiter, "k", 3).await), 3);
                assert_eq!(
                    used(&server, quota, "k").await,
                    3 * count,
                    "{quota:?} on {version:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn c6_corrections_survive_flushed_scripts() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    for quota in by_every_algorithm(10, YEAR) {
        let limiter = strict(&store, quota);
        let first = limiter.reserve("k", 1).await.expect("there is room");
        assert!(limiter.check("k").await.is_allowed());
        let () = server.cli(&["SCRIPT", "FLUSH"]).await;
        first.give_back_now().await.expect("it answers");
        let () = server.cli(&["SCRIPT", "FLUSH"]).await;
        assert_eq!(used(&server, quota, "k").await, 1, "{quota:?}");
        let () = server.cli(&["SCRIPT", "FLUSH"]).await;
        limiter.reset("k").await.expect("it answers");
        assert_eq!(used(&server, quota, "k").await, 0, "{quota:?}");
    }
}

#[tokio::test]
async fn b30_a_promoted_replica_knows_no_scripts_but_all_units() {
    let primary = Server::start_with(Version::V7, &["--repl-diskless-sync-delay", "0"]).await;
    let replica = Server::start(Version::V7).await;
    let port = primary.port().to_string();
    let () = replica.cli(&["REPLICAOF", "127.0.0.1", &port]).await;
    until("the replica follows", LONG, async || {
        replica.info("master_sync_in_progress").await == Some(0) && {
            let info: String = replica.cli(&["INFO", "replication"]).await;
            info.contains("master_link_status:up")
        }
    })
    .await;

    let quota = Quota::new(10, YEAR);
    let proxy = Proxy::start(primary.port()).await;
    let limiter = strict(&connect(&proxy.url()).await, quota).deadline(DEADLINE);
    assert_eq!(admitted(&check_all(&limiter, "k", 4).await), 4);
    until("the replica has it all", LONG, async || {
        primary.info("master_repl_offset").await == replica.info("master_repl_offset").await
    })
    .await;

    // The name now leads to the other one; the old connection ends a little later, as it does.
    let () = replica.cli(&["REPLICAOF", "NO", "ONE"]).await;
    proxy.lead_to(replica.port());
    let port = replica.port().to_string();
    let () = primary.cli(&["REPLICAOF", "127.0.0.1", &port]).await;
    let mut decisions = Vec::new();
    until("the new primary answers", RECOVERY, async || {
        decisions.push(limiter.check("k").await);
        admitted_by_store(&decisions) == 6
    })
    .await;
    assert_eq!(used(&replica, quota, "k").await, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r25_ended_connections_are_replaced() {
    let server = Server::start(Version::V7).await;
    let quota = Quota::new(1_000_000, YEAR);
    let limiter = strict(&connect(&server.url()).await, quota);
    let mut decisions = Vec::new();
    for _ in 0..20 {
        server.end_connections().await;
        until("it answers again", RECOVERY, async || {
            let decision = limiter.check("k").await;
            let answered = !decision.is_degraded();
            decisions.push(decision);
            answered
        })
        .await;
    }
    let used = used(&server, quota, "k").await;
    let (admitted, asked) = (admitted_by_store(&decisions), decisions.len() as u64);
    // Of a connection that breaks, nobody knows what it has done.
    assert!(admitted <= used && used <= asked, "{admitted} {used} {asked}");
}

#[tokio::test]
async fn c9_a_server_that_restarts_empty_counts_anew() {
    let mut server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    for quota in by_every_algorithm(5, YEAR) {
        let limiter = strict(&store, quota);
        assert_eq!(admitted(&check_all(&limiter, "k", 8).await), 5);
        server.restart().await;
        assert_eq!(keys(&server).await, Vec::<Vec<u8>>::new());
        let mut first = None;
        until("it answers again", RECOVERY, async || {
            first = Some(limiter.check("k").await).filter(|decision| !decision.is_degraded());
            first.is_some()
        })
        .await;
        assert_eq!(first.and_then(|first| first.remaining()), Some(4), "{quota:?}");
        assert_eq!(admitted(&check_all(&limiter, "k", 8).await), 4, "{quota:?}");
    }
}

#[tokio::test]
async fn c12_a_rolling_deploy_keeps_old_and_new_apart_or_together() {
    let server = Server::start(Version::V7).await;
    let (old, new) = (connect(&server.url()).await, connect(&server.url()).await);
    let quota = Quota::new(10, YEAR);
    assert_eq!(admitted(&check_all(&strict(&old, quota), "k", 6).await), 6);
    // Another limit is the same counter: a lower one is used up, a higher one has room at once.
    assert_eq!(
        admitted(&check_all(&strict(&new, Quota::new(5, YEAR)), "k", 3).await),
        0
    );
    assert_eq!(
        admitted(&check_all(&strict(&new, Quota::new(20, YEAR)), "k", 20).await),
        14
    );
    assert_eq!(admitted(&check_all(&strict(&old, quota), "k", 3).await), 0);
    // Another window or algorithm is another counter, which starts empty.
    let others = by_every_algorithm(10, YEAR).into_iter().skip(1);
    for other in others.chain([Quota::new(10, YEAR / 2), quota.slots(32)]) {
        let decisions = check_all(&strict(&new, other), "k", 12).await;
        assert_eq!(admitted(&decisions), 10, "{other:?}");
        assert_eq!(admitted(&check_all(&strict(&old, quota), "k", 3).await), 0);
    }
    assert_every_key_expires(&server).await;
}
