//! C1 with all that is local, from several processes: what was used when, by the machine's clock, which is the server's.

use std::collections::BTreeMap;
use std::env;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;
use tollgate::{Algorithm, FailurePolicy, Lease, Limiter, Quota, Rate, RedisStore, Source};

use crate::server::{Server, Version};
use crate::support::LONG;

/// Where a worker finds the server. Set for the processes that the tests start.
const URL: &str = "TOLLGATE_TEST_LOCAL_URL";

/// What a worker does.
const TASK: &str = "TOLLGATE_TEST_LOCAL_TASK";

/// When a worker begins, in microseconds since the epoch.
const BEGIN: &str = "TOLLGATE_TEST_LOCAL_BEGIN";

const PROCESSES: usize = 4;

/// All want as much as they can get, after having wanted little, so that units are held when the rush begins.
mod flood {
    use super::*;

    pub(super) const WINDOW: Duration = Duration::from_millis(500);
    pub(super) const LIMIT: u64 = 400;
    /// Decisions of each process, at least.
    pub(super) const DECISIONS: u64 = 255_000;
    /// Parts of a window: a walk, a rush, and a rest.
    pub(super) const WALK: u64 = 4;
    pub(super) const RUSH: u64 = 20;
    pub(super) const REST: u64 = 2;
    pub(super) const TASKS: u64 = 4;

    pub(super) fn lease() -> Lease {
        Lease::new().max_percent(40).lifetime(WINDOW / 4)
    }

    pub(super) fn quotas() -> Vec<Quota> {
        let quota = Quota::new(LIMIT, WINDOW);
        vec![
            quota,
            quota.slots(64),
            quota.fixed_window(),
            Quota::token_bucket(Rate::new(LIMIT, WINDOW), LIMIT / 2),
        ]
    }
}

/// All together want twice as much as there is.
mod pace {
    use super::*;

    pub(super) const WINDOW: Duration = Duration::from_secs(2);
    pub(super) const LIMIT: u64 = 2_400;
    pub(super) const WINDOWS: u32 = 3;

    pub(super) fn lease() -> Lease {
        Lease::new().lifetime(WINDOW / 100)
    }

    pub(super) fn quotas() -> Vec<Quota> {
        let quota = Quota::new(LIMIT, WINDOW);
        vec![
            quota,
            quota.fixed_window(),
            Quota::token_bucket(Rate::new(LIMIT, WINDOW), LIMIT / 4),
        ]
    }
}

fn micros() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_micros()).expect("some decades")
}

fn limiter(store: &RedisStore, quota: Quota, lease: Lease) -> Limiter {
    Limiter::new(store.clone(), quota)
        .name("fleet")
        .lease(lease)
        .failure_policy(FailurePolicy::Deny)
        .deadline(LONG)
}

/// What a process saw.
#[derive(Debug, Default)]
struct Seen {
    decisions: u64,
    leased: u64,
    denied_here: u64,
    /// By quota.
    used: BTreeMap<usize, Vec<u64>>,
}

impl Seen {
    fn note(&mut self, Checked { index, source, at }: Checked) {
        self.decisions += 1;
        self.leased += u64::from(source == Source::Lease);
        self.denied_here += u64::from(source == Source::DenyCache);
        if let Some(at) = at {
            self.used.entry(index).or_default().push(at);
        }
    }

    fn add(&mut self, other: Self) {
        self.decisions += other.decisions;
        self.leased += other.leased;
        self.denied_here += other.denied_here;
        for (index, times) in other.used {
            self.used.entry(index).or_default().extend(times);
        }
    }

    fn print(&self) {
        println!("seen {} {} {}", self.decisions, self.leased, self.denied_here);
        for (index, times) in &self.used {
            let times: Vec<String> = times.iter().map(u64::to_string).collect();
            println!("used {index} {}", times.join(" "));
        }
    }

    fn read(&mut self, log: &str) {
        for line in log.lines() {
            // The harness writes its own words before the first.
            if let Some((_, counts)) = line.split_once("seen ") {
                let counts: Vec<u64> = counts
                    .split(' ')
                    .map(|count| count.parse().expect("a number"))
                    .collect();
                self.decisions += counts[0];
                self.leased += counts[1];
                self.denied_here += counts[2];
            } else if let Some(used) = line.strip_prefix("used ") {
                let mut numbers = used
                    .split(' ')
                    .map(|number| number.parse::<u64>().expect("a number"));
                let index = numbers.next().expect("a quota") as usize;
                self.used.entry(index).or_default().extend(numbers);
            }
        }
    }
}

