//! What the suite charges.

use std::time::Duration;

use super::TENTHS;
use crate::key::Key;
use crate::policy::PolicyName;
use crate::quota::{DEFAULT_SLOTS, Kind, Layout, Phase, Quota, Rate};
use crate::store::Charge;

/// A key and a policy, of which charges can be made.
pub(super) struct Counter {
    pub(super) key: Key,
    pub(super) policy: PolicyName,
    pub(super) quota: Quota,
}

impl Counter {
    pub(super) fn new(key: impl Into<Key>, policy: &str, quota: Quota) -> Self {
        Self {
            key: key.into(),
            policy: PolicyName::new(policy).expect("the suite's names are names"),
            quota,
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.quota.limit().unwrap_or(u64::MAX)
    }

    /// Units in some tenths of the limit.
    pub(super) fn units(&self, tenths: u64) -> u64 {
        self.limit() / TENTHS * tenths
    }

    /// A charge of some tenths of the limit.
    pub(super) fn tenths(&self, tenths: u64) -> Charge<'_> {
        self.cost(self.units(tenths))
    }

    pub(super) fn cost(&self, cost: u64) -> Charge<'_> {
        Charge::new(&self.key, &self.policy, self.quota).cost(cost)
    }

    /// The same counter under another quota.
    pub(super) fn under(&self, quota: Quota) -> Self {
        Self {
            key: self.key.clone(),
            policy: self.policy.clone(),
            quota,
        }
    }
}

/// A quota of the same counter, with another limit.
pub(super) fn with_limit(quota: Quota, limit: u64) -> Quota {
    let windowed = Quota::new(limit, quota.window());
    match quota.kind() {
        Kind::Unlimited => quota,
        Kind::Sliding { slots: 0 } if quota.layout() == Some(Layout::Log) => windowed,
        Kind::Sliding { slots: 0 } => windowed.slots(DEFAULT_SLOTS),
        Kind::Sliding { slots } => windowed.slots(slots),
        Kind::Counter => windowed.sliding_counter(),
        Kind::Fixed(Phase::Utc(offset)) => windowed.fixed_window_offset(Duration::from_micros(offset)),
        Kind::Fixed(Phase::PerKey) => windowed.fixed_window_per_key(),
        Kind::Bucket { .. } => {
            Quota::token_bucket(Rate::new(quota.units_per_window(), quota.window()), limit)
        }
    }
}
