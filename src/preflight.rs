//! CORS preflights.

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::{Method, request::Parts};

/// Whether a browser asks if it may send a request (CORS-preflight request of the Fetch standard, section 3.2.2).
/// Scripts cannot see why a preflight was refused, so limiting it breaks the page without telling anybody.
pub(crate) fn is_preflight(request: &Parts) -> bool {
    request.method == Method::OPTIONS
        && request.headers.contains_key(ORIGIN)
        && request.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn r18_a_preflight_has_method_origin_and_requested_method() {
        for (method, headers, expected) in [
            ("OPTIONS", &["origin", "access-control-request-method"][..], true),
            ("OPTIONS", &["origin"], false),
            ("OPTIONS", &["access-control-request-method"], false),
            ("OPTIONS", &[], false),
            ("POST", &["origin", "access-control-request-method"], false),
        ] {
            let mut request = Request::builder().method(method);
            for name in headers {
                request = request.header(*name, "x");
            }
            let (parts, ()) = request.body(()).expect("a request").into_parts();
            assert_eq!(is_preflight(&parts), expected, "{method} {headers:?}");
        }
    }
}
