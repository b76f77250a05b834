//! The time that a store decides by.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::algorithm::MAX_TIME;

/// The clock of an in-process store: microseconds since the Unix epoch.
///
/// [`Clock::default`] reads the wall clock once and follows the machine's monotonic clock from there, so it never
/// steps. Algorithms never ask for the time themselves.
#[derive(Clone, Default)]
pub struct Clock {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Monotonic { start: Instant, epoch_micros: u64 },
    Custom(Arc<dyn Fn() -> Duration + Send + Sync>),
}

impl Default for Kind {
    fn default() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::Monotonic {
            start: Instant::now(),
            epoch_micros: micros(epoch),
        }
    }
}

impl Clock {
    /// A clock that calls `since_epoch` for the time since the Unix epoch. It may stand still and step either
    /// way: a forward step admits at most one extra limit, and after a backward step nobody is held longer than
    /// two windows (in slots, two windows and two slots), and the smaller of one window and one second.
    ///
    /// It is called from any thread. A [`MemoryStore`](crate::MemoryStore) clears up on one of its own, where a clock that
    /// tokio has paused for a test goes on: tests have `ManualClock` (feature `test-util`).
    ///
    /// ```
    /// use std::time::{SystemTime, UNIX_EPOCH};
    /// use tollgate::{Clock, MemoryStore};
    ///
    /// // The system's clock, with all its steps, so that windows begin when those of others do.
    /// let clock = Clock::from_fn(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    /// let store = MemoryStore::builder().clock(clock).build();
    /// ```
    #[must_use]
    pub fn from_fn(since_epoch: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self {
            kind: Kind::Custom(Arc::new(since_epoch)),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        let now = match &self.kind {
            Kind::Monotonic { start, epoch_micros } => epoch_micros + micros(start.elapsed()),
            Kind::Custom(since_epoch) => micros(since_epoch()),
        };
        now.min(MAX_TIME)
    }
}

/// A duration in whole microseconds, rounded up, at most [`u64::MAX`].
#[inline]
pub(crate) const fn micros_up(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(duration.subsec_nanos().div_ceil(1_000) as u64)
}

/// A duration in whole microseconds, at most [`u64::MAX`].
#[inline]
pub(crate) fn micros(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(u64::from(duration.subsec_micros()))
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Monotonic { .. } => "Clock(monotonic)",
            Kind::Custom(_) => "Clock(custom)",
        })
    }
}

#[cfg(any(test, feature = "test-util"))]
pub use self::manual::ManualClock;

#[cfg(any(test, feature = "test-util"))]
mod manual {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::{Clock, micros};

    /// A clock that stands still until a test moves it. Clones share one time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{ManualClock, MemoryStore};
    ///
    /// let clock = ManualClock::new();
    /// let store = MemoryStore::builder().clock(clock.clock()).build();
    /// clock.advance(Duration::from_secs(60));
    /// # let _ = store;
    /// ```
    #[derive(Clone, Debug)]
    pub struct ManualClock {
        micros: Arc<AtomicU64>,
    }

    impl ManualClock {
        /// Stands at 1 800 000 000 s after the Unix epoch (in January 2027).
        #[must_use]
        pub fn new() -> Self {
            Self {
                micros: Arc::new(AtomicU64::new(1_800_000_000_000_000)),
            }
        }

        /// The clock to give to a store.
        #[must_use]
        pub fn clock(&self) -> Clock {
            let micros = Arc::clone(&self.micros);
            Clock::from_fn(move || Duration::from_micros(micros.load(Ordering::SeqCst)))
        }

        /// Moves forward.
        pub fn advance(&self, by: Duration) {
            self.micros.fetch_add(micros(by), Ordering::SeqCst);
        }

        /// Steps to a time since the Unix epoch, forward or back.
        pub fn set(&self, since_epoch: Duration) {
            self.micros.store(micros(since_epoch), Ordering::SeqCst);
        }

        /// The time since the Unix epoch.
        #[must_use]
        pub fn now(&self) -> Duration {
            Duration::from_micros(self.micros.load(Ordering::SeqCst))
        }
    }

    impl Default for ManualClock {
        fn default() -> Self {
            Self::new()
        }
    }
}
