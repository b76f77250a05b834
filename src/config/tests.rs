mod refusals;

use std::time::Duration;

use http::{Method, StatusCode};

use super::*;
use crate::{
    Cost, Draft, FailurePolicy, Headers, MemoryStore, MissingKey, Policy, PolicyMode, Quota, Rate,
    RateLimitLayer, Rule, Rules, key,
};

/// All that a file can say.
pub(super) const FULL: &str = r#"
deadline = "250 milliseconds"
exempt-preflight = true
ipv4-prefix = 24
ipv6-prefix = 56
skip-when = [
    { paths = ["/healthz", "/metrics"] },
    { methods = ["GET"], hosts = ["status.example.com"], peer-ip = ["10.0.0.0/8"] },
    { client-ip = ["192.0.2.1", "2001:db8::/32"] },
]

[headers]
x-ratelimit = "epoch"
ietf = "v7"
retry-after = false
shadow = true

[client-ip]
trusted-proxies = ["10.0.0.0/8"]
forwarded-header = "forwarded"

[[policies]]
name = "user"
quota = "10/second"
key = { any = ["header:x-api-key", "bearer", ["client-ip", "route"]] }
cost = { content-length = { bytes-per-unit = 1024, or-unknown = 100 } }
mode = "shadow"
failure-policy = { local = { instances = 4 } }
missing-key = { reject = 401 }
give-back-on = ["2xx", 302]
skip-when = [{ paths = ["/free"] }]

[[policies]]
name = "host"
quota = "100/hour fixed window"
key = { readable = { hashed = "host" } }
cost = { rules = [{ paths = ["/export"], methods = ["GET"], cost = 25 }, { hosts = ["a.example.com"], cost = 3 }, { cost = 2, paths = ["/export"], hosts = ["a.example.com"], methods = ["GET"] }] }
failure-policy = "allow"
missing-key = "skip"
penalty = "manual"
allow-keys = ["trusted.example.com"]

[[policies]]
name = "all"
quota = "unlimited"
key = ["global", "peer-ip", "method"]
cost = 3
mode = "off"
failure-policy = "deny"

[[rules]]
paths = ["/login", "/password/*"]
methods = ["POST"]
hosts = ["api.example.com"]
policies = [{ name = "login", quota = "5/minute", key = "client-ip", penalty = { after = 20, within = "1 minute", block-for = "5 minutes", growing = { factor = 2, longest = "1 day" } } }]

[[rules]]
paths = ["/open"]
policies = []

[[rules]]
policies = [{ name = "rest", quota = "100/minute", key = "peer-ip" }]
"#;

const POLICY: &str = "name = 'a'\nquota = '10/second'\n";

