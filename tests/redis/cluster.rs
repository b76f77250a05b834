//! Connections of the user's own, and a cluster.

use redis::aio::ConnectionManager;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use tollgate::store::{Ask, Charge, Correction, Mode, Outcome, Retry};
use tollgate::{Key, Limiter, PolicyName, Quota, RedisStore, Store};

use crate::server::{Server, Version};
use crate::support::{LONG, RECOVERY, admitted, check_all, strict, until};

/// Two nodes with half of the slots each.
async fn cluster() -> [Server; 2] {
    let settings = ["--cluster-enabled", "yes"];
    let nodes = [
        Server::start_with(Version::V7, &settings).await,
        Server::start_with(Version::V7, &settings).await,
    ];
    let slots = [["0", "8191"], ["8192", "16383"]];
    for (node, [first, last]) in nodes.iter().zip(slots) {
        let () = node.cli(&["CLUSTER", "ADDSLOTSRANGE", first, last]).await;
    }
    let port = nodes[1].port().to_string();
    let () = nodes[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &port]).await;
    for node in &nodes {
        until("the nodes know each other", RECOVERY * 4, async || {
            let info: String = node.cli(&["CLUSTER", "INFO"]).await;
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
        })
        .await;
    }
    nodes
}

async fn connection(nodes: &[Server; 2]) -> ClusterConnection {
    let client = ClusterClientBuilder::new(nodes.iter().map(Server::url))
        .retries(0)
        .build()
        .expect("two addresses");
    client.get_async_connection().await.expect("they are up")
}

/// Checks of many keys at once, which lie in many slots.
async fn assert_each_key_has_its_limit(store: &RedisStore) {
    let limiter = strict(store, Quota::per_hour(3));
    let mut checks = tokio::task::JoinSet::new();
    for key in 0..40 {
        let limiter: Limiter = limiter.clone();
        checks.spawn(async move { admitted(&check_all(&limiter, &format!("client {key}"), 8).await) });
    }
    assert!(checks.join_all().await.into_iter().all(|admitted| admitted == 3));
}

#[tokio::test]
async fn r21_a_cluster_is_found_out_and_limits_hold() {
    let nodes = cluster().await;
    let store = RedisStore::new(connection(&nodes).await);
    assert_each_key_has_its_limit(&store).await;
    let told = RedisStore::builder()
        .prefix("told")
        .cluster(true)
        .build(connection(&nodes).await);
    assert_each_key_has_its_limit(&told).await;
    assert_eq!(told.stats().errors, [], "nobody had to find out");
}

/// What subjects in several slots are asked for and told.
struct Subjects {
    store: RedisStore,
    keys: [Key; 3],
    policy: PolicyName,
}

impl Subjects {
    fn new(store: RedisStore) -> Self {
        Self {
            store,
            keys: ["user", "tenant", "everybody"].map(Key::from),
            policy: PolicyName::new("test").expect("a name"),
        }
    }

    fn charges(&self, limits: [u64; 3]) -> [Charge<'_>; 3] {
        std::array::from_fn(|at| Charge::new(&self.keys[at], &self.policy, Quota::per_hour(limits[at])))
    }

