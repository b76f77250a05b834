//! The layer and its settings.

mod assess;
mod config;
mod waiting;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use http::request::Parts;
use tower_layer::Layer;

pub(crate) use self::assess::{Assessment, Passed};
pub(crate) use self::config::Config;
use self::config::Skip;
pub(crate) use self::waiting::Waiting;
use crate::decision::Decision;
use crate::engine::Engine;
use crate::failure::FailurePolicy;
use crate::headers::Headers;
use crate::hook::{Hook, OnDecision};
use crate::key::{Key, KeyExtractor, KeyHasher};
use crate::lease::Lease;
use crate::limiter::Limiter;
use crate::lookup::Lookup;
use crate::policy::{Cost, MissingKey, Policy, PolicyHandle, PolicyName, PolicySet, Quotas};
use crate::predicate::Predicate;
use crate::rejection::Rejection;
use crate::response::DefaultResponse;
use crate::rules::Rules;
use crate::service::RateLimit;
use crate::store::Store;

/// Limits the requests of a service: the factory of [`RateLimit`].
///
/// Everything that is counted lives behind the layer, so its clones, and all services that it makes, share one
/// state: it may be added to a router, to a route, to a [`ServiceBuilder`](https://docs.rs/tower) or to each of a
/// server's connections.
///
/// `R` builds the response to a refused request; see
/// [`with_rejection_response`](Self::with_rejection_response).
///
/// See the [crate's documentation](crate) for examples.
#[must_use]
pub struct RateLimitLayer<R = DefaultResponse> {
    config: Arc<Config>,
    rejection: Arc<R>,
}

impl RateLimitLayer {
    /// Limits each key that `key` finds to `quota`, counted in `store`.
    ///
    /// The policy is named after its quota (`100-per-60s`), the same on all instances; two layers with one store
    /// whose quotas and keys are alike share their counters unless they are [named](Self::name).
    pub fn new(store: impl Store, quota: impl Into<Quotas>, key: impl KeyExtractor) -> Self {
        Self::with_policies(store, [Policy::of(quota.into(), key)])
    }

    /// Limits each request by all `policies` in one decision: what one of them denies is charged to none. The keys of
    /// one request travel to the store together.
    ///
    /// # Panics
    ///
    /// If two policies have one name.
    #[track_caller]
    pub fn with_policies(store: impl Store, policies: impl IntoIterator<Item = Policy>) -> Self {
        let engine = Engine::new(store);
        let hasher = if engine.is_in_process() {
            KeyHasher::in_process()
        } else {
            KeyHasher::default()
        };
        let mut this = Self {
            config: Arc::new(Config {
                engine: Arc::new(engine),
                policies: PolicySet::default(),
                hasher,
                headers: Headers::default(),
                skip: Skip::default(),
                exempt_preflight: false,
                decision_extension: true,
                charge_extension: false,
                settles: false,
                lookups: Arc::default(),
                hook: Hook::default(),
            }),
            rejection: Arc::new(DefaultResponse::new()),
        };
        for policy in policies {
            this = this.policy(policy);
        }
        this
    }
}

impl<R> RateLimitLayer<R> {
    #[track_caller]
    fn set(mut self, set: impl FnOnce(&mut Config)) -> Self {
        set(Arc::make_mut(&mut self.config));
        self
    }

    /// Adds a policy to the decision on each request.
    ///
    /// # Panics
    ///
    /// If another policy of the layer has its name.
    #[track_caller]
    pub fn policy(self, policy: Policy) -> Self {
        self.set(|config| {
            config.settles |= policy.settles();
            config.policies.push(policy);
        })
    }

