//! What a check and the layer cost in process.
//!
//! One thread, unless said; each round measures every operation once, in turn, in blocks of the same number of
//! requests; figures are medians over the rounds, ratios medians of each round's ratio. A block comes before each that does
//! not count: the others take longer than a window and a sweep, so what a limiter knew of its keys is over by then, and
//! traffic that goes on is what is measured. What each key's first request after such a pause costs is a figure of its own.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::ConnectInfo;
use governor::RateLimiter;
use http::{Request, Response};
use tollgate::{Clock, Headers, Key, Limiter, MemoryStore, Quota, Rate, RateLimitLayer, key};
use tower::{Layer, Service};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::PeerIpKeyExtractor;

use crate::callgrind;
use crate::harness::now;
use crate::report::{Report, median};

const KEYS: usize = 10_000;
/// A limit and a window that no key reaches at the rate of a benchmark, so that every request is allowed and
/// logged: a key comes about every 5 ms.
const LIMIT: u32 = 100;
const WINDOW: Duration = Duration::from_millis(100);
/// What lets a single client come as often as it can.
const ONE_CLIENT: (u32, Duration) = (4_096, Duration::from_millis(1));
/// Under callgrind, a key comes a few times in all.
const SLOW_WINDOW: Duration = Duration::from_secs(60);
const BLOCK: u32 = 200_000;

type Operation = Box<dyn FnMut(u32)>;

/// The operation of a name, in a program that callgrind slows down.
pub(crate) fn slow_operation(name: &str) -> Option<Operation> {
    operation(name, SLOW_WINDOW)
}

/// The operation of a name: runs it a number of times.
fn operation(name: &str, window: Duration) -> Option<Operation> {
    let quota = Quota::new(LIMIT.into(), window);
    Some(match name {
        "bare" => requests(Inner, KEYS),
        "bare, one client" => requests(Inner, 1),
        "tower_governor, one client" => requests(tower_governor(ONE_CLIENT), 1),
        "layer, one client" => requests(layer(one_client()).layer(Inner), 1),
        "layer, two headers, one client" => requests(two_headers(one_client()).layer(Inner), 1),
        "tower_governor" => requests(tower_governor((LIMIT, window)), KEYS),
        "layer" => requests(layer(quota).layer(Inner), KEYS),
        "layer, two headers" => requests(two_headers(quota).layer(Inner), KEYS),
        "governor" => governor(window),
        "check" => check(quota),
        "check, text key" => check_text(quota),
        "check, slots" => check(quota.slots(64)),
        "check, counter" => check(quota.sliding_counter()),
        "check, bucket" => check(Quota::token_bucket(Rate::per_second(100), 10_000)),
        "log of 10" => full_log(10),
        "log of 4096" => full_log(4_096),
        _ => return None,
    })
}

const OPERATIONS: [&str; 16] = [
    "bare",
    "tower_governor",
    "layer",
    "layer, two headers",
    "governor",
    "check",
    "check, text key",
    "check, slots",
    "check, counter",
    "check, bucket",
    "log of 10",
    "log of 4096",
    "bare, one client",
    "tower_governor, one client",
    "layer, one client",
    "layer, two headers, one client",
];

