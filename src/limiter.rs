//! The engine without HTTP.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::admin_error::{AdminError, AdminErrorKind};
use crate::charge::ChargeHandle;
use crate::checking::Checking;
use crate::deciding::{Decided, Deciding};
use crate::decision::{Decision, Exemptions};
use crate::engine::{Engine, Learns};
use crate::exemption::Exemption;
use crate::failure::FailurePolicy;
use crate::handling::Handling;
use crate::hook::{Hook, OnDecision};
use crate::key::{self, Key, KeyRef};
use crate::lease::Lease;
use crate::policy::{self, Policy, PolicyHandle, PolicyName};
use crate::quota::Quota;
use crate::rejection::RejectionKind;
use crate::store::{Ask, Charge, Store};

type Charges<'a> = SmallVec<[Charge<'a>; 1]>;

/// A decision, if it needs no waiting.
pub(crate) enum Begun {
    Now(Decision),
    Later(Later),
}

/// A decision that waits for the store.
pub(crate) struct Later {
    pub(crate) deciding: Box<Deciding>,
    exemptions: Exemptions,
    started: Option<Instant>,
}

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
    pub(crate) engine: Arc<Engine>,
    policies: Arc<[Policy]>,
    hook: Hook,
}

impl Limiter {
    /// Limits each key to `quota`, counted in `store`. The policy's name is the quota in words
    /// (`100-per-60s`), the same on all instances.
    pub fn new(store: impl Store, quota: Quota) -> Self {
        let policy = Policy::of(quota.into(), key::Global);
        Self::of(Arc::new(Engine::new(store)), vec![policy], Hook::default())
    }

    pub(crate) fn of(engine: Arc<Engine>, policies: Vec<Policy>, hook: Hook) -> Self {
        Self {
            engine,
            policies: policies.into(),
            hook,
        }
    }

    /// Adds a policy: each check is one decision over all, and what one of them denies is charged to none.
    ///
    /// What a policy says of HTTP requests (key, cost, and what to skip or give back) is nothing to a limiter.
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let mail = Limiter::new(MemoryStore::new(), Quota::per_second(1))
    ///     .name("second")
    ///     .policy(Policy::new("day", Quota::per_day(100), key::Global));
    /// let decision = mail.check("alice").await;
    /// assert_eq!(decision.policies().len(), 2);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If another policy of the limiter has its name.
    #[track_caller]
    pub fn policy(self, policy: Policy) -> Self {
        self.set(|policies| policies.push(policy))
    }

    /// Names the first policy: separates its counters from those of others in the store, and keeps them when the limit
    /// changes.
    ///
    /// # Panics
    ///
    /// If the name is not 1 to 64 ASCII letters, digits, `-`, `_`, `.`, `/` or `:`, or another policy of the limiter has it. Check
    /// names from outside with [`PolicyName::new`].
    #[track_caller]
    pub fn name(self, name: impl TryInto<PolicyName, Error: fmt::Display>) -> Self {
        let name = PolicyName::expect(name);
        self.set(|policies| policies[0].name = name)
    }

    /// Lets each instance take units of the first policy's hot keys ahead: see [`Policy::lease`].
    ///
    /// # Panics
    ///
    /// As [`Policy::lease`].
    #[track_caller]
    pub fn lease(self, lease: Lease) -> Self {
        self.set(|policies| policies[0] = policies[0].clone().lease(lease))
    }

    /// What the first policy answers when the store gives no answer. [`FailurePolicy::Local`] if not set.
    pub fn failure_policy(self, failure: FailurePolicy) -> Self {
        self.set(|policies| policies[0].failure = failure)
    }

    #[track_caller]
    fn set(self, set: impl FnOnce(&mut Vec<Policy>)) -> Self {
        let mut policies = self.policies.to_vec();
        set(&mut policies);
        policy::check_names(&policies);
        Self::of(self.engine, policies, self.hook)
    }

