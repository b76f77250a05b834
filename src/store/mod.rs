//! Where state lives.
//!
//! A [`Store`] has one primitive, [`acquire`](Store::acquire), which carries every feature: a request wants one
//! grant of its charges, all or nothing; several policies are several charges; merged requests and leases want
//! more grants. Everything else corrects what was charged.

mod ask;
mod error;
mod future;
mod memory;
mod outcome;

use std::sync::Arc;

pub use self::ask::{Ask, Charge, Mode};
pub use self::error::{StoreError, StoreErrorKind};
pub use self::future::StoreFuture;
pub(crate) use self::memory::KnownOutcome;
pub use self::memory::{MemoryStats, MemoryStore, MemoryStoreBuilder};
pub use self::outcome::{ChargeState, Outcome, Retry, Stamp};

/// Keeps counters and decides on them, atomically and by its own clock.
///
/// The rules, which the conformance suite (feature `test-util`) checks:
///
/// * An ask is granted as often as all its enforced charges fit, at most `want` times, and only that is charged.
///   Charges on the same counter add up. A denied ask changes no answer of any later one.
/// * A shadow charge is counted as often as the ask is granted and it fits.
/// * Counters are told apart by key, policy, algorithm with its layout, and window; not by limit, burst or cost.
/// * Times come from the store's clock alone, in microseconds.
/// * Dropping a future harms nobody else; whether its own charge happened is then unknown.
pub trait Store: Send + Sync + 'static {
    /// Grants the ask up to `want` times, as often as all enforced charges fit.
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome>;

    /// Takes back `times` grants of `ask` that were charged as of `stamp`: exactly those units, or nothing. Never
    /// below zero, never from another window, never what a bucket has refilled since, and no state comes of it.
    /// Calling it twice for one grant can take back another's: that is for the caller to prevent.
    fn give_back(&self, ask: &Ask<'_>, times: u32, stamp: Stamp) -> StoreFuture<()>;

    /// Charges the ask once, whether it fits or not. What exceeds a limit counts against later asks.
    fn charge(&self, ask: &Ask<'_>) -> StoreFuture<Outcome>;

    /// What [`acquire`](Self::acquire) would answer if nothing were charged: `granted` is how often the ask fits,
    /// up to `want`.
    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome>;

    /// Forgets the counters of the ask's charges.
    fn reset(&self, ask: &Ask<'_>) -> StoreFuture<()>;
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        (**self).acquire(ask)
    }

    fn give_back(&self, ask: &Ask<'_>, times: u32, stamp: Stamp) -> StoreFuture<()> {
        (**self).give_back(ask, times, stamp)
    }

    fn charge(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        (**self).charge(ask)
    }

    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        (**self).peek(ask)
    }

    fn reset(&self, ask: &Ask<'_>) -> StoreFuture<()> {
        (**self).reset(ask)
    }
}
