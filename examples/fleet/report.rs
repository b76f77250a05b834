//! What was measured, as a table and as JSON.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::args::Args;
use crate::load::{Answer, Kind};

pub(crate) struct Report {
    pub(crate) args: Args,
    /// Name and version of the Redis.
    pub(crate) server: String,
    pub(crate) per_process: Phase,
    pub(crate) shared: Phase,
}

/// One load, and all answers to it in the order in which they came.
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) expected: u64,
    pub(crate) instances: usize,
    pub(crate) answers: Vec<Answer>,
}

impl Phase {
    pub(crate) fn admitted(&self) -> u64 {
        self.count(|answer| answer.kind == Kind::Admitted)
    }

    pub(crate) fn took(&self) -> Duration {
        self.answers.last().map_or(Duration::ZERO, |answer| answer.at)
    }

    /// Requests that were neither admitted nor denied.
    fn other(&self) -> u64 {
        self.count(Answer::is_other)
    }

    fn count(&self, which: impl Fn(&Answer) -> bool) -> u64 {
        self.answers.iter().filter(|answer| which(answer)).count() as u64
    }

    fn by_instance(&self, which: impl Fn(&Answer) -> bool) -> Vec<u64> {
        let mut counts = vec![0; self.instances];
        for answer in self.answers.iter().filter(|answer| which(answer)) {
            counts[answer.instance] += 1;
        }
        counts
    }

    fn to_json(&self) -> Value {
        let of = |kind| self.by_instance(|answer| answer.kind == kind);
        let (requests, admitted) = (self.by_instance(|_| true), of(Kind::Admitted));
        let (denied, other) = (of(Kind::Denied), self.by_instance(Answer::is_other));
        let instances: Vec<Value> = (0..self.instances)
            .map(|i| {
                json!({
                    "requests": requests[i],
                    "admitted": admitted[i],
                    "denied": denied[i],
                    "other": other[i],
                })
            })
            .collect();
        json!({
            "admitted": self.admitted(),
            "expected": self.expected,
            "denied": self.count(|answer| answer.kind == Kind::Denied),
            "other": self.other(),
            "seconds": self.took().as_secs_f64(),
            "instances": instances,
        })
    }

    /// That as many were admitted as should be and all requests were decided, or why that says nothing.
    fn check(&self, window: Duration) -> Result<(), String> {
        let (name, admitted, expected) = (self.name, self.admitted(), self.expected);
        let (other, undecided) = (self.other(), self.count(|answer| answer.kind == Kind::Undecided));
        if admitted == expected && other == 0 {
            return Ok(());
        }
        let mut why = format!("{name}: {admitted} requests were admitted, {expected} should be");
        if undecided > 0 {
            why += &format!("; but Redis stopped answering: {undecided} got 503 in place of a decision");
        } else if other > 0 {
            why += &format!("; but {other} got neither 200 nor 429");
        } else if self.took() >= window {
            why += "; but the load took longer than the window: raise `--window`";
        }
        Err(why)
    }
}

impl Report {
    /// That both phases admitted what they should.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.shared.check(self.args.window)?;
        self.per_process.check(self.args.window)
    }

    pub(crate) fn to_json(&self) -> String {
        let report = json!({
            "settings": {
                "instances": self.args.instances,
                "requests": self.args.requests,
                "limit": self.args.limit,
                "window_seconds": self.args.window.as_secs(),
                "concurrency": self.args.concurrency,
                "quota": self.args.quota().to_string(),
            },
            "versions": {
                "tollgate": env!("CARGO_PKG_VERSION"),
                "server": self.server,
                "system": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            },
            "per_process": self.per_process.to_json(),
            "shared": self.shared.to_json(),
        });
        format!("{report:#}\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Args {
            instances,
            requests,
            limit,
            window,
            ..
        } = &self.args;
        writeln!(
            f,
            "{requests} requests to {instances} instances, {limit} per sliding {} s; {}\n",
            window.as_secs(),
            self.server,
        )?;
        writeln!(
            f,
            "{:<16}{:>9}{:>9}{:>9}{:>9}{:>10}   requests of each (admitted)",
            "", "admitted", "expected", "denied", "other", "took",
        )?;
        for phase in [&self.per_process, &self.shared] {
            let requests = phase.by_instance(|_| true);
            let admitted = phase.by_instance(|answer| answer.kind == Kind::Admitted);
            let each: Vec<String> = requests
                .iter()
                .zip(admitted)
                .map(|(requests, admitted)| format!("{requests} ({admitted})"))
                .collect();
            writeln!(
                f,
                "{:<16}{:>9}{:>9}{:>9}{:>9}{:>7} ms   {}",
                phase.name,
                phase.admitted(),
                phase.expected,
                phase.count(|answer| answer.kind == Kind::Denied),
                phase.other(),
                phase.took().as_millis(),
                each.join(", "),
            )?;
        }
        Ok(())
    }
}