pub(crate) fn run(rounds: usize) -> Report {
    let mut report = Report {
        command: "micro",
        ..Report::default()
    };
    let mut operations: Vec<Operation> = OPERATIONS
        .iter()
        .map(|name| operation(name, WINDOW).expect("every listed operation exists"))
        .collect();
    let (mut rows, mut firsts): (Vec<Vec<f64>>, Vec<Vec<f64>>) = Default::default();
    for round in 0..=rounds {
        let (row, first) = operations
            .iter_mut()
            .map(|operation| steady_and_first(operation).into())
            .unzip();
        // The first round fills caches and tables.
        if round > 0 {
            rows.push(row);
            firsts.push(first);
        }
    }
    let column = |name: &str| {
        OPERATIONS
            .iter()
            .position(|known| *known == name)
            .expect("a listed operation")
    };
    let ratio = |of: &dyn Fn(&[f64]) -> f64| median(rows.iter().map(|row| of(row)).collect());
    let [bare, peer, shipped, alike] = ["bare", "tower_governor", "layer", "layer, two headers"].map(column);
    report.ratios.insert(
        "layer_overhead_vs_tower_governor",
        ratio(&|row| (row[shipped] - row[bare]) / (row[peer] - row[bare])),
    );
    report.ratios.insert(
        "layer_overhead_like_for_like",
        ratio(&|row| (row[alike] - row[bare]) / (row[peer] - row[bare])),
    );
    let [bare, peer, shipped, alike] = [
        "bare, one client",
        "tower_governor, one client",
        "layer, one client",
        "layer, two headers, one client",
    ]
    .map(column);
    report.ratios.insert(
        "layer_overhead_vs_tower_governor_one_client",
        ratio(&|row| (row[shipped] - row[bare]) / (row[peer] - row[bare])),
    );
    report.ratios.insert(
        "layer_overhead_like_for_like_one_client",
        ratio(&|row| (row[alike] - row[bare]) / (row[peer] - row[bare])),
    );
    let [governor, check, text] = ["governor", "check", "check, text key"].map(column);
    report.ratios.insert(
        "memory_check_vs_governor",
        ratio(&|row| row[check] / row[governor]),
    );
    report.ratios.insert(
        "memory_check_text_key_vs_governor",
        ratio(&|row| row[text] / row[governor]),
    );
    let [short, long] = ["log of 10", "log of 4096"].map(column);
    report
        .ratios
        .insert("log_4096_vs_10", ratio(&|row| row[long] / row[short]));
    for (index, name) in OPERATIONS.iter().enumerate() {
        let nanos = median(rows.iter().map(|row| row[index]).collect());
        report.figures.push(((*name).to_owned(), nanos, "ns"));
    }
    for name in ["governor", "check"] {
        let nanos = median(firsts.iter().map(|row| row[column(name)]).collect());
        report
            .figures
            .push((format!("{name}, after a pause"), nanos, "ns"));
    }
    if std::env::var_os("SKIP").is_some() {
        return report;
    }
    instruction_counts(&mut report);
    two_threads(&mut report, rounds);
    flood(&mut report);
    report.notes.push(format!(
        "{rounds} rounds of {BLOCK} requests, {KEYS} keys, {LIMIT} per {WINDOW:?} (exact log), one thread unless said"
    ));
    report
        .notes
        .push("governor 0.10, tower_governor 0.8 with headers; key: the peer's address".to_owned());
    report
}

fn instruction_counts(report: &mut Report) {
    let counts: Option<Vec<f64>> = OPERATIONS
        .iter()
        .map(|name| callgrind::instructions(name))
        .collect();
    let Some(counts) = counts else {
        report
            .notes
            .push("no instruction counts: valgrind is not installed".to_owned());
        return;
    };
    for (name, count) in OPERATIONS.iter().zip(&counts) {
        report
            .figures
            .push((format!("{name} (instructions)"), *count, "instructions"));
    }
    let [bare, peer, shipped, alike] = [0, 1, 2, 3].map(|index| counts[index]);
    report.ratios.insert(
        "layer_overhead_vs_tower_governor_instructions",
        (shipped - bare) / (peer - bare),
    );
    report.ratios.insert(
        "layer_overhead_like_for_like_instructions",
        (alike - bare) / (peer - bare),
    );
    report
        .ratios
        .insert("memory_check_vs_governor_instructions", counts[5] / counts[4]);
    report
        .ratios
        .insert("log_4096_vs_10_instructions", counts[11] / counts[10]);
}

/// Of traffic that goes on, and of its beginning.
fn steady_and_first(operation: &mut Operation) -> [f64; 2] {
    let first = nanos_each(operation, KEYS as u32);
    operation(BLOCK);
    [nanos_each(operation, BLOCK), first]
}

