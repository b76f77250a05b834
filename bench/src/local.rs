//! What a decision costs that needs no round trip, before a real server.
//!
//! Each round measures every operation once, those of a ratio one after the other and in turn; figures are medians over the
//! rounds, ratios medians of each round's ratio. Client and server share the machine.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use governor::RateLimiter;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;
use tollgate::{Key, Lease, Limiter, MemoryStore, Quota, RedisStore, Source};

use crate::harness::{now, runtime};
use crate::report::{Bar, Report, median};
use crate::server::{Console, Server, connect};

const BARS: [Bar; 5] = [
    Bar::at_most("denied_hot_vs_governor_check", 1.5, 1.5),
    Bar::at_least("leased_hot_vs_incr", 10.0, 10.0),
    Bar::at_most("leased_hot_p99_vs_memory", 5.0, 5.0),
    Bar::at_least("zipf_lease_gain", 3.0, 3.0),
    Bar::at_most("cold_key_cost", 1.05, 1.05),
];

const TASKS: usize = 64;
/// Short enough that a denial is remembered all the while.
const DENIED: u32 = 100_000;
const HOT: usize = 2_000_000;
const INCR: usize = 100_000;
const ZIPF_KEYS: usize = 100_000;
const ZIPF: usize = 600_000;
const COLD: usize = 60_000;
/// Nothing is denied, and a hot key is far from it.
const FAR: Quota = Quota::per_hour(1 << 32).slots(64);

/// With `part`, of the ratio alone whose name begins so.
pub(crate) fn run(rounds: usize, program: &str, part: &str) -> Result<Report, String> {
    let server = Server::start(program)?;
    let runtime = runtime();
    let mut report = Report {
        command: "local",
        bars: &BARS,
        ..Report::default()
    };
    let url = server.url();
    let wants = |what: &str| what.starts_with(part);
    if wants("denied") {
        denied(&runtime, &url, rounds, &mut report);
    }
    runtime.block_on(async {
        if wants("leased") {
            leased(&url, rounds, &mut report).await;
        }
        if wants("zipf") {
            zipf(&url, rounds, &mut report).await;
        }
        if wants("cold") {
            cold(&url, rounds, &mut report).await;
        }
        let version = Console::new(&url).await.version().await;
        report.notes.push(format!(
            "{rounds} rounds on redis-server {version} over loopback, TCP"
        ));
    });
    Ok(report)
}

/// One hot key that is denied, on one thread.
fn denied(runtime: &Runtime, url: &str, rounds: usize, report: &mut Report) {
    let store = runtime.block_on(store(url));
    let limiter = Limiter::new(store.clone(), Quota::per_hour(1));
    let key = Key::from("user:000001");
    let period = Duration::from_secs(3_600);
    let quota = governor::Quota::with_period(period).expect("not zero");
    let governor = RateLimiter::keyed(quota.allow_burst(NonZeroU32::MIN));
    let text = "user:000001".to_owned();
    let _ = governor.check_key(&text);
    let (mut ours, mut theirs, mut calls) = (Vec::new(), Vec::new(), 0);
    for round in 0..=rounds {
        runtime.block_on(async {
            tokio::time::sleep(Duration::from_millis(1_010)).await;
            limiter.check(&key).await;
            assert!(limiter.check(&key).await.is_denied());
        });
        let before = store.stats().calls;
        let mine = nanos_each(DENIED, || {
            let decision = now(limiter.check(&key));
            assert!(decision.source() == Source::DenyCache);
        });
        calls += store.stats().calls - before;
        let other = nanos_each(DENIED, || assert!(governor.check_key(&text).is_err()));
        if round > 0 {
            ours.push(mine);
            theirs.push(other);
        }
    }
    report.add_ratio("denied_hot_vs_governor_check", ratios(&ours, &theirs));
    report
        .figures
        .push(("denied, from the deny cache".to_owned(), median(ours), "ns"));
    report
        .figures
        .push(("denied, governor".to_owned(), median(theirs), "ns"));
    report
        .figures
        .push(("calls of the server while denied".to_owned(), calls as f64, ""));
}

