use http::Request;
use http::request::Parts;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};

use super::tests::{FULL, read};
use super::*;
use crate::store::MemoryStore;

/// Any value, of names and texts that a file could have and of others.
fn any_value() -> impl Strategy<Value = Value> {
    let texts = select(vec![
        "",
        "a",
        "10/s",
        "0/s",
        "1/us",
        "unlimited",
        "global",
        "client-ip",
        "peer-ip",
        "bearer",
        "header:a",
        "header:",
        "custom:x",
        "route",
        "/",
        "/{id}",
        "/{*rest}",
        "/*",
        "/a/{",
        "GET",
        "get",
        "2xx",
        "302",
        "10.0.0.0/8",
        "::/0",
        "shadow",
        "off",
        "local",
        "deny",
        "skip",
        "1 day",
        "0 s",
        "18446744073709551615 d",
        "v8",
        "epoch",
        "example.com",
        "[::1]",
        "a:80",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        select(vec![0_u64, 1, 16, 17, 32, 33, 128, 129, 200, 302, 401, 600]).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        texts.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let name = select(vec![
            "name",
            "quota",
            "key",
            "cost",
            "any",
            "hashed",
            "paths",
            "methods",
            "hosts",
            "policies",
            "rules",
            "local",
            "instances",
            "reject",
            "content-length",
            "bytes-per-unit",
            "peer-ip",
            "client-ip",
            "trusted-hops",
            "penalty",
            "after",
            "within",
            "growing",
            "factor",
            "longest",
            "trusted-proxies",
            "skip-when",
            "deadline",
            "headers",
        ]);
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((name, inner), 0..4).prop_map(|fields| {
                let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
                Value::from(fields.collect::<Map<_, _>>())
            }),
        ]
    })
}

/// All places of a document, as pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{index}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                places(field, &format!("{at}/{name}"), found);
            }
        }
        _ => {}
    }
}

/// What can go wrong with a file: a value becomes another one, that of another place, or is there twice.
#[derive(Clone, Debug)]
enum Change {
    Put(Value),
    Copy(Index),
    Twice,
    Remove,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        any_value().prop_map(Change::Put),
        any::<Index>().prop_map(Change::Copy),
        Just(Change::Twice),
        Just(Change::Remove),
    ]
}

fn changed(mut document: Value, changes: Vec<(Index, Change)>) -> Value {
    for (at, change) in changes {
        let mut all = Vec::new();
        places(&document, "", &mut all);
        let place = at.get(&all);
        let value = match change {
            Change::Put(value) => value,
            Change::Copy(from) => document
                .pointer(from.get(&all).as_str())
                .cloned()
                .unwrap_or_default(),
            Change::Twice => {
                if let Some(Value::Array(items)) = document.pointer_mut(place) {
                    items.extend(items.first().cloned());
                }
                continue;
            }
            Change::Remove => {
                if let Some((parent, name)) = place.rsplit_once('/')
                    && let Some(Value::Object(fields)) = document.pointer_mut(parent)
                {
                    fields.remove(name);
                }
                continue;
            }
        };
        if let Some(found) = document.pointer_mut(place) {
            *found = value;
        }
    }
    document
}

fn request() -> Parts {
    let request = Request::post("/login")
        .header("x-api-key", "k")
        .header("host", "api.example.com");
    request.body(()).unwrap().into_parts().0
}

/// Reads a file, and uses what comes of it. Nothing may panic.
fn try_out(document: &Value) -> Result<bool, TestCaseError> {
    let Ok(config) = serde_json::from_value::<LayerConfig>(document.clone()) else {
        return Ok(false);
    };
    let written = serde_json::to_value(&config).expect("it can be written");
    prop_assert_eq!(&serde_json::from_value::<LayerConfig>(written).unwrap(), &config);
    if let Ok(written) = toml::to_string(&config) {
        prop_assert_eq!(&read(&written), &config);
    }
    match config.layer(MemoryStore::new()) {
        Err(error) => prop_assert!(!error.to_string().is_empty()),
        Ok(layer) => drop(crate::fixtures::ready(layer.peek(&request()))),
    }
    Ok(true)
}

proptest! {
    #[test]
    fn no_document_panics(document in any_value()) {
        try_out(&document)?;
    }

    #[test]
    fn no_changed_file_panics(changes in vec((any::<Index>(), change()), 1..4)) {
        let full = serde_json::to_value(read(FULL)).unwrap();
        try_out(&changed(full, changes))?;
    }

    #[test]
    fn no_text_panics(text in any::<String>(), key in "[a-z:, ]{0,12}") {
        let text = [text, key];
        for text in text {
            for document in [
                json!({ "deadline": text }),
                json!({ "skip-when": [{ "paths": [text] }] }),
                json!({ "skip-when": [{ "hosts": [text] }] }),
                json!({ "skip-when": [{ "peer-ip": [text] }] }),
                json!({ "policies": [{ "name": "a", "quota": text, "key": "global" }] }),
                json!({ "policies": [{ "name": text, "quota": "1/s", "key": "bearer", "allow-keys": [text] }] }),
                json!({ "policies": [{ "name": "a", "quota": "1/s", "key": text }] }),
                json!({ "policies": [{ "name": "a", "quota": "1/s", "key": "global", "give-back-on": [text] }] }),
            ] {
                try_out(&document)?;
            }
            let _ = toml::from_str::<LayerConfig>(&text);
        }
    }
}

#[test]
fn the_file_that_is_changed_is_one() {
    let full = serde_json::to_value(read(FULL)).unwrap();
    assert!(try_out(&full).unwrap());
}
