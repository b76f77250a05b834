//! Costs of requests.

use std::fmt;
use std::num::NonZeroU64;

use http::Method;
use serde::de::{self, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::ConfigError;
use super::rule::{Requests, add};
use super::value::{Host, Path, methods, some, texts, whole_table};
use crate::policy::Cost;
use crate::rules::Rules;

/// Units that a request takes: the settings of [`Cost`].
///
/// | in a file | units |
/// |---|---|
/// | `5` | so many |
/// | `{ content-length = { bytes-per-unit = 1024, or-unknown = 100 } }` | by declared length: [`Cost::by_content_length`]; `or-unknown` is 1 if not said |
/// | `{ rules = [{ paths = ["/export"], cost = 25 }] }` | those of the most [specific](Rules) rule; else 1 |
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostConfig {
    /// So many for each request.
    Units(u64),
    /// By the length that a request declares.
    ContentLength {
        /// Bytes that are one unit.
        bytes_per_unit: NonZeroU64,
        /// Units of a request whose length is not known.
        or_unknown: u64,
    },
    /// By path, method and host.
    Rules(Vec<CostRuleConfig>),
}

/// Units of the requests that a rule is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub struct CostRuleConfig {
    /// Paths, as of [`RuleConfig::paths`](super::RuleConfig::paths).
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "texts::<Path, _>"
    )]
    pub paths: Vec<String>,
    /// Methods, as of [`RuleConfig::methods`](super::RuleConfig::methods).
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "methods")]
    pub methods: Vec<Method>,
    /// Hosts, as of [`RuleConfig::hosts`](super::RuleConfig::hosts).
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "texts::<Host, _>"
    )]
    pub hosts: Vec<String>,
    /// Units of each such request.
    pub cost: u64,
}

/// What stands in a file if it is not a number.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Form {
    #[serde(rename_all = "kebab-case")]
    ContentLength {
        bytes_per_unit: NonZeroU64,
        #[serde(default = "one", skip_serializing_if = "is_one")]
        or_unknown: u64,
    },
    Rules(#[serde(deserialize_with = "some")] Vec<CostRuleConfig>),
}

const fn one() -> u64 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_one(units: &u64) -> bool {
    *units == 1
}

impl CostConfig {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn cost(&self) -> Result<Cost, ConfigError> {
        match self {
            Self::Units(units) => Ok(Cost::from(*units)),
            Self::ContentLength {
                bytes_per_unit,
                or_unknown,
            } => Ok(Cost::by_content_length(bytes_per_unit.get())
                .or_unknown(*or_unknown)
                .into()),
            Self::Rules(each) => {
                let mut rules = Rules::new(1);
                for (index, rule) in each.iter().enumerate() {
                    let requests = Requests {
                        paths: &rule.paths,
                        methods: &rule.methods,
                        hosts: &rule.hosts,
                    };
                    rules = add(rules, requests, &rule.cost)
                        .map_err(|error| error.within(format_args!("rules[{index}]")))?;
                }
                rules.check().map_err(|error| ConfigError::new("rules", error))?;
                Ok(Cost::from(rules))
            }
        }
    }
}

impl Default for CostConfig {
    /// 1 unit.
    fn default() -> Self {
        Self::Units(1)
    }
}

impl Serialize for CostConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Units(units) => serializer.serialize_u64(*units),
            Self::ContentLength {
                bytes_per_unit,
                or_unknown,
            } => {
                let (bytes_per_unit, or_unknown) = (*bytes_per_unit, *or_unknown);
                Form::ContentLength {
                    bytes_per_unit,
                    or_unknown,
                }
                .serialize(serializer)
            }
            Self::Rules(rules) => Form::Rules(rules.clone()).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for CostConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CostVisitor)
    }
}

struct CostVisitor;

impl<'de> Visitor<'de> for CostVisitor {
    type Value = CostConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of units, `{ content-length = {..} }` or `{ rules = [..] }`")
    }

    fn visit_u64<E: de::Error>(self, units: u64) -> Result<CostConfig, E> {
        Ok(CostConfig::Units(units))
    }

    fn visit_i64<E: de::Error>(self, units: i64) -> Result<CostConfig, E> {
        u64::deserialize(units.into_deserializer()).map(CostConfig::Units)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CostConfig, A::Error> {
        Ok(match whole_table(map)? {
            Form::ContentLength {
                bytes_per_unit,
                or_unknown,
            } => CostConfig::ContentLength {
                bytes_per_unit,
                or_unknown,
            },
            Form::Rules(rules) => CostConfig::Rules(rules),
        })
    }
}
