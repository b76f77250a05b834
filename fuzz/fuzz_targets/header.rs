//! Extractors take any field or refuse it, and what they write fits a store.

#![no_main]

use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request};
use libfuzzer_sys::fuzz_target;
use tollgate::key::{self, KeyBuilder, KeyExtractor, KeyHasher};

fn check(extractor: impl KeyExtractor, parts: &Parts) {
    let hasher = KeyHasher::default();
    let mut key = KeyBuilder::new(&hasher);
    if extractor.extract(parts, &mut key).is_ok() {
        let key = key.finish();
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"-_./:@+*,=%~".contains(b);
        assert!((1..=256).contains(&key.as_bytes().len()));
        assert!(key.as_bytes().iter().all(allowed));
    }
}

fuzz_target!(|input: (&[u8], &[u8], &str)| {
    let (method, value, uri) = input;
    let Ok(value) = HeaderValue::from_bytes(value) else {
        return;
    };
    let x = HeaderName::from_static("x");
    let request = Request::builder()
        .method(Method::from_bytes(method).unwrap_or(Method::GET))
        .uri(uri)
        .header(&x, &value)
        .header(AUTHORIZATION, &value)
        .header(HOST, &value)
        .body(());
    let Ok(request) = request else { return };
    let (parts, ()) = request.into_parts();
    check(key::Header::new(x.clone()).readable(), &parts);
    check(key::Header::new(x), &parts);
    check(key::Bearer.readable(), &parts);
    check(key::Host, &parts);
    check((key::Method, key::MatchedPath), &parts);
});
