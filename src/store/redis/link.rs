//! The way to a server: a connection now, or why there is none.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, RedisResult, Value};
use tokio::time::{Instant, Sleep, sleep_until};

use super::address::Address;
pub(super) use super::breaker::LinkState;
use super::class::Class;
use super::clock::ServerClock;
use super::connect_error::ConnectError;
pub(super) use super::settings::LinkSettings;
use super::supervisor::Supervisor;
use crate::store::StoreError;

/// The way to a server.
pub(super) struct Link {
    supervisor: Arc<Supervisor>,
}

impl Link {
    /// Around the user's own connection, which mends itself, or not.
    /// So many failures in a row open the breaker.
    pub(super) fn given<C>(connection: C, breaker_failures: u32) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self {
            supervisor: Supervisor::of_given(Box::new(connection), breaker_failures),
        }
    }

    /// Our own supervised connection. Waits for the connect timeout: a server that answers and is unfit is an error; one
    /// that cannot be reached is a warning, and connecting goes on in the background.
    pub(super) async fn supervised(address: Address, settings: LinkSettings) -> Result<Self, ConnectError> {
        let supervisor = Supervisor::connect(address, settings).await?;
        Ok(Self { supervisor })
    }

    /// A connection on which to send now, or why there is none. Never waits.
    pub(super) fn route(&self) -> Result<Route, StoreError> {
        match self.supervisor.live() {
            Ok(live) => Ok(Route {
                supervisor: Arc::clone(&self.supervisor),
                live,
            }),
            Err(reason) => Err(StoreError::with_source(
                crate::store::StoreErrorKind::Unavailable,
                Down { reason },
            )),
        }
    }

    pub(super) fn state(&self) -> LinkState {
        self.supervisor.state()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("server", &format_args!("{}", self.supervisor.server()))
            .finish_non_exhaustive()
    }
}

/// One connection and its clock.
#[derive(Clone)]
pub(super) struct Route {
    supervisor: Arc<Supervisor>,
    live: Arc<Live>,
}

impl Route {
    pub(super) fn clock(&self) -> &ServerClock {
        &self.live.clock
    }

    /// The future owns all that it needs. An error that the server answers with is an error; one that stands inside an array
    /// stays there. As long as the future lives, so does the connection, even if it has been replaced.
    pub(super) fn send(&self, command: Cmd, deadline: Instant) -> Reply {
        self.live.connection.send(command, deadline)
    }

    /// What came of a call, and when, for breaker and supervisor. A call whose answer came too late for its caller is `Answered`.
    pub(super) fn report(&self, sent: Instant, at: Instant, what: Report) {
        self.supervisor.report(&self.live, (sent, at), what);
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("server", &format_args!("{}", self.supervisor.server()))
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Answered,
    TimedOut,
    Failed(Class),
}

/// A reply, or that the deadline has passed.
pub(super) type Reply = Pin<Box<dyn Replying>>;

pub(super) trait Replying: Future<Output = Result<RedisResult<Value>, Elapsed>> + Send {
    /// The reply alone, for who keeps the time by itself. The deadline's timer belongs to the runtime that sent the call, which may
    /// rest, or have ended.
    fn poll_reply(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<RedisResult<Value>>;
}

/// The deadline has passed.
#[derive(Debug)]
pub(super) struct Elapsed;

pin_project! {
    /// Both in one box.
    struct Timed<F> {
        #[pin]
        reply: F,
        #[pin]
        deadline: Sleep,
    }
}

impl<F> Timed<F> {
    fn boxed(reply: F, deadline: Instant) -> Reply
    where
        F: Future<Output = RedisResult<Value>> + Send + 'static,
    {
        let deadline = sleep_until(deadline);
        Box::pin(Self { reply, deadline })
    }
}

impl<F: Future<Output = RedisResult<Value>> + Send> Future for Timed<F> {
    type Output = Result<RedisResult<Value>, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(reply) = this.reply.poll(context) {
            return Poll::Ready(Ok(reply));
        }
        this.deadline.poll(context).map(|()| Err(Elapsed))
    }
}

impl<F: Future<Output = RedisResult<Value>> + Send> Replying for Timed<F> {
    fn poll_reply(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<RedisResult<Value>> {
        self.project().reply.poll(context)
    }
}

/// A connection in use. Dropping the last handle closes it.
pub(super) struct Live {
    pub(super) connection: Connection,
    pub(super) clock: ServerClock,
    /// Which of the supervisor's connections it is.
    pub(super) generation: u64,
}

pub(super) enum Connection {
    Own(MultiplexedConnection),
    Given(Box<dyn Shared>),
}

impl Connection {
    pub(super) fn send(&self, command: Cmd, deadline: Instant) -> Reply {
        match self {
            Self::Own(connection) => {
                let mut connection = connection.clone();
                let reply = async move { answer(connection.send_packed_command(&command).await) };
                Timed::boxed(reply, deadline)
            }
            Self::Given(connection) => connection.send(command, deadline),
        }
    }
}

/// The user's connection, whatever its type.
pub(super) trait Shared: Send + Sync {
    fn send(&self, command: Cmd, deadline: Instant) -> Reply;
}

impl<C> Shared for C
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn send(&self, command: Cmd, deadline: Instant) -> Reply {
        let mut connection = self.clone();
        let reply = async move { answer(connection.req_packed_command(&command).await) };
        Timed::boxed(reply, deadline)
    }
}

/// The client hands out the server's errors as values.
pub(super) fn answer(reply: RedisResult<Value>) -> RedisResult<Value> {
    match reply {
        Ok(Value::ServerError(error)) => Err(error.into()),
        reply => reply,
    }
}

/// Why there is no connection.
#[derive(Debug)]
struct Down {
    reason: Class,
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no connection to Redis ({})", self.reason.name())
    }
}

impl Error for Down {}