/// A check of a quota, and when it was allowed.
struct Checked {
    index: usize,
    source: Source,
    at: Option<u64>,
}

/// Checks once.
///
/// The process has one thread, and what is answered here is answered in one go: what is paid from a lease had been taken before
/// the clock was read, and is used no later than the lease allows.
async fn check(limiter: &Limiter, index: usize) -> Checked {
    let before = micros();
    let decision = limiter.check(index).await;
    assert!(!decision.is_degraded(), "{decision:?}");
    let source = decision.source();
    let at = match source {
        Source::Lease => before,
        _ => decision.now().as_micros(),
    };
    Checked {
        index,
        source,
        at: decision.is_allowed().then_some(at),
    }
}

/// Not a test: what the processes run.
#[tokio::test]
async fn worker() {
    let (Ok(url), Ok(task)) = (env::var(URL), env::var(TASK)) else {
        return;
    };
    let store = RedisStore::connect(&url).await.expect("a fit server");
    let seen = if task == "flood" {
        flood(&store).await
    } else {
        pace(&store).await
    };
    seen.print();
}

async fn flood(store: &RedisStore) -> Seen {
    let limiters: Vec<Limiter> = flood::quotas()
        .into_iter()
        .map(|quota| limiter(store, quota, flood::lease()))
        .collect();
    let begin = micros();
    let mut tasks = JoinSet::new();
    for _ in 0..flood::TASKS {
        let limiters = limiters.clone();
        tasks.spawn(async move {
            let mut seen = Seen::default();
            let part = flood::WINDOW.as_micros() as u64 / 8;
            loop {
                let parts = (micros() - begin) / part;
                // Each has seen two rushes and what follows.
                let length = flood::WALK + flood::RUSH + flood::REST;
                if seen.decisions >= flood::DECISIONS / flood::TASKS && parts >= 2 * length {
                    return seen;
                }
                let phase = parts % length;
                if phase >= flood::WALK + flood::RUSH {
                    sleep(Duration::from_millis(1)).await;
                    continue;
                }
                let is_rush = phase >= flood::WALK;
                for (index, limiter) in limiters.iter().enumerate() {
                    for _ in 0..if is_rush { 16 } else { 1 } {
                        seen.note(check(limiter, index).await);
                    }
                    // What is answered here gives way to nobody.
                    yield_now().await;
                }
                if !is_rush {
                    sleep(Duration::from_millis(8)).await;
                }
            }
        });
    }
    let mut all = Seen::default();
    for seen in tasks.join_all().await {
        all.add(seen);
    }
    all
}

async fn pace(store: &RedisStore) -> Seen {
    let limiters: Vec<Limiter> = pace::quotas()
        .into_iter()
        .map(|quota| limiter(store, quota, pace::lease()))
        .collect();
    let begin: u64 = env::var(BEGIN).expect("a time").parse().expect("a number");
    let window = pace::WINDOW.as_micros() as u64;
    let length = window * u64::from(pace::WINDOWS);
    let (mut seen, mut asked) = (Seen::default(), 0);
    let mut checks = JoinSet::new();
    loop {
        let passed = micros().saturating_sub(begin);
        if passed >= length {
            break;
        }
        // Each process wants its part of twice the limit.
        let due = passed * 2 * pace::LIMIT / PROCESSES as u64 / window;
        while asked < due {
            asked += 1;
            for (index, limiter) in limiters.iter().enumerate() {
                let limiter = limiter.clone();
                checks.spawn(async move { check(&limiter, index).await });
            }
        }
        while let Some(checked) = checks.try_join_next() {
            seen.note(checked.expect("it ends"));
        }
        sleep(Duration::from_millis(1)).await;
    }
    for checked in checks.join_all().await {
        seen.note(checked);
    }
    seen
}

/// Runs the processes, and returns what each of them saw.
fn run(server: &Server, task: &str, begin: u64) -> Vec<Seen> {
    let program = env::current_exe().expect("it runs");
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(&program)
                .args(["--exact", "local::fleet::worker", "--nocapture"])
                .env(URL, server.url())
                .env(TASK, task)
                .env(BEGIN, begin.to_string())
                .stdout(Stdio::piped())
                .spawn()
                .expect("it starts")
        })
        .collect();
    let seen = children.into_iter().map(|child| {
        let output = child.wait_with_output().expect("it ends");
        let log = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success(), "{log}");
        let mut seen = Seen::default();
        seen.read(&log);
        seen
    });
    seen.collect()
}

