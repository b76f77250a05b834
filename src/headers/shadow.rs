//! What policies in shadow mode would have said.

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{KeyRef, ListSerializer, key_ref};

use super::ietf::{AVAILABLE, UNTIL, integer, name};
use super::number::ceil_secs;
use crate::decision::{Decision, PolicyDecision};
use crate::store::{Mode, Retry};

pub(super) static SHADOW: HeaderName = HeaderName::from_static("x-ratelimit-shadow");

const DENIED: &KeyRef = key_ref("denied");

fn listed(decision: &Decision) -> impl Iterator<Item = &PolicyDecision> {
    let policies = decision.policies().iter();
    policies.filter(|policy| policy.mode() == Mode::Shadow && policy.is_known())
}

/// Whether there is anything to say.
pub(super) fn lists(decision: &Decision) -> bool {
    listed(decision).next().is_some()
}

/// `"tried";r=0;t=12;denied, "other";r=7;t=30`: what each has left, when it fits or has forgotten all, and whether it would have
/// refused the request. Stacked layers add to one list.
pub(super) fn write(decision: &Decision, headers: &mut HeaderMap) {
    let mut text = String::new();
    let mut policies = ListSerializer::with_buffer(&mut text);
    for policy in listed(decision) {
        let until = match policy.retry() {
            Retry::Never => None,
            Retry::After(wait) if policy.is_violated() => Some(wait),
            Retry::Now | Retry::After(_) => Some(policy.reset_after()),
        };
        let mut item = policies
            .bare_item(name(policy))
            .parameter(AVAILABLE, integer(policy.remaining()));
        if let Some(until) = until {
            item = item.parameter(UNTIL, integer(ceil_secs(until)));
        }
        if policy.is_violated() {
            let _ = item.parameter(DENIED, true);
        }
    }
    if !text.is_empty() {
        let value = HeaderValue::from_str(&text).expect("structured fields are printable ASCII");
        headers.append(&SHADOW, value);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixtures::{Said, decision};

    #[test]
    fn shadow_policies_say_what_they_would_have_done() {
        let said = [
            Said::new(50).name("login"),
            Said::new(0)
                .name("tried")
                .shadow()
                .retry(Duration::from_millis(11_001)),
            Said::new(7).name("other").shadow(),
            Said::new(7).name("odd").shadow().never(),
        ];
        let mut headers = HeaderMap::new();
        write(&decision(false, &said), &mut headers);
        assert_eq!(
            headers["x-ratelimit-shadow"],
            "\"tried\";r=0;t=12;denied, \"other\";r=7;t=30, \"odd\";r=7;denied"
        );
        let mut headers = HeaderMap::new();
        write(&decision(true, &said[..1]), &mut headers);
        assert!(headers.is_empty());
    }
}
