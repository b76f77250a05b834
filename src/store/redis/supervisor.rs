//! Keeps the way to a server open: notices when it is lost, and mends it in the background.

mod mend;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::mend::{Outcome, mend};
use super::address::Address;
use super::breaker::{Backoff, Breaker, Change, Limits, LinkState};
use super::class::Class;
use super::clock::ServerClock;
use super::connect_error::{ConnectError, ConnectErrorKind};
use super::link::{Connection, Live, Report, Shared};
use super::probe::Target;
use super::refusal::Refusal;
use super::settings::LinkSettings;

/// What handles of one way share. While all is well nothing runs; while it is not, one task mends it, which ends with the
/// last handle, and is started again should its runtime end first.
pub(super) struct Supervisor {
    /// What to connect to; nothing if the connection was given.
    target: Option<Arc<Target>>,
    /// Where the first connection was made: for callers outside of a runtime.
    home: Option<Handle>,
    generations: AtomicU64,
    state: Mutex<State>,
}

struct State {
    breaker: Breaker,
    /// A given one stays, even when the breaker is open.
    live: Option<Arc<Live>>,
    /// The latest connection that ended before it was put to use.
    stillborn: Option<u64>,
    task: Option<AbortHandle>,
    /// When the next call is let through, where there is no runtime to probe on.
    next_trial: Option<Instant>,
}

impl Supervisor {
    pub(super) fn of_given(connection: Box<dyn Shared>, breaker_failures: u32) -> Arc<Self> {
        let limits = Limits {
            failures: breaker_failures.max(1),
            timeouts: u32::MAX,
        };
        let live = Live {
            connection: Connection::Given(connection),
            clock: ServerClock::new(),
            generation: 0,
        };
        Self::new(None, None, Breaker::new(limits, Backoff::of_probes()), Some(live))
    }

    pub(super) async fn connect(address: Address, settings: LinkSettings) -> Result<Arc<Self>, ConnectError> {
        let home = Handle::try_current().map_err(|error| {
            let text = "a Redis connection is made inside of a tokio runtime: call this from async code that tokio runs";
            ConnectError::new(ConnectErrorKind::Runtime, text).caused_by(error)
        })?;
        let limits = Limits {
            failures: settings.breaker_failures.max(1),
            timeouts: settings.timeouts_in_a_row.max(1),
        };
        let mut breaker = Breaker::new(limits, Backoff::of_reconnects());
        breaker.open(Instant::now(), Class::Io);
        let target = Arc::new(Target::new(address, settings));
        let supervisor = Self::new(Some(target), Some(home), breaker, None);
        match supervisor.attempt().await {
            Outcome::Refused(Refusal::Unfit { error, .. }) => return Err(error),
            Outcome::Refused(Refusal::NotNow { class, error }) => {
                tracing::warn!(
                    server = %supervisor.server(), reason = class.name(), %error,
                    "redis cannot be used yet: the failure policy answers, and connecting goes on"
                );
                let mut state = supervisor.lock();
                state.breaker.stays_open(Instant::now(), class);
                supervisor.mend_later(&mut state);
            }
            Outcome::Connected(live) => {
                if !supervisor.install(live) {
                    supervisor.mend_later(&mut supervisor.lock());
                }
            }
            Outcome::Passed => {}
        }
        Ok(supervisor)
    }

    fn new(
        target: Option<Arc<Target>>,
        home: Option<Handle>,
        breaker: Breaker,
        live: Option<Live>,
    ) -> Arc<Self> {
        Arc::new(Self {
            target,
            home,
            generations: AtomicU64::new(0),
            state: Mutex::new(State {
                breaker,
                live: live.map(Arc::new),
                stillborn: None,
                task: None,
                next_trial: None,
            }),
        })
    }

    /// The connection to send on, or why there is none.
    pub(super) fn live(self: &Arc<Self>) -> Result<Arc<Live>, Class> {
        let mut state = self.lock();
        if let LinkState::Open { reason, .. } = state.breaker.state() {
            // Already under way, unless the runtime that did it is gone.
            if self.mend_later(&mut state) || !state.trial_is_due() {
                return Err(reason);
            }
        }
        state.live.clone().ok_or(Class::Io)
    }

    pub(super) fn state(&self) -> LinkState {
        self.lock().breaker.state()
    }

