//! A Redis server on loopback.

use std::ffi::OsString;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::within;

/// An empty server that writes nothing to disk. It ends when this is dropped.
pub(crate) struct Redis {
    port: u16,
    _process: Child,
}

impl Redis {
    /// Starts a server that answers.
    pub(crate) async fn start() -> Self {
        // Another may take the port before the server does, which then ends.
        for _ in 0..10 {
            if let Some(redis) = Self::try_start().await {
                return redis;
            }
        }
        panic!("redis-server starts on no port");
    }

    async fn try_start() -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        let mut process = Command::new(program())
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .current_dir(env!("CARGO_TARGET_TMPDIR"))
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("redis-server: {error}; scripts/test installs it"));
        within(async {
            loop {
                let answers = answers(port).await;
                if process.try_wait().expect("it is our child").is_some() {
                    return None;
                }
                if answers {
                    return Some(());
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .map(|()| Self {
            port,
            _process: process,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

/// The same server as that of the store's own tests.
fn program() -> OsString {
    std::env::var_os("TOLLGATE_REDIS_7").unwrap_or_else(|| "redis-server".into())
}

async fn answers(port: u16) -> bool {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).await?;
        std::io::Result::Ok(reply)
    };
    exchange.await.is_ok_and(|reply| &reply == b"+PONG\r\n")
}
