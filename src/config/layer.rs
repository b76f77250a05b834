//! A whole layer.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::client_ip::ClientIpConfig;
use super::custom::CustomKeys;
use super::error::ConfigError;
use super::headers::HeadersConfig;
use super::key::Finders;
use super::policy::PolicyConfig;
use super::rule::{RuleConfig, add};
use super::skip::SkipConfig;
use super::value::{is_default, time};
use crate::key::{PeerIp, PeerNetwork};
use crate::layer::RateLimitLayer;
use crate::rules::Rules;
use crate::store::Store;

/// A layer: its policies, rules, exemptions and settings. See the [module](super) for a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LayerConfig {
    /// Which headers tell clients of their limits: [`RateLimitLayer::headers`].
    #[serde(skip_serializing_if = "is_default")]
    pub headers: HeadersConfig,
    /// How long a check may take, from 1 ms to 1 hour: [`RateLimitLayer::deadline`]. The store's if not said.
    #[serde(skip_serializing_if = "Option::is_none", with = "time::option")]
    pub deadline: Option<Duration>,
    /// Whether CORS preflights pass uncounted: [`RateLimitLayer::exempt_preflight`]. They do not if not said.
    #[serde(skip_serializing_if = "is_default")]
    pub exempt_preflight: bool,
    /// How the key `client-ip` finds the client's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ip: Option<ClientIpConfig>,
    /// How many leading bits of an IPv4 address count, in the keys `peer-ip` and `client-ip`. 32 if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_prefix: Option<u8>,
    /// How many leading bits of an IPv6 address count, in the keys `peer-ip` and `client-ip`. 64 if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_prefix: Option<u8>,
    /// Requests that pass uncounted, those of which any entry holds: [`RateLimitLayer::skip_when`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skip_when: Vec<SkipConfig>,
    /// What each request meets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyConfig>,
    /// What requests meet besides, by path, method and host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleConfig>,
}

const MAX_DEADLINE: Duration = Duration::from_secs(3_600);

impl LayerConfig {
    /// The layer, counting in `store`.
    ///
    /// # Errors
    ///
    /// If settings do not go together.
    pub fn layer(&self, store: impl Store) -> Result<RateLimitLayer, ConfigError> {
        self.layer_with(store, &CustomKeys::new())
    }

    /// The layer, counting in `store`, with keys that only the program can find.
    ///
    /// # Errors
    ///
    /// If settings do not go together, or a key is not among `keys`.
    pub fn layer_with(&self, store: impl Store, keys: &CustomKeys) -> Result<RateLimitLayer, ConfigError> {
        self.check()?;
        let finders = self.finders(keys)?;
        let mut policies = Vec::new();
        for (index, policy) in self.policies.iter().enumerate() {
            let policy = policy.build(&finders);
            policies.push(policy.map_err(|error| error.within(format_args!("policies[{index}]")))?);
        }
        let mut layer = RateLimitLayer::with_policies(store, policies).headers(self.headers.headers());
        if !self.rules.is_empty() {
            layer = layer.rules(self.rules(&finders)?);
        }
        for (index, skip) in self.skip_when.iter().enumerate() {
            let skip = skip.predicate(&finders);
            layer = layer.skip_when(skip.map_err(|error| error.within(format_args!("skip-when[{index}]")))?);
        }
        if let Some(deadline) = self.deadline {
            layer = layer.deadline(deadline);
        }
        Ok(layer.exempt_preflight(self.exempt_preflight))
    }

    fn rules(&self, finders: &Finders<'_>) -> Result<Rules<Vec<crate::policy::Policy>>, ConfigError> {
        let mut rules = Rules::new(Vec::new());
        for (index, rule) in self.rules.iter().enumerate() {
            let at = |error: ConfigError| error.within(format_args!("rules[{index}]"));
            let mut policies = Vec::new();
            for (index, policy) in rule.policies.iter().enumerate() {
                let policy = policy.build(finders);
                let policy = policy.map_err(|error| at(error.within(format_args!("policies[{index}]"))));
                policies.push(policy?);
            }
            rules = add(rules, rule.requests(), &policies).map_err(at)?;
        }
        rules.check().map_err(|error| ConfigError::new("rules", error))?;
        Ok(rules)
    }

    fn finders<'a>(&self, custom: &'a CustomKeys) -> Result<Finders<'a>, ConfigError> {
        let mut peer = PeerNetwork::from(PeerIp);
        let mut client = match &self.client_ip {
            Some(config) => Some(config.extractor().map_err(|error| error.within("client-ip"))?),
            None => None,
        };
        if let Some(bits) = self.ipv4_prefix {
            peer = peer.ipv4_prefix(bits);
            client = client.map(|client| client.ipv4_prefix(bits));
        }
        if let Some(bits) = self.ipv6_prefix {
            peer = peer.ipv6_prefix(bits);
            client = client.map(|client| client.ipv6_prefix(bits));
        }
        Ok(Finders { peer, client, custom })
    }

    /// Refuses what would make a layer panic, or limit nothing.
    fn check(&self) -> Result<(), ConfigError> {
        self.check_names()?;
        for (place, bits, most) in [
            ("ipv4-prefix", self.ipv4_prefix, 32),
            ("ipv6-prefix", self.ipv6_prefix, 128),
        ] {
            if bits.is_some_and(|bits| bits > most) {
                return Err(ConfigError::new(
                    place,
                    format_args!("an address has {most} bits, so 0 to {most} of them count"),
                ));
            }
        }
        let possible = Duration::from_millis(1)..=MAX_DEADLINE;
        if self
            .deadline
            .is_some_and(|deadline| !possible.contains(&deadline))
        {
            return Err(ConfigError::new("deadline", "a check may take 1 ms to 1 hour"));
        }
        Ok(())
    }

    /// Each policy of a layer has a name of its own, whatever rule it belongs to: one name is one counter.
    fn check_names(&self) -> Result<(), ConfigError> {
        let always = self.policies.iter().enumerate();
        let always = always.map(|(index, policy)| (format!("policies[{index}]"), policy));
        let ruled = self.rules.iter().enumerate().flat_map(|(rule, each)| {
            let policies = each.policies.iter().enumerate();
            policies.map(move |(index, policy)| (format!("rules[{rule}].policies[{index}]"), policy))
        });
        let mut places = HashMap::new();
        for (place, policy) in always.chain(ruled) {
            if let Some(other) = places.insert(&policy.name, place.clone()) {
                return Err(ConfigError::new(
                    format_args!("{place}.name"),
                    format_args!(
                        "`{}` is the name of {other} too, so they would share their counters: name each differently; \
                         one rule can have several paths",
                        policy.name
                    ),
                ));
            }
        }
        if places.is_empty() {
            return Err(ConfigError::new(
                "policies",
                "there is no policy, so nothing would be limited",
            ));
        }
        Ok(())
    }
}
