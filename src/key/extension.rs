//! Keys from request extensions.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use super::builder::KeyBuilder;
use super::extractor::KeyExtractor;
use super::missing::Missing;
use super::subject::Key;

/// Counts by a value that an outer layer put into the request's extensions, readable.
///
/// The best key where clients are known: the layer that authenticates inserts who it is, and nothing that is
/// not verified becomes a key. The label, any text, separates values of different meaning; values are
/// whatever is `Into<Key>`.
///
/// ```
/// use tollgate::key::{self, KeyBuilder, KeyExtractor, KeyHasher};
///
/// #[derive(Clone)]
/// struct Tenant {
///     id: u64,
/// }
///
/// # fn main() -> Result<(), tollgate::key::Missing> {
/// let tenant = key::extension("tenant", |tenant: &Tenant| tenant.id);
///
/// let request = http::Request::builder().extension(Tenant { id: 7 }).body(()).unwrap();
/// let (parts, ()) = request.into_parts();
/// let hasher = KeyHasher::default();
/// let mut key = KeyBuilder::new(&hasher);
/// tenant.extract(&parts, &mut key)?;
/// assert_eq!(key.finish().as_bytes(), b"ext:tenant=7");
/// # Ok(())
/// # }
/// ```
pub fn extension<T, V>(
    label: impl AsRef<str>,
    value: impl Fn(&T) -> V + Send + Sync + 'static,
) -> Extension<T>
where
    T: Send + Sync + 'static,
    V: Into<Key>,
{
    Extension {
        tag: format!("ext:{}", label.as_ref()).into(),
        value: Arc::new(move |extension| value(extension).into()),
    }
}

/// Counts by a value of the extension `T`. Made by [`extension()`].
pub struct Extension<T> {
    tag: Arc<str>,
    value: Arc<dyn Fn(&T) -> Key + Send + Sync>,
}

impl<T> KeyExtractor for Extension<T>
where
    T: Send + Sync + 'static,
{
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        let extension = parts.extensions.get::<T>().ok_or(Missing::new(
            "it lacks the extension that `key::extension` reads: is the layer that inserts it \
             outside the rate limit?",
        ))?;
        key.nested(&self.tag, &(self.value)(extension));
        Ok(())
    }
}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Self {
        Self {
            tag: Arc::clone(&self.tag),
            value: Arc::clone(&self.value),
        }
    }
}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extension")
            .field("tag", &self.tag)
            .field("type", &std::any::type_name::<T>())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::key::testing::{key_of, parts};

    #[derive(Clone)]
    struct User(&'static str);

    #[test]
    fn values_are_labelled() {
        let parts = parts(Request::get("/").extension(User("a b")));
        let user = |label: &str| extension(label, |user: &User| user.0);
        assert_eq!(key_of(&user("user"), &parts), Ok("ext:user=a%20b".to_owned()));
        assert_eq!(
            key_of(&user("ip=x,y"), &parts),
            Ok("ext:ip%3Dx%2Cy=a%20b".to_owned())
        );
        let hashed = |label| key_of(&user(label).hashed(), &parts).unwrap();
        assert!(hashed("user").starts_with("ext:user=~"), "{}", hashed("user"));
        assert_ne!(
            hashed("user").split_once('~').map(|(_, hash)| hash.to_owned()),
            hashed("owner").split_once('~').map(|(_, hash)| hash.to_owned())
        );
    }

    #[test]
    fn no_extension_says_what_to_do() {
        let missing = key_of(
            &extension("user", |user: &User| user.0),
            &parts(Request::get("/")),
        );
        assert!(missing.unwrap_err().hint().contains("outside the rate limit"));
    }

    #[test]
    fn debug_names_the_type() {
        let debug = format!("{:?}", extension("user", |user: &User| user.0));
        assert!(debug.contains("ext:user") && debug.contains("User"), "{debug}");
    }
}
