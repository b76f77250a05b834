//! What a store answers.

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::algorithm::After;

/// The answer to an [`Ask`](super::Ask). Two are equal if they say the same of the store, whenever they were asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// How many times the ask was granted and charged, up to `want`.
    pub granted: u32,
    /// The store's time when it decided.
    pub now: Stamp,
    /// The time as of which the grants were charged; needed to give them back. Where charges have different ones, the
    /// first charge's.
    pub stamp: Stamp,
    /// The counters after the ask, in the order of its charges.
    pub states: SmallVec<[ChargeState; 1]>,
    /// When the ask was sent, by this machine's clock: the store decided later. `None` if that is not known more closely
    /// than that it was asked.
    pub sent: Option<Instant>,
    /// Of each charge, where they differ.
    stamps: Option<Box<[Stamp]>>,
}

impl PartialEq for Outcome {
    fn eq(&self, other: &Self) -> bool {
        let parts = |each: &Self| (each.granted, each.now, each.stamp);
        parts(self) == parts(other) && self.states == other.states && self.stamps == other.stamps
    }
}

impl Eq for Outcome {}

impl Outcome {
    /// An answer, charged as of `now`.
    #[must_use]
    #[inline]
    pub fn new(granted: u32, now: Stamp, states: impl IntoIterator<Item = ChargeState>) -> Self {
        Self {
            granted,
            now,
            stamp: now,
            states: states.into_iter().collect(),
            sent: None,
            stamps: None,
        }
    }

    /// The time as of which the grants were charged, where it is not the store's time.
    #[must_use]
    pub fn stamp(mut self, stamp: Stamp) -> Self {
        self.stamp = stamp;
        self
    }

    /// When the ask was sent, by this machine's clock.
    #[must_use]
    pub const fn sent(mut self, sent: Instant) -> Self {
        self.sent = Some(sent);
        self
    }

    /// The times as of which each charge was charged, in the order of the ask's charges, where a store has more than one
    /// clock.
    #[must_use]
    pub fn stamps(mut self, stamps: impl IntoIterator<Item = Stamp>) -> Self {
        let stamps: Box<[Stamp]> = stamps.into_iter().collect();
        self.stamp = stamps.first().copied().unwrap_or(self.stamp);
        self.stamps = stamps.iter().any(|stamp| *stamp != self.stamp).then_some(stamps);
        self
    }

    /// The time as of which the charge at `index` was charged; needed to give it back.
    #[must_use]
    pub fn stamp_of(&self, index: usize) -> Stamp {
        let own = self.stamps.as_ref().and_then(|stamps| stamps.get(index));
        own.copied().unwrap_or(self.stamp)
    }
}

/// One counter after an ask. Two are equal if their public fields are.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ChargeState {
    /// How many grants were charged: as many as the ask was granted, a shadow charge maybe fewer.
    pub charged: u32,
    /// Units that still fit.
    pub remaining: u64,
    /// When one more grant of this charge fits.
    pub retry: Retry,
    /// The time until the counter has forgotten all that was charged.
    pub reset_after: Duration,
    /// Whether a penalty's block stops the charge. Then nothing remains, and `retry` is when both block and quota let it.
    pub blocked: bool,
    /// How long the block lasts at least, in microseconds; 0 if that is not known.
    pub(super) block: u64,
    /// Whether anything is known of the counter. If not, no number here means anything: the ask was denied for another
    /// charge's sake, and nobody asked for this one.
    pub known: bool,
}

impl PartialEq for ChargeState {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |each: &Self| (each.charged, each.remaining, each.retry, each.reset_after);
        numbers(self) == numbers(other) && (self.blocked, self.known) == (other.blocked, other.known)
    }
}

impl Eq for ChargeState {}

impl ChargeState {
    pub(crate) const UNKNOWN: Self = Self {
        known: false,
        ..Self::new(0, 0, Retry::Now, Duration::ZERO)
    };

    /// A counter after an ask.
    #[must_use]
    #[inline]
    pub const fn new(charged: u32, remaining: u64, retry: Retry, reset_after: Duration) -> Self {
        Self {
            charged,
            remaining,
            retry,
            reset_after,
            blocked: false,
            block: 0,
            known: true,
        }
    }

    /// Sets whether a penalty's block stops the charge.
    #[must_use]
    pub const fn blocked(mut self, blocked: bool) -> Self {
        self.blocked = blocked;
        self
    }

    /// The same while a block lasts: nothing fits before its end.
    pub(super) fn blocked_until(mut self, until: u64, now: u64) -> Self {
        self.remaining = 0;
        self.retry = self.retry.max(Retry::After(Duration::from_micros(until - now)));
        self.block = until - now;
        self.blocked(true)
    }

    /// What is to be told of a counter.
    #[inline]
    pub(super) fn after(after: &After, now: u64, charged: u32) -> Self {
        let retry = match after.earliest {
            None => Retry::Never,
            Some(time) if time <= now => Retry::Now,
            Some(time) => Retry::After(Duration::from_micros(time - now)),
        };
        Self::new(
            charged,
            after.free,
            retry,
            Duration::from_micros(after.full_at - now),
        )
    }
}

/// When a cost fits, if nothing else is charged in the meantime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Retry {
    /// At once.
    Now,
    /// After exactly this time.
    After(Duration),
    /// Never: it is above the limit.
    Never,
}

/// A time on the store's clock, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// A time in microseconds since the Unix epoch.
    #[must_use]
    #[inline]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }
}
