use super::*;

fn built(write: impl FnOnce(&mut KeyBuilder<'_>)) -> Key {
    let hasher = KeyHasher::default();
    let mut key = KeyBuilder::new(&hasher);
    write(&mut key);
    key.finish()
}

fn text(key: &Key) -> &str {
    std::str::from_utf8(key.as_bytes()).unwrap()
}

#[test]
fn parts_are_joined() {
    let key = built(|key| {
        key.plain("a", b"1").append(&Key::from("x")).plain("b", b"");
    });
    assert_eq!(text(&key), "a=1,key=x,b=");
}

#[test]
fn a_readable_value_cannot_imitate_a_hash() {
    let hashed = built(|key| {
        key.hashed("a", b"1");
    });
    let written = hashed.as_bytes().strip_prefix(b"a=").unwrap();
    assert_eq!((written[0], written.len()), (b'~', 23));
    let imitation = built(|key| {
        key.plain("a", written);
    });
    assert_ne!(imitation, hashed);
}

#[test]
fn long_values_are_hashed() {
    let plain = built(|key| {
        key.plain("a", &[b'x'; 64]);
    });
    assert_eq!(plain.as_bytes().len(), 66);
    let hashed = built(|key| {
        key.plain("a", &[b'x'; 65]);
    });
    assert!(text(&hashed).starts_with("a=~"), "{}", text(&hashed));
    assert_eq!(hashed.as_bytes().len(), 25);
}

#[test]
fn long_keys_are_hashed() {
    let of = |last: u8| {
        built(|key| {
            for tag in ["a", "b", "c", "d"] {
                key.plain(tag, &[b'x'; 61]);
            }
            key.plain("e", &[last]);
        })
    };
    assert_eq!(text(&of(b'x')).len(), 23);
    assert!(text(&of(b'x')).starts_with('~'));
    assert_ne!(of(b'x'), of(b'y'));
    let at_the_bound = built(|key| {
        for tag in ["a", "b", "c"] {
            key.plain(tag, &[b'x'; 61]);
        }
        key.plain("d", &[b'x'; 62]);
    });
    assert_eq!(text(&at_the_bound).len(), 256);
}

#[test]
fn rollback_forgets() {
    let key = built(|key| {
        key.plain("a", b"1");
        let mark = key.mark();
        key.plain("b", b"2").hashed("c", b"3");
        key.rollback(mark);
        key.plain("d", b"4");
    });
    assert_eq!(text(&key), "a=1,d=4");
}

#[test]
fn no_parts_is_a_key_of_its_own() {
    let none = built(|_| ());
    assert_eq!(text(&none), "*");
    assert_ne!(none, Key::from("*"));
    let key = built(|key| {
        key.append(&none).plain("a", b"1").append(&none);
    });
    assert_eq!(text(&key), "a=1");
}

#[test]
fn the_outermost_form_wins() {
    let key = built(|key| {
        key.in_form(Form::Readable, |key| {
            key.in_form(Form::Hashed, |key| key.hashed("a", b"1").mark());
        });
        key.hashed("b", b"2");
    });
    assert!(text(&key).starts_with("a=1,b=~"), "{}", text(&key));
    let key = built(|key| {
        key.in_form(Form::Hashed, |key| {
            key.plain("a", b"1").append(&Key::from("x")).mark()
        });
    });
    let (a, x) = text(&key).split_once(',').unwrap();
    assert!(a.starts_with("a=~") && x.starts_with('~'), "{a} {x}");
}

#[test]
fn nested_keys_keep_their_difference() {
    let nested = |inner: &Key| built(|key| key.nested("ext:a", inner));
    assert_eq!(text(&nested(&Key::from("x"))), "ext:a=x");
    assert_eq!(text(&nested(&Key::named("t", "x"))), "ext:a==key:t%3Dx");
    assert_ne!(nested(&Key::from("=key:t=x")), nested(&Key::named("t", "x")));
    assert_ne!(nested(&Key::from("key:t=x")), nested(&Key::named("t", "x")));
}

#[test]
fn debug_hides_the_parts() {
    let hasher = KeyHasher::default();
    let mut key = KeyBuilder::new(&hasher);
    key.plain("a", b"alice");
    let debug = format!("{key:?}");
    assert!(debug.contains("length: 7") && !debug.contains("alice"), "{debug}");
}
