//! Keys from header fields.

use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;

use super::builder::KeyBuilder;
use super::extractor::KeyExtractor;
use super::missing::Missing;

/// Counts by the value of a header field, hashed.
///
/// **A value that nothing has verified lets a client invent a fresh key for every request**, and so leave its
/// limit behind. Put the rate limit inside the layer that verifies it, or add a policy by address, which no
/// invention escapes.
///
/// A request without the field, with an empty one or with several lines of it has no key: which of several
/// lines counts is read differently by different software.
///
/// ```
/// use http::HeaderName;
/// use tollgate::key;
///
/// let api_key = key::Header::new(HeaderName::from_static("x-api-key"));
/// # let _ = api_key;
/// ```
#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
    tag: Arc<str>,
}

impl Header {
    /// Counts by the field with this name.
    #[must_use]
    pub fn new(name: HeaderName) -> Self {
        let tag = format!("header:{name}").into();
        Self { name, tag }
    }
}

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        let value = only_value(parts, &self.name).ok_or(Missing::new(
            "it has no or an empty header field of the name given to `key::Header`, or several lines of it",
        ))?;
        key.hashed(&self.tag, value);
        Ok(())
    }
}

/// The value of a field that has one line and is not empty.
pub(super) fn only_value<'a>(parts: &'a Parts, name: &HeaderName) -> Option<&'a [u8]> {
    let mut lines = parts.headers.get_all(name).into_iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => Some(line.as_bytes().trim_ascii()).filter(|value| !value.is_empty()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::key::testing::{key_of, parts};

    #[test]
    fn one_value_makes_a_key() {
        let header = Header::new(HeaderName::from_static("x-api-key"));
        let with = |lines: &[&str]| {
            let request = lines.iter().fold(Request::get("/"), |request, line| {
                request.header("X-Api-Key", *line)
            });
            key_of(&header, &parts(request))
        };
        let key = with(&["k1"]).unwrap();
        assert!(key.starts_with("header:x-api-key=~"), "{key}");
        assert_eq!(with(&["k1 "]), Ok(key.clone()));
        assert_ne!(with(&["k2"]), Ok(key));
        for lines in [&[][..], &[""], &["  "], &["k1", "k1"]] {
            assert!(with(lines).is_err(), "{lines:?}");
        }
    }

    #[test]
    fn names_separate_equal_values() {
        let parts = parts(Request::get("/").header("a", "x").header("b", "x"));
        let of = |name| key_of(&Header::new(HeaderName::from_static(name)).readable(), &parts).unwrap();
        assert_eq!(of("a"), "header:a=x");
        assert_eq!(of("b"), "header:b=x");
    }
}
