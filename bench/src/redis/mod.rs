//! What a decision through Redis costs: tollgate, a textbook's script, and a bare `INCR` as the floor; and what several
//! policies cost the server against one.
//!
//! Each round measures every contestant once, in turn, on an empty server; figures are medians over the rounds, ratios
//! medians of each round's ratio. Client and server share the machine.

mod allocations;
mod contestant;
mod load;
mod part;
mod policies;

use std::process::ExitCode;

use self::contestant::{Contestant, KEYS, Name, WINDOW};
use self::load::{Load, Outcome, latencies};
pub(crate) use self::part::Part;
use crate::harness::runtime;
use crate::report::{Bar, Report, median};
use crate::server::{Console, Server};

/// The argument by which this program puts a load on a server and does nothing else: for profilers.
pub(crate) const LOAD: &str = "redis-load";

const LIMIT: u64 = 100;
const TASKS: usize = 512;
const LONE_BLOCKS: usize = 50;
const LONE_BLOCK: usize = 100;
/// As when cold, each is asked ten times.
const LONE_KEYS: usize = LONE_BLOCKS * LONE_BLOCK / 10;

/// Each key is asked ten times, so that all are allowed.
const COLD: Load = Load {
    tasks: TASKS,
    keys: KEYS,
    decisions: 100_000,
};
const SOME: Load = Load {
    tasks: allocations::TASKS,
    keys: KEYS,
    decisions: 50_000,
};
const HOT: Load = Load {
    tasks: TASKS,
    keys: 1,
    decisions: 600_000,
};

const BARS: [Bar; 10] = [
    Bar::at_least("redis_cold_vs_incr", 0.60, 0.70),
    Bar::at_least("redis_cold_vs_textbook", 2.4, 2.8),
    Bar::at_least("redis_hot_vs_incr", 4.0, 4.0),
    Bar::at_most("redis_lone_p50_vs_textbook", 1.0, 0.95),
    Bar::at_most("redis_server_cpu_vs_textbook", 0.45, 0.45),
    Bar::at_most("redis_bytes_100_vs_zset", 0.34, 0.34),
    Bar::at_most("redis_bytes_1000_vs_zset", 0.11, 0.11),
    Bar::at_most("redis_client_allocations", 4.0, 4.0),
    Bar::at_most(policies::LONE, 1.9, 1.9),
    Bar::at_most(policies::BATCHED, 2.4, 2.4),
];

/// What a round measures of a contestant.
#[derive(Clone, Copy, Default)]
struct Row {
    /// Decisions per second.
    cold: f64,
    some: f64,
    hot: f64,
    /// Microseconds.
    lone_p50: f64,
    lone_p99: f64,
    server_cpu: f64,
}

type Round = [Row; Name::ALL.len()];

/// With `part`, of that alone.
pub(crate) fn run(rounds: usize, program: &str, part: Option<Part>) -> Result<Report, String> {
    let server = Server::start(program)?;
    let mut report = Report {
        command: "redis",
        bars: &BARS,
        ..Report::default()
    };
    if let Some(part) = part {
        runtime().block_on(part.measure(&server.url(), rounds, &mut report));
        return Ok(report);
    }
    runtime().block_on(measure(&server, rounds, &mut report));
    for name in Name::ALL {
        let Some(count) = allocations::each(name, &server.url()) else {
            report
                .notes
                .push("no allocation counts: valgrind is not installed, or too slow here".to_owned());
            break;
        };
        let what = format!("{}: client allocations, 64 tasks", name.text());
        report.figures.push((what, count, "each"));
        if name == Name::Tollgate {
            report.ratios.insert("redis_client_allocations", count);
        }
    }
    Ok(report)
}

