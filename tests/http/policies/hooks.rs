//! What the hook is told: every decision once, and no key.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use http::{HeaderName, Method, StatusCode};
use tollgate::store::StoreErrorKind;
use tollgate::{
    DecisionEvent, ExemptReason, FailurePolicy, MissingKey, Policy, Quota, RateLimitLayer, RejectionKind,
    Rule, Source, Verdict, key,
};

use super::{Place, ask, get as get_request, get_as, statuses, user};
use crate::support::{self, Behaviour, TestStore};

on_both_stores! {
    every_decision_is_told_once,
    no_key_is_told_unless_revealed,
    readable_keys_are_revealed_as_they_are,
    the_route_is_the_pattern,
    a_limiter_tells_too,
    decisions_after_a_lookup_are_told_once,
}

/// What a hook was told.
#[derive(Clone, Debug)]
struct Told {
    verdict: Verdict,
    source: Source,
    rejection: Option<RejectionKind>,
    counted: Vec<(String, String)>,
    keys: Vec<Option<String>>,
    method: Option<Method>,
    route: Option<String>,
    exemptions: Vec<ExemptReason>,
    debug: String,
}

#[derive(Clone, Default)]
struct Audit(Arc<Mutex<Vec<Told>>>);

impl Audit {
    fn hook(&self) -> impl Fn(&DecisionEvent<'_>) + Send + Sync + 'static {
        let told = Arc::clone(&self.0);
        move |event| {
            let counted = event.counted().iter();
            let counted: Vec<(String, String)> = counted
                .map(|counted| (counted.policy().to_string(), counted.fingerprint().to_string()))
                .collect();
            let key = |(policy, _): &(String, String)| {
                let key = event.key(policy)?;
                Some(String::from_utf8_lossy(key.as_bytes()).into_owned())
            };
            let exemptions = event.decision().exemptions().iter();
            told.lock().expect("no test has failed under it").push(Told {
                verdict: event.decision().verdict(),
                source: event.decision().source(),
                rejection: event.rejection(),
                keys: counted.iter().map(key).collect(),
                counted,
                method: event.method().cloned(),
                route: event.route().map(str::to_owned),
                exemptions: exemptions.map(tollgate::Exemption::reason).collect(),
                debug: format!("{event:?}"),
            });
        }
    }

    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut *self.0.lock().expect("no test has failed under it"))
    }

    #[track_caller]
    fn only(&self) -> Told {
        let mut told = self.take();
        assert_eq!(told.len(), 1, "{told:#?}");
        told.remove(0)
    }
}

fn app(layer: &RateLimitLayer) -> Router {
    Router::new()
        .route("/", get(async || "hello"))
        .route("/users/{id}", get(async || "user").post(async || "posted"))
        .layer(layer.clone())
}

fn hourly(name: &str, limit: u64) -> Policy {
    Policy::new(name, Quota::per_hour(limit), user)
}

async fn every_decision_is_told_once(place: &Place) {
    let audit = Audit::default();
    let policies = [
        hourly("hour", 2).missing_key(MissingKey::Reject(StatusCode::UNAUTHORIZED)),
        Policy::new("all", Quota::per_hour(100), key::Global),
    ];
    let layer = RateLimitLayer::with_policies(place.store(), policies)
        .skip_when(Rule::path("/users/{id}"))
        .on_decision(audit.hook());
    let app = app(&layer);
    let cases = [
        (get_as("ann", "/"), Verdict::Allowed, Source::Store, None, 2),
        (get_as("ann", "/"), Verdict::Allowed, Source::Store, None, 2),
        (
            get_as("ann", "/"),
            Verdict::Denied,
            Source::Store,
            Some(RejectionKind::QuotaExceeded),
            2,
        ),
        (
            get_as("ann", "/users/1"),
            Verdict::Allowed,
            Source::Exempt,
            None,
            0,
        ),
        (
            get_request("/"),
            Verdict::MissingKey,
            Source::Exempt,
            Some(RejectionKind::MissingKey),
            0,
        ),
        // No route, and still a decision.
        (get_as("ben", "/none"), Verdict::Allowed, Source::Store, None, 2),
    ];
    for (request, verdict, source, rejection, counted) in cases {
        ask(&app, request).await;
        let told = audit.only();
        assert_eq!(
            (told.verdict, told.source, told.rejection),
            (verdict, source, rejection)
        );
        assert_eq!(told.counted.len(), counted, "{told:?}");
        let exemptions: &[ExemptReason] = match (source, rejection) {
            (Source::Exempt, None) => &[ExemptReason::Skipped],
            (Source::Exempt, Some(_)) => &[ExemptReason::MissingKey],
            _ => &[],
        };
        assert_eq!(told.exemptions, exemptions);
    }
    // To look is no decision.
    layer
        .peek(&super::parts(get_as("ann", "/")))
        .await
        .expect("it has a key");
    layer.limiter().peek("ann").await;
    assert!(audit.take().is_empty());
}

#[tokio::test]
async fn decisions_without_the_store_are_told_once() {
    for behaviour in [Behaviour::Fails, Behaviour::FailsHeld] {
        let store = TestStore::new(behaviour(StoreErrorKind::Unavailable));
        store.release(100);
        for (failure, verdict, rejection) in [
            (FailurePolicy::Allow, Verdict::Allowed, None),
            (
                FailurePolicy::Deny,
                Verdict::Unavailable,
                Some(RejectionKind::StoreUnavailable),
            ),
            (FailurePolicy::Local { instances: 1 }, Verdict::Allowed, None),
        ] {
            let audit = Audit::default();
            let policy = hourly("hour", 1).failure_policy(failure);
            let layer = RateLimitLayer::with_policies(store.clone(), [policy]).on_decision(audit.hook());
            ask(&app(&layer), get_as("ann", "/")).await;
            let told = audit.only();
            assert_eq!(
                (told.verdict, told.rejection),
                (verdict, rejection),
                "{failure:?}"
            );
            assert_eq!(told.source, Source::Fallback);
            assert_eq!(told.counted.len(), 1, "what was asked of the store");
        }
    }
}

