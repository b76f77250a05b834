//! One key for all.

use http::request::Parts;

use super::builder::KeyBuilder;
use super::extractor::KeyExtractor;
use super::missing::Missing;

/// Counts all requests together.
///
/// Where every policy counts by [`Global`], one busy client can use up what all share: add a policy by
/// client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Global;

impl KeyExtractor for Global {
    fn extract(&self, _: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        key.plain("global", b"");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::key::testing::{key_of, parts};

    #[test]
    fn all_requests_are_one() {
        for request in [Request::get("/a"), Request::post("/b").header("x", "y")] {
            assert_eq!(key_of(&Global, &parts(request)), Ok("global=".to_owned()));
        }
    }
}
