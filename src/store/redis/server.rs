//! A real server for the tests of connections.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Script, Value};

use super::address::Address;
use super::call::COMMANDS;
use super::settings::{LinkSettings, Probe, ProbeForm};

/// Writes one key.
pub(super) const SCRIPT: &str = "return redis.call('set', KEYS[1], '1', 'px', 1000)";

/// A `redis-server` on a free port of loopback. Killed when dropped.
pub(super) struct Server {
    pub(super) port: u16,
    arguments: Vec<String>,
    directory: PathBuf,
    process: Child,
}

impl Server {
    pub(super) fn start(arguments: &[&str]) -> Self {
        let arguments: Vec<_> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        for _ in 0..5 {
            let port = free_port();
            let directory = std::env::temp_dir().join(format!("tollgate-{}-{port}", std::process::id()));
            std::fs::create_dir_all(&directory).expect("the temporary directory can be written");
            let process = spawn(port, &directory, &arguments);
            let mut server = Self {
                port,
                arguments: arguments.clone(),
                directory,
                process,
            };
            if server.is_up() {
                return server;
            }
        }
        panic!("redis-server does not start with {arguments:?}");
    }

    /// Waits until it answers. False if it has ended: another process took the port.
    fn is_up(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if self.process.try_wait().expect("it is our child").is_some() {
                return false;
            }
            if self.answers() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Any answer will do, also a refusal: the server has begun to serve then, on its socket too.
    fn answers(&self) -> bool {
        let ping = || {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"PING\r\n")?;
            stream.read_exact(&mut [0])
        };
        ping().is_ok()
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(super) fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}/", self.port)
    }

    pub(super) fn address(&self) -> Address {
        Address::parse(&self.url()).expect("the URL is well-formed")
    }

    /// A command, its words separated by spaces, as the default user.
    pub(super) fn run(&self, command: &str) -> Value {
        run_at(&self.url(), command)
    }

    /// Ends it without ado.
    pub(super) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// A new and empty server on the same port.
    pub(super) fn restart(&mut self) {
        self.kill();
        self.process = spawn(self.port, &self.directory, &self.arguments);
        assert!(self.is_up(), "redis-server starts again on its port");
    }

    /// Halts it, or lets it go on.
    pub(super) fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        let status = Command::new("kill")
            .args([signal, &pid])
            .status()
            .expect("kill is a command");
        assert!(status.success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub(super) fn run_at(url: &str, command: &str) -> Value {
    let mut connection = redis::Client::open(url)
        .and_then(|client| client.get_connection_with_timeout(Duration::from_secs(2)))
        .expect("the server answers");
    let mut words = command.split(' ');
    let mut command = redis::cmd(words.next().expect("a command has a name"));
    for word in words {
        command.arg(word);
    }
    command
        .query(&mut connection)
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("it is bound").port()
}

fn spawn(port: u16, directory: &PathBuf, arguments: &[String]) -> Child {
    // The scripts that run the tests name the server of Redis 7 so.
    let program = std::env::var("TOLLGATE_REDIS_7").unwrap_or_else(|_| "redis-server".to_owned());
    Command::new(&program)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(arguments)
        .current_dir(directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("these tests need {program} (Debian: apt install redis-server), or TOLLGATE_REDIS_7 as its path: {error}")
        })
}

/// Settings with [`SCRIPT`] and a probe that calls it.
pub(super) fn settings() -> LinkSettings {
    LinkSettings {
        commands: COMMANDS,
        scripts: Arc::new([SCRIPT]),
        probe: probe(SCRIPT),
        ..LinkSettings::default()
    }
}

pub(super) fn probe(script: &'static str) -> Probe {
    Arc::new(move |form| {
        let mut command = match form {
            ProbeForm::Hash => {
                let mut command = redis::cmd("EVALSHA");
                command.arg(Script::new(script).get_hash());
                command
            }
            ProbeForm::Text => {
                let mut command = redis::cmd("EVAL");
                command.arg(script);
                command
            }
        };
        command.arg(1).arg("tollgate:probe");
        vec![command]
    })
}
