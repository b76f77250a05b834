//! Exact rate limiting for tower, axum, hyper and tonic services.
//!
//! ```no_run
//! use std::net::SocketAddr;
//!
//! use axum::Router;
//! use axum::routing::get;
//! use tollgate::{MemoryStore, Quota, RateLimitLayer, key};
//!
//! # async fn serve() -> std::io::Result<()> {
//! let limit = RateLimitLayer::new(MemoryStore::new(), Quota::per_minute(100), key::PeerIp);
//! let app = Router::new().route("/", get(|| async { "hello" })).layer(limit);
//!
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//! axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
//! # }
//! ```
//!
//! [`RateLimitLayer::new`] takes the three things that nobody can choose for a service: the **store** that counts, the
//! **quota**, and the **key** that is counted. Everything else has a default and a setter.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | key | what is counted: a client, tenant, route, or several together; a [key extractor](key) makes it of a request |
//! | [quota](Quota) | limit, window and [algorithm](Algorithm): `Quota::per_minute(100)` is 100 per sliding minute |
//! | cost | units that one request takes; 1 unless [said](RateLimitLayer::cost) |
//! | [policy](Policy) | a [named](PolicyName) quota with its key, cost and [failure policy](FailurePolicy) |
//! | [decision](Decision) | allowed or denied, with limit, remaining, retry and reset, and where it comes from |
//! | [store] | where counters live; it decides atomically, by its own clock |
//!
//! # A limit for each route, user, plan
//!
//! A layer on a route limits that route; a [tuple](key) of extractors limits each combination.
//!
//! ```
//! use axum::Router;
//! use axum::routing::{get, post};
//! use http::request::Parts;
//! use tollgate::{MemoryStore, Quota, Quotas, RateLimitLayer, key};
//!
//! # #[derive(Clone)] struct Account { id: String, pro: bool }
//! # async fn login() {}
//! # async fn users() {}
//! let store = MemoryStore::new();
//! let login_limit = RateLimitLayer::new(store.clone(), Quota::per_minute(5), key::PeerIp).name("login");
//! let quota = Quotas::by("plan", |request: &Parts| match request.extensions.get::<Account>() {
//!     Some(Account { pro: true, .. }) => Quota::per_minute(6_000),
//!     _ => Quota::per_minute(60),
//! });
//! let account = key::extension("account", |account: &Account| account.id.clone());
//! let plan_limit = RateLimitLayer::new(store, quota, (account, key::MatchedPath));
//!
//! let app: Router = Router::new()
//!     .route("/users", get(users))
//!     .route_layer(plan_limit)
//!     .route("/login", post(login).layer(login_limit));
//! ```
//!
//! # Many instances
//!
//! [`MemoryStore`] counts in one process: N instances of a service admit N times the limit. [`RedisStore`] counts in a Redis
//! server that they share, and together they admit the limit. [`store::open`] takes the store from a setting:
//!
//! ```no_run
//! use tollgate::{FailurePolicy, Quota, RateLimitLayer, key, store};
//!
//! # async fn limit() -> Result<RateLimitLayer, store::ConnectError> {
//! // `redis://user:password@host:6379/0`, `rediss://` with a TLS feature, `unix://`, or `memory:` for the embedded store.
//! let url = std::env::var("RATE_LIMIT_URL").unwrap_or_else(|_| String::from("memory:"));
//! let store = store::open(&url).await?;
//! let limit = RateLimitLayer::new(store, Quota::per_minute(100), key::ClientIp::trusted_hops(1))
//!     // Four instances: while Redis is away, each admits a quarter of the limit.
//!     .failure_policy(FailurePolicy::Local { instances: 4 });
//! # Ok(limit)
//! # }
//! ```
//!
//! A server that answers and cannot serve is an error that says what to do; one that cannot be reached is none, so that a
//! service starts without it. [`RedisStore::builder`] has more settings, [`RedisStore::new`] takes a connection of your own,
//! also to a cluster, and [`RedisStore::stats`] tells what the store has seen. Instances share a counter if store, key,
//! [policy name](RateLimitLayer::name), algorithm and window are the same; behind a proxy, [`key::ClientIp`] tells clients
//! apart.
//!
//! # When the store gives no answer
//!
//! A check waits for its [deadline](RateLimitLayer::deadline) at most, 100 ms unless set, and not at all while the store is
//! known to be away. Then the [failure policy](RateLimitLayer::failure_policy) answers:
//!
//! | policy | what happens |
//! |---|---|
//! | [`Local { instances }`](FailurePolicy::Local) | counts in this process: each instance admits its share of the limit, at least one unit. The default is 1 instance: N of them admit up to N times the limit until the store is back, so say how many there are |
//! | [`Allow`](FailurePolicy::Allow) | the request passes |
//! | [`Deny`](FailurePolicy::Deny) | the request is refused, with status 503 |
//!
//! When more is asked of the store than it can answer, `Allow` counts in this process too: a flood must not switch the limit
//! off. The decision is [degraded](Decision::is_degraded) in all these cases. An outage is a warning of the crate `tracing`,
//! and its end another line; they are seen if the service has installed a subscriber.
//!
//! # Several limits
//!
//! A layer can have several [policies](Policy), each with its key: they are one decision, in one round trip, and what one of them
//! denies is charged to none. A limit by an unverified header needs one by address beside it, or a client that invents
//! keys has no limit at all:
//!
//! ```
//! use axum::Router;
//! use axum::routing::get;
//! use http::HeaderName;
//! use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
//!
//! let api_key = key::Header::new(HeaderName::from_static("x-api-key"));
//! let limit = RateLimitLayer::with_policies(MemoryStore::new(), [
//!     Policy::new("key", Quota::per_minute(60), api_key),
//!     Policy::new("address", Quota::per_minute(600), key::PeerIp),
//!     Policy::new("all", Quota::per_second(5_000), key::Global),
//! ]);
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(limit);
//! ```
//!
//! Rules by route, plans, exemptions, costs that are settled afterwards, failed logins, penalties, shadow mode, changes
//! while running, hooks: the [recipes] have a few lines for each.
//!
//! Layers can be stacked too. The outermost decides first, what passed it is charged there even if an inner one refuses, and
//! the more binding decision's headers reach the client.
//!
//! # In a handler
//!
//! The decision is in the request's extensions, and with axum an extractor. A refused request never reaches the handler;
//! the response carries its [`Rejection`] in its extensions, for layers outside.
//!
//! ```
//! use tollgate::Decision;
//!
//! async fn handler(decision: Decision) -> String {
//!     format!("{} requests left", decision.remaining().unwrap_or_default())
//! }
//! # let _ = handler;
//! ```
//!
//! # Without axum
//!
//! [`RateLimit`] is a [`tower_service::Service`] around any service of `http` requests. hyper tells nobody who the
//! peer is: put a [`key::PeerAddr`] into the request's extensions (`examples/hyper.rs`). Around a tonic server it
//! answers with gRPC status 8 and a retry hint; the peer is found by a [`key::Address`] of tonic's `TcpConnectInfo`. Around a client, map the response's body to one that can be made empty
//! first. Jobs, messages and all else that is no request: [`Limiter`].
//!
//! ```
//! use http::{Request, Response};
//! use tollgate::{MemoryStore, Quota, RateLimitLayer, key};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let service = ServiceBuilder::new()
//!     .layer(RateLimitLayer::new(MemoryStore::new(), Quota::per_second(1), key::Global))
//!     .service(service_fn(|_request: Request<()>| async {
//!         Ok::<_, std::convert::Infallible>(Response::new(String::from("hello")))
//!     }));
//!
//! let first = service.clone().oneshot(Request::new(())).await.unwrap();
//! assert_eq!(first.headers()["x-ratelimit-remaining"], "0");
//! let second = service.oneshot(Request::new(())).await.unwrap();
//! assert_eq!(second.status(), 429);
//! assert_eq!(second.headers()["retry-after"], "1");
//! # }
//! ```
//!
//! # CORS
//!
//! Browsers hide rate headers, even `Retry-After`, from scripts of other origins, and refuse a 429 without CORS headers. So
//! the CORS layer goes outside this one, and exposes
//! [`exposed_headers`](RateLimitLayer::exposed_headers); it then also answers preflights, which count nothing.
//!
//! # Features
//!
//! | feature | default | |
//! |---|---|---|
//! | `axum` | yes | [`key::MatchedPath`], addresses from axum's `ConnectInfo`, [`Decision`] as an extractor |
//! | `redis` | yes | [`RedisStore`]: one limit across all instances of a service, and [`store::open`] |
//! | `redis-rustls` | no | `rediss://` URLs, by rustls with the system's root certificates; the application installs a crypto provider |
//! | `redis-rustls-webpki-roots` | no | the same with Mozilla's root certificates |
//! | `redis-native-tls` | no | `rediss://` URLs, by the system's TLS library |
//! | `serde` | no | [`config`]: a layer with its policies and rules from a configuration file; `Serialize` and `Deserialize` for [`Quota`] and [`Rate`], as text: `"100/minute"` |
//! | `test-util` | no | a clock that tests move by hand, and the conformance suite for stores |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin_error;
mod algorithm;
mod charge;
mod checking;
mod clock;
#[cfg(feature = "serde")]
pub mod config;
mod deciding;
mod decision;
mod engine;
mod exemption;
#[cfg(feature = "axum")]
mod extract;
mod failure;
#[cfg(test)]
mod fixtures;
mod future;
mod handling;
mod headers;
mod hook;
pub mod key;
mod layer;
mod lease;
mod leases;
mod limiter;
mod lock;
#[doc = include_str!("local_answers.md")]
pub mod local_answers {}
mod lookup;
mod penalty;
mod policy;
mod predicate;
mod preflight;
mod quota;
#[doc = include_str!("recipes.md")]
pub mod recipes {}
mod rejection;
pub mod response;
mod rules;
mod service;
mod settler;
pub mod store;
mod stripe;
mod tally;
#[cfg(feature = "test-util")]
pub mod testing;

