//! C6, C8, C9: what callers leave behind whose runtime has ended, or rests.

use std::thread;
use std::time::Duration;

use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};
use tollgate::{FailurePolicy, Limiter, Quota, RedisStore};

use crate::callers::{acquire, ask, ms, runtime};
use crate::proxy::{Mode, Proxy};
use crate::server::{Server, Version};
use crate::support::{YEAR, connect, until, used};

const QUOTA: Quota = Quota::new(100, YEAR);
const LATER: Duration = Duration::from_secs(5);

/// A server behind a proxy, and a limiter that waits for 200 ms and has been answered once.
struct Setup {
    server: Server,
    store: RedisStore,
    limiter: Limiter,
    _proxy: Proxy,
}

impl Setup {
    async fn with(mode: Mode) -> Self {
        let server = Server::start(Version::V7).await;
        let proxy = Proxy::start(server.port()).await;
        let store = connect(&proxy.url()).await;
        let limiter = Limiter::new(store.clone(), QUOTA)
            .name("test")
            .failure_policy(FailurePolicy::Deny)
            .deadline(ms(200));
        assert!(limiter.check("warm").await.is_allowed());
        proxy.set(mode);
        Self {
            server,
            store,
            limiter,
            _proxy: proxy,
        }
    }

    async fn comes_back(&self) {
        until("the grant is given back", LATER, async || {
            self.store.stats().late_grants == 1 && used(&self.server, QUOTA, "k").await == 0
        })
        .await;
    }
}

const fn replies_after(delay: u64) -> Mode {
    Mode::Delay {
        commands: Duration::ZERO,
        replies: ms(delay),
    }
}

/// On a thread of its own, where another runtime can be driven.
fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    block_in_place(|| thread::spawn(work).join().expect("it ends"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_grant_comes_back_whose_caller_went_with_its_runtime() {
    let setup = Setup::with(replies_after(100)).await;
    let limiter = setup.limiter.clone();
    elsewhere(move || runtime().block_on(async { timeout(ms(30), limiter.check("k")).await.is_err() }));
    setup.comes_back().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_grant_comes_back_whose_task_went_with_its_runtime() {
    let setup = Setup::with(replies_after(100)).await;
    let limiter = setup.limiter.clone();
    elsewhere(move || {
        let runtime = runtime();
        runtime.spawn(async move { limiter.check("k").await });
        runtime.block_on(async { sleep(ms(20)).await });
    });
    setup.comes_back().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_late_grant_comes_back_though_the_runtime_of_who_was_refused_has_ended() {
    let setup = Setup::with(replies_after(400)).await;
    let limiter = setup.limiter.clone();
    let decision = elsewhere(move || runtime().block_on(limiter.check("k")));
    assert!(decision.is_degraded() && !decision.is_allowed(), "{decision:?}");
    setup.comes_back().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c9_that_a_deadline_passed_is_known_though_the_runtime_of_who_went_rests() {
    let setup = Setup::with(Mode::Mute).await;
    let store = setup.store.clone();
    let resting = elsewhere(move || {
        let runtime = runtime();
        let gone = runtime.block_on(async { timeout(ms(20), acquire(&store, "k", ms(200))).await });
        assert!(gone.is_err());
        runtime
    });
    until("a timeout is told", LATER, async || {
        let stats = setup.store.stats();
        (stats.timeouts, stats.in_flight) == (1, 0)
    })
    .await;
    elsewhere(move || drop(resting));
}

/// Who is told of it, and who has gone before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c9_a_timeout_is_told_once() {
    let setup = Setup::with(replies_after(500)).await;
    assert!(setup.limiter.check("k").await.is_degraded());
    assert!(timeout(ms(50), setup.limiter.check("k")).await.is_err());
    until("both grants came late", LATER, async || {
        setup.store.stats().late_grants == 2
    })
    .await;
    assert_eq!(setup.store.stats().timeouts, 2, "{:?}", setup.store.stats());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_who_is_first_polled_when_its_time_is_over_is_sent_nowhere() {
    let setup = Setup::with(Mode::Pass).await;
    let late = ask(&setup.store, "k", ms(5));
    let calls = setup.store.stats().calls;
    sleep(ms(6)).await;
    assert!(late.await.is_err());
    let stats = setup.store.stats();
    assert_eq!(
        (stats.calls, stats.timeouts, stats.in_flight),
        (calls, 0, 0),
        "{stats:?}"
    );
}