/// `NAME URL TASKS KEYS DECISIONS`; a name is that of a contestant, or a number of policies. Empties the server first.
pub(crate) fn load(args: impl Iterator<Item = String>) -> ExitCode {
    let args: Vec<String> = args.collect();
    let Some((name, url, counts)) = args
        .split_first_chunk()
        .map(|([name, url], counts)| (name, url, counts))
    else {
        return ExitCode::FAILURE;
    };
    let counts: Vec<usize> = counts.iter().filter_map(|count| count.parse().ok()).collect();
    let (known, policies) = (
        Name::ALL.into_iter().find(|known| known.text() == name),
        name.parse().ok().filter(|policies| (1..=3).contains(policies)),
    );
    let &[tasks, keys @ 1..=KEYS, decisions] = &*counts else {
        return ExitCode::FAILURE;
    };
    let load = Load {
        tasks,
        keys,
        decisions,
    };
    let outcome = runtime().block_on(async {
        let () = Console::new(url).await.run(&["FLUSHALL"]).await;
        let contestant = match (known, policies) {
            (Some(name), _) => Contestant::new(name, url, LIMIT).await,
            (None, Some(policies)) => Contestant::policies(url, policies).await,
            (None, None) => return None,
        };
        Some(load.put_on(&contestant).await)
    });
    // What a failure policy answers is something else.
    match outcome {
        Some(outcome) if outcome.degraded == 0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

async fn measure(server: &Server, rounds: usize, report: &mut Report) {
    let url = server.url();
    let console = Console::new(&url).await;
    let mut contestants = Vec::new();
    for name in Name::ALL {
        contestants.push(Contestant::new(name, &url, LIMIT).await);
    }
    let mut sizes = Sizes::default();
    let (mut all, mut of_policies, mut spoiled) = (Vec::new(), Vec::new(), 0);
    // The first round fills caches.
    let mut warm = false;
    while all.len() < rounds && spoiled < 3 * rounds {
        let turn = all.len() + spoiled;
        let (rows, degraded) = one_round(turn, &contestants, &console, &mut sizes).await;
        if degraded > 0 {
            spoiled += 1;
        } else if std::mem::replace(&mut warm, true) {
            all.push(rows);
            of_policies.push(policies::one_round(turn, &url, &console).await);
        }
    }
    if all.is_empty() {
        report
            .notes
            .push("no round in which tollgate missed no deadline".to_owned());
        return;
    }
    tell(&all, report);
    policies::tell(&of_policies, report);
    sizes.tell(report);
    for (name, units) in [
        ("redis_bytes_100_vs_zset", 100),
        ("redis_bytes_1000_vs_zset", 1_000),
    ] {
        let zset = bytes(Name::Textbook, &url, &console, units, report).await;
        let ours = bytes(Name::Tollgate, &url, &console, units, report).await;
        report.ratios.insert(name, ours / zset);
    }
    report.notes.push(format!(
        "{} rounds on redis-server {} over loopback, TCP; {LIMIT} per {WINDOW:?} (exact log), {KEYS} keys or one (hot)",
        all.len(),
        console.version().await
    ));
    report.notes.push(format!(
        "hot key: exactly {LIMIT} admitted in each of these rounds; {spoiled} more rounds left out in which tollgate \
         missed deadlines, which the others do not have: with many, the ratios flatter it"
    ));
}

/// What each contestant does in a round, and how many decisions came without the server's answer: then the figures are
/// those of the failure policy.
async fn one_round(
    turn: usize,
    contestants: &[Contestant],
    console: &Console,
    sizes: &mut Sizes,
) -> (Round, usize) {
    let (mut rows, mut degraded) = (Round::default(), 0);
    for each in 0..Name::ALL.len() {
        // Nobody always comes first.
        let index = (each + turn) % Name::ALL.len();
        let (contestant, row) = (&contestants[index], &mut rows[index]);
        let cpu = console.cpu_seconds().await;
        let cold = sizes.cold.note(contestant, console, COLD, &mut row.cold).await;
        row.server_cpu = (console.cpu_seconds().await - cpu) * 1e6 / COLD.decisions as f64;
        assert_eq!(cold.allowed + cold.degraded, COLD.decisions);
        let some = sizes.some.note(contestant, console, SOME, &mut row.some).await;
        let hot = sizes.hot.note(contestant, console, HOT, &mut row.hot).await;
        if Name::ALL[index] != Name::Incr {
            assert!(hot.allowed as u64 <= LIMIT, "{hot:?}");
            assert!(hot.allowed as u64 == LIMIT || hot.degraded > 0, "{hot:?}");
        }
        degraded += cold.degraded + some.degraded + hot.degraded;
    }
    lone(contestants, console, &mut rows).await;
    (rows, degraded)
}

/// One task, in turn for a few milliseconds each.
async fn lone(contestants: &[Contestant], console: &Console, rows: &mut Round) {
    let () = console.run(&["FLUSHALL"]).await;
    let mut micros: [Vec<f64>; Name::ALL.len()] = Default::default();
    for block in 0..LONE_BLOCKS {
        let asks = block * LONE_BLOCK..(block + 1) * LONE_BLOCK;
        for (contestant, micros) in contestants.iter().zip(&mut micros) {
            let keys = asks.clone().map(|ask| ask % LONE_KEYS);
            micros.extend(latencies(contestant, keys).await);
        }
    }
    for (row, mut micros) in rows.iter_mut().zip(micros).take(contestants.len()) {
        micros.sort_by(f64::total_cmp);
        let at = |percent| micros[micros.len() * percent / 100];
        (row.lone_p50, row.lone_p99) = (at(50), at(99));
    }
}

fn tell(all: &[Round], report: &mut Report) {
    let [incr, textbook, tollgate] = Name::ALL.map(|name| name as usize);
    let mut ratio = |name, of: &dyn Fn(&Round) -> f64| {
        let ratios: Vec<f64> = all.iter().map(of).collect();
        report.add_ratio(name, ratios);
    };
    ratio("redis_cold_vs_incr", &|round| {
        round[tollgate].cold / round[incr].cold
    });
    ratio("redis_cold_vs_textbook", &|round| {
        round[tollgate].cold / round[textbook].cold
    });
    ratio("redis_hot_vs_incr", &|round| {
        round[tollgate].hot / round[incr].hot
    });
    ratio("redis_lone_p50_vs_textbook", &|round| {
        round[tollgate].lone_p50 / round[textbook].lone_p50
    });
    ratio("redis_server_cpu_vs_textbook", &|round| {
        round[tollgate].server_cpu / round[textbook].server_cpu
    });
    for name in Name::ALL {
        let mut figure = |what: &str, unit, of: &dyn Fn(&Row) -> f64| {
            let values = all.iter().map(|round| of(&round[name as usize])).collect();
            let what = format!("{}: {what}", name.text());
            report.figures.push((what, median(values), unit));
        };
        figure("512 tasks", "decisions/s", &|row| row.cold);
        figure("64 tasks", "decisions/s", &|row| row.some);
        figure("512 tasks, one key", "decisions/s", &|row| row.hot);
        figure("one task, median", "us", &|row| row.lone_p50);
        figure("one task, 99 of 100", "us", &|row| row.lone_p99);
        figure("server's processor time, 512 tasks", "us each", &|row| {
            row.server_cpu
        });
    }
}

/// Bytes of a key after so many units, admitted one by one.
async fn bytes(name: Name, url: &str, console: &Console, units: usize, report: &mut Report) -> f64 {
    let () = console.run(&["FLUSHALL"]).await;
    let load = Load {
        tasks: 1,
        keys: 1,
        decisions: units,
    };
    let contestant = Contestant::new(name, url, units as u64).await;
    assert_eq!(load.put_on(&contestant).await.allowed, units);
    let bytes = console.bytes_of_the_key().await;
    let what = format!("{}: a key of {units} units", name.text());
    report.figures.push((what, bytes, "bytes"));
    bytes
}

/// Calls of the store, and what they carried.
#[derive(Default)]
struct Sizes {
    cold: Size,
    some: Size,
    hot: Size,
}

#[derive(Default)]
struct Size {
    calls: u64,
    asks: u64,
    callers: u64,
}

impl Size {
    /// Puts a load on an empty server, and notes the speed and what the store's calls carried.
    async fn note(
        &mut self,
        contestant: &Contestant,
        console: &Console,
        load: Load,
        speed: &mut f64,
    ) -> Outcome {
        let () = console.run(&["FLUSHALL"]).await;
        let before = contestant.store().map(tollgate::RedisStore::stats);
        let outcome = load.put_on(contestant).await;
        *speed = load.decisions as f64 / outcome.elapsed.as_secs_f64();
        if let (Some(before), Some(store)) = (before, contestant.store()) {
            let after = store.stats();
            self.calls += after.calls - before.calls;
            self.asks += after.asks - before.asks;
            self.callers += after.callers - before.callers;
        }
        outcome
    }
}

impl Sizes {
    fn tell(&self, report: &mut Report) {
        for (name, size) in [
            ("512 tasks", &self.cold),
            ("64 tasks", &self.some),
            ("512 tasks, one key", &self.hot),
        ] {
            let mut figure = |what, of, by| {
                let what = format!("tollgate: {what}, {name}");
                report.figures.push((what, of as f64 / by as f64, "each"));
            };
            figure("asks in a call", size.asks, size.calls);
            figure("callers that share an ask", size.callers, size.asks);
        }
    }
}
