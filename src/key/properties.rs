//! What holds for all keys, tried with many.

use http::{HeaderName, HeaderValue, Request};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::testing::{key_of, parts, peer};
use super::{
    Bearer, ClientIp, ForwardedHeader, Header, Host, Key, KeyBuilder, KeyExtractor, KeyHasher, Method,
};

#[derive(Clone, Debug, PartialEq)]
struct Part {
    tag: String,
    value: Vec<u8>,
    hashed: bool,
}

/// Bytes that carry the structure of a key, escape it, choose cluster slots, or are no text, and some that do
/// nothing.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![select(&b",=%~{}*: \0\r\n2C7Ba\xff"[..]), any::<u8>()]
}

fn part(hashed: impl Strategy<Value = bool>) -> impl Strategy<Value = Part> {
    let tag = "[a,=%~{}2C é]{0,4}";
    let value = prop_oneof![9 => vec(byte(), 0..6), 1 => vec(byte(), 60..70)];
    (tag, value, hashed).prop_map(|(tag, value, hashed)| Part { tag, value, hashed })
}

fn key(list: &[Part]) -> Key {
    let hasher = KeyHasher::default();
    let mut key = KeyBuilder::new(&hasher);
    for part in list {
        if part.hashed {
            key.hashed(&part.tag, &part.value);
        } else {
            key.plain(&part.tag, &part.value);
        }
    }
    key.finish()
}

/// Reads a key of short readable parts back.
fn decoded(key: &Key) -> Vec<Part> {
    if key.as_bytes() == b"*" {
        return Vec::new();
    }
    let text = std::str::from_utf8(key.as_bytes()).unwrap();
    text.split(',')
        .map(|part| {
            let (tag, value) = part.split_once('=').unwrap();
            let unescaped = |text: &str| percent_decoded(text.as_bytes());
            Part {
                tag: String::from_utf8(unescaped(tag)).unwrap(),
                value: unescaped(value),
                hashed: false,
            }
        })
        .collect()
}

fn percent_decoded(mut text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let [first, rest @ ..] = text {
        text = rest;
        if *first == b'%' {
            let hex = std::str::from_utf8(&rest[..2]).unwrap();
            out.push(u8::from_str_radix(hex, 16).unwrap());
            text = &rest[2..];
        } else {
            out.push(*first);
        }
    }
    out
}

fn assert_fit_for_a_store(key: &[u8]) {
    assert!((1..=256).contains(&key.len()), "{}", key.len());
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"-_./:@+*,=%~".contains(b);
    assert!(key.iter().all(allowed), "{}", key.escape_ascii());
}

proptest! {
    #[test]
    fn readable_keys_read_back(list in vec(part(Just(false)), 0..4)) {
        let key = key(&list);
        prop_assume!(!key.as_bytes().contains(&b'~'));
        prop_assert_eq!(decoded(&key), list);
    }

    #[test]
    fn other_parts_make_other_keys(
        list in vec(part(any::<bool>()), 1..5),
        at in any::<Index>(),
        replacement in part(any::<bool>()),
    ) {
        let mut changed = list.clone();
        let index = at.index(list.len());
        changed[index] = replacement;
        // A long value is hashed either way.
        let same = |a: &Part, b: &Part| {
            let same_form = a.hashed == b.hashed || a.value.len() > 64;
            a.tag == b.tag && a.value == b.value && same_form
        };
        prop_assert_eq!(key(&list) == key(&changed), same(&list[index], &changed[index]));
        changed.remove(index);
        prop_assert_ne!(key(&list), key(&changed));
    }

    #[test]
    fn bytes_between_parts_belong_to_one(
        bytes in vec(byte(), 0..8),
        at in any::<(Index, Index)>(),
    ) {
        let split = |at: usize| {
            let part = |value: &[u8]| Part { tag: "a".to_owned(), value: value.to_vec(), hashed: false };
            key(&[part(&bytes[..at]), part(&bytes[at..])])
        };
        let (a, b) = (at.0.index(bytes.len() + 1), at.1.index(bytes.len() + 1));
        prop_assert_eq!(split(a) == split(b), a == b);
    }

    #[test]
    fn keys_are_fit_for_a_store(list in vec(part(any::<bool>()), 0..30)) {
        assert_fit_for_a_store(key(&list).as_bytes());
    }
}