async fn no_key_is_told_unless_revealed(place: &Place) {
    for reveals in [false, true] {
        let audit = Audit::default();
        let api_key = key::Header::new(HeaderName::from_static("x-user"));
        let layer = RateLimitLayer::with_policies(
            place.store(),
            [
                Policy::new("user", Quota::per_hour(1), user),
                Policy::new("key", Quota::per_hour(9), api_key),
            ],
        )
        .on_decision(audit.hook())
        .reveal_keys(reveals);
        let app = app(&layer);
        statuses(&app, 2, || get_as(&format!("secret-{reveals}"), "/")).await;
        let told = audit.take();
        assert_eq!(told.len(), 2);
        for told in told {
            assert!(!told.debug.contains("secret"), "{}", told.debug);
            let [(user, of_user), (key, of_key)] = &told.counted[..] else {
                panic!("{told:?}");
            };
            assert_eq!([user.as_str(), key], ["user", "key"]);
            assert_ne!(of_user, of_key);
            let raw = format!("secret-{reveals}");
            assert_eq!(
                *of_user,
                tollgate::Key::from(raw.as_str()).fingerprint().to_string()
            );
            if reveals {
                assert_eq!(told.keys[0].as_deref(), Some(&*format!("key={raw}")));
                // What an extractor hashes stays hashed.
                let hashed = told.keys[1].as_deref().expect("it is revealed");
                assert!(!hashed.contains("secret"), "{hashed}");
            } else {
                assert_eq!(told.keys, [None, None]);
            }
        }
    }
}

async fn readable_keys_are_revealed_as_they_are(place: &Place) {
    use tollgate::KeyExtractor;

    let audit = Audit::default();
    let api_key = key::Header::new(HeaderName::from_static("x-user")).readable();
    let layer = RateLimitLayer::new(place.store(), Quota::per_hour(1), api_key)
        .name("key")
        .on_decision(audit.hook())
        .reveal_keys(true);
    ask(&app(&layer), get_as("visible", "/")).await;
    let told = audit.only();
    let key = told.keys[0].as_deref().expect("it is revealed");
    assert!(key.ends_with("=visible"), "{key}");
    let names = place.names().await;
    assert!(
        names.iter().all(|name| name.contains(key)),
        "{names:?}: the same as in the store"
    );
}

async fn the_route_is_the_pattern(place: &Place) {
    let audit = Audit::default();
    let layer = RateLimitLayer::new(place.store(), Quota::per_hour(3), key::Global).on_decision(audit.hook());
    let users = Router::new().route("/users/{id}", get(async || "user"));
    let app = Router::new().nest("/api", users).layer(layer.clone());
    for (path, route) in [
        ("/api/users/7?token=secret", Some("/api/users/{id}")),
        ("/none/secret", None),
        ("/api/users/8", Some("/api/users/{id}")),
        // Denied.
        ("/api/users/9", Some("/api/users/{id}")),
    ] {
        ask(&app, get_request(path)).await;
        let told = audit.only();
        assert_eq!(told.route.as_deref(), route, "{path}");
        assert_eq!(told.method, Some(Method::GET));
        assert!(!told.debug.contains("secret"), "{}", told.debug);
    }
    // And outside of the router there is none.
    let app = Router::new().fallback_service(tower::Layer::layer(&layer, app));
    ask(&app, get_request("/api/users/7")).await;
    let told = audit.take();
    assert_eq!(told[0].route, None);
}

async fn a_limiter_tells_too(place: &Place) {
    let audit = Audit::default();
    let limiter = tollgate::Limiter::new(place.store(), Quota::per_hour(1))
        .name("mail")
        .on_decision(audit.hook())
        .reveal_keys(true);
    for (allowed, rejection) in [(true, None), (false, Some(RejectionKind::QuotaExceeded))] {
        assert_eq!(limiter.check("ann").await.is_allowed(), allowed);
        let told = audit.only();
        assert_eq!(told.rejection, rejection);
        assert_eq!(told.keys, [Some("key=ann".to_owned())]);
        assert_eq!((told.method, told.route), (None, None));
    }
    assert!(limiter.reserve("ann", 1).await.is_err());
    audit.only();
    limiter.only("mail").expect("it is there").check("ann").await;
    audit.only();
}

async fn decisions_after_a_lookup_are_told_once(place: &Place) {
    let audit = Audit::default();
    let layer = RateLimitLayer::new(place.store(), Quota::per_hour(1), user)
        .on_decision(audit.hook())
        .lookup(|_: &http::request::Parts| async {
            tokio::task::yield_now().await;
            None::<u8>
        });
    let app = app(&layer);
    for expected in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        assert_eq!(ask(&app, get_as("ann", "/")).await.status, expected);
        assert_eq!(audit.only().rejection.is_some(), expected != StatusCode::OK);
    }
}

#[tokio::test]
async fn every_decision_is_told_once_over_sockets() {
    let audit = Audit::default();
    let store = tollgate::MemoryStore::new();
    let layer = RateLimitLayer::new(store, Quota::per_hour(2), key::PeerIp).on_decision(audit.hook());
    let address = support::serve(app(&layer)).await;
    for _ in 0..3 {
        support::get(address, "/users/7").await;
        let told = audit.only();
        assert_eq!(told.route.as_deref(), Some("/users/{id}"));
        assert!(!told.debug.contains("127.0.0.1"), "{}", told.debug);
    }
}
