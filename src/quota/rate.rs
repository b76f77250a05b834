//! The rate at which a bucket refills.

use std::fmt;
use std::time::Duration;

use super::{MAX_UNITS, QuotaError, checked_window};

/// Units per time, for [`Quota::token_bucket`](super::Quota::token_bucket). `Rate::per_second(10)` is ten
/// units in each second.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    units: u64,
    window: u64,
}

impl Rate {
    /// `units` per second.
    ///
    /// # Panics
    ///
    /// If `units` is 0 or exceeds [`MAX_UNITS`](super::MAX_UNITS); in a `const`, this is a compile error.
    #[must_use]
    #[track_caller]
    pub const fn per_second(units: u64) -> Self {
        Self::new(units, Duration::from_secs(1))
    }

    /// `units` per minute.
    ///
    /// # Panics
    ///
    /// If `units` is 0 or exceeds [`MAX_UNITS`](super::MAX_UNITS).
    #[must_use]
    #[track_caller]
    pub const fn per_minute(units: u64) -> Self {
        Self::new(units, Duration::from_secs(60))
    }

    /// `units` per hour.
    ///
    /// # Panics
    ///
    /// If `units` is 0 or exceeds [`MAX_UNITS`](super::MAX_UNITS).
    #[must_use]
    #[track_caller]
    pub const fn per_hour(units: u64) -> Self {
        Self::new(units, Duration::from_secs(3_600))
    }

    /// `units` per 24 hours.
    ///
    /// # Panics
    ///
    /// If `units` is 0 or exceeds [`MAX_UNITS`](super::MAX_UNITS).
    #[must_use]
    #[track_caller]
    pub const fn per_day(units: u64) -> Self {
        Self::new(units, Duration::from_secs(86_400))
    }

    /// `units` per `window`.
    ///
    /// # Panics
    ///
    /// Where [`try_new`](Self::try_new) returns an error.
    #[must_use]
    #[track_caller]
    pub const fn new(units: u64, window: Duration) -> Self {
        match Self::try_new(units, window) {
            Ok(rate) => rate,
            Err(error) => panic!("{}", error.message()),
        }
    }

    /// `units` per `window`.
    ///
    /// # Errors
    ///
    /// If `units` is 0 or exceeds [`MAX_UNITS`](super::MAX_UNITS), or the window is not a whole number of
    /// microseconds from 1 ms to 366 days.
    pub const fn try_new(units: u64, window: Duration) -> Result<Self, QuotaError> {
        if units == 0 || units > MAX_UNITS {
            return Err(QuotaError::Rate);
        }
        match checked_window(window) {
            Ok(window) => Ok(Self { units, window }),
            Err(error) => Err(error),
        }
    }

    pub(super) const fn unchecked(units: u64, window: u64) -> Self {
        Self { units, window }
    }

    /// The time that the units are stated for.
    #[must_use]
    pub const fn window(&self) -> Duration {
        Duration::from_micros(self.window)
    }

    /// Units per window.
    #[must_use]
    pub const fn units_per_window(&self) -> u64 {
        self.units
    }

    pub(super) const fn units(self) -> u64 {
        self.units
    }

    pub(super) const fn window_micros(self) -> u64 {
        self.window
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rate({self})")
    }
}
