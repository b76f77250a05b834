//! What a policy makes of a request: by which key it is counted, and what is charged.

use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;

use super::live::Live;
use super::{MissingKey, Policy};
use crate::exemption::ExemptReason;
use crate::key::{Key, KeyBuilder, KeyHasher, Missing};
use crate::quota::Quota;
use crate::store::{Charge, Mode};

/// What a policy takes of one request, whose key is beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    quota: Quota,
    cost: u64,
    mode: Mode,
}

impl Taken {
    /// What is charged to a key, without the key.
    pub(crate) const fn of(charge: &Charge<'_>) -> Self {
        Self {
            quota: charge.quota,
            cost: charge.cost,
            mode: charge.mode,
        }
    }
}

/// Why a policy takes nothing of a request.
pub(crate) enum Untaken {
    Exempt(ExemptReason),
    /// It has no key, and is refused with this status.
    Refuse(StatusCode),
}

impl Policy {
    /// What the policy takes of a request, whose key is written into an empty builder: where it is made it can stay.
    ///
    /// # Errors
    ///
    /// Why it takes nothing.
    #[inline]
    pub(crate) fn take(&self, request: &Parts, key: &mut KeyBuilder<'_>) -> Result<Taken, Untaken> {
        let Some(mode) = self.live.mode(self.mode).for_store() else {
            return Err(Untaken::Exempt(ExemptReason::Off));
        };
        if self.skip.iter().any(|skip| skip.holds(request)) {
            return Err(Untaken::Exempt(ExemptReason::Skipped));
        }
        let quota = self.live.quota(request);
        if quota.is_unlimited() && self.penalty.is_none() {
            return Err(Untaken::Exempt(ExemptReason::Unlimited));
        }
        let nothing = key.mark();
        if let Err(missing) = self.key.extract(request, key) {
            key.rollback(nothing);
            self.miss_key(&missing, mode)?;
        }
        if !self.allowed.is_empty() && self.allowed.contains(key.key()) {
            return Err(Untaken::Exempt(ExemptReason::AllowedKey));
        }
        Ok(Taken {
            quota,
            cost: self.cost.of(request),
            mode,
        })
    }

    /// What happens to a request without a key.
    ///
    /// # Errors
    ///
    /// If it does not share the counter of all that have none.
    #[cold]
    fn miss_key(&self, missing: &Missing, mode: Mode) -> Result<(), Untaken> {
        self.warning.warn(&self.name, missing, self.missing);
        match self.missing {
            MissingKey::Shared => Ok(()),
            MissingKey::Reject(status) if mode == Mode::Enforce => {
                tracing::debug!(policy = %self.name, %status, hint = missing.hint(), "refused: no key");
                Err(Untaken::Refuse(status))
            }
            // A policy that is only tried refuses nobody.
            MissingKey::Skip | MissingKey::Reject(_) => Err(Untaken::Exempt(ExemptReason::MissingKey)),
        }
    }

    /// What is charged to the key of a request that the policy has taken.
    #[inline]
    pub(crate) fn charge_taken<'a>(&'a self, taken: Taken, key: &'a Key) -> Charge<'a> {
        self.counter_by(taken.quota, key)
            .cost(taken.cost)
            .mode(taken.mode)
    }

    /// The key that the policy counts a request by.
    ///
    /// # Errors
    ///
    /// Why it has none.
    pub(crate) fn key_of(&self, request: &Parts, hasher: &KeyHasher) -> Result<Key, Missing> {
        let mut key = KeyBuilder::new(hasher);
        self.key.extract(request, &mut key)?;
        Ok(key.finish())
    }

    /// What is charged to a key that is no request's.
    ///
    /// # Errors
    ///
    /// Why nothing is.
    pub(crate) fn charge<'a>(&'a self, key: &'a Key, cost: u64) -> Result<Charge<'a>, ExemptReason> {
        self.with_charge(key, cost, |charge| Ok(*charge?))
    }

    /// What `with` makes of what is charged to a key that is no request's, or of why nothing is. For the path of nearly all
    /// checks: charges that are handed on in a [`Result`] are written and read again in other pieces, for which processors have to
    /// wait, and so are answers.
    #[inline(always)]
    pub(crate) fn with_charge<'a, T>(
        &'a self,
        key: &'a Key,
        cost: u64,
        with: impl FnOnce(Result<&Charge<'a>, ExemptReason>) -> T,
    ) -> T {
        let Some(mode) = self.live.mode(self.mode).for_store() else {
            return with(Err(ExemptReason::Off));
        };
        self.live.with_quotas(|quotas| match quotas.fixed() {
            None => with(Err(ExemptReason::UnknownQuota)),
            Some(quota) if quota.is_unlimited() && self.penalty.is_none() => {
                with(Err(ExemptReason::Unlimited))
            }
            Some(quota) => with(Ok(&Charge {
                key,
                policy: &self.name,
                quota: *quota,
                cost,
                mode,
                penalty: self.penalty.as_ref(),
            })),
        })
    }

    /// The counter of a key, whatever the policy does at present. `None` if that depends on a request.
    pub(crate) fn counter<'a>(&'a self, key: &'a Key) -> Option<Charge<'a>> {
        let quota = self.live.fixed_quota()?;
        Some(self.counter_by(quota, key))
    }

    /// The counter of a key, for a request with this quota.
    #[inline]
    pub(crate) fn counter_by<'a>(&'a self, quota: Quota, key: &'a Key) -> Charge<'a> {
        Charge {
            penalty: self.penalty.as_ref(),
            ..Charge::new(key, &self.name, quota)
        }
    }

    /// The policy as it is for requests of one quota. What the policy's handles change of its quota is nothing to it.
    pub(crate) fn by_quota(&self, quota: Quota) -> Self {
        match self.live.fixed_quota() {
            Some(_) => self.clone(),
            None => Self {
                mode: self.live.mode(self.mode),
                live: Arc::new(Live::new(quota.into())),
                ..self.clone()
            },
        }
    }
}
