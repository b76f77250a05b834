//! What decisions over three policies take of the server, against decisions over the first of them alone: 10 a second and
//! 1 000 an hour for each user, 5 000 a second for all, as many as are admitted at once on an empty server.

use super::contestant::{Contestant, KEYS};
use super::load::Load;
use crate::report::{Report, median};
use crate::server::Console;

pub(crate) const LONE: &str = "policies_3_vs_1_lone";
pub(crate) const BATCHED: &str = "policies_3_vs_1_batched";

/// Each user asks five times.
const DECISIONS: usize = 5_000;
const USERS: usize = DECISIONS / 5;
const _: () = assert!(USERS <= KEYS);

/// Of each load, one after another.
const TIMES: usize = 3;

/// Microseconds of the server's processor time for a decision: lone and batched, over one policy and over three.
pub(crate) type Round = [[f64; 2]; 2];

/// Measures each once, in turn.
pub(crate) async fn one_round(turn: usize, url: &str, console: &Console) -> Round {
    let contestants = [
        Contestant::policies(url, 1).await,
        Contestant::policies(url, 3).await,
    ];
    let mut round = Round::default();
    for (tasks, row) in [1, super::TASKS].into_iter().zip(&mut round) {
        let load = Load {
            tasks,
            keys: USERS,
            decisions: DECISIONS,
        };
        for each in 0..TIMES * contestants.len() {
            let index = (each + turn) % contestants.len();
            let () = console.run(&["FLUSHALL"]).await;
            let cpu = console.cpu_seconds().await;
            assert_eq!(load.put_on(&contestants[index]).await.allowed, DECISIONS);
            row[index] += (console.cpu_seconds().await - cpu) * 1e6 / (TIMES * DECISIONS) as f64;
        }
    }
    round
}

pub(crate) fn tell(rounds: &[Round], report: &mut Report) {
    for (at, name, what) in [(0, LONE, "one task"), (1, BATCHED, "512 tasks")] {
        let ratios = rounds.iter().map(|round| round[at][1] / round[at][0]).collect();
        report.add_ratio(name, ratios);
        for (index, policies) in [(0, "one policy"), (1, "three policies")] {
            let values = rounds.iter().map(|round| round[at][index]).collect();
            let what = format!("{policies}: server's processor time, {what}");
            report.figures.push((what, median(values), "us each"));
        }
    }
}
