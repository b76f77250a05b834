//! R7: other limits for other routes, and no path is ever a key.

use axum::Router;
use axum::body::Body;
use axum::routing::{any, get, post};
use http::{Method, Request, StatusCode};
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, Rule, Rules, key};
use tower::Layer;
use tower::util::BoxCloneSyncService;

use super::{Decisions, Place, ask, get as get_request, left, statuses};
use crate::support::within;

on_both_stores! {
    the_most_specific_rule_wins_in_any_order,
    rules_join_what_every_request_meets,
    head_joins_get,
    hosts_have_rules_of_their_own,
    methods_have_rules_of_their_own,
    r7_layer_inside_and_outside_of_nested_routers,
    r7_paths_without_a_route_make_no_keys,
    a_rule_without_policies_limits_nothing,
    one_limit_can_be_for_several_rules,
    a_layer_can_stand_on_a_route,
}

/// So much an hour for everybody together.
fn hourly(name: &str, limit: u64) -> Policy {
    Policy::new(name, Quota::per_hour(limit), key::Global)
}

fn request(method: Method, uri: &str) -> Request<Body> {
    let mut request = get_request(uri);
    *request.method_mut() = method;
    request
}

/// Which limits a request meets.
async fn limits(app: &Router, seen: &Decisions, request: Request<Body>) -> Vec<u64> {
    ask(app, request).await;
    let decision = seen.only();
    decision
        .policies()
        .iter()
        .map(tollgate::PolicyDecision::limit)
        .collect()
}

/// Every route there is in these tests.
fn routes() -> Router {
    let hello = async || "hello";
    Router::new()
        .route("/", any(hello))
        .route("/users/{id}", any(hello))
        .route("/users/me", any(hello))
        .route("/users/{id}/posts", any(hello))
        .route("/files/{*rest}", any(hello))
        .route("/other", any(hello))
}

async fn the_most_specific_rule_wins_in_any_order(place: &Place) {
    let all = [
        (Rule::path("/*"), 10),
        (Rule::path("/users/*"), 20),
        (Rule::path("/users/{id}"), 30),
        (Rule::path("/users/me"), 40),
        (Rule::path("/files/{*path}"), 50),
        (Rule::path("/users/{name}").method(Method::POST), 60),
    ];
    for turn in 0..all.len() {
        let rules = (0..all.len()).map(|index| all[(index + turn) % all.len()].clone());
        let rules = rules.fold(Rules::new(vec![]), |rules, (rule, limit)| {
            rules.on(rule, vec![hourly(&limit.to_string(), limit)])
        });
        let seen = Decisions::default();
        let layer = RateLimitLayer::with_policies(place.store(), [])
            .rules(rules)
            .on_decision(seen.clone());
        let app = routes().layer(layer);
        for (method, path, expected) in [
            (Method::GET, "/", 10),
            (Method::GET, "/other", 10),
            (Method::GET, "/users/7", 30),
            (Method::POST, "/users/7", 60),
            (Method::PUT, "/users/7", 30),
            (Method::GET, "/users/me", 40),
            // The path decides before the method does.
            (Method::POST, "/users/me", 40),
            (Method::GET, "/users/7/posts", 20),
            (Method::GET, "/files/a/b", 50),
            (Method::GET, "/no/such/route", 10),
            (Method::GET, "/users/7/none", 20),
        ] {
            let case = format!("{turn}: {method} {path}");
            let limits = limits(&app, &seen, request(method, path)).await;
            assert_eq!(limits, [expected], "{case}");
        }
    }
    assert_eq!(place.keys().await, 6);
}

