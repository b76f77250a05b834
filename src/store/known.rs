//! The answer to the ordinary ask.

use std::time::Duration;

use super::{ChargeState, Retry, Stamp};
use crate::algorithm::After;
use crate::clock::micros_up;

/// The [`Outcome`](super::Outcome) of one grant of one enforced charge. In whole microseconds, as states and headers count, so that
/// nearly all requests are spared the way to a [`Duration`] and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownOutcome {
    pub(crate) granted: bool,
    pub(crate) blocked: bool,
    pub(crate) now: Stamp,
    pub(crate) stamp: Stamp,
    pub(crate) remaining: u64,
    pub(crate) retry: Wait,
    pub(crate) reset_after: u64,
}

impl KnownOutcome {
    /// What is to be told of a counter.
    #[inline]
    pub(in crate::store) const fn after(after: &After, (now, stamp): (u64, u64), granted: bool) -> Self {
        Self {
            granted,
            blocked: false,
            now: Stamp::from_micros(now),
            stamp: Stamp::from_micros(stamp),
            remaining: after.free,
            retry: match after.earliest {
                None => Wait::NEVER,
                Some(time) => Wait::micros(time.saturating_sub(now)),
            },
            reset_after: after.full_at - now,
        }
    }

    /// The same in the words of a store's answer.
    pub(crate) const fn state(&self) -> ChargeState {
        ChargeState::new(
            self.granted as u32,
            self.remaining,
            self.retry.retry(),
            Duration::from_micros(self.reset_after),
        )
        .blocked(self.blocked)
    }
}

/// A [`Retry`] in whole microseconds: decisions are moved a lot, and this is half of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait(u64);

impl Wait {
    pub(crate) const NOW: Self = Self(0);
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// Of none, at once.
    #[inline]
    pub(crate) const fn micros(micros: u64) -> Self {
        // The largest number means never.
        Self(micros - (micros == u64::MAX) as u64)
    }

    /// A number for it, of which [`from_bits`](Self::from_bits) makes the same.
    #[inline]
    pub(in crate::store) const fn to_bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(in crate::store) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// What is left of a wait for something later: never none.
    #[inline]
    pub(crate) fn after(self, micros: u64) -> Self {
        match self {
            Self::NEVER => Self::NEVER,
            Self(wait) => Self(wait.saturating_sub(micros).max(1)),
        }
    }

    #[inline]
    pub(crate) const fn retry(self) -> Retry {
        match self {
            Self::NOW => Retry::Now,
            Self::NEVER => Retry::Never,
            Self(micros) => Retry::After(Duration::from_micros(micros)),
        }
    }
}

impl From<Retry> for Wait {
    /// Waits are rounded up, and never to none.
    #[inline]
    fn from(retry: Retry) -> Self {
        match retry {
            Retry::Now => Self::NOW,
            Retry::After(wait) => Self::micros(micros_up(wait).max(1)),
            Retry::Never => Self::NEVER,
        }
    }
}
