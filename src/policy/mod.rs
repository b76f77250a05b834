//! What limits a request: a named quota with its key, cost and failure policy.

mod cost;
mod live;
mod missing;
mod name;
mod quotas;
mod set;
mod take;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use http::{StatusCode, response};

pub use self::cost::{ContentLengthCost, Cost};
use self::live::Live;
pub use self::live::{ParseModeError, PolicyHandle, PolicyMode};
pub use self::missing::MissingKey;
use self::missing::MissingWarning;
pub(crate) use self::name::SharedName;
pub use self::name::{PolicyName, PolicyNameError};
pub use self::quotas::Quotas;
pub(crate) use self::set::{PolicySet, check_names};
pub(crate) use self::take::{Taken, Untaken};
use crate::failure::FailurePolicy;
use crate::handling::Handling;
use crate::key::{Key, KeyExtractor, KeyRef};
use crate::lease::{Lease, LeaseRefusal};
use crate::penalty::Penalty;
use crate::predicate::Predicate;

/// A named quota with its key extractor, and what else a limit can say. Several of them in a layer are one decision:
/// a request that one of them denies is charged to none.
///
/// ```
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
///
/// let user = |request: &http::request::Parts| request.extensions.get::<u64>().copied();
/// let layer = RateLimitLayer::with_policies(
///     MemoryStore::new(),
///     [
///         Policy::new("second", Quota::per_second(10), user),
///         Policy::new("hour", Quota::per_hour(1_000), user),
///         Policy::new("all", Quota::per_second(5_000), key::Global),
///     ],
/// );
/// # let _ = layer;
/// ```
///
/// The name separates the policy's counters from others in the same store, whatever its key, and clients see it in
/// `RateLimit-Policy`. Copies share what [`handle`](Self::handle) changes.
#[derive(Clone)]
#[must_use]
pub struct Policy {
    pub(crate) name: PolicyName,
    mode: PolicyMode,
    live: Arc<Live>,
    key: Arc<dyn KeyExtractor>,
    pub(crate) cost: Cost,
    pub(crate) failure: FailurePolicy,
    pub(crate) missing: MissingKey,
    warning: MissingWarning,
    skip: Vec<Arc<dyn Predicate>>,
    allowed: Arc<HashSet<Key>>,
    pub(crate) real_cost: Option<RealCost>,
    penalty: Option<Penalty>,
    lease: Option<Lease>,
}

/// What a request really costs, as its response tells.
pub(crate) type RealCost = Arc<dyn Fn(&response::Parts) -> Option<u64> + Send + Sync>;

impl Policy {
    /// Limits each key that `key` finds to `quota`.
    ///
    /// # Panics
    ///
    /// If the name is not 1 to 64 ASCII letters, digits, `-`, `_`, `.`, `/` or `:`. Check names from outside with
    /// [`PolicyName::new`].
    #[track_caller]
    pub fn new(
        name: impl TryInto<PolicyName, Error: fmt::Display>,
        quota: impl Into<Quotas>,
        key: impl KeyExtractor,
    ) -> Self {
        Self::called(PolicyName::expect(name), quota.into(), key)
    }

    /// Named after its quota.
    pub(crate) fn of(quotas: Quotas, key: impl KeyExtractor) -> Self {
        Self::called(quotas.name.clone(), quotas, key)
    }

    fn called(name: PolicyName, quotas: Quotas, key: impl KeyExtractor) -> Self {
        Self {
            name,
            mode: PolicyMode::default(),
            live: Arc::new(Live::new(quotas)),
            key: Arc::new(key),
            cost: Cost::default(),
            failure: FailurePolicy::default(),
            missing: MissingKey::default(),
            warning: MissingWarning::default(),
            skip: Vec::new(),
            allowed: Arc::default(),
            real_cost: None,
            penalty: None,
            lease: None,
        }
    }

    /// Units that a request takes: a number, or a function of the request. 1 if not set.
    pub fn cost(mut self, cost: impl Into<Cost>) -> Self {
        self.cost = cost.into();
        self
    }

    /// What the policy answers when the store gives no answer. [`FailurePolicy::Local`] if not set. A request passes if
    /// all its policies let it.
    pub const fn failure_policy(mut self, failure: FailurePolicy) -> Self {
        self.failure = failure;
        self
    }

    /// What happens to requests without a key. [`MissingKey::Shared`] if not set.
    ///
    /// # Panics
    ///
    /// If the status of [`MissingKey::Reject`] is not an error (4xx or 5xx): a refusal must not look like success.
    #[track_caller]
    pub fn missing_key(mut self, missing: MissingKey) -> Self {
        missing.check();
        self.missing = missing;
        self
    }

    /// Whether the policy refuses, only counts and reports, or does nothing. [`PolicyMode::Enforce`] if not set. The
    /// [`handle`](Self::handle) changes it later.
    ///
    /// In shadow mode a request is counted if it fits, whatever it says never stops the others, and
    /// [`Decision::policies`](crate::Decision::policies) and hooks tell what would have happened.
    pub const fn mode(mut self, mode: PolicyMode) -> Self {
        self.mode = mode;
        self
    }