    /// What came of a call on `live`, that was sent then, and when.
    pub(super) fn report(self: &Arc<Self>, live: &Arc<Live>, (sent, now): (Instant, Instant), what: Report) {
        let mut state = self.lock();
        // What comes from a connection that has been given up is no news.
        if !state
            .live
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, live))
        {
            return;
        }
        let breaker = &mut state.breaker;
        let change = match what {
            Report::TimedOut | Report::Failed(Class::Timeout) => breaker.timed_out(now, sent),
            Report::Failed(class) if self.target.is_some() && class.replaces_connection() => {
                breaker.open(now, class)
            }
            Report::Failed(class) if class.is_outage() => breaker.failed(now, sent, class),
            Report::Answered | Report::Failed(_) => breaker.answered(now),
        };
        self.follow(change, state);
    }

    /// The connection has ended by itself.
    fn disconnected(self: &Arc<Self>, generation: u64) {
        let mut state = self.lock();
        if state
            .live
            .as_ref()
            .is_some_and(|live| live.generation == generation)
        {
            let change = state.breaker.open(Instant::now(), Class::Io);
            self.follow(change, state);
        } else {
            state.stillborn = Some(generation);
        }
    }

    /// Does and logs what a change of the breaker asks for.
    fn follow(self: &Arc<Self>, change: Change, mut state: MutexGuard<'_, State>) {
        let mut given_up = None;
        let now = state.breaker.state();
        if let LinkState::Open { .. } = now
            && change != Change::None
        {
            if self.target.is_some() {
                given_up = state.live.take();
            }
            self.mend_later(&mut state);
        }
        // Neither closing nor logging keeps callers waiting.
        drop(state);
        drop(given_up);
        match (change, now) {
            (Change::Opened, LinkState::Open { reason, .. }) => tracing::warn!(
                server = %self.server(), reason = reason.name(),
                "redis is unavailable: the failure policy answers until it is back"
            ),
            (Change::Closed, _) => self.log_closed(),
            _ => {}
        }
    }

    fn log_closed(&self) {
        tracing::info!(server = %self.server(), "redis is available again");
    }

    /// Sees to it that a task mends the way. False if there is no runtime for it.
    fn mend_later(self: &Arc<Self>, state: &mut State) -> bool {
        if state.task.as_ref().is_some_and(|task| !task.is_finished()) {
            return true;
        }
        // The runtime on which it was made: the one that asks now may be driven now and then only. If that has ended, the
        // task is over at once.
        for runtime in [self.home.clone(), Handle::try_current().ok()]
            .into_iter()
            .flatten()
        {
            let task = runtime.spawn(mend(Arc::downgrade(self)));
            if !task.is_finished() {
                state.task = Some(task.abort_handle());
                return true;
            }
        }
        false
    }

    /// How long to wait before the next attempt; none if there is nothing left to mend, and then the task is over.
    fn next_pause(&self) -> Option<Duration> {
        let mut state = self.lock();
        if state.breaker.is_open() {
            return Some(state.breaker.pause());
        }
        state.task = None;
        None
    }

    /// False if it has ended already.
    fn install(&self, live: Live) -> bool {
        let mut state = self.lock();
        if state.stillborn == Some(live.generation) {
            return false;
        }
        state.live = Some(Arc::new(live));
        state.breaker.probed(Instant::now(), true);
        true
    }

    fn settle(&self, outcome: Outcome) {
        match outcome {
            Outcome::Connected(live) => {
                if self.install(live) {
                    self.log_closed();
                }
            }
            Outcome::Passed => self.lock().breaker.probed(Instant::now(), false),
            Outcome::Refused(Refusal::NotNow { class, error }) => self.stays_open(class, &error),
            Outcome::Refused(Refusal::Unfit { class, error }) => self.stays_open(class, &error),
        }
    }

    fn stays_open(&self, class: Class, error: &dyn std::fmt::Display) {
        let is_news = self.lock().breaker.stays_open(Instant::now(), class);
        if is_news {
            tracing::warn!(server = %self.server(), reason = class.name(), %error, "redis is still unavailable");
        } else {
            tracing::debug!(server = %self.server(), reason = class.name(), %error, "redis is still unavailable");
        }
    }

    /// Without anything secret.
    pub(super) fn server(&self) -> &dyn std::fmt::Display {
        match &self.target {
            Some(target) => &target.address,
            None => &"given",
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether it is time to let a call through as a probe.
    fn trial_is_due(&mut self) -> bool {
        if self.live.is_none() {
            return false;
        }
        let now = Instant::now();
        let due = self.next_trial.is_some_and(|at| now >= at);
        if due {
            self.next_trial = None;
            self.breaker.probed(now, false);
        } else if self.next_trial.is_none() {
            self.next_trial = Some(now + self.breaker.pause());
        }
        due
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(task) = self.lock().task.take() {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
