//! Whether values can be read in the store.

use http::request::Parts;

use super::builder::{Form, KeyBuilder};
use super::extractor::KeyExtractor;
use super::missing::Missing;

/// An extractor whose values are hashed. Made by [`KeyExtractor::hashed`].
///
/// Of several such choices around an extractor, the last made (the outermost) holds.
#[derive(Clone, Copy, Debug)]
pub struct Hashed<E>(E);

/// An extractor whose values are readable. Made by [`KeyExtractor::readable`].
///
/// Of several such choices around an extractor, the last made (the outermost) holds.
#[derive(Clone, Copy, Debug)]
pub struct Readable<E>(E);

impl<E> Hashed<E> {
    pub(super) const fn new(extractor: E) -> Self {
        Self(extractor)
    }
}

impl<E> Readable<E> {
    pub(super) const fn new(extractor: E) -> Self {
        Self(extractor)
    }
}

impl<E> KeyExtractor for Hashed<E>
where
    E: KeyExtractor,
{
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        key.in_form(Form::Hashed, |key| self.0.extract(parts, key))
    }
}

impl<E> KeyExtractor for Readable<E>
where
    E: KeyExtractor,
{
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        key.in_form(Form::Readable, |key| self.0.extract(parts, key))
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::key::testing::{key_of, parts};
    use crate::key::{Bearer, Method};

    #[test]
    fn the_choice_covers_all_parts() {
        let parts = parts(Request::get("/").header("authorization", "Bearer t0ken"));
        assert_eq!(
            key_of(&(Bearer, Method).readable(), &parts).unwrap(),
            "bearer=t0ken,method=GET"
        );
        let hashed = key_of(&(Bearer, Method).hashed(), &parts).unwrap();
        assert!(
            hashed.starts_with("bearer=~") && hashed.contains(",method=~"),
            "{hashed}"
        );
        let alice = |_: &Parts| Some("alice");
        let hashed = key_of(&alice.hashed(), &parts).unwrap();
        assert!(hashed.starts_with('~'), "{hashed}");
    }

    #[test]
    fn the_last_choice_holds() {
        let parts = parts(Request::get("/"));
        assert_eq!(
            key_of(&Method.hashed().readable(), &parts),
            Ok("method=GET".to_owned())
        );
        let hashed = key_of(&Method.readable().hashed(), &parts).unwrap();
        assert!(hashed.starts_with("method=~"), "{hashed}");
        // And it ends with its extractor.
        let pair = key_of(&(Method.hashed(), Method), &parts).unwrap();
        assert!(pair.ends_with(",method=GET"), "{pair}");
    }
}
