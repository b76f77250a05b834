//! The key itself.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use super::builder::KeyBuilder;
use super::encoding::{Buffer, Escape, is_safe, same_bytes};
use super::hasher::KeyHasher;

/// What is counted: a client, a tenant, a route, or several of these together.
///
/// A key is made of parts, each a tag and a value, written as `tag=value` and joined by `,`. The writing is
/// injective (other parts, other key) and bounded:
///
/// - letters, digits and `- _ . / : @ + *` stand for themselves; every other byte is `%XX`, so braces, spaces
///   and control bytes never reach a store;
/// - a value over 64 bytes, or one that must not be readable, is `~` and a hash of 128 bits (see [`KeyHasher`]);
/// - a key that would exceed 256 bytes is hashed as a whole.
///
/// Keys up to 64 bytes do not allocate. `Debug` and [`fingerprint`](Self::fingerprint) show a hash, never the
/// key.
///
/// ```
/// use tollgate::Key;
///
/// assert_eq!(Key::from("alice").as_bytes(), b"key=alice");
/// assert_eq!(Key::from("{a} b").as_bytes(), b"key=%7Ba%7D%20b");
/// assert_eq!(Key::from(42_u64), Key::from("42"));
/// assert_eq!(Key::named("tenant", "acme").as_bytes(), b"key:tenant=acme");
/// ```
#[derive(Eq)]
pub struct Key(Buffer);

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        same_bytes(&self.0, &other.0)
    }
}

impl Hash for Key {
    /// Of the bytes, by which keys are the same.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Clone for Key {
    /// Copies the bytes at once; the derived clone would go one by one.
    #[inline]
    fn clone(&self) -> Self {
        Self(Buffer::from_slice(&self.0))
    }
}

impl Key {
    /// The key of no parts. Every part has a `=`, so no other key looks like it; and it is not empty, as `{}`
    /// in a Redis key is no hash tag.
    pub(super) const NO_PARTS: &'static [u8] = b"*";

    pub(super) const fn new(encoded: Buffer) -> Self {
        Self(encoded)
    }

    pub(super) const fn encoded(&mut self) -> &mut Buffer {
        &mut self.0
    }

    /// A key of one part, whose tag separates it from keys with the same value under other tags and from keys
    /// of the built-in extractors (it is written as `key:` and `tag`).
    #[must_use]
    pub fn named(tag: &str, value: impl AsRef<[u8]>) -> Self {
        let hasher = KeyHasher::default();
        let mut key = KeyBuilder::new(&hasher);
        key.prefixed("key:", tag, value.as_ref());
        key.finish()
    }

    /// The key as stores write it: 1 to 256 bytes of printable ASCII without spaces, braces and quotes.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// What logs may show of the key: 16 hexadecimal digits of its BLAKE3 hash.
    ///
    /// It tells keys apart, it is not a secret: the fingerprint of a key that can be guessed can be guessed
    /// too.
    #[must_use]
    pub fn fingerprint(&self) -> impl fmt::Display + fmt::Debug + use<> {
        let hash = blake3::hash(&self.0);
        let mut bits = [0; 8];
        bits.copy_from_slice(&hash.as_bytes()[..8]);
        Fingerprint(u64::from_be_bytes(bits))
    }

    /// The written value, if the key is one part with the tag `key`.
    pub(super) fn bare_value(&self) -> Option<&[u8]> {
        self.0
            .strip_prefix(b"key=")
            .filter(|value| !value.contains(&b','))
    }

    fn bare(value: &[u8]) -> Self {
        // The ordinary key, spared the builder: short, and as it is.
        let mut short = *b"key=............................................................";
        if let Some(room) = short.get_mut(4..4 + value.len())
            && is_safe(value)
        {
            room.copy_from_slice(value);
            return Self(Buffer::from_slice(&short[..4 + value.len()]));
        }
        let hasher = KeyHasher::default();
        let mut key = KeyBuilder::new(&hasher);
        key.plain("key", value);
        key.finish()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.fingerprint())
    }
}

impl From<&str> for Key {
    fn from(value: &str) -> Self {
        Self::bare(value.as_bytes())
    }
}

impl From<String> for Key {
    fn from(value: String) -> Self {
        Self::bare(value.as_bytes())
    }
}

impl From<&String> for Key {
    fn from(value: &String) -> Self {
        Self::bare(value.as_bytes())
    }
}

impl From<&[u8]> for Key {
    fn from(value: &[u8]) -> Self {
        Self::bare(value)
    }
}

impl From<Vec<u8>> for Key {
    fn from(value: Vec<u8>) -> Self {
        Self::bare(&value)
    }
}

macro_rules! from_numbers {
    ($($number:ty)*) => {
        $(impl From<$number> for Key {
            fn from(value: $number) -> Self {
                use fmt::Write as _;

                let mut encoded = Buffer::from_slice(b"key=");
                // A buffer takes everything.
                let _ = write!(Escape(&mut encoded), "{value}");
                Self(encoded)
            }
        })*
    };
}

from_numbers!(i32 i64 i128 u8 u16 u32 u64 u128 usize);

/// A key that is there already, or made for the occasion: what a [`Limiter`](crate::Limiter) is asked about. From a `&Key`, which is
/// not copied, and from all that a [`Key`] is made of.
#[derive(Debug)]
pub struct KeyRef<'k>(Cow<'k, Key>);

impl<'k> From<&'k Key> for KeyRef<'k> {
    #[inline]
    fn from(key: &'k Key) -> Self {
        Self(Cow::Borrowed(key))
    }
}

impl<K: Into<Key>> From<K> for KeyRef<'_> {
    #[inline]
    fn from(key: K) -> Self {
        Self(Cow::Owned(key.into()))
    }
}

impl Deref for KeyRef<'_> {
    type Target = Key;

    #[inline]
    fn deref(&self) -> &Key {
        &self.0
    }
}

struct Fingerprint(u64);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_one_part() {
        let expected: &[u8] = b"key=a%2Cb";
        for key in [
            Key::from("a,b"),
            Key::from("a,b".to_owned()),
            Key::from(&"a,b".to_owned()),
            Key::from(&b"a,b"[..]),
            KeyRef::from(&Key::from("a,b")).clone(),
        ] {
            assert_eq!(key.as_bytes(), expected);
        }
        assert_eq!(Key::from(u64::MAX).as_bytes(), b"key=18446744073709551615");
        assert_eq!(Key::from("").as_bytes(), b"key=");
    }

    #[test]
    fn tags_are_no_way_out() {
        assert_eq!(Key::named("ip", "x").as_bytes(), b"key:ip=x");
        assert_eq!(Key::named("a=b,c", "x").as_bytes(), b"key:a%3Db%2Cc=x");
        assert_ne!(Key::named("", "x"), Key::from("x"));
    }

    #[test]
    fn debug_and_fingerprint_hide_the_key() {
        let key = Key::from("alice");
        let fingerprint = key.fingerprint().to_string();
        assert_eq!(fingerprint.len(), 16);
        assert!(fingerprint.bytes().all(|b| b.is_ascii_hexdigit()));
        assert_eq!(format!("{key:?}"), format!("Key({fingerprint})"));
        assert_ne!(fingerprint, Key::from("bob").fingerprint().to_string());
    }

    #[test]
    fn short_keys_stay_inline() {
        assert!(!Key::from("x".repeat(60)).0.spilled());
        assert!(!Key::from("x".repeat(65)).0.spilled(), "long values are hashed");
    }
}