/// The times of use by quota, sorted, of all processes together.
fn merge(all: &[Seen], index: usize) -> Vec<u64> {
    let mut times: Vec<u64> = all
        .iter()
        .flat_map(|seen| seen.used.get(&index).cloned().unwrap_or_default())
        .collect();
    times.sort_unstable();
    times
}

/// The most that was used in a window, of a bucket less what was refilled, which no limit is below.
fn most(quota: Quota, times: &[u64]) -> u64 {
    let window = quota.window().as_micros() as u64;
    match quota.algorithm().expect("it is limited") {
        Algorithm::FixedWindow => {
            let mut counts = BTreeMap::<u64, u64>::new();
            for time in times {
                *counts.entry(time / window).or_default() += 1;
            }
            counts.into_values().max().unwrap_or(0)
        }
        Algorithm::TokenBucket => {
            let rate = i128::from(quota.rate().expect("a bucket").units_per_window());
            let window = i128::from(window);
            let (mut lowest, mut most) = (i128::MAX, 0);
            for (count, &time) in times.iter().enumerate() {
                // Units that time has not paid off, in parts of a unit, before and after this one.
                let before = count as i128 * window - rate * i128::from(time);
                lowest = lowest.min(before);
                most = most.max(before + window - lowest);
            }
            u64::try_from((most + window - 1) / window).expect("few")
        }
        _ => {
            let mut first = 0;
            let mut most = 0;
            for (last, time) in times.iter().enumerate() {
                while times[first] + window <= *time {
                    first += 1;
                }
                most = most.max(last + 1 - first);
            }
            most as u64
        }
    }
}

#[tokio::test]
async fn c1_a_million_decisions_of_four_processes() {
    let server = Server::start(Version::V7).await;
    let all = run(&server, "flood", 0);
    let sum = |count: fn(&Seen) -> u64| all.iter().map(count).sum::<u64>();
    let (decisions, leased, denied) = (
        sum(|it| it.decisions),
        sum(|it| it.leased),
        sum(|it| it.denied_here),
    );
    println!("{decisions} decisions, {leased} from leases, {denied} denied without the server");
    assert!(decisions >= 1_000_000, "{decisions}");
    assert!(
        leased > 0 && denied > decisions / 2,
        "{leased} and {denied} of {decisions}"
    );
    for (index, quota) in flood::quotas().into_iter().enumerate() {
        let times = merge(&all, index);
        let most = most(quota, &times);
        println!("{quota:?}: {} used, {most} at most at once", times.len());
        let limit = quota.limit().expect("it is limited");
        assert!(most <= limit, "{most} by {quota:?}");
        // A bucket is never full again.
        let is_full = most > limit * 9 / 10 || quota.algorithm() == Some(Algorithm::TokenBucket);
        assert!(is_full, "{most} by {quota:?}: not saturated");
    }
}

#[tokio::test]
async fn the_limit_is_used_up_and_all_have_a_part() {
    let server = Server::start(Version::V7).await;
    // At the beginning of a window, when all have started.
    let window = pace::WINDOW.as_micros() as u64;
    let begin = (micros() / window + 2) * window;
    let all = run(&server, "pace", begin);
    let leased: u64 = all.iter().map(|seen| seen.leased).sum();
    println!("{leased} from leases");
    for (index, quota) in pace::quotas().into_iter().enumerate() {
        let times = merge(&all, index);
        let limit = quota.limit().expect("it is limited");
        let most = most(quota, &times);
        assert!(most <= limit, "{most} by {quota:?}");
        // The first window fills up, and so do those after it; a bucket is full at first.
        let end = begin + window * u64::from(pace::WINDOWS);
        let used = times
            .iter()
            .filter(|&&time| time >= begin + window && time < end)
            .count() as u64;
        let limit = pace::LIMIT * u64::from(pace::WINDOWS - 1);
        let percent = used as f64 * 100.0 / limit as f64;
        let parts: Vec<usize> = all
            .iter()
            .map(|seen| seen.used.get(&index).map_or(0, Vec::len))
            .collect();
        println!("{quota:?}: {percent:.2} % used, parts {parts:?}");
        assert!(percent >= 99.0, "{percent} % by {quota:?}");
        let fair = times.len() / PROCESSES;
        assert!(
            parts.iter().all(|&part| part > fair / 20),
            "{parts:?} by {quota:?}"
        );
    }
}
