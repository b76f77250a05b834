//! One ratio alone, and what it is about: in seconds, for who works on it.

use super::contestant::{Contestant, Name};
use super::load::Load;
use super::{COLD, HOT, LIMIT, Round, lone};
use crate::report::{Report, median};
use crate::server::Console;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Cold,
    Hot,
    Lone,
}

impl Part {
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "cold" => Some(Self::Cold),
            "hot" => Some(Self::Hot),
            "lone" => Some(Self::Lone),
            _ => None,
        }
    }

    pub(crate) async fn measure(self, url: &str, rounds: usize, report: &mut Report) {
        let console = Console::new(url).await;
        let other = match self {
            Self::Cold | Self::Hot => Name::Incr,
            Self::Lone => Name::Textbook,
        };
        let names = [other, Name::Tollgate];
        let contestants = [
            Contestant::new(other, url, LIMIT).await,
            Contestant::new(Name::Tollgate, url, LIMIT).await,
        ];
        let (name, unit) = match self {
            Self::Cold => ("redis_cold_vs_incr", "decisions/s"),
            Self::Hot => ("redis_hot_vs_incr", "decisions/s"),
            Self::Lone => ("redis_lone_p50_vs_textbook", "us"),
        };
        let mut all: Vec<[f64; 2]> = Vec::new();
        // The first round fills caches.
        for turn in 0..=rounds {
            let round = match self {
                Self::Cold => speeds(COLD, turn, &contestants, &console).await,
                Self::Hot => speeds(HOT, turn, &contestants, &console).await,
                Self::Lone => {
                    let mut rows = Round::default();
                    lone(&contestants, &console, &mut rows).await;
                    [rows[0].lone_p50, rows[1].lone_p50]
                }
            };
            all.push(round);
        }
        let all = &all[1..];
        report.add_ratio(name, all.iter().map(|[other, ours]| ours / other).collect());
        for (index, name) in names.into_iter().enumerate() {
            let values = all.iter().map(|round| round[index]).collect();
            report
                .figures
                .push((name.text().to_owned(), median(values), unit));
        }
        if let Some(store) = contestants[1].store() {
            let stats = store.stats();
            let mut figure = |what: &str, of: u64, by: u64| {
                let figure = (what.to_owned(), of as f64 / by as f64, "each");
                report.figures.push(figure);
            };
            figure("tollgate: asks in a call", stats.asks, stats.calls);
            figure("tollgate: callers that share an ask", stats.callers, stats.asks);
        }
    }
}

/// Decisions per second of each on an empty server.
async fn speeds(load: Load, turn: usize, contestants: &[Contestant; 2], console: &Console) -> [f64; 2] {
    let mut speeds = [0.0; 2];
    for each in 0..contestants.len() {
        // Nobody always comes first.
        let index = (each + turn) % contestants.len();
        let () = console.run(&["FLUSHALL"]).await;
        let outcome = load.put_on(&contestants[index]).await;
        speeds[index] = load.decisions as f64 / outcome.elapsed.as_secs_f64();
    }
    speeds
}
