//! Numbers for scripts in words of few bytes: as many arguments would take the server longer to read than to do what they
//! ask.

use smallvec::SmallVec;

#[derive(Default)]
pub(super) struct Packed(SmallVec<[u8; 256]>);

impl Packed {
    /// The last bytes of a number, the first of them first.
    pub(super) fn push(&mut self, bytes: usize, number: u64) {
        self.0.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
