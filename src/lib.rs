//! Exact rate limiting for tower, axum, hyper and tonic services.

mod algorithm;
mod clock;
mod decision;
mod engine;
#[cfg(feature = "axum")]
mod extract;
mod failure;
#[cfg(test)]
mod fixtures;
mod future;
mod headers;
pub mod key;
mod layer;
mod limiter;
mod policy;
mod preflight;
mod quota;
mod rejection;
pub mod response;
mod service;
pub mod store;
#[cfg(feature = "test-util")]
pub mod testing;

pub use self::clock::Clock;
#[cfg(any(test, feature = "test-util"))]
pub use self::clock::ManualClock;
pub use self::decision::{Decision, PolicyDecision, Source, Verdict};
#[cfg(feature = "axum")]
pub use self::extract::MissingDecision;
pub use self::failure::FailurePolicy;
pub use self::future::ResponseFuture;
pub use self::headers::{Draft, Headers};
pub use self::key::{Key, KeyExtractor};
pub use self::layer::RateLimitLayer;
pub use self::limiter::Limiter;
pub use self::policy::{Cost, MissingKey, PolicyName, PolicyNameError, Quotas};
pub use self::quota::{Algorithm, MAX_LOG_UNITS, MAX_UNITS, ParseQuotaError, Quota, QuotaError, Rate};
pub use self::rejection::{Rejection, RejectionKind};
pub use self::response::{DefaultResponse, ResponseForRejection};
pub use self::service::RateLimit;
pub use self::store::{MemoryStore, Store};
