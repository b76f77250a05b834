//! Why a request is not counted.

use std::fmt;

use crate::policy::PolicyName;

/// Why a policy, or a whole layer, does not count a request. Decisions tell them: see
/// [`Decision::exemptions`](crate::Decision::exemptions).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exemption {
    policy: Option<PolicyName>,
    reason: ExemptReason,
}

/// The reasons of an [`Exemption`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExemptReason {
    /// A predicate of `skip_when` holds.
    Skipped,
    /// The key is one of [`Policy::allow_keys`](crate::Policy::allow_keys).
    AllowedKey,
    /// It is a CORS preflight, and these are exempt.
    Preflight,
    /// The quota is [unlimited](crate::Quota::unlimited).
    Unlimited,
    /// The policy is [switched off](crate::PolicyMode::Off).
    Off,
    /// The request has no key, and such requests are not counted, or refused.
    MissingKey,
    /// The quota is a function of the request, and a [`Limiter`](crate::Limiter) was asked, which has none: see
    /// [`by_quota`](crate::Limiter::by_quota).
    UnknownQuota,
}

impl Exemption {
    /// A policy does not count the request.
    pub(crate) const fn of(policy: PolicyName, reason: ExemptReason) -> Self {
        Self {
            policy: Some(policy),
            reason,
        }
    }

    /// No policy of the layer counts the request.
    pub(crate) const fn of_all(reason: ExemptReason) -> Self {
        Self { policy: None, reason }
    }

    /// The policy that does not count the request; `None` if no policy of the layer does.
    #[must_use]
    pub const fn policy(&self) -> Option<&PolicyName> {
        self.policy.as_ref()
    }

    /// Why.
    #[must_use]
    pub const fn reason(&self) -> ExemptReason {
        self.reason
    }
}

impl ExemptReason {
    /// A word for metrics: `skipped`, `allowed-key`, `preflight`, `unlimited`, `off`, `missing-key` or
    /// `unknown-quota`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::AllowedKey => "allowed-key",
            Self::Preflight => "preflight",
            Self::Unlimited => "unlimited",
            Self::Off => "off",
            Self::MissingKey => "missing-key",
            Self::UnknownQuota => "unknown-quota",
        }
    }
}

impl fmt::Display for ExemptReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
