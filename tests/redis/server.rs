//! Redis servers on loopback, each test's for itself.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};
use std::{cell::RefCell, env, process, thread};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisResult, Value, cmd};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// How long a server may take to do what it is told.
const PATIENCE: Duration = Duration::from_secs(10);

/// The servers that the tests know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V6,
    V7,
    V8,
}

impl Version {
    /// All that are there. Says which are not.
    pub(crate) fn all() -> Vec<Self> {
        let mut versions = vec![Self::V6, Self::V7, Self::V8];
        versions.retain(|version| version.available());
        versions
    }

    /// Whether there is such a server.
    ///
    /// # Panics
    ///
    /// If there is not, and there must be.
    pub(crate) fn available(self) -> bool {
        let program = self.program();
        let runs = Command::new(&program)
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        let required = self == Self::V7 || env::var("TOLLGATE_REQUIRE_ALL_SERVERS").is_ok_and(|it| it == "1");
        assert!(
            runs || !required,
            "no redis-server for {self:?} (`{}`): run scripts/test, which installs it, or name one in {}",
            program.display(),
            self.variable(),
        );
        if !runs {
            println!("NOT RUN: {self:?}, there is no server in {}", self.variable());
        }
        runs
    }

    const fn variable(self) -> &'static str {
        match self {
            Self::V6 => "TOLLGATE_REDIS_6",
            Self::V7 => "TOLLGATE_REDIS_7",
            Self::V8 => "TOLLGATE_REDIS_8",
        }
    }

    fn program(self) -> PathBuf {
        let default = if self == Self::V7 { "redis-server" } else { "" };
        env::var_os(self.variable()).map_or_else(|| default.into(), Into::into)
    }
}

/// Servers that hang, fill up or die disturb each other's tests: who starts one waits until the servers of
/// other tests have ended.
static ALONE: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);

thread_local! {
    /// This test's turn, so that it can start a second server. A test's body stays on its thread.
    static TURN: RefCell<Weak<OwnedMutexGuard<()>>> = const { RefCell::new(Weak::new()) };
}

async fn turn() -> Arc<OwnedMutexGuard<()>> {
    if let Some(turn) = TURN.with_borrow(Weak::upgrade) {
        return turn;
    }
    let turn = Arc::new(Arc::clone(&ALONE).lock_owned().await);
    TURN.set(Arc::downgrade(&turn));
    turn
}

/// A server, killed when dropped.
pub(crate) struct Server {
    version: Version,
    settings: Vec<String>,
    port: u16,
    child: Child,
    directory: PathBuf,
    password: Option<String>,
    _turn: Arc<OwnedMutexGuard<()>>,
}

impl Server {
    /// Starts a server that answers. Call it from the test's own task: it waits for other tests' servers to end,
    /// but not for this test's.
    pub(crate) async fn start(version: Version) -> Self {
        Self::start_with(version, &[]).await
    }

    /// Starts a server with settings as on its command line: `["--maxclients", "10"]`.
    pub(crate) async fn start_with(version: Version, settings: &[&str]) -> Self {
        assert!(version.available(), "ask Version::available first");
        let turn = turn().await;
        let directory = new_directory();
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        for _ in 0..20 {
            let port = free_port();
            let mut this = Self {
                version,
                child: spawn(version, port, &directory, &settings),
                settings: settings.clone(),
                port,
                directory: directory.clone(),
                password: None,
                _turn: Arc::clone(&turn),
            };
            if this.answers().await {
                return this;
            }
            println!("{version:?} did not start on port {port}: {}", this.log());
        }
        panic!("{version:?} starts on no port");
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// The host and port.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What to connect to, with the password that was [set](Self::set_password).
    pub(crate) fn url(&self) -> String {
        match &self.password {
            None => format!("redis://{}/", self.address()),
            Some(password) => format!("redis://:{password}@{}/", self.address()),
        }
    }

    /// Ends all connections but that which asks for it.
    pub(crate) async fn end_connections(&self) {
        let _: Value = self
            .cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
            .await;
    }

    /// The server asks for this password from now on.
    pub(crate) async fn set_password(&mut self, password: &str) {
        let _: Value = self.cli(&["CONFIG", "SET", "requirepass", password]).await;
        self.password = Some(password.to_owned()).filter(|it| !it.is_empty());
    }

    /// A connection of the test's own.
    pub(crate) async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        let patience = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        Client::open(self.url())?
            .get_multiplexed_async_connection_with_config(&patience)
            .await
    }

