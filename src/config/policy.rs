//! A policy.

use serde::{Deserialize, Serialize};

use super::allowed::Allowed;
use super::cost::CostConfig;
use super::custom::CustomKeys;
use super::error::ConfigError;
use super::key::{Finders, KeyConfig};
use super::skip::SkipConfig;
use super::status::StatusConfig;
use super::value::is_default;
use crate::failure::FailurePolicy;
use crate::key::PeerIp;
use crate::lease::Lease;
use crate::penalty::Penalty;
use crate::policy::{MissingKey, Policy, PolicyMode, PolicyName};
use crate::quota::Quota;

/// A policy: the settings of [`Policy`]. Name, quota and key must be there.
///
/// ```
/// use tollgate::config::PolicyConfig;
///
/// let text = r#"
///     name = "key"
///     quota = "10/second"
///     key = "header:x-api-key"
///     cost = { content-length = { bytes-per-unit = 1024 } }
///     failure-policy = "deny"
///     missing-key = { reject = 401 }
///     allow-keys = ["k-internal"]
///     skip-when = [{ methods = ["OPTIONS"] }]
/// "#;
/// let config: PolicyConfig = toml::from_str(text).unwrap();
/// let policy = config.policy().unwrap();
/// # let _ = policy;
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub struct PolicyConfig {
    /// What separates its counters from other policies', and what clients see. Another one in each policy of a layer.
    pub name: PolicyName,
    /// How much each key may use: `100/minute`.
    pub quota: Quota,
    /// What is counted.
    pub key: KeyConfig,
    /// Units that a request takes: [`Policy::cost`]. 1 if not said.
    #[serde(default, skip_serializing_if = "CostConfig::is_default")]
    pub cost: CostConfig,
    /// Whether it refuses, only counts, or does nothing: [`Policy::mode`]. `enforce` if not said.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: PolicyMode,
    /// What it answers when the store does not: [`Policy::failure_policy`]. `{ local = { instances = 1 } }` if not said.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failure_policy: FailurePolicy,
    /// What happens to requests without a key: [`Policy::missing_key`]. `shared` if not said.
    #[serde(default, skip_serializing_if = "is_default")]
    pub missing_key: MissingKey,
    /// Blocks keys that are denied again and again: [`Policy::penalty`]. None if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub penalty: Option<Penalty>,
    /// Lets each instance take units of hot keys ahead: [`Policy::lease`]. None if not said; `{}` is the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// Requests that it does not count, those of which any entry holds: [`Policy::skip_when`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skip_when: Vec<SkipConfig>,
    /// Values that it does not count, where the key is a header, `bearer`, `host` or `custom:..`, up to 64 bytes each:
    /// [`Policy::allow_keys`]. Allow what a client cannot invent or guess.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_keys: Vec<String>,
    /// Gives back what a request was charged if its response has such a status: [`Policy::give_back_on`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub give_back_on: Vec<StatusConfig>,
}

impl PolicyConfig {
    /// The policy, for a layer that the program builds, or a [`Limiter`](crate::Limiter).
    ///
    /// # Errors
    ///
    /// If settings do not go together, or the key is not in the file alone: `client-ip` and `custom:..` are known to a
    /// [`LayerConfig`](super::LayerConfig).
    pub fn policy(&self) -> Result<Policy, ConfigError> {
        self.build(&Finders {
            peer: PeerIp.into(),
            client: None,
            custom: &CustomKeys::new(),
        })
    }

    pub(super) fn build(&self, finders: &Finders<'_>) -> Result<Policy, ConfigError> {
        let at_key = |error| ConfigError::new("key", error);
        let key = self.key.extractor(finders).map_err(at_key)?;
        let name = self.name.clone();
        let mut policy = if self.allow_keys.is_empty() {
            Policy::new(name, self.quota, key)
        } else {
            let allowed = self.key.allowing(&self.allow_keys, key);
            let allowed = allowed.map_err(|error| ConfigError::new("allow-keys", error))?;
            Policy::new(name, self.quota, allowed).allow_keys([Allowed::key()])
        };
        let cost = self.cost.cost().map_err(|error| error.within("cost"))?;
        self.missing_key
            .try_check()
            .map_err(|error| ConfigError::new("missing-key", error))?;
        policy = policy
            .cost(cost)
            .mode(self.mode)
            .failure_policy(self.failure_policy)
            .missing_key(self.missing_key);
        if let Some(penalty) = self.penalty {
            policy = policy.penalty(penalty);
        }
        if let Some(lease) = self.lease {
            let leased = policy.try_lease(lease);
            policy = leased.map_err(|refusal| ConfigError::new("lease", refusal))?;
        }
        for (index, skip) in self.skip_when.iter().enumerate() {
            let skip = skip.predicate(finders);
            policy =
                policy.skip_when(skip.map_err(|error| error.within(format_args!("skip-when[{index}]")))?);
        }
        if !self.give_back_on.is_empty() {
            let statuses = self.give_back_on.clone();
            policy = policy.give_back_on(move |status| statuses.iter().any(|each| each.holds(status)));
        }
        Ok(policy)
    }
}
