//! Keys from methods.

use http::request::Parts;

use super::builder::KeyBuilder;
use super::extractor::KeyExtractor;
use super::missing::Missing;

/// Counts by method, readable. `HEAD` counts as `GET`, as it runs the same handler.
///
/// Methods other than those of RFC 9110 and `PATCH` share one key, so that inventing methods makes no keys.
/// Headers that override the method are not read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Method;

impl KeyExtractor for Method {
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        use http::Method as M;

        match &parts.method {
            &M::HEAD => key.plain("method", b"GET"),
            method @ (&M::GET
            | &M::POST
            | &M::PUT
            | &M::DELETE
            | &M::OPTIONS
            | &M::CONNECT
            | &M::PATCH
            | &M::TRACE) => key.plain("method", method.as_str().as_bytes()),
            _ => key.plain("method:other", b""),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::key::testing::{key_of, parts};

    #[test]
    fn methods_are_normalised() {
        for (method, expected) in [
            ("GET", "method=GET"),
            ("HEAD", "method=GET"),
            ("PATCH", "method=PATCH"),
            ("get", "method:other="),
            ("PURGE", "method:other="),
            ("BREW", "method:other="),
        ] {
            let parts = parts(Request::builder().method(method));
            assert_eq!(key_of(&Method, &parts), Ok(expected.to_owned()), "{method}");
        }
    }
}
