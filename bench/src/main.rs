//! Measures tollgate side by side with others, in one run: `cargo run --release -p tollgate-bench -- micro --json FILE`, or
//! `redis` or `local` in place of `micro`.
//!
//! Absolute times drift from run to run and machine to machine; only the ratios of one run say something.

mod callgrind;
mod harness;
mod local;
mod micro;
mod redis;
mod report;
mod server;

use std::process::ExitCode;

const USAGE: &str =
    "usage: tollgate-bench micro|redis|local [--json FILE] [--rounds N] [--server PATH] [--part NAME]
  micro   what a check and the layer cost in process, against governor and tower_governor; with SKIP set in the
          environment, whatever it is, only what one thread takes: no instruction counts, no two threads and no flood
  redis   what a decision through Redis costs, against a textbook's script and a bare INCR;
          starts the redis-server of PATH, or the one it finds; --part cold, hot or lone measures that alone
  local   what a decision costs that needs no round trip, against governor and a bare INCR; the same server;
          --part denied, leased, zipf or cold measures that alone
Each figure is of 11 rounds, or as many as --rounds says: 9 or more.";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let (mut json, mut rounds, mut server, mut part) = (None, 11, "redis-server".to_owned(), String::new());
    let mut redis_part = None;
    match command.as_str() {
        callgrind::CHILD => return callgrind::child(args),
        redis::LOAD => return redis::load(args),
        _ => {}
    }
    while let Some(flag) = args.next() {
        match (flag.as_str(), args.next()) {
            ("--json", Some(file)) => json = Some(file),
            ("--rounds", Some(count)) => match count.parse() {
                Ok(count) if count >= 9 => rounds = count,
                _ => return refuse("--rounds takes a number, at least 9"),
            },
            ("--server", Some(path)) => server = path,
            ("--part", Some(name)) if command == "local" => part = name,
            ("--part", Some(name)) if command == "redis" => match redis::Part::of(&name) {
                Some(named) => redis_part = Some(named),
                None => return refuse(USAGE),
            },
            _ => return refuse(USAGE),
        }
    }
    let report = match command.as_str() {
        "micro" => micro::run(rounds),
        "redis" => match redis::run(rounds, &server, redis_part) {
            Ok(report) => report,
            Err(why) => return refuse(&why),
        },
        "local" => match local::run(rounds, &server, &part) {
            Ok(report) => report,
            Err(why) => return refuse(&why),
        },
        _ => return refuse(USAGE),
    };
    print!("{report}");
    if let Some(file) = json {
        if let Err(error) = std::fs::write(&file, report.to_json()) {
            return refuse(&format!("cannot write {file}: {error}"));
        }
        println!("written to {file}");
    }
    ExitCode::SUCCESS
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}
