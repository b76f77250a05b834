//! R38: the examples do what they say, as processes of their own.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;

use http::{Method, StatusCode};
use http_body_util::Full;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use crate::support::{self, Example, Reply, command, within};

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
async fn r38_quickstart_limits_who_invents_keys() {
    let example = Example::run("quickstart").await;
    let mut statuses = Vec::new();
    for number in 0..22 {
        let key = format!("invented-{number}");
        let reply = example.get_with("/", "x-api-key", &key).await;
        statuses.push(reply.status.as_u16());
    }
    assert_eq!(statuses[..20], [200; 20]);
    assert_eq!(statuses[20..], [429; 2]);
    assert_eq!(example.get("/").await.status, StatusCode::TOO_MANY_REQUESTS);
}

async fn post(example: &Example, path: &str, user: &str, body: &'static str) -> Reply {
    let mut request = support::request(example.address, path);
    *request.method_mut() = Method::POST;
    let user = user.parse().expect("a value");
    request.headers_mut().insert("x-api-key", user);
    *request.body_mut() = Full::from(body);
    support::send(request).await
}

#[tokio::test]
async fn r38_login() {
    let example = Example::run("login").await;
    // More than the limit allows, as right ones are given back.
    for _ in 0..8 {
        let reply = post(&example, "/login/ben", "", "correct-horse").await;
        assert_eq!((reply.status, reply.body.as_str()), (StatusCode::OK, "welcome\n"));
    }
    let example = Arc::new(example);
    let mut guesses = JoinSet::new();
    for _ in 0..50 {
        let example = Arc::clone(&example);
        guesses.spawn(async move { post(&example, "/login/ann", "", "guess").await });
    }
    let guesses = within(guesses.join_all()).await;
    let with = |status: StatusCode| guesses.iter().filter(|reply| reply.status == status).count();
    assert_eq!(with(StatusCode::UNAUTHORIZED), 5);
    assert_eq!(with(StatusCode::TOO_MANY_REQUESTS), 45);
    // Who does not stop is blocked for longer than the limit's minute.
    let blocked = post(&example, "/login/ben", "", "correct-horse").await;
    assert_eq!(blocked.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(
        (280..=300).contains(&blocked.number("retry-after")),
        "{blocked:?}"
    );
}

/// The status of a wrong guess from another of the loopback's addresses.
async fn guess_from(host: u8, example: &Example, path: &str) -> u16 {
    let socket = TcpSocket::new_v4().expect("a socket");
    let from = SocketAddr::from(([127, 0, 0, host], 0));
    socket.bind(from).expect("a loopback address");
    let mut stream = within(socket.connect(example.address)).await.expect("it listens");
    let request =
        format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 5\r\n\r\nguess");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut reply = String::new();
    within(stream.read_to_string(&mut reply))
        .await
        .expect("it answers");
    reply
        .split(' ')
        .nth(1)
        .expect("a status")
        .parse()
        .expect("a number")
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn r38_login_counts_an_account_however_its_path_is_written() {
    let example = Example::run("login").await;
    for host in 2..=5 {
        for path in [
            "/login/ann",
            "/login/a%6en",
            "/login/%61nn",
            "/login/ann",
            "/login/an%6E",
        ] {
            assert_eq!(guess_from(host, &example, path).await, 401, "{host} {path}");
        }
    }
    for (host, path) in [(6, "/login/ann"), (7, "/login/a%6en")] {
        assert_eq!(guess_from(host, &example, path).await, 429, "{path}");
    }
    assert_eq!(guess_from(8, &example, "/login/ben").await, 401);
}

#[tokio::test]
async fn r38_tokens() {
    let example = Example::run("tokens").await;
    let budget = async |user| {
        let reply = example.get_with("/budget", "x-api-key", user).await;
        reply.body
    };
    assert_eq!(budget("ann").await, "1000 tokens left\n");
    // 6 words, and twice as many.
    let reply = post(&example, "/complete", "ann", "to be or not to be").await;
    assert_eq!(reply.body, "to be or not to be to be or not to be\n");
    assert_eq!(reply.number("x-ratelimit-remaining"), 900, "what was known then");
    assert_eq!(budget("ann").await, "982 tokens left\n");
    // 6 words and 38 bytes, 4 to a token.
    let reply = post(&example, "/stream", "ann", "to be or not to be").await;
    assert_eq!(reply.body.len(), 38);
    let mut left = budget("ann").await;
    // Settled when the server has let go of the body.
    within(async {
        while left == "882 tokens left\n" {
            left = budget("ann").await;
        }
    })
    .await;
    assert_eq!(left, "966 tokens left\n");
    assert_eq!(budget("ben").await, "1000 tokens left\n");
    // The estimate must fit, whatever the real number will be.
    let mut statuses = Vec::new();
    for _ in 0..60 {
        statuses.push(
            post(&example, "/complete", "ben", "to be or not to be")
                .await
                .status,
        );
    }
    // 1000 - 18 n >= 100 holds for 51 answers.
    assert!(
        statuses[..51].iter().all(|status| *status == StatusCode::OK),
        "{statuses:?}"
    );
    assert!(
        statuses[51..]
            .iter()
            .all(|status| *status == StatusCode::TOO_MANY_REQUESTS)
    );
    assert_eq!(budget("ben").await, "82 tokens left\n");
}

#[tokio::test]
async fn r38_live() {
    let mut example = Example::run("live").await;
    let put = async |example: &Example, path: &str, body: &'static str| {
        let mut request = support::request(example.address, path);
        *request.method_mut() = Method::PUT;
        *request.body_mut() = Full::from(body);
        support::send(request).await
    };
    assert_eq!(
        example.get("/admin/api").await.body,
        "api: 5 per minute, enforce\n"
    );
    assert_eq!(example.statuses("/", 6).await, [200, 200, 200, 200, 200, 429]);
    assert_eq!(example.lines(1).await, "api is violated in mode Enforce\n");

    let reply = put(&example, "/admin/api/quota", "7/minute").await;
    assert_eq!(reply.body, "api: 7 per minute, enforce\n");
    assert_eq!(example.statuses("/", 3).await, [200, 200, 429]);
    assert_eq!(example.lines(1).await, "api is violated in mode Enforce\n");

    let reply = put(&example, "/admin/api/mode", "shadow").await;
    assert_eq!(reply.body, "api: 7 per minute, shadow\n");
    let reply = example.get("/").await;
    assert_eq!(reply.status, StatusCode::OK);
    let shadow = reply.header("x-ratelimit-shadow").expect("it is there");
    assert!(
        shadow.starts_with("\"api\";r=0;t=") && shadow.ends_with(";denied"),
        "{shadow}"
    );
    assert_eq!(example.lines(1).await, "api is violated in mode Shadow\n");

    put(&example, "/admin/api/mode", "off").await;
    assert_eq!(example.get("/").await.limit_fields(), [""; 0]);
    put(&example, "/admin/api/mode", "enforce").await;
    assert_eq!(example.get("/").await.status, StatusCode::TOO_MANY_REQUESTS);

    for (path, body, status) in [
        ("/admin/none/mode", "off", 404),
        ("/admin/api/mode", "maybe", 400),
        ("/admin/api/quota", "many", 400),
    ] {
        let reply = put(&example, path, body).await;
        assert_eq!(reply.status, status, "{path}: {}", reply.body);
    }
    let reply = put(&example, "/admin/api/mode", "maybe").await;
    assert!(
        reply.body.contains("use `enforce`, `shadow` or `off`"),
        "{}",
        reply.body
    );
    assert_eq!(
        example.get("/admin/api").await.body,
        "api: 7 per minute, enforce\n"
    );
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
        ("login", "PORT", "abc", "PORT=3001"),
        ("tokens", "PORT", "abc", "PORT=3001"),
        ("live", "PORT", "abc", "PORT=3001"),
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
