//! Measures tollgate side by side with others, in one run: `cargo run --release -p tollgate-bench -- micro --json FILE`.
//!
//! Absolute times drift from run to run and machine to machine; only the ratios of one run say something.

mod callgrind;
mod micro;
mod report;

use std::process::ExitCode;

const USAGE: &str = "usage: tollgate-bench micro [--json FILE] [--rounds N]
  micro   what a check and the layer cost in process, against governor and tower_governor";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let (mut json, mut rounds) = (None, 11);
    if command == callgrind::CHILD {
        return callgrind::child(args);
    }
    while let Some(flag) = args.next() {
        match (flag.as_str(), args.next()) {
            ("--json", Some(file)) => json = Some(file),
            ("--rounds", Some(count)) => match count.parse() {
                Ok(count) if count >= 9 => rounds = count,
                _ => return refuse("--rounds takes a number, at least 9"),
            },
            _ => return refuse(USAGE),
        }
    }
    let report = match command.as_str() {
        "micro" => micro::run(rounds),
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
