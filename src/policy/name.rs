//! The names of policies.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU8;
use std::sync::Arc;

use crate::quota::Quota;

/// The name of a policy: what separates its counters from other policies' and what clients see in
/// `RateLimit-Policy`. 1 to 64 ASCII letters, digits and `-`, `_`, `.`, `/` or `:`. Cheap to clone.
#[derive(Clone)]
pub struct PolicyName(Form);

#[derive(Clone)]
enum Form {
    /// Of a policy.
    Shared(SharedName),
    /// Of what was decided.
    Copied(Short),
}

/// A name behind one thin pointer, as every counter in memory holds one.
#[derive(Clone)]
pub(crate) struct SharedName(Arc<Name>);

/// On cache lines of its own, two as processors fetch them in pairs: every decision reads a name, and need not wait for
/// counters that come and go, and are counted beside it.
#[repr(align(128))]
struct Name {
    text: Box<str>,
    /// Of the text, so that tables need not hash it again for each request.
    hash: u64,
    /// The text, if it is short.
    short: Option<Short>,
}

/// The text of nearly all names. In whole words, as decisions are moved a lot.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Short {
    bytes: [u8; Self::MAX],
    /// Which leaves a number for the other form.
    len: NonZeroU8,
}

const _: () = assert!(size_of::<PolicyName>() == size_of::<Short>());

impl Short {
    const MAX: usize = 23;

    fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        let len = NonZeroU8::new(text.len() as u8)?;
        Some(Self { bytes, len })
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len.get()).min(Self::MAX)]
    }
}

impl SharedName {
    fn new(text: Box<str>) -> Self {
        Self(Arc::new(Name {
            hash: PolicyName::hash_of(&text),
            short: Short::new(&text),
            text,
        }))
    }

    /// Whether it is the same name: mostly the same pointer.
    #[inline]
    pub(crate) fn is(&self, name: &PolicyName) -> bool {
        match &name.0 {
            Form::Shared(shared) => self == shared,
            Form::Copied(short) => self.0.text.as_bytes() == short.as_bytes(),
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
        Self(Form::Shared(SharedName::new(text)))
    }

    /// The name for what was decided. A short one is copied, with no count of its holders: decisions are made and dropped on all
    /// cores at once, and each change of such a count waits for the one before, on whichever core that was.
    #[inline(always)]
    pub(crate) fn copied(&self) -> Self {
        match &self.0 {
            Form::Shared(shared) => Self(match shared.0.short {
                Some(short) => Form::Copied(short),
                None => Form::Shared(shared.clone()),
            }),
            Form::Copied(short) => Self(Form::Copied(*short)),
        }
    }

    /// The name for what is kept: of a policy's own name, without an allocation.
    #[inline]
    pub(crate) fn shared(&self) -> SharedName {
        match &self.0 {
            Form::Shared(shared) => shared.clone(),
            Form::Copied(_) => SharedName::new(self.as_str().into()),
        }
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
        match &self.0 {
            Form::Shared(shared) => shared.0.hash,
            Form::Copied(_) => Self::hash_of(self.as_str()),
        }
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
        match &self.0 {
            Form::Shared(shared) => &shared.0.text,
            Form::Copied(short) => str::from_utf8(short.as_bytes()).expect("names are ASCII"),
        }
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Shared(shared) => shared.0.text.as_bytes(),
            Form::Copied(short) => short.as_bytes(),
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
        match &self.0 {
            Form::Shared(shared) => shared.is(other),
            Form::Copied(short) => short.as_bytes() == other.as_bytes(),
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
        match &name.0 {
            Form::Shared(shared) => Some(Arc::strong_count(&shared.0)),
            Form::Copied(_) => None,
        }
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
                assert!(copy == name && name == copy && name.shared().is(&copy));
                assert!(copy != other && other != copy && !other.shared().is(&copy));
                assert!(copy.shared() == name.shared() && copy.shared() != other.shared());
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
