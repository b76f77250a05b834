//! Requests that are not counted.

use http::Method;
use http::request::Parts;
use serde::{Deserialize, Serialize};

use super::error::ConfigError;
use super::key::Finders;
use super::rule::Requests;
use super::value::{Host, Network, Path, methods, texts};
use crate::key::PeerIp;
use crate::predicate::Predicate;

/// Requests to leave out: those of which all that is said holds.
///
/// ```
/// use tollgate::config::LayerConfig;
///
/// let text = r#"
///     skip-when = [{ paths = ["/healthz"] }, { peer-ip = ["10.0.0.0/8", "fd00::/8"], methods = ["GET"] }]
///     policies = [{ name = "all", quota = "100/s", key = "global" }]
/// "#;
/// let config: LayerConfig = toml::from_str(text).unwrap();
/// assert_eq!(config.skip_when[0].paths, ["/healthz"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub struct SkipConfig {
    /// Paths, any of them, as of [`RuleConfig::paths`](super::RuleConfig::paths).
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "texts::<Path, _>"
    )]
    pub paths: Vec<String>,
    /// Methods, any of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "methods")]
    pub methods: Vec<Method>,
    /// Hosts, any of them. Clients choose the host that they name.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "texts::<Host, _>"
    )]
    pub hosts: Vec<String>,
    /// Networks or addresses, any of them, that the peer is in: [`PeerIp::is_in`].
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "texts::<Network, _>"
    )]
    pub peer_ip: Vec<String>,
    /// Networks or addresses, any of them, that the client is in, as trusted proxies report it:
    /// [`ClientIp::is_in`](crate::key::ClientIp::is_in). Needs [`LayerConfig::client_ip`](super::LayerConfig::client_ip).
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "texts::<Network, _>"
    )]
    pub client_ip: Vec<String>,
}

impl SkipConfig {
    pub(super) fn predicate(&self, finders: &Finders<'_>) -> Result<impl Predicate + use<>, ConfigError> {
        let requests = Requests {
            paths: &self.paths,
            methods: &self.methods,
            hosts: &self.hosts,
        };
        if requests.are_all() && self.peer_ip.is_empty() && self.client_ip.is_empty() {
            return Err(ConfigError::new(
                "",
                "it says nothing, so it would leave out all requests: name paths, methods, hosts or networks",
            ));
        }
        let rules = requests.rules()?;
        let peer = said(&self.peer_ip)
            .map(|networks| PeerIp.is_in(networks))
            .transpose()
            .map_err(|error| ConfigError::new("peer-ip", error))?;
        let client = match (said(&self.client_ip), &finders.client) {
            (None, _) => None,
            (Some(networks), Some(client)) => {
                let within = client.clone().is_in(networks);
                Some(within.map_err(|error| ConfigError::new("client-ip", error))?)
            }
            (Some(_), None) => return Err(ConfigError::new("client-ip", super::key::NO_CLIENT_IP)),
        };
        Ok(move |request: &Parts| {
            rules.iter().any(|rule| rule.holds(request))
                && peer.as_ref().is_none_or(|peer| peer.holds(request))
                && client.as_ref().is_none_or(|client| client.holds(request))
        })
    }
}

fn said(networks: &[String]) -> Option<&[String]> {
    (!networks.is_empty()).then_some(networks)
}
