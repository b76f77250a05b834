//! Attempts to open the way to a server again.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::super::class::Class;
use super::super::link::{Connection, Live};
use super::super::refusal::Refusal;
use super::Supervisor;

/// For an answer of a connection that is not ours; it may be busy with connecting.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// What came of an attempt to mend.
pub(super) enum Outcome {
    Connected(Live),
    /// A given connection has answered.
    Passed,
    Refused(Refusal),
}

pub(super) type Attempt = Pin<Box<dyn Future<Output = Outcome> + Send>>;

impl Supervisor {
    /// Holds no handle, so that the last one can go meanwhile.
    pub(super) fn attempt(self: &Arc<Self>) -> Attempt {
        let Some(target) = &self.target else {
            let live = self.lock().live.clone();
            return Box::pin(async move {
                match live {
                    Some(live) => ask_given(&live).await,
                    None => Outcome::Passed,
                }
            });
        };
        let target = Arc::clone(target);
        let supervisor = Arc::downgrade(self);
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let disconnected = move || {
                if let Some(supervisor) = supervisor.upgrade() {
                    supervisor.disconnected(generation);
                }
            };
            let connecting = async {
                let patience = target.settings.connect_timeout;
                tokio::time::timeout(patience, target.connect(disconnected)).await
            };
            match unwound(connecting).await {
                Ok(Ok(Ok((connection, clock)))) => Outcome::Connected(Live {
                    connection: Connection::Own(connection),
                    clock,
                    generation,
                }),
                Ok(Ok(Err(refusal))) => Outcome::Refused(refusal),
                Ok(Err(_elapsed)) => Outcome::Refused(Refusal::timeout()),
                Err(panic) => Outcome::Refused(target.panicked(panic.as_ref())),
            }
        })
    }
}

/// Attempts until one succeeds, or the last handle is gone.
pub(super) async fn mend(supervisor: Weak<Supervisor>) {
    loop {
        let Some(pause) = supervisor
            .upgrade()
            .and_then(|supervisor| supervisor.next_pause())
        else {
            return;
        };
        tokio::time::sleep(pause).await;
        let Some(attempt) = supervisor.upgrade().map(|supervisor| supervisor.attempt()) else {
            return;
        };
        let outcome = attempt.await;
        let Some(supervisor) = supervisor.upgrade() else {
            return;
        };
        supervisor.settle(outcome);
    }
}

/// Any answer will do that is no outage. Which node of a cluster answers is unknown, so its time is not taken.
async fn ask_given(live: &Live) -> Outcome {
    let deadline = Instant::now() + PROBE_TIMEOUT;
    match live.connection.send(redis::cmd("TIME"), deadline).await {
        Ok(Ok(_)) => Outcome::Passed,
        Ok(Err(error)) => {
            let class = Class::of(&error);
            if class.is_outage() {
                Outcome::Refused(Refusal::NotNow {
                    class,
                    error: error.into(),
                })
            } else {
                Outcome::Passed
            }
        }
        Err(_elapsed) => Outcome::Refused(Refusal::timeout()),
    }
}

/// TLS libraries and runtimes panic when they are not set up; that must not end what mends.
async fn unwound<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    std::future::poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        },
    )
    .await
}
