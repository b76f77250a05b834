//! Rules with their policies.

use http::Method;
use serde::{Deserialize, Serialize};

use super::error::ConfigError;
use super::policy::PolicyConfig;
use super::value::{Host, Path, methods, texts};
use crate::rules::{Rule, Rules};

/// Policies for requests of some paths, methods and hosts. What is not said matches all, so a rule without any of
/// them is for what falls under no other one. The most specific rule wins: see [`Rules`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub struct RuleConfig {
    /// Paths: `/users`, `/users/{id}`, `/files/{*rest}`, `/api/*`; see [`Rule`]. Those of one rule share its policies'
    /// counters.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "texts::<Path, _>"
    )]
    pub paths: Vec<String>,
    /// Methods, in capitals. `GET` includes `HEAD`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "methods")]
    pub methods: Vec<Method>,
    /// Hosts, without a port.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "texts::<Host, _>"
    )]
    pub hosts: Vec<String>,
    /// What such requests meet, beside the policies that all requests do. With an empty list, nothing else.
    pub policies: Vec<PolicyConfig>,
}

impl RuleConfig {
    pub(super) fn requests(&self) -> Requests<'_> {
        Requests {
            paths: &self.paths,
            methods: &self.methods,
            hosts: &self.hosts,
        }
    }
}

/// What requests something is for.
#[derive(Clone, Copy)]
pub(super) struct Requests<'a> {
    pub(super) paths: &'a [String],
    pub(super) methods: &'a [Method],
    pub(super) hosts: &'a [String],
}

impl Requests<'_> {
    pub(super) const fn are_all(&self) -> bool {
        self.paths.is_empty() && self.methods.is_empty() && self.hosts.is_empty()
    }

    /// A rule for each path.
    pub(super) fn rules(&self) -> Result<Vec<Rule>, ConfigError> {
        let paths = self.paths.iter().enumerate().map(|(index, path)| {
            Rule::try_path(path).map_err(|error| ConfigError::new(format_args!("paths[{index}]"), error))
        });
        let mut rules = paths.collect::<Result<Vec<Rule>, ConfigError>>()?;
        if rules.is_empty() {
            rules.push(Rule::any());
        }
        let each = rules.into_iter().map(|rule| {
            let rule = self.methods.iter().cloned().fold(rule, Rule::method);
            let mut hosts = self.hosts.iter().enumerate();
            hosts.try_fold(rule, |rule, (index, host)| {
                rule.try_host(host)
                    .map_err(|error| ConfigError::new(format_args!("hosts[{index}]"), error))
            })
        });
        each.collect()
    }
}

/// Adds a value for some requests.
pub(super) fn add<T: Clone>(
    rules: Rules<T>,
    requests: Requests<'_>,
    value: &T,
) -> Result<Rules<T>, ConfigError> {
    requests.rules()?.into_iter().try_fold(rules, |rules, rule| {
        rules
            .try_on(rule, value.clone())
            .map_err(|error| ConfigError::new("", error))
    })
}
