//! Why a request has no key.

use std::fmt;

/// Why a request has no key.
///
/// What then happens to the request is the policy's choice. The hint is for whoever runs the service: it says
/// what to change, and never quotes the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    hint: &'static str,
}

impl Missing {
    /// A reason, in words that say what to do about it.
    #[must_use]
    pub const fn new(hint: &'static str) -> Self {
        Self { hint }
    }

    /// The reason.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        self.hint
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the request has no key: {}", self.hint)
    }
}

impl std::error::Error for Missing {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_is_told() {
        let missing = Missing::new("insert `PeerAddr`");
        assert_eq!(missing.hint(), "insert `PeerAddr`");
        assert_eq!(missing.to_string(), "the request has no key: insert `PeerAddr`");
    }
}
