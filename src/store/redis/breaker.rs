//! Whether calls are worth making.

use std::time::Duration;

use tokio::time::Instant;

use super::class::Class;

/// Deadlines can be short, or nearly over when a call is sent. Less silence than this says nothing about a server.
const SHORTEST_SILENCE: Duration = Duration::from_millis(50);

/// Opens after failures in a row; while it is open nobody calls, except one probe at a time (which the supervisor makes).
///
/// A timeout counts only if no answer to any call has come since the call was sent: a server that answers others is
/// overloaded, not gone, and a flood must not switch a limit off.
#[derive(Debug)]
pub(super) struct Breaker {
    limits: Limits,
    failures: u32,
    timeouts: u32,
    last_answer: Option<Instant>,
    /// When the first call was sent that has timed out since the last answer.
    silent_since: Option<Instant>,
    /// When a probe last passed: failures of calls from before are of the last outage.
    passed: Option<Instant>,
    position: Position,
    backoff: Backoff,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Failures in a row that open it.
    pub(super) failures: u32,
    /// Timeouts in a row that open it.
    pub(super) timeouts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Closed,
    /// A probe has passed that proves little: calls are made, and the first failure opens it again.
    Trial,
    Open {
        since: Instant,
        reason: Class,
    },
}

/// Where a breaker stands, for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// Calls are made.
    Closed,
    /// Calls are refused at once.
    Open { since: Instant, reason: Class },
}

/// What an event has changed, and what is worth a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    Opened,
    /// Opened again before any call had been answered.
    Reopened,
    Closed,
}

impl Breaker {
    pub(super) const fn new(limits: Limits, backoff: Backoff) -> Self {
        Self {
            limits,
            failures: 0,
            timeouts: 0,
            last_answer: None,
            silent_since: None,
            passed: None,
            position: Position::Closed,
            backoff,
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.position, Position::Open { .. })
    }

    pub(super) const fn state(&self) -> LinkState {
        match self.position {
            Position::Closed | Position::Trial => LinkState::Closed,
            Position::Open { since, reason } => LinkState::Open { since, reason },
        }
    }

    /// The server has answered a call.
    pub(super) fn answered(&mut self, now: Instant) -> Change {
        self.heard(now);
        self.failures = 0;
        match self.position {
            Position::Closed => {
                self.backoff.reset();
                Change::None
            }
            Position::Trial => {
                self.backoff.reset();
                self.position = Position::Closed;
                Change::Closed
            }
            // A late answer; the probe decides.
            Position::Open { .. } => Change::None,
        }
    }

    /// A call that was sent at `sent` has not been answered in time.
    pub(super) fn timed_out(&mut self, now: Instant, sent: Instant) -> Change {
        if self.last_answer.is_some_and(|answer| answer >= sent) {
            return Change::None;
        }
        let since = self.silent_since.map_or(sent, |since| since.min(sent));
        self.silent_since = Some(since);
        self.timeouts = self.timeouts.saturating_add(1);
        self.failures = self.failures.saturating_add(1);
        let is_enough = self.timeouts >= self.limits.timeouts
            || self.failures >= self.limits.failures
            || self.position == Position::Trial;
        if is_enough && now.saturating_duration_since(since) >= SHORTEST_SILENCE {
            return self.open(now, Class::Timeout);
        }
        Change::None
    }

    /// A call that was sent at `sent` has failed for a reason that [is an outage](Class::is_outage), other than a timeout.
    pub(super) fn failed(&mut self, now: Instant, sent: Instant, reason: Class) -> Change {
        if self.passed.is_some_and(|passed| sent < passed) {
            return Change::None;
        }
        if reason.is_answer() {
            self.heard(now);
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures >= self.limits.failures || self.position == Position::Trial {
            return self.open(now, reason);
        }
        Change::None
    }

    fn heard(&mut self, now: Instant) {
        self.last_answer = Some(now);
        self.silent_since = None;
        self.timeouts = 0;
    }

    pub(super) fn open(&mut self, now: Instant, reason: Class) -> Change {
        self.failures = 0;
        self.timeouts = 0;
        self.silent_since = None;
        let change = match self.position {
            Position::Closed => Change::Opened,
            Position::Trial => Change::Reopened,
            Position::Open { .. } => return Change::None,
        };
        self.position = Position::Open { since: now, reason };
        change
    }

    /// A probe has failed for this reason. True if it is another than before.
    pub(super) fn stays_open(&mut self, now: Instant, why: Class) -> bool {
        match &mut self.position {
            Position::Open { reason, .. } => std::mem::replace(reason, why) != why,
            Position::Closed | Position::Trial => {
                self.open(now, why);
                true
            }
        }
    }

    /// A probe has passed. If it is `proof`, the server serves; else that is left to the first call. The pauses between
    /// probes stay long until a call is answered, so that a server that only answers probes is not asked all the time.
    pub(super) fn probed(&mut self, now: Instant, proof: bool) {
        self.passed = Some(now);
        self.heard(now);
        self.position = if proof { Position::Closed } else { Position::Trial };
    }

    /// How long to wait before the next probe.
    pub(super) fn pause(&mut self) -> Duration {
        self.backoff.next()
    }
}

/// Decorrelated jitter: each pause is random between the shortest one and three times the last, so that the instances of
/// a fleet that lost a server together do not come back together.
#[derive(Debug)]
pub(super) struct Backoff {
    shortest: Duration,
    longest: Duration,
    last: Option<Duration>,
    /// The first pause begins here instead.
    first: Duration,
}

impl Backoff {
    /// For connecting: at once or nearly, at first.
    pub(super) const fn of_reconnects() -> Self {
        Self {
            shortest: Duration::from_millis(20),
            longest: Duration::from_secs(1),
            last: None,
            first: Duration::ZERO,
        }
    }

    /// For probing a connection that is not ours: it may need time to mend itself.
    pub(super) const fn of_probes() -> Self {
        Self {
            shortest: Duration::from_millis(100),
            longest: Duration::from_secs(1),
            last: None,
            first: Duration::from_millis(100),
        }
    }

    fn next(&mut self) -> Duration {
        let (from, to) = match self.last {
            None => (self.first, self.first.max(self.shortest) * 3 / 2),
            Some(last) => (self.shortest, last.max(self.shortest) * 3),
        };
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let pause = Duration::from_micros(fastrand::u64(micros(from)..=micros(to))).min(self.longest);
        self.last = Some(pause);
        pause
    }

    const fn reset(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests;