    async fn acquire(&self, charges: &[Charge<'_>], want: u32) -> Outcome {
        let ask = Ask::new(charges).want(want).deadline(LONG);
        self.store.acquire(&ask).await.expect("an answer")
    }

    async fn remaining(&self, charges: &[Charge<'_>]) -> Vec<u64> {
        let ask = Ask::new(charges).deadline(LONG);
        let peeked = self.store.peek(&ask).await.expect("an answer");
        peeked.states.iter().map(|state| state.remaining).collect()
    }
}

fn charged(outcome: &Outcome) -> Vec<u32> {
    outcome.states.iter().map(|state| state.charged).collect()
}

#[tokio::test]
async fn c5_r21_charges_in_several_slots_stand_or_fall_together() {
    let nodes = cluster().await;
    let subjects = Subjects::new(RedisStore::new(connection(&nodes).await));
    let charges = subjects.charges([5, 2, 4]);
    // The first finds out that it is a cluster.
    assert_eq!(subjects.acquire(&charges, 1).await.granted, 1);
    assert_eq!(subjects.remaining(&charges).await, [4, 1, 3]);

    let outcome = subjects.acquire(&charges, 3).await;
    assert_eq!(outcome.granted, 1, "the second has room for one");
    let told: Vec<u64> = outcome.states.iter().map(|state| state.remaining).collect();
    assert_eq!(told, [3, 0, 2]);
    until("the rest is given back", RECOVERY, async || {
        subjects.remaining(&charges).await == [3, 0, 2]
    })
    .await;

    let outcome = subjects.acquire(&charges, 1).await;
    assert_eq!(outcome.granted, 0);
    assert!(matches!(outcome.states[1].retry, Retry::After(_)), "{outcome:?}");
    assert_eq!(outcome.states[0].retry, Retry::Now);
    until("all is given back", RECOVERY, async || {
        subjects.remaining(&charges).await == [3, 0, 2]
    })
    .await;

    let shadow = subjects.charges([5, 2, 4]).map(|charge| match charge.key {
        key if *key == subjects.keys[1] => charge.mode(Mode::Shadow),
        _ => charge,
    });
    let outcome = subjects.acquire(&shadow, 1).await;
    assert_eq!(outcome.granted, 1, "a full shadow stops nobody");
    assert_eq!(charged(&outcome), [1, 0, 1]);

    let ask = Ask::new(&charges).deadline(LONG);
    subjects.store.reset(&ask).await.expect("an answer");
    assert_eq!(subjects.remaining(&charges).await, [5, 2, 4]);
    let settled = subjects.store.charge(&ask).await.expect("an answer");
    assert_eq!(charged(&settled), [1, 1, 1]);
    assert_eq!(subjects.remaining(&charges).await, [4, 1, 3]);
}

/// A correction of each charge, by its own stamp.
fn back<'a>(charges: &'a [Charge<'a>; 3], outcome: &Outcome, times: u32) -> [Correction<'a>; 3] {
    std::array::from_fn(|at| {
        let ask = Ask::new(std::slice::from_ref(&charges[at])).deadline(LONG);
        Correction::give_back(ask, times, outcome.stamp_of(at))
    })
}

#[tokio::test]
async fn c5_r21_charges_in_several_slots_are_given_back_by_their_own_stamps() {
    let nodes = cluster().await;
    let subjects = Subjects::new(RedisStore::new(connection(&nodes).await));
    let charges = subjects.charges([9, 9, 9]);
    for round in 0..5 {
        let outcome = subjects.acquire(&charges, 3).await;
        assert_eq!(outcome.granted, 3);
        assert_eq!(outcome.stamp, outcome.stamp_of(0));
        let stamps = [0, 1, 2].map(|at| outcome.stamp_of(at));
        assert!(
            stamps[0] < stamps[1] && stamps[1] < stamps[2],
            "one slot after another: {stamps:?}"
        );
        let settled = subjects.store.settle(&back(&charges, &outcome, 2)).await;
        settled.expect("all are made");
        assert_eq!(subjects.remaining(&charges).await, [8, 8, 8], "round {round}");
        let settled = subjects.store.settle(&back(&charges, &outcome, 1)).await;
        settled.expect("all are made");
        assert_eq!(subjects.remaining(&charges).await, [9, 9, 9], "round {round}");
    }
    // So it is with what was charged whether it fitted or not.
    let ask = Ask::new(&charges).deadline(LONG);
    let outcome = subjects.store.charge(&ask).await.expect("an answer");
    let settled = subjects.store.settle(&back(&charges, &outcome, 1)).await;
    settled.expect("all are made");
    assert_eq!(subjects.remaining(&charges).await, [9, 9, 9]);
}

#[tokio::test]
async fn r21_corrections_of_many_slots_are_made_at_once() {
    let nodes = cluster().await;
    let (told, found_out) = (connection(&nodes).await, connection(&nodes).await);
    let told = RedisStore::builder().cluster(true).build(told);
    let (policy, quota) = (PolicyName::new("test").expect("a name"), Quota::per_hour(100));
    let keys: Vec<Key> = (0..150)
        .map(|number| Key::from(format!("client {number}")))
        .collect();
    let charges: Vec<[Charge<'_>; 1]> = keys
        .iter()
        .map(|key| [Charge::new(key, &policy, quota)])
        .collect();
    let all: Vec<Charge<'_>> = charges.iter().map(|charge| charge[0]).collect();
    // One of all, which lies in all of their slots, beside those of each.
    let settle = async |store: &RedisStore| {
        let each = charges
            .iter()
            .map(|charge| Correction::charge(Ask::new(charge).deadline(LONG)));
        let corrections: Vec<_> = each
            .chain([Correction::charge(Ask::new(&all).deadline(LONG))])
            .collect();
        store.settle(&corrections).await.expect("all are made");
    };
    settle(&told).await;
    let errors = told.stats().errors;
    assert!(
        errors.iter().all(|(class, _)| *class == "no_script"),
        "nobody had to find out: {errors:?}"
    );
    settle(&RedisStore::new(found_out)).await;
    for charge in &charges {
        let peeked = told
            .peek(&Ask::new(charge).deadline(LONG))
            .await
            .expect("an answer");
        assert_eq!(peeked.states[0].remaining, 96, "{:?}", charge[0].key);
    }
}

#[tokio::test]
async fn a_connection_manager_and_a_plain_connection_serve() {
    let server = Server::start(Version::V7).await;
    let client = redis::Client::open(server.url()).expect("a URL");
    let manager = ConnectionManager::new(client).await.expect("it is up");
    assert_each_key_has_its_limit(&RedisStore::new(manager)).await;
    let plain = server.connection().await.expect("it is up");
    let store = RedisStore::builder().prefix("plain").build(plain);
    assert_each_key_has_its_limit(&store).await;
}
