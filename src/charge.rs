//! What a request was charged, for whoever knows what it really cost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::response;
use smallvec::SmallVec;

use crate::decision::{Decision, Source};
use crate::engine::{Engine, OwnedCharge};
use crate::policy::{PolicyName, RealCost};
use crate::settler::{Age, OwnedCorrection};
use crate::store::{Charge, Stamp, StoreError};
use crate::tally::Tally;

/// What a request was charged, to be settled when its real cost is known. Handlers find it in the request's extensions, and
/// as an axum extractor, if the layer's [`charge_extension`](crate::RateLimitLayer::charge_extension) is set;
/// [`Limiter::reserve`](crate::Limiter::reserve) returns one.
///
/// The real cost may be less than what was charged: the difference is given back, exactly those units, if they still
/// count. Or more: the difference is charged, whether it fits or not, and counts against later requests. Each policy is
/// settled once; clones share that. Nothing happens until then: a handle that is dropped leaves the charge. What was
/// [reset](crate::Limiter::reset) since is not given back.
///
/// Settling returns at once. What a remote store has to be told travels in the background, in batches; see
/// [`RateLimitLayer::shutdown`](crate::RateLimitLayer::shutdown). A message that is lost is not sent again: what should have
/// been given back stays charged until it leaves its window, which is the strict side; what should have been charged on top
/// is forgotten, which is the loose side. So estimate high where that matters.
/// What a [failure policy](crate::FailurePolicy) counted in the store's place is settled there, in this process; a grant of the store
/// that came too late and stays charged is not.
///
/// **Choose a window, not a [token bucket](crate::Quota::token_bucket), for what is settled up**: a bucket never owes more than its
/// burst, so what exceeds an empty one is forgotten. A window counts all of it.
///
/// ```
/// use tollgate::{ChargeHandle, Limiter, MemoryStore, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let tokens = Limiter::new(MemoryStore::new(), Quota::per_minute(10_000)).name("tokens");
/// let charge: ChargeHandle = tokens.reserve("alice", 4_000).await.expect("enough is left");
/// // The model was asked, and used fewer.
/// charge.settle("tokens", 1_250);
/// assert_eq!(tokens.peek("alice").await.remaining(), Some(8_750));
/// # }
/// ```
#[derive(Clone)]
pub struct ChargeHandle {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<Engine>,
    decision: Decision,
    age: Age,
    items: SmallVec<[Item; 1]>,
}

struct Item {
    charge: OwnedCharge,
    stamp: Stamp,
    /// Whether the units are charged: those of a shadow policy may not have fitted.
    is_charged: bool,
    is_settled: AtomicBool,
    /// How the response tells the cost, if it can.
    real_cost: Option<RealCost>,
}

impl ChargeHandle {
    pub(crate) fn new(
        engine: Arc<Engine>,
        charges: &[Charge<'_>],
        decision: &Decision,
        age: Age,
        real_cost: impl Fn(&PolicyName) -> Option<RealCost>,
    ) -> Self {
        let items = charges.iter().filter_map(|charge| {
            let policy = decision
                .policies()
                .iter()
                .find(|policy| policy.name() == charge.policy)?;
            Some(Item {
                // The quota that counted it: in an outage, a share, which can have another layout than the whole.
                charge: OwnedCharge {
                    quota: policy.quota(),
                    ..OwnedCharge::from(charge)
                },
                stamp: policy.stamp(),
                is_charged: policy.is_charged(),
                is_settled: AtomicBool::new(false),
                real_cost: real_cost(charge.policy),
            })
        });
        let items = items.collect();
        Self {
            inner: Arc::new(Inner {
                engine,
                decision: decision.clone(),
                age,
                items,
            }),
        }
    }

    /// The decision that charged the request.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        &self.inner.decision
    }

    /// The policies that count the request.
    pub fn policies(&self) -> impl Iterator<Item = &PolicyName> {
        self.inner.items.iter().map(|item| &item.charge.policy)
    }

    /// Units that a policy was charged. `None` if no policy of this name counts the request.
    #[must_use]
    pub fn charged(&self, policy: &str) -> Option<u64> {
        self.item(policy)
            .map(|index| &self.inner.items[index])
            .map(|item| item.charge.cost * u64::from(item.is_charged))
    }

