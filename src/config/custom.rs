//! Keys that only the program can find.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::value::shown;
use crate::key::KeyExtractor;

/// Extractors of the program, which a file names `custom:...`: who was authenticated, for example.
///
/// ```
/// use tollgate::MemoryStore;
/// use tollgate::config::{CustomKeys, LayerConfig};
/// use tollgate::key;
///
/// #[derive(Clone)]
/// struct Account { id: u64 }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config: LayerConfig = toml::from_str(
///     r#"policies = [{ name = "account", quota = "1000/hour", key = "custom:account" }]"#,
/// )?;
/// let account = key::extension("account", |account: &Account| account.id);
/// let keys = CustomKeys::new().with("account", account);
/// let layer = config.layer_with(MemoryStore::new(), &keys)?;
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct CustomKeys(BTreeMap<String, Arc<dyn KeyExtractor>>);

impl CustomKeys {
    /// None yet.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds the extractor that a file names `custom:` and `name`. A second one of the same name takes its place.
    pub fn with(mut self, name: impl Into<String>, key: impl KeyExtractor) -> Self {
        self.0.insert(name.into(), Arc::new(key));
        self
    }

    pub(super) fn get(&self, name: &str) -> Result<Arc<dyn KeyExtractor>, String> {
        self.0.get(name).map(Arc::clone).ok_or_else(|| {
            let name = shown(name);
            if self.0.is_empty() {
                return format!(
                    "the program gives no extractor for `custom:{name}`: build the layer with `layer_with` and \
                     `CustomKeys`"
                );
            }
            let known: Vec<String> = self.0.keys().map(|name| format!("`custom:{name}`")).collect();
            format!(
                "the program gives no extractor for `custom:{name}`, only for {}",
                known.join(", ")
            )
        })
    }
}

impl fmt::Debug for CustomKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
