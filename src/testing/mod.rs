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
//!
//!     fn step_back(&self, by: Duration) -> bool {
//!         self.clock.set(self.clock.now() - by);
//!         true
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
//! long the suite's calls may take ([`resolution`](Harness::resolution)). Answers get no easier by that: they are
//! compared at the times that the store itself reports. But nothing waits for windows longer than the harness's, and
//! buckets that refill between two calls are hardly tried. Where the store can also have a clock that is moved by
//! hand, run the suite on both.
//!
//! Windows that are phased per key begin at the first 64 bits of the BLAKE3 hash of the key's bytes, read as a
//! big-endian number of microseconds, modulo the window.

mod alarm;
mod case;
mod counter;
mod rules;

use std::future::Future;
use std::time::Duration;

use self::case::Case;
use crate::quota::{MAX_LOG_UNITS, MAX_UNITS, Quota, Rate};
use crate::store::Store;

/// A store under test and its clock.
pub trait Harness {
    /// The store.
    type Store: Store;

    /// A store in which nothing was charged: a new one, or one with a prefix of its own.
    fn store(&self) -> impl Future<Output = Self::Store>;

    /// Lets time pass on the store's clock, by moving it or by waiting: at least `by`, and at most
    /// [`resolution`](Self::resolution) more. A clock that is moved by hand moves by some years in all.
    fn advance(&self, by: Duration) -> impl Future<Output = ()>;

    /// Steps the store's clock back, for the rules about clocks that do. False, if not said: this clock cannot, and
    /// those rules are not tried.
    fn step_back(&self, by: Duration) -> bool {
        let _ = by;
        false
    }

    /// How much time may pass by itself while the suite puts one rule to the test (some dozens of calls), and by
    /// how much the times that the store tells to wait may be off. Zero, if not said: a clock that is moved by
    /// hand, and exact times.
    fn resolution(&self) -> Duration {
        Duration::ZERO
    }

    /// The window of most quotas that are tried: a minute. Unless the [`resolution`](Self::resolution) is zero,
    /// nothing waits for longer windows. With a real clock, some seconds, and at least 40 times the resolution.
    fn window(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// How long the suite waits for one answer, in real time: ten seconds. A store that takes longer fails; one that
    /// blocks its thread cannot be interrupted.
    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// Puts every rule to the test with every kind of quota.
///
/// # Panics
///
/// If the store breaks a rule, or does not answer in time.
pub async fn conformance<H: Harness>(harness: &H) {
    for quota in quotas(harness.window()) {
        conformance_with(harness, quota).await;
    }
    rules::once(&Case::new(harness, Quota::unlimited()).await).await;
    if harness.resolution().is_zero() {
        for quota in quotas_in_ticks(harness.window()) {
            rules::all(&Case::new(harness, quota).await).await;
        }
    }
}

/// Puts every rule to the test with one kind of quota: 10 per the harness's [`window`](Harness::window), or any other limit that
/// is a multiple of 10, by the algorithm to be tried. For a second run with a real clock, whose waits add up.
///
/// # Panics
///
/// If the store breaks a rule, or does not answer in time; if the harness's window is shorter than 40 times its
/// resolution.
pub async fn conformance_with<H: Harness>(harness: &H, quota: Quota) {
    assert!(
        harness.resolution() * 40 <= harness.window(),
        "the harness's window must be at least 40 times its resolution"
    );
    rules::all(&Case::new(harness, quota).await).await;
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

/// Quotas whose time counts in ticks. This bucket refills faster than a clock that runs can be read twice.
fn quotas_in_ticks(window: Duration) -> [Quota; 2] {
    let limit = MAX_UNITS / 12 * TENTHS;
    [
        Quota::new(limit, window).sliding_counter(),
        Quota::token_bucket(Rate::new(limit, window), limit),
    ]
}

/// Costs are stated in tenths of the limit.
const TENTHS: u64 = 10;

/// A cost that 32 bits make one.
const BEYOND_32_BITS: u64 = (1 << 32) + 1;
