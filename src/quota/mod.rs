//! How much a key may use: limit, window and algorithm.

mod algorithm;
mod error;
mod rate;
#[cfg(test)]
mod tests;
mod text;
#[cfg(feature = "serde")]
mod with_serde;

pub use self::algorithm::Algorithm;
use self::algorithm::Form;
pub(crate) use self::algorithm::{Kind, Layout, Phase};
pub use self::error::{ParseQuotaError, QuotaError};
pub use self::rate::Rate;
#[cfg(feature = "serde")]
pub(crate) use self::text::{in_words, parse_time};

use std::fmt;
use std::time::Duration;

/// The largest limit, burst or rate that a [`Quota`] takes: 2³² units.
pub const MAX_UNITS: u64 = 1 << 32;

/// Up to this limit a sliding window keeps one entry per unit and is exact.
pub const MAX_LOG_UNITS: u64 = 4_096;

/// Slots of a sliding window above [`MAX_LOG_UNITS`] units.
pub(crate) const DEFAULT_SLOTS: u16 = 64;

const MIN_WINDOW: u64 = 1_000;
const MAX_WINDOW: u64 = 366 * 24 * 3_600 * 1_000_000;
/// A bucket must refill within this many microseconds (about 35 years), so that every time that the
/// arithmetic meets stays an exact integer.
const MAX_FILL: u128 = 1 << 50;
const MAX_SLOTS: u16 = 256;

/// An allowance: limit, window and algorithm.
///
/// The constructors say what they mean: `Quota::per_minute(100)` is 100 per sliding minute and nothing else.
/// A limit of 0 denies every request. Limits go up to 2³² ([`MAX_UNITS`]), windows from 1 ms to 366 days.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Quota, Rate};
///
/// const LOGIN: Quota = Quota::per_minute(5);
/// let burst = Quota::new(5, Duration::from_secs(10));
/// let steady = Quota::token_bucket(Rate::per_second(10), 20);
///
/// assert_eq!("100/minute".parse(), Ok(Quota::per_minute(100)));
/// assert_eq!("10/s burst 20".parse(), Ok(steady));
/// assert_eq!(burst.to_string(), "5 per 10 seconds");
/// assert_eq!(LOGIN.limit(), Some(5));
/// ```
///
/// An impossible quota in a `const` does not compile:
///
/// ```compile_fail
/// # use tollgate::Quota;
/// const NEVER: Quota = Quota::new(10, std::time::Duration::ZERO);
/// # let _ = NEVER;
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    limit: u64,
    window: u64,
    /// A [`Kind`] field by field, which moves faster than an enum with data of several sizes; 0 where it has none.
    form: Form,
    slots: u16,
    /// A bucket's burst, or where fixed windows begin.
    more: u64,
}

