//! Exact rate limiting for tower, axum, hyper and tonic services.

mod algorithm;
mod clock;
mod decision;
mod engine;
mod failure;
pub mod key;
mod limiter;
mod policy;
mod quota;
pub mod store;

pub use self::clock::Clock;
#[cfg(any(test, feature = "test-util"))]
pub use self::clock::ManualClock;
pub use self::decision::{Decision, PolicyDecision, Source, Verdict};
pub use self::failure::FailurePolicy;
pub use self::key::{Key, KeyExtractor};
pub use self::limiter::Limiter;
pub use self::policy::{PolicyName, PolicyNameError};
pub use self::quota::{Algorithm, MAX_LOG_UNITS, MAX_UNITS, ParseQuotaError, Quota, QuotaError, Rate};
pub use self::store::{MemoryStore, Store};