    /// Adds the policies of the most specific rule that a request falls under, which are one decision with those that
    /// every request meets. A layer has one set of rules.
    ///
    /// ```
    /// use http::Method;
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, Rule, Rules, key};
    ///
    /// let per_address = |name, quota| vec![Policy::new(name, quota, key::PeerIp)];
    /// let rules = Rules::new(per_address("rest", Quota::per_minute(600)))
    ///     .on(
    ///         Rule::path("/login").method(Method::POST),
    ///         per_address("login", Quota::per_minute(5)),
    ///     )
    ///     .on(Rule::path("/healthz"), vec![]);
    /// let all = Policy::new("all", Quota::per_second(5_000), key::Global);
    /// let layer = RateLimitLayer::with_policies(MemoryStore::new(), [all]).rules(rules);
    /// # let _ = layer;
    /// ```
    ///
    /// # Panics
    ///
    /// If the layer has rules already, two rules can be for one request and none is more specific, or two policies have one
    /// name. Clones of one policy may stand in several rules: they share their counters.
    #[track_caller]
    pub fn rules(self, rules: Rules<Vec<Policy>>) -> Self {
        let rules = rules.checked();
        self.set(|config| {
            config.settles |= rules.values().flatten().any(Policy::settles);
            config.policies.set_rules(rules);
        })
    }

    /// Names the layer's first policy, that of [`new`](RateLimitLayer::new): separates its counters from those of others in
    /// the store, and keeps them when the limit changes. Clients see the name in `RateLimit-Policy`.
    ///
    /// # Panics
    ///
    /// If the name is not 1 to 64 ASCII letters, digits, `-`, `_`, `.`, `/` or `:`, or another policy of the layer has it. Check
    /// names from outside with [`PolicyName::new`].
    #[track_caller]
    pub fn name(self, name: impl TryInto<PolicyName, Error: fmt::Display>) -> Self {
        let name = PolicyName::expect(name);
        self.first(|policy| policy.name = name)
    }

    /// Units that a request takes of the first policy: a number, or a function of the request. 1 if not set.
    #[track_caller]
    pub fn cost(self, cost: impl Into<Cost>) -> Self {
        let cost = cost.into();
        self.first(|policy| policy.cost = cost)
    }

    /// What happens to requests without a key of the first policy. [`MissingKey::Shared`] if not set.
    ///
    /// # Panics
    ///
    /// If the status of [`MissingKey::Reject`] is not an error (4xx or 5xx): a refusal must not look like success.
    #[track_caller]
    pub fn missing_key(self, missing: MissingKey) -> Self {
        missing.check();
        self.first(|policy| policy.missing = missing)
    }

    /// Lets each instance take units of the first policy's hot keys ahead: see [`Policy::lease`].
    ///
    /// # Panics
    ///
    /// As [`Policy::lease`].
    #[track_caller]
    pub fn lease(self, lease: Lease) -> Self {
        self.first(|policy| *policy = policy.clone().lease(lease))
    }

    /// What the first policy answers when the store gives no answer. [`FailurePolicy::Local`] if not set.
    #[track_caller]
    pub fn failure_policy(self, failure: FailurePolicy) -> Self {
        self.first(|policy| policy.failure = failure)
    }

    #[track_caller]
    fn first(self, set: impl FnOnce(&mut Policy)) -> Self {
        self.set(|config| config.policies.set_first(set))
    }

    /// Lets requests pass uncounted of which `predicate` holds; of several, any: health checks
    /// ([`Rule::path("/healthz")`](crate::Rule::path)), or addresses ([`key::ClientIp::is_in`](crate::key::ClientIp::is_in)). Their decision is
    /// [exempt](crate::Source::Exempt). [`Policy::skip_when`] does the same for one policy.
    ///
    /// ```
    /// # fn main() -> Result<(), tollgate::key::CidrError> {
    /// use tollgate::{MemoryStore, Quota, RateLimitLayer, Rule, key};
    ///
    /// let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(100), key::PeerIp)
    ///     .skip_when(Rule::path("/healthz"))
    ///     .skip_when(key::PeerIp.is_in(["10.0.0.0/8", "fd00::/8"])?)
    ///     .skip_when(|request: &http::request::Parts| request.extensions.get::<Staff>().is_some());
    /// # #[derive(Clone)] struct Staff;
    /// # let _ = layer; Ok(()) }
    /// ```
    pub fn skip_when(self, predicate: impl Predicate) -> Self {
        self.set(|config| config.skip.0.push(Arc::new(predicate)))
    }

    /// Looks up, before a request is decided on, what its quota, cost, key or exemption depends on: a plan in a database, for
    /// example. What is found becomes an extension of the request, where functions of the request and handlers find
    /// it. Several lookups follow each other, and see what the earlier ones found.
    ///
    /// Only layers with a lookup pay for it (a boxed future). Lookups have as long as the [deadline](Self::deadline), all together and
    /// before the check has its own; what is not found by then is missing, and the request is limited without it.
    ///
    /// Requests that are [exempt](Self::skip_when) as they come are not looked up. All others are, those too that will be denied: put
    /// a layer that limits by address outside, where it has to shield what is asked.
    ///
    /// ```
    /// use http::request::Parts;
    /// use tollgate::{MemoryStore, Quota, Quotas, RateLimitLayer, key};
    ///
    /// #[derive(Clone)]
    /// struct Plan { per_minute: u64 }
    ///
    /// async fn plan_of(account: String) -> Option<Plan> {
    ///     // From a database.
    ///     # let _ = account; Some(Plan { per_minute: 600 })
    /// }
    ///
    /// let account = |request: &Parts| Some(request.headers.get("x-account")?.to_str().ok()?.to_owned());
    /// let quota = Quotas::by("plan", |request| match request.extensions.get::<Plan>() {
    ///     Some(plan) => Quota::per_minute(plan.per_minute),
    ///     None => Quota::per_minute(60),
    /// });
    /// let layer = RateLimitLayer::new(MemoryStore::new(), quota, account).lookup(move |request: &Parts| {
    ///     let account = account(request);
    ///     async move { plan_of(account?).await }
    /// });
    /// # let _ = layer;
    /// ```
    pub fn lookup<F, Fut, T>(self, find: F) -> Self
    where
        F: Fn(&Parts) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<T>> + Send + 'static,
        T: Clone + Send + Sync + 'static,
    {
        self.set(|config| {
            let lookups = config.lookups.iter().cloned();
            config.lookups = lookups.chain([Lookup::new(find)]).collect();
        })
    }

    /// Tells `hook` of every decision, for metrics and audits.
    ///
    /// ```
    /// use tollgate::{DecisionEvent, MemoryStore, Quota, RateLimitLayer, key};
    ///
    /// let layer = RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(100), key::PeerIp)
    ///     .on_decision(|event: &DecisionEvent<'_>| {
    ///         let decision = event.decision();
    ///         for policy in decision.violated() {
    ///             println!("denied by {} on {:?}", policy.name(), event.route());
    ///         }
    ///     });
    /// # let _ = layer;
    /// ```
    pub fn on_decision(self, hook: impl OnDecision) -> Self {
        self.set(|config| config.hook.called = Some(Arc::new(hook)))
    }

    /// Whether the hook of [`on_decision`](Self::on_decision) may see keys. `false` if not set: then it sees fingerprints.
    pub fn reveal_keys(self, reveal: bool) -> Self {
        self.set(|config| config.hook.reveals_keys = reveal)
    }

    /// How keys are hashed: with a secret, hashes in a shared store cannot be reversed by trying. If not set,
    /// without a secret, and with a [`MemoryStore`](crate::MemoryStore) with one of this process.
    pub fn key_hasher(self, hasher: KeyHasher) -> Self {
        self.set(|config| config.hasher = hasher)
    }

    /// How long a check may take before the failure policy answers it. 100 ms if not set. Checks that have to wait
    /// for their store use tokio's timer.
    pub fn deadline(self, deadline: Duration) -> Self {
        self.set(|config| config.engine = Arc::new(config.engine.with_deadline(deadline)))
    }

    /// Which headers tell the client of its limit. `X-RateLimit-Limit`, `-Remaining` and `-Reset` if not set;
    /// refusals also have `Retry-After`.
    pub fn headers(self, headers: Headers) -> Self {
        self.set(|config| config.headers = headers)
    }

    /// Whether CORS preflight requests pass uncounted. `false` if not set. Anyone can send a preflight, so leave it
    /// off unless something cheap, such as a CORS layer, answers them.
    pub fn exempt_preflight(self, exempt: bool) -> Self {
        self.set(|config| config.exempt_preflight = exempt)
    }

    /// Whether handlers find the [`Decision`](crate::Decision) in the request's extensions, also of requests that
    /// are not counted ([`Source::Exempt`](crate::Source::Exempt)). `true` if not set.
    pub fn decision_extension(self, insert: bool) -> Self {
        self.set(|config| config.decision_extension = insert)
    }

    /// Whether handlers find a [`ChargeHandle`](crate::ChargeHandle) in the request's extensions, to settle what a request really cost. `false` if
    /// not set: it costs an allocation.
    pub fn charge_extension(self, insert: bool) -> Self {
        self.set(|config| config.charge_extension = insert)
    }

    /// Builds the response to a refused request with `rejection`: a closure from [`Rejection`] and the request's
    /// [`Parts`], or anything that is a [`ResponseForRejection`](crate::ResponseForRejection). Rate headers and
    /// `Retry-After` are added to what it returns.
    pub fn with_rejection_response<T>(self, rejection: T) -> RateLimitLayer<T> {
        RateLimitLayer {
            config: self.config,
            rejection: Arc::new(rejection),
        }
    }

    /// The headers that the layer writes, for a CORS layer to expose: browsers hide all of them, even
    /// `Retry-After`, from scripts of other origins that are not told otherwise.
    #[must_use]
    pub fn exposed_headers(&self) -> Vec<HeaderName> {
        self.config.headers.names()
    }

    /// What changes the policy of this name while it runs.
    #[must_use]
    pub fn handle(&self, policy: &str) -> Option<PolicyHandle> {
        self.config.policies.named(policy).map(Policy::handle)
    }

    /// The layer's policies without HTTP, those of all rules included: to look at keys, reset or block them.
    pub fn limiter(&self) -> Limiter {
        let policies = self.config.policies.all();
        Limiter::of(
            Arc::clone(&self.config.engine),
            policies,
            self.config.hook.clone(),
        )
    }

    /// The key by which a policy counts a request: for [`limiter`](Self::limiter), where it is not easily made by
    /// hand. `None` if there is no such policy, or the request has no key.
    #[must_use]
    pub fn key(&self, policy: &str, request: &Parts) -> Option<Key> {
        let policy = self.config.policies.named(policy)?;
        policy.key_of(request, &self.config.hasher).ok()
    }

    /// What the layer would decide on a request, charging nothing: for a page that tells clients what they have left.
    /// Lookups are not made, and the hook is not told.
    ///
    /// # Errors
    ///
    /// The refusal of a request that has no key, if it is [refused](MissingKey::Reject) for that.
    pub async fn peek(&self, request: &Parts) -> Result<Decision, Rejection> {
        self.config.peek(request).await
    }

    /// Gives back what [leases](crate::Policy::lease) hold, and takes nothing ahead any more; then waits until what is settled in the
    /// background has been made in the store, for at most ten deadlines of the store: a
    /// second, if not said. To be called when a service ends, after its last request. Returns how many corrections were
    /// lost, or may not have been made. Each loss is told once, to who asks first: by a layer, its
    /// [limiter](crate::RateLimitLayer::limiter), or a clone of either.
    ///
    /// What a store gives back by itself is not waited for, nor counted here: Redis does so with grants that came too late, and with
    /// what a denied request was charged in other slots of a cluster. See `RedisStats::lost_grants`.
    pub async fn shutdown(&self) -> u64 {
        self.config.engine.shutdown().await
    }
}

impl<S, R> Layer<S> for RateLimitLayer<R> {
    type Service = RateLimit<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.config), Arc::clone(&self.rejection))
    }
}

impl<R> Clone for RateLimitLayer<R> {
    fn clone(&self) -> Self {
        Self {
            config: Arc::clone(&self.config),
            rejection: Arc::clone(&self.rejection),
        }
    }
}

impl<R> fmt::Debug for RateLimitLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateLimitLayer").field(&self.config).finish()
    }
}
