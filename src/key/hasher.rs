//! How parts of keys are hashed.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

use siphasher::sip128::{Hasher128, SipHasher13};
use smallvec::SmallVec;

use super::encoding::{base64url, base64url_words};

/// Hashes the parts of keys that must not be readable in a store, to 128 bits: of BLAKE3, or
/// [in process](Self::in_process) of SipHash-1-3.
///
/// The default has no secret. It shortens values and keeps them out of sight, but whoever reads the store can
/// try all IPv4 addresses in minutes and so find who is behind a hash. With a secret, that needs the secret
/// too.
///
/// All instances that share a store must share the secret, or each counts on its own. A new secret makes new
/// keys: every counter under a hashed key starts empty once.
///
/// ```
/// use tollgate::key::KeyHasher;
///
/// # fn main() -> Result<(), tollgate::key::SecretError> {
/// let hasher = KeyHasher::with_secret("9b1c07f2d2d54b0f8a4e6f1d7a8ce5b3")?;
/// # let _ = hasher;
/// assert!(KeyHasher::with_secret("hunter2").is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct KeyHasher {
    kind: Kind,
}

#[derive(Clone, Default)]
enum Kind {
    #[default]
    Public,
    Secret([u8; blake3::KEY_LEN]),
    InProcess([u64; 2]),
}

/// What is hashed starts with one of these, to keep parts and whole keys apart. The length of the tag behind the first
/// keeps ("a", "bc") and ("ab", "c") apart.
const PART: u8 = 0;
const WHOLE: u8 = 1;

impl KeyHasher {
    const MIN_SECRET: usize = 16;
    /// Part of every keyed hash: another text makes every deployed counter start empty.
    const CONTEXT: &'static str = "tollgate 2025 rate limit keys v1";

    /// Hashes with a secret, which may have any form (raw bytes, hexadecimal text) and any length from 16
    /// bytes.
    ///
    /// # Errors
    ///
    /// If the secret is shorter than 16 bytes.
    pub fn with_secret(secret: impl AsRef<[u8]>) -> Result<Self, SecretError> {
        let secret = secret.as_ref();
        if secret.len() < Self::MIN_SECRET {
            return Err(SecretError { length: secret.len() });
        }
        Ok(Self {
            kind: Kind::Secret(blake3::derive_key(Self::CONTEXT, secret)),
        })
    }

    /// Hashes with a key that each process draws once, by 128 bits of SipHash-1-3: a fraction of the cost, for keys
    /// that stay in this process. What a layer with a [`MemoryStore`](crate::MemoryStore) uses if nothing is set.
    #[must_use]
    pub fn in_process() -> Self {
        // One for all, so that layers with one store agree on its keys.
        static SECRET: OnceLock<[u64; 2]> = OnceLock::new();
        // The standard library's random state is a source of randomness that needs no crate.
        let half = || RandomState::new().hash_one(());
        let secret = SECRET.get_or_init(|| [half(), half()]);
        Self {
            kind: Kind::InProcess(*secret),
        }
    }

    /// The hash of a part's value, another one for every tag.
    pub(super) fn part(&self, tag: &str, value: &[u8]) -> [u8; 22] {
        if let Kind::InProcess(secret) = &self.kind {
            return base64url(sip(*secret, tag, value));
        }
        let mut input = SmallVec::<[u8; 128]>::new();
        input.push(PART);
        input.extend_from_slice(&(tag.len() as u64).to_le_bytes());
        input.extend_from_slice(tag.as_bytes());
        input.extend_from_slice(value);
        self.hash(&input)
    }

    /// Writes the same to the first 22 bytes of a place; those behind it then mean nothing. In process, where all lengths are
    /// constants, it is straight code.
    #[inline]
    pub(super) fn write_part<const LENGTH: usize>(
        &self,
        tag: &'static str,
        value: &[u8; LENGTH],
        place: &mut [u8; 24],
    ) {
        match &self.kind {
            Kind::InProcess(secret) => {
                let words = base64url_words(sip(*secret, tag, value));
                for (place, word) in place.as_chunks_mut().0.iter_mut().zip(words) {
                    *place = word;
                }
            }
            Kind::Public | Kind::Secret(_) => place[..22].copy_from_slice(&self.part(tag, value)),
        }
    }

    /// The hash of encoded parts.
    pub(super) fn whole(&self, encoded: &[u8]) -> [u8; 22] {
        let mut input = SmallVec::<[u8; 512]>::new();
        input.push(WHOLE);
        input.extend_from_slice(encoded);
        self.hash(&input)
    }

    fn hash(&self, input: &[u8]) -> [u8; 22] {
        let hash = match &self.kind {
            Kind::Public => blake3::hash(input),
            Kind::Secret(secret) => blake3::keyed_hash(secret, input),
            Kind::InProcess([k0, k1]) => {
                return base64url(SipHasher13::new_with_keys(*k0, *k1).hash(input).as_bytes());
            }
        };
        let mut bits = [0; 16];
        bits.copy_from_slice(&hash.as_bytes()[..16]);
        base64url(bits)
    }
}

