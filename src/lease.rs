//! How far ahead an instance takes units.

use std::fmt;
use std::time::Duration;

use crate::quota::{Algorithm, Quota};
use crate::store::{Nanos, nanos};

/// Lets each instance take units of a hot key ahead and spend them without asking the store: see
/// [local answers](crate::local_answers). Only before stores that are asked over a network.
///
/// Whether a key is hot, and how much is taken, follows its own recent rate. Near the limit nothing is taken ahead. The limit
/// stays exact; what it costs is that units lie idle for up to a lifetime: taken, and not yet spent or given back.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Lease, Policy, Quota, key};
///
/// let all = Policy::new("all", Quota::per_minute(600_000), key::Global)
///     .lease(Lease::new().max_percent(5).lifetime(Duration::from_millis(300)));
/// # let _ = all;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Lease {
    max_percent: u8,
    /// `None` for the default, which is the quota's affair.
    lifetime: Option<Duration>,
}

const LONGEST: Duration = Duration::from_secs(1);
const SHORTEST_BY_DEFAULT: Duration = Duration::from_millis(10);
const SHORTEST: Duration = Duration::from_millis(1);

impl Lease {
    /// At most 10 % of the limit for each instance and key, for 1 % of the window, at least 10 ms and at most one second.
    pub const fn new() -> Self {
        Self {
            max_percent: 10,
            lifetime: None,
        }
    }

    /// How much of the limit a layer or limiter holds unspent for a key, at most, in percent: 10.
    ///
    /// # Panics
    ///
    /// If it is 0 or above 100.
    #[track_caller]
    pub const fn max_percent(self, percent: u8) -> Self {
        match self.try_max_percent(percent) {
            Ok(lease) => lease,
            Err(why) => panic!("{}", why),
        }
    }

    pub(crate) const fn try_max_percent(mut self, percent: u8) -> Result<Self, &'static str> {
        if percent == 0 || percent > 100 {
            return Err("a lease takes 1 to 100 percent of the limit: leave it out to take none");
        }
        self.max_percent = percent;
        Ok(self)
    }

    /// How long units that were taken are spent, from the asking on: 1 ms to one second, and no longer than the window: 1 % of the
    /// window, at least 10 ms, if not set.
    ///
    /// # Panics
    ///
    /// If it is below 1 ms or above one second.
    #[track_caller]
    pub const fn lifetime(self, lifetime: Duration) -> Self {
        match self.try_lifetime(lifetime) {
            Ok(lease) => lease,
            Err(why) => panic!("{}", why),
        }
    }

    pub(crate) const fn try_lifetime(mut self, lifetime: Duration) -> Result<Self, &'static str> {
        if lifetime.as_nanos() < SHORTEST.as_nanos() || lifetime.as_nanos() > LONGEST.as_nanos() {
            return Err("a lease lives from one millisecond to one second");
        }
        self.lifetime = Some(lifetime);
        Ok(self)
    }

    #[cfg(feature = "serde")]
    pub(crate) const fn percent(&self) -> u8 {
        self.max_percent
    }

    #[cfg(feature = "serde")]
    pub(crate) const fn set_lifetime(&self) -> Option<Duration> {
        self.lifetime
    }

    /// How long units of a quota live.
    #[inline]
    pub(crate) fn life(&self, quota: &Quota) -> Nanos {
        let window = quota.window_micros().saturating_mul(1_000);
        let life = match self.lifetime {
            Some(lifetime) => nanos(lifetime),
            None => (window / 100).clamp(nanos(SHORTEST_BY_DEFAULT), nanos(LONGEST)),
        };
        life.min(window)
    }

    /// Units of a quota that an instance may hold.
    #[inline]
    pub(crate) fn most(&self, quota: &Quota) -> u64 {
        // No limit is above 2³².
        quota.limit().unwrap_or(0) * u64::from(self.max_percent) / 100
    }

    /// Whether units of a quota can be taken ahead: a sliding counter forgets when it was charged.
    pub(crate) fn suits(quota: &Quota) -> bool {
        quota
            .algorithm()
            .is_some_and(|algorithm| algorithm != Algorithm::SlidingCounter)
    }
}

impl Default for Lease {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a policy takes no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseRefusal {
    SlidingCounter,
    Penalty,
}

impl fmt::Display for LeaseRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SlidingCounter => {
                "a sliding counter takes no lease, as it forgets when units were charged: use a sliding window, a fixed window or \
                 a token bucket, or leave the lease out"
            }
            Self::Penalty => {
                "a policy with a penalty takes no lease, as the store must see every request of a key that it may block: leave \
                 one of them out"
            }
        })
    }
}
