//! Alternatives.

use http::request::Parts;

use super::builder::KeyBuilder;
use super::extractor::KeyExtractor;
use super::missing::Missing;

/// The first of two extractors that makes a key. Made by [`KeyExtractor::or`].
///
/// ```
/// use tollgate::key::{self, KeyExtractor};
///
/// // Who shows a token is counted by it, everyone else by address.
/// let client = key::Bearer.or(key::PeerIp);
/// # let _ = client;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A, B> Or<A, B> {
    pub(super) const fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<A, B> KeyExtractor for Or<A, B>
where
    A: KeyExtractor,
    B: KeyExtractor,
{
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        let mark = key.mark();
        if self.first.extract(parts, key).is_ok() {
            return Ok(());
        }
        key.rollback(mark);
        // The second is the one meant for every request, so its reason is the one to tell.
        self.second.extract(parts, key)
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::key::testing::{key_of, parts};

    #[test]
    fn the_first_that_makes_a_key() {
        let parts = parts(Request::get("/"));
        let one = |_: &Parts| Some("1");
        let two = |_: &Parts| Some("2");
        let none = |_: &Parts| None::<u64>;
        assert_eq!(key_of(&one.or(two), &parts), Ok("key=1".to_owned()));
        assert_eq!(key_of(&none.or(two), &parts), Ok("key=2".to_owned()));
        // What a failed alternative wrote is gone, what stood before it stays.
        assert_eq!(
            key_of(&(two, (one, none).or(two)), &parts),
            Ok("key=2,key=2".to_owned())
        );
        let last = |_: &Parts, key: &mut KeyBuilder<'_>| {
            key.plain("a", b"");
            Err(Missing::new("last"))
        };
        assert_eq!(key_of(&none.or(Custom(last)), &parts), Err(Missing::new("last")));
    }

    struct Custom<F>(F);

    impl<F> KeyExtractor for Custom<F>
    where
        F: Fn(&Parts, &mut KeyBuilder<'_>) -> Result<(), Missing> + Send + Sync + 'static,
    {
        fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
            (self.0)(parts, key)
        }
    }
}
