//! A limit as a configuration file says it.

use http::{Method, Request, Response, StatusCode};
use tollgate::config::{CustomKeys, LayerConfig};
use tollgate::{MemoryStore, RateLimitLayer, Source, key};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::clocked;

const FILE: &str = r#"
skip-when = [{ paths = ["/healthz"] }, { client-ip = ["203.0.113.0/24"] }]

[client-ip]
trusted-hops = 1

[headers]
x-ratelimit = "off"
ietf = "v8"

[[policies]]
name = "client"
quota = "3/minute"
key = "client-ip"

[[rules]]
paths = ["/login", "/password/*"]
methods = ["POST"]
policies = [
    { name = "login", quota = "2/minute", key = "client-ip", give-back-on = ["2xx"], skip-when = [{ hosts = ["test.example.com"] }] },
]

[[rules]]
paths = ["/api/*"]
policies = [
    { name = "key", quota = "2/minute", key = "header:x-api-key", missing-key = { reject = 401 }, allow-keys = ["k-internal"], cost = { rules = [{ methods = ["PUT"], cost = 2 }] } },
]

[[rules]]
paths = ["/account"]
policies = [{ name = "account", quota = "1/minute", key = "custom:account" }]
"#;

#[derive(Clone)]
struct Account(u64);

fn layer() -> RateLimitLayer {
    let config: LayerConfig = toml::from_str(FILE).expect("a configuration");
    let keys = CustomKeys::new().with(
        "account",
        key::extension("account", |account: &Account| account.0),
    );
    config.layer_with(MemoryStore::new(), &keys).expect("a layer")
}

/// The status of a response whose service answers with the status that the request asks for.
async fn send(layer: &RateLimitLayer, request: http::request::Builder) -> Response<String> {
    let service = layer.layer(service_fn(|request: Request<()>| async move {
        let status = request.headers().get("wanted").map_or(StatusCode::OK, |wanted| {
            StatusCode::from_bytes(wanted.as_bytes()).expect("a status")
        });
        let mut response = Response::new(String::new());
        *response.status_mut() = status;
        response.extensions_mut().extend(request.extensions().clone());
        Ok::<_, std::convert::Infallible>(response)
    }));
    service
        .oneshot(request.body(()).expect("a request"))
        .await
        .expect("it does not fail")
}

fn from(client: &str, method: Method, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("x-forwarded-for", client)
}

