//! What a process of the fleet does.

use std::collections::BTreeMap;
use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;
use tollgate::{FailurePolicy, Lease, Limiter, Quota, Rate, RedisStore, Source};

use super::{BEGIN, PROCESSES, TASK, URL};
use crate::support::LONG;

/// All want as much as they can get, after having wanted little, so that units are held when the rush begins.
pub(super) mod flood {
    use super::*;

    pub(in super::super) const WINDOW: Duration = Duration::from_millis(500);
    pub(in super::super) const LIMIT: u64 = 400;
    /// Decisions of each process, at least.
    pub(in super::super) const DECISIONS: u64 = 255_000;
    /// Parts of a window: a walk, a rush, and a rest.
    pub(in super::super) const WALK: u64 = 4;
    pub(in super::super) const RUSH: u64 = 20;
    pub(in super::super) const REST: u64 = 2;
    pub(in super::super) const TASKS: u64 = 4;

    pub(in super::super) fn lease() -> Lease {
        Lease::new().max_percent(40).lifetime(WINDOW / 4)
    }

    pub(in super::super) fn quotas() -> Vec<Quota> {
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
pub(super) mod pace {
    use super::*;

    pub(in super::super) const WINDOW: Duration = Duration::from_secs(2);
    pub(in super::super) const LIMIT: u64 = 2_400;
    pub(in super::super) const WINDOWS: u32 = 3;

    pub(in super::super) fn lease() -> Lease {
        Lease::new().lifetime(WINDOW / 100)
    }

    pub(in super::super) fn quotas() -> Vec<Quota> {
        let quota = Quota::new(LIMIT, WINDOW);
        vec![
            quota,
            quota.fixed_window(),
            Quota::token_bucket(Rate::new(LIMIT, WINDOW), LIMIT / 4),
        ]
    }
}

pub(super) fn micros() -> u64 {
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
pub(super) struct Seen {
    pub(super) decisions: u64,
    pub(super) leased: u64,
    pub(super) denied_here: u64,
    /// By quota.
    pub(super) used: BTreeMap<usize, Vec<u64>>,
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

    pub(super) fn read(&mut self, log: &str) {
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
