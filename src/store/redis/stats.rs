//! What a store has seen.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::class::Class;
use super::merged::Merged;
use crate::store::LocalStats;

/// What a [`RedisStore`](super::RedisStore) has seen since it was made, and what it does now.
///
/// Counts only grow.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisStats {
    /// Whether the store answers at once that it cannot, and does not ask the server.
    pub is_open: bool,
    /// Callers that wait for the next call.
    pub waiting: usize,
    /// Calls in flight.
    pub in_flight: usize,
    /// Calls that acquire. Asks over calls is the size of a batch.
    pub calls: u64,
    /// Asks in these calls, equal ones merged into one.
    pub asks: u64,
    /// Charges in these calls.
    pub charges: u64,
    /// Callers whose asks were in these calls. Callers over asks is how many share one.
    pub callers: u64,
    /// Calls that correct what was charged. Corrections over settle calls is the size of a batch.
    pub settle_calls: u64,
    /// Corrections in these calls. Those that are sent again count again.
    pub corrections: u64,
    /// Replies, and how long they took.
    pub latency: Latency,
    /// Calls whose reply did not come in time.
    pub timeouts: u64,
    /// Asks that the server came to after their deadline; it did nothing then.
    pub too_late: u64,
    /// Asks that were refused because too many waited.
    pub refused: u64,
    /// Grants that came when their callers had gone, and were given back.
    pub late_grants: u64,
    /// Grants that could not be given back, of these, and of those that another slot of a cluster denied: they stay charged until
    /// they leave the window.
    pub lost_grants: u64,
    /// Checks that were answered without the server.
    pub local: LocalStats,
    /// Errors by class, such as `"no_script"` or `"io"`; those that did not occur are left out.
    pub errors: Vec<(&'static str, u64)>,
}

/// How long replies took, from a histogram whose buckets double in width: quantiles are the upper ends of their
/// buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// Replies.
    pub count: u64,
    /// Half of the replies took no longer.
    pub median: Duration,
    /// 99 of 100 replies took no longer.
    pub p99: Duration,
    /// No reply took longer.
    pub max: Duration,
}

/// The counters behind [`RedisStats`].
#[derive(Debug, Default)]
pub(super) struct Stats {
    calls: AtomicU64,
    asks: AtomicU64,
    charges: AtomicU64,
    callers: AtomicU64,
    settle_calls: AtomicU64,
    corrections: AtomicU64,
    timeouts: AtomicU64,
    too_late: AtomicU64,
    refused: AtomicU64,
    late_grants: AtomicU64,
    lost_grants: AtomicU64,
    /// Replies by the number of bits of their microseconds.
    latency: [AtomicU64; BUCKETS],
    max_micros: AtomicU64,
    errors: Mutex<Vec<(&'static str, u64)>>,
    answered: Mutex<Option<Instant>>,
}

const BUCKETS: usize = 32;

impl Stats {
    pub(super) fn count_call(&self, asks: &[Merged]) {
        let charges: usize = asks.iter().map(|merged| merged.ask.order.charges.len()).sum();
        let callers: u64 = asks.iter().map(|merged| merged.present as u64).sum();
        self.calls.fetch_add(1, Relaxed);
        self.asks.fetch_add(asks.len() as u64, Relaxed);
        self.charges.fetch_add(charges as u64, Relaxed);
        self.callers.fetch_add(callers, Relaxed);
    }

    pub(super) fn count_settle_call(&self, corrections: usize) {
        self.settle_calls.fetch_add(1, Relaxed);
        self.corrections.fetch_add(corrections as u64, Relaxed);
    }

    pub(super) fn note_answer(&self, at: Instant, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        self.latency[bucket.min(BUCKETS - 1)].fetch_add(1, Relaxed);
        self.max_micros.fetch_max(micros, Relaxed);
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    /// Whether any reply has come since.
    pub(super) fn answered_since(&self, since: Instant) -> bool {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.is_some_and(|at| at > since)
    }

    pub(super) fn note_timeout(&self) {
        self.timeouts.fetch_add(1, Relaxed);
    }

    pub(super) fn count_too_late(&self, asks: usize) {
        self.too_late.fetch_add(asks as u64, Relaxed);
    }

    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(super) fn count_late(&self, grants: u32) {
        self.late_grants.fetch_add(u64::from(grants), Relaxed);
    }

    pub(super) fn count_lost(&self, grants: u32) {
        self.lost_grants.fetch_add(u64::from(grants), Relaxed);
    }

    pub(super) fn count_error(&self, class: Class) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        match errors.iter_mut().find(|(name, _)| *name == class.name()) {
            Some((_, count)) => *count += 1,
            None => errors.push((class.name(), 1)),
        }
    }

    pub(super) fn snapshot(
        &self,
        is_open: bool,
        waiting: usize,
        in_flight: usize,
        local: LocalStats,
    ) -> RedisStats {
        RedisStats {
            is_open,
            waiting,
            in_flight,
            calls: self.calls.load(Relaxed),
            asks: self.asks.load(Relaxed),
            charges: self.charges.load(Relaxed),
            callers: self.callers.load(Relaxed),
            settle_calls: self.settle_calls.load(Relaxed),
            corrections: self.corrections.load(Relaxed),
            latency: self.latency(),
            timeouts: self.timeouts.load(Relaxed),
            too_late: self.too_late.load(Relaxed),
            refused: self.refused.load(Relaxed),
            late_grants: self.late_grants.load(Relaxed),
            lost_grants: self.lost_grants.load(Relaxed),
            local,
            errors: self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    fn latency(&self) -> Latency {
        let counts: [u64; BUCKETS] = std::array::from_fn(|bucket| self.latency[bucket].load(Relaxed));
        let count: u64 = counts.iter().sum();
        let max = self.max_micros.load(Relaxed);
        let quantile = |percent: u64| {
            let mut left = (count * percent).div_ceil(100);
            let bucket = counts.iter().position(|&in_bucket| {
                let found = in_bucket >= left;
                left = left.saturating_sub(in_bucket);
                found
            });
            let upper = bucket.map_or(max, |bucket| (1_u64 << bucket) - 1);
            Duration::from_micros(upper.min(max))
        };
        Latency {
            count,
            median: quantile(50),
            p99: quantile(99),
            max: Duration::from_micros(max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_upper_ends_of_their_buckets() {
        let stats = Stats::default();
        assert_eq!(stats.latency(), Latency::default());
        let now = Instant::now();
        for _ in 0..98 {
            stats.note_answer(now, Duration::from_micros(40));
        }
        stats.note_answer(now, Duration::from_micros(900));
        stats.note_answer(now, Duration::from_micros(5_000));
        let latency = stats.latency();
        assert_eq!(latency.count, 100);
        assert_eq!(latency.median, Duration::from_micros(63));
        assert_eq!(latency.p99, Duration::from_micros(1_023));
        assert_eq!(latency.max, Duration::from_micros(5_000));
    }
}
