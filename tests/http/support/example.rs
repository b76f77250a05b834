//! The examples, as processes of their own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use http::HeaderName;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::{Reply, get, request, send, within};

/// A running example. It ends when this is dropped.
pub(crate) struct Example {
    pub(crate) address: SocketAddr,
    /// What it said behind its address.
    pub(crate) remark: String,
    output: Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl Example {
    /// Starts an example that listens.
    pub(crate) async fn run(name: &str) -> Self {
        Self::run_with(name, &[]).await
    }

    /// Starts an example with variables in its environment.
    pub(crate) async fn run_with(name: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = command(name, variables)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let line = next(&mut output).await;
        let (address, remark) = line
            .strip_prefix("listening on http://")
            .and_then(|rest| rest.split_once('/'))
            .unwrap_or_else(|| panic!("no address in {line:?}"));
        Self {
            address: address.parse().expect("an address"),
            remark: remark.to_owned(),
            output,
            child,
        }
    }

    /// The next lines that it prints.
    pub(crate) async fn lines(&mut self, count: usize) -> String {
        let mut lines = String::new();
        for _ in 0..count {
            lines += &next(&mut self.output).await;
            lines += "\n";
        }
        lines
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        get(self.address, path).await
    }

    pub(crate) async fn get_with(&self, path: &str, name: &'static str, value: &str) -> Reply {
        let mut request = request(self.address, path);
        let name = HeaderName::from_static(name);
        request
            .headers_mut()
            .insert(name, value.parse().expect("a value"));
        send(request).await
    }

    /// Statuses of so many GET requests.
    pub(crate) async fn statuses(&self, path: &str, requests: usize) -> Vec<u16> {
        let mut statuses = Vec::new();
        for _ in 0..requests {
            statuses.push(self.get(path).await.status.as_u16());
        }
        statuses
    }

    /// Asks it to end, as a supervisor does.
    #[cfg(unix)]
    pub(crate) async fn terminate(mut self) -> ExitStatus {
        let kill = format!("kill -TERM {}", self.child.id().expect("it runs"));
        let sent = Command::new("sh").args(["-c", &kill]).status().await;
        assert!(sent.is_ok_and(|status| status.success()), "{kill}");
        within(self.child.wait()).await.expect("it ends")
    }
}

/// An example that listens somewhere, with variables in its environment.
pub(crate) fn command(name: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(built(name));
    for unset in ["HOSTNAME", "REDIS_URL", "LIMIT", "INSTANCES"] {
        command.env_remove(unset);
    }
    command
        .env("PORT", "0")
        .env("LISTEN", "127.0.0.1:0")
        .envs(variables.iter().copied())
        .kill_on_drop(true);
    command
}

async fn next(output: &mut Lines<BufReader<ChildStdout>>) -> String {
    let line = within(output.next_line()).await.expect("it can be read");
    line.expect("it says something")
}

/// The example's binary, which cargo puts beside the directory of the tests'.
pub(crate) fn built(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("this test has a path");
    let profile = tests.ancestors().nth(2).expect("it is in a target directory");
    let path = profile
        .join("examples")
        .join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(
        path.exists(),
        "{} is missing: build the examples first (`cargo build --examples`)",
        path.display()
    );
    path
}
