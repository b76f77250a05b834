use http::Request;
use http::request::Parts;
use serde_json::{Value, from_value, json};

use super::*;
use crate::key::{KeyBuilder, KeyHasher, MatchedPath, Missing, PeerAddr, PeerIp};

fn request() -> Parts {
    let request = Request::post("/x")
        .header("x-api-key", "k 1")
        .header("authorization", "Bearer t0ken")
        .header("host", "Example.com:80")
        .header("x-forwarded-for", "198.51.100.7, 192.0.2.9")
        .extension(PeerAddr(([10, 0, 0, 1], 80).into()));
    request.body(()).unwrap().into_parts().0
}

fn of(key: &dyn KeyExtractor) -> Result<String, Missing> {
    let hasher = KeyHasher::default();
    let mut builder = KeyBuilder::new(&hasher);
    key.extract(&request(), &mut builder)?;
    Ok(String::from_utf8(builder.finish().as_bytes().to_vec()).unwrap())
}

fn found(key: Value) -> Result<String, Missing> {
    let config: KeyConfig = from_value(key).unwrap();
    let custom = CustomKeys::new().with("plan", |_: &Parts| Some("pro"));
    let finders = Finders {
        peer: PeerIp.into(),
        client: Some(ClientIp::trusted_hops(1)),
        custom: &custom,
    };
    of(&config.extractor(&finders).unwrap())
}

#[test]
fn keys_are_those_of_the_extractors() {
    let header = || key::Header::new(HeaderName::from_static("x-api-key"));
    let none = || key::Header::new(HeaderName::from_static("x-none"));
    let plan = |_: &Parts| Some("pro");
    let client = || ClientIp::trusted_hops(1);
    let cases: [(Value, &dyn KeyExtractor); 17] = [
        (json!("global"), &key::Global),
        (json!("peer-ip"), &PeerIp),
        (json!("client-ip"), &client()),
        (json!("bearer"), &key::Bearer),
        (json!("host"), &key::Host),
        (json!("method"), &key::Method),
        (json!("route"), &MatchedPath),
        (json!("header:X-API-Key"), &header()),
        (json!("header:x-none"), &none()),
        (json!("custom:plan"), &plan),
        (json!(["client-ip"]), &client()),
        (
            json!(["client-ip", "route", "method"]),
            &(client(), MatchedPath, key::Method),
        ),
        (json!(["client-ip", "header:x-none"]), &(client(), none())),
        (
            json!({ "any": ["header:x-none", "bearer", "global"] }),
            &none().or(key::Bearer).or(key::Global),
        ),
        (
            json!([{ "any": ["header:x-none", "host"] }, "method"]),
            &(none().or(key::Host), key::Method),
        ),
        (
            json!({ "readable": ["bearer", "client-ip"] }),
            &(key::Bearer, client()).readable(),
        ),
        (
            json!({ "hashed": { "readable": "host" } }),
            &key::Host.readable().hashed(),
        ),
    ];
    for (config, extractor) in cases {
        assert_eq!(found(config.clone()), of(extractor), "{config}");
    }
}

#[test]
fn what_is_shown_is_what_is_written() {
    for text in [
        r#""peer-ip""#,
        r#""header:x-api-key""#,
        r#""custom:a\"b""#,
        r#"["client-ip", "route"]"#,
        r#"{"any": [{"hashed": "host"}, {"readable": "bearer"}]}"#,
    ] {
        let config: KeyConfig = serde_json::from_str(text).unwrap();
        assert_eq!(format!("{config:?}"), text);
        let written = serde_json::to_string(&config).unwrap();
        assert_eq!(written, text.replace(", ", ",").replace(": ", ":"));
    }
}

#[test]
fn unknown_extractors_are_told_with_the_known_ones() {
    let config: KeyConfig = from_value(json!("custom:acount")).unwrap();
    let error = |custom: &CustomKeys| {
        let finders = Finders {
            peer: PeerIp.into(),
            client: None,
            custom,
        };
        config.extractor(&finders).err().unwrap()
    };
    let none = error(&CustomKeys::new());
    assert!(none.contains("build the layer with `layer_with`"), "{none}");
    let plan = |_: &Parts| Some("pro");
    let others = error(&CustomKeys::new().with("plan", plan).with("account", plan));
    assert!(
        others.ends_with("for `custom:acount`, only for `custom:account`, `custom:plan`"),
        "{others}"
    );
}

#[test]
fn values_are_allowed_in_whatever_form() {
    let allowed = |key: Value, values: &[&str]| {
        let config: KeyConfig = from_value(key).unwrap();
        let custom = CustomKeys::new()
            .with("plan", |_: &Parts| Some("pro"))
            .with("named", |_: &Parts| Some(key::Key::named("plan", "pro")))
            .with("two", (|_: &Parts| Some("pro"), |_: &Parts| Some("x")));
        let finders = Finders {
            peer: PeerIp.into(),
            client: None,
            custom: &custom,
        };
        let key = config.extractor(&finders).unwrap();
        let plain = of(&key);
        let values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
        let found = of(&config.allowing(&values, key).unwrap());
        let is_allowed = found.as_deref() == Ok(str::from_utf8(Allowed::key().as_bytes()).unwrap());
        assert!(is_allowed || found == plain, "{found:?}");
        is_allowed
    };
    assert!(allowed(json!("header:x-api-key"), &["k 0", "k 1"]));
    assert!(!allowed(json!("header:x-api-key"), &["k", "k%201", "k 1 "]));
    assert!(allowed(json!({ "hashed": "header:x-api-key" }), &["k 1"]));
    assert!(allowed(json!({ "readable": "header:x-api-key" }), &["k 1"]));
    assert!(!allowed(json!("header:x-none"), &["k 1"]));
    assert!(allowed(json!("bearer"), &["t0ken"]));
    assert!(allowed(json!("host"), &["example.com"]));
    assert!(!allowed(json!("host"), &["Example.com"]));
    assert!(allowed(json!("custom:plan"), &["pro"]));
    assert!(allowed(json!("custom:named"), &["pro"]));
    assert!(!allowed(json!("custom:two"), &["pro", "pro,key=x", "x"]));
}
