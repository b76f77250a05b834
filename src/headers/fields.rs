//! The names of the header fields.

use http::{HeaderMap, HeaderName};

#[allow(
    clippy::declare_interior_mutable_const,
    reason = "http declares its own names the same way"
)]
mod names {
    use http::HeaderName;

    pub(in crate::headers) const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
    pub(in crate::headers) const X_RATELIMIT_REMAINING: HeaderName =
        HeaderName::from_static("x-ratelimit-remaining");
    pub(in crate::headers) const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
    pub(in crate::headers) const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
    pub(in crate::headers) const RATELIMIT_REMAINING: HeaderName =
        HeaderName::from_static("ratelimit-remaining");
    pub(in crate::headers) const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
    pub(in crate::headers) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
    pub(in crate::headers) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
}

pub(super) use self::names::*;

/// Every field of every family: all of a decision goes when another one takes its place.
pub(super) static ALL: [HeaderName; 8] = [
    X_RATELIMIT_LIMIT,
    X_RATELIMIT_REMAINING,
    X_RATELIMIT_RESET,
    RATELIMIT_LIMIT,
    RATELIMIT_REMAINING,
    RATELIMIT_RESET,
    RATELIMIT,
    RATELIMIT_POLICY,
];

/// Whether some field is there. This runs on every request: looking at the few names of a response is faster than
/// hashing eight of ours.
pub(super) fn any_in(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        let name = name.as_str();
        name.strip_prefix("x-").unwrap_or(name).starts_with("ratelimit")
            && ALL.iter().any(|ours| ours == name)
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn finds_each_field_and_no_other() {
        for name in &ALL {
            let mut headers = HeaderMap::new();
            headers.insert("content-type", HeaderValue::from_static("text/plain"));
            headers.insert("x-ratelimit-used", HeaderValue::from_static("1"));
            assert!(!any_in(&headers));
            headers.insert(name, HeaderValue::from_static("1"));
            assert!(any_in(&headers));
        }
    }
}
