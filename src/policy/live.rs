//! What of a policy can change while it runs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use arc_swap::ArcSwapOption;
use http::request::Parts;

use super::{PolicyName, Quotas};
use crate::quota::Quota;
use crate::store::Mode;

/// What a policy does about requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PolicyMode {
    /// Counts, and refuses what does not fit.
    #[default]
    Enforce,
    /// Counts and reports, and never refuses: to try a limit on real traffic.
    Shadow,
    /// Does nothing: the kill switch.
    Off,
}

impl PolicyMode {
    const ALL: [Self; 3] = [Self::Enforce, Self::Shadow, Self::Off];

    /// What is asked of the store; nothing of a policy that is off.
    #[inline]
    pub(super) const fn for_store(self) -> Option<Mode> {
        match self {
            Self::Enforce => Some(Mode::Enforce),
            Self::Shadow => Some(Mode::Shadow),
            Self::Off => None,
        }
    }

    /// A word for metrics and configuration: `enforce`, `shadow` or `off`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for PolicyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PolicyMode {
    type Err = ParseModeError;

    /// From the words of [`as_str`](Self::as_str).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|mode| mode.as_str() == text);
        found.ok_or_else(|| ParseModeError(text.chars().take(80).collect()))
    }
}

/// Why a text is not a [`PolicyMode`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseModeError(String);

impl fmt::Display for ParseModeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not the mode of a policy: use `enforce`, `shadow` or `off`",
            self.0.escape_debug()
        )
    }
}

impl std::error::Error for ParseModeError {}

/// Shared by all copies of a policy.
pub(super) struct Live {
    initial: Quotas,
    /// `None` until it changes: most policies never do, and need not look.
    changed: ArcSwapOption<Quotas>,
    is_changed: AtomicBool,
    /// None of [`PolicyMode::ALL`] until it is set.
    mode: AtomicU8,
}

impl Live {
    pub(super) fn new(quotas: Quotas) -> Self {
        Self {
            initial: quotas,
            changed: ArcSwapOption::empty(),
            is_changed: AtomicBool::new(false),
            mode: AtomicU8::new(u8::MAX),
        }
    }

    /// The mode that was set, else the one that the policy was `given`.
    #[inline]
    pub(super) fn mode(&self, given: PolicyMode) -> PolicyMode {
        let set = PolicyMode::ALL.get(usize::from(self.mode.load(Ordering::Relaxed)));
        set.copied().unwrap_or(given)
    }

    fn set_mode(&self, mode: PolicyMode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn with_quotas<T>(&self, with: impl FnOnce(&Quotas) -> T) -> T {
        let changed = self.is_changed.load(Ordering::Acquire);
        let changed = changed.then(|| self.changed.load());
        with(
            changed
                .as_ref()
                .and_then(|quotas| quotas.as_deref())
                .unwrap_or(&self.initial),
        )
    }

    #[inline]
    pub(super) fn quota(&self, request: &Parts) -> Quota {
        self.with_quotas(|quotas| quotas.of(request))
    }

    /// The quota, if it is the same for all requests.
    pub(super) fn fixed_quota(&self) -> Option<Quota> {
        self.with_quotas(|quotas| quotas.fixed().copied())
    }

    pub(super) fn quotas(&self) -> Quotas {
        self.with_quotas(Quotas::clone)
    }

    pub(super) fn set_quotas(&self, quotas: Quotas) {
        self.changed.store(Some(Arc::new(quotas)));
        self.is_changed.store(true, Ordering::Release);
    }
}

/// Changes a policy while it runs. From [`Policy::handle`](super::Policy::handle),
/// [`RateLimitLayer::handle`](crate::RateLimitLayer::handle) or [`Limiter::policies`](crate::Limiter::policies).
///
/// A change holds from the next request on, for all clones of the layer or limiter in this process. What is
/// counted stays: after a raise there is room at once, and after a cut what was admitted counts against it. A quota
/// with another window or algorithm counts anew (a sliding window changes from log to slots above
/// [4 096 units](crate::MAX_LOG_UNITS)). Other instances keep their settings until they are told too.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, PolicyMode, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Quota::per_minute(1)).name("mail");
/// let mail = limiter.handle("mail").expect("a policy of this name");
///
/// assert!(limiter.check("alice").await.is_allowed());
/// assert!(limiter.check("alice").await.is_denied());
/// mail.set_quota(Quota::per_minute(2));
/// assert!(limiter.check("alice").await.is_allowed());
/// mail.set_mode(PolicyMode::Off);
/// assert!(limiter.check("alice").await.is_allowed());
/// # }
/// ```
#[derive(Clone)]
pub struct PolicyHandle {
    name: PolicyName,
    /// As long as none is set.
    given_mode: PolicyMode,
    live: Arc<Live>,
}

impl PolicyHandle {
    pub(super) const fn new(name: PolicyName, given_mode: PolicyMode, live: Arc<Live>) -> Self {
        Self {
            name,
            given_mode,
            live,
        }
    }

    /// The policy's name.
    #[must_use]
    pub const fn name(&self) -> &PolicyName {
        &self.name
    }

    /// The quota of every request; `None` if it is a function of the request.
    #[must_use]
    pub fn quota(&self) -> Option<Quota> {
        self.live.fixed_quota()
    }

    /// What the policy does about requests.
    #[must_use]
    pub fn mode(&self) -> PolicyMode {
        self.live.mode(self.given_mode)
    }

    /// Limits by another quota: the same for all requests, or a [function of the request](Quotas::by), whose name does
    /// not matter here.
    pub fn set_quota(&self, quota: impl Into<Quotas>) {
        self.live.set_quotas(quota.into());
    }

    /// Enforces the policy, only counts, or switches it off.
    pub fn set_mode(&self, mode: PolicyMode) {
        self.live.set_mode(mode);
    }
}

impl fmt::Debug for PolicyHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyHandle")
            .field("name", &self.name)
            .field("quota", &self.live.quotas())
            .field("mode", &self.mode())
            .finish()
    }
}
