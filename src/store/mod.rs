//! Where state lives.
//!
//! A [`Store`] has one primitive, [`acquire`](Store::acquire), which carries every feature: a request wants one
//! grant of its charges, all or nothing; several policies are several charges; merged requests and leases want
//! more grants. Everything else corrects what was charged.
//!
//! # What exactly is counted
//!
//! For whoever writes a store. Times are whole microseconds since the Unix epoch, W is the window, L the limit.
//!
//! * **Exact log** ([`Quota::slot_count`](crate::Quota::slot_count) is `None`): a unit charged at `t` counts while `now` < `t` + W.
//! * **Slots**: of N slots, each is ⌈W / N⌉ long and begins at a multiple of that. A slot's units count until its last
//!   microsecond is W old.
//! * **Sliding counter**: windows begin at multiples of W. With `rest` = W − (`now` mod W), `current` +
//!   ⌈`previous` × `rest` / W⌉ must not exceed L. Where units × W reaches 2⁵², for the larger of limit and units,
//!   `rest` is counted in ticks of 2ᵏ µs rounded up, and W in ticks rounded down, for the smallest k that keeps the
//!   product of units and ⌈W / 2ᵏ⌉ below.
//! * **Fixed window**: windows begin at multiples of W plus the [offset](crate::Quota::window_offset); phased per key, at the
//!   first eight bytes of the key's BLAKE3 hash, big-endian, modulo W.
//! * **Token bucket**: a unit owes ⌈W / 2ᵏ⌉ ticks and every 2ᵏ µs pays off as many as the rate has units per window, with k
//!   as above for the larger of rate and burst. What is owed never exceeds the burst. What is held is owed in full until its
//!   stamp; what was owed before is paid off by then, as late as whole ticks allow.
//! * A charge is stamped with `now`, or as far ahead as it is [held](Ask::hold), but not before the latest stamp of any of its
//!   counters (of windows that are counted whole, not before their beginning), which matters after a step back.
//! * Stamps ahead of the clock by more than the slack, the smaller of W and one second, are another clock's: they become
//!   `now`.
//! * **Penalties**, for each key and policy name: an ask that is granted less often than it wants, counts the difference for each
//!   penalty of an enforced charge that would not fit once more, once for each penalty, and not while the key is blocked. A count lasts
//!   while `now` < its first denial + `within`. The denial that completes it begins a block and ends the count. A block lasts
//!   `block` × `factor`ⁿ after n others in a row, at most `longest`, and counts as one of the row while `now` < its end + `longest`; of
//!   blocks that do not grow there is no row. Blocks by hand are of no row, but keep one from ending. `acquire` and `peek` alone look
//!   at penalties; charges and what is given back pass them by.
//! * A first denial ahead of the clock by more than the smaller of `within` and one second is another clock's, and its count none. A block
//!   that ends later than one of its length would that began now is, too: it ends then.

#[cfg(feature = "redis")]
mod any;
mod ask;
mod correction;
mod error;
mod future;
mod join;
mod known;
mod local;
mod memory;
mod outcome;
#[cfg(feature = "redis")]
mod redis;
mod seed;

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "redis")]
pub use self::any::{AnyStore, open};
pub use self::ask::{Ask, Charge, Mode};
pub use self::correction::{Correction, CorrectionKind};
#[cfg(feature = "redis")]
pub(crate) use self::error::Late;
pub use self::error::{StoreError, StoreErrorKind};
pub(crate) use self::future::Answering;
pub use self::future::StoreFuture;
pub(crate) use self::known::{KnownOutcome, Wait};
pub use self::local::{Change, Changing, LocalAnswers, LocalAnswersBuilder, LocalStats};
pub(crate) use self::local::{Nanos, add, nanos};
pub use self::memory::{MemoryStats, MemoryStore, MemoryStoreBuilder};
pub use self::outcome::{ChargeState, Outcome, Retry, Stamp};
#[cfg(feature = "redis")]
pub use self::redis::{ConnectError, ConnectErrorKind, Latency, RedisStats, RedisStore, RedisStoreBuilder};

