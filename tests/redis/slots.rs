//! C7, R21: in a cluster, told of or not, what one slot refuses or forgets harms no other.

use std::collections::BTreeSet;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate::store::{Ask, Charge};
use tollgate::{Key, PolicyName, Quota, RedisStore, Store};

use crate::callers::{acquire, acquire_later, granted, ms, replies, scripted};
use crate::scripted::{Reply, Scripted, Sent};

/// The keys of a call of plain asks.
fn keys_of(sent: &Sent) -> Vec<String> {
    let count = String::from_utf8_lossy(&sent.arguments[1])
        .parse()
        .expect("a number");
    let keys = sent.arguments[2..].iter().take(count);
    keys.map(|key| String::from_utf8_lossy(key).into_owned())
        .collect()
}

/// Refuses calls whose keys differ in what this makes of them.
fn refusing_several<T: Ord>(what: impl Fn(&str) -> T + Send + Sync + 'static) -> Scripted {
    scripted(move |sent| {
        let keys = keys_of(sent);
        let different: BTreeSet<T> = keys.iter().map(|key| what(key)).collect();
        if different.len() > 1 {
            Reply::error("CROSSSLOT Keys in request don't hash to the same slot").after(ms(5))
        } else {
            replies(&vec![1; keys.len()]).after(ms(5))
        }
    })
}

/// What chooses the cluster slot.
fn tag(key: &str) -> String {
    key.split('}').next().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn r21_a_cluster_that_nobody_told_of_is_found_out_at_no_callers_cost() {
    let connection = refusing_several(str::to_owned);
    let store = RedisStore::builder().max_batch(4).build(connection.clone());
    let mut calls = JoinSet::new();
    for index in 0..40 {
        let store = store.clone();
        calls.spawn(async move { acquire(&store, &format!("k{index}"), ms(1_000)).await });
    }
    for answer in calls.join_all().await {
        assert_eq!(answer, Ok(1), "{:?}", connection.sent());
    }
}

#[tokio::test(start_paused = true)]
async fn r21_an_ask_of_two_slots_harms_no_neighbour() {
    let store = RedisStore::builder().cluster(true).build(refusing_several(tag));
    let (a, other) = (Key::from("a"), Key::from("other"));
    let policy = PolicyName::new("two").expect("a name");
    let charges = [&a, &other].map(|key| Charge::new(key, &policy, Quota::per_minute(9)));
    let (_, _, _, neighbour) = tokio::join!(
        acquire(&store, "x", ms(100)),
        acquire(&store, "y", ms(100)),
        store.acquire(&Ask::new(&charges).deadline(ms(100))),
        acquire(&store, "a", ms(100)),
    );
    assert_eq!(neighbour, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn c7_callers_that_have_gone_hold_up_no_other_slot() {
    let store = RedisStore::builder()
        .cluster(true)
        .build(scripted(|_| granted(ms(20))));
    let mut gone = JoinSet::new();
    let all_gone = async {
        for index in 0..6 {
            let store = store.clone();
            gone.spawn(async move {
                let _gone = timeout(ms(10), acquire(&store, &format!("gone{index}"), ms(100))).await;
            });
        }
        while gone.join_next().await.is_some() {}
    };
    let (_, _, (), (answer, _)) = tokio::join!(
        acquire(&store, "x", ms(100)),
        acquire(&store, "y", ms(100)),
        all_gone,
        acquire_later(&store, ms(1), "live", ms(100)),
    );
    assert_eq!(answer, Ok(1), "{:?}", store.stats());
}
