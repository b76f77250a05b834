//! The IETF's `RateLimit` fields, structured fields all (RFC 9651).
//!
//! A generation is a variant of [`Draft`] and an arm in each function here.

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{DictSerializer, Integer, ItemSerializer, KeyRef, ListSerializer, StringRef, key_ref};

use super::draft::Draft;
use super::fields::{RATELIMIT, RATELIMIT_LIMIT, RATELIMIT_POLICY, RATELIMIT_REMAINING, RATELIMIT_RESET};
use super::number::{MAX_INTEGER, number};
use super::shown::{self, Shown, window_secs};
use crate::decision::{Decision, PolicyDecision};

pub(super) const LIMIT: &KeyRef = key_ref("limit");
pub(super) const REMAINING: &KeyRef = key_ref("remaining");
pub(super) const RESET: &KeyRef = key_ref("reset");
pub(super) const AVAILABLE: &KeyRef = key_ref("r");
pub(super) const UNTIL: &KeyRef = key_ref("t");
const QUOTA: &KeyRef = key_ref("q");
const WINDOW: &KeyRef = key_ref("w");

static TRIPLE: [HeaderName; 4] = [
    RATELIMIT_LIMIT,
    RATELIMIT_REMAINING,
    RATELIMIT_RESET,
    RATELIMIT_POLICY,
];
static PAIR: [HeaderName; 2] = [RATELIMIT, RATELIMIT_POLICY];

pub(super) fn names(draft: Draft) -> &'static [HeaderName] {
    match draft {
        Draft::V6 => &TRIPLE,
        Draft::V7 | Draft::V8 => &PAIR,
    }
}

pub(super) fn write(shown: &Shown, decision: &Decision, draft: Draft, headers: &mut HeaderMap) {
    // One buffer for all fields, as large as the fields of two or three policies.
    let mut text = String::with_capacity(128);
    match draft {
        Draft::V6 => {
            headers.insert(RATELIMIT_LIMIT, number(shown.limit));
            headers.insert(RATELIMIT_REMAINING, number(shown.remaining));
            if let Some(reset) = shown.reset() {
                headers.insert(RATELIMIT_RESET, number(reset));
            }
        }
        Draft::V7 => insert(headers, RATELIMIT, &mut text, |text| {
            state_of_draft_7(shown, text);
        }),
        Draft::V8 => insert(headers, RATELIMIT, &mut text, |text| {
            state(shown, decision, text);
        }),
    }
    insert(headers, RATELIMIT_POLICY, &mut text, |text| match draft {
        Draft::V6 | Draft::V7 => policies_until_draft_7(decision, text),
        Draft::V8 => policies(decision, text),
    });
}

/// `limit=100, remaining=50, reset=30`
fn state_of_draft_7(shown: &Shown, text: &mut String) {
    let mut state = DictSerializer::with_buffer(text);
    let _ = state.bare_item(LIMIT, integer(shown.limit));
    let _ = state.bare_item(REMAINING, integer(shown.remaining));
    if let Some(reset) = shown.reset() {
        let _ = state.bare_item(RESET, integer(reset));
    }
}

/// `100;w=60, 1000;w=3600`. The window is required here: policies without one in whole seconds are left out.
fn policies_until_draft_7(decision: &Decision, text: &mut String) {
    let mut policies = ListSerializer::with_buffer(text);
    for policy in shown::policies(decision) {
        if let Some(window) = window_secs(&policy.quota()) {
            let _ = policies
                .bare_item(integer(policy.limit()))
                .parameter(WINDOW, integer(window));
        }
    }
}

/// `"login";r=50;t=30`
fn state(shown: &Shown, decision: &Decision, text: &mut String) {
    let Some(leading) = decision.leading() else { return };
    let item = ItemSerializer::with_buffer(text)
        .bare_item(name(leading))
        .parameter(AVAILABLE, integer(shown.remaining));
    if let Some(reset) = shown.reset() {
        let _ = item.parameter(UNTIL, integer(reset));
    }
}

/// `"login";q=100;w=60`
fn policies(decision: &Decision, text: &mut String) {
    let mut policies = ListSerializer::with_buffer(text);
    for policy in shown::policies(decision) {
        let item = policies
            .bare_item(name(policy))
            .parameter(QUOTA, integer(policy.limit()));
        if let Some(window) = window_secs(&policy.quota()) {
            let _ = item.parameter(WINDOW, integer(window));
        }
    }
}