/// Keeps counters and decides on them, atomically and by its own clock.
///
/// The rules, which the conformance suite (feature `test-util`) checks:
///
/// * An ask is granted as often as all its enforced charges fit, at most `want` times, and only that is charged.
///   Charges on the same counter add up, under the quota of the first. A denied ask changes no answer of any later
///   one.
/// * A shadow charge is counted as often as the ask is granted and it fits.
/// * While its key is blocked, an enforced charge with a penalty does not fit, whatever its cost. Denials are counted for
///   the penalties of those enforced charges that had no room themselves. A block that an ask brings about stands in its answer.
/// * Counters are told apart by key, policy, algorithm with its layout, and window; not by limit, burst or cost.
/// * Times come from the store's clock alone, in microseconds.
/// * Dropping a future harms nobody else; whether its own charge happened is then unknown. An ask may be on its way before its
///   future is polled: poll it soon, or drop it.
pub trait Store: Send + Sync + 'static {
    /// Grants the ask up to `want` times, as often as all enforced charges fit.
    fn acquire(&self, ask: &Ask<'_>) -> StoreFuture<Outcome>;

    /// Takes back `times` grants of `ask` that were charged as of `stamp`: exactly those units, or nothing. A shadow
    /// charge that was [not counted](ChargeState::charged) does not belong into the ask, nor does one with
    /// [another stamp](Outcome::stamp_of). Never below zero, never from another window, never what a bucket has refilled since, and no state comes of it.
    /// Calling it twice for one grant can take back another's: that is for the caller to prevent.
    fn give_back(&self, ask: &Ask<'_>, times: u32, stamp: Stamp) -> StoreFuture<()>;

    /// Charges the ask once, whether it fits or not. What exceeds a limit counts against later asks, as long as it is in
    /// their window; a token bucket owes no more than its burst, so what exceeds an empty one is forgotten.
    fn charge(&self, ask: &Ask<'_>) -> StoreFuture<Outcome>;

    /// Makes several corrections, each by itself (one that fails harms no other), in any order. What one does is what
    /// [`give_back`](Self::give_back) or [`charge`](Self::charge) does, which are asked for each if nothing else is said.
    ///
    /// # Errors
    ///
    /// The first of a correction that is not known to have been made. Of the others nothing is known either, unless the
    /// error says that [none was made](StoreError::is_undone).
    fn settle(&self, corrections: &[Correction<'_>]) -> StoreFuture<()> {
        join::all(
            corrections
                .iter()
                .map(|correction| correction.make(self))
                .collect(),
        )
    }

    /// What [`acquire`](Self::acquire) would answer if nothing were charged: `granted` is how often the ask fits,
    /// up to `want`. As nothing is charged, the stamp is the store's time.
    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome>;

    /// Forgets the counters of the ask's charges, and what their penalties have counted and blocked.
    ///
    /// What was charged before must not be given back afterwards. An exact log knows nothing of its stamp; other counters take
    /// as many units of charges of the same slot, window or bucket since.
    fn reset(&self, ask: &Ask<'_>) -> StoreFuture<()>;

    /// Blocks the keys of the ask's charges that carry a [penalty](Charge::penalty) for `time` from now on, at most 366 days,
    /// whatever mode and quota they have. No time lifts the block, and forgets denials and repetition.
    fn block(&self, ask: &Ask<'_>, time: Duration) -> StoreFuture<()>;

    /// What limiters and layers answer without asking the store: for stores that are asked over a network. `None`, if not
    /// said: every check asks.
    fn local_answers(&self) -> Option<&LocalAnswers> {
        None
    }

    /// How long a limiter or layer that sets no deadline waits for an answer: 100 ms, if not said.
    fn deadline(&self) -> Duration {
        Duration::from_millis(100)
    }

    /// Whether every answer comes within its ask's deadline by itself. If not, which is so unless said, whoever asks
    /// keeps the time.
    fn keeps_deadlines(&self) -> bool {
        false
    }
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

    fn settle(&self, corrections: &[Correction<'_>]) -> StoreFuture<()> {
        (**self).settle(corrections)
    }

    fn peek(&self, ask: &Ask<'_>) -> StoreFuture<Outcome> {
        (**self).peek(ask)
    }

    fn reset(&self, ask: &Ask<'_>) -> StoreFuture<()> {
        (**self).reset(ask)
    }

    fn block(&self, ask: &Ask<'_>, time: Duration) -> StoreFuture<()> {
        (**self).block(ask, time)
    }

    fn local_answers(&self) -> Option<&LocalAnswers> {
        (**self).local_answers()
    }

    fn deadline(&self) -> Duration {
        (**self).deadline()
    }

    fn keeps_deadlines(&self) -> bool {
        (**self).keeps_deadlines()
    }
}
