//! The bytes of a key, as tables keep them.

use crate::key::same_bytes;

/// The bytes of a key. Short ones lie beside what is counted for them: as long as a built-in extractor's hash.
#[derive(Debug)]
pub(super) enum KeptKey {
    Short { len: u8, bytes: [u8; Self::SHORT] },
    Long(Box<[u8]>),
}

impl KeptKey {
    const SHORT: usize = 30;

    #[inline]
    pub(super) fn new(key: &[u8]) -> Self {
        let mut bytes = [0; Self::SHORT];
        match bytes.get_mut(..key.len()) {
            Some(short) => {
                short.copy_from_slice(key);
                Self::Short {
                    len: key.len() as u8,
                    bytes,
                }
            }
            None => Self::Long(key.into()),
        }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len).min(Self::SHORT)],
            Self::Long(bytes) => bytes,
        }
    }

    /// What a key takes outside of the table.
    pub(super) const fn heap_bytes(key: &[u8]) -> usize {
        if key.len() > Self::SHORT { key.len() } else { 0 }
    }
}

impl PartialEq<[u8]> for KeptKey {
    #[inline]
    fn eq(&self, other: &[u8]) -> bool {
        same_bytes(self.as_bytes(), other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c14_a_kept_key_equals_its_bytes_and_no_others() {
        let bytes: Vec<u8> = (0..=255).collect();
        for len in 0..=256 {
            let key = KeptKey::new(&bytes[..len]);
            assert_eq!(key.as_bytes(), &bytes[..len]);
            assert!(key == bytes[..len]);
            for changed in 0..len {
                let mut other = bytes[..len].to_vec();
                other[changed] ^= 1;
                assert!(key != other[..], "{len} bytes, the one at {changed} changed");
            }
            if len > 0 {
                assert!(key != bytes[..len - 1] && KeptKey::new(&bytes[..len - 1]) != bytes[..len]);
            }
        }
    }

    #[test]
    fn c11_only_long_keys_take_bytes_outside_of_the_table() {
        for len in 0..=256 {
            let bytes = vec![b'k'; len];
            let taken = match KeptKey::new(&bytes) {
                KeptKey::Short { .. } => 0,
                KeptKey::Long(bytes) => bytes.len(),
            };
            assert_eq!(KeptKey::heap_bytes(&bytes), taken);
        }
    }
}