/// One hot key that is allowed.
async fn leased(url: &str, rounds: usize, report: &mut Report) {
    let store = store(url).await;
    let leased = Limiter::new(store.clone(), FAR)
        .name("leased")
        .lease(Lease::new());
    let memory = Limiter::new(MemoryStore::new(), FAR).name("leased");
    let connection = connect(url).await;
    let keys: Arc<[Key]> = Arc::from([Key::from("hot")]);
    let (mut rates, mut tails) = ([vec![], vec![], vec![]], [vec![], vec![]]);
    let mut unleased = 0;
    for round in 0..=rounds {
        let incr = load(&Decider::Incr(connection.clone()), INCR).await.per_second();
        let of_lease = load(&Decider::limiter(&leased, &keys), HOT).await;
        let of_memory = load(&Decider::limiter(&memory, &keys), HOT).await;
        if round > 0 {
            unleased += of_lease.asked;
            tails[0].push(of_lease.p99());
            tails[1].push(of_memory.p99());
            rates[0].push(of_lease.per_second());
            rates[1].push(incr);
            rates[2].push(of_memory.per_second());
        }
    }
    report.add_ratio("leased_hot_vs_incr", ratios(&rates[0], &rates[1]));
    report.add_ratio("leased_hot_p99_vs_memory", ratios(&tails[0], &tails[1]));
    let [of_lease, incr, of_memory] = rates.map(median);
    report
        .figures
        .push(("hot key, leased".to_owned(), of_lease, "per second"));
    report
        .figures
        .push(("hot key, bare INCR".to_owned(), incr, "per second"));
    report
        .figures
        .push(("hot key, memory store".to_owned(), of_memory, "per second"));
    let [of_lease, of_memory] = tails.map(median);
    report
        .figures
        .push(("hot key, leased, p99".to_owned(), of_lease, "ns"));
    report
        .figures
        .push(("hot key, memory store, p99".to_owned(), of_memory, "ns"));
    let asked = unleased as f64 / (rounds * HOT) as f64 * 1e6;
    report
        .figures
        .push(("hot key, decisions that asked".to_owned(), asked, "per million"));
}

/// Many keys, some much hotter than others; nothing is denied.
async fn zipf(url: &str, rounds: usize, report: &mut Report) {
    let store = store(url).await;
    let keys: Arc<[Key]> = (0..ZIPF_KEYS)
        .map(|index| Key::from(format!("user:{index:06}")))
        .collect();
    let order: Arc<[u32]> = zipf_order().into();
    let (mut rates, mut calls, mut asks) = ([vec![], vec![]], [0, 0], [0, 0]);
    let (console, mut cpu) = (Console::new(url).await, [0.0, 0.0]);
    let (mut taken, mut returned, mut refills, mut unleased) = (0, 0, 0, 0);
    let limiters = [
        Limiter::new(store.clone(), FAR).name("each"),
        Limiter::new(store.clone(), FAR).name("ahead").lease(Lease::new()),
    ];
    for round in 0..=rounds {
        for turn in 0..2 {
            let which = (round + turn) % 2;
            let before = store.stats();
            let cpu_before = console.cpu_seconds().await;
            let decider = Decider::Limiter {
                limiter: limiters[which].clone(),
                keys: Arc::clone(&keys),
                order: Some(Arc::clone(&order)),
            };
            let outcome = load(&decider, ZIPF).await;
            if round > 0 {
                let after = store.stats();
                cpu[which] += console.cpu_seconds().await - cpu_before;
                calls[which] += after.calls - before.calls;
                asks[which] += after.asks - before.asks;
                taken += after.local.units_taken - before.local.units_taken;
                returned += after.local.units_returned - before.local.units_returned;
                refills += after.local.refills - before.local.refills;
                unleased += if which == 1 { outcome.asked } else { 0 };
                rates[which].push(outcome.per_second());
            }
        }
    }
    report.add_ratio("zipf_lease_gain", ratios(&rates[1], &rates[0]));
    let [each, ahead] = rates.map(median);
    report
        .figures
        .push(("Zipf, without leases".to_owned(), each, "per second"));
    report
        .figures
        .push(("Zipf, with leases".to_owned(), ahead, "per second"));
    let decisions = (rounds * ZIPF) as f64;
    let mut per_thousand = |what: String, count: f64| {
        let each = count / decisions * 1e3;
        report
            .figures
            .push((format!("Zipf, {what}"), each, "per 1000 decisions"));
    };
    for (name, which) in [("without", 0), ("with", 1)] {
        per_thousand(format!("{name} leases, server ms"), cpu[which] * 1e3);
        per_thousand(format!("{name} leases, calls"), calls[which] as f64);
        per_thousand(
            format!("{name} leases, asks, equal ones merged"),
            asks[which] as f64,
        );
    }
    per_thousand("with leases, decisions that asked".to_owned(), unleased as f64);
    per_thousand("refills".to_owned(), refills as f64);
    per_thousand("units taken ahead".to_owned(), taken as f64);
    per_thousand("of these, given back".to_owned(), returned as f64);
}

