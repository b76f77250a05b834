//! What makes keys of requests.

use std::sync::Arc;

use http::request::Parts;

use super::builder::KeyBuilder;
use super::form::{Hashed, Readable};
use super::missing::Missing;
use super::or::Or;
use super::subject::Key;

/// Makes keys of requests.
///
/// Closures are extractors: `|parts: &Parts| Some("alice".to_owned())`, with any owned value that is `Into<Key>`.
/// So are tuples of two to six extractors (all of them must make their part) and an `Arc` of one.
///
/// An extractor of your own adds parts to the key:
///
/// ```
/// use http::request::Parts;
/// use tollgate::key::{KeyBuilder, KeyExtractor, Missing};
///
/// struct Account;
///
/// impl KeyExtractor for Account {
///     fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
///         let account = parts
///             .headers
///             .get("x-account")
///             .ok_or(Missing::new("the gateway must set `x-account`"))?;
///         key.hashed("billing:account", account.as_bytes());
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` makes no key of a request",
    note = "use an extractor of `tollgate::key`, such as `key::PeerIp`, a tuple of them, or a closure \
            `|request: &http::request::Parts| Some(..)` that returns an owned value that is `Into<Key>`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Adds this extractor's parts of the request's key.
    ///
    /// # Errors
    ///
    /// If the request lacks what the key is made of. The builder may then hold some of the parts; the caller
    /// drops it or returns to a [`Mark`](super::Mark).
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing>;

    /// Uses `other` for requests that have no key by this extractor.
    ///
    /// Alternatives with different tags, as all built-in ones have, never share a key. Two closures do when
    /// their values are equal, unless they give names with [`Key::named`].
    fn or<E>(self, other: E) -> Or<Self, E>
    where
        Self: Sized,
        E: KeyExtractor,
    {
        Or::new(self, other)
    }

    /// Hashes every value that this extractor writes.
    fn hashed(self) -> Hashed<Self>
    where
        Self: Sized,
    {
        Hashed::new(self)
    }

    /// Leaves every value that this extractor writes readable in the store (those over 64 bytes excepted).
    ///
    /// Mind what the values are: whoever reads the store or its backups reads addresses and credentials then.
    fn readable(self) -> Readable<Self>
    where
        Self: Sized,
    {
        Readable::new(self)
    }
}

impl<F, V> KeyExtractor for F
where
    F: Fn(&Parts) -> Option<V> + Send + Sync + 'static,
    V: Into<Key>,
{
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        let value = self(parts).ok_or(Missing::new(
            "the key function returned `None` for it; chain `.or(..)` to say what counts instead",
        ))?;
        key.append(&value.into());
        Ok(())
    }
}

impl<E> KeyExtractor for Arc<E>
where
    E: KeyExtractor + ?Sized,
{
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        self.as_ref().extract(parts, key)
    }
}

macro_rules! tuples {
    ($($name:ident)*) => {
        impl<$($name),*> KeyExtractor for ($($name,)*)
        where
            $($name: KeyExtractor,)*
        {
            fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
                #[allow(non_snake_case, reason = "a tuple's fields are named after their types")]
                let ($($name,)*) = self;
                $($name.extract(parts, key)?;)*
                Ok(())
            }
        }
    };
}

tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::key::testing::{key_of, parts};

    fn accepts(extractor: impl KeyExtractor) -> Arc<dyn KeyExtractor> {
        Arc::new(extractor)
    }

    #[test]
    fn closures_are_extractors() {
        let parts = parts(Request::get("/x"));
        let extractor = accepts(|_: &Parts| Some("a b".to_owned()));
        assert_eq!(key_of(&extractor, &parts), Ok("key=a%20b".to_owned()));
        let extractor = accepts(|parts: &Parts| Some(Key::named("path", parts.uri.path())));
        assert_eq!(key_of(&extractor, &parts), Ok("key:path=/x".to_owned()));
        let missing = key_of(&accepts(|_: &Parts| None::<u64>), &parts).unwrap_err();
        assert!(missing.hint().contains("returned `None`"), "{missing}");
    }

    #[test]
    fn tuples_need_all_their_parts() {
        let parts = parts(Request::get("/x"));
        let one = |_: &Parts| Some(1_u64);
        let two = |_: &Parts| Some("2");
        let none = |_: &Parts| None::<u64>;
        assert_eq!(key_of(&(one, two), &parts), Ok("key=1,key=2".to_owned()));
        assert_eq!(
            key_of(&(one, (two, one), two, one, two, one), &parts),
            Ok("key=1,key=2,key=1,key=2,key=1,key=2,key=1".to_owned())
        );
        assert!(key_of(&(one, none, two), &parts).is_err());
        assert!(key_of(&(none, one), &parts).is_err());
    }
}
