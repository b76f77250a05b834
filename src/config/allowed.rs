//! Values that a policy does not count.

use std::collections::HashSet;
use std::sync::Arc;

use http::request::Parts;

use crate::key::{Key, KeyBuilder, KeyExtractor, KeyHasher, Missing};

/// An extractor that makes one [key](Allowed::key) of all allowed values, for the policy to allow.
///
/// Keys are hashed, by a hasher that is known only once a layer is built and that may change then, so values are compared
/// as if they were readable.
pub(super) struct Allowed {
    key: Arc<dyn KeyExtractor>,
    /// As keys write them.
    values: HashSet<Vec<u8>>,
}

const TAG: &str = "config:allowed";

impl Allowed {
    pub(super) const fn new(key: Arc<dyn KeyExtractor>, values: HashSet<Vec<u8>>) -> Self {
        Self { key, values }
    }

    /// A value as keys write it.
    pub(super) fn value(text: &str) -> Result<Vec<u8>, String> {
        let key = Key::from(text);
        match value_of(&key) {
            Some(value) if !text.is_empty() && !value.starts_with(b"~") => Ok(value.to_owned()),
            _ => Err("a value has 1 to 64 bytes".to_owned()),
        }
    }

    /// The key of all allowed values.
    pub(super) fn key() -> Key {
        let hasher = KeyHasher::default();
        let mut key = KeyBuilder::new(&hasher);
        key.plain(TAG, b"");
        key.finish()
    }

    fn allows(&self, request: &Parts) -> bool {
        let hasher = KeyHasher::default();
        let mut key = KeyBuilder::new(&hasher);
        let found = Arc::clone(&self.key).readable().extract(request, &mut key);
        found.is_ok() && value_of(&key.finish()).is_some_and(|value| self.values.contains(value))
    }
}

/// What stands behind the tag. If a key has several parts, this has a `,`, as no value has.
fn value_of(key: &Key) -> Option<&[u8]> {
    let bytes = key.as_bytes();
    let equals = bytes.iter().position(|&b| b == b'=')?;
    Some(&bytes[equals + 1..])
}

impl KeyExtractor for Allowed {
    fn extract(&self, request: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        if self.allows(request) {
            key.plain(TAG, b"");
            return Ok(());
        }
        self.key.extract(request, key)
    }
}