    /// Makes `cost` what the request took of a policy. Returns whether it did: not if no policy of this name counts
    /// the request, or it has been settled before.
    #[allow(clippy::must_use_candidate, reason = "it is done for its effect")]
    pub fn settle(&self, policy: &str, cost: u64) -> bool {
        let Some(index) = self.item(policy) else {
            return false;
        };
        let claimed = self.claim(index);
        if claimed {
            self.settle_claimed(index, cost);
        }
        claimed
    }

    /// Gives back what the request took of all policies that have not been settled.
    pub fn give_back(&self) {
        for index in 0..self.inner.items.len() {
            if self.claim(index) {
                self.settle_claimed(index, 0);
            }
        }
    }

    /// Gives back what the request took of all policies that have not been settled, and waits until it is done.
    ///
    /// # Errors
    ///
    /// If the store gives no answer within the deadline. Whether the units were given back is then not known, and nobody else can
    /// do so, unless the error is [certain](StoreError::is_undone) that they were not: then it can be tried again.
    pub async fn give_back_now(&self) -> Result<(), StoreError> {
        let mut corrections: SmallVec<[OwnedCorrection; 1]> = SmallVec::new();
        let mut claimed: SmallVec<[&Item; 1]> = SmallVec::new();
        let is_local = self.is_local();
        for (index, item) in self.inner.items.iter().enumerate() {
            if !item.is_charged || !self.claim(index) {
                continue;
            }
            if is_local {
                self.settle_claimed(index, 0);
            } else {
                claimed.push(item);
                let charge = item.charge.clone();
                corrections.push(OwnedCorrection::give_back(charge, 1, item.stamp, self.inner.age));
            }
        }
        corrections.retain(|correction| !self.inner.engine.settler.is_void(correction));
        if corrections.is_empty() {
            return Ok(());
        }
        let given_back = self.inner.engine.correct_now(&corrections).await;
        if matches!(&given_back, Err(error) if error.is_undone()) {
            for item in claimed {
                item.is_settled.store(false, Ordering::Relaxed);
            }
        }
        given_back
    }

    /// Counts what the request takes of a policy while it is being answered, and settles it when dropped: for streams.
    /// From now on only the tally settles this policy.
    ///
    /// If no policy of this name counts the request, or it has been settled before, the tally counts for nothing.
    #[must_use]
    pub fn tally(&self, policy: &str) -> Tally {
        let index = self.item(policy).filter(|&index| self.claim(index));
        Tally::new(index.map(|index| (self.clone(), index)))
    }

    fn item(&self, policy: &str) -> Option<usize> {
        self.inner
            .items
            .iter()
            .position(|item| item.charge.policy.as_str() == policy)
    }

    /// Whether nobody has settled the policy before, nor said that they will.
    fn claim(&self, index: usize) -> bool {
        !self.inner.items[index].is_settled.swap(true, Ordering::Relaxed)
    }

    /// Settles what the response tells of the request's real cost, and nobody has settled before.
    pub(crate) fn settle_by(&self, response: &response::Parts) {
        for (index, item) in self.inner.items.iter().enumerate() {
            if let Some(real_cost) = &item.real_cost
                && let Some(units) = real_cost(response)
                && self.claim(index)
            {
                self.settle_claimed(index, units);
            }
        }
    }

    /// Whether the units were counted in this process, in the store's place.
    fn is_local(&self) -> bool {
        self.inner.decision.source() == Source::Fallback
    }

    pub(crate) fn settle_claimed(&self, index: usize, cost: u64) {
        let Inner {
            engine, items, age, ..
        } = &*self.inner;
        let is_local = self.is_local();
        let item = &items[index];
        let reserved = item.charge.cost * u64::from(item.is_charged);
        if cost < reserved {
            let charge = item.charge.with_cost(reserved - cost);
            engine.give_back(charge, item.stamp, *age, is_local);
        } else if cost > reserved {
            engine.charge_more(item.charge.with_cost(cost - reserved), is_local);
        }
    }
}

impl fmt::Debug for ChargeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let charged = self.inner.items.iter().map(|item| {
            let charged = item.charge.cost * u64::from(item.is_charged);
            (&item.charge.policy, charged)
        });
        f.debug_map().entries(charged).finish()
    }
}
