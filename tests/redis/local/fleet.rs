//! C1 with all that is local, from several processes: what was used when, by the machine's clock, which is the server's.

mod worker;

use std::collections::BTreeMap;
use std::env;
use std::process::{Command, Stdio};

use tollgate::{Algorithm, Quota};

use self::worker::{Seen, flood, micros, pace};
use crate::server::{Server, Version};

/// Where a worker finds the server. Set for the processes that the tests start.
const URL: &str = "TOLLGATE_TEST_LOCAL_URL";

/// What a worker does.
const TASK: &str = "TOLLGATE_TEST_LOCAL_TASK";

/// When a worker begins, in microseconds since the epoch.
const BEGIN: &str = "TOLLGATE_TEST_LOCAL_BEGIN";

const PROCESSES: usize = 4;

/// Runs the processes, and returns what each of them saw.
fn run(server: &Server, task: &str, begin: u64) -> Vec<Seen> {
    let program = env::current_exe().expect("it runs");
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(&program)
                .args(["--exact", "local::fleet::worker::worker", "--nocapture"])
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
