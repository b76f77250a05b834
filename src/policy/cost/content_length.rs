//! Costs by size.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Method, Version};

/// A [`Cost`](super::Cost) by the length that a request declares, made by
/// [`Cost::by_content_length`](super::Cost::by_content_length).
///
/// | request | units |
/// |---|---|
/// | with one `Content-Length`, or several equal ones | its bytes by the bytes per unit, rounded up, at least 1 |
/// | without a body: no length in HTTP/1, or `GET` and `HEAD` without one in later versions, even if they stream one | 1 |
/// | of unknown length | 1, or what [`or_unknown`](Self::or_unknown) says |
///
/// A length is unknown if the body comes in chunks (`Transfer-Encoding`), if HTTP/2 or later tells none, if the
/// field is no number, or if there are several different ones.
///
/// **A client that declares no length pays the same whatever it sends.** Refuse such requests (411), charge them for as
/// much as the server accepts, or settle the real size once the body has been read. A length that is declared can be
/// charged for: servers read no more than that.
///
/// ```
/// use tollgate::{MemoryStore, Cost, Quota, RateLimitLayer, key};
///
/// // 1 GiB an hour, in units of 64 KiB. An upload of unknown length costs as much as the largest that is accepted,
/// // of 16 MiB.
/// let cost = Cost::by_content_length(64 * 1024).or_unknown(256);
/// let limit = RateLimitLayer::new(MemoryStore::new(), Quota::per_hour(16 * 1024), key::PeerIp).cost(cost);
/// # let _ = limit;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct ContentLengthCost {
    bytes_per_unit: u64,
    unknown: u64,
}

impl ContentLengthCost {
    #[track_caller]
    pub(super) const fn new(bytes_per_unit: u64) -> Self {
        assert!(bytes_per_unit > 0, "a unit has at least 1 byte");
        Self {
            bytes_per_unit,
            unknown: 1,
        }
    }

    /// Units that a request of unknown length takes. 1 if not set. Not for `GET` and `HEAD` over HTTP/2 or later that
    /// only leave out the length: these count as requests without a body, and take 1.
    pub const fn or_unknown(mut self, units: u64) -> Self {
        self.unknown = units;
        self
    }

    pub(super) fn of(self, request: &Parts) -> u64 {
        match declared_length(request) {
            Some(bytes) => bytes.div_ceil(self.bytes_per_unit).max(1),
            None => self.unknown,
        }
    }
}

/// The bytes of the body, if they are known before it is read (RFC 9112, section 6.3).
fn declared_length(request: &Parts) -> Option<u64> {
    if request.headers.contains_key(TRANSFER_ENCODING) {
        return None;
    }
    let mut lines = request.headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lines.next() else {
        let reads_no_body =
            request.version <= Version::HTTP_11 || [Method::GET, Method::HEAD].contains(&request.method);
        return reads_no_body.then_some(0);
    };
    let first = digits(first.as_bytes())?;
    lines
        .all(|line| digits(line.as_bytes()) == Some(first))
        .then_some(first)
}

/// A number that is too large is as large as can be.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = text.iter().map(|byte| u64::from(byte - b'0'));
    Some(digits.fold(0, |number: u64, digit| {
        number.saturating_mul(10).saturating_add(digit)
    }))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const UNKNOWN: u64 = 77;

    fn cost(bytes_per_unit: u64, request: http::request::Builder) -> u64 {
        let cost = ContentLengthCost::new(bytes_per_unit).or_unknown(UNKNOWN);
        cost.of(&request.body(()).unwrap().into_parts().0)
    }

    fn of_lines(lines: &[&str]) -> u64 {
        cost(
            100,
            lines.iter().fold(Request::post("/"), |request, line| {
                request.header(CONTENT_LENGTH, *line)
            }),
        )
    }

    #[test]
    fn declared_bytes_are_rounded_up() {
        for (line, expected) in [
            ("0", 1),
            ("1", 1),
            ("100", 1),
            ("101", 2),
            ("0000000000000000000000200", 2),
            ("18446744073709551615", 184_467_440_737_095_517),
            ("99999999999999999999999", 184_467_440_737_095_517),
        ] {
            assert_eq!(of_lines(&[line]), expected, "{line}");
        }
        assert_eq!(
            cost(1, Request::post("/").header(CONTENT_LENGTH, u64::MAX)),
            u64::MAX
        );
        assert_eq!(
            cost(u64::MAX, Request::post("/").header(CONTENT_LENGTH, u64::MAX)),
            1
        );
    }

    #[test]
    fn what_is_no_length_is_unknown() {
        for lines in [
            &[""][..],
            &["x"],
            &["-1"],
            &["+1"],
            &["1.5"],
            &["0x10"],
            &["1, 1"],
            &["1", "2"],
            &["1", "1", "x"],
        ] {
            assert_eq!(of_lines(lines), UNKNOWN, "{lines:?}");
        }
        assert_eq!(of_lines(&["200", "0200"]), 2);
        let chunked = Request::post("/").header(TRANSFER_ENCODING, "chunked");
        assert_eq!(cost(1, chunked.header(CONTENT_LENGTH, 5)), UNKNOWN);
    }

    #[test]
    fn no_length_is_no_body_where_that_is_known() {
        for (method, version, expected) in [
            (Method::POST, Version::HTTP_11, 1),
            (Method::POST, Version::HTTP_10, 1),
            (Method::POST, Version::HTTP_2, UNKNOWN),
            (Method::POST, Version::HTTP_3, UNKNOWN),
            (Method::GET, Version::HTTP_2, 1),
            (Method::HEAD, Version::HTTP_2, 1),
        ] {
            let request = Request::builder().method(method.clone()).version(version);
            assert_eq!(cost(1, request), expected, "{method} {version:?}");
        }
        assert_eq!(ContentLengthCost::new(9).unknown, 1);
    }

    #[test]
    #[should_panic(expected = "at least 1 byte")]
    fn units_of_no_bytes_are_a_mistake() {
        let _ = crate::Cost::by_content_length(0);
    }
}
