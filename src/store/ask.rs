//! What a store is asked.

use std::time::Duration;

use tokio::time::Instant;

use crate::key::Key;
use crate::penalty::Penalty;
use crate::policy::PolicyName;
use crate::quota::Quota;

/// Charges that stand or fall together, and how often.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Ask<'a> {
    /// What one grant takes. Charges on the same counter add up.
    pub charges: &'a [Charge<'a>],
    /// The store grants the ask between 0 and this many times.
    pub want: u32,
    /// How far ahead of the store's clock the units are charged: those of a lease stay out of the window until
    /// the lease has ended. At most one second, at most the shortest window, and at most to the end of a fixed
    /// window, or of a sliding counter's: more counts as that.
    pub hold: Duration,
    /// How long the caller waits for the answer: from the call on, or from a little before, when a limiter that made this ask began
    /// to answer its check. So who hands on the ask that it was given need not take off the time that it has used.
    pub deadline: Duration,
    /// When the caller began to wait, if it has read the clock. A store may read the clock itself all the same.
    asked: Option<Instant>,
}

impl<'a> Ask<'a> {
    /// One grant of `charges`, charged now, within 100 ms.
    #[must_use]
    #[inline]
    pub const fn new(charges: &'a [Charge<'a>]) -> Self {
        Self {
            charges,
            want: 1,
            hold: Duration::ZERO,
            deadline: Duration::from_millis(100),
            asked: None,
        }
    }

    /// Asks for up to `want` grants.
    #[must_use]
    pub const fn want(mut self, want: u32) -> Self {
        self.want = want;
        self
    }

    /// Charges the units as of `hold` after the store's time.
    #[must_use]
    pub const fn hold(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }

    /// Waits for an answer until `deadline` has passed.
    #[must_use]
    #[inline]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    #[inline]
    pub(crate) const fn asked(mut self, asked: Option<Instant>) -> Self {
        self.asked = asked;
        self
    }

    /// When the caller began to wait. Now, if it has not said.
    #[cfg(feature = "redis")]
    #[inline]
    pub(super) fn asked_at(&self) -> Instant {
        self.asked.unwrap_or_else(Instant::now)
    }
}

/// Units of one counter.
///
/// The counter is identified by key, policy name, algorithm (with its layout) and window. Limit, burst and cost
/// are not part of it, so a changed limit finds the same counter.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Charge<'a> {
    /// What is counted.
    pub key: &'a Key,
    /// The policy that counts it.
    pub policy: &'a PolicyName,
    /// What it may use. Unlimited quotas fit always and leave no state.
    pub quota: Quota,
    /// Units per grant. 0 charges nothing and fits wherever the limit is not 0.
    pub cost: u64,
    /// Whether the charge can stop the ask.
    pub mode: Mode,
    /// What denials of this charge lead to. Its state is that of the key and the policy's name, under the penalty of the first
    /// enforced charge of the ask that has one for them. Ignored in shadow mode; unlimited quotas are blocked too, if by hand.
    pub penalty: Option<&'a Penalty>,
}

impl<'a> Charge<'a> {
    /// One enforced unit.
    #[must_use]
    #[inline]
    pub const fn new(key: &'a Key, policy: &'a PolicyName, quota: Quota) -> Self {
        Self {
            key,
            policy,
            quota,
            cost: 1,
            mode: Mode::Enforce,
            penalty: None,
        }
    }

    /// Charges `cost` units.
    #[must_use]
    #[inline]
    pub const fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Enforces the charge or only counts it.
    #[must_use]
    #[inline]
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Blocks the key after denials, or by hand.
    #[must_use]
    #[inline]
    pub const fn penalty(mut self, penalty: &'a Penalty) -> Self {
        self.penalty = Some(penalty);
        self
    }
}

/// Whether a charge can stop an ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// The ask is granted only if the charge fits.
    #[default]
    Enforce,
    /// Counted if it fits, and reported; never stops the ask.
    Shadow,
}

/// Whose penalties an ask is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Heeds {
    None,
    /// Of charges that can stop it.
    Enforced,
    All,
}

impl Heeds {
    pub(super) fn penalty<'a>(self, charge: &Charge<'a>) -> Option<&'a Penalty> {
        let heeded = match self {
            Self::None => false,
            Self::Enforced => charge.mode == Mode::Enforce,
            Self::All => true,
        };
        charge.penalty.filter(|_| heeded)
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;

    #[test]
    fn who_waits_has_waited_since_it_asked() {
        let earlier = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(Ask::new(&[]).asked(Some(earlier)).asked_at(), earlier);
        assert!(Ask::new(&[]).asked_at() > earlier);
    }
}
