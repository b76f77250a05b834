//! The quota of a request.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use super::PolicyName;
use crate::quota::Quota;

/// The quota of a policy: the same for every request, or a function of the request.
///
/// ```
/// use tollgate::{Quota, Quotas};
///
/// #[derive(Clone)]
/// enum Plan { Free, Pro }
///
/// let same = Quotas::from(Quota::per_minute(60));
/// let by_plan = Quotas::by("plan", |request| match request.extensions.get() {
///     Some(Plan::Pro) => Quota::per_minute(6_000),
///     _ => Quota::per_minute(60),
/// });
/// # let _ = (same, by_plan);
/// ```
#[derive(Clone)]
pub struct Quotas {
    pub(super) name: PolicyName,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Fixed(Quota),
    Of(Arc<dyn Fn(&Parts) -> Quota + Send + Sync>),
}

impl Quotas {
    /// The quota that `quota` makes of each request, of a policy called `name`: there is no one quota to name it
    /// after. A key whose limit changes keeps its count; another algorithm or window is another counter.
    ///
    /// A sliding window of more than [4 096 units](crate::MAX_LOG_UNITS) has another layout than a smaller one, and so another
    /// counter. Where plans lie on both sides, give all of them [slots](Quota::slots), so that whoever changes plan takes the
    /// count along: `Quota::per_minute(60).slots(64)` and `Quota::per_minute(6_000).slots(64)`.
    ///
    /// # Panics
    ///
    /// If the name is not 1 to 64 ASCII letters, digits, `-`, `_`, `.`, `/` or `:`.
    #[must_use]
    #[track_caller]
    pub fn by(
        name: impl TryInto<PolicyName, Error: fmt::Display>,
        quota: impl Fn(&Parts) -> Quota + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: PolicyName::expect(name),
            kind: Kind::Of(Arc::new(quota)),
        }
    }

    /// The quota, if it is the same for every request.
    #[inline]
    pub(super) const fn fixed(&self) -> Option<&Quota> {
        match &self.kind {
            Kind::Fixed(quota) => Some(quota),
            Kind::Of(_) => None,
        }
    }

    #[inline]
    pub(super) fn of(&self, request: &Parts) -> Quota {
        match &self.kind {
            Kind::Fixed(quota) => *quota,
            Kind::Of(quota) => quota(request),
        }
    }
}

impl From<Quota> for Quotas {
    fn from(quota: Quota) -> Self {
        Self {
            name: PolicyName::of(&quota),
            kind: Kind::Fixed(quota),
        }
    }
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Fixed(quota) => quota.fmt(f),
            Kind::Of(_) => f.write_str("Quota(of the request)"),
        }
    }
}
