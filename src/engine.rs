//! From charges to a decision.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smallvec::SmallVec;

use crate::decision::{Decision, Source, Verdict};
use crate::failure::FailurePolicy;
use crate::key::Key;
use crate::policy::PolicyName;
use crate::quota::Quota;
use crate::store::{Ask, Charge, MemoryStore, Mode, Outcome, Store, StoreFuture};

pub(crate) const DEFAULT_DEADLINE: Duration = Duration::from_millis(100);

/// A store, and what answers when it cannot.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) deadline: Duration,
    /// Counts for [`FailurePolicy::Local`]; made when first needed.
    local: OnceLock<MemoryStore>,
}

/// A charge and how its policy answers without a store.
#[derive(Clone, Copy)]
pub(crate) struct Claim<'a> {
    pub(crate) charge: Charge<'a>,
    pub(crate) failure: FailurePolicy,
}

impl Engine {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            deadline: DEFAULT_DEADLINE,
            local: OnceLock::new(),
        }
    }

    /// Charges all claims or none.
    pub(crate) fn decide(self: &Arc<Self>, claims: &[Claim<'_>]) -> Deciding {
        self.run(claims, |ask| self.store.acquire(ask))
    }

    /// What [`decide`](Self::decide) would answer, charging nothing.
    pub(crate) fn peek(self: &Arc<Self>, claims: &[Claim<'_>]) -> Deciding {
        self.run(claims, |ask| self.store.peek(ask))
    }

    fn run(
        self: &Arc<Self>,
        claims: &[Claim<'_>],
        ask_store: impl FnOnce(&Ask<'_>) -> StoreFuture<Outcome>,
    ) -> Deciding {
        let charges = charges(claims);
        if charges.iter().all(|charge| charge.quota.is_unlimited()) {
            return Deciding::ready(Decision::exempt());
        }
        let ask = Ask::new(&charges).deadline(self.deadline);
        match ask_store(&ask).into_ready() {
            Ok(Ok(outcome)) => Deciding::ready(Decision::new(&charges, &outcome, Source::Store)),
            Ok(Err(_)) => Deciding::ready(self.without_store(claims)),
            Err(outcome) => Deciding {
                state: State::Waiting {
                    outcome,
                    engine: Arc::clone(self),
                    claims: claims.iter().map(OwnedClaim::from).collect(),
                },
            },
        }
    }

    /// Each policy answers by its own failure policy; the request passes if all let it.
    fn without_store(&self, claims: &[Claim<'_>]) -> Decision {
        if claims
            .iter()
            .any(|claim| claim.failure == FailurePolicy::Deny && claim.charge.mode == Mode::Enforce)
        {
            return Decision::degraded(Verdict::Unavailable);
        }
        let shares: SmallVec<[Charge<'_>; 1]> = claims
            .iter()
            .filter_map(|claim| match claim.failure {
                FailurePolicy::Local { instances } => Some(Charge {
                    quota: claim.charge.quota.share(u64::from(instances.max(1))),
                    ..claim.charge
                }),
                FailurePolicy::Allow | FailurePolicy::Deny => None,
            })
            .collect();
        if shares.is_empty() {
            return Decision::degraded(Verdict::Allowed);
        }
        let local = self.local.get_or_init(MemoryStore::new);
        match local.acquire(&Ask::new(&shares)).into_ready() {
            Ok(Ok(outcome)) => Decision::new(&shares, &outcome, Source::Fallback),
            // A memory store answers at once and never fails.
            Ok(Err(_)) | Err(_) => Decision::degraded(Verdict::Allowed),
        }
    }
}

fn charges<'a>(claims: &[Claim<'a>]) -> SmallVec<[Charge<'a>; 1]> {
    claims.iter().map(|claim| claim.charge).collect()
}

/// A claim that outlives its request's call.
struct OwnedClaim {
    key: Key,
    policy: PolicyName,
    quota: Quota,
    cost: u64,
    mode: Mode,
    failure: FailurePolicy,
}

impl From<&Claim<'_>> for OwnedClaim {
    fn from(claim: &Claim<'_>) -> Self {
        Self {
            key: claim.charge.key.clone(),
            policy: claim.charge.policy.clone(),
            quota: claim.charge.quota,
            cost: claim.charge.cost,
            mode: claim.charge.mode,
            failure: claim.failure,
        }
    }
}

impl OwnedClaim {
    fn borrow(&self) -> Claim<'_> {
        Claim {
            charge: Charge::new(&self.key, &self.policy, self.quota)
                .cost(self.cost)
                .mode(self.mode),
            failure: self.failure,
        }
    }
}

/// A decision: there already, or awaited from the store.
pub(crate) struct Deciding {
    state: State,
}

#[allow(
    clippy::large_enum_variant,
    reason = "boxing the waiting state would cost each remote check an allocation"
)]
enum State {
    Ready(Option<Decision>),
    Waiting {
        outcome: StoreFuture<Outcome>,
        engine: Arc<Engine>,
        claims: SmallVec<[OwnedClaim; 1]>,
    },
}

impl Deciding {
    pub(crate) const fn ready(decision: Decision) -> Self {
        Self {
            state: State::Ready(Some(decision)),
        }
    }

    /// The decision, if it needs no waiting.
    pub(crate) fn into_ready(self) -> Result<Decision, Self> {
        match self.state {
            State::Ready(Some(decision)) => Ok(decision),
            state => Err(Self { state }),
        }
    }
}

impl Future for Deciding {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            State::Ready(decision) => Poll::Ready(decision.take().expect("polled after completion")),
            State::Waiting {
                outcome,
                engine,
                claims,
            } => {
                let answer = ready!(Pin::new(outcome).poll(cx));
                let claims: SmallVec<[Claim<'_>; 1]> = claims.iter().map(OwnedClaim::borrow).collect();
                Poll::Ready(match answer {
                    Ok(outcome) => Decision::new(&charges(&claims), &outcome, Source::Store),
                    Err(_) => engine.without_store(&claims),
                })
            }
        }
    }
}
