//! The shared store: one atomic script a decision, on the server's clock.
//!
//! The path of an ask: [`order`] writes down what it charges; it [enters](enter) [`alone`] in a [`flight`], or waits ([`waiting`])
//! with [`callers`] of equal asks for one that [`queue`] merges and batches, while [`keeper`] keeps the time; [`dispatch`] sends
//! what waits and hands out answers; [`call`] puts it into a script's words and [`reply`] reads the answer; [`link`] is the way
//! to the server.
//! [`settle`] corrects what was charged, many corrections a call.

mod across;
mod address;
mod alone;
mod attempts;
mod breaker;
mod builder;
mod call;
mod callers;
mod carried;
mod cause;
mod class;
mod clock;
mod connect_error;
mod crowd;
mod dispatch;
mod doors;
mod enter;
mod flight;
mod home;
mod keeper;
mod key;
mod link;
mod merged;
mod order;
mod packed;
mod plain;
mod probe;
mod queue;
mod refusal;
mod reply;
mod script;
#[cfg(test)]
mod server;
mod settings;
mod settle;
mod several;
mod single;
mod stats;
mod supervisor;
mod waiting;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::ConnectionLike;
use tokio::time::Instant;

pub use self::builder::RedisStoreBuilder;
pub use self::connect_error::{ConnectError, ConnectErrorKind};
use self::dispatch::Dispatch;
pub(super) use self::enter::Entered;
use self::enter::Met;
use self::link::LinkState;
use self::order::{Amendment, Order, Wanted, deadline_after};
use self::queue::Answered;
pub use self::stats::{Latency, RedisStats};
use super::ask::Heeds;
use super::{
    Ask, Change, Changing, ChargeState, Correction, CorrectionKind, LocalAnswers, Outcome, Retry, Stamp,
    Store, StoreFuture,
};
use crate::clock::micros;

/// Counts in a Redis server that all instances of a service share: one limit, whatever the number of instances.
///
/// Every decision is one call of an atomic script, on the server's clock. Works with Redis from 6.2 on, Valkey, and what
/// runs their Lua scripts; no modules are needed. Clones share one connection.
///
/// ```no_run
/// use tollgate::{Quota, RateLimitLayer, RedisStore, key};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1/").await?;
/// let layer = RateLimitLayer::new(store, Quota::per_minute(100), key::PeerIp);
/// # Ok(())
/// # }
/// ```
///
/// # When Redis does not answer
///
/// Every ask is answered within its deadline (100 ms), whatever Redis does, and nothing waits for a reconnect: when there is no
/// answer, the policy's [`FailurePolicy`](crate::FailurePolicy) decides. A charge never happens after its deadline: each call carries
/// the latest server time at which it may be done. What was granted too late for its caller is given back. After a
/// row of failures the server is not asked any more until a probe in the background has got an answer.
/// [`stats`](Self::stats) tells.
///
/// # What is sent
///
/// A lone ask is one call, made in its caller's own future. While calls are under way, what arrives waits for the next
/// one and shares it; equal asks become one. Nothing is delayed when the store is idle. Corrections travel in calls of up to
/// 128 charges.
///
/// # What is kept
///
/// One key for each counter, with a TTL: it goes when its last unit has left the window, or up to max(1 s, 1/8 of the window)
/// later. Its name is `tollgate:1:{subject}:policy:`, then a letter for the layout and the window in microseconds, such as
/// `l60000000` for the exact log of a minute. One more, with `penalty` for its last word, where a [penalty](crate::Penalty) has
/// counted or blocked something: it goes when that means nothing any more. See [`Store`](crate::store) for what exactly is counted.
///
/// # Exactness
///
/// The limit is exact while one server keeps the state. A failover to a replica can forget what had not been copied:
/// that much, at most one limit for each key, can be admitted again. So can an evicting `maxmemory-policy`: choose
/// `noeviction`, or `volatile-ttl`, which evicts what ends soonest. After a forward step of the server's clock at most one
/// limit more is admitted; after a step back nobody is held longer than two windows (and the smaller of the window and one second).
#[derive(Clone)]
pub struct RedisStore {
    dispatch: Arc<Dispatch>,
    prefix: Arc<str>,
    deadline: Duration,
}