fn nanos_each(operation: &mut Operation, times: u32) -> f64 {
    let start = Instant::now();
    operation(times);
    start.elapsed().as_nanos() as f64 / f64::from(times)
}

/// The innermost service: builds an empty response.
#[derive(Clone)]
struct Inner;

impl Service<Request<Body>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<Body>) -> Self::Future {
        ready(Ok(Response::new(Body::empty())))
    }
}

fn address(index: usize) -> SocketAddr {
    let [.., a, b] = (index as u32).to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, a, b)), 40_000)
}

/// Builds a request as a server does, with the peer's address in its extensions, and sends it through.
fn requests<S>(service: S, clients: usize) -> Operation
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + 'static,
{
    let mut index = 0;
    let mut service = service;
    Box::new(move |times| {
        for _ in 0..times {
            index = (index + 1) % clients;
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(ConnectInfo(address(index)));
            let response = now(service.call(request)).unwrap_or_else(|error| match error {});
            assert_eq!(response.status(), 200);
            black_box(response);
        }
    })
}

fn tower_governor(
    (limit, window): (u32, Duration),
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone {
    let config = GovernorConfigBuilder::default()
        .period(window / limit)
        .burst_size(limit)
        .key_extractor(PeerIpKeyExtractor)
        .use_headers()
        .finish()
        .expect("a valid configuration");
    GovernorLayer::new(Arc::new(config)).layer(Inner)
}

fn one_client() -> Quota {
    let (limit, window) = ONE_CLIENT;
    Quota::new(limit.into(), window)
}

fn layer(quota: Quota) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), quota, key::PeerIp)
}

fn two_headers(quota: Quota) -> RateLimitLayer {
    layer(quota)
        .headers(Headers::x_ratelimit().without_reset())
        .decision_extension(false)
}

fn texts() -> Vec<String> {
    (0..KEYS).map(|index| format!("user:{index:06}")).collect()
}

fn governor_quota(window: Duration) -> governor::Quota {
    let limit = NonZeroU32::new(LIMIT).expect("not zero");
    governor::Quota::with_period(window / LIMIT)
        .expect("not zero")
        .allow_burst(limit)
}

fn governor(window: Duration) -> Operation {
    let limiter = RateLimiter::keyed(governor_quota(window));
    let keys = texts();
    let mut index = 0;
    Box::new(move |times| {
        for _ in 0..times {
            index = (index + 1) % KEYS;
            assert!(limiter.check_key(&keys[index]).is_ok());
        }
    })
}

fn check(quota: Quota) -> Operation {
    let limiter = Limiter::new(MemoryStore::new(), quota);
    let keys: Vec<Key> = texts().into_iter().map(Key::from).collect();
    let mut index = 0;
    Box::new(move |times| {
        for _ in 0..times {
            index = (index + 1) % KEYS;
            assert!(now(limiter.check(&keys[index])).is_allowed());
        }
    })
}

fn check_text(quota: Quota) -> Operation {
    let limiter = Limiter::new(MemoryStore::new(), quota);
    let keys = texts();
    let mut index = 0;
    Box::new(move |times| {
        for _ in 0..times {
            index = (index + 1) % KEYS;
            assert!(now(limiter.check(keys[index].as_str())).is_allowed());
        }
    })
}

/// Few keys whose logs are full: each check drops one unit and adds one.
fn full_log(limit: u64) -> Operation {
    const FEW: u64 = 8;
    let step = 64;
    let window = Duration::from_micros(step * limit * FEW);
    let micros = Arc::new(AtomicU64::new(1_800_000_000_000_000));
    let clock = Arc::clone(&micros);
    let store = MemoryStore::builder()
        .clock(Clock::from_fn(move || {
            Duration::from_micros(clock.load(Ordering::Relaxed))
        }))
        .build();
    let limiter = Limiter::new(store, Quota::new(limit, window));
    let keys: Vec<Key> = (0..FEW).map(Key::from).collect();
    let mut index = 0;
    let mut run = move |times: u32| {
        for _ in 0..times {
            index = (index + 1) % keys.len();
            micros.fetch_add(step, Ordering::Relaxed);
            assert!(now(limiter.check(&keys[index])).is_allowed());
        }
    };
    run((2 * limit * FEW) as u32);
    Box::new(run)
}

