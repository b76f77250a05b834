//! C13, B2: keys that are not what they should be heal, and harm nobody else.

use std::time::{Duration, Instant};

use redis::{Value, cmd};
use tokio::task::JoinSet;
use tollgate::{Key, Limiter};

use crate::server::{Server, Version};
use crate::support::{
    RECOVERY, YEAR, admitted, assert_every_key_expires, by_every_algorithm, check_all, connect, keys, strict,
    time, until,
};

/// Commands that put something of the wrong type in a key's place.
const TYPES: [&[&str]; 5] = [
    &["LPUSH", "KEY", "1", "2"],
    &["SADD", "KEY", "member"],
    &["ZADD", "KEY", "1", "member"],
    &["HSET", "KEY", "field", "value"],
    &["XADD", "KEY", "*", "field", "value"],
];

/// Values that no counter has.
fn garbage() -> Vec<Vec<u8>> {
    let mut values: Vec<Vec<u8>> = [
        "",
        "x",
        "0",
        "-1",
        "nan",
        "inf",
        "1e999",
        "99999999999999999999",
        "\0",
        "{}",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    values.push(vec![0xff; 3]);
    values.push(vec![0xff; 4_099]);
    // Whatever byte may tell a layout: too short to be one.
    values.extend((b'A'..=b'Z').map(|tag| vec![tag, 0]));
    values
}

/// The only key of the server.
async fn only_key(server: &Server) -> Vec<u8> {
    let mut keys = keys(server).await;
    assert_eq!(keys.len(), 1);
    keys.remove(0)
}

/// The only key with such a name in it.
async fn key_with(server: &Server, name: &str) -> Vec<u8> {
    let mut keys: Vec<Vec<u8>> = server.cli(&["KEYS", &format!("*{name}*")]).await;
    assert_eq!(keys.len(), 1, "it has not expired yet");
    keys.remove(0)
}

async fn put(server: &Server, command: &[&str], key: &[u8]) {
    let mut connection = server.connection().await.expect("it listens");
    let () = cmd("DEL")
        .arg(key)
        .query_async(&mut connection)
        .await
        .map(|_: Value| ())
        .expect("a reply");
    let mut poison = cmd(command[0]);
    for argument in &command[1..] {
        match *argument {
            "KEY" => poison.arg(key),
            argument => poison.arg(argument),
        };
    }
    let _: Value = poison.query_async(&mut connection).await.expect("a reply");
}

#[tokio::test]
async fn c13_wrong_types_and_garbage_heal_in_the_next_check() {
    for version in Version::all() {
        let server = Server::start(version).await;
        let store = connect(&server.url()).await;
        for quota in by_every_algorithm(4, YEAR) {
            let limiter = strict(&store, quota);
            let () = server.cli(&["FLUSHALL"]).await;
            assert_eq!(admitted(&check_all(&limiter, "k", 1).await), 1);
            let key = only_key(&server).await;
            for poison in TYPES {
                put(&server, poison, &key).await;
                // A look at it is no reason to fail, either.
                assert_eq!(
                    limiter.peek("k").await.remaining(),
                    Some(4),
                    "{poison:?} by {quota:?}"
                );
                let decisions = check_all(&limiter, "k", 6).await;
                assert_eq!(admitted(&decisions), 4, "{poison:?} by {quota:?}");
                assert_every_key_expires(&server).await;
            }
            for poison in garbage() {
                let shown = String::from_utf8_lossy(&poison)
                    .chars()
                    .take(20)
                    .collect::<String>();
                let mut connection = server.connection().await.expect("it listens");
                let set = cmd("SET")
                    .arg(&key)
                    .arg(&poison)
                    .exec_async(&mut connection)
                    .await;
                set.expect("a reply");
                let decisions = check_all(&limiter, "k", 6).await;
                assert_eq!(admitted(&decisions), 4, "{shown:?} by {quota:?}");
                assert_every_key_expires(&server).await;
            }
        }
    }
}

#[tokio::test]
async fn c13_poison_is_no_reason_to_give_back_or_reset_in_vain() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    for quota in by_every_algorithm(4, YEAR) {
        let limiter = strict(&store, quota);
        let () = server.cli(&["FLUSHALL"]).await;
        for poison in TYPES {
            let charge = limiter.reserve("k", 1).await.expect("there is room");
            let key = only_key(&server).await;
            put(&server, poison, &key).await;
            charge
                .give_back_now()
                .await
                .expect("there is nothing to give back");
            put(&server, poison, &key).await;
            limiter.reset("k").await.expect("it forgets whatever is there");
            assert_eq!(
                keys(&server).await,
                Vec::<Vec<u8>>::new(),
                "{poison:?} by {quota:?}"
            );
        }
    }
}

