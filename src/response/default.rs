//! The response to a refused request, if nothing else is set.

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};

use super::{ResponseForRejection, accept, body, grpc};
use crate::decision::Decision;
use crate::rejection::{Rejection, RejectionKind};

/// The URI of the problem type, by draft-ietf-httpapi-ratelimit-headers-11, section 5. It identifies the
/// `violated-policies` member, which `about:blank` would leave without a meaning.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The response to a refused request, if nothing else is set.
///
/// | request | response |
/// |---|---|
/// | gRPC, gRPC-Web ([`is_grpc`](super::is_grpc)) | HTTP 200 and no body, `grpc-status` 8 (used up), 14 (no store), or for a missing key by its HTTP status: 16 (401), 7 (403), 8 (429), 14 (502 to 504), 13 (other 5xx), else 3; with `grpc-message`, `grpc-retry-pushback-ms` (-1: never) and a `RetryInfo` in `grpc-status-details-bin` |
/// | `Accept` prefers JSON to `text/plain` | [the rejection's status](Rejection::status), `application/problem+json` (RFC 9457) with type, title, status, detail and `violated-policies` |
/// | other | the same status, a line of `text/plain` |
///
/// `*/*` alone does not ask for JSON. Responses are `cache-control: no-store`, because a stored 429 would refuse
/// clients that may pass (RFC 6585, section 4). Nothing that the client sent is in them, and no key.
///
/// The body is filled if its type is axum's `Body` (feature `axum`), `Full<Bytes>` of http-body-util, `Bytes`,
/// `Vec<u8>` or `String`; of any other type, such as a `BoxBody`, it is the [`Default`], and there is no content type.
/// To fill such a body, build the response in a closure and box what it holds:
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use http::request::Parts;
/// use http_body_util::combinators::BoxBody;
/// use http_body_util::{BodyExt, Full};
/// use tollgate::{DefaultResponse, Rejection, ResponseForRejection};
///
/// type Body = BoxBody<Bytes, std::convert::Infallible>;
///
/// let boxed = |rejection: &Rejection, request: &Parts| -> Response<Body> {
///     let response: Response<Full<Bytes>> = DefaultResponse::new().response(rejection, request);
///     response.map(|body| body.boxed())
/// };
/// // RateLimitLayer::new(..).with_rejection_response(boxed)
/// # fn takes<B>(_: impl ResponseForRejection<B>) {}
/// # takes(boxed);
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DefaultResponse;

impl DefaultResponse {
    /// The default response.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
}

impl<B: Default + 'static> ResponseForRejection<B> for DefaultResponse {
    fn response(&self, rejection: &Rejection, request: &Parts) -> Response<B> {
        grpc::respond(rejection, request).unwrap_or_else(|| respond(rejection, request))
    }
}