async fn rules_join_what_every_request_meets(place: &Place) {
    let rules = Rules::new(vec![hourly("rest", 8)]).on(
        Rule::path("/users/{id}"),
        vec![hourly("user", 2), hourly("deep", 9)],
    );
    let seen = Decisions::default();
    let layer = RateLimitLayer::with_policies(place.store(), [hourly("all", 5)])
        .rules(rules)
        .on_decision(seen.clone());
    let app = routes().layer(layer.clone());
    assert_eq!(limits(&app, &seen, get_request("/users/1")).await, [5, 2, 9]);
    assert_eq!(limits(&app, &seen, get_request("/other")).await, [5, 8]);
    let of_users = statuses(&app, 3, || get_request("/users/2")).await;
    assert_eq!(of_users, [200, 429, 429]);
    // C5 across the two kinds.
    assert_eq!(left(&layer, "all", get_request("/elsewhere")).await, 2);
    assert_eq!(statuses(&app, 3, || get_request("/other")).await, [200, 200, 429]);
    assert_eq!(left(&layer, "rest", get_request("/elsewhere")).await, 5);
    // Every policy has a handle, and is there without HTTP.
    for policy in ["all", "rest", "user", "deep"] {
        assert!(layer.handle(policy).is_some(), "{policy}");
        assert!(layer.limiter().only(policy).is_some(), "{policy}");
    }
    assert_eq!(layer.limiter().policies().len(), 4);
}

async fn head_joins_get(place: &Place) {
    let rules = Rules::new(vec![]).on(Rule::path("/").method(Method::GET), vec![hourly("read", 4)]);
    let layer = RateLimitLayer::with_policies(place.store(), []).rules(rules);
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    for (method, remaining) in [
        (Method::HEAD, 3),
        (Method::GET, 2),
        (Method::HEAD, 1),
        (Method::HEAD, 0),
    ] {
        let reply = ask(&app, request(method, "/")).await;
        assert_eq!(reply.number("x-ratelimit-remaining"), remaining);
    }
    for method in [Method::HEAD, Method::GET] {
        let reply = ask(&app, request(method, "/")).await;
        assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
    }
    let reply = ask(&app, request(Method::POST, "/")).await;
    assert_eq!(reply.status, StatusCode::METHOD_NOT_ALLOWED);
    // With a key of the method, too.
    assert_eq!(place.keys().await, 1);
}

async fn methods_have_rules_of_their_own(place: &Place) {
    let rules = Rules::new(vec![hourly("rest", 9)])
        .on(
            Rule::any().method(Method::POST).method(Method::PUT),
            vec![hourly("write", 2)],
        )
        .on(Rule::any().method(Method::GET), vec![hourly("read", 3)]);
    let layer = RateLimitLayer::with_policies(place.store(), []).rules(rules);
    let app = routes().layer(layer);
    let mut statuses = Vec::new();
    for method in [
        Method::POST,
        Method::PUT,
        Method::POST,
        Method::GET,
        Method::DELETE,
    ] {
        statuses.push(ask(&app, request(method, "/other")).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 200, 200]);
}

async fn hosts_have_rules_of_their_own(place: &Place) {
    let rules = Rules::new(vec![hourly("rest", 9)])
        .on(Rule::any().host("api.example.com"), vec![hourly("api", 5)])
        .on(
            Rule::path("/other").host("api.example.com"),
            vec![hourly("other", 3)],
        );
    let seen = Decisions::default();
    let layer = RateLimitLayer::with_policies(place.store(), [])
        .rules(rules)
        .on_decision(seen.clone());
    let app = routes().layer(layer);
    let to = |host: &str, path: &str| {
        let mut request = get_request(path);
        request
            .headers_mut()
            .insert("host", host.parse().expect("a value"));
        request
    };
    for (host, path, expected) in [
        ("api.example.com", "/", 5),
        ("API.Example.com.:8443", "/", 5),
        ("api.example.com:80", "/other", 3),
        ("www.example.com", "/other", 9),
        ("api.example.com.evil.example", "/", 9),
        ("", "/", 9),
    ] {
        assert_eq!(
            limits(&app, &seen, to(host, path)).await,
            [expected],
            "{host} {path}"
        );
    }
    assert_eq!(limits(&app, &seen, get_request("/other")).await, [9]);
    // A client can name what it likes: that is a rule at most, and never a key.
    assert_eq!(place.keys().await, 3);
}