#[tokio::test]
async fn c13_a_poisoned_key_harms_no_neighbour() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    for quota in by_every_algorithm(5, YEAR) {
        let limiter = strict(&store, quota);
        for (round, poison) in TYPES.into_iter().enumerate() {
            let name = |index: usize| format!("{round}-{index}");
            let bad = name(7);
            let () = server.cli(&["FLUSHALL"]).await;
            assert_eq!(admitted(&check_all(&limiter, &bad, 1).await), 1);
            let key = only_key(&server).await;
            put(&server, poison, &key).await;
            let mut checks = JoinSet::new();
            for index in 0..20 {
                for _ in 0..7 {
                    let (limiter, key) = (limiter.clone(), name(index));
                    checks.spawn(async move { (index, limiter.check(key).await) });
                }
            }
            let mut by_index = vec![Vec::new(); 20];
            for (index, decision) in checks.join_all().await {
                by_index[index].push(decision);
            }
            for (index, decisions) in by_index.iter().enumerate() {
                assert_eq!(admitted(decisions), 5, "{index}, {poison:?} by {quota:?}");
            }
            assert_every_key_expires(&server).await;
        }
    }
}

#[tokio::test]
async fn c13_b2_a_lost_ttl_returns() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    // All at once, as this takes the time of a TTL's slack.
    let mut tasks = JoinSet::new();
    let (window, slack) = (Duration::from_secs(8), Duration::from_secs(1));
    for (index, quota) in by_every_algorithm(100_000_000, window).into_iter().enumerate() {
        let limiter = strict(&store, quota);
        let name = format!("n{index}y");
        assert!(limiter.check(name.as_str()).await.is_allowed());
        let key = key_with(&server, &name).await;
        let mut connection = server.connection().await.expect("it listens");
        let persisted: bool = cmd("PERSIST")
            .arg(&key)
            .query_async(&mut connection)
            .await
            .expect("a reply");
        assert!(persisted, "{quota:?} had no TTL");
        tasks.spawn(async move {
            let start = Instant::now();
            loop {
                assert!(limiter.check(name.as_str()).await.is_allowed());
                let ttl: i64 = cmd("PTTL")
                    .arg(&key)
                    .query_async(&mut connection)
                    .await
                    .expect("a reply");
                if ttl > 0 || start.elapsed() > RECOVERY {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            (quota, start.elapsed())
        });
    }
    for (quota, took) in tasks.join_all().await {
        assert!(
            took <= slack + Duration::from_millis(500),
            "{took:?} by {quota:?}"
        );
    }
}

#[tokio::test]
async fn c13_b2_a_used_up_key_without_ttl_is_not_for_ever() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let mut tasks = JoinSet::new();
    for (index, quota) in by_every_algorithm(3, Duration::from_millis(1_500))
        .into_iter()
        .enumerate()
    {
        let limiter = strict(&store, quota);
        tasks.spawn(async move {
            let key = format!("k{index}");
            assert!(admitted(&check_all(&limiter, &key, 5).await) >= 3);
            let decision = limiter.wait(Key::from(key), Duration::from_secs(4)).await;
            assert!(decision.is_allowed(), "{quota:?}: {decision:?}");
        });
    }
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(600) {
        for key in keys(&server).await {
            let mut connection = server.connection().await.expect("it listens");
            cmd("PERSIST")
                .arg(&key)
                .exec_async(&mut connection)
                .await
                .expect("a reply");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tasks.join_all().await;
}

/// Uses up a counter, at times that are neither one tick nor one slot together, and puts a copy of it, each with another
/// bit flipped, in the place of counters that `name` names by the bit. Answers the counter.
async fn flip_bits(server: &Server, limiter: &Limiter, name: impl Fn(usize) -> String) -> Vec<u8> {
    let mut connection = server.connection().await.expect("it listens");
    let (key, counter) = loop {
        limiter.reset(name(0)).await.expect("an answer");
        for cost in [1, 1, 2] {
            let decision = limiter.check_cost(name(0).as_str(), cost).await;
            let slot = decision.now().as_micros() + 31_000;
            until("the next slot", RECOVERY, async || time(server).await > slot).await;
        }
        let keys: Vec<Vec<u8>> = server.cli(&["KEYS", &format!("*{}*", name(0))]).await;
        // Unless a window has ended meanwhile.
        if let Some(key) = keys.into_iter().next()
            && limiter.peek(name(0)).await.remaining() == Some(0)
        {
            let counter: Option<Vec<u8>> = cmd("GET")
                .arg(&key)
                .query_async(&mut connection)
                .await
                .expect("a reply");
            if let Some(counter) = counter {
                break (key, counter);
            }
        }
    };
    let mut poison = redis::pipe();
    for bit in 0..counter.len() * 8 {
        let mut flipped = counter.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let key = String::from_utf8_lossy(&key).replace(&name(0), &name(bit));
        poison
            .cmd("SET")
            .arg(key)
            .arg(flipped)
            .arg("PX")
            .arg(60_000)
            .ignore();
    }
    let () = poison.query_async(&mut connection).await.expect("replies");
    counter
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c13_counters_with_flipped_bits_are_answered_and_harm_no_neighbour() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let mut found = Vec::new();
    let mut quotas = by_every_algorithm(4, Duration::from_secs(7));
    // Slots short enough to fill some of them.
    quotas[1] = quotas[0].slots(256);
    for (index, quota) in quotas.into_iter().enumerate() {
        let limiter = strict(&store, quota);
        let name = |bit: usize| format!("n{index}x{bit}y");
        let counter = flip_bits(&server, &limiter, name).await;
        for bit in 0..counter.len() * 8 {
            let mut checks = JoinSet::new();
            // More than can be under way alone: some share the call with the bad one.
            for neighbour in 0..8 {
                let (limiter, key) = (limiter.clone(), format!("good{index}x{bit}x{neighbour}"));
                let key = if neighbour == 4 { name(bit) } else { key };
                checks.spawn(async move { (neighbour, limiter.check(key).await) });
            }
            for (neighbour, decision) in checks.join_all().await {
                let fine = match neighbour {
                    4 => decision.leading().is_some(),
                    _ => decision.remaining() == Some(3),
                };
                if !fine {
                    let (byte, bit) = (bit / 8, bit % 8);
                    let who = if neighbour == 4 { "it" } else { "a neighbour" };
                    found.push(format!(
                        "bit {bit} of byte {byte}, {who}, by {quota:?}: {decision:?}"
                    ));
                }
            }
        }
        assert_every_key_expires(&server).await;
    }
    assert!(found.is_empty(), "{} answers: {found:#?}", found.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c13_counters_with_flipped_bits_lock_nobody_out() {
    let server = Server::start(Version::V7).await;
    let store = connect(&server.url()).await;
    let window = Duration::from_millis(500);
    let mut waiting = JoinSet::new();
    for (index, quota) in by_every_algorithm(4, window).into_iter().enumerate() {
        let limiter = strict(&store, quota);
        let name = |bit: usize| format!("n{index}x{bit}y");
        let counter = flip_bits(&server, &limiter, name).await;
        for bit in 0..counter.len() * 8 {
            let (limiter, name) = (limiter.clone(), name(bit));
            waiting.spawn(async move {
                // Two windows and the slack, as after a clock that stepped back, and some time for 2 000 of these.
                let start = Instant::now();
                loop {
                    let decision = limiter.check(name.as_str()).await;
                    if decision.is_allowed() || start.elapsed() > window * 5 {
                        return (bit, quota, decision);
                    }
                    tokio::time::sleep(window / 10).await;
                }
            });
        }
    }
    let mut found = Vec::new();
    for (bit, quota, decision) in waiting.join_all().await {
        if !decision.is_allowed() {
            let (byte, bit) = (bit / 8, bit % 8);
            found.push(format!("bit {bit} of byte {byte} by {quota:?}: {decision:?}"));
        }
    }
    assert!(found.is_empty(), "{} are locked out: {found:#?}", found.len());
}