pub(super) fn name(policy: &PolicyDecision) -> &StringRef {
    StringRef::from_str(policy.name().as_str()).expect("policy names are printable ASCII")
}

pub(super) fn integer(value: u64) -> Integer {
    Integer::try_from(value.min(MAX_INTEGER)).expect("15 digits are an Integer")
}

/// Writes a field, unless it is empty: empty lists are not sent (RFC 9651, section 4.1).
fn insert(headers: &mut HeaderMap, name: HeaderName, text: &mut String, write: impl FnOnce(&mut String)) {
    text.clear();
    write(text);
    if !text.is_empty() {
        let value = HeaderValue::from_str(text).expect("structured fields are printable ASCII");
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixtures::{Said, decision};
    use crate::quota::{Quota, Rate};

    fn written(draft: Draft, allowed: bool, said: &[Said]) -> Vec<(String, String)> {
        let decision = decision(allowed, said);
        let mut headers = HeaderMap::new();
        write(
            &Shown::of(&decision).expect("a policy leads"),
            &decision,
            draft,
            &mut headers,
        );
        names(draft)
            .iter()
            .filter_map(|name| {
                Some((
                    name.to_string(),
                    headers.remove(name)?.to_str().expect("ASCII").to_owned(),
                ))
            })
            .inspect(|(name, value)| assert!(!value.is_empty(), "{name}"))
            .collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    fn two_policies() -> [Said; 2] {
        [
            Said::new(50).name("login"),
            Said::new(7)
                .name("bulk")
                .quota(Quota::token_bucket(Rate::per_second(10), 25))
                .reset(Duration::from_millis(1_800)),
        ]
    }

    #[test]
    fn draft_6_is_a_triple() {
        assert_eq!(
            written(Draft::V6, true, &two_policies()),
            pairs(&[
                ("ratelimit-limit", "25"),
                ("ratelimit-remaining", "7"),
                ("ratelimit-reset", "2"),
                ("ratelimit-policy", "100;w=60, 25;w=3"),
            ])
        );
    }

    #[test]
    fn draft_7_is_a_dictionary() {
        assert_eq!(
            written(Draft::V7, true, &two_policies()),
            pairs(&[
                ("ratelimit", "limit=25, remaining=7, reset=2"),
                ("ratelimit-policy", "100;w=60, 25;w=3"),
            ])
        );
    }

    #[test]
    fn drafts_from_8_name_the_policies() {
        assert_eq!(
            written(Draft::V8, true, &two_policies()),
            pairs(&[
                ("ratelimit", "\"bulk\";r=7;t=2"),
                ("ratelimit-policy", "\"login\";q=100;w=60, \"bulk\";q=25;w=3"),
            ])
        );
    }

    #[test]
    fn never_has_no_reset() {
        let never = [Said::new(3).never()];
        assert_eq!(
            written(Draft::V8, false, &never)[0],
            ("ratelimit".to_owned(), "\"default\";r=3".to_owned())
        );
        assert_eq!(written(Draft::V7, false, &never)[0].1, "limit=100, remaining=3");
        assert!(
            !written(Draft::V6, false, &never)
                .iter()
                .any(|(name, _)| name == "ratelimit-reset")
        );
    }

    #[test]
    fn a_window_of_part_seconds_is_not_advertised() {
        let said = [Said::new(1).quota(Quota::new(5, Duration::from_millis(1_500)))];
        assert_eq!(
            written(Draft::V8, true, &said),
            pairs(&[
                ("ratelimit", "\"default\";r=1;t=30"),
                ("ratelimit-policy", "\"default\";q=5"),
            ])
        );
        assert_eq!(written(Draft::V7, true, &said).len(), 1);
        assert_eq!(written(Draft::V6, true, &said).len(), 3);
    }

    #[test]
    fn shadow_and_unlimited_policies_are_not_shown() {
        let said = [
            Said::new(0).name("trial").shadow().retry(Duration::from_secs(9)),
            Said::new(50).name("login"),
            Said::new(0).name("free").quota(Quota::unlimited()),
        ];
        assert_eq!(
            written(Draft::V8, true, &said),
            pairs(&[
                ("ratelimit", "\"login\";r=50;t=30"),
                ("ratelimit-policy", "\"login\";q=100;w=60"),
            ])
        );
        assert_eq!(written(Draft::V7, true, &said)[1].1, "100;w=60");
    }
}
