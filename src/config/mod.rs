//! Policies from a configuration file: what a layer is made of, as types of [`serde`].
//!
//! A [`LayerConfig`] can be read from every format that describes itself, such as TOML, JSON and YAML, alone or as a part of a
//! service's own configuration. Names in a file are those of the setters, with hyphens: `failure-policy` is
//! [`Policy::failure_policy`](crate::Policy::failure_policy).
//!
//! ```
//! use tollgate::MemoryStore;
//! use tollgate::config::LayerConfig;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = r#"
//!     [client-ip]
//!     trusted-hops = 1
//!
//!     [[policies]]
//!     name = "client"
//!     quota = "10/second"
//!     key = "client-ip"
//!     failure-policy = { local = { instances = 4 } }
//!
//!     [[policies]]
//!     name = "all"
//!     quota = "5000/second"
//!     key = "global"
//!     mode = "shadow"
//!
//!     [[rules]]
//!     paths = ["/login", "/password/*"]
//!     methods = ["POST"]
//!     policies = [{ name = "login", quota = "5/minute", key = "client-ip", give-back-on = ["2xx"] }]
//! "#;
//! let config: LayerConfig = toml::from_str(text)?;
//! let layer = config.layer(MemoryStore::new())?;
//! # let _ = layer;
//! # Ok(())
//! # }
//! ```
//!
//! # Values
//!
//! | in a file | what it is |
//! |---|---|
//! | `"100/minute"`, `"10/s burst 20"`, `"1000/day fixed window"`, `"unlimited"` | a [`Quota`](crate::Quota) |
//! | `"client-ip"`, `"header:x-api-key"`, `["client-ip", "route"]`, `{ any = ["bearer", "client-ip"] }` | a [key](KeyConfig) |
//! | `5`, `{ content-length = { bytes-per-unit = 1024 } }`, `{ rules = [{ paths = ["/export"], cost = 25 }] }` | a [cost](CostConfig) |
//! | `"enforce"`, `"shadow"`, `"off"` | a [`PolicyMode`](crate::PolicyMode) |
//! | `"allow"`, `"deny"`, `"local"`, `{ local = { instances = 4 } }` | a [`FailurePolicy`](crate::FailurePolicy) |
//! | `"shared"`, `"skip"`, `{ reject = 401 }` | a [`MissingKey`](crate::MissingKey) |
//! | `{ after = 20, within = "1 minute", block-for = "5 minutes", growing = { factor = 2, longest = "1 day" } }`, `"manual"` | a [`Penalty`](crate::Penalty) |
//! | `{}`, `{ max-percent = 5, lifetime = "300 ms" }` | a [`Lease`](crate::Lease) |
//! | `"2xx"`, `302` | [statuses](StatusConfig) |
//! | `"5 minutes"`, `"250 ms"`, `"1 day"` | a time, in the words of quotas |
//!
//! # What is refused
//!
//! Unknown names and impossible values. Where a single value is impossible, reading fails, and the format tells the line.
//! What does not go together (two policies of one name, rules that are ambiguous, `client-ip` without a section that says
//! which proxies to trust) is refused when a layer is built, by a [`ConfigError`] that names the place, such as
//! `rules[0].policies[1].key`. Nothing panics.
//!
//! # What a file cannot say
//!
//! Functions. Keys that only the program can find are [`CustomKeys`]; hooks, lookups, the refusal, and what goes
//! with handlers are setters of the layer that is built.

mod allowed;
mod client_ip;
mod cost;
mod custom;
mod error;
mod failure;
mod headers;
mod key;
mod layer;
mod lease;
mod missing;
mod penalty;
mod policy;
#[cfg(test)]
mod properties;
mod rule;
mod skip;
mod status;
#[cfg(test)]
mod tests;
mod value;

pub use self::client_ip::ClientIpConfig;
pub use self::cost::{CostConfig, CostRuleConfig};
pub use self::custom::CustomKeys;
pub use self::error::ConfigError;
pub use self::headers::{HeadersConfig, ResetConfig};
pub use self::key::KeyConfig;
pub use self::layer::LayerConfig;
pub use self::policy::PolicyConfig;
pub use self::rule::RuleConfig;
pub use self::skip::SkipConfig;
pub use self::status::StatusConfig;
