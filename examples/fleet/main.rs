//! The proof: several instances of a service, and how many requests they admit together.
//!
//! ```text
//! cargo run --release --example fleet -- --instances 4 --requests 1000 --limit 100 --window 60
//! ```
//!
//! Real HTTP servers on loopback ports get the same load twice: with a `MemoryStore` in each they admit the limit each,
//! with one Redis they admit the limit.

mod args;
mod chart;
mod instance;
mod load;
mod report;
mod server;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::{MemoryStore, RedisStore};

use self::args::{Args, Command};
use self::instance::Instance;
use self::report::{Phase, Report};
use self::server::Server;

#[tokio::main]
async fn main() -> ExitCode {
    let args = match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Run(args)) => args,
        Ok(Command::Help) => {
            print!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("fleet: {why}\nTry `--help`.");
            return ExitCode::from(2);
        }
    };
    // The stores say here why Redis is away.
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .init();
    // What is dropped here ends the server that was started.
    let result = tokio::select! {
        result = run(args) => result,
        () = interrupted() => Err("interrupted".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("fleet: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let server = Server::find(args.redis.as_deref()).await?;
    let per_process = per_process(&args).await?;
    let shared = shared(&args, server.url()).await?;
    let report = Report {
        server: server.version().to_owned(),
        args,
        per_process,
        shared,
    };
    server.end().await;

    print!("{report}");
    if let Some(path) = &report.args.json {
        write(path, &report.to_json())?;
    }
    if let Some(path) = &report.args.svg {
        write(path, &chart::draw(&report)?)?;
    }
    report.check()?;
    Ok(())
}

/// A limit in each process: what a service has whose instances share nothing.
async fn per_process(args: &Args) -> Result<Phase, Box<dyn Error>> {
    let mut instances = Vec::new();
    for _ in 0..args.instances {
        instances.push(Instance::start(MemoryStore::new(), args.quota(), "fleet".to_owned()).await?);
    }
    let expected = (0..args.instances)
        .map(|index| args.limit.min(args.requests_of(index)))
        .sum();
    Ok(load::send(args, &instances, "a store in each", expected).await)
}

/// One limit for all, each instance with a connection of its own.
async fn shared(args: &Args, url: &str) -> Result<Phase, Box<dyn Error>> {
    // No run finds the counters of an earlier one.
    let age = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    let run = format!("fleet-{}-{}", std::process::id(), age.as_nanos());
    let mut instances = Vec::new();
    for _ in 0..args.instances {
        let store = RedisStore::connect(url).await?;
        instances.push(Instance::start(store, args.quota(), run.clone()).await?);
    }
    Ok(load::send(args, &instances, "Redis for all", args.limit).await)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    println!("written to {}", path.display());
    Ok(())
}

/// Ends when the process is asked to.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
