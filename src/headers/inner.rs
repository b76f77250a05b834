//! The decision that an inner layer has written already.

use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, KeyRef, List, ListEntry, Parser};

use super::fields::{
    RATELIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET,
};
use super::ietf::{AVAILABLE, REMAINING, RESET, UNTIL};
use super::shown::Shown;

/// From here on, a reset is a time and not a distance: 2017 in seconds since the epoch, 47 years as a distance.
const FIRST_EPOCH: u64 = 1_500_000_000;

/// What the fields of a response say, in whichever family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inner {
    remaining: u64,
    /// Seconds from now.
    reset: u64,
}

impl Inner {
    /// `None` if there are no fields, or none that can be read.
    pub(super) fn read(headers: &HeaderMap, now_secs: u64) -> Option<Self> {
        None.or_else(|| Self::triple(headers, &X_RATELIMIT_REMAINING, &X_RATELIMIT_RESET, now_secs))
            .or_else(|| Self::triple(headers, &RATELIMIT_REMAINING, &RATELIMIT_RESET, now_secs))
            .or_else(|| Self::draft_8(headers))
            .or_else(|| Self::draft_7(headers))
    }

    /// Whether it stops the client sooner: fewer requests remain, or as many, for longer.
    pub(super) fn is_more_binding(&self, shown: &Shown) -> bool {
        let ours = (shown.remaining, std::cmp::Reverse(shown.reset().unwrap_or(0)));
        (self.remaining, std::cmp::Reverse(self.reset)) < ours
    }

    fn triple(
        headers: &HeaderMap,
        remaining: &HeaderName,
        reset: &HeaderName,
        now_secs: u64,
    ) -> Option<Self> {
        let reset = match number(headers, reset) {
            Some(time @ FIRST_EPOCH..) => time.saturating_sub(now_secs),
            Some(distance) => distance,
            None => 0,
        };
        Some(Self {
            remaining: number(headers, remaining)?,
            reset,
        })
    }

    fn draft_7(headers: &HeaderMap) -> Option<Self> {
        let fields: Dictionary = Parser::new(headers.get(&RATELIMIT)?).parse().ok()?;
        let number = |key: &KeyRef| match fields.get(key)? {
            ListEntry::Item(item) => integer(&item.bare_item),
            ListEntry::InnerList(_) => None,
        };
        Some(Self {
            remaining: number(REMAINING)?,
            reset: number(RESET).unwrap_or(0),
        })
    }

    /// The most binding of the policies listed.
    fn draft_8(headers: &HeaderMap) -> Option<Self> {
        headers
            .get_all(&RATELIMIT)
            .iter()
            .filter_map(|line| Parser::new(line).parse::<List>().ok())
            .flatten()
            .filter_map(|entry| {
                let ListEntry::Item(item) = entry else { return None };
                Some(Self {
                    remaining: integer(item.params.get(AVAILABLE)?)?,
                    reset: item.params.get(UNTIL).and_then(integer).unwrap_or(0),
                })
            })
            .min_by_key(|policy| (policy.remaining, std::cmp::Reverse(policy.reset)))
    }
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

fn integer(item: &BareItem) -> Option<u64> {
    u64::try_from(item.as_integer()?).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use crate::headers::fields;

    const NOW: u64 = 1_800_000_000;

    fn read(lines: &[(&str, &str)]) -> Option<(u64, u64)> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                HeaderValue::from_str(value).expect("a value"),
            );
        }
        Inner::read(&headers, NOW).map(|inner| (inner.remaining, inner.reset))
    }

    #[test]
    fn reads_every_family() {
        for (lines, found) in [
            (
                &[("x-ratelimit-remaining", "7"), ("x-ratelimit-reset", "30")][..],
                (7, 30),
            ),
            (
                &[
                    ("x-ratelimit-remaining", "7"),
                    ("x-ratelimit-reset", "1800000030"),
                ],
                (7, 30),
            ),
            (
                &[
                    ("x-ratelimit-remaining", "7"),
                    ("x-ratelimit-reset", "1700000000"),
                ],
                (7, 0),
            ),
            (&[("x-ratelimit-remaining", "7")], (7, 0)),
            (
                &[("ratelimit-remaining", "7"), ("ratelimit-reset", "30")],
                (7, 30),
            ),
            (&[("ratelimit", "limit=100, remaining=7, reset=30")], (7, 30)),
            (&[("ratelimit", "limit=100, remaining=7")], (7, 0)),
            (&[("ratelimit", "\"a\";r=7;t=30")], (7, 30)),
            (&[("ratelimit", "\"a\";r=7")], (7, 0)),
            (
                &[("ratelimit", "\"a\";r=9;t=30, \"b\";r=7;t=3, \"c\";r=7;t=5")],
                (7, 5),
            ),
            (
                &[("ratelimit", "\"a\";r=9;t=30"), ("ratelimit", "\"b\";r=7;t=3")],
                (7, 3),
            ),
            (
                &[("x-ratelimit-remaining", "many"), ("ratelimit", "\"a\";r=7;t=30")],
                (7, 30),
            ),
        ] {
            assert_eq!(read(lines), Some(found), "{lines:?}");
        }
    }

    #[test]
    fn garbage_is_nothing() {
        for lines in [
            &[][..],
            &[("x-ratelimit-limit", "100")],
            &[("x-ratelimit-remaining", "-1")],
            &[("x-ratelimit-remaining", "99999999999999999999999")],
            &[("x-ratelimit-remaining", "7, 8")],
            &[("ratelimit", "remaining")],
            &[("ratelimit", "remaining=-7")],
            &[("ratelimit", "remaining=(1 2)")],
            &[("ratelimit", "\"a\"")],
            &[("ratelimit", "\"a\";r=-7")],
            &[("ratelimit", "\"a\";r=\"7\"")],
            &[("ratelimit", "(\"a\");r=7")],
            &[("ratelimit", "\"a;r=7")],
        ] {
            assert_eq!(read(lines), None, "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            which in 0..fields::ALL.len(),
            value in prop::collection::vec(any::<u8>(), 0..64)
        ) {
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(&fields::ALL[which], value);
            }
            let _ = Inner::read(&headers, NOW);
        }

        #[test]
        fn nothing_that_resembles_a_field_panics(value in "[\"a-z0-9;=, ()-]{0,40}") {
            let mut headers = HeaderMap::new();
            headers.append(RATELIMIT, HeaderValue::from_str(&value).expect("ASCII"));
            headers.append(X_RATELIMIT_REMAINING, HeaderValue::from_str(&value).expect("ASCII"));
            let _ = Inner::read(&headers, NOW);
        }
    }
}
