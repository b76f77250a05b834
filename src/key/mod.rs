//! placeholder until the branch lands
use smallvec::SmallVec;
/// Key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    bytes: SmallVec<[u8; 64]>,
}
impl Key {
    /// Fingerprint.
    pub fn fingerprint(&self) -> impl std::fmt::Display {
        "x"
    }
    /// Bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}
impl From<&str> for Key {
    fn from(s: &str) -> Self {
        Self {
            bytes: s.as_bytes().into(),
        }
    }
}
impl From<&Self> for Key {
    fn from(s: &Self) -> Self {
        s.clone()
    }
}
