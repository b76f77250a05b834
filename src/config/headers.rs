//! Which headers tell clients of their limits.

use serde::de::{DeserializeOwned, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use super::value::{is_default, text};
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
    #[serde(skip_serializing_if = "is_default", deserialize_with = "word")]
    pub x_ratelimit: ResetConfig,
    /// The IETF's fields: [`Headers::ietf`]. None if not said.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "word_or_none")]
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

/// A value that is one of some words. Enums alone are read from tables too, such as `{ v8 = {} }`.
struct Word<T>(T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(text(deserializer)?.into_deserializer()).map(Self)
    }
}

fn word<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Word::deserialize(deserializer).map(|Word(value)| value)
}

fn word_or_none<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.map(|Word(value)| value))
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
