//! A login that counts failures alone, however many guess at once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::post;
use http::{Method, StatusCode};
use http_body_util::Full;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tollgate::store::AnyStore;
use tollgate::{Policy, Quota, RateLimitLayer, key};

use super::Place;
use crate::support::{self, within};

on_both_stores! {
    of_fifty_wrong_passwords_at_once_five_are_looked_at,
    right_passwords_at_once_leave_no_trace,
    guesses_among_right_passwords_are_counted,
}

const LIMIT: u64 = 5;
const RIGHT: &str = "correct-horse";

/// A service with accounts, and how often it has looked at a password.
struct Service {
    address: SocketAddr,
    layer: RateLimitLayer,
    looked: Arc<AtomicUsize>,
}

impl Service {
    async fn start(store: AnyStore) -> Self {
        let account = |request: &http::request::Parts| {
            let (_, account) = request.uri.path().rsplit_once('/')?;
            Some(account.to_owned())
        };
        let policies = [
            Policy::new("account", Quota::per_hour(LIMIT), account)
                .give_back_on(|status| status.is_success()),
            // A second one, which is not given back.
            Policy::new("address", Quota::per_hour(1_000), key::PeerIp),
        ];
        let layer = RateLimitLayer::with_policies(store, policies);
        let looked = Arc::new(AtomicUsize::new(0));
        let login =
            async |State(looked): State<Arc<AtomicUsize>>, Path(_): Path<String>, password: String| {
                looked.fetch_add(1, Ordering::SeqCst);
                // Slow, as hashes of passwords are.
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                match password.as_str() {
                    RIGHT => StatusCode::OK,
                    _ => StatusCode::UNAUTHORIZED,
                }
            };
        let app = Router::new()
            .route("/login/{account}", post(login))
            .with_state(Arc::clone(&looked))
            .layer(layer.clone());
        Self {
            address: support::serve(app).await,
            layer,
            looked,
        }
    }

    async fn log_in(&self, account: &str, password: &'static str) -> u16 {
        attempt(self.address, account, password).await
    }

    /// So many attempts at once, each over a connection of its own: how many have got each status.
    async fn log_in_at_once(&self, account: &str, passwords: Vec<&'static str>) -> BTreeMap<u16, usize> {
        let start = Arc::new(Barrier::new(passwords.len()));
        let mut attempts = JoinSet::new();
        for password in passwords {
            let (start, address, account) = (Arc::clone(&start), self.address, account.to_owned());
            attempts.spawn(async move {
                start.wait().await;
                attempt(address, &account, password).await
            });
        }
        let mut statuses = BTreeMap::new();
        for status in within(attempts.join_all()).await {
            *statuses.entry(status).or_default() += 1;
        }
        statuses
    }

    /// Failures that an account has left, when all is settled.
    async fn left(&self, account: &str) -> Option<u64> {
        assert_eq!(self.layer.shutdown().await, 0);
        let account_limit = self.layer.limiter().only("account").expect("it is there");
        account_limit.peek(account).await.remaining()
    }
}

async fn attempt(address: SocketAddr, account: &str, password: &'static str) -> u16 {
    let mut request = support::request(address, &format!("/login/{account}"));
    *request.method_mut() = Method::POST;
    *request.body_mut() = Full::from(password);
    support::send(request).await.status.as_u16()
}

async fn of_fifty_wrong_passwords_at_once_five_are_looked_at(place: &Place) {
    let service = Service::start(place.store()).await;
    let statuses = service.log_in_at_once("ann", vec!["guess"; 50]).await;
    assert_eq!(statuses, BTreeMap::from([(401, 5), (429, 45)]));
    assert_eq!(service.looked.load(Ordering::SeqCst), 5);
    assert_eq!(service.left("ann").await, Some(0));
    // Nor does the right one help any more, or the guesses would have shown it.
    assert_eq!(service.log_in("ann", RIGHT).await, 429);
    assert_eq!(service.looked.load(Ordering::SeqCst), 5);

    // Elsewhere, a right one is given back.
    for _ in 0..3 {
        assert_eq!(service.log_in("ben", RIGHT).await, 200);
        assert_eq!(service.left("ben").await, Some(5));
    }
    assert_eq!(service.log_in("ben", "guess").await, 401);
    assert_eq!(service.log_in("ben", RIGHT).await, 200);
    assert_eq!(service.left("ben").await, Some(4));

    // When support has reset the account, it is as new.
    let account = service.layer.limiter().only("account").expect("it is there");
    account.reset("ann").await.expect("done");
    assert_eq!(service.log_in("ann", RIGHT).await, 200);
    assert_eq!(service.left("ann").await, Some(5));
    // The other policy has counted what was looked at, and none of what was denied.
    let address = service.layer.limiter().only("address").expect("it is there");
    let mut request = http::Request::new(()).into_parts().0;
    request
        .extensions
        .insert(key::PeerAddr(([127, 0, 0, 1], 1).into()));
    let peer = service.layer.key("address", &request).expect("it has one");
    assert_eq!(address.peek(&peer).await.remaining(), Some(1_000 - 11));
}

async fn right_passwords_at_once_leave_no_trace(place: &Place) {
    let service = Service::start(place.store()).await;
    let statuses = service.log_in_at_once("ann", vec![RIGHT; 50]).await;
    // Never more than five at a time, and none is counted in the end.
    let passed = statuses[&200];
    assert!(
        passed >= 5 && passed + statuses.get(&429).unwrap_or(&0) == 50,
        "{statuses:?}"
    );
    assert_eq!(service.looked.load(Ordering::SeqCst), passed);
    assert_eq!(service.left("ann").await, Some(5));
}

async fn guesses_among_right_passwords_are_counted(place: &Place) {
    let service = Service::start(place.store()).await;
    let mut passwords = vec!["guess"; 40];
    passwords.extend([RIGHT; 10]);
    let statuses = service.log_in_at_once("ann", passwords).await;
    let wrong = statuses[&401];
    assert!(wrong <= 5, "{statuses:?}");
    assert_eq!(service.left("ann").await, Some(LIMIT - wrong as u64));
    // No more than five wrong ones ever, however the right ones mix in.
    let mut all = wrong;
    for _ in 0..8 {
        all += usize::from(service.log_in("ann", "guess").await == 401);
    }
    assert_eq!(all, 5);
}
