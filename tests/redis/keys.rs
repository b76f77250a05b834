//! C14 in the server: whatever users are called, keys are short and printable, and nobody chooses their slot.

use std::collections::BTreeSet;

use tollgate::key::{KeyBuilder, KeyHasher};
use tollgate::{Key, Limiter, Quota};

use crate::server::{Server, Version};
use crate::support::{YEAR, admitted, check_all, connect, keys, strict};

/// Names that are hard to write down.
fn names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        "",
        " ",
        "a b",
        "a:b",
        "{a}",
        "}{",
        "{}",
        "{a}{b}",
        "a}",
        "{",
        "\0",
        "a\0b",
        "\r\n",
        "\r\nFLUSHALL\r\n",
        "'",
        "\"",
        "a,key=b",
        "key=a",
        "*",
        "[a-z]?",
        "ä",
        "日本",
        "~",
        "%7B",
        "-1",
        "nil",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    names.push(vec![0xff, 0xfe, 0xc3, 0x28]);
    names.push((0..=255).collect());
    names.push(vec![b'x'; 4_096]);
    names.push([vec![b'x'; 4_095], vec![b'y']].concat());
    names.push(vec![b'{'; 4_096]);
    names
}

async fn admitted_of(limiter: &Limiter, key: &Key, times: usize) -> usize {
    let mut decisions = Vec::new();
    for _ in 0..times {
        decisions.push(limiter.check(key).await);
    }
    admitted(&decisions)
}

#[tokio::test]
async fn c14_every_name_is_a_counter_of_its_own() {
    for version in Version::all() {
        let server = Server::start(version).await;
        let limiter = strict(&connect(&server.url()).await, Quota::new(2, YEAR));
        let names = names();
        for name in &names {
            let admitted = admitted_of(&limiter, &Key::from(name.as_slice()), 3).await;
            assert_eq!(admitted, 2, "{}", String::from_utf8_lossy(name));
        }
        let keys = keys(&server).await;
        assert_eq!(keys.len(), names.len());
        for key in &keys {
            assert!(key.len() <= 512, "{}", key.len());
            assert!(
                key.iter().all(u8::is_ascii_graphic),
                "{}",
                String::from_utf8_lossy(key)
            );
        }
    }
}

#[tokio::test]
async fn c14_keys_of_several_parts_do_too() {
    let server = Server::start(Version::V7).await;
    let limiter = strict(&connect(&server.url()).await, Quota::new(2, YEAR));
    let hasher = KeyHasher::default();
    let mut count = 0;
    for (first, second) in [("a", "bc"), ("ab", "c"), ("a,y=b", "c"), ("{a}", "{b}"), ("", "")] {
        for hashed in [false, true] {
            let mut key = KeyBuilder::new(&hasher);
            if hashed {
                key.hashed("x", first.as_bytes()).hashed("y", second.as_bytes());
            } else {
                key.plain("x", first.as_bytes()).plain("y", second.as_bytes());
            }
            assert_eq!(
                admitted_of(&limiter, &key.finish(), 3).await,
                2,
                "{first} {second} {hashed}"
            );
            count += 1;
        }
    }
    assert_eq!(keys(&server).await.len(), count);
}

/// What a cluster makes a slot of: what is between the first `{` and the `}` after it, if anything is.
fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else {
        return key;
    };
    let after = &key[open + 1..];
    match after.iter().position(|&byte| byte == b'}') {
        Some(close @ 1..) => &after[..close],
        _ => key,
    }
}

#[tokio::test]
async fn r21_all_counters_of_a_subject_share_a_slot_that_it_cannot_choose() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let quota = Quota::new(2, YEAR);
    for name in names() {
        let () = server.cli(&["FLUSHALL"]).await;
        let key = Key::from(name.as_slice());
        for limiter in [
            strict(&store, quota),
            strict(&store, quota).name("other"),
            strict(&store, quota.fixed_window()),
            strict(&store, quota.sliding_counter()),
        ] {
            assert!(limiter.check(&key).await.is_allowed());
        }
        let keys = keys(&server).await;
        assert_eq!(keys.len(), 4);
        let tags: BTreeSet<_> = keys.iter().map(|key| hash_tag(key)).collect();
        assert_eq!(tags.len(), 1, "{tags:?}");
        assert!(keys.iter().all(|key| hash_tag(key) != key.as_slice()), "{keys:?}");
        let chosen = hash_tag(&name);
        assert!(chosen.is_empty() || !tags.contains(chosen), "{tags:?}");
    }
}

#[tokio::test]
async fn policies_of_one_subject_are_told_apart() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let quota = Quota::new(2, YEAR);
    // As written in keys, they must not run into each other or into their neighbours.
    for name in ["a", "b", "a:b", "a/b", "a-b", "1", "a:1"] {
        let limiter = strict(&store, quota).name(name);
        for key in ["k", "a", "b", "k:a"] {
            assert_eq!(admitted(&check_all(&limiter, key, 3).await), 2, "{name} {key}");
        }
    }
}
