//! Keys are bounded, printable and injective.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::Key;
use tollgate::key::{KeyBuilder, KeyHasher};

type List<'a> = Vec<(&'a str, &'a [u8])>;

fn key(list: &List<'_>) -> Key {
    let hasher = KeyHasher::default();
    let mut key = KeyBuilder::new(&hasher);
    for (tag, value) in list {
        key.plain(tag, value);
    }
    key.finish()
}

fuzz_target!(|lists: (List<'_>, List<'_>)| {
    let (one, other) = (key(&lists.0), key(&lists.1));
    assert_eq!(one == other, lists.0 == lists.1);
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"-_./:@+*,=%~".contains(b);
    for key in [one, other] {
        assert!((1..=256).contains(&key.as_bytes().len()));
        assert!(key.as_bytes().iter().all(allowed));
    }
});
