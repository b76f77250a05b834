//! R38: the examples do what they say, as processes of their own.

use std::process::Stdio;

use http::{Method, StatusCode};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::support::{self, Example, command, within};

#[tokio::test]
async fn r38_quickstart() {
    let mut example = Example::run("quickstart").await;
    assert_eq!(example.remark, ", counting in this process");
    let hints = example.lines(4).await;
    let curl = format!("curl -i http://{}/; done", example.address);
    assert!(hints.contains(&curl), "{hints}");
    assert!(hints.contains("curl -i -H 'x-api-key: alice'"), "{hints}");

    for more in (0..5).rev() {
        let reply = example.get("/").await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.body, format!("hello, {more} more\n"));
        assert_eq!(reply.number("x-ratelimit-limit"), 5);
        assert_eq!(reply.number("x-ratelimit-remaining"), more);
        assert!((9..=10).contains(&reply.number("x-ratelimit-reset")));
    }
    let refused = example.get("/").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!((1..=10).contains(&refused.number("retry-after")));
    // A key has a count of its own.
    for expected in [200, 200, 200, 200, 200, 429] {
        let reply = example.get_with("/", "x-api-key", "alice").await;
        assert_eq!(reply.status, expected);
    }
    assert_eq!(
        example.get_with("/", "x-api-key", "bob").await.status,
        StatusCode::OK
    );
    assert_eq!(example.get("/").await.status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn r38_per_route() {
    let example = Example::run("per_route").await;
    let mut logins = Vec::new();
    for _ in 0..4 {
        let mut login = support::request(example.address, "/login");
        *login.method_mut() = Method::POST;
        logins.push(support::send(login).await.status.as_u16());
    }
    assert_eq!(logins, [200, 200, 200, 429]);
    // Users count together, whichever they are; searches and logins on their own.
    for user in 1..=5 {
        let reply = example.get(&format!("/users/{user}")).await;
        assert_eq!(reply.body, format!("user {user}\n"));
    }
    assert_eq!(
        example.get("/users/6").await.status,
        StatusCode::TOO_MANY_REQUESTS
    );
    assert_eq!(
        example.statuses("/search", 6).await,
        [200, 200, 200, 200, 200, 429]
    );
    assert_eq!(example.statuses("/none", 9).await, [404; 9]);
}

#[tokio::test]
async fn r38_tiers() {
    let example = Example::run("tiers").await;
    let get = async |path: &str, token: &str| {
        let token = format!("Bearer {token}");
        example.get_with(path, "authorization", &token).await
    };
    for remaining in (0..5).rev() {
        let reply = get("/", "free-token").await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.number("x-ratelimit-limit"), 5);
        assert_eq!(reply.number("x-ratelimit-remaining"), remaining);
    }
    let refused = get("/", "free-token").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!((50..=60).contains(&refused.number("retry-after")));
    // An export costs more than the free plan ever has, so there is no point in waiting.
    let never = get("/export", "free-token").await;
    assert_eq!(never.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(never.header("retry-after"), None);
    for remaining in [75, 50, 25, 0] {
        let reply = get("/export", "pro-token").await;
        assert_eq!(reply.body, "all of it\n");
        assert_eq!(reply.number("x-ratelimit-remaining"), remaining);
    }
    assert_eq!(get("/", "pro-token").await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(get("/", "no-token").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(example.get("/").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn r38_custom_key() {
    let example = Example::run("custom_key").await;
    for remaining in (0..3).rev() {
        let reply = example.get("/?tenant=acme").await;
        assert_eq!((reply.status, reply.body.as_str()), (StatusCode::OK, "hello\n"));
        let field = reply.header("ratelimit").expect("it is there");
        assert!(
            field.starts_with(&format!("\"3-per-60s\";r={remaining};t=")),
            "{field}"
        );
        assert_eq!(reply.header("ratelimit-policy"), Some("\"3-per-60s\";q=3;w=60"));
    }
    let refused = example.get("/?tenant=acme").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let wait = refused
        .body
        .strip_prefix("come back in ")
        .and_then(|rest| rest.strip_suffix(" s\n"))
        .expect("its own words");
    assert_eq!(wait, refused.header("retry-after").expect("it is there"));
    let wait: u64 = wait.parse().expect("a number");
    assert!((50..=60).contains(&wait), "{wait}");
    assert_eq!(example.get("/?a=b&tenant=umbrella").await.status, StatusCode::OK);
    for path in ["/", "/?tenant=invented", "/?tenant="] {
        let reply = example.get(path).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (StatusCode::BAD_REQUEST, "who are you?\n")
        );
    }
}

#[tokio::test]
async fn r38_hyper() {
    let example = Example::run("hyper").await;
    assert_eq!(example.statuses("/", 5).await, [200, 200, 200, 429, 429]);
    let refused = example.get("/").await;
    assert!((50..=60).contains(&refused.number("retry-after")));
    assert!(
        refused.body.starts_with("quota exceeded: retry after "),
        "{}",
        refused.body
    );
}

#[tokio::test]
async fn examples_say_what_is_wrong() {
    for (name, variable, value, words) in [
        ("service", "LIMIT", "foo", "write `100/minute`"),
        ("service", "INSTANCES", "x", "INSTANCES=1"),
        ("service", "INSTANCES", "0", "INSTANCES=1"),
        ("service", "LISTEN", "zzz", "LISTEN=127.0.0.1:8081"),
        ("service", "REDIS_URL", "127.0.0.1", "redis://host:port"),
        ("quickstart", "REDIS_URL", "127.0.0.1", "redis://host:port"),
        ("quickstart", "PORT", "abc", "PORT=3001"),
        ("per_route", "PORT", "abc", "PORT=3001"),
        ("tiers", "PORT", "abc", "PORT=3001"),
        ("custom_key", "PORT", "abc", "PORT=3001"),
        ("hyper", "PORT", "abc", "PORT=3001"),
    ] {
        let run = within(command(name, &[(variable, value)]).output()).await;
        let output = run.expect("it can be started");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {errors}");
        assert!(
            errors.contains(variable) && errors.contains(words),
            "{name}: {errors}"
        );
        // Neither the debug form of an error nor a trace.
        assert!(
            errors.lines().count() == 1 && !errors.contains('{'),
            "{name}: {errors}"
        );
    }
}

#[tokio::test]
async fn empty_variables_are_not_set() {
    let unset = [
        ("REDIS_URL", ""),
        ("LIMIT", ""),
        ("INSTANCES", ""),
        ("HOSTNAME", ""),
    ];
    let service = Example::run_with("service", &unset).await;
    let reply = service.get_with("/", "x-forwarded-for", "198.51.100.7").await;
    assert_eq!(reply.body, format!("hello from {}, 9 more\n", service.address));
    let quickstart = Example::run_with("quickstart", &unset).await;
    assert_eq!(quickstart.remark, ", counting in this process");
}

#[tokio::test]
async fn no_limit_is_no_number() {
    let service = Example::run_with("service", &[("LIMIT", "unlimited")]).await;
    let reply = service.get_with("/", "x-forwarded-for", "198.51.100.7").await;
    assert_eq!(
        reply.body,
        format!("hello from {}, without a limit\n", service.address)
    );
}

#[tokio::test]
async fn examples_warn_when_redis_is_away() {
    for name in ["quickstart", "service"] {
        // Nobody listens there.
        let mut child = command(name, &[("REDIS_URL", "redis://:secret@127.0.0.1:1/")])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let mut errors = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let line = within(errors.next_line()).await.expect("it can be read");
        let line = line.expect("it says something");
        assert!(
            line.contains("WARN") && line.contains("127.0.0.1:1") && !line.contains("secret"),
            "{name}: {line}"
        );
    }
}
