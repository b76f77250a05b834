//! Keys from routes.

use std::borrow::Cow;

use http::request::Parts;

use super::builder::KeyBuilder;
use super::extractor::KeyExtractor;
use super::missing::Missing;

/// The pattern of the route that a request matched, as a request extension.
///
/// For routers other than axum's, which provides its own. The text must come from the program
/// (`/users/{id}`), never from the request: every text is a key of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route(pub Cow<'static, str>);

/// Counts by the pattern of the matched route, such as `/users/{id}`, readable.
///
/// The pattern comes from [`Route`], else, with the feature `axum`, from axum's `MatchedPath`. Axum matches
/// routes before the layers added with `Router::layer` and `Router::route_layer` run; layers around the whole
/// router run before and see no route.
///
/// All requests without a route share one key, which is no route's. Paths are never used in its place:
/// clients choose them, and `//login` or `/login/` would be new keys of the same handler.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatchedPath;

impl KeyExtractor for MatchedPath {
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        match route_of(parts) {
            Some(pattern) => key.plain("route", pattern.as_bytes()),
            None => key.plain("route:none", b""),
        };
        Ok(())
    }
}

/// The pattern of the matched route.
pub(crate) fn route_of(parts: &Parts) -> Option<&str> {
    if let Some(Route(pattern)) = parts.extensions.get() {
        return Some(pattern);
    }
    #[cfg(feature = "axum")]
    if let Some(path) = parts.extensions.get::<axum::extract::MatchedPath>() {
        return Some(path.as_str());
    }
    None
}

/// The path as the client sent it. Nested routers of axum take their own prefix off the request's.
pub(crate) fn original_path(parts: &Parts) -> &str {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::OriginalUri(uri)) = parts.extensions.get() {
        return uri.path();
    }
    parts.uri.path()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::key::testing::{key_of, parts};

    #[test]
    fn patterns_are_keys_and_paths_are_not() {
        let mut parts = parts(Request::get("/users/7"));
        assert_eq!(key_of(&MatchedPath, &parts), Ok("route:none=".to_owned()));
        parts.extensions.insert(Route("/users/{id}".into()));
        assert_eq!(
            key_of(&MatchedPath, &parts),
            Ok("route=/users/%7Bid%7D".to_owned())
        );
        parts.extensions.insert(Route("".into()));
        assert_eq!(key_of(&MatchedPath, &parts), Ok("route=".to_owned()));
    }

    #[cfg(feature = "axum")]
    #[test]
    fn axum_tells_the_whole_pattern_in_and_outside_nested_routers() {
        use std::pin::pin;
        use std::sync::{Arc, Mutex};
        use std::task::{Context, Poll, Waker};

        use axum::Router;
        use axum::extract::Request as AxumRequest;
        use axum::middleware::{Next, from_fn};
        use axum::routing::get;
        use tower_service::Service;

        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = {
            let seen = Arc::clone(&seen);
            move |request: AxumRequest, next: Next| {
                let (parts, body) = request.into_parts();
                let key = key_of(&MatchedPath, &parts).unwrap();
                seen.lock().unwrap().push(key);
                next.run(AxumRequest::from_parts(parts, body))
            }
        };
        let users = Router::new()
            .route("/users/{id}", get(async || "user"))
            .layer(from_fn(record.clone()));
        let mut app = Router::new()
            .nest("/api", users)
            .fallback(async || "none")
            .layer(from_fn(record));

        let mut call = |path: &str| {
            let request = Request::get(path).body(axum::body::Body::empty()).unwrap();
            let response = pin!(app.call(request)).poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(response, Poll::Ready(Ok(_))));
            std::mem::take(&mut *seen.lock().unwrap())
        };
        assert_eq!(
            call("/api/users/7"),
            ["route=/api/users/%7Bid%7D", "route=/api/users/%7Bid%7D"]
        );
        assert_eq!(call("/elsewhere"), ["route:none="]);
        assert_eq!(call("/api/elsewhere"), ["route:none="]);
    }
}
