//! The names of policies.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::quota::Quota;

/// The name of a policy: what separates its counters from other policies' and what clients see in
/// `RateLimit-Policy`. 1 to 64 ASCII letters, digits and `-`, `_`, `.`, `/` or `:`. Cheap to clone.
#[derive(Clone)]
pub struct PolicyName {
    /// Empty, if it is too long.
    short: Short,
    /// The whole of a policy's name, and of what is too long.
    shared: Option<SharedName>,
}

/// A name behind one thin pointer, as every counter in memory holds one.
#[derive(Clone)]
pub(crate) struct SharedName(Arc<Name>);

struct Name {
    text: Box<str>,
    /// Of the text, so that tables need not hash it again for each request.
    hash: u64,
}

/// The text of a name of few bytes, and zeros behind it; default names of exact logs are that short. In whole words, as decisions
/// are moved a lot: a length beside the text would have it moved in pieces that overlap, and whoever reads on has to wait for what
/// was written in other pieces.
#[derive(Clone, Copy, PartialEq)]
struct Short([[u8; 8]; Self::MAX / 8]);

impl Short {
    const MAX: usize = 16;

    /// Empty, if the text is too long.
    fn new(text: &str) -> Self {
        let mut words = [[0; 8]; Self::MAX / 8];
        if let Some(start) = words.as_flattened_mut().get_mut(..text.len()) {
            start.copy_from_slice(text.as_bytes());
        }
        Self(words)
    }

    #[inline]
    const fn is_empty(&self) -> bool {
        u64::from_ne_bytes(self.0[0]) == 0
    }

    fn as_bytes(&self) -> &[u8] {
        let bytes = self.0.as_flattened();
        let len = bytes.iter().position(|byte| *byte == 0);
        &bytes[..len.unwrap_or(Self::MAX)]
    }
}

impl SharedName {
    fn new(text: Box<str>) -> Self {
        Self(Arc::new(Name {
            hash: PolicyName::hash_of(&text),
            text,
        }))
    }

    /// Whether it is the same name: mostly the same pointer.
    #[inline]
    pub(crate) fn is(&self, name: &PolicyName) -> bool {
        match &name.shared {
            Some(shared) => self == shared,
            None => self.0.text.as_bytes() == name.short.as_bytes(),
        }
    }
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
        Self {
            short: Short::new(&text),
            shared: Some(SharedName::new(text)),
        }
    }

    /// The name for what was decided. A short one is copied, with no count of its holders: decisions are made and dropped on all
    /// cores at once, and each change of such a count waits for the one before, on whichever core that was.
    #[inline(always)]
    pub(crate) fn copied(&self) -> Self {
        Self {
            short: self.short,
            shared: match self.short.is_empty() {
                true => self.shared.clone(),
                false => None,
            },
        }
    }

    /// The name for what is kept: of a policy's own name, without an allocation.
    #[inline]
    pub(crate) fn shared(&self) -> SharedName {
        let new = || SharedName::new(self.as_str().into());
        self.shared.clone().unwrap_or_else(new)
    }

    /// Of a name's text, what [`text_hash`](Self::text_hash) is.
    pub(crate) fn hash_of(text: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        hasher.finish()
    }

    /// A name of up to 16 bytes in words: two names are the same if these are. `None` if it is too long.
    #[inline]
    pub(crate) const fn short_words(&self) -> Option<[u64; 2]> {
        let [first, second] = self.short.0;
        if self.short.is_empty() {
            return None;
        }
        Some([u64::from_ne_bytes(first), u64::from_ne_bytes(second)])
    }

    /// The default name of a policy: its quota in words.
    pub(crate) fn of(quota: &Quota) -> Self {
        Self::unchecked(quota.slug().into())
    }

    #[inline]
    pub(crate) fn text_hash(&self) -> u64 {
        match &self.shared {
            Some(shared) => shared.0.hash,
            None => Self::hash_of(self.as_str()),
        }
    }

    #[track_caller]
    pub(crate) fn expect(name: impl TryInto<Self, Error: fmt::Display>) -> Self {
        match name.try_into() {
            // What counts under it holds it: one that was copied is shared again, once.
            Ok(name) => Self {
                shared: Some(name.shared()),
                ..name
            },
            Err(error) => panic!("{error}"),
        }
    }

    /// The name's text.
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> &str {
        match &self.shared {
            Some(shared) => &shared.0.text,
            None => str::from_utf8(self.short.as_bytes()).expect("names are ASCII"),
        }
    }
}

impl PartialEq for SharedName {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.text == other.0.text
    }
}

impl PartialEq for PolicyName {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (&self.shared, &other.shared) {
            (Some(shared), _) => shared.is(other),
            (None, Some(shared)) => shared.is(self),
            (None, None) => self.short == other.short,
        }
    }
}

impl Eq for PolicyName {}

impl Hash for PolicyName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for SharedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.text.fmt(f)
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

    fn holders(name: &PolicyName) -> Option<usize> {
        name.shared.as_ref().map(|shared| Arc::strong_count(&shared.0))
    }

    #[test]
    fn a_copy_is_the_same_name() {
        let hash = |name: &PolicyName| {
            let mut hasher = DefaultHasher::new();
            name.hash(&mut hasher);
            hasher.finish()
        };
        for len in 1..=PolicyName::MAX {
            let text = "x".repeat(len);
            let (name, other) = (
                PolicyName::expect(text.as_str()),
                PolicyName::expect("x".repeat(len % 64 + 1)),
            );
            let copy = name.copied();
            assert_eq!(copy.as_str(), text);
            assert_eq!((hash(&copy), copy.text_hash()), (hash(&name), name.text_hash()));
            for copy in [copy.clone(), copy.copied(), copy] {
                assert_eq!((&copy, &name), (&name, &copy));
                assert_ne!(copy, other.copied());
                assert_ne!(copy, other);
                assert_ne!(other, copy);
                assert!(name.shared().is(&copy) && !other.shared().is(&copy));
                assert_eq!(copy.shared(), name.shared());
            }
        }
    }

    #[test]
    fn a_short_name_is_copied_without_a_count_and_kept_without_a_copy() {
        let short = PolicyName::expect("x".repeat(Short::MAX));
        let copy = short.copied();
        assert_eq!((holders(&short), holders(&copy)), (Some(1), None));
        let (kept, again) = (short.shared(), short.clone().shared());
        assert!(Arc::ptr_eq(&kept.0, &again.0));
        assert_eq!(holders(&short), Some(3));
        let long = PolicyName::expect("x".repeat(Short::MAX + 1));
        let copy = long.copied();
        assert_eq!((holders(&long), holders(&copy)), (Some(2), Some(2)));
    }

    #[tokio::test]
    async fn decisions_are_not_counted_as_holders_of_a_short_name() {
        let key = crate::Key::from("k");
        for (len, held_by_each) in [(Short::MAX, 0), (Short::MAX + 1, 1)] {
            let name = PolicyName::expect("x".repeat(len));
            let quota = Quota::per_minute(9);
            let limiter = crate::Limiter::new(crate::MemoryStore::new(), quota).name(name.clone());
            drop(limiter.check(&key).await);
            let before = holders(&name);
            let decisions = [limiter.check(&key).await, limiter.check(&key).await];
            let after = before.map(|before| before + decisions.len() * held_by_each);
            assert_eq!(holders(&name), after, "{len}");
            // What is named by a decision has a name to share, as others have.
            let again = PolicyName::expect(decisions[0].policies()[0].name().clone());
            assert_eq!(again, name);
            assert!(holders(&again).is_some());
        }
    }

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
