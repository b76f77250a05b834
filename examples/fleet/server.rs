//! The Redis that counts: a given one, or one that is started.

use std::error::Error;
use std::io;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use redis::{Client, InfoDict, RedisError};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};
use tollgate::RedisStore;

const START: Duration = Duration::from_secs(10);
const MISSING: &str = "there is no redis-server on PATH: install it (Debian, Ubuntu: `apt install redis-server`, macOS: \
                       `brew install redis`), or say `--redis URL`";

pub(crate) struct Server {
    url: String,
    version: String,
    /// The process, if it was started here. It ends when this is dropped, whatever happens.
    process: Option<Child>,
}

impl Server {
    /// The server at `url`; without one, the installed server, on a free loopback port and without files.
    pub(crate) async fn find(url: Option<&str>) -> Result<Self, Box<dyn Error>> {
        let Some(url) = url else {
            return Self::start().await;
        };
        // The store says best what is wrong with a URL or a server, but waits for one that cannot be reached.
        RedisStore::connect(url)
            .await
            .map_err(|error| format!("`--redis`: {error}"))?;
        // The URL may have a password.
        let address = Client::open(url)?.get_connection_info().addr().clone();
        let version = version(url).await.map_err(|error| {
            format!("`--redis`: {address} does not answer: {error}; does a server run there?")
        })?;
        Ok(Self {
            url: url.to_owned(),
            version,
            process: None,
        })
    }

    async fn start() -> Result<Self, Box<dyn Error>> {
        // The port may be taken by another between here and the server.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => MISSING.into(),
                _ => format!("redis-server cannot be started: {error}"),
            })?;
        let url = format!("redis://127.0.0.1:{port}/");
        let deadline = Instant::now() + START;
        loop {
            match version(&url).await {
                Ok(version) => {
                    let version = format!("{version}, started for this");
                    return Ok(Self {
                        url,
                        version,
                        process: Some(process),
                    });
                }
                Err(error) if Instant::now() > deadline => {
                    return Err(format!("redis-server does not answer: {error}").into());
                }
                Err(_) => {}
            }
            if let Some(status) = process.try_wait()? {
                return Err(format!("redis-server ended at once ({status}): is port {port} taken?").into());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Its name and version.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Ends the process that was started.
    pub(crate) async fn end(self) {
        if let Some(mut process) = self.process {
            // It has nothing to save; that it is gone already is as well.
            let _ = process.kill().await;
        }
    }
}

async fn version(url: &str) -> Result<String, RedisError> {
    let mut connection = Client::open(url)?.get_multiplexed_async_connection().await?;
    // A user who may not ask for it may still count.
    let Ok(info) = redis::cmd("INFO")
        .arg("server")
        .query_async::<InfoDict>(&mut connection)
        .await
    else {
        return Ok("a server of unknown version".to_owned());
    };
    let text = |field: &str| info.get::<String>(field);
    Ok(match (text("valkey_version"), text("redis_version")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => "a server of unknown version".to_owned(),
    })
}
