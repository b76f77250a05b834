//! Instructions per operation, by running this program again under callgrind: the same for the same binary,
//! whatever else the machine does.

use std::process::{Command, ExitCode};

use crate::micro;

/// The argument by which this program knows that it is the one being measured.
pub(crate) const CHILD: &str = "callgrind-child";

/// Runs the named operation a number of times and nothing else.
pub(crate) fn child(mut args: impl Iterator<Item = String>) -> ExitCode {
    let (Some(name), Some(Ok(times))) = (args.next(), args.next().map(|times| times.parse())) else {
        return ExitCode::FAILURE;
    };
    match micro::slow_operation(&name) {
        Some(mut operation) => {
            operation(times);
            ExitCode::SUCCESS
        }
        None => ExitCode::FAILURE,
    }
}

/// Instructions that one operation takes, from the difference of two counts of them; `None` without valgrind.
pub(crate) fn instructions(name: &str) -> Option<f64> {
    let (few, many) = (20_000, 40_000);
    Some((collected(name, many)? - collected(name, few)?) / f64::from(many - few))
}

fn collected(name: &str, times: u32) -> Option<f64> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([CHILD, name, &times.to_string()])
        .output()
        .ok()?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = log.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}
