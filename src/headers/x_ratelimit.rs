//! `X-RateLimit-Limit`, `-Remaining` and `-Reset`: the family that most clients know. It has no standard.

use http::{HeaderMap, HeaderName};

use super::fields::{X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET};
use super::number::number;
use super::shown::Shown;

static NAMES: [HeaderName; 3] = [X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET];

/// What `X-RateLimit-Reset` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reset {
    /// Seconds from now.
    Delta,
    /// Seconds since the Unix epoch.
    Epoch,
    /// It is not written.
    None,
}

pub(super) fn names(reset: Reset) -> &'static [HeaderName] {
    match reset {
        Reset::Delta | Reset::Epoch => &NAMES,
        Reset::None => &NAMES[..2],
    }
}

pub(super) fn write(shown: &Shown, reset: Reset, headers: &mut HeaderMap) {
    let reset = match reset {
        Reset::Delta => shown.reset(),
        Reset::Epoch => shown.reset_at(),
        Reset::None => None,
    };
    headers.insert(X_RATELIMIT_LIMIT, number(shown.limit));
    headers.insert(X_RATELIMIT_REMAINING, number(shown.remaining));
    if let Some(reset) = reset {
        headers.insert(X_RATELIMIT_RESET, number(reset));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixtures::{Said, decision, decision_at};

    fn written(allowed: bool, said: Said, reset: Reset) -> [Option<String>; 3] {
        let decision = decision(allowed, &[said]);
        let mut headers = HeaderMap::new();
        write(
            &Shown::of(&decision).expect("a policy leads"),
            reset,
            &mut headers,
        );
        NAMES
            .each_ref()
            .map(|name| Some(headers.get(name)?.to_str().ok()?.to_owned()))
    }

    fn three(limit: &str, remaining: &str, reset: &str) -> [Option<String>; 3] {
        [limit, remaining, reset].map(|value| Some(value.to_owned()))
    }

    #[test]
    fn says_limit_remaining_and_reset() {
        let said = || Said::new(42).reset(Duration::from_millis(29_001));
        assert_eq!(written(true, said(), Reset::Delta), three("100", "42", "30"));
        assert_eq!(
            written(true, said(), Reset::Epoch),
            three("100", "42", "1800000030")
        );
    }

    #[test]
    fn the_reset_of_a_denial_is_its_retry() {
        let said = || Said::new(0).retry(Duration::from_micros(1_500_000));
        assert_eq!(written(false, said(), Reset::Delta), three("100", "0", "2"));
        assert_eq!(
            written(false, said(), Reset::Epoch),
            three("100", "0", "1800000002")
        );
    }

    #[test]
    fn never_has_no_reset() {
        for reset in [Reset::Delta, Reset::Epoch] {
            let [limit, remaining, reset] = written(false, Said::new(5).never(), reset);
            assert_eq!((limit.as_deref(), remaining.as_deref()), (Some("100"), Some("5")));
            assert_eq!(reset, None);
        }
    }

    #[test]
    fn b25_an_epoch_reset_does_not_wobble_inside_a_fixed_window() {
        for end in [1_800_000_060_000_000_u64, 1_800_000_060_500_000] {
            for before in [1, 2, 400_000, 600_000, 999_999, 1_000_000, 1_000_001, 37_123_456] {
                let said = Said::new(1).reset(Duration::from_micros(before));
                let decision = decision_at(end - before, true, &[said]);
                assert_eq!(
                    Shown::of(&decision).and_then(|shown| shown.reset_at()),
                    Some(end.div_ceil(1_000_000))
                );
            }
        }
    }
}
