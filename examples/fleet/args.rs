//! The command line.

use std::ffi::OsString;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lexopt::prelude::*;
use tollgate::Quota;

pub(crate) const HELP: &str = "\
Sends the same load to a fleet of HTTP servers twice: with a limit in each of them, and with one limit in Redis for all.

usage: cargo run --release --example fleet -- [OPTIONS]

  --instances N     servers                                  [4]
  --requests N      requests, in turn to each server         [1000]
  --limit N         requests admitted per window             [100]
  --window SECONDS  the sliding window                       [60]
  --concurrency N   requests in flight                       [64]
  --redis URL       a Redis to use; without, the redis-server on PATH is started and ended
  --json FILE       writes the numbers
  --svg FILE        draws what was admitted over time
  --help            says this

Ends with 0 if all requests were decided and both phases admitted what was expected, with 1 if not, with 2 for arguments
that are none.
";

pub(crate) enum Command {
    Run(Args),
    Help,
}

pub(crate) struct Args {
    pub(crate) instances: usize,
    pub(crate) requests: u64,
    pub(crate) limit: u64,
    pub(crate) window: Duration,
    pub(crate) concurrency: usize,
    pub(crate) redis: Option<String>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) svg: Option<PathBuf>,
}

impl Args {
    pub(crate) fn quota(&self) -> Quota {
        Quota::new(self.limit, self.window)
    }

    /// How many requests the instance gets: they go round.
    pub(crate) fn requests_of(&self, instance: usize) -> u64 {
        let instances = self.instances as u64;
        self.requests / instances + u64::from((instance as u64) < self.requests % instances)
    }
}

pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let mut parsed = Args {
        instances: 4,
        requests: 1_000,
        limit: 100,
        window: Duration::from_secs(60),
        concurrency: 64,
        redis: None,
        json: None,
        svg: None,
    };
    let mut parser = lexopt::Parser::from_args(args);
    // The bounds keep both ends of all connections below the usual limit of 1 024 open files.
    while let Some(arg) = parser.next()? {
        match arg {
            Long("instances") => parsed.instances = number(&mut parser, "instances", 1..=50)?,
            Long("requests") => parsed.requests = number(&mut parser, "requests", 1..=1_000_000)?,
            Long("limit") => parsed.limit = number(&mut parser, "limit", 1..=1_000_000)?,
            Long("window") => {
                parsed.window = Duration::from_secs(number(&mut parser, "window", 1..=86_400)?);
            }
            Long("concurrency") => parsed.concurrency = number(&mut parser, "concurrency", 1..=200)?,
            Long("redis") => parsed.redis = Some(parser.value()?.string()?),
            Long("json") => parsed.json = Some(parser.value()?.into()),
            Long("svg") => parsed.svg = Some(parser.value()?.into()),
            Long("help") | Short('h') => return Ok(Command::Help),
            _ => return Err(arg.unexpected()),
        }
    }
    if parsed.requests < parsed.limit {
        let Args { requests, limit, .. } = parsed;
        return Err(format!("{requests} requests cannot show a limit of {limit}: raise `--requests`").into());
    }
    Ok(Command::Run(parsed))
}

fn number<T>(parser: &mut lexopt::Parser, name: &str, range: RangeInclusive<T>) -> Result<T, lexopt::Error>
where
    T: FromStr + PartialOrd + fmt::Display,
{
    let text = parser.value()?.string()?;
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => {
            let (least, most) = (range.start(), range.end());
            Err(format!("`--{name}` takes a number from {least} to {most}, not `{text}`").into())
        }
    }
}