    /// The reply to a command, sent on a new connection.
    pub(crate) async fn try_cli<T: FromRedisValue>(&self, command: &[&str]) -> RedisResult<T> {
        let (name, arguments) = command.split_first().expect("a command");
        let mut connection = self.connection().await?;
        cmd(name).arg(arguments).query_async(&mut connection).await
    }

    /// The reply to a command that must not fail.
    pub(crate) async fn cli<T: FromRedisValue>(&self, command: &[&str]) -> T {
        match self.try_cli(command).await {
            Ok(reply) => reply,
            Err(error) => panic!("{command:?}: {error}"),
        }
    }

    /// A number in the reply to `INFO`.
    pub(crate) async fn info(&self, field: &str) -> Option<u64> {
        let info: String = self.cli(&["INFO", "everything"]).await;
        number(&info, field)
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&mut self) {
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// It answers nothing until [`cont`](Self::cont), and its connections stay open.
    pub(crate) fn stop(&self) {
        self.signal("STOP");
        self.wait_for_state(true);
    }

    /// It goes on where it was stopped.
    pub(crate) fn cont(&self) {
        self.signal("CONT");
        self.wait_for_state(false);
    }

    /// Kills it and starts it on the same port, empty.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.revive().await;
    }

    /// Starts it on the same port after it was killed, empty and with the settings of its start.
    pub(crate) async fn revive(&mut self) {
        self.password = None;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            self.child = spawn(self.version, self.port, &self.directory, &self.settings);
            if self.answers().await {
                return;
            }
        }
        panic!("{:?} does not restart: {}", self.version, self.log());
    }

    fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &kill]).status();
        assert!(status.is_ok_and(|status| status.success()), "{kill}");
    }

    /// The signal is sent before it has acted. Where there is no /proc, it soon will have.
    fn wait_for_state(&self, stopped: bool) {
        let stat = format!("/proc/{}/stat", self.child.id());
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let Ok(stat) = fs::read_to_string(&stat) else {
                return;
            };
            // The state follows the name, which is in parentheses.
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            if (state == Some('T')) == stopped {
                return;
            }
            thread::yield_now();
        }
        panic!("no signal reaches the server");
    }

    /// Whether it comes to answer before it ends.
    async fn answers(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.child.try_wait().expect("it is our child").is_some() {
                return false;
            }
            // Somebody else's server on that port would answer too.
            if let Ok(info) = self.try_cli::<String>(&["INFO", "server"]).await {
                return number(&info, "process_id") == Some(u64::from(self.child.id()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        false
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            println!(
                "the log of {:?} on port {}:\n{}",
                self.version,
                self.port,
                self.log()
            );
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn spawn(version: Version, port: u16, directory: &PathBuf, settings: &[String]) -> Child {
    fs::create_dir_all(directory).expect("a directory for tests");
    Command::new(version.program())
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--daemonize",
            "no",
        ])
        .args([
            "--save",
            "",
            "--appendonly",
            "no",
            "--logfile",
            "log",
            "--dir",
            ".",
        ])
        .args(settings)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("the server starts")
}

/// Below the ports that systems give to clients: one of those, trying to connect to the server while it is down,
/// could take the port, or even connect to itself.
fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(16_384..32_768);
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn new_directory() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);

    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("redis-{}-{count}", process::id()));
    // Of a run that had the same process id.
    let _ = fs::remove_dir_all(&directory);
    directory
}

fn number(info: &str, field: &str) -> Option<u64> {
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line?.trim().parse().ok()
}
