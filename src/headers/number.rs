//! Numbers as header values.

use std::time::Duration;

use http::HeaderValue;

/// The largest Integer of a structured field: 15 digits (RFC 9651, section 3.3.1).
pub(super) const MAX_INTEGER: u64 = 999_999_999_999_999;

const SMALL: usize = 1_000;

static DIGITS: [[u8; 3]; SMALL] = {
    let mut digits = [[0; 3]; SMALL];
    let mut n = 0;
    while n < SMALL {
        digits[n] = [
            b'0' + (n / 100) as u8,
            b'0' + (n / 10 % 10) as u8,
            b'0' + (n % 10) as u8,
        ];
        n += 1;
    }
    digits
};

static WORDS: [&str; SMALL] = {
    let mut words = [""; SMALL];
    let mut n = 0;
    while n < SMALL {
        let leading_zeros = match n {
            0..10 => 2,
            10..100 => 1,
            _ => 0,
        };
        words[n] = match str::from_utf8(DIGITS[n].split_at(leading_zeros).1) {
            Ok(word) => word,
            Err(_) => panic!("digits are text"),
        };
        n += 1;
    }
    words
};

/// A number as a header value, at most [`MAX_INTEGER`]. Below 1 000 it is free of allocation.
pub(super) fn number(value: u64) -> HeaderValue {
    if let Some(word) = usize::try_from(value).ok().and_then(|value| WORDS.get(value)) {
        return HeaderValue::from_static(word);
    }
    let mut buffer = [0; 15];
    let mut start = buffer.len();
    let mut rest = value.min(MAX_INTEGER);
    while rest > 0 {
        start -= 1;
        buffer[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    HeaderValue::from_bytes(&buffer[start..]).expect("digits are a header value")
}

/// Whole seconds, rounded up: whoever waits that long never comes too early.
pub(crate) const fn ceil_secs(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_add((duration.subsec_nanos() > 0) as u64)
}

/// Whole microseconds, rounded up.
pub(super) const fn ceil_micros(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(duration.subsec_nanos().div_ceil(1_000) as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_numbers_are_written_plainly() {
        for value in 0..2_000 {
            assert_eq!(number(value), value.to_string().as_str());
        }
    }

    #[test]
    fn no_number_has_more_than_15_digits() {
        for value in [MAX_INTEGER, MAX_INTEGER + 1, u64::MAX] {
            assert_eq!(number(value), "999999999999999");
        }
    }

    #[test]
    fn rounds_up() {
        for (nanos, secs, micros) in [
            (0, 0, 0),
            (1, 1, 1),
            (999_999_999, 1, 1_000_000),
            (1_000_000_000, 1, 1_000_000),
            (1_000_000_001, 2, 1_000_001),
        ] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!((ceil_secs(duration), ceil_micros(duration)), (secs, micros));
        }
        assert_eq!(ceil_secs(Duration::MAX), u64::MAX);
        assert_eq!(ceil_micros(Duration::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn every_number_is_written_plainly(value in 0..=MAX_INTEGER) {
            prop_assert!(number(value) == value.to_string().as_str());
        }
    }
}
