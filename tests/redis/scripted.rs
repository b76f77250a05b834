//! A connection that answers as a test says, when it says: for paused time, which real connections do not know.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, Pipeline, RedisError, RedisFuture, RedisResult, Value};
use tokio::time::{Instant, sleep};

/// Clones share the script and the record.
#[derive(Clone)]
pub(crate) struct Scripted {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    script: Script,
    sent: Vec<Sent>,
}

type Script = Arc<dyn Fn(&Sent) -> Reply + Send + Sync>;

/// A command, and when it was sent.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    /// In capitals.
    pub(crate) name: String,
    pub(crate) arguments: Vec<Vec<u8>>,
    /// How many were sent before.
    pub(crate) index: usize,
}

/// What comes back, and when.
pub(crate) struct Reply {
    after: Option<Duration>,
    answer: RedisResult<Value>,
}

impl Reply {
    /// Comes at once.
    pub(crate) const fn new(answer: RedisResult<Value>) -> Self {
        Self {
            after: Some(Duration::ZERO),
            answer,
        }
    }

    /// Comes later.
    pub(crate) fn after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }

    /// Never comes.
    pub(crate) fn never() -> Self {
        Self {
            after: None,
            answer: Ok(Value::Nil),
        }
    }

    /// An integer.
    pub(crate) fn integer(value: i64) -> Self {
        Self::new(Ok(Value::Int(value)))
    }

    /// What `TIME` replies, so many microseconds after the epoch.
    pub(crate) fn time(micros: u64) -> Self {
        let part = |number: u64| Value::BulkString(number.to_string().into_bytes());
        Self::new(Ok(Value::Array(vec![
            part(micros / 1_000_000),
            part(micros % 1_000_000),
        ])))
    }

    /// What the server says instead of an answer: `READONLY You can't write against a read only replica.`
    pub(crate) fn error(line: &str) -> Self {
        Self::new(Err(error(line)))
    }

    /// The connection ends.
    pub(crate) fn broken() -> Self {
        Self::new(Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()))
    }
}

/// The error that the client makes of a server's line.
pub(crate) fn error(line: &str) -> RedisError {
    let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
    reply
        .and_then(Value::extract_error)
        .expect_err("errors begin with a word in capitals")
}

impl Scripted {
    pub(crate) fn new(script: impl Fn(&Sent) -> Reply + Send + Sync + 'static) -> Self {
        Self {
            shared: Arc::new(Mutex::new(Shared {
                script: Arc::new(script),
                sent: Vec::new(),
            })),
        }
    }

    /// Answers otherwise from now on.
    pub(crate) fn behave(&self, script: impl Fn(&Sent) -> Reply + Send + Sync + 'static) {
        self.shared().script = Arc::new(script);
    }

    /// All that was sent so far.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.shared().sent.clone()
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the command when its future is first polled, as a real connection sends it then.
    async fn answer(&self, command: &Cmd) -> RedisResult<Value> {
        let reply = {
            let mut shared = self.shared();
            let sent = Sent::new(command, shared.sent.len());
            shared.sent.push(sent.clone());
            let script = Arc::clone(&shared.script);
            drop(shared);
            script(&sent)
        };
        match reply.after {
            // Not even a timer's tick, so that time does not have to pass.
            Some(Duration::ZERO) => {}
            Some(delay) => sleep(delay).await,
            None => std::future::pending().await,
        }
        reply.answer
    }
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:?}", self.name, self.at)?;
        for argument in &self.arguments {
            // Scripts are long.
            write!(f, " {}", argument[..argument.len().min(60)].escape_ascii())?;
        }
        Ok(())
    }
}

impl Sent {
    fn new(command: &Cmd, index: usize) -> Self {
        let mut arguments = command.args_iter().map(|argument| match argument {
            Arg::Simple(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        });
        let name = arguments.next().unwrap_or_default();
        Self {
            at: Instant::now(),
            name: String::from_utf8_lossy(&name).to_uppercase(),
            arguments: arguments.collect(),
            index,
        }
    }
}

impl ConnectionLike for Scripted {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(self.answer(command))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let mut replies = Vec::new();
            for command in pipeline.cmd_iter() {
                replies.push(self.answer(command).await?);
            }
            Ok(replies.into_iter().skip(offset).take(count).collect())
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}