/// 128 bits of SipHash-1-3 of a part.
#[inline(always)]
fn sip([k0, k1]: [u64; 2], tag: &str, value: &[u8]) -> [u8; 16] {
    let mut hasher = SipHasher13::new_with_keys(k0, k1);
    // No tag is so long that this loses any of its length.
    hasher.write_u64((tag.len() as u64) << 8 | u64::from(PART));
    feed(&mut hasher, tag.as_bytes());
    feed(&mut hasher, value);
    hasher.finish128().as_u128().to_le_bytes()
}

/// Writes words, whose number the compiler can know: what takes any bytes has to find out where those before have ended.
#[inline(always)]
fn feed(hasher: &mut SipHasher13, bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks();
    for word in words {
        hasher.write_u64(u64::from_le_bytes(*word));
    }
    let (halves, rest) = rest.as_chunks();
    for half in halves {
        hasher.write_u32(u32::from_le_bytes(*half));
    }
    for byte in rest {
        hasher.write_u8(*byte);
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Public => "KeyHasher(no secret)",
            Kind::Secret(_) => "KeyHasher(secret: <redacted>)",
            Kind::InProcess(_) => "KeyHasher(in process)",
        })
    }
}

/// Why a secret was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretError {
    length: usize,
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a secret of {} bytes can be guessed: use at least {} random bytes, the same on all \
             instances, such as the output of `openssl rand -hex 32`",
            self.length,
            KeyHasher::MIN_SECRET
        )
    }
}

impl std::error::Error for SecretError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_separate_hashes() {
        let hasher = KeyHasher::default();
        assert_eq!(hasher.part("a", b"bc"), hasher.part("a", b"bc"));
        assert_ne!(hasher.part("a", b"bc"), hasher.part("ab", b"c"));
        assert_ne!(hasher.part("a", b"x"), hasher.part("b", b"x"));
        assert_ne!(hasher.part("", b"x"), hasher.whole(b"\0\0\0\0\0\0\0\0x"));
    }

    #[test]
    fn secrets_separate_hashes() {
        let secret = |text: &str| KeyHasher::with_secret(text).unwrap();
        let (one, same, other) = (
            secret("0123456789abcdef"),
            secret("0123456789abcdef"),
            secret("0123456789abcdeg"),
        );
        assert_eq!(one.part("ip", b"x"), same.part("ip", b"x"));
        assert_ne!(one.part("ip", b"x"), other.part("ip", b"x"));
        assert_ne!(one.part("ip", b"x"), KeyHasher::default().part("ip", b"x"));
    }

    #[test]
    fn one_process_has_one_hasher() {
        let (one, other) = (KeyHasher::in_process(), KeyHasher::in_process());
        assert_eq!(one.part("ip", b"x"), other.part("ip", b"x"));
        assert_ne!(one.part("ip", b"x"), one.part("ip", b"y"));
        assert_ne!(one.part("a", b"bc"), one.part("ab", b"c"));
        assert_ne!(one.part("ip", b"x"), KeyHasher::default().part("ip", b"x"));
    }

    #[test]
    fn parts_of_known_length_have_the_hash_of_others() {
        let secret = KeyHasher::with_secret("0123456789abcdef").unwrap();
        for hasher in [KeyHasher::default(), secret, KeyHasher::in_process()] {
            let mut written = [0; 24];
            hasher.write_part("ip", b"12345", &mut written);
            assert_eq!(written[..22], hasher.part("ip", b"12345"));
            let long = b"0123456789abcdefg";
            hasher.write_part("ip", long, &mut written);
            assert_eq!(written[..22], hasher.part("ip", long));
        }
    }

    #[test]
    fn hashes_stay_what_they_are() {
        // A change here makes every counter in every deployed store start empty.
        let hasher = KeyHasher::default();
        assert_eq!(&hasher.part("ip", b"x"), b"09ZNCD_JL_N8ERU-5f9omQ");
        let hasher = KeyHasher::with_secret("0123456789abcdef").unwrap();
        assert_eq!(&hasher.part("ip", b"x"), b"POByi7ZxnYbJPXmBWy2H9A");
    }

    #[test]
    fn short_secrets_are_refused() {
        let error = KeyHasher::with_secret("0123456789abcde").unwrap_err().to_string();
        assert!(error.contains("15 bytes"), "{error}");
        assert!(error.contains("at least 16 random bytes"), "{error}");
    }

    #[test]
    fn debug_is_silent_about_the_secret() {
        let hasher = KeyHasher::with_secret("0123456789abcdef").unwrap();
        assert_eq!(format!("{hasher:?}"), "KeyHasher(secret: <redacted>)");
        assert_eq!(format!("{:?}", KeyHasher::default()), "KeyHasher(no secret)");
        assert_eq!(format!("{:?}", KeyHasher::in_process()), "KeyHasher(in process)");
    }
}
