//! A suite that every [`Store`] must pass.
//!
//! Implement [`Harness`] for a store and call [`conformance`] in a test. It panics at the first answer that is
//! not what the rules of [`Store`] ask for, and names the rule and the quota.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::testing::{Harness, conformance};
//! use tollgate::{ManualClock, MemoryStore};
//!
//! struct Embedded {
//!     clock: ManualClock,
//! }
//!
//! impl Harness for Embedded {
//!     type Store = MemoryStore;
//!
//!     async fn store(&self) -> MemoryStore {
//!         MemoryStore::builder().clock(self.clock.clock()).build()
//!     }
//!
//!     async fn advance(&self, by: Duration) {
//!         self.clock.advance(by);
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! conformance(&Embedded { clock: ManualClock::new() }).await;
//! # }
//! ```
//!
//! A store whose clock is real advances it by waiting, chooses a short [`window`](Harness::window), and says how
//! long the suite's calls may take ([`resolution`](Harness::resolution)). Nothing else gets easier: answers are
//! compared at the times that the store itself reports.
//!
//! Windows that are phased per key begin at the first 64 bits of the BLAKE3 hash of the key's bytes, read as a
//! big-endian number of microseconds, modulo the window.

mod case;
mod rules;

use std::future::Future;
use std::time::Duration;

use self::case::Case;
use crate::quota::{MAX_LOG_UNITS, Quota, Rate};
use crate::store::Store;

/// A store under test and its clock.
pub trait Harness {
    /// The store.
    type Store: Store;

    /// A store in which nothing was charged: a new one, or one with a prefix of its own.
    fn store(&self) -> impl Future<Output = Self::Store>;

    /// Lets time pass on the store's clock, by moving it or by waiting: at least `by`, and at most
    /// [`resolution`](Self::resolution) more.
    fn advance(&self, by: Duration) -> impl Future<Output = ()>;

    /// How much time may pass by itself while the suite puts one rule to the test (some dozens of calls), and by
    /// how much the times that the store tells to wait may be off. Zero, if not said: a clock that is moved by
    /// hand, and exact times.
    fn resolution(&self) -> Duration {
        Duration::ZERO
    }

    /// The window of the quotas that are tried, in which nearly all waits end: a minute. With a real clock, some
    /// seconds, and at least 40 times the resolution.
    fn window(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// Puts every rule to the test with every kind of quota.
///
/// # Panics
///
/// If the store breaks a rule, or does not answer.
pub async fn conformance<H: Harness>(harness: &H) {
    assert!(
        harness.resolution() * 40 <= harness.window(),
        "the harness's window must be at least 40 times its resolution"
    );
    for quota in quotas(harness.window()) {
        rules::all(&Case::new(harness, quota).await).await;
    }
}

/// Every kind of quota. All limits are multiples of [`TENTHS`].
fn quotas(window: Duration) -> [Quota; 10] {
    let ten = Quota::new(TENTHS, window);
    [
        ten,
        ten.slots(16),
        ten.slots(2),
        Quota::new(MAX_LOG_UNITS + 4, window),
        ten.sliding_counter(),
        ten.fixed_window(),
        ten.fixed_window_offset(window / 3),
        ten.fixed_window_per_key(),
        Quota::token_bucket(Rate::new(TENTHS, window), TENTHS),
        Quota::token_bucket(Rate::new(7, window), TENTHS),
    ]
}

/// Costs are stated in tenths of the limit.
const TENTHS: u64 = 10;
