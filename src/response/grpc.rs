//! Refusals of gRPC calls: a status in the header block, and no body ("Trailers-Only" in the gRPC over HTTP/2
//! protocol).

use std::fmt::Write;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response};

use super::grpc_details;
use crate::rejection::{Rejection, RejectionKind};

/// Codes of gRPC statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    InvalidArgument = 3,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Code {
    fn of(rejection: &Rejection) -> Self {
        match rejection.kind() {
            RejectionKind::QuotaExceeded => Self::ResourceExhausted,
            RejectionKind::StoreUnavailable => Self::Unavailable,
            RejectionKind::MissingKey => match rejection.status().as_u16() {
                401 => Self::Unauthenticated,
                403 => Self::PermissionDenied,
                429 => Self::ResourceExhausted,
                502..=504 => Self::Unavailable,
                500.. => Self::Internal,
                _ => Self::InvalidArgument,
            },
        }
    }
}

/// The media type of gRPC that the request has, without its suffix.
fn media_type(request: &Parts) -> Option<&'static str> {
    let value = request.headers.get(CONTENT_TYPE)?.as_bytes();
    [
        "application/grpc-web-text",
        "application/grpc-web",
        "application/grpc",
    ]
    .into_iter()
    .find(|name| {
        let Some((start, rest)) = value.split_at_checked(name.len()) else {
            return false;
        };
        start.eq_ignore_ascii_case(name.as_bytes()) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
    })
}

/// Whether a request is a gRPC or gRPC-Web call, by its content type: `application/grpc`, `application/grpc+proto`,
/// `application/grpc-web-text` and the like. Its client looks for a `grpc-status` and takes an HTTP status that is
/// not 200 for a broken proxy.
#[must_use]
pub fn is_grpc(request: &Parts) -> bool {
    media_type(request).is_some()
}

/// The refusal of a gRPC call, or `None` if `request` is none.
pub(super) fn respond<B: Default>(rejection: &Rejection, request: &Parts) -> Option<Response<B>> {
    const GRPC_STATUS: &str = "grpc-status";
    const GRPC_MESSAGE: &str = "grpc-message";
    const GRPC_DETAILS: &str = "grpc-status-details-bin";
    const GRPC_PUSHBACK: &str = "grpc-retry-pushback-ms";

    let media_type = media_type(request)?;
    let code = Code::of(rejection);
    let message = rejection.to_string();
    let retry = rejection.retry_after();

    let mut response = Response::new(B::default());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(GRPC_STATUS, HeaderValue::from(code as u16));
    let mut insert = |name, value: String| {
        // Digits, base64 and percent-encoded text are header values.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    insert(GRPC_MESSAGE, percent_encoded(&message));
    // Clients with a retry policy wait so long; a negative number tells them not to retry.
    insert(GRPC_PUSHBACK, retry.map_or(-1, ceil_millis).to_string());
    if let Some(retry) = retry {
        insert(GRPC_DETAILS, grpc_details::retry_info(code, &message, retry));
    }
    Some(response)
}

/// Whole milliseconds, rounded up, in the 32 bits that clients read.
fn ceil_millis(wait: Duration) -> i32 {
    i32::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

/// As gRPC asks of `grpc-message`: everything but printable ASCII without the percent sign.
fn percent_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(byte.into()),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use http::{Request, StatusCode};

    use super::*;
    use crate::decision::{Decision, Verdict};
    use crate::fixtures::{Said, decision};

    fn call(content_type: &str) -> Parts {
        let request = Request::post("/greeter/hello").header(CONTENT_TYPE, content_type);
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn tells_grpc_from_other_calls() {
        for (content_type, answered_as) in [
            ("application/grpc", Some("application/grpc")),
            ("application/grpc+proto", Some("application/grpc")),
            ("APPLICATION/GRPC+json", Some("application/grpc")),
            ("application/grpc;charset=utf-8", Some("application/grpc")),
            ("application/grpc-web", Some("application/grpc-web")),
            ("application/grpc-web+proto", Some("application/grpc-web")),
            (
                "application/grpc-web-text+proto",
                Some("application/grpc-web-text"),
            ),
            ("application/grpcx", None),
            ("application/grp", None),
            ("application/json", None),
            ("", None),
        ] {
            let parts = call(content_type);
            assert_eq!(media_type(&parts), answered_as, "{content_type}");
            assert_eq!(is_grpc(&parts), answered_as.is_some());
        }
        assert!(!is_grpc(&Request::new(()).into_parts().0));
    }

    fn refused(rejection: &Rejection) -> Response<String> {
        let response = respond(rejection, &call("application/grpc+proto")).expect("a gRPC call");
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        assert_eq!(response.body(), "");
        response
    }

    #[test]
    fn r36_a_used_up_quota_is_status_8_with_a_hint() {
        let denied = decision(false, &[Said::new(0).retry(Duration::from_nanos(1_500_000_001))]);
        let response = refused(&Rejection::of(denied));
        let headers = response.headers();
        assert_eq!(headers["grpc-status"], "8");
        assert_eq!(headers["grpc-message"], "quota exceeded: retry after 2 seconds");
        assert_eq!(headers["grpc-retry-pushback-ms"], "1501");
        assert!(headers.contains_key("grpc-status-details-bin"));
    }

    #[test]
    fn never_tells_the_client_not_to_retry() {
        let never = Rejection::of(decision(false, &[Said::new(5).never()]));
        let response = refused(&never);
        assert_eq!(response.headers()["grpc-status"], "8");
        assert_eq!(response.headers()["grpc-retry-pushback-ms"], "-1");
        assert!(!response.headers().contains_key("grpc-status-details-bin"));
    }

    #[test]
    fn no_store_is_status_14() {
        let response = refused(&Rejection::of(Decision::degraded(Verdict::Unavailable)));
        assert_eq!(response.headers()["grpc-status"], "14");
        assert_eq!(response.headers()["grpc-retry-pushback-ms"], "1000");
    }

    #[test]
    fn no_key_is_the_code_of_its_status() {
        for (status, code) in [
            (400, "3"),
            (401, "16"),
            (403, "7"),
            (422, "3"),
            (429, "8"),
            (500, "13"),
            (503, "14"),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let response = refused(&Rejection::missing_key(status));
            assert_eq!(response.headers()["grpc-status"], code, "{status}");
            assert_eq!(response.headers()["grpc-retry-pushback-ms"], "-1");
        }
    }

    #[test]
    fn long_waits_fit() {
        assert_eq!(ceil_millis(Duration::MAX), i32::MAX);
        assert_eq!(ceil_millis(Duration::from_nanos(1)), 1);
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(percent_encoded("wait 5 s ~"), "wait 5 s ~");
        assert_eq!(percent_encoded("100%\né"), "100%25%0A%C3%A9");
    }
}
