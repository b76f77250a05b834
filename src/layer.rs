//! The layer and its settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use http::request::Parts;
use tower_layer::Layer;

use crate::decision::Decision;
use crate::engine::{Decided, Deciding, Engine};
use crate::failure::FailurePolicy;
use crate::headers::Headers;
use crate::key::{KeyExtractor, KeyHasher};
use crate::policy::{Cost, MissingKey, Policy, PolicyName, Quotas};
use crate::preflight::is_preflight;
use crate::rejection::Rejection;
use crate::response::DefaultResponse;
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

/// What is the same for all clones.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    engine: Arc<Engine>,
    policy: Policy,
    hasher: KeyHasher,
    pub(crate) headers: Headers,
    exempt_preflight: bool,
    decision_extension: bool,
}

impl RateLimitLayer {
    /// Limits each key that `key` finds to `quota`, counted in `store`.
    ///
    /// The policy is named after its quota (`100-per-60s`), the same on all instances; two layers with one store
    /// whose quotas and keys are alike share their counters unless they are [named](Self::name).
    pub fn new(store: impl Store, quota: impl Into<Quotas>, key: impl KeyExtractor) -> Self {
        let engine = Engine::new(store);
        let hasher = if engine.is_in_process() {
            KeyHasher::in_process()
        } else {
            KeyHasher::default()
        };
        Self {
            config: Arc::new(Config {
                engine: Arc::new(engine),
                policy: Policy::new(quota.into(), key),
                hasher,
                headers: Headers::default(),
                exempt_preflight: false,
                decision_extension: true,
            }),
            rejection: Arc::new(DefaultResponse::new()),
        }
    }
}

impl<R> RateLimitLayer<R> {
    fn set(mut self, set: impl FnOnce(&mut Config)) -> Self {
        set(Arc::make_mut(&mut self.config));
        self
    }

    /// Names the policy: clients see the name, it separates the policy's counters from those of others in the
    /// store, and keeps them when the limit changes.
    ///
    /// # Panics
    ///
    /// If the name is not 1 to 64 ASCII letters, digits, `-`, `_`, `.`, `/` or `:`. Check names from outside with
    /// [`PolicyName::new`].
    #[track_caller]
    pub fn name(self, name: impl TryInto<PolicyName, Error: fmt::Display>) -> Self {
        let name = PolicyName::expect(name);
        self.set(|config| config.policy.name = name)
    }

    /// Units that a request takes: a number, or a function of the request. 1 if not set.
    pub fn cost(self, cost: impl Into<Cost>) -> Self {
        let cost = cost.into();
        self.set(|config| config.policy.cost = cost)
    }

    /// What happens to requests without a key. [`MissingKey::Shared`] if not set.
    ///
    /// # Panics
    ///
    /// If the status of [`MissingKey::Reject`] is not an error (4xx or 5xx): a refusal must not look like success.
    #[track_caller]
    pub fn missing_key(self, missing: MissingKey) -> Self {
        if let MissingKey::Reject(status) = missing {
            assert!(
                status.is_client_error() || status.is_server_error(),
                "a request without a key cannot be refused with {status}: use a status of 4xx or 5xx"
            );
        }
        self.set(|config| config.policy.missing = missing)
    }

    /// How keys are hashed: with a secret, hashes in a shared store cannot be reversed by trying. If not set,
    /// without a secret, and with a [`MemoryStore`](crate::MemoryStore) with one of this process.
    pub fn key_hasher(self, hasher: KeyHasher) -> Self {
        self.set(|config| config.hasher = hasher)
    }

    /// What happens when the store gives no answer. [`FailurePolicy::Local`] if not set.
    pub fn failure_policy(self, failure: FailurePolicy) -> Self {
        self.set(|config| config.policy.failure = failure)
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
}

/// What a layer has to say to a request before its service is called.
pub(crate) enum Assessment {
    /// Nothing: it passes.
    Pass,
    Refuse(Rejection),
    Decided(Decision),
    /// It has to wait for the store.
    Wait(Deciding),
}

impl Config {
    pub(crate) fn assess(&self, request: &Parts) -> Assessment {
        if self.exempt_preflight && is_preflight(request) {
            return Assessment::Pass;
        }
        match self.policy.take(request, &self.hasher) {
            Ok(None) => Assessment::Pass,
            Ok(Some(taken)) => match self.engine.decide(&[taken.charge()], &[taken.failure()]) {
                Decided::Now(decision) => Assessment::Decided(decision),
                Decided::Later(deciding) => Assessment::Wait(deciding),
            },
            Err(status) => Assessment::Refuse(Rejection::missing_key(status)),
        }
    }

    /// Tells handlers that nothing limits the request, unless another layer has found that something does.
    pub(crate) fn exempt(&self, request: &mut Parts) {
        if self.decision_extension && request.extensions.get::<Decision>().is_none() {
            request.extensions.insert(Decision::exempt());
        }
    }

    /// Tells the handler what was decided.
    pub(crate) fn tell(&self, request: &mut Parts, decision: &Decision) {
        if self.decision_extension {
            request.extensions.insert(decision.clone());
        }
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
