use http::Request;
use http::header::HOST;

use super::*;

fn parts(method: Method, uri: &str, host: Option<&str>) -> Parts {
    let request = Request::builder().method(method).uri(uri);
    let request = match host {
        Some(host) => request.header(HOST, host),
        None => request,
    };
    request.body(()).unwrap().into_parts().0
}

#[test]
fn rules_speak_in_words() {
    let login = Rule::path("/login");
    for (rule, words) in [
        (Rule::any(), "any request"),
        (login.clone(), "/login"),
        (Rule::any().method(Method::GET), "GET"),
        (Rule::any().method(Method::HEAD), "HEAD"),
        (login.clone().method(Method::POST), "POST /login"),
        (Rule::any().host("a.example"), "any request on a.example"),
        (
            login
                .method(Method::HEAD)
                .method(Method::GET)
                .method(Method::PUT)
                .host("A.example.")
                .host("[0::1]"),
            "GET or PUT /login on a.example or ::1",
        ),
    ] {
        assert_eq!(rule.to_string(), words);
        assert_eq!(format!("{rule:?}"), format!("Rule({words})"));
    }
}

#[test]
fn what_matches_the_same_is_equal() {
    assert_eq!(Rule::path("/users/{id}"), Rule::path("/users/{name}"));
    assert_ne!(Rule::path("/users/{id}"), Rule::path("/users/{*id}"));
    let get = Rule::any().method(Method::GET);
    assert_eq!(get.clone().method(Method::HEAD), get);
    assert_ne!(Rule::any().method(Method::HEAD), get);
    assert_eq!(
        Rule::any().host("a").host("B"),
        Rule::any().host("b").host("a").host("A")
    );
}

#[test]
fn head_joins_get() {
    let get = Rule::any().method(Method::GET);
    let head = Rule::any().method(Method::HEAD);
    for (rule, method, expected) in [
        (&get, Method::GET, true),
        (&get, Method::HEAD, true),
        (&get, Method::POST, false),
        (&head, Method::HEAD, true),
        (&head, Method::GET, false),
    ] {
        assert_eq!(
            rule.holds(&parts(method.clone(), "/", None)),
            expected,
            "{rule} {method}"
        );
    }
}

#[test]
fn hosts_are_compared_as_they_are_counted() {
    let rule = Rule::any().host("API.example.com").host("[2001:db8:0::1]");
    for host in ["api.example.com", "Api.Example.com.:443", "[2001:db8::1]:80"] {
        assert!(rule.holds(&parts(Method::GET, "/", Some(host))), "{host}");
    }
    for host in ["example.com", "www.api.example.com", "a b", ""] {
        assert!(!rule.holds(&parts(Method::GET, "/", Some(host))), "{host}");
    }
    assert!(!rule.holds(&parts(Method::GET, "/", None)));
    assert!(rule.holds(&parts(Method::GET, "https://api.example.com/", None)));
    assert!(!rule.holds(&parts(Method::GET, "https://api.example.com/", Some("b"))));
}

#[test]
fn mistakes_are_named() {
    for host in [
        "",
        "a b",
        "*.example.com",
        "example.com:80",
        "[::1]:80",
        "https://a",
        "é",
    ] {
        let error = Rule::any().try_host(host).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{host}` is no host")), "{error}");
    }
    let error = Rule::try_path("/users/:id").unwrap_err().to_string();
    assert!(
        error.starts_with("`/users/:id` is no path of a rule: write `{id}`"),
        "{error}"
    );
}

#[test]
#[should_panic(expected = "`login` is no path")]
fn a_bad_path_panics() {
    let _ = Rule::path("login");
}

#[test]
#[should_panic(expected = "without a port")]
fn a_bad_host_panics() {
    let _ = Rule::any().host("a:80");
}
