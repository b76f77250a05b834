//! Numbers as header values.

use std::time::Duration;

use http::HeaderValue;

/// The largest Integer of a structured field: 15 digits (RFC 9651, section 3.3.1).
pub(super) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// Limits and what remains of them are nearly always less.
const SMALL: usize = 10_000;

/// The small numbers in order, four digits each.
static DIGITS: [u8; SMALL * 4] = {
    let mut digits = [b'0'; SMALL * 4];
    let mut n = 0;
    while n < SMALL {
        let mut rest = n;
        let mut place = n * 4 + 4;
        while rest > 0 {
            place -= 1;
            digits[place] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        n += 1;
    }
    digits
};

static TEXT: &str = match std::str::from_utf8(&DIGITS) {
    Ok(text) => text,
    Err(_) => panic!("digits are ASCII"),
};

/// The text of a small number, which lives as long as the program.
#[inline]
fn small(value: u64) -> Option<&'static str> {
    let index = usize::try_from(value).ok().filter(|&index| index < SMALL)?;
    let leading_zeros = match value {
        0..10 => 3,
        10..100 => 2,
        100..1_000 => 1,
        _ => 0,
    };
    TEXT.get(index * 4 + leading_zeros..index * 4 + 4)
}

/// A number as a header value, at most [`MAX_INTEGER`]. Below 10 000 it is free of allocation.
#[inline]
pub(super) fn number(value: u64) -> HeaderValue {
    match small(value) {
        // Whatever else makes a value of bytes that are there already checks them at several times the cost.
        Some(text) => HeaderValue::from_static(text),
        None => large(value),
    }
}

#[inline(never)]
fn large(value: u64) -> HeaderValue {
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
pub(super) const fn ceil_secs(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_add((duration.subsec_nanos() > 0) as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clock::micros_up;

    #[test]
    fn small_numbers_are_written_plainly() {
        for value in 0..12_000 {
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
            assert_eq!((ceil_secs(duration), micros_up(duration)), (secs, micros));
        }
        assert_eq!(ceil_secs(Duration::MAX), u64::MAX);
        assert_eq!(micros_up(Duration::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn every_number_is_written_plainly(value in 0..=MAX_INTEGER) {
            prop_assert!(number(value) == value.to_string().as_str());
        }
    }
}