    /// Leaves out requests of which `predicate` holds; of several, any. See
    /// [`RateLimitLayer::skip_when`](crate::RateLimitLayer::skip_when) for all policies of a layer.
    pub fn skip_when(mut self, predicate: impl Predicate) -> Self {
        self.skip.push(Arc::new(predicate));
        self
    }

    /// Leaves out requests with one of these keys, as the extractor makes them: `Key::from("42")` of a closure, others by
    /// a [`KeyBuilder`](crate::key::KeyBuilder). Allow what a client cannot invent. For addresses and other values, see
    /// [`skip_when`](Self::skip_when).
    pub fn allow_keys<'k, K: Into<KeyRef<'k>>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        let keys = keys.into_iter().map(|key| Key::clone(&key.into()));
        Arc::make_mut(&mut self.allowed).extend(keys);
        self
    }

    /// Gives back what a request was charged if `status` holds of its response's: to count failed logins alone, for
    /// example. The request is charged before it runs, so that concurrent guesses cannot slip through.
    ///
    /// What a request was charged stays if its service fails with an error, or its client goes away. A gRPC call
    /// has status 200 whatever comes of it; see [`cost_after`](Self::cost_after).
    ///
    /// ```
    /// use tollgate::{Policy, Quota, key};
    ///
    /// let login = Policy::new("login", Quota::per_minute(5), key::PeerIp)
    ///     .give_back_on(|status| status.is_success() || status.is_redirection());
    /// # let _ = login;
    /// ```
    pub fn give_back_on(self, status: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.cost_after(move |response| status(response.status).then_some(0))
    }

    /// What a request really cost, if its response's head tells: `Some(units)`, of which what it was charged too much is
    /// given back, and what is missing is charged, whether it fits or not. `None` leaves the charge. The first of several
    /// functions that knows decides. Of a token bucket, what exceeds an empty one is forgotten: choose a window.
    ///
    /// A handler that knows better takes a [`ChargeHandle`](crate::ChargeHandle). A policy is settled once: what the handler has done
    /// stays.
    pub fn cost_after(
        mut self,
        cost: impl Fn(&response::Parts) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        self.real_cost = Some(match self.real_cost.take() {
            Some(first) => Arc::new(move |response| first(response).or_else(|| cost(response))),
            None => Arc::new(cost),
        });
        self
    }

    /// Blocks keys that this policy denies again and again, and lets
    /// [`Limiter::block`](crate::Limiter::block) do so. Not in [shadow mode](PolicyMode::Shadow). It costs the store a second key
    /// for each that was denied.
    ///
    /// # Panics
    ///
    /// If the policy has a [lease](Self::lease): its store would not see every request.
    #[track_caller]
    pub fn penalty(mut self, penalty: Penalty) -> Self {
        self.penalty = Some(penalty);
        self.expect_lease();
        self
    }

    /// Lets each instance take units of hot keys ahead, and spend them without asking the store. None are, if not set, in
    /// [shadow mode](PolicyMode::Shadow), and where another policy of the same request has no lease: see
    /// [local answers](crate::local_answers).
    ///
    /// # Panics
    ///
    /// If the quota is a sliding counter, or the policy has a [penalty](Self::penalty). Requests whose quota, as a function of
    /// the request, is a sliding counter ask the store.
    #[track_caller]
    pub fn lease(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self.expect_lease();
        self
    }

    #[track_caller]
    fn expect_lease(&self) {
        if let Err(refusal) = self.check_lease() {
            panic!("policy `{}`: {refusal}", self.name);
        }
    }

    #[cfg(feature = "serde")]
    pub(crate) fn try_lease(mut self, lease: Lease) -> Result<Self, LeaseRefusal> {
        self.lease = Some(lease);
        self.check_lease().map(|()| self)
    }

    fn check_lease(&self) -> Result<(), LeaseRefusal> {
        let suits = self
            .live
            .fixed_quota()
            .is_none_or(|quota| Lease::suits(&quota) || quota.is_unlimited());
        match (self.lease, self.penalty) {
            (Some(_), Some(_)) => Err(LeaseRefusal::Penalty),
            (Some(_), None) if !suits => Err(LeaseRefusal::SlidingCounter),
            _ => Ok(()),
        }
    }

    pub(crate) const fn handling(&self) -> Handling<'_> {
        Handling {
            failure: self.failure,
            lease: self.lease.as_ref(),
        }
    }

    /// What changes the policy while it runs.
    #[must_use]
    pub fn handle(&self) -> PolicyHandle {
        PolicyHandle::new(self.name.clone(), self.mode, Arc::clone(&self.live))
    }

    /// Whether it is the same policy, and not only of the same name.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.live, &other.live)
    }

    /// Whether responses can tell what requests cost.
    pub(crate) const fn settles(&self) -> bool {
        self.real_cost.is_some()
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("quota", &self.live.quotas())
            .field("mode", &self.live.mode(self.mode))
            .field("cost", &self.cost)
            .field("failure_policy", &self.failure)
            .field("missing_key", &self.missing)
            .finish_non_exhaustive()
    }
}