impl Quota {
    /// `limit` units per sliding second.
    ///
    /// # Panics
    ///
    /// If `limit` exceeds [`MAX_UNITS`]; in a `const`, this is a compile error.
    #[must_use]
    #[track_caller]
    pub const fn per_second(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(1))
    }

    /// `limit` units per sliding minute.
    ///
    /// # Panics
    ///
    /// If `limit` exceeds [`MAX_UNITS`].
    #[must_use]
    #[track_caller]
    pub const fn per_minute(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(60))
    }

    /// `limit` units per sliding hour.
    ///
    /// # Panics
    ///
    /// If `limit` exceeds [`MAX_UNITS`].
    #[must_use]
    #[track_caller]
    pub const fn per_hour(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(3_600))
    }

    /// `limit` units per sliding 24 hours.
    ///
    /// # Panics
    ///
    /// If `limit` exceeds [`MAX_UNITS`].
    #[must_use]
    #[track_caller]
    pub const fn per_day(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(86_400))
    }

    /// `limit` units per sliding `window`.
    ///
    /// # Panics
    ///
    /// Where [`try_new`](Self::try_new) returns an error.
    #[must_use]
    #[track_caller]
    pub const fn new(limit: u64, window: Duration) -> Self {
        match Self::try_new(limit, window) {
            Ok(quota) => quota,
            Err(error) => panic!("{}", error.message()),
        }
    }

    /// `limit` units per sliding `window`.
    ///
    /// # Errors
    ///
    /// If the limit exceeds [`MAX_UNITS`], or the window is not a whole number of microseconds from 1 ms to
    /// 366 days.
    pub const fn try_new(limit: u64, window: Duration) -> Result<Self, QuotaError> {
        if limit > MAX_UNITS {
            return Err(QuotaError::Limit);
        }
        match checked_window(window) {
            Ok(window) => Ok(Self::of(limit, window, Kind::Sliding { slots: 0 })),
            Err(error) => Err(error),
        }
    }

    /// A bucket that holds `burst` units and refills at `rate`: at most `burst + rate × x` units in any time
    /// `x`. Headers show the burst as the limit.
    ///
    /// # Panics
    ///
    /// Where [`try_token_bucket`](Self::try_token_bucket) returns an error.
    #[must_use]
    #[track_caller]
    pub const fn token_bucket(rate: Rate, burst: u64) -> Self {
        match Self::try_token_bucket(rate, burst) {
            Ok(quota) => quota,
            Err(error) => panic!("{}", error.message()),
        }
    }

    /// A bucket that holds `burst` units and refills at `rate`.
    ///
    /// # Errors
    ///
    /// If the burst exceeds [`MAX_UNITS`], or an empty bucket would take more than about 35 years to refill.
    pub const fn try_token_bucket(rate: Rate, burst: u64) -> Result<Self, QuotaError> {
        if burst > MAX_UNITS {
            return Err(QuotaError::Burst);
        }
        if burst as u128 * rate.window_micros() as u128 / rate.units() as u128 > MAX_FILL {
            return Err(QuotaError::Refill);
        }
        Ok(Self::of(
            rate.units(),
            rate.window_micros(),
            Kind::Bucket { burst },
        ))
    }

    /// No limit: requests are not counted, and no headers are sent for them.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self::of(0, 0, Kind::Unlimited)
    }

    /// Counts the sliding window in `slots` equal slots, the oldest, partly covered one in full, instead of
    /// in an exact log: constant memory, never over the limit, at most one slot's length too strict.
    ///
    /// # Panics
    ///
    /// If `slots` is not within 2 to 256, or the quota is unlimited or not a sliding window.
    #[must_use]
    #[track_caller]
    pub const fn slots(self, slots: u16) -> Self {
        assert!(
            slots >= 2 && slots <= MAX_SLOTS,
            "a sliding window takes 2 to 256 slots"
        );
        assert!(
            matches!(self.form, Form::Sliding),
            "slots belong to a sliding window: call this on Quota::per_minute(..) or the like"
        );
        Self::of(self.limit, self.window, Kind::Sliding { slots })
    }

    /// Counts with [`Algorithm::SlidingCounter`]: two counters per key, less than twice the limit in any window.
    ///
    /// # Panics
    ///
    /// If the quota is unlimited or a token bucket.
    #[must_use]
    #[track_caller]
    pub const fn sliding_counter(self) -> Self {
        self.window_kind(Kind::Counter)
    }

    /// Counts with [`Algorithm::FixedWindow`], windows beginning at multiples of the window since the UTC
    /// epoch: up to twice the limit across an edge.
    ///
    /// # Panics
    ///
    /// If the quota is unlimited or a token bucket.
    #[must_use]
    #[track_caller]
    pub const fn fixed_window(self) -> Self {
        self.window_kind(Kind::Fixed(Phase::Utc(0)))
    }

    /// As [`fixed_window`](Self::fixed_window), each window beginning `offset` later: a day from 06:00 UTC,
    /// say. Only the part of the offset that is below the window counts.
    ///
    /// # Panics
    ///
    /// If the quota is unlimited or a token bucket.
    #[must_use]
    #[track_caller]
    pub const fn fixed_window_offset(self, offset: Duration) -> Self {
        assert!(!self.is_unlimited(), "an unlimited quota has no window");
        let offset = (offset.as_micros() % self.window as u128) as u64;
        self.window_kind(Kind::Fixed(Phase::Utc(offset)))
    }

    /// As [`fixed_window`](Self::fixed_window), each key's windows beginning at an offset of its own (a hash
    /// of the key), so that not all clients are released in the same instant.
    ///
    /// # Panics
    ///
    /// If the quota is unlimited or a token bucket.
    #[must_use]
    #[track_caller]
    pub const fn fixed_window_per_key(self) -> Self {
        self.window_kind(Kind::Fixed(Phase::PerKey))
    }

    #[track_caller]
    const fn window_kind(self, kind: Kind) -> Self {
        assert!(
            !matches!(self.form, Form::Unlimited | Form::Bucket),
            "start from a limit and a window: Quota::per_minute(..) or the like"
        );
        Self::of(self.limit, self.window, kind)
    }

    /// All that it says: two quotas are the same if these are. The last of them has at most 32 bits.
    #[inline]
    pub(crate) const fn words(&self) -> [u64; 4] {
        let Self {
            limit,
            window,
            form,
            slots,
            more,
        } = *self;
        [limit, window, more, (form as u64) << 16 | slots as u64]
    }

    const fn of(limit: u64, window: u64, kind: Kind) -> Self {
        let (form, slots, more) = match kind {
            Kind::Unlimited => (Form::Unlimited, 0, 0),
            Kind::Sliding { slots } => (Form::Sliding, slots, 0),
            Kind::Counter => (Form::Counter, 0, 0),
            Kind::Fixed(Phase::Utc(offset)) => (Form::Fixed, 0, offset),
            Kind::Fixed(Phase::PerKey) => (Form::FixedPerKey, 0, 0),
            Kind::Bucket { burst } => (Form::Bucket, 0, burst),
        };
        Self {
            limit,
            window,
            form,
            slots,
            more,
        }
    }

    /// Units that fit at once: the limit, or a bucket's burst. `None` if unlimited.
    #[must_use]
    #[inline]
    pub const fn limit(&self) -> Option<u64> {
        match self.form {
            Form::Unlimited => None,
            Form::Bucket => Some(self.more),
            _ => Some(self.limit),
        }
    }

    /// The window, or the time that a bucket's rate is stated for. Zero if unlimited.
    #[must_use]
    pub const fn window(&self) -> Duration {
        Duration::from_micros(self.window)
    }

    /// How the quota counts. `None` if unlimited.
    #[must_use]
    pub const fn algorithm(&self) -> Option<Algorithm> {
        match self.form {
            Form::Unlimited => None,
            Form::Sliding => Some(Algorithm::SlidingWindow),
            Form::Counter => Some(Algorithm::SlidingCounter),
            Form::Fixed | Form::FixedPerKey => Some(Algorithm::FixedWindow),
            Form::Bucket => Some(Algorithm::TokenBucket),
        }
    }

    /// The rate at which a bucket refills. `None` for other algorithms.
    #[must_use]
    pub const fn rate(&self) -> Option<Rate> {
        match self.form {
            Form::Bucket => Some(Rate::unchecked(self.limit, self.window)),
            _ => None,
        }
    }

    /// In how many slots a sliding window is counted. `None` for an exact log, and for other algorithms.
    #[must_use]
    pub const fn slot_count(&self) -> Option<u16> {
        match self.layout() {
            Some(Layout::Slots(slots)) => Some(slots),
            _ => None,
        }
    }

    /// Where fixed windows begin: so long after multiples of the window since the UTC epoch. `None` for other
    /// algorithms, and if each key's windows begin at an offset of its own.
    #[must_use]
    pub const fn window_offset(&self) -> Option<Duration> {
        match self.form {
            Form::Fixed => Some(Duration::from_micros(self.more)),
            _ => None,
        }
    }

    /// Whether nothing is counted.
    #[must_use]
    #[inline]
    pub const fn is_unlimited(&self) -> bool {
        matches!(self.form, Form::Unlimited)
    }

    /// What each of `parts` equal instances may admit by itself: an equal part of limit, rate and burst, but at
    /// least one unit of what was not 0.
    pub(crate) const fn share(mut self, parts: u64) -> Self {
        self.limit = divided(self.limit, parts);
        if matches!(self.form, Form::Bucket) {
            self.more = divided(self.more, parts);
        }
        self
    }

    #[inline]
    pub(crate) const fn kind(&self) -> Kind {
        match self.form {
            Form::Unlimited => Kind::Unlimited,
            Form::Sliding => Kind::Sliding { slots: self.slots },
            Form::Counter => Kind::Counter,
            Form::Fixed => Kind::Fixed(Phase::Utc(self.more)),
            Form::FixedPerKey => Kind::Fixed(Phase::PerKey),
            Form::Bucket => Kind::Bucket { burst: self.more },
        }
    }

    /// Units per window: the limit, or a bucket's rate.
    #[inline]
    pub(crate) const fn units_per_window(&self) -> u64 {
        self.limit
    }

    #[inline]
    pub(crate) const fn window_micros(&self) -> u64 {
        self.window
    }

    /// `None` if unlimited.
    #[inline]
    pub(crate) const fn layout(&self) -> Option<Layout> {
        Some(match (self.form, self.slots) {
            (Form::Unlimited, _) => return None,
            (Form::Sliding, 0) if self.limit <= MAX_LOG_UNITS => Layout::Log,
            (Form::Sliding, 0) => Layout::Slots(DEFAULT_SLOTS),
            (Form::Sliding, slots) => Layout::Slots(slots),
            (Form::Counter, _) => Layout::Counter,
            (Form::Fixed, _) => Layout::Fixed,
            (Form::FixedPerKey, _) => Layout::FixedPerKey,
            (Form::Bucket, _) => Layout::Bucket,
        })
    }
}

const fn divided(units: u64, parts: u64) -> u64 {
    let share = units / parts;
    if share == 0 && units > 0 { 1 } else { share }
}

const fn checked_window(window: Duration) -> Result<u64, QuotaError> {
    let micros = window.as_micros();
    if micros < MIN_WINDOW as u128
        || micros > MAX_WINDOW as u128
        || !window.subsec_nanos().is_multiple_of(1_000)
    {
        return Err(QuotaError::Window);
    }
    Ok(micros as u64)
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")
    }
}
