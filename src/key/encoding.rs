//! How values become the text of a key.

use std::fmt;

use smallvec::SmallVec;

/// Room for a key or a part of one; shorter ones do not allocate.
pub(super) type Buffer = SmallVec<[u8; 64]>;

/// Longer values are hashed.
pub(super) const MAX_VALUE: usize = 64;
/// Longer keys are hashed as a whole.
pub(super) const MAX_KEY: usize = 256;
/// Starts what is a hash. Not in [`SAFE`], so no readable value starts with it.
pub(super) const HASH_MARK: u8 = b'~';

/// The bytes that stand for themselves. `%`, `~`, `,`, `=` and braces must stay out: they carry the structure
/// of a key, or choose its slot in a Redis cluster.
const SAFE: [bool; 256] = {
    let mut safe = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let b = byte as u8;
        safe[byte] =
            b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/' | b':' | b'@' | b'+' | b'*');
        byte += 1;
    }
    safe
};

/// Whether all bytes stand for themselves.
pub(super) fn is_safe(raw: &[u8]) -> bool {
    raw.iter().all(|&b| SAFE[usize::from(b)])
}

/// Writes `raw` with every byte that is not safe as `%XX`.
pub(super) fn escape(out: &mut Buffer, raw: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    // Nearly all values need no escape.
    if is_safe(raw) {
        out.extend_from_slice(raw);
        return;
    }
    let mut rest = raw;
    loop {
        let run = rest.iter().position(|&b| !SAFE[usize::from(b)]);
        out.extend_from_slice(&rest[..run.unwrap_or(rest.len())]);
        let Some(run) = run else { return };
        let byte = rest[run];
        out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        rest = &rest[run + 1..];
    }
}

/// Whether keys are the same. By words, which saves the call that a comparison of slices is: what is not a whole word is compared as
/// the end of a word that overlaps the one before it.
#[inline]
pub(crate) fn same_bytes(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let same_word =
        |(one, other): (&[u8; 8], &[u8; 8])| u64::from_ne_bytes(*one) == u64::from_ne_bytes(*other);
    match (one.last_chunk(), other.last_chunk()) {
        (Some(last), Some(other_last)) => {
            same_word((last, other_last)) && one.as_chunks().0.iter().zip(other.as_chunks().0).all(same_word)
        }
        _ => one == other,
    }
}

/// Lets `write!` escape straight into a buffer.
pub(super) struct Escape<'a>(pub(super) &'a mut Buffer);

impl fmt::Write for Escape<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        escape(self.0, text.as_bytes());
        Ok(())
    }
}

/// 128 bits in the URL-safe alphabet of RFC 4648 section 5, without padding.
pub(super) fn base64url(bits: [u8; 16]) -> [u8; 22] {
    let mut written = [0; 22];
    written.copy_from_slice(&base64url_words(bits).as_flattened()[..22]);
    written
}

/// The same by words, of which the last has two bytes too many. Every hashed key pays for this: an encoder for any length takes
/// several times as long, and what is written byte by byte has to be waited for by who reads it otherwise.
#[inline]
pub(super) const fn base64url_words(bits: [u8; 16]) -> [[u8; 8]; 3] {
    let bits = u128::from_be_bytes(bits);
    [
        eight_digits((bits >> 80) as u64),
        eight_digits((bits >> 32) as u64),
        // The last digit has two bits, and zeros behind them.
        eight_digits((bits as u64) << 16),
    ]
}

/// The digits of the lower 48 bits.
#[inline]
const fn eight_digits(bits: u64) -> [u8; 8] {
    const EACH: u64 = 0x0101_0101_0101_0101;

    /// 1 in every byte that is at least `least`; all are less than 64.
    const fn from(least: u64, bytes: u64) -> u64 {
        ((bytes + EACH * (128 - least)) >> 7) & EACH
    }

    // Six bits to a byte, by halves.
    let halves = (bits & 0xffff_ff00_0000) << 8 | bits & 0x00ff_ffff;
    let quarters = (halves & 0x00ff_f000_00ff_f000) << 4 | halves & 0x0000_0fff_0000_0fff;
    let bytes = (quarters & 0x0fc0_0fc0_0fc0_0fc0) << 2 | quarters & 0x003f_003f_003f_003f;
    // To each what its run of the alphabet is ahead of it: the upper case letters, the lower case ones, digits, and two marks.
    let ahead = EACH * b'A' as u64 + from(26, bytes) * 6 + from(63, bytes) * 49;
    let behind = from(52, bytes) * 75 + from(62, bytes) * 13;
    (bytes + ahead).wrapping_sub(behind).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;

    use super::*;

    fn escaped(raw: &[u8]) -> String {
        let mut out = Buffer::new();
        escape(&mut out, raw);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn unsafe_bytes_are_escaped() {
        assert_eq!(escaped(b"aZ09-_./:@+*"), "aZ09-_./:@+*");
        assert_eq!(escaped(b"{a},=% ~"), "%7Ba%7D%2C%3D%25%20%7E");
        assert_eq!(escaped(&[0, 0x7f, 0xff, b'x']), "%00%7F%FFx");
        assert_eq!(escaped(b""), "");
    }

    #[test]
    fn formatted_text_is_escaped() {
        let mut out = Buffer::new();
        write!(Escape(&mut out), "{}~ /{}", 1, 24).unwrap();
        assert_eq!(out.as_slice(), b"1%7E%20/24");
    }

    #[test]
    fn base64url_follows_the_rfc() {
        assert_eq!(&base64url([0; 16]), b"AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(&base64url([0xff; 16]), b"_____________________w");
        let counting = std::array::from_fn(|i| i as u8);
        assert_eq!(&base64url(counting), b"AAECAwQFBgcICQoLDA0ODw");
    }
    proptest! {
        #[test]
        fn base64url_is_what_others_write(bits: [u8; 16]) {
            let expected = URL_SAFE_NO_PAD.encode(bits);
            prop_assert_eq!(&base64url(bits)[..], expected.as_bytes());
        }
    }
}
