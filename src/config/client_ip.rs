//! How the client's address is found.

use serde::{Deserialize, Serialize};

use super::error::ConfigError;
use super::value::{Network, is_default, texts};
use crate::key::{ClientIp, ForwardedHeader};

/// How `client-ip` finds the client's address behind proxies: the settings of [`ClientIp`]. One of
/// `trusted-hops` and `trusted-proxies` must be there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub struct ClientIpConfig {
    /// How many proxies stand between clients and this service, 1 to 16: [`ClientIp::trusted_hops`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_hops: Option<usize>,
    /// The networks or addresses of proxies: [`ClientIp::trusted_proxies`].
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "texts::<Network, _>"
    )]
    pub trusted_proxies: Vec<String>,
    /// Where proxies report addresses: `x-forwarded-for` if not said, `forwarded`, or the name of a header with one address,
    /// such as `cf-connecting-ip`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub forwarded_header: ForwardedHeader,
}

impl ClientIpConfig {
    pub(super) fn extractor(&self) -> Result<ClientIp, ConfigError> {
        let client = match (self.trusted_hops, &*self.trusted_proxies) {
            (Some(hops), []) if ClientIp::can_trust(hops) => ClientIp::trusted_hops(hops),
            (Some(_), []) => {
                return Err(ConfigError::new(
                    "trusted-hops",
                    "trust 1 to 16 hops; without a proxy in front, use the key `peer-ip`",
                ));
            }
            (None, proxies @ [_, ..]) => ClientIp::trusted_proxies(proxies)
                .map_err(|error| ConfigError::new("trusted-proxies", error))?,
            _ => {
                return Err(ConfigError::new(
                    "",
                    "say which proxies to trust, by either `trusted-hops` or `trusted-proxies`",
                ));
            }
        };
        Ok(client.forwarded_header(self.forwarded_header.clone()))
    }
}