/// Keys that are seen once.
async fn cold(url: &str, rounds: usize, report: &mut Report) {
    let quota = Quota::per_second(100);
    let with = Limiter::new(store(url).await, quota)
        .name("cold")
        .lease(Lease::new());
    let bare = RedisStore::builder()
        .deadline(PATIENCE)
        .deny_cache_size(0)
        .connect(url)
        .await;
    let without = Limiter::new(bare.expect("the server can serve"), quota).name("cold");
    let console = Console::new(url).await;
    let mut times = [vec![], vec![]];
    // Few percent apart: more rounds than the others take.
    for round in 0..=2 * rounds {
        for turn in 0..2 {
            let which = (round + turn) % 2;
            let () = console.run(&["FLUSHALL"]).await;
            let keys: Arc<[Key]> = (0..COLD)
                .map(|index| Key::from(format!("{round}:{index:06}")))
                .collect();
            let limiter = [&without, &with][which];
            let outcome = load(&Decider::limiter(limiter, &keys), COLD).await;
            if round > 0 {
                times[which].push(1e9 / outcome.per_second());
            }
        }
    }
    report.add_ratio("cold_key_cost", ratios(&times[1], &times[0]));
    let [without, with] = times.map(median);
    report
        .figures
        .push(("cold keys, without the machinery".to_owned(), without, "ns"));
    report.figures.push(("cold keys, with it".to_owned(), with, "ns"));
}

/// Nothing here is about deadlines.
const PATIENCE: Duration = Duration::from_secs(10);

async fn store(url: &str) -> RedisStore {
    let store = RedisStore::builder().deadline(PATIENCE).connect(url).await;
    store.expect("the server can serve")
}

/// What a decision was.
struct Decided {
    nanos: u32,
    asked: bool,
}

/// Who decides.
#[derive(Clone)]
enum Decider {
    Limiter {
        limiter: Limiter,
        keys: Arc<[Key]>,
        /// Which key comes when; one after the other, if not said.
        order: Option<Arc<[u32]>>,
    },
    Incr(MultiplexedConnection),
}

impl Decider {
    fn limiter(limiter: &Limiter, keys: &Arc<[Key]>) -> Self {
        Self::Limiter {
            limiter: limiter.clone(),
            keys: Arc::clone(keys),
            order: None,
        }
    }

    async fn decide(&mut self, index: usize) -> Decided {
        let start = Instant::now();
        let asked = match self {
            Self::Limiter { limiter, keys, order } => {
                let key = order.as_ref().map_or(index, |order| order[index] as usize);
                let decision = limiter.check(&keys[key % keys.len()]).await;
                assert!(
                    decision.is_allowed() && !decision.is_degraded(),
                    "the server is too slow"
                );
                decision.source() == Source::Store
            }
            Self::Incr(connection) => {
                let counted: redis::RedisResult<u64> =
                    redis::cmd("INCR").arg("incr").query_async(connection).await;
                assert!(counted.expect("the server answers") > 0);
                true
            }
        };
        Decided {
            nanos: u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX),
            asked,
        }
    }
}

#[derive(Default)]
struct Outcome {
    nanos: Vec<u32>,
    asked: usize,
    elapsed: Duration,
}

impl Outcome {
    fn per_second(&self) -> f64 {
        self.nanos.len() as f64 / self.elapsed.as_secs_f64()
    }

    fn p99(&self) -> f64 {
        let mut nanos = self.nanos.clone();
        let at = nanos.len() * 99 / 100;
        f64::from(*nanos.select_nth_unstable(at).1)
    }
}

/// Tasks that decide as fast as they get answers, and let others run now and then, as servers do.
async fn load(decider: &Decider, decisions: usize) -> Outcome {
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (mut decider, next) = (decider.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                let mut outcome = Outcome::default();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= decisions {
                        return outcome;
                    }
                    let decided = decider.decide(index).await;
                    outcome.asked += usize::from(decided.asked);
                    outcome.nanos.push(decided.nanos);
                    tokio::task::coop::consume_budget().await;
                }
            })
        })
        .collect();
    let mut outcome = Outcome::default();
    for task in tasks {
        let of_task = task.await.expect("no task panics");
        outcome.asked += of_task.asked;
        outcome.nanos.extend(of_task.nanos);
    }
    outcome.elapsed = start.elapsed();
    outcome
}

/// Which key comes when: the k-th hottest with a weight of k to the power of -1.1.
fn zipf_order() -> Vec<u32> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=ZIPF_KEYS)
        .map(|rank| {
            sum += (rank as f64).powf(-1.1);
            sum
        })
        .collect();
    // Knuth's generator: the same order in every run.
    let mut state = 42_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    (0..ZIPF)
        .map(|_| {
            let drawn = random() * sum;
            sums.partition_point(|&each| each <= drawn) as u32
        })
        .collect()
}

fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter()
        .zip(theirs)
        .map(|(ours, theirs)| ours / theirs)
        .collect()
}

fn nanos_each(times: u32, mut operation: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..times {
        operation();
    }
    start.elapsed().as_nanos() as f64 / f64::from(times)
}
