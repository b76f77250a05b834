//! C6: handles that settle over a network that loses what they say: each unit is given back at most once.

use tollgate::{ChargeHandle, FailurePolicy, Limiter, Quota};

use crate::proxy::{Mode, Proxy};
use crate::server::{Server, Version};
use crate::support::{DEADLINE, RECOVERY, YEAR, connect, strict, until, used};

const QUOTA: Quota = Quota::new(1_000, YEAR);
const HANDLES: u64 = 40;
const RESERVED: u64 = 10;

/// So many handles of one key, over the network.
async fn reserve(limiter: &Limiter) -> Vec<ChargeHandle> {
    let mut handles = Vec::new();
    for _ in 0..HANDLES {
        handles.push(limiter.reserve("alice", RESERVED).await.expect("there is room"));
    }
    handles
}

/// Settles all of them while the network fails, and once more when it does not.
async fn settle_through(mode: Mode, real: u64) -> (u64, u64) {
    let server = Server::start(Version::V7).await;
    let proxy = Proxy::start(server.port()).await;
    let store = connect(&proxy.url()).await;
    let limiter = strict(&store, QUOTA);
    let handles = reserve(&limiter).await;
    assert_eq!(used(&server, QUOTA, "alice").await, HANDLES * RESERVED);

    proxy.set(mode);
    for handle in &handles {
        assert!(handle.settle("test", real));
    }
    let unsure = limiter.shutdown().await;
    proxy.set(Mode::Pass);
    // Nobody has a second say, whatever became of the first.
    for handle in &handles {
        assert!(!handle.settle("test", 0));
        handle.give_back();
    }
    // With an ordinary deadline, as what is asked over a connection that has lost bytes waits for all of it.
    let hasty = limiter.clone().deadline(DEADLINE);
    until("it answers again", RECOVERY, async || {
        !hasty.check_cost("alice", 0).await.is_degraded()
    })
    .await;
    // What was still under way is decided by now: it had its time, and the network works.
    limiter.shutdown().await;
    let settled = used(&server, QUOTA, "alice").await;

    // The counter is as good as any: what is left is there to take, and not a unit more.
    let left = 1_000 - settled;
    assert!(limiter.check_cost("alice", left).await.is_allowed());
    assert!(limiter.check("alice").await.is_denied());
    (settled, unsure)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_replies_that_are_lost_give_nothing_back_twice() {
    let (all, none) = (HANDLES * RESERVED, HANDLES * 3);
    for mode in [
        Mode::Mute,
        Mode::CutReply { after: 0 },
        Mode::CutNextReply { after: 0 },
        Mode::CutNextReply { after: 3 },
        Mode::Blackhole,
    ] {
        let (settled, _) = settle_through(mode, 3).await;
        assert!((none..=all).contains(&settled), "{mode:?}: {settled}");
        assert_eq!((settled - none) % 7, 0, "{mode:?}: each all or nothing");
        if mode == Mode::Blackhole {
            assert_eq!(settled, all, "nothing has arrived: the strict side");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_replies_that_are_lost_charge_nothing_twice() {
    let (none, all) = (HANDLES * RESERVED, HANDLES * 14);
    for mode in [
        Mode::Mute,
        Mode::CutNextReply { after: 0 },
        Mode::CutNextReply { after: 3 },
        Mode::Blackhole,
    ] {
        let (settled, _) = settle_through(mode, 14).await;
        assert!((none..=all).contains(&settled), "{mode:?}: {settled}");
        assert_eq!((settled - none) % 4, 0, "{mode:?}: each all or nothing");
        if mode == Mode::Blackhole {
            assert_eq!(settled, none, "nothing has arrived: the loose side");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_slow_network_arrives_before_the_end() {
    let mode = Mode::slow(std::time::Duration::from_millis(40));
    assert_eq!(settle_through(mode, 3).await, (HANDLES * 3, 0));
}

#[tokio::test]
async fn a_server_that_comes_back_hears_what_waited() {
    let server = Server::start(Version::V7).await;
    let mut proxy = Proxy::start(server.port()).await;
    let store = connect(&proxy.url()).await;
    let limiter = strict(&store, QUOTA).failure_policy(FailurePolicy::Local { instances: 1 });
    let handles = reserve(&limiter).await;
    // Nothing is sent to who cannot be reached, so that all of it can be sent again.
    proxy.close().await;
    proxy.cut();
    until("it is known to be away", RECOVERY, async || {
        limiter.check_cost("alice", 0).await.is_degraded()
    })
    .await;
    for handle in &handles {
        assert!(handle.settle("test", 1));
    }
    // Counted in this process, it is settled there, and at once.
    let local = limiter.reserve("alice", 5).await.expect("it counts here");
    local.give_back();
    proxy.open().await;
    let lost = limiter.shutdown().await;
    let settled = used(&server, QUOTA, "alice").await;
    assert_eq!(settled, HANDLES + lost * (RESERVED - 1));
    until("it answers again", RECOVERY, async || {
        !limiter.check_cost("alice", 0).await.is_degraded()
    })
    .await;
}