pub(super) fn read(text: &str) -> LayerConfig {
    toml::from_str(text).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

#[test]
fn all_that_a_file_can_say_makes_a_layer() {
    let config = read(FULL);
    let layer = config.layer(MemoryStore::new()).unwrap();
    let names: Vec<String> = layer
        .limiter()
        .policies()
        .iter()
        .map(|policy| policy.name().to_string())
        .collect();
    assert_eq!(names, ["user", "host", "all", "login", "rest"]);
    let login = layer.handle("login").unwrap();
    assert_eq!(login.quota(), Some(Quota::per_minute(5)));
    let exposed = layer.exposed_headers();
    assert!(
        exposed.contains(&http::HeaderName::from_static("ratelimit-policy")),
        "{exposed:?}"
    );
    assert!(!exposed.contains(&http::header::RETRY_AFTER), "{exposed:?}");
    assert_eq!(config.rules[0].methods, [Method::POST]);
}

#[test]
fn what_is_written_is_read_as_the_same() {
    for text in [FULL, "", &format!("[[policies]]\n{POLICY}key = 'global'")] {
        let config = read(text);
        let written = toml::to_string(&config).unwrap();
        assert_eq!(read(&written), config, "{written}");
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(
            serde_json::from_str::<LayerConfig>(&json).unwrap(),
            config,
            "{json}"
        );
    }
}

#[test]
fn what_is_not_said_is_not_written() {
    let config = read(&format!("[[policies]]\n{POLICY}key = 'global'"));
    let written = serde_json::to_string(&config).unwrap();
    assert_eq!(
        written,
        r#"{"policies":[{"name":"a","quota":"10 per second","key":"global"}]}"#
    );
}

#[test]
fn a_file_without_settings_has_the_defaults() {
    let config = read(&format!("[[policies]]\n{POLICY}key = 'global'"));
    let built = Policy::new("a", Quota::per_second(10), key::Global);
    let read = config.policies[0].policy().unwrap();
    assert_eq!(format!("{read:?}"), format!("{built:?}"));
    let store = MemoryStore::new();
    let built = RateLimitLayer::with_policies(store.clone(), [built]);
    assert_eq!(
        format!("{:?}", config.layer(store).unwrap()),
        format!("{built:?}")
    );
}

#[test]
fn what_the_program_sets_is_checked_too() {
    let mut config = read(FULL);
    config.rules[0].paths[1] = "password".to_owned();
    let error = config.layer(MemoryStore::new()).unwrap_err();
    assert_eq!(error.place(), "rules[0].paths[1]");
    let mut config = read(FULL);
    config.rules[0].hosts[0] = "a:1".to_owned();
    let error = config.layer(MemoryStore::new()).unwrap_err();
    assert_eq!(error.place(), "rules[0].hosts[0]");
    let mut config = read(FULL);
    config.skip_when[1].peer_ip = vec!["x".to_owned()];
    let error = config.layer(MemoryStore::new()).unwrap_err();
    assert_eq!(error.place(), "skip-when[1].peer-ip");
    let mut config = read(FULL);
    config.policies[1].missing_key = MissingKey::Reject(StatusCode::OK);
    let error = config.layer(MemoryStore::new()).unwrap_err();
    assert_eq!(error.place(), "policies[1].missing-key");
}

#[test]
fn a_file_makes_the_layer_that_code_makes() {
    let config = read(
        r#"
        deadline = "250 ms"
        exempt-preflight = true
        headers = { x-ratelimit = "without-reset", ietf = "v6", shadow = true }
        skip-when = [{ paths = ["/healthz"] }]
        policies = [
            { name = "a", quota = "5/s burst 9", key = "global", cost = { content-length = { bytes-per-unit = 64, or-unknown = 7 } }, failure-policy = { local = { instances = 4 } }, missing-key = "skip", mode = "shadow" },
            { name = "b", quota = "5/day", key = "bearer", cost = 3, failure-policy = "deny", missing-key = { reject = 403 } },
        ]
        rules = [
            { paths = ["/x"], methods = ["GET"], policies = [{ name = "c", quota = "unlimited", key = "host", failure-policy = "allow", cost = { rules = [{ hosts = ["a.example.com"], cost = 2 }] } }] },
        ]
        "#,
    );
    let a = Policy::new("a", Quota::token_bucket(Rate::per_second(5), 9), key::Global)
        .cost(Cost::by_content_length(64).or_unknown(7))
        .failure_policy(FailurePolicy::Local { instances: 4 })
        .missing_key(MissingKey::Skip)
        .mode(PolicyMode::Shadow);
    let b = Policy::new("b", Quota::per_day(5), key::Bearer)
        .cost(3)
        .failure_policy(FailurePolicy::Deny)
        .missing_key(MissingKey::Reject(StatusCode::FORBIDDEN));
    let c = Policy::new("c", Quota::unlimited(), key::Host)
        .failure_policy(FailurePolicy::Allow)
        .cost(Rules::new(1).on(Rule::any().host("a.example.com"), 2));
    let store = MemoryStore::new();
    let built = RateLimitLayer::with_policies(store.clone(), [a, b])
        .rules(Rules::new(vec![]).on(Rule::path("/x").method(Method::GET), vec![c]))
        .deadline(Duration::from_millis(250))
        .exempt_preflight(true)
        .headers(
            Headers::x_ratelimit()
                .without_reset()
                .ietf(Draft::V6)
                .shadow(true),
        )
        .skip_when(Rule::path("/healthz"));
    assert_eq!(
        format!("{:?}", config.layer(store).unwrap()),
        format!("{built:?}")
    );
}
