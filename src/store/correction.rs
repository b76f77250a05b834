//! What corrects what was charged.

use super::{Ask, Stamp, Store, StoreFuture};

/// One correction of what was charged.
///
/// ```
/// use tollgate::store::{Ask, Charge, Correction};
/// use tollgate::{Key, MemoryStore, PolicyName, Quota, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let (key, policy) = (Key::from("alice"), PolicyName::new("tokens")?);
/// let estimated = [Charge::new(&key, &policy, Quota::per_minute(1_000)).cost(100)];
/// let outcome = store.acquire(&Ask::new(&estimated)).await?;
///
/// // It has been 140 in truth.
/// let more = [estimated[0].cost(40)];
/// store.settle(&[Correction::charge(Ask::new(&more))]).await?;
/// assert_eq!(store.peek(&Ask::new(&estimated)).await?.states[0].remaining, 860);
///
/// // Or it has failed, and counts nothing.
/// let back = Correction::give_back(Ask::new(&estimated), 1, outcome.stamp);
/// store.settle(&[back]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Correction<'a> {
    /// What is corrected, until when. How often it is [wanted](Ask::want) means nothing.
    pub ask: Ask<'a>,
    /// How it is corrected.
    pub kind: CorrectionKind,
}

/// How something is corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CorrectionKind {
    /// Grants are taken back that were charged as of a time, as by [`Store::give_back`].
    GiveBack {
        /// How many grants.
        times: u32,
        /// As of when they were charged.
        stamp: Stamp,
    },
    /// The ask is charged once, whether it fits or not, as by [`Store::charge`].
    Charge,
}

impl<'a> Correction<'a> {
    /// Takes back `times` grants of `ask` that were charged as of `stamp`.
    #[must_use]
    pub const fn give_back(ask: Ask<'a>, times: u32, stamp: Stamp) -> Self {
        Self {
            ask,
            kind: CorrectionKind::GiveBack { times, stamp },
        }
    }

    /// Charges `ask` once, whether it fits or not.
    #[must_use]
    pub const fn charge(ask: Ask<'a>) -> Self {
        Self {
            ask,
            kind: CorrectionKind::Charge,
        }
    }

    /// Asks the store for this one alone.
    pub(super) fn make(&self, store: &(impl Store + ?Sized)) -> StoreFuture<()> {
        match self.kind {
            CorrectionKind::GiveBack { times, stamp } => store.give_back(&self.ask, times, stamp),
            CorrectionKind::Charge => store.charge(&self.ask).done(),
        }
    }
}