/// Bytes that a header field may have, most of them such as matter to parsers.
fn field(length: std::ops::Range<usize>) -> impl Strategy<Value = HeaderValue> {
    let valid = |b: &u8| *b == b'\t' || (*b >= 0x20 && *b != 0x7f);
    let byte = prop_oneof![
        select(&b",;=\"\\[]:%. for109af"[..]),
        any::<u8>().prop_filter("control byte", valid)
    ];
    vec(byte, length).prop_map(|bytes| HeaderValue::from_bytes(&bytes).unwrap())
}

fn joined(left: &HeaderValue, right: &str) -> HeaderValue {
    HeaderValue::from_bytes(&[left.as_bytes(), b", ", right.as_bytes()].concat()).unwrap()
}

proptest! {
    #[test]
    fn what_clients_send_does_not_choose_the_address(
        sent in vec(field(0..40), 0..3),
        same_line in any::<bool>(),
        forwarded in any::<bool>(),
    ) {
        let (name, header, written) = if forwarded {
            ("forwarded", ForwardedHeader::Forwarded, r#"proto=https;for="[2001:db8::9]:80""#)
        } else {
            ("x-forwarded-for", ForwardedHeader::XForwardedFor, "[2001:db8::9]:80")
        };
        let mut lines = sent;
        match lines.last_mut() {
            Some(last) if same_line => *last = joined(last, written),
            _ => lines.push(HeaderValue::from_static(written)),
        }
        let request = lines
            .iter()
            .fold(Request::get("/").extension(peer("10.0.0.1:80")), |request, line| request.header(name, line));
        let parts = parts(request);
        for client in [ClientIp::trusted_hops(1), ClientIp::trusted_proxies(["10.0.0.0/8"]).unwrap()] {
            let client = client.forwarded_header(header.clone()).readable();
            prop_assert_eq!(key_of(&client, &parts), Ok("ip=2001:db8::/64".to_owned()));
        }
    }

    #[test]
    fn nothing_left_of_garbage_is_reached(
        garbage in "[ -+\\-g-~]{0,20}",
        hops in 1_usize..=16,
    ) {
        for (name, header, forged) in [
            ("x-forwarded-for", ForwardedHeader::XForwardedFor, "198.51.100.1"),
            ("forwarded", ForwardedHeader::Forwarded, "for=198.51.100.1"),
        ] {
            let line = format!("{forged}, {garbage}");
            let request = Request::get("/").extension(peer("10.0.0.1:80")).header(name, &line);
            let client = ClientIp::trusted_hops(hops).forwarded_header(header).readable();
            prop_assert_eq!(key_of(&client, &parts(request)), Ok("ip=10.0.0.1".to_owned()));
        }
    }

    #[test]
    fn any_field_is_taken_or_refused(lines in vec(field(0..300), 0..3)) {
        fn check(extractor: &impl KeyExtractor, parts: &http::request::Parts) {
            if let Ok(key) = key_of(extractor, parts) {
                assert_fit_for_a_store(key.as_bytes());
            }
        }
        let mut request = Request::get("/").extension(peer("[::1]:80"));
        for name in ["x-forwarded-for", "forwarded", "x", "authorization", "host"] {
            request = lines.iter().fold(request, |request, line| request.header(name, line));
        }
        let parts = parts(request);
        let client = || ClientIp::trusted_proxies(["::1"]).unwrap();
        let x = HeaderName::from_static("x");
        check(&client().readable(), &parts);
        check(&client().forwarded_header(ForwardedHeader::Forwarded), &parts);
        check(&client().forwarded_header(ForwardedHeader::Vendor(x.clone())), &parts);
        check(&(Header::new(x.clone()).readable(), Method), &parts);
        check(&(Bearer.readable(), Header::new(x)).or(Host), &parts);
    }
}