impl RedisStore {
    /// Connects to the server of a URL: `redis://`, `rediss://` (with one of the TLS features) or `unix://`, with user,
    /// password and database as usual: `redis://user:password@host:6379/0`. Waits for one second at most.
    ///
    /// A server that cannot be reached is no error: the service starts, its failure policies decide, a line is logged, and
    /// connecting goes on in the background.
    ///
    /// # Errors
    ///
    /// If the URL is malformed, or the server answers and cannot serve; the text says what to do.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(url).await
    }

    /// Around a connection of your own, such as a `ConnectionManager`, a `MultiplexedConnection` or a `ClusterConnection` of
    /// the crate [`redis`], version 1.
    ///
    /// Its retries must be off, where it has any, or one check can be charged several times:
    /// `ClusterClient::builder(nodes).retries(0)`. Nothing is tried before the first ask, and mending the connection is its own
    /// affair.
    ///
    /// On a cluster, the charges of one ask that lie in several slots are asked one by one, and given back when a later one
    /// denies. Each has the [stamp](Outcome::stamp_of) of its own node, by which it can be given back, and
    /// [penalties](crate::Penalty) count the denials of that one alone: list the policies that have one first. The nodes' clocks must agree to a few milliseconds: all
    /// calls are timed by the last one that answered, and a charge on a node whose clock is behind can be late by as much.
    #[must_use]
    pub fn new<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::builder().build(connection)
    }

    /// Sets more than the URL.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::new()
    }

    /// What the store has seen, and what it does now.
    #[must_use]
    pub fn stats(&self) -> RedisStats {
        let (waiting, in_flight) = {
            let queue = self.dispatch.queue();
            (queue.present(), queue.in_flight())
        };
        self.dispatch.stats.snapshot(
            matches!(self.dispatch.link.state(), LinkState::Open { .. }),
            waiting,
            in_flight,
            self.dispatch.local.stats(),
        )
    }

    /// Tells the local answers of units that come back.
    fn changing(&self, corrections: &[Correction<'_>]) -> Changing {
        let local = &self.dispatch.local;
        let back = corrections
            .iter()
            .filter(|each| matches!(each.kind, CorrectionKind::GiveBack { .. }));
        let charges = back.flat_map(|each| each.ask.charges);
        let hashes = charges.map(|charge| local.hash(charge.key, charge.policy));
        local.changing_hashes(hashes.collect(), Change::GiveBack)
    }

    fn wanted(&self, ask: &Ask<'_>, want: u32, heeds: Heeds) -> Wanted {
        Wanted {
            order: Order::new(&self.prefix, ask, heeds),
            want,
            deadline: deadline_after(Instant::now(), ask.deadline),
        }
    }

    /// Sends an ask, unless nothing of it is counted: then it is granted and charged so often.
    fn send<F>(
        &self,
        (ask, heeds): (&Ask<'_>, Heeds),
        (granted, charged): (u32, u32),
        send: impl FnOnce(Arc<Dispatch>, Wanted) -> F,
    ) -> StoreFuture<Outcome>
    where
        F: Future<Output = Answered> + Send + 'static,
    {
        let wanted = self.wanted(ask, ask.want, heeds);
        if wanted.order.is_uncounted() {
            return StoreFuture::ready(Ok(uncounted(ask, granted, charged)));
        }
        StoreFuture::waiting(send(Arc::clone(&self.dispatch), wanted))
    }
}

/// Unlimited charges fit always. No server is asked, so the time is this machine's.
fn uncounted(ask: &Ask<'_>, granted: u32, charged: u32) -> Outcome {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let states = ask
        .charges
        .iter()
        .map(|_| ChargeState::new(charged, u64::MAX, Retry::Now, Duration::ZERO));
    Outcome::new(granted, Stamp::from_micros(micros(now)), states)
}

impl Store for RedisStore {
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        let counts = (ask.want, ask.want);
        let [charge] = ask.charges else {
            return self.send((ask, Heeds::Enforced), counts, Dispatch::acquire);
        };
        if charge.quota.is_unlimited() {
            return self.send((ask, Heeds::Enforced), counts, Dispatch::acquire_in_one);
        }
        let wanted = |deadline| Wanted {
            order: Order::new(&self.prefix, ask, Heeds::Enforced),
            want: ask.want,
            deadline,
        };
        match self.dispatch.meet(&self.prefix, ask, charge) {
            Met::Joined(waiting) => StoreFuture::entered(Entered::Waits(waiting)),
            Met::Refused(error) => StoreFuture::ready(Err(error)),
            Met::Free(deadline) => StoreFuture::entered(Entered::alone(&self.dispatch, wanted(deadline))),
            Met::Busy(hash, asked, deadline) => match self.dispatch.wait(hash, wanted(deadline), asked) {
                Ok(waiting) => StoreFuture::entered(Entered::Waits(waiting)),
                Err(error) => StoreFuture::ready(Err(error)),
            },
        }
    }

    fn give_back(&self, ask: &Ask<'_>, times: u32, stamp: Stamp) -> StoreFuture<()> {
        self.settle(&[Correction::give_back(*ask, times, stamp)])
    }

    fn charge(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.send((ask, Heeds::None), (1, 1), |dispatch, wanted| async move {
            dispatch.charge(wanted).await
        })
    }

    fn settle(&self, corrections: &[Correction<'_>]) -> StoreFuture<()> {
        let changing = self.changing(corrections);
        let amendments = corrections.iter().map(|each| Amendment::new(&self.prefix, each));
        let counted = amendments.filter(|each| each.ask.order.counters().next().is_some());
        let (dispatch, amendments) = (Arc::clone(&self.dispatch), counted.collect::<Vec<_>>());
        if amendments.is_empty() {
            return StoreFuture::ready(Ok(()));
        }
        StoreFuture::waiting(async move {
            let _changing = changing;
            dispatch.settle(amendments).await
        })
    }

    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        self.send(
            (ask, Heeds::Enforced),
            (ask.want, 0),
            |dispatch, wanted| async move { dispatch.peek(wanted).await },
        )
    }

    fn reset(&self, ask: &Ask<'_>) -> StoreFuture<()> {
        let (dispatch, wanted) = (Arc::clone(&self.dispatch), self.wanted(ask, 1, Heeds::All));
        let changing = self.dispatch.local.changing(ask, Change::Reset);
        StoreFuture::waiting(async move {
            let _changing = changing;
            dispatch.reset(wanted).await
        })
    }

    fn block(&self, ask: &Ask<'_>, time: Duration) -> StoreFuture<()> {
        let (dispatch, mut wanted) = (Arc::clone(&self.dispatch), self.wanted(ask, 1, Heeds::All));
        wanted.order = wanted.order.penalties_alone();
        let changing = self.dispatch.local.changing(ask, Change::Reset);
        StoreFuture::waiting(async move {
            let _changing = changing;
            dispatch.block(wanted, micros(time)).await
        })
    }

    fn local_answers(&self) -> Option<&LocalAnswers> {
        Some(&self.dispatch.local)
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    fn keeps_deadlines(&self) -> bool {
        true
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("link", &self.dispatch.link)
            .field("prefix", &self.prefix)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