#[tokio::test]
async fn policies_hold_for_all_requests() {
    let layer = layer();
    for (request, expected) in [(1, 200), (2, 200), (3, 200), (4, 429)] {
        let response = send(&layer, from("192.0.2.1", Method::GET, "/")).await;
        assert_eq!(response.status(), expected, "{request}");
        assert!(response.headers().contains_key("ratelimit"));
        assert!(!response.headers().contains_key("x-ratelimit-limit"));
    }
    let other = send(&layer, from("192.0.2.2", Method::GET, "/")).await;
    assert_eq!(other.status(), 200);
    assert_eq!(other.headers()["ratelimit-policy"], r#""client";q=3;w=60"#);
}

#[tokio::test]
async fn what_is_skipped_is_not_counted() {
    let layer = layer();
    for request in 0..10 {
        for (client, path) in [("192.0.2.1", "/healthz"), ("203.0.113.9", "/")] {
            let response = send(&layer, from(client, Method::GET, path)).await;
            assert_eq!(response.status(), 200, "{request} {path}");
            let decision = response
                .extensions()
                .get::<tollgate::Decision>()
                .expect("a decision");
            assert_eq!(decision.source(), Source::Exempt);
        }
    }
}

#[tokio::test]
async fn paths_of_a_rule_share_their_policies_and_successes_are_given_back() {
    let layer = layer();
    let wrong = |client, path| from(client, Method::POST, path).header("wanted", "403");
    assert_eq!(send(&layer, wrong("192.0.2.1", "/login")).await.status(), 403);
    let right = send(&layer, from("192.0.2.1", Method::POST, "/login")).await;
    assert_eq!(right.status(), 200);
    assert_eq!(layer.shutdown().await, 0);
    assert_eq!(
        send(&layer, wrong("192.0.2.1", "/password/reset")).await.status(),
        403
    );

    // Each of the two has room for what the other one counts.
    for expected in [403, 403, 429] {
        assert_eq!(
            send(&layer, wrong("192.0.2.2", "/login")).await.status(),
            expected
        );
    }
    let skipped = wrong("192.0.2.3", "/login").header("host", "test.example.com");
    let response = send(&layer, skipped).await;
    let decision = response
        .extensions()
        .get::<tollgate::Decision>()
        .expect("a decision");
    assert_eq!(decision.policies().len(), 1);
}

#[tokio::test]
async fn keys_are_needed_allowed_and_charged() {
    let layer = layer();
    let with = |client: &str, key: &str, method| from(client, method, "/api/x").header("x-api-key", key);
    let none = send(&layer, from("192.0.2.1", Method::GET, "/api/x")).await;
    assert_eq!(none.status(), 401);
    for (client, expected) in [("192.0.2.2", 200), ("192.0.2.3", 200), ("192.0.2.4", 429)] {
        let response = send(&layer, with(client, "k-1", Method::GET)).await;
        assert_eq!(response.status(), expected, "{client}");
    }
    for (client, expected) in [("192.0.2.5", 200), ("192.0.2.6", 429)] {
        let response = send(&layer, with(client, "k-2", Method::PUT)).await;
        assert_eq!(response.status(), expected, "{client}");
    }
    for last in 10..20 {
        let response = send(
            &layer,
            with(&format!("192.0.2.{last}"), "k-internal", Method::GET),
        )
        .await;
        assert_eq!(response.status(), 200, "{last}");
    }
}

#[tokio::test]
async fn the_program_brings_keys_of_its_own() {
    let layer = layer();
    for (client, account, expected) in [
        ("192.0.2.1", 1, 200),
        ("192.0.2.2", 1, 429),
        ("192.0.2.3", 2, 200),
    ] {
        let request = from(client, Method::GET, "/account").extension(Account(account));
        assert_eq!(send(&layer, request).await.status(), expected, "{client}");
    }
}

#[tokio::test]
async fn a_changed_file_changes_a_running_layer() {
    let layer = layer();
    let mut config: LayerConfig = toml::from_str(FILE).expect("a configuration");
    config.policies[0].quota = "1/minute".parse().expect("a quota");
    for policy in &config.policies {
        let running = layer.handle(policy.name.as_str()).expect("a policy of this name");
        running.set_quota(policy.quota);
        running.set_mode(policy.mode);
    }
    for expected in [200, 429] {
        let response = send(&layer, from("192.0.2.1", Method::GET, "/")).await;
        assert_eq!(response.status(), expected);
    }
}

fn of(file: &str) -> RateLimitLayer {
    let config: LayerConfig = toml::from_str(file).expect("a configuration");
    config.layer(MemoryStore::new()).expect("a layer")
}

/// A request of a peer. It says that it is passed on for another client.
fn peer(address: [u16; 8], forwarded_for: &str) -> http::request::Builder {
    let peer = key::PeerAddr((address, 80).into());
    let request = Request::get("/")
        .extension(peer)
        .header("x-forwarded-for", "192.0.2.1");
    request.header("forwarded", format!("for=\"{forwarded_for}\""))
}

#[tokio::test]
async fn addresses_are_found_and_shortened_as_the_file_says() {
    let layer = of(r#"
        ipv4-prefix = 24
        ipv6-prefix = 48
        client-ip = { trusted-proxies = ["2001:db8:1::/48"], forwarded-header = "forwarded" }
        policies = [
            { name = "peer", quota = "5/minute", key = "peer-ip", skip-when = [{ peer-ip = ["2001:db8:9::/48"] }] },
            { name = "client", quota = "1/minute", key = "client-ip" },
        ]
    "#);
    let (proxy, other) = (
        [0x2001, 0xdb8, 1, 0, 0, 0, 0, 1],
        [0x2001, 0xdb8, 9, 0, 0, 0, 0, 1],
    );
    let elsewhere = [0x2001, 0xdb8, 1, 0xffff, 0, 0, 0, 9];
    for (from, forwarded_for, expected) in [
        (proxy, "192.0.2.1", 200),
        (proxy, "192.0.2.99", 429),
        (proxy, "192.0.3.1", 200),
        (elsewhere, "[2001:db8:2:1::1]", 200),
        (elsewhere, "[2001:db8:2:2::1]", 429),
        (proxy, "[2001:db8:3::1]", 200),
        (proxy, "[2001:db8:4::1]", 200),
        // The proxies are one peer, which has no room left.
        (elsewhere, "[2001:db8:5::1]", 429),
        // Whoever is no proxy is the client.
        (other, "192.0.2.7", 200),
        (other, "192.0.4.7", 429),
    ] {
        let response = send(&layer, peer(from, forwarded_for)).await;
        assert_eq!(response.status(), expected, "{from:x?} {forwarded_for}");
    }
    let response = send(&layer, peer(other, "192.0.5.7")).await;
    let denied = response
        .extensions()
        .get::<tollgate::Rejection>()
        .expect("a refusal");
    let decision = denied.decision().expect("a decision");
    assert_eq!(decision.policies().len(), 1, "the peer is left out");
}

#[tokio::test]
async fn keys_are_blocked_after_denials() {
    let (clock, store) = clocked();
    let config: LayerConfig = toml::from_str(
        r#"policies = [{ name = "all", quota = "1/second", key = "global", penalty = { after = 2, within = "1 minute", block-for = "1 hour" } }]"#,
    )
    .expect("a configuration");
    let layer = config.layer(store).expect("a layer");
    for expected in [200, 429, 429] {
        assert_eq!(send(&layer, Request::get("/")).await.status(), expected);
    }
    for (seconds, expected) in [(5, 429), (3_590, 429), (6, 200)] {
        clock.advance(std::time::Duration::from_secs(seconds));
        assert_eq!(
            send(&layer, Request::get("/")).await.status(),
            expected,
            "{seconds}"
        );
    }
}
