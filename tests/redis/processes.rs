//! C1 from many instances: eight processes, each a client of its own, on one key of each algorithm.

use std::collections::BTreeMap;
use std::env;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::{Algorithm, Key, Quota, Rate};

use crate::server::{Server, Version};
use crate::support::{connect, strict};

/// Where a worker finds the server. Set for the processes that the test starts.
const URL: &str = "TOLLGATE_TEST_WORKER_URL";

const PROCESSES: usize = 8;
const TIME: Duration = Duration::from_millis(2_500);
const WINDOW: Duration = Duration::from_millis(300);
const LIMIT: u64 = 40;

fn quotas() -> [Quota; 8] {
    let quota = Quota::new(LIMIT, WINDOW);
    [
        quota,
        quota.slots(8),
        quota.sliding_counter(),
        quota.fixed_window(),
        quota.fixed_window_offset(WINDOW / 3),
        quota.fixed_window_per_key(),
        Quota::token_bucket(Rate::new(LIMIT, WINDOW), LIMIT),
        Quota::token_bucket(Rate::new(LIMIT, WINDOW), 5),
    ]
}

/// Not a test: what the processes run. Prints the index of the quota and the stamp of each admission.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    let Ok(url) = env::var(URL) else { return };
    let store = connect(&url).await;
    let mut tasks = JoinSet::new();
    for (index, quota) in quotas().into_iter().enumerate() {
        for _ in 0..3 {
            let limiter = strict(&store, quota);
            tasks.spawn(async move {
                let mut admitted = Vec::new();
                let start = Instant::now();
                while start.elapsed() < TIME {
                    let decision = limiter.check(index).await;
                    assert!(!decision.is_degraded(), "{decision:?}");
                    if decision.is_allowed() {
                        admitted.push((index, decision.stamp().as_micros()));
                    }
                }
                admitted
            });
        }
    }
    for (index, stamp) in tasks.join_all().await.into_iter().flatten() {
        println!("admitted {index} {stamp}");
    }
}

/// The stamps by quota, sorted, of all processes together.
fn merge(logs: &[String]) -> BTreeMap<usize, Vec<u64>> {
    let mut merged = BTreeMap::<usize, Vec<u64>>::new();
    for line in logs.iter().flat_map(|log| log.lines()) {
        let Some((_, entry)) = line.split_once("admitted ") else {
            continue;
        };
        let (index, stamp) = entry.split_once(' ').expect("two numbers");
        let index = index.parse().expect("a number");
        merged
            .entry(index)
            .or_default()
            .push(stamp.parse().expect("a number"));
    }
    for stamps in merged.values_mut() {
        stamps.sort_unstable();
    }
    merged
}

#[tokio::test]
async fn c1_eight_processes_share_one_limit() {
    let server = Server::start(Version::V7).await;
    let program = env::current_exe().expect("it runs");
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(&program)
                .args(["--exact", "processes::worker", "--nocapture"])
                .env(URL, server.url())
                .stdout(Stdio::piped())
                .spawn()
                .expect("it starts")
        })
        .collect();
    let mut logs = Vec::new();
    let mut alone = Vec::new();
    for child in children {
        let output = child.wait_with_output().expect("it ends");
        let log = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success(), "{log}");
        alone.push(log.matches("admitted ").count());
        logs.push(log);
    }
    assert!(
        alone.iter().all(|&count| count > 0),
        "all had a part in it: {alone:?}"
    );
    let merged = merge(&logs);
    for (index, quota) in quotas().into_iter().enumerate() {
        let stamps = &merged[&index];
        let expected = LIMIT * u64::try_from(TIME.as_micros() / WINDOW.as_micros()).expect("few") * 3 / 4;
        assert!(
            stamps.len() as u64 >= expected,
            "{} of {quota:?}: not saturated",
            stamps.len()
        );
        assert_bound(quota, &Key::from(index), stamps);
    }
}

/// The bound that the contract states for each algorithm, on sorted stamps of one key.
fn assert_bound(quota: Quota, key: &Key, stamps: &[u64]) {
    let window = u64::try_from(quota.window().as_micros()).expect("some years");
    // The most in any half-open window that ends with an admission.
    let most_in_window = || {
        let mut first = 0;
        let mut most = 0;
        for (last, stamp) in stamps.iter().enumerate() {
            while stamps[first] + window <= *stamp {
                first += 1;
            }
            most = most.max((last + 1 - first) as u64);
        }
        most
    };
    match quota.algorithm().expect("it is limited") {
        Algorithm::SlidingWindow => assert!(most_in_window() <= LIMIT, "{} by {quota:?}", most_in_window()),
        Algorithm::SlidingCounter => {
            assert!(most_in_window() < 2 * LIMIT, "{} by {quota:?}", most_in_window());
        }
        Algorithm::FixedWindow => {
            let phase = blake3::hash(key.as_bytes());
            let phase = u64::from_be_bytes(phase.as_bytes()[..8].try_into().expect("eight bytes")) % window;
            let offset = quota
                .window_offset()
                .map_or(phase, |offset| offset.as_micros() as u64);
            let mut counts = BTreeMap::<u64, u64>::new();
            for stamp in stamps {
                *counts.entry((stamp - offset) / window).or_default() += 1;
            }
            assert!(
                counts.values().all(|&count| count <= LIMIT),
                "{counts:?} by {quota:?}"
            );
        }
        Algorithm::TokenBucket => {
            let (rate, burst) = (
                quota.rate().expect("a bucket"),
                quota.limit().expect("it is limited"),
            );
            let per_window = rate.units_per_window();
            for (first, begin) in stamps.iter().enumerate() {
                for (last, end) in stamps.iter().enumerate().skip(first) {
                    let refilled = (end - begin) * per_window / window;
                    let count = (last + 1 - first) as u64;
                    assert!(
                        count <= burst + refilled,
                        "{count} in {} µs by {quota:?}",
                        end - begin
                    );
                }
            }
        }
        other => panic!("no bound for {other:?}"),
    }
}
