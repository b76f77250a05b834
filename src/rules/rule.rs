//! What requests a rule is for.

use std::fmt;

use http::Method;
use http::request::Parts;

use super::any_of::AnyOf;
use super::error::RuleError;
use super::pattern::Pattern;
use super::request::Request;
use crate::key::normalised_host;
use crate::predicate::Predicate;

/// What requests something is for: a path, methods, hosts. What is not said matches all.
///
/// ```
/// use http::Method;
/// use tollgate::Rule;
///
/// let user = Rule::path("/users/{id}");
/// let login = Rule::path("/login").method(Method::POST).host("api.example.com");
/// let writes = Rule::any().method(Method::POST).method(Method::PUT);
/// let admin = Rule::path("/admin/*");
/// assert_eq!(login.to_string(), "POST /login on api.example.com");
/// # let _ = (user, writes, admin);
/// ```
///
/// Rules are equal if they are for the same requests: the names of parameters do not matter. A rule is also a
/// [`Predicate`]; [`Rules`](super::Rules) choose by several.
///
/// # Paths
///
/// | pattern | what it is for |
/// |---|---|
/// | `/users/me` | this route |
/// | `/users/{id}` | this route, whatever its parameters are called; `v{version}` has a prefix |
/// | `/files/{*rest}` | this route, all that is left of the path and not empty |
/// | `/api/*` | everything beneath `/api`, and `/api` itself |
///
/// **A request with a route** matches by the route's pattern, not by its path: `/users/{id}` is the route of
/// that pattern, and of no other, not even `/users/me`; `/api/*` is all routes whose pattern begins so. The pattern
/// is that of [`key::MatchedPath`](crate::key::MatchedPath): a [`Route`](crate::key::Route) extension, else axum's
/// `MatchedPath`, which in nested routers is the full one from the root. Layers added with `Router::layer`
/// and `Router::route_layer` see it.
///
/// **A request without one** matches by its path, segment by segment as in axum's router. So it is with a layer
/// around the whole router, with hyper and tonic, and for what reaches a router's fallback; also for a route that
/// ends in `{*rest}`, such as one of a gRPC service. Inside a nested router the path is the full one that
/// the client sent.
///
/// ```
/// use http::Request;
/// use tollgate::{Predicate, Rule, key::Route};
///
/// let rule = Rule::path("/users/{id}");
/// let (mut request, ()) = Request::get("/users/me").body(()).unwrap().into_parts();
/// assert!(rule.holds(&request));
/// request.extensions.insert(Route("/users/me".into()));
/// assert!(!rule.holds(&request));
/// ```
///
/// Paths are not normalised, as axum does not: `/users/` and `//users` are not `/users`, `/%75sers` is not either,
/// and case counts. A server that does normalise should tell its routes by [`Route`](crate::key::Route), or a
/// client gets around a rule by another spelling. The other way round, a parameter may be empty in front of another
/// segment: `//edit` is a path of `/{id}/edit` for axum, and so for a rule.
///
/// `{{` and `}}` stand for braces. A rule only chooses among what the program gave it, so no path becomes a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Rule {
    pub(super) path: Option<Pattern>,
    pub(super) methods: AnyOf<Method>,
    pub(super) hosts: AnyOf<Box<str>>,
}

impl Rule {
    /// All requests.
    #[must_use]
    pub const fn any() -> Self {
        Self {
            path: None,
            methods: AnyOf::ALL,
            hosts: AnyOf::ALL,
        }
    }

    /// Requests to a path: a pattern in axum's syntax, or `/api/*` for all beneath `/api`.
    ///
    /// # Panics
    ///
    /// If the pattern is none. Check those from outside with [`try_path`](Self::try_path).
    #[must_use]
    #[track_caller]
    pub fn path(pattern: impl AsRef<str>) -> Self {
        match Self::try_path(pattern) {
            Ok(rule) => rule,
            Err(error) => panic!("{error}"),
        }
    }

    /// Requests to a path, as [`path`](Self::path).
    ///
    /// # Errors
    ///
    /// If the pattern is none.
    pub fn try_path(pattern: impl AsRef<str>) -> Result<Self, RuleError> {
        let text = pattern.as_ref();
        let pattern = Pattern::parse(text).map_err(|why| RuleError::path(text, why))?;
        Ok(Self {
            path: Some(pattern),
            ..Self::any()
        })
    }

    /// Only requests with this method. Said several times, those with any of the methods.
    ///
    /// `GET` includes `HEAD`, which runs the same handler; `HEAD` alone is without `GET`.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        if method == Method::GET {
            self.methods.add(Method::HEAD);
        }
        self.methods.add(method);
        self
    }

    /// Only requests that name this host. Said several times, any of the hosts.
    ///
    /// Hosts are compared as [`key::Host`](crate::key::Host) counts them: without case, port and final dot; a request
    /// without a host, or with two different ones, has none. Clients choose the host that they name.
    ///
    /// # Panics
    ///
    /// If it is no host, or has a port. Check those from outside with [`try_host`](Self::try_host).
    #[must_use]
    #[track_caller]
    pub fn host(self, host: impl AsRef<str>) -> Self {
        match self.try_host(host) {
            Ok(rule) => rule,
            Err(error) => panic!("{error}"),
        }
    }

    /// Only requests that name this host, as [`host`](Self::host).
    ///
    /// # Errors
    ///
    /// If it is no host, or has a port.
    pub fn try_host(mut self, host: impl AsRef<str>) -> Result<Self, RuleError> {
        let text = host.as_ref();
        let host = normalised_host(text).ok_or_else(|| RuleError::host(text))?;
        self.hosts.add(host.into());
        Ok(self)
    }
}

impl Predicate for Rule {
    fn holds(&self, request: &Parts) -> bool {
        let request = Request::new(request);
        self.methods.holds(request.method())
            && self.path.as_ref().is_none_or(|path| path.matches(request.place))
            && (self.hosts.is_all() || request.host().is_some_and(|host| self.hosts.holds(host)))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods = self.methods.said();
        let of_get = |method: &Method| *method == Method::HEAD && methods.contains(&Method::GET);
        let methods: Vec<&str> = methods
            .iter()
            .filter(|method| !of_get(method))
            .map(Method::as_str)
            .collect();
        f.write_str(&methods.join(" or "))?;
        match &self.path {
            Some(path) if methods.is_empty() => write!(f, "{path}")?,
            Some(path) => write!(f, " {path}")?,
            None if methods.is_empty() => f.write_str("any request")?,
            None => {}
        }
        if self.hosts.is_all() {
            return Ok(());
        }
        write!(f, " on {}", self.hosts.said().join(" or "))
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({self})")
    }
}

#[cfg(test)]
mod tests;
