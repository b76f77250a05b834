//! The engine without HTTP.

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::decision::Decision;
use crate::engine::{Decided, Engine};
use crate::failure::FailurePolicy;
use crate::key::Key;
use crate::policy::PolicyName;
use crate::quota::Quota;
use crate::store::{Ask, Charge, Correction, Store, StoreError, StoreErrorKind, StoreFuture};

/// Limits anything that has a key: jobs, messages, calls to somebody else's API.
///
/// Clones share one state. [`RateLimitLayer`](crate::RateLimitLayer) is the same for HTTP requests.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Quota::per_minute(2)).name("mail");
///
/// assert!(limiter.check("alice").await.is_allowed());
/// let second = limiter.check("alice").await;
/// assert_eq!(second.remaining(), Some(0));
/// let third = limiter.check("alice").await;
/// assert!(third.is_denied());
/// assert!(third.retry_after().is_some());
/// assert!(limiter.check("bob").await.is_allowed());
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct Limiter {
    engine: Arc<Engine>,
    policy: PolicyName,
    quota: Quota,
    failure: FailurePolicy,
}

impl Limiter {
    /// Limits each key to `quota`, counted in `store`. The policy's name is the quota in words
    /// (`100-per-60s`), the same on all instances.
    pub fn new(store: impl Store, quota: Quota) -> Self {
        Self {
            engine: Arc::new(Engine::new(store)),
            policy: PolicyName::of(&quota),
            quota,
            failure: FailurePolicy::default(),
        }
    }

    /// Names the policy: separates its counters from those of others in the store, and keeps them when the limit
    /// changes.
    ///
    /// # Panics
    ///
    /// If the name is not 1 to 64 ASCII letters, digits, `-`, `_`, `.`, `/` or `:`. Check names from outside with
    /// [`PolicyName::new`].
    #[track_caller]
    pub fn name(mut self, name: impl TryInto<PolicyName, Error: fmt::Display>) -> Self {
        self.policy = PolicyName::expect(name);
        self
    }

    /// What happens when the store gives no answer. [`FailurePolicy::Local`] if not set.
    pub const fn failure_policy(mut self, failure: FailurePolicy) -> Self {
        self.failure = failure;
        self
    }

    /// How long a check may take before the failure policy answers it. 100 ms if not set. Checks that have to wait
    /// for their store use tokio's timer.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.engine = Arc::new(self.engine.with_deadline(deadline));
        self
    }

    /// Charges one unit to `key` if it fits.
    pub async fn check(&self, key: impl Into<Key>) -> Decision {
        self.check_cost(key, 1).await
    }

    /// Charges `cost` units to `key` if all of them fit. A cost of 0 looks without charging and passes (unless the
    /// limit is 0); a cost above the limit is denied for ever ([`Decision::is_never`]).
    pub async fn check_cost(&self, key: impl Into<Key>, cost: u64) -> Decision {
        let decided = self
            .engine
            .decide(&[self.charge(&key.into(), cost)], &[self.failure]);
        match decided {
            Decided::Now(decision) => decision,
            Decided::Later(deciding) => deciding.await,
        }
    }

    /// Waits until one unit fits, for at most `at_most`, and charges it. Returns the denial at once when the wait
    /// would be longer. A store that does not answer can add one deadline.
    ///
    /// Those that wait for one key are not served in order. Waiting needs a tokio runtime with its timer.
    pub async fn wait(&self, key: impl Into<Key>, at_most: Duration) -> Decision {
        self.wait_cost(key, 1, at_most).await
    }

    /// Waits until `cost` units fit, for at most `at_most`, and charges them.
    pub async fn wait_cost(&self, key: impl Into<Key>, cost: u64, at_most: Duration) -> Decision {
        let key = key.into();
        let start = tokio::time::Instant::now();
        loop {
            let decision = self.check_cost(&key, cost).await;
            let left = at_most.saturating_sub(start.elapsed());
            match decision.retry_after() {
                // No timer is finer than a millisecond, and no store makes this spin.
                Some(wait) if wait <= left && !left.is_zero() => {
                    tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
                }
                _ => return decision,
            }
        }
    }

    /// What [`check`](Self::check) would answer, charging nothing.
    pub async fn peek(&self, key: impl Into<Key>) -> Decision {
        let decided = self.engine.peek(&[self.charge(&key.into(), 1)], &[self.failure]);
        match decided {
            Decided::Now(decision) => decision,
            Decided::Later(deciding) => deciding.await,
        }
    }

    /// Forgets what was charged to `key`.
    ///
    /// # Errors
    ///
    /// If the store gives no answer within the deadline.
    pub async fn reset(&self, key: impl Into<Key>) -> Result<(), StoreError> {
        let key = key.into();
        let charges = [self.charge(&key, 1)];
        let done = self
            .engine
            .store
            .reset(&Ask::new(&charges).deadline(self.engine.deadline));
        self.in_time(done).await
    }

    /// Gives back what an allowed check charged to `key`: exactly those units, as far as they still count. Takes the
    /// decision, because giving the same units back twice could take another request's.
    ///
    /// Nothing happens if the decision charged nothing in the store.
    ///
    /// # Errors
    ///
    /// If the store gives no answer within the deadline: whether the units were given back is then unknown.
    pub async fn give_back(&self, key: impl Into<Key>, decision: Decision) -> Result<(), StoreError> {
        if !decision.is_charged() {
            return Ok(());
        }
        let key = key.into();
        let charged = decision.policies().iter().filter(|policy| policy.is_charged());
        let charges: SmallVec<[Charge<'_>; 1]> = charged
            .clone()
            .map(|policy| Charge::new(&key, policy.name(), policy.quota()).cost(policy.cost()))
            .collect();
        // Each by itself, as each has a stamp of its own.
        let corrections: SmallVec<[Correction<'_>; 1]> = charges
            .iter()
            .zip(charged)
            .map(|(charge, policy)| {
                let ask = Ask::new(slice::from_ref(charge)).deadline(self.engine.deadline);
                Correction::give_back(ask, 1, policy.stamp())
            })
            .collect();
        let done = self.engine.store.settle(&corrections);
        self.in_time(done).await
    }

    /// Waits until what is settled in the background has been made in the store, for at most ten deadlines of the store: a
    /// second, if not said. To be called when a service ends, after its last request. Returns how many corrections may
    /// not have been made.
    ///
    /// ```
    /// # use tollgate::{Limiter, MemoryStore, Quota};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limiter = Limiter::new(MemoryStore::new(), Quota::per_minute(2));
    /// assert_eq!(limiter.shutdown().await, 0);
    /// # }
    /// ```
    pub async fn shutdown(&self) -> u64 {
        let settler = &self.engine.settler;
        settler.flush(settler.lifetime()).await
    }

    /// The answer of the store, or a timeout when the deadline has passed.
    async fn in_time(&self, answer: StoreFuture<()>) -> Result<(), StoreError> {
        match answer.into_ready() {
            Ok(answer) => answer,
            Err(answer) => tokio::time::timeout(self.engine.deadline, answer)
                .await
                .unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout))),
        }
    }

    fn charge<'a>(&'a self, key: &'a Key, cost: u64) -> Charge<'a> {
        Charge::new(key, &self.policy, self.quota).cost(cost)
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policy", &self.policy)
            .field("quota", &self.quota)
            .field("failure_policy", &self.failure)
            .field("deadline", &self.engine.deadline)
            .finish_non_exhaustive()
    }
}