pub use self::admin_error::{AdminError, AdminErrorKind};
pub use self::charge::ChargeHandle;
pub use self::clock::Clock;
#[cfg(any(test, feature = "test-util"))]
pub use self::clock::ManualClock;
pub use self::decision::{Decision, PolicyDecision, Source, Verdict};
pub use self::exemption::{ExemptReason, Exemption};
#[cfg(feature = "axum")]
pub use self::extract::{MissingCharge, MissingDecision};
pub use self::failure::FailurePolicy;
pub use self::future::ResponseFuture;
pub use self::headers::{Draft, Headers};
pub use self::hook::{Counted, DecisionEvent, OnDecision};
pub use self::key::{Key, KeyExtractor};
pub use self::layer::RateLimitLayer;
pub use self::lease::Lease;
pub use self::limiter::Limiter;
pub use self::penalty::Penalty;
pub use self::policy::{
    ContentLengthCost, Cost, MissingKey, ParseModeError, Policy, PolicyHandle, PolicyMode, PolicyName,
    PolicyNameError, Quotas,
};
pub use self::predicate::Predicate;
pub use self::quota::{Algorithm, MAX_LOG_UNITS, MAX_UNITS, ParseQuotaError, Quota, QuotaError, Rate};
pub use self::rejection::{Rejection, RejectionKind};
pub use self::response::{DefaultResponse, ResponseForRejection};
pub use self::rules::{Rule, RuleError, Rules};
pub use self::service::RateLimit;
#[cfg(feature = "redis")]
pub use self::store::RedisStore;
pub use self::store::{MemoryStore, Store};
pub use self::tally::{Metered, Tally};

/// The README's examples, as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
