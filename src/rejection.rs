//! Why a request was refused.

use std::fmt;
use std::time::Duration;

use http::StatusCode;

use crate::decision::{Decision, PolicyDecision, Verdict};
use crate::headers::{UNAVAILABLE_RETRY, retry_secs};

/// Why a request was refused. [Builders of responses](crate::response::ResponseForRejection) get it, and every
/// refusal carries it in its extensions.
///
/// Its [`Display`](fmt::Display) is what the client is told: no key, and nothing that the client sent.
#[derive(Clone, Debug)]
pub struct Rejection {
    kind: RejectionKind,
    status: StatusCode,
    decision: Option<Decision>,
}

/// The kinds of [`Rejection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// A quota is used up: status 429 (RFC 6585, section 4).
    QuotaExceeded,
    /// The store gave no answer, and a policy refuses without one: status 503.
    StoreUnavailable,
    /// The request has no key to count it by: the status is that of [`MissingKey::Reject`](crate::MissingKey::Reject).
    MissingKey,
}

impl RejectionKind {
    /// Why a request was not allowed.
    pub(crate) const fn of(decision: &Decision) -> Self {
        match decision.verdict() {
            Verdict::Unavailable => Self::StoreUnavailable,
            Verdict::MissingKey => Self::MissingKey,
            Verdict::Allowed | Verdict::Denied => Self::QuotaExceeded,
        }
    }
}

impl Rejection {
    /// The refusal of a request that was not allowed.
    pub(crate) fn of(decision: Decision) -> Self {
        let kind = RejectionKind::of(&decision);
        let status = match kind {
            RejectionKind::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            RejectionKind::QuotaExceeded | RejectionKind::MissingKey => StatusCode::TOO_MANY_REQUESTS,
        };
        Self {
            kind,
            status,
            decision: Some(decision),
        }
    }

    /// The refusal of a request without a key.
    pub(crate) const fn missing_key(status: StatusCode) -> Self {
        Self {
            kind: RejectionKind::MissingKey,
            status,
            decision: None,
        }
    }

    /// Why.
    #[must_use]
    pub const fn kind(&self) -> RejectionKind {
        self.kind
    }

    /// The HTTP status to answer with: 429 for a used-up quota, 503 without a store, else that of
    /// [`MissingKey::Reject`](crate::MissingKey::Reject).
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The decision. `None` if the request had no key.
    #[must_use]
    pub const fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// When the request may be sent again. 1 s if the store gave no answer; `None` if it is refused however long it
    /// waits ([`Decision::is_never`]), or has no key.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            RejectionKind::QuotaExceeded => self.decision.as_ref()?.retry_after(),
            RejectionKind::StoreUnavailable => Some(UNAVAILABLE_RETRY),
            RejectionKind::MissingKey => None,
        }
    }
}

impl Rejection {
    fn is_blocked(&self) -> bool {
        let leading = self.decision.as_ref().and_then(Decision::leading);
        leading.is_some_and(PolicyDecision::is_blocked)
    }

    fn allows_nothing(&self) -> bool {
        self.decision.as_ref().and_then(Decision::limit) == Some(0)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            RejectionKind::QuotaExceeded if self.is_blocked() => "blocked after too many refused requests",
            RejectionKind::QuotaExceeded => "quota exceeded",
            RejectionKind::StoreUnavailable => "the quota cannot be checked at the moment",
            RejectionKind::MissingKey => "the request has nothing to count it by",
        })?;
        match self.retry_after() {
            Some(wait) => {
                let secs = retry_secs(wait);
                let plural = if secs == 1 { "" } else { "s" };
                write!(f, ": retry after {secs} second{plural}")
            }
            None if self.allows_nothing() => f.write_str(": the limit is 0"),
            None if self.kind == RejectionKind::QuotaExceeded => f.write_str(
                ": the request costs more than the limit allows at once, so waiting does not help",
            ),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{Said, decision};

    #[test]
    fn says_what_the_client_can_do() {
        let denied = |micros| {
            Rejection::of(decision(
                false,
                &[Said::new(0).retry(Duration::from_micros(micros))],
            ))
        };
        for (rejection, kind, status, words) in [
            (
                denied(1),
                RejectionKind::QuotaExceeded,
                429,
                "quota exceeded: retry after 1 second",
            ),
            (
                denied(29_000_001),
                RejectionKind::QuotaExceeded,
                429,
                "quota exceeded: retry after 30 seconds",
            ),
            (
                Rejection::of(decision(false, &[Said::new(5).never()])),
                RejectionKind::QuotaExceeded,
                429,
                "quota exceeded: the request costs more than the limit allows at once, so waiting does not help",
            ),
            (
                Rejection::of(Decision::degraded(Verdict::Unavailable)),
                RejectionKind::StoreUnavailable,
                503,
                "the quota cannot be checked at the moment: retry after 1 second",
            ),
            (
                Rejection::missing_key(StatusCode::UNAUTHORIZED),
                RejectionKind::MissingKey,
                401,
                "the request has nothing to count it by",
            ),
        ] {
            assert_eq!(rejection.to_string(), words);
            assert_eq!(rejection.kind(), kind);
            assert_eq!(rejection.status().as_u16(), status);
            assert_eq!(rejection.decision().is_none(), kind == RejectionKind::MissingKey);
        }
    }
}
