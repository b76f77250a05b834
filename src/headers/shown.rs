//! The numbers of a decision that its response shows.

use std::time::Duration;

use super::number::ceil_secs;
use crate::clock::micros_up;
use crate::decision::{Decision, PolicyDecision, Verdict};
use crate::quota::{Algorithm, Quota};
use crate::store::{Charge, KnownOutcome, Mode};

/// How long a client waits when the store gave no answer: stores come back within seconds.
pub(crate) const UNAVAILABLE_RETRY: Duration = Duration::from_secs(1);

/// What a decision shows of its leading policy. It outlives the decision, and is small: it waits for the response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) limit: u64,
    pub(super) remaining: u64,
    /// The store's time, in microseconds.
    now: u64,
    /// From then on, in microseconds. `None` if the request is denied however long it waits.
    reset_after: Option<u64>,
    pub(super) is_allowed: bool,
}

const SECOND: u64 = 1_000_000;

impl Shown {
    /// `None` if no policy leads.
    #[inline]
    pub(super) fn of(decision: &Decision) -> Option<Self> {
        // An unlimited one leads where its key is blocked by hand, and has no numbers.
        let leading = decision
            .leading()
            .filter(|policy| !policy.quota().is_unlimited())?;
        Some(Self {
            limit: leading.limit(),
            remaining: leading.remaining(),
            now: decision.now().as_micros(),
            reset_after: decision.reset_after().map(micros_up),
            is_allowed: decision.is_allowed(),
        })
    }

    /// The same of the ordinary request, for which no decision need be made.
    #[inline]
    pub(super) fn of_grant(charge: &Charge<'_>, known: &KnownOutcome) -> Self {
        Self {
            limit: charge.quota.limit().unwrap_or(u64::MAX),
            remaining: known.remaining,
            now: known.now.as_micros(),
            reset_after: Some(known.reset_after),
            is_allowed: true,
        }
    }

    /// The time until the reset: whole seconds, rounded up. Of a denied request, what [`retry_after`] says.
    #[inline]
    pub(super) fn reset(&self) -> Option<u64> {
        let secs = self.reset_after?.div_ceil(SECOND);
        Some(if self.is_allowed { secs } else { secs.max(1) })
    }

    /// The reset as a time: whole seconds since the Unix epoch. The sum is rounded, not the time until then, so
    /// that all answers about one instant name the same second.
    pub(super) fn reset_at(&self) -> Option<u64> {
        Some(self.now.saturating_add(self.reset_after?).div_ceil(SECOND))
    }

    /// The store's time, in whole seconds since the Unix epoch.
    pub(super) const fn now_secs(&self) -> u64 {
        self.now / SECOND
    }
}

/// The policies of a decision that the client may know of.
pub(super) fn policies(decision: &Decision) -> impl Iterator<Item = &PolicyDecision> {
    decision
        .policies()
        .iter()
        .filter(|policy| policy.mode() == Mode::Enforce && !policy.quota().is_unlimited())
}

/// What `Retry-After` says: whole seconds, rounded up, at least 1. `None` if the request may pass, or never will.
pub(crate) fn retry_after(decision: &Decision) -> Option<u64> {
    let wait = match decision.verdict() {
        Verdict::Allowed | Verdict::MissingKey => None,
        Verdict::Denied => decision.retry_after(),
        Verdict::Unavailable => Some(UNAVAILABLE_RETRY),
    };
    wait.map(retry_secs)
}

/// A wait as clients are told of it: whole seconds, rounded up, at least 1, or they come back at once and in vain.
pub(crate) fn retry_secs(wait: Duration) -> u64 {
    ceil_secs(wait).max(1)
}

/// The window to advertise, in seconds: that of the quota, if it is whole seconds; of a bucket, the time to refill
/// all of its burst, rounded up.
pub(super) fn window_secs(quota: &Quota) -> Option<u64> {
    let secs = if quota.algorithm() == Some(Algorithm::TokenBucket) {
        let refill = u128::from(quota.limit()?) * u128::from(quota.window_micros());
        let per_sec = u128::from(quota.units_per_window()) * u128::from(SECOND);
        u64::try_from(refill.div_ceil(per_sec)).ok()?
    } else if quota.window_micros().is_multiple_of(SECOND) {
        quota.window_micros() / SECOND
    } else {
        return None;
    };
    // A window is positive in all drafts.
    (secs > 0).then_some(secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{Said, decision};
    use crate::quota::Rate;
    use std::time::Duration;

    #[test]
    fn windows_are_whole_seconds_or_absent() {
        for (quota, window) in [
            (Quota::per_minute(100), Some(60)),
            (Quota::per_day(1).fixed_window(), Some(86_400)),
            (Quota::new(1, Duration::from_millis(1_500)), None),
            (Quota::new(1, Duration::from_millis(500)), None),
            (Quota::token_bucket(Rate::per_second(10), 20), Some(2)),
            (Quota::token_bucket(Rate::per_second(10), 21), Some(3)),
            (Quota::token_bucket(Rate::per_second(10), 1), Some(1)),
            (Quota::token_bucket(Rate::per_second(10), 0), None),
            (
                Quota::token_bucket(Rate::new(2, Duration::from_millis(1_500)), 4),
                Some(3),
            ),
            (Quota::unlimited(), None),
        ] {
            assert_eq!(window_secs(&quota), window, "{quota}");
        }
    }

    #[test]
    fn r9_a_wait_is_never_shown_as_zero_or_too_short() {
        for (micros, secs) in [
            (0, 1),
            (1, 1),
            (999_999, 1),
            (1_000_000, 1),
            (1_000_001, 2),
            (59_000_001, 60),
        ] {
            let denied = decision(false, &[Said::new(1).retry(Duration::from_micros(micros))]);
            assert_eq!(retry_after(&denied), Some(secs));
            assert_eq!(Shown::of(&denied).and_then(|shown| shown.reset()), Some(secs));
        }
    }

    #[test]
    fn nothing_to_wait_for() {
        assert_eq!(retry_after(&decision(true, &[Said::new(1)])), None);
        assert_eq!(retry_after(&decision(false, &[Said::new(1).never()])), None);
        assert_eq!(retry_after(&Decision::degraded(Verdict::Unavailable)), Some(1));
        assert!(Shown::of(&Decision::degraded(Verdict::Unavailable)).is_none());
        assert!(Shown::of(&Decision::exempt()).is_none());
    }
}