/// The same rules around the whole router, on it, within a nested one, and around a nested one.
fn placements(layer: &RateLimitLayer) -> [(&'static str, Router); 4] {
    let users = || {
        Router::new()
            .route("/users/{id}", any(async || "user"))
            .route("/login", post(async || "login"))
    };
    let api = |users: Router| Router::new().nest("/api/{version}", users);
    // Boxed, to be a router's only service: nothing has been matched when the layer runs.
    let around = BoxCloneSyncService::new(layer.layer(api(users())));
    [
        ("around", Router::new().fallback_service(around)),
        ("on", api(users()).layer(layer.clone())),
        ("within", api(users().layer(layer.clone()))),
        ("on routes within", api(users().route_layer(layer.clone()))),
    ]
}

async fn r7_layer_inside_and_outside_of_nested_routers(place: &Place) {
    for (number, name) in ["around", "on", "within", "on routes within"]
        .into_iter()
        .enumerate()
    {
        let store = place.fresh(&format!("case-{number}")).await;
        let rules = Rules::new(vec![hourly("rest", 99)])
            .on(Rule::path("/api/{version}/users/{id}"), vec![hourly("user", 3)])
            .on(
                Rule::path("/api/{version}/login").method(Method::POST),
                vec![hourly("login", 2)],
            );
        let layer = RateLimitLayer::with_policies(store, []).rules(rules);
        let (placed, app) = placements(&layer).into_iter().nth(number).expect("as many");
        assert_eq!(placed, name);
        let mut statuses = Vec::new();
        for path in [
            "/api/v1/users/1",
            "/api/v2/users/2",
            "/api/v1/users/3",
            "/api/v1/users/4",
        ] {
            statuses.push(ask(&app, get_request(path)).await.status.as_u16());
        }
        assert_eq!(statuses, [200, 200, 200, 429], "{name}");
        let mut statuses = Vec::new();
        for _ in 0..3 {
            let login = request(Method::POST, "/api/v1/login");
            statuses.push(ask(&app, login).await.status.as_u16());
        }
        assert_eq!(statuses, [200, 200, 429], "{name}");
        // No other spelling gets around a rule: where it finds no route, it reaches no handler either.
        for path in [
            "/api/v1/users/4/",
            "//api/v1/users/4",
            "/api/v1//users/4",
            "/API/v1/users/4",
        ] {
            let status = ask(&app, get_request(path)).await.status;
            assert_eq!(status, StatusCode::NOT_FOUND, "{name}: {path}");
        }
        // An escaped letter is the same route to a router that decodes, and must be the same to the rules.
        let escaped = ask(&app, get_request("/api/v1/users/%34")).await.status;
        assert_eq!(escaped, StatusCode::TOO_MANY_REQUESTS, "{name}");
    }
}

async fn r7_paths_without_a_route_make_no_keys(place: &Place) {
    let by_route = Policy::new("route", Quota::per_hour(1_000), key::MatchedPath);
    let rules = Rules::new(vec![Policy::new(
        "rest",
        Quota::per_hour(1_000),
        key::MatchedPath,
    )])
    .on(
        Rule::path("/users/{id}"),
        vec![Policy::new("user", Quota::per_hour(1_000), key::MatchedPath)],
    )
    .on(
        Rule::path("/users/*"),
        vec![Policy::new("users", Quota::per_hour(1_000), key::MatchedPath)],
    );
    let layer = RateLimitLayer::with_policies(place.store(), [by_route]).rules(rules);
    let inside = routes().layer(layer.clone());
    let outside = Router::new().fallback_service(BoxCloneSyncService::new(layer.layer(routes())));
    for app in [&inside, &outside] {
        for number in 0..40 {
            for path in [
                format!("/none/{number}"),
                format!("/users/{number}"),
                format!("/users/{number}/posts"),
                format!("/users/{number}/none/{number}"),
                format!("/files/{number}/x"),
                format!("//other/{number}?{number}"),
            ] {
                ask(app, get_request(&path)).await;
            }
        }
    }
    let names = place.names().await;
    // Routes `none`, `/users/{id}`, `/users/{id}/posts` and `/files/{*rest}`, each with the policies it meets.
    assert_eq!(place.keys().await, 10, "{names:#?}");
    for name in names {
        let subject = name.split(['{', '}']).nth(1).expect("it has a subject");
        assert!(
            [
                "route:none=",
                "route=/users/%7Bid%7D",
                "route=/users/%7Bid%7D/posts",
                "route=/files/%7B*rest%7D"
            ]
            .contains(&subject),
            "{name}"
        );
    }
}

async fn a_rule_without_policies_limits_nothing(place: &Place) {
    let rules = Rules::new(vec![hourly("rest", 1)]).on(Rule::path("/other"), vec![]);
    let seen = Decisions::default();
    let layer = RateLimitLayer::with_policies(place.store(), [])
        .rules(rules)
        .on_decision(seen.clone());
    let app = routes().layer(layer);
    assert_eq!(statuses(&app, 3, || get_request("/other")).await, [200; 3]);
    for decision in seen.take() {
        assert_eq!(decision.source(), tollgate::Source::Exempt);
    }
    assert_eq!(statuses(&app, 2, || get_request("/")).await, [200, 429]);
}

async fn one_limit_can_be_for_several_rules(place: &Place) {
    let costly = hourly("costly", 10);
    let rules = Rules::new(vec![])
        .on(Rule::path("/users/me"), vec![costly.clone()])
        .on(Rule::path("/other"), vec![costly.clone().cost(4)]);
    let layer = RateLimitLayer::with_policies(place.store(), []).rules(rules);
    let app = routes().layer(layer.clone());
    for (path, remaining) in [("/other", 6), ("/users/me", 5), ("/other", 1)] {
        let reply = ask(&app, get_request(path)).await;
        assert_eq!(reply.number("x-ratelimit-remaining"), remaining, "{path}");
    }
    assert_eq!(statuses(&app, 1, || get_request("/other")).await, [429]);
    assert_eq!(statuses(&app, 2, || get_request("/users/me")).await, [200, 429]);
    // One handle changes it everywhere, and it is one policy.
    layer
        .handle("costly")
        .expect("it is there")
        .set_quota(Quota::per_hour(14));
    assert_eq!(statuses(&app, 1, || get_request("/other")).await, [200]);
    assert_eq!(layer.limiter().policies().len(), 1);
    assert_eq!(place.keys().await, 1);
}

async fn a_layer_can_stand_on_a_route(place: &Place) {
    let layer = |name: &str, limit| {
        RateLimitLayer::new(place.store(), Quota::per_hour(limit), key::Global).name(name)
    };
    let app = Router::new()
        .route("/login", post(async || "login").layer(layer("login", 1)))
        .route("/users/{id}", get(async || "user"))
        .route_layer(layer("route", 3))
        .route("/free", get(async || "free"));
    let login = || request(Method::POST, "/login");
    assert_eq!(statuses(&app, 2, login).await, [200, 429]);
    assert_eq!(statuses(&app, 2, || get_request("/users/1")).await, [200, 429]);
    assert_eq!(statuses(&app, 4, || get_request("/free")).await, [200; 4]);
    assert_eq!(statuses(&app, 4, || get_request("/none")).await, [404; 4]);
}

#[tokio::test]
async fn rules_hold_over_sockets() {
    let rules = Rules::new(vec![]).on(
        Rule::path("/users/{id}").host("localhost"),
        vec![hourly("user", 1)],
    );
    let layer = RateLimitLayer::with_policies(MemoryStore::new(), []).rules(rules);
    let address = crate::support::serve(routes().layer(layer)).await;
    let by_name = |path: &str| {
        let mut request = crate::support::request(address, path);
        request
            .headers_mut()
            .insert("host", "localhost:9".parse().expect("a value"));
        request
    };
    let mut statuses = Vec::new();
    for request in [
        by_name("/users/1"),
        by_name("/users/2"),
        crate::support::request(address, "/users/3"),
        by_name("/other"),
    ] {
        statuses.push(within(crate::support::send(request)).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 429, 200, 200]);
}
