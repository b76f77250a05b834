//! Allocations per decision, by running this program again under valgrind: an allocator that counts would slow down
//! whatever else is measured.

use std::process::Command;

use super::LOAD;
use super::contestant::{KEYS, Name};

pub(crate) const TASKS: usize = 64;

/// Allocations of one decision in all threads, from the difference of two counts of them; `None` without valgrind.
pub(crate) fn each(name: Name, url: &str) -> Option<f64> {
    let (few, many) = (5_000, 25_000);
    Some((counted(name, url, many)? - counted(name, url, few)?) / (many - few) as f64)
}

/// Tried again where a deadline was missed.
fn counted(name: Name, url: &str, decisions: usize) -> Option<f64> {
    (0..5).find_map(|_| count(name, url, decisions))
}

fn count(name: Name, url: &str, decisions: usize) -> Option<f64> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new("valgrind")
        .args(["--tool=memcheck", "--leak-check=no", "--undef-value-errors=no"])
        .arg(program)
        .args([LOAD, name.text(), url])
        .args([TASKS, KEYS, decisions].map(|count| count.to_string()))
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    // "total heap usage: 1,234 allocs, 1,200 frees, ...", an allocation that grows being another one.
    let (_, usage) = log.split_once("total heap usage: ")?;
    usage.split(' ').next()?.replace(',', "").parse().ok()
}
