//! Rules against axum's own router.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request as AxumRequest;
use axum::middleware::{Next, from_fn};
use axum::routing::{any, get, post};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tower::{Layer, ServiceExt};

use super::pattern::{Pattern, Tail};
use super::{Rule, Rules};
use crate::fixtures::ready;

type Chosen = &'static str;

/// Notes what rules choose where it stands.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn note<T: ToString>(&self, rules: &Rules<T>, request: AxumRequest) -> AxumRequest {
        let (parts, body) = request.into_parts();
        self.0.lock().unwrap().push(rules.choose(&parts).to_string());
        AxumRequest::from_parts(parts, body)
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A middleware that notes what `rules` choose.
macro_rules! noting {
    ($notes:expr, $rules:expr) => {{
        let (notes, rules) = ($notes.clone(), $rules.clone());
        from_fn(move |request: AxumRequest, next: Next| next.run(notes.note(&rules, request)))
    }};
}

fn call(
    app: impl tower::Service<AxumRequest, Response = axum::response::Response, Error = std::convert::Infallible>,
    method: Method,
    path: &str,
) -> (StatusCode, String) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .body(Body::empty())
        .unwrap();
    let response = ready(app.oneshot(request)).unwrap();
    let status = response.status();
    let body = ready(response.into_body().collect()).unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// A router that answers as the rules choose, with them inside and outside.
fn placed(
    rules: &Rules<Chosen>,
    notes: &Notes,
) -> impl tower::Service<AxumRequest, Response = axum::response::Response, Error = std::convert::Infallible>
+ Clone
+ use<> {
    let users = Router::new()
        .route("/", get("index"))
        .route("/users/me", get("me"))
        .route("/users/{id}", get("user").post("user"))
        .fallback(async || (StatusCode::NOT_FOUND, "nested fallback"))
        .layer(noting!(notes, rules));
    let app = Router::new()
        .nest("/api/{version}", users)
        .route("/login", post("login"))
        .route_service("/pkg.Greeter/{*rest}", any("greeter"))
        .fallback(async || (StatusCode::NOT_FOUND, "fallback"))
        .layer(noting!(notes, rules));
    noting!(notes, rules).layer(app)
}

#[test]
fn r7_rules_choose_alike_inside_outside_and_in_nested_routers() {
    let rules = Rules::new("otherwise")
        .on(Rule::path("/api/*"), "api")
        .on(Rule::path("/api/{version}/users/me"), "me")
        .on(Rule::path("/api/{v}/users/{user}"), "user")
        .on(Rule::path("/api/{v}/users/{user}").method(Method::POST), "write")
        .on(Rule::path("/login").method(Method::POST), "login")
        .on(Rule::path("/pkg.Greeter/SayHello"), "hello")
        .on(Rule::path("/pkg.Greeter/*"), "greeter")
        .checked();
    let notes = Notes::default();
    let app = placed(&rules, &notes);
    for (method, path, answer, chosen) in [
        (Method::GET, "/api/v1/users/7", "user", "user"),
        (Method::HEAD, "/api/v1/users/7", "", "user"),
        (Method::POST, "/api/v1/users/7", "user", "write"),
        (Method::GET, "/api/v1/users/me", "me", "me"),
        (Method::GET, "/api/v1", "index", "api"),
        (Method::GET, "/api/v1/elsewhere", "nested fallback", "api"),
        (Method::POST, "/login", "login", "login"),
        (Method::GET, "/login", "", "otherwise"),
        (Method::POST, "/pkg.Greeter/SayHello", "greeter", "hello"),
        (Method::POST, "/pkg.Greeter/SayBye", "greeter", "greeter"),
        // Other spellings of a path are other paths, for axum too.
        (Method::POST, "/login/", "fallback", "otherwise"),
        (Method::POST, "//login", "fallback", "otherwise"),
        (Method::POST, "/log%69n", "fallback", "otherwise"),
        (Method::GET, "/elsewhere", "fallback", "otherwise"),
    ] {
        assert_eq!(
            call(app.clone(), method.clone(), path).1,
            answer,
            "{method} {path}"
        );
        let notes = notes.taken();
        let places = if path.starts_with("/api") { 3 } else { 2 };
        assert_eq!(notes, vec![chosen; places], "{method} {path}");
    }
}

#[test]
fn without_rules_for_all_routes_only_the_inside_knows_them() {
    let rules = Rules::new("otherwise").on(Rule::path("/api/{v}/users/{id}"), "user");
    let notes = Notes::default();
    call(placed(&rules, &notes), Method::GET, "/api/v1/users/me");
    assert_eq!(notes.taken(), ["user", "otherwise", "otherwise"]);
}

/// Patterns that axum takes together.
fn routes() -> impl Strategy<Value = Vec<String>> {
    let segment = select(
        &[
            "/a", "/ab", "/abc", "/{x}", "/{y}", "/a{x}", "/b{x}", "/", "/{{x}}",
        ][..],
    );
    let pattern = (vec(segment, 1..4), select(&["", "", "", "/{*rest}"][..]));
    let text = pattern.prop_map(|(segments, tail)| segments.concat() + tail);
    vec(text, 1..9).prop_map(|texts| {
        let mut routes: Vec<String> = Vec::new();
        for text in texts {
            let patterns = routes.iter().map(|route| Pattern::parse(route).unwrap());
            if !patterns
                .into_iter()
                .any(|other| conflicts(&Pattern::parse(&text).unwrap(), &other))
            {
                routes.push(text);
            }
        }
        routes
    })
}

/// Whether axum refuses one beside the other: equal ones, and a parameter where the other one has `{*rest}`.
fn conflicts(a: &Pattern, b: &Pattern) -> bool {
    let has_rest_at_a_parameter_of = |a: &Pattern, b: &Pattern| {
        let at = a.segments().len();
        a.tail() == Tail::Rest
            && b.segments().starts_with(a.segments())
            && matches!(b.segments().get(at), Some(super::segment::Segment::Param(prefix)) if prefix.is_empty())
    };
    a == b || has_rest_at_a_parameter_of(a, b) || has_rest_at_a_parameter_of(b, a)
}

fn path() -> impl Strategy<Value = String> {
    let segment = select(&["/a", "/ab", "/abc", "/abcd", "/b", "/bc", "/c", "/", "/{x}"][..]);
    vec(segment, 1..5).prop_map(|segments| segments.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn paths_find_the_rule_of_the_route_that_axum_finds(routes in routes(), paths in vec(path(), 16)) {
        let rules = routes
            .iter()
            .fold(Rules::new(String::new()), |rules, route| rules.on(Rule::path(route), route.clone()))
            .checked();
        let notes = Notes::default();
        let app = routes.iter().fold(Router::new(), |app, route| {
            let answer = route.clone();
            app.route(route, any(async move || answer))
        });
        let app = noting!(notes, rules).layer(app.fallback(async || "").layer(noting!(notes, rules)));
        for path in paths {
            let (_, answer) = call(app.clone(), Method::GET, &path);
            prop_assert_eq!(notes.taken(), vec![answer; 2], "{} {:?}", path, routes);
        }
    }
}