    /// How long a check may take before the failure policy answers it. 100 ms if not set. Checks that have to wait
    /// for their store use tokio's timer.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.engine = Arc::new(self.engine.with_deadline(deadline));
        self
    }

    /// Tells `hook` of every check, for metrics and audits. See
    /// [`RateLimitLayer::on_decision`](crate::RateLimitLayer::on_decision).
    pub fn on_decision(mut self, hook: impl OnDecision) -> Self {
        self.hook.called = Some(Arc::new(hook));
        self
    }

    /// Whether the hook of [`on_decision`](Self::on_decision) may see keys. `false` if not set: then it sees fingerprints.
    pub const fn reveal_keys(mut self, reveal: bool) -> Self {
        self.hook.reveals_keys = reveal;
        self
    }

    /// What changes each policy while it runs.
    #[must_use]
    pub fn policies(&self) -> Vec<PolicyHandle> {
        self.policies.iter().map(Policy::handle).collect()
    }

    /// What changes the policy of this name while it runs.
    #[must_use]
    pub fn handle(&self, policy: &str) -> Option<PolicyHandle> {
        self.named(policy).map(Policy::handle)
    }

    /// The policy of this name alone: to check, peek at, reset or block its keys.
    #[must_use]
    pub fn only(&self, policy: &str) -> Option<Self> {
        let policy = self.named(policy)?.clone();
        Some(Self {
            policies: Arc::from([policy]),
            ..self.clone()
        })
    }

    /// The same policies for requests of one quota: for those whose quota is a [function of the request](crate::Quotas::by). A
    /// limiter has no request, so it does not count these otherwise ([`ExemptReason::UnknownQuota`](crate::ExemptReason::UnknownQuota)), and does not
    /// reset them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::AdminError> {
    /// use http::request::Parts;
    /// use tollgate::{MemoryStore, Quota, Quotas, RateLimitLayer};
    ///
    /// # #[derive(Clone)] struct Pro;
    /// const FREE: Quota = Quota::per_minute(60).slots(64);
    /// const PRO: Quota = Quota::per_minute(6_000).slots(64);
    /// let quota = Quotas::by("plan", |request: &Parts| if request.extensions.get::<Pro>().is_some() { PRO } else { FREE });
    /// let account = |request: &Parts| Some(request.headers.get("x-account")?.to_str().ok()?.to_owned());
    /// let layer = RateLimitLayer::new(MemoryStore::new(), quota, account);
    ///
    /// let pro = layer.limiter().by_quota(PRO);
    /// assert_eq!(pro.peek("alice").await.remaining(), Some(6_000));
    /// pro.reset("alice").await?;
    /// # Ok(()) }
    /// ```
    pub fn by_quota(&self, quota: Quota) -> Self {
        let policies = self.policies.iter().map(|policy| policy.by_quota(quota));
        Self {
            policies: policies.collect(),
            ..self.clone()
        }
    }

    fn named(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.name.as_str() == name)
    }

    /// Charges one unit to `key` if it fits.
    pub fn check<'k>(&self, key: impl Into<KeyRef<'k>>) -> impl Future<Output = Decision> {
        self.check_cost(key, 1)
    }

    /// Charges `cost` units to `key` if all of them fit. A cost of 0 looks without charging and passes (unless the
    /// limit is 0); a cost above the limit is denied for ever ([`Decision::is_never`]).
    pub async fn check_cost<'k>(&self, key: impl Into<KeyRef<'k>>, cost: u64) -> Decision {
        let (key, learns) = {
            let key = key.into();
            match self.decide_at_once(|_| &key, cost) {
                Ok(decision) => return decision,
                // Only what has to wait is kept.
                Err(learns) => (key, learns),
            }
        };
        // Made where it stays: awaited by itself, it would be moved first, and it is large.
        let mut checking = Checking::new(self, &key, cost, learns);
        poll_fn(|context| Pin::new(&mut checking).poll(context)).await
    }

    /// The decision, or what is to be learned from the store's answer. Generic, so that it is compiled where it is called: a
    /// decision is large, and is made where it is returned.
    #[inline(always)]
    fn decide_at_once<'a>(
        &'a self,
        key_of: impl Fn(&str) -> &'a Key,
        cost: u64,
    ) -> Result<Decision, Option<Learns>> {
        let policy = self.alone().ok_or(None)?;
        policy.with_charge(key_of(policy.name.as_str()), cost, |charge| match charge {
            Ok(charge) => self.engine.decide_one(charge, &policy.handling()),
            Err(_) => Err(None),
        })
    }

    /// Charges `cost` units to the key that `key_of` names for each policy, all or nothing.
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let jobs = Limiter::new(MemoryStore::new(), Quota::per_minute(10))
    ///     .name("tenant")
    ///     .policy(Policy::new("all", Quota::per_minute(1_000), key::Global));
    /// let (tenant, all) = (Key::from("acme"), Key::from("all"));
    /// let decision = jobs
    ///     .check_keys(1, |policy| if policy == "all" { &all } else { &tenant })
    ///     .await;
    /// assert!(decision.is_allowed());
    /// # }
    /// ```
    pub async fn check_keys<'k>(&'k self, cost: u64, key_of: impl Fn(&str) -> &'k Key) -> Decision {
        let learns = match self.decide_at_once(&key_of, cost) {
            Ok(decision) => return decision,
            Err(learns) => learns,
        };
        if let Some(policy) = self.alone() {
            let mut checking = Checking::new(self, key_of(policy.name.as_str()), cost, learns);
            return poll_fn(|context| Pin::new(&mut checking).poll(context)).await;
        }
        match self.decide(cost, key_of).0 {
            Begun::Now(decision) => decision,
            Begun::Later(mut later) => {
                let decision = (&mut later.deciding).await;
                self.finish(decision, &mut later)
            }
        }
    }

    /// Charges `cost` units to `key` if all of them fit, to be settled when the real cost is known.
    ///
    /// # Errors
    ///
    /// The decision, if it denies.
    pub async fn reserve<'k>(&self, key: impl Into<KeyRef<'k>>, cost: u64) -> Result<ChargeHandle, Decision> {
        let key = key.into();
        self.reserve_keys(cost, |_| &key).await
    }

    /// Charges `cost` units to the key that `key_of` names for each policy, to be settled when the real cost is known.
    ///
    /// # Errors
    ///
    /// The decision, if it denies.
    pub async fn reserve_keys<'k>(
        &'k self,
        cost: u64,
        key_of: impl Fn(&str) -> &'k Key,
    ) -> Result<ChargeHandle, Decision> {
        let age = self.engine.settler.resets.age();
        let handle = |charges: &[Charge<'_>], decision: &Decision| {
            let engine = Arc::clone(&self.engine);
            let allowed = decision.is_allowed();
            allowed.then(|| ChargeHandle::new(engine, charges, decision, age, |_| None))
        };
        let (begun, charges) = self.decide(cost, key_of);
        match begun {
            Begun::Now(decision) => handle(&charges, &decision).ok_or(decision),
            Begun::Later(mut later) => {
                drop(charges);
                let decision = (&mut later.deciding).await;
                let decision = self.finish(decision, &mut later);
                handle(&later.deciding.charges(), &decision).ok_or(decision)
            }
        }
    }

    /// The policy, if no other counts and no hook is to be told: nearly always, and without what others need.
    #[inline]
    pub(crate) fn alone(&self) -> Option<&Policy> {
        match (&*self.policies, &self.hook.called) {
            ([policy], None) => Some(policy),
            _ => None,
        }
    }

    /// The decision, if it is there, and what is asked.
    pub(crate) fn decide<'a>(&'a self, cost: u64, key_of: impl Fn(&str) -> &'a Key) -> (Begun, Charges<'a>) {
        let started = self.hook.called.is_some().then(Instant::now);
        let (charges, handlings, exemptions) = self.charges(cost, key_of);
        let decided = self.engine.decide(&charges, &handlings);
        (self.begun(&charges, decided, exemptions, started), charges)
    }

    fn begun(
        &self,
        charges: &[Charge<'_>],
        decided: Decided,
        exemptions: Exemptions,
        started: Option<Instant>,
    ) -> Begun {
        match decided {
            Decided::Now(decision) => Begun::Now(self.conclude(charges, decision, exemptions, started)),
            Decided::Later(deciding) => Begun::Later(Later {
                deciding,
                exemptions,
                started,
            }),
        }
    }

    /// The decision of a store that had to be waited for.
    pub(crate) fn finish(&self, decision: Decision, later: &mut Later) -> Decision {
        let exemptions = mem::take(&mut later.exemptions);
        self.conclude(&later.deciding.charges(), decision, exemptions, later.started)
    }

    /// Adds to a decision what the store knows nothing of, and tells the hook.
    fn conclude(
        &self,
        charges: &[Charge<'_>],
        mut decision: Decision,
        exemptions: Exemptions,
        started: Option<Instant>,
    ) -> Decision {
        decision.set_exemptions(exemptions);
        if let Some(started) = started {
            let rejection = (!decision.is_allowed()).then(|| RejectionKind::of(&decision));
            self.hook
                .tell(&decision, rejection, charges, None, started.elapsed());
        }
        decision
    }

    fn charges<'a>(
        &'a self,
        cost: u64,
        key_of: impl Fn(&str) -> &'a Key,
    ) -> (Charges<'a>, SmallVec<[Handling<'a>; 1]>, Exemptions) {
        let (mut charges, mut handlings) = (Charges::new(), SmallVec::new());
        let mut exemptions = Exemptions::new();
        for policy in &*self.policies {
            match policy.charge(key_of(policy.name.as_str()), cost) {
                Ok(charge) => {
                    charges.push(charge);
                    handlings.push(policy.handling());
                }
                Err(reason) => exemptions.push(Exemption::of(policy.name.copied(), reason)),
            }
        }
        (charges, handlings, exemptions)
    }

    /// Waits until one unit fits, for at most `at_most`, and charges it. Returns the denial at once when the wait
    /// would be longer. A store that does not answer can add one deadline.
    ///
    /// Those that wait for one key are not served in order. Waiting needs a tokio runtime with its timer.
    pub async fn wait<'k>(&self, key: impl Into<KeyRef<'k>>, at_most: Duration) -> Decision {
        self.wait_cost(key, 1, at_most).await
    }

    /// Waits until `cost` units fit, for at most `at_most`, and charges them.
    pub async fn wait_cost<'k>(&self, key: impl Into<KeyRef<'k>>, cost: u64, at_most: Duration) -> Decision {
        let key = key.into();
        let start = tokio::time::Instant::now();
        loop {
            let decision = self.check_cost(&*key, cost).await;
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
    pub async fn peek<'k>(&self, key: impl Into<KeyRef<'k>>) -> Decision {
        let key = key.into();
        let (charges, handlings, exemptions) = self.charges(1, |_| &key);
        let mut decision = match self.engine.peek(&charges, &handlings) {
            Decided::Now(decision) => decision,
            Decided::Later(deciding) => deciding.await,
        };
        decision.set_exemptions(exemptions);
        decision
    }

    /// Forgets what was charged to `key`, and its block, if it has one.
    ///
    /// What was charged before is not given back afterwards: nothing of it is left, and later requests' units are not its own. Handles
    /// of this limiter, its clones and its layer know that (of more than some thousand resets, they give nothing back that is older than
    /// those they know). A handle of another instance does not: in an exact log it finds nothing to give back, of any other
    /// [algorithm](crate::Algorithm) it takes up to what it was charged from requests of the same window since, and so many more
    /// pass: the loose side. A give-back that is under way meanwhile does so too.
    ///
    /// # Errors
    ///
    /// If a policy's quota is a function of the request (see [`by_quota`](Self::by_quota)), or the store gives no answer within
    /// the deadline.
    pub async fn reset<'k>(&self, key: impl Into<KeyRef<'k>>) -> Result<(), AdminError> {
        let key = key.into();
        let counters: Option<Charges<'_>> = self.policies.iter().map(|policy| policy.counter(&key)).collect();
        let Some(counters) = counters else {
            return Err(AdminError::new(AdminErrorKind::UnknownQuota));
        };
        let ask = Ask::new(&counters).deadline(self.engine.deadline);
        let _resetting = self.engine.settler.resets.begin(&counters);
        let reset = self.engine.store.reset(&ask);
        Ok(self.engine.in_time(reset).await?)
    }

    /// Blocks `key` for `time` from now on, at least 1 ms and at most 366 days, in place of any block that it has: the
    /// limiter's policies deny it, whatever it has left. While the store gives no answer,
    /// [`FailurePolicy::Local`] knows of no blocks.
    ///
    /// # Errors
    ///
    /// If no policy of the limiter has a [penalty](Policy::penalty) ([`Penalty::manual`](crate::Penalty::manual) is one that
    /// blocks nobody by itself), or the store gives no answer within the deadline.
    pub async fn block<'k>(&self, key: impl Into<KeyRef<'k>>, time: Duration) -> Result<(), AdminError> {
        // No time at all would lift the block.
        self.set_block(key.into(), time.max(Duration::from_millis(1)))
            .await
    }

    /// Lifts the block of `key`, and forgets its denials and earlier blocks.
    ///
    /// # Errors
    ///
    /// As [`block`](Self::block).
    pub async fn unblock<'k>(&self, key: impl Into<KeyRef<'k>>) -> Result<(), AdminError> {
        self.set_block(key.into(), Duration::ZERO).await
    }

    async fn set_block(&self, key: KeyRef<'_>, time: Duration) -> Result<(), AdminError> {
        // Which quota it is does not matter to a penalty.
        let counters = self
            .policies
            .iter()
            .map(|policy| policy.counter_by(Quota::unlimited(), &key));
        let penalized: Charges<'_> = counters.filter(|charge| charge.penalty.is_some()).collect();
        if penalized.is_empty() {
            return Err(AdminError::new(AdminErrorKind::NoPenalty));
        }
        let ask = Ask::new(&penalized).deadline(self.engine.deadline);
        let blocked = self.engine.store.block(&ask, time);
        Ok(self.engine.in_time(blocked).await?)
    }

    /// Gives back what [leases](crate::Policy::lease) hold, and takes nothing ahead any more; then waits until what is settled in the
    /// background has been made in the store, for at most ten deadlines of the store: a
    /// second, if not said. To be called when a service ends, after its last request. Returns how many corrections were
    /// lost, or may not have been made. Each loss is told once, to who asks first: by a layer, its
    /// [limiter](crate::RateLimitLayer::limiter), or a clone of either.
    ///
    /// What a store gives back by itself is not waited for, nor counted here: Redis does so with grants that came too late, and with
    /// what a denied request was charged in other slots of a cluster. See `RedisStats::lost_grants`.
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
        self.engine.shutdown().await
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policies", &self.policies)
            .field("deadline", &self.engine.deadline)
            .finish_non_exhaustive()
    }
}
