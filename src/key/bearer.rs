//! Keys from bearer tokens.

use http::header::AUTHORIZATION;
use http::request::Parts;

use super::builder::KeyBuilder;
use super::extractor::KeyExtractor;
use super::header::only_value;
use super::missing::Missing;

/// Counts by the token of `Authorization: Bearer <token>` (RFC 6750 section 2.1), hashed.
///
/// **A token that nothing has verified lets a client invent a fresh key for every request.** Put the rate
/// limit inside the layer that verifies tokens, or add a policy by address.
///
/// Any other scheme, several lines, or a token with characters that the RFC does not allow is no key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bearer;

impl KeyExtractor for Bearer {
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        let token = only_value(parts, &AUTHORIZATION)
            .and_then(token)
            .ok_or(Missing::new(
                "it has no `Authorization: Bearer <token>`; chain `.or(..)` to say how others count",
            ))?;
        key.hashed("bearer", token);
        Ok(())
    }
}

fn token(credentials: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = credentials.split_at_checked(6)?;
    let token = rest.trim_ascii_start();
    let padding = token.iter().rev().take_while(|&&b| b == b'=').count();
    let digits = &token[..token.len() - padding];
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"-._~+/".contains(b);
    let valid = scheme.eq_ignore_ascii_case(b"bearer")
        && token.len() < rest.len()
        && !digits.is_empty()
        && digits.iter().all(allowed);
    valid.then_some(token)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::key::testing::{key_of, parts};

    #[test]
    fn tokens_are_found() {
        for credentials in ["Bearer aZ0-._~+/==", "bearer  aZ0-._~+/==", "BEARER aZ0-._~+/=="] {
            let parts = parts(Request::get("/").header("authorization", credentials));
            assert_eq!(
                key_of(&Bearer.readable(), &parts),
                Ok("bearer=aZ0-._%7E+/%3D%3D".to_owned()),
                "{credentials}"
            );
            let hashed = key_of(&Bearer, &parts).unwrap();
            assert!(hashed.starts_with("bearer=~"), "{hashed}");
        }
    }

    #[test]
    fn the_rest_is_no_key() {
        for credentials in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer=x",
            "Bearerx",
            "Bearer a b",
            "Bearer a,b",
            "Bearer =",
            "Bearer a=b",
            "Basic eDp5",
            "é",
        ] {
            let parts = parts(Request::get("/").header("authorization", credentials));
            assert!(key_of(&Bearer, &parts).is_err(), "{credentials}");
        }
        let twice = Request::get("/")
            .header("authorization", "Bearer a")
            .header("authorization", "Bearer a");
        assert!(key_of(&Bearer, &parts(twice)).is_err());
    }
}