fn respond<B: Default + 'static>(rejection: &Rejection, request: &Parts) -> Response<B> {
    let (content_type, text) = if accept::prefers_json(&request.headers) {
        ("application/problem+json", problem(rejection))
    } else {
        ("text/plain; charset=utf-8", format!("{rejection}\n"))
    };
    let length = text.len();
    let body = body::filled(text);
    let filled = body.is_some();
    // The response to HEAD has the fields of that to GET, the length among them (RFC 9110, section 9.3.2).
    let head = request.method == Method::HEAD;
    let body = body.filter(|_| !head).unwrap_or_default();

    let mut response = Response::new(body);
    *response.status_mut() = rejection.status();
    let headers = response.headers_mut();
    if filled {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if head {
            // Servers take the length from the body, and this one is empty.
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Problem details. Nothing in them needs escaping: the words are ours, and policy names are letters, digits and
/// `-_./:`.
fn problem(rejection: &Rejection) -> String {
    let status = rejection.status();
    let (kind, title) = match rejection.kind() {
        RejectionKind::QuotaExceeded => (QUOTA_EXCEEDED, "Quota exceeded"),
        // A problem of type `about:blank` is titled by its status (RFC 9457, section 4.2.1).
        RejectionKind::StoreUnavailable | RejectionKind::MissingKey => ("about:blank", reason(status)),
    };
    let code = status.as_u16();
    let mut problem =
        format!(r#"{{"type":"{kind}","title":"{title}","status":{code},"detail":"{rejection}""#);
    if rejection.kind() == RejectionKind::QuotaExceeded {
        problem.push_str(r#","violated-policies":["#);
        let violated = rejection.decision().into_iter().flat_map(Decision::violated);
        for (index, policy) in violated.enumerate() {
            problem.push_str(if index > 0 { ",\"" } else { "\"" });
            problem.push_str(policy.name().as_str());
            problem.push('"');
        }
        problem.push(']');
    }
    problem.push('}');
    problem
}

fn reason(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("Request refused")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::Request;
    use http::header::ACCEPT;
    use http_body_util::Empty;
    use serde_json::{Value, json};

    use super::*;
    use crate::decision::Verdict;
    use crate::fixtures::{Said, decision};

    fn denied() -> Rejection {
        Rejection::of(decision(
            false,
            &[
                Said::new(0).name("login").retry(Duration::from_millis(29_001)),
                Said::new(9).name("fits"),
                Said::new(0).name("a/b:c_d.e").retry(Duration::from_secs(1)),
                Said::new(0).name("trial").shadow().retry(Duration::from_secs(99)),
            ],
        ))
    }

    fn request(method: Method, accept: Option<&str>) -> Parts {
        let mut request = Request::builder().method(method).uri("/secret?token=hunter2");
        if let Some(accept) = accept {
            request = request.header(ACCEPT, accept);
        }
        request.body(()).expect("a request").into_parts().0
    }

    fn refused<B: Default + 'static>(rejection: &Rejection, accept: Option<&str>) -> Response<B> {
        DefaultResponse::new().response(rejection, &request(Method::GET, accept))
    }

    fn problem_of(rejection: &Rejection) -> Value {
        let response: Response<String> = refused(rejection, Some("application/json"));
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(response.status(), rejection.status());
        serde_json::from_str(response.body()).expect("JSON")
    }

    #[test]
    fn people_get_a_line_of_text() {
        for accept in [None, Some("*/*"), Some("text/html, */*;q=0.1")] {
            let response: Response<String> = refused(&denied(), accept);
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(response.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
            assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
            assert_eq!(response.headers().len(), 2);
            assert_eq!(response.body(), "quota exceeded: retry after 30 seconds\n");
        }
    }

    #[test]
    fn programs_get_problem_details() {
        assert_eq!(
            problem_of(&denied()),
            json!({
                "type": QUOTA_EXCEEDED,
                "title": "Quota exceeded",
                "status": 429,
                "detail": "quota exceeded: retry after 30 seconds",
                "violated-policies": ["login", "a/b:c_d.e"],
            })
        );
    }

    #[test]
    fn never_says_so_and_has_no_hint() {
        let problem = problem_of(&Rejection::of(decision(false, &[Said::new(5).never()])));
        let detail = problem["detail"].as_str().expect("words");
        assert!(detail.contains("costs more than the limit"), "{detail}");
        assert!(!detail.contains("retry"), "{detail}");
        assert_eq!(problem["violated-policies"], json!(["default"]));
    }

    #[test]
    fn other_problems_have_the_title_of_their_status() {
        assert_eq!(
            problem_of(&Rejection::of(Decision::degraded(Verdict::Unavailable))),
            json!({
                "type": "about:blank",
                "title": "Service Unavailable",
                "status": 503,
                "detail": "the quota cannot be checked at the moment: retry after 1 second",
            })
        );
        let problem = problem_of(&Rejection::missing_key(StatusCode::UNAUTHORIZED));
        assert_eq!(
            (&problem["title"], &problem["status"]),
            (&json!("Unauthorized"), &json!(401))
        );
        let odd = StatusCode::from_u16(499).expect("a status");
        assert_eq!(
            problem_of(&Rejection::missing_key(odd))["title"],
            "Request refused"
        );
    }

    #[test]
    fn head_gets_the_fields_and_no_body() {
        let head = request(Method::HEAD, None);
        let response: Response<String> = DefaultResponse::new().response(&denied(), &head);
        let get: Response<String> = refused(&denied(), None);
        assert_eq!(
            response.headers()[CONTENT_LENGTH],
            get.body().len().to_string().as_str()
        );
        assert_eq!(response.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
        assert_eq!(response.body(), "");
    }

    #[test]
    fn a_body_that_holds_no_text_has_no_content_type() {
        let response: Response<Empty<Bytes>> = refused(&denied(), None);
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(!response.headers().contains_key(CONTENT_TYPE));
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
    }

    #[test]
    fn grpc_calls_get_a_grpc_status() {
        let (mut call, ()) = Request::post("/a/b").body(()).expect("a request").into_parts();
        call.headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let response: Response<String> = DefaultResponse::new().response(&denied(), &call);
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["grpc-status"], "8");
        assert_eq!(response.body(), "");
    }

    #[test]
    fn nothing_that_the_client_sent_comes_back() {
        for accept in ["application/json;x=hunter2", "text/plain;x=hunter2"] {
            let response: Response<String> = refused(&denied(), Some(accept));
            assert!(!format!("{response:?}").contains("hunter2"));
        }
    }

    #[test]
    fn closures_build_responses() {
        let closure = |rejection: &Rejection, request: &Parts| {
            let mut response = Response::new(request.method.to_string());
            *response.status_mut() = rejection.status();
            response
        };
        let builder: &dyn ResponseForRejection<String> = &closure;
        let response = builder.response(&denied(), &request(Method::PUT, None));
        assert_eq!(
            (response.status().as_u16(), response.body().as_str()),
            (429, "PUT")
        );
    }
}
