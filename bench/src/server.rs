//! A Redis server of the benchmark's own.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, IntoConnectionInfo, ProtocolVersion};

/// A `redis-server` on a free port of loopback, without persistence. Killed when dropped.
pub(crate) struct Server {
    process: Child,
    directory: PathBuf,
    port: u16,
}

impl Server {
    pub(crate) fn start(program: &str) -> Result<Self, String> {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(|error| format!("loopback has no free port: {error}"))?
            .port();
        let directory = std::env::temp_dir().join(format!("tollgate-bench-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory)
            .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        let process = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .current_dir(&directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        let mut server = Self {
            process,
            directory,
            port,
        };
        let start = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.process.try_wait().is_ok_and(|status| status.is_some());
            if ended || start.elapsed() > Duration::from_secs(10) {
                return Err(format!("{program} does not come up on port {port}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A connection of the kind that the store makes: RESP3, no delay, no timeouts of the client's own.
pub(crate) async fn connect(url: &str) -> MultiplexedConnection {
    let info = url.into_connection_info().expect("a valid URL");
    let settings = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name();
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    Client::open(info)
        .expect("a valid address")
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .expect("the server is up")
}

/// Tells the server things, and asks it about itself.
#[derive(Clone)]
pub(crate) struct Console {
    connection: MultiplexedConnection,
}

impl Console {
    pub(crate) async fn new(url: &str) -> Self {
        Self {
            connection: connect(url).await,
        }
    }

    pub(crate) async fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command
            .query_async(&mut self.connection.clone())
            .await
            .unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub(crate) async fn version(&self) -> String {
        let info: String = self.run(&["INFO", "server"]).await;
        field(&info, "redis_version").to_owned()
    }

    /// Seconds of processor time that the server has used, all of its threads.
    pub(crate) async fn cpu_seconds(&self) -> f64 {
        let info: String = self.run(&["INFO", "cpu"]).await;
        let seconds = |name| field(&info, name).parse().unwrap_or(f64::NAN);
        seconds("used_cpu_user") + seconds("used_cpu_sys")
    }

    /// Bytes that the only key takes.
    pub(crate) async fn bytes_of_the_key(&self) -> f64 {
        let keys: Vec<String> = self.run(&["KEYS", "*"]).await;
        assert_eq!(keys.len(), 1, "{keys:?}");
        self.run(&["MEMORY", "USAGE", &keys[0], "SAMPLES", "0"]).await
    }
}

fn field<'a>(info: &'a str, name: &str) -> &'a str {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .unwrap_or_default()
}
