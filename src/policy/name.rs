//! The names of policies.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::quota::Quota;

/// The name of a policy: what separates its counters from other policies' and what clients see in
/// `RateLimit-Policy`. 1 to 64 ASCII letters, digits and `-`, `_`, `.`, `/` or `:`. Cheap to clone.
#[derive(Clone)]
pub struct PolicyName(Arc<Name>);

/// Behind one thin pointer, as every counter in memory holds a name.
struct Name {
    text: Box<str>,
    /// Of the text, so that tables need not hash it again for each request.
    hash: u64,
}

impl PolicyName {
    const MAX: usize = 64;

    /// Checks a name.
    ///
    /// # Errors
    ///
    /// If it is empty, longer than 64 bytes or has another character.
    pub fn new(name: impl Into<Box<str>>) -> Result<Self, PolicyNameError> {
        let name = name.into();
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_./:".contains(&b);
        if name.is_empty() || name.len() > Self::MAX || !name.bytes().all(allowed) {
            return Err(PolicyNameError(name.chars().take(80).collect()));
        }
        Ok(Self::unchecked(name))
    }

    fn unchecked(text: Box<str>) -> Self {
        let hash = Self::hash_of(&text);
        Self(Arc::new(Name { text, hash }))
    }

    /// Of a name's text, what [`text_hash`](Self::text_hash) is.
    pub(crate) fn hash_of(text: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        hasher.finish()
    }

    /// The default name of a policy: its quota in words.
    pub(crate) fn of(quota: &Quota) -> Self {
        Self::unchecked(quota.slug().into())
    }

    #[inline]
    pub(crate) fn text_hash(&self) -> u64 {
        self.0.hash
    }

    #[track_caller]
    pub(crate) fn expect(name: impl TryInto<Self, Error: fmt::Display>) -> Self {
        match name.try_into() {
            Ok(name) => name,
            Err(error) => panic!("{error}"),
        }
    }

    /// The name's text.
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0.text
    }
}

impl PartialEq for PolicyName {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.as_str() == other.as_str()
    }
}

impl Eq for PolicyName {}

impl Hash for PolicyName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AsRef<str> for PolicyName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl TryFrom<&str> for PolicyName {
    type Error = PolicyNameError;

    fn try_from(name: &str) -> Result<Self, Self::Error> {
        Self::new(name)
    }
}

impl TryFrom<String> for PolicyName {
    type Error = PolicyNameError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::new(name)
    }
}

/// Why a text is not the name of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyNameError(String);

impl fmt::Display for PolicyNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` does not name a policy: use 1 to {} letters, digits, `-`, `_`, `.`, `/` or `:`",
            self.0.escape_debug(),
            PolicyName::MAX
        )
    }
}

impl std::error::Error for PolicyNameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["login", "100-per-60s", "v1/users:read_all.x"] {
            assert_eq!(
                PolicyName::new(good).map(|name| name.to_string()),
                Ok(good.to_owned())
            );
        }
        for bad in ["", "a b", "a\"b", "é", "{x}", &"x".repeat(65)] {
            let error = PolicyName::new(bad).expect_err(bad).to_string();
            assert!(error.contains("use 1 to 64 letters"), "{error}");
        }
    }
}