/// Checks per second of two threads on one limiter over those of one, for both.
fn two_threads(report: &mut Report, rounds: usize) {
    let peer = Arc::new(RateLimiter::keyed(governor_quota(WINDOW)));
    let ours = Limiter::new(MemoryStore::new(), Quota::new(LIMIT.into(), WINDOW));
    let texts = Arc::new(texts());
    let keys: Arc<Vec<Key>> = Arc::new(texts.iter().map(Key::from).collect());
    let check_peer = {
        let (peer, texts) = (Arc::clone(&peer), Arc::clone(&texts));
        move |index: usize| assert!(peer.check_key(&texts[index]).is_ok())
    };
    let check_ours = {
        let (ours, keys) = (ours.clone(), Arc::clone(&keys));
        move |index: usize| assert!(now(ours.check(&keys[index])).is_allowed())
    };
    let (mut peer_gain, mut our_gain) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        peer_gain.push(threads_per_second(2, &check_peer) / threads_per_second(1, &check_peer));
        our_gain.push(threads_per_second(2, &check_ours) / threads_per_second(1, &check_ours));
    }
    report
        .ratios
        .insert("memory_two_threads_vs_one", median(our_gain));
    report
        .ratios
        .insert("governor_two_threads_vs_one", median(peer_gain));
}

fn threads_per_second(threads: usize, check: &(impl Fn(usize) + Clone + Send + Sync)) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for step in 0..BLOCK as usize {
                    check((step * 7 + thread * KEYS / 2) % KEYS);
                }
            });
        }
    });
    f64::from(BLOCK) * threads as f64 / start.elapsed().as_secs_f64()
}

/// Ten million keys that each come once, through a store that holds a hundred thousand.
fn flood(report: &mut Report) {
    const DISTINCT: u64 = 10_000_000;
    const HELD: usize = 100_000;
    let store = MemoryStore::builder().max_keys(HELD).build();
    let limiter = Limiter::new(store.clone(), Quota::per_minute(100));
    let mut text = String::new();
    let mut slowest = vec![0_u64; 0];
    let (mut resident_full, mut worst) = (0.0, Duration::ZERO);
    let start = Instant::now();
    for index in 0..DISTINCT {
        text.clear();
        let _ = write!(text, "user:{index}");
        let before = Instant::now();
        black_box(now(limiter.check(text.as_str())));
        let took = before.elapsed();
        worst = worst.max(took);
        if took > Duration::from_micros(100) {
            slowest.push(took.as_micros() as u64);
        }
        if index == 2 * HELD as u64 {
            resident_full = resident_megabytes();
        }
    }
    let each = start.elapsed().as_nanos() as f64 / DISTINCT as f64;
    report
        .figures
        .push(("flood of 10 M keys, each".to_owned(), each, "ns"));
    report.figures.push((
        "flood: slowest check".to_owned(),
        worst.as_nanos() as f64 / 1e3,
        "us",
    ));
    report.figures.push((
        "flood: checks slower than 100 us".to_owned(),
        slowest.len() as f64,
        "",
    ));
    report
        .figures
        .push(("flood: resident when full".to_owned(), resident_full, "MB"));
    report.figures.push((
        "flood: resident at the end".to_owned(),
        resident_megabytes(),
        "MB",
    ));
    report
        .figures
        .push(("flood: keys held".to_owned(), store.stats().keys as f64, ""));
    report
        .ratios
        .insert("flood_resident_end_vs_full", resident_megabytes() / resident_full);
}

fn resident_megabytes() -> f64 {
    let pages: f64 = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|statm| statm.split(' ').nth(1)?.parse().ok())
        .unwrap_or(f64::NAN);
    pages * 4_096.0 / 1e6
}
