//! Questions to a request.

use http::request::Parts;

/// Whether something holds for a request: a closure, a [`Rule`](crate::Rule), or whether an
/// [address](crate::key::InNetworks) is in one of some networks.
///
/// ```
/// use http::request::Parts;
/// use tollgate::{Predicate, Rule, key};
///
/// # fn takes(_: impl Predicate) {}
/// # fn main() -> Result<(), key::CidrError> {
/// let health = Rule::path("/healthz");
/// let internal = key::PeerIp.is_in(["10.0.0.0/8", "::1"])?;
/// let traced = |request: &Parts| request.headers.contains_key("x-trace");
/// let passes = health.and(internal).or(traced);
/// # takes(passes);
/// # Ok(())
/// # }
/// ```
pub trait Predicate: Send + Sync + 'static {
    /// Whether it holds for this request.
    fn holds(&self, request: &Parts) -> bool;

    /// Holds where this one does not.
    fn not(self) -> impl Predicate
    where
        Self: Sized,
    {
        move |request: &Parts| !self.holds(request)
    }

    /// Holds where both do.
    fn and(self, other: impl Predicate) -> impl Predicate
    where
        Self: Sized,
    {
        move |request: &Parts| self.holds(request) && other.holds(request)
    }

    /// Holds where one of them does.
    fn or(self, other: impl Predicate) -> impl Predicate
    where
        Self: Sized,
    {
        move |request: &Parts| self.holds(request) || other.holds(request)
    }
}

impl<F> Predicate for F
where
    F: Fn(&Parts) -> bool + Send + Sync + 'static,
{
    fn holds(&self, request: &Parts) -> bool {
        self(request)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Request;

    use super::*;
    use crate::Rule;

    fn holds(predicate: impl Predicate, uri: &str) -> bool {
        // As a layer would keep it.
        let predicate: Arc<dyn Predicate> = Arc::new(predicate);
        predicate.holds(&Request::get(uri).body(()).unwrap().into_parts().0)
    }

    #[test]
    fn predicates_combine() {
        let query = |request: &Parts| request.uri.query().is_some();
        let rule = || Rule::path("/healthz");
        for uri in ["/healthz", "/healthz?x", "/x", "/x?x"] {
            let (path, asks) = (uri.starts_with("/healthz"), uri.contains('?'));
            assert_eq!(holds(rule(), uri), path, "{uri}");
            assert_eq!(holds(query, uri), asks, "{uri}");
            assert_eq!(holds(rule().not(), uri), !path, "{uri}");
            assert_eq!(holds(rule().and(query), uri), path && asks, "{uri}");
            assert_eq!(holds(query.or(rule()), uri), path || asks, "{uri}");
            assert_eq!(holds(rule().or(query).not(), uri), !(path || asks), "{uri}");
        }
    }
}
