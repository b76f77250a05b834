//! What is wrong with a configuration.

use std::fmt;

/// Why no layer or policy can be built from a configuration: the place and the reason.
///
/// ```
/// use tollgate::MemoryStore;
/// use tollgate::config::LayerConfig;
///
/// let config: LayerConfig = toml::from_str(
///     r#"policies = [{ name = "client", quota = "10/s", key = "client-ip" }]"#,
/// ).unwrap();
/// let error = config.layer(MemoryStore::new()).unwrap_err();
/// assert_eq!(error.place(), "policies[0].key");
/// assert!(error.to_string().starts_with("policies[0].key: the key `client-ip` needs a section"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    place: String,
    reason: String,
}

impl ConfigError {
    pub(super) fn new(place: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self {
            place: place.to_string(),
            reason: reason.to_string(),
        }
    }

    /// The same, seen from outside: the place is a part of `outer`.
    pub(super) fn within(mut self, outer: impl fmt::Display) -> Self {
        self.place = match &*self.place {
            "" => outer.to_string(),
            inner => format!("{outer}.{inner}"),
        };
        self
    }

    /// Where it is, such as `policies[1].key`. Lists begin at 0.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.place {
            "" => f.write_str(&self.reason),
            place => write!(f, "{place}: {}", self.reason),
        }
    }
}

impl std::error::Error for ConfigError {}
