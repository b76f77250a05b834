//! Which headers tell clients of their limits.

use serde::{Deserialize, Serialize};

use super::value::is_default;
use crate::headers::{Draft, Headers};

/// Which headers tell clients of their limits: the settings of [`Headers`].
///
/// ```
/// use tollgate::config::LayerConfig;
///
/// let text = r#"
///     policies = [{ name = "all", quota = "100/s", key = "global" }]
///
///     [headers]
///     x-ratelimit = "epoch" # or "delta", if not said; "without-reset"; "off"
///     ietf = "v8"           # or "v7", "v6"; off, if not said
///     shadow = true
/// "#;
/// let config: LayerConfig = toml::from_str(text).unwrap();
/// assert!(config.headers.shadow);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct HeadersConfig {
    /// The fields `X-RateLimit-*`, and what their reset is. Seconds from now if not said.
    #[serde(skip_serializing_if = "is_default")]
    pub x_ratelimit: ResetConfig,
    /// The IETF's fields: [`Headers::ietf`]. None if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ietf: Option<Draft>,
    /// Whether refusals say when to retry: [`Headers::retry_after`]. They do if not said.
    #[serde(skip_serializing_if = "Clone::clone")]
    pub retry_after: bool,
    /// Whether policies in shadow mode are listed: [`Headers::shadow`]. They are not if not said.
    #[serde(skip_serializing_if = "is_default")]
    pub shadow: bool,
}

/// Whether `X-RateLimit-*` is written, and what its reset is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ResetConfig {
    /// Seconds from now.
    #[default]
    Delta,
    /// Seconds since the Unix epoch.
    Epoch,
    /// `X-RateLimit-Reset` is left out.
    WithoutReset,
    /// The whole family is.
    Off,
}

impl HeadersConfig {
    pub(super) fn headers(&self) -> Headers {
        let headers = match self.x_ratelimit {
            ResetConfig::Delta => Headers::x_ratelimit(),
            ResetConfig::Epoch => Headers::x_ratelimit().reset_as_epoch(),
            ResetConfig::WithoutReset => Headers::x_ratelimit().without_reset(),
            ResetConfig::Off => Headers::none(),
        };
        let headers = headers.retry_after(self.retry_after).shadow(self.shadow);
        match self.ietf {
            Some(draft) => headers.ietf(draft),
            None => headers,
        }
    }
}

impl Default for HeadersConfig {
    fn default() -> Self {
        Self {
            x_ratelimit: ResetConfig::default(),
            ietf: None,
            retry_after: true,
            shadow: false,
        }
    }
}
