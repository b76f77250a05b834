//! Requests that are not counted, and that say so.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::{any, get};
use http::{HeaderName, Method, Request, StatusCode};
use tollgate::key::{self, KeyBuilder, KeyExtractor, KeyHasher, PeerAddr};
use tollgate::{
    Decision, DecisionEvent, ExemptReason, Key, MissingKey, Policy, PolicyMode, Predicate, Quota,
    RateLimitLayer, RejectionKind, Rule, Source,
};

use super::{Place, ask, get as get_request, get_as, left, statuses, user};
use crate::support::Reply;

on_both_stores! {
    what_is_skipped_is_counted_by_nobody,
    one_policy_skips_alone,
    health_checks_are_free_wherever_the_layer_is,
    own_networks_are_free,
    known_keys_are_free,
    known_keys_of_other_extractors_are_free,
    r18_preflights_are_free_if_said,
    requests_without_a_key_can_be_free,
    only_enforced_policies_refuse_for_want_of_a_key,
    predicates_combine,
}

/// What a hook was told of exemptions: source, and policy with reason.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Line>>>);

type Line = (Source, Vec<(Option<String>, ExemptReason)>, Option<RejectionKind>);

impl Told {
    fn hook(&self) -> impl Fn(&DecisionEvent<'_>) + Send + Sync + 'static {
        let told = Arc::clone(&self.0);
        move |event| {
            let line = (
                event.decision().source(),
                exemptions(event.decision()),
                event.rejection(),
            );
            told.lock().expect("no test has failed under it").push(line);
        }
    }

    #[track_caller]
    fn only(&self) -> Line {
        let mut told = std::mem::take(&mut *self.0.lock().expect("no test has failed under it"));
        assert_eq!(told.len(), 1, "{told:?}");
        told.remove(0)
    }
}

fn exemptions(decision: &Decision) -> Vec<(Option<String>, ExemptReason)> {
    let named = |policy: Option<&tollgate::PolicyName>| policy.map(ToString::to_string);
    decision
        .exemptions()
        .iter()
        .map(|exemption| (named(exemption.policy()), exemption.reason()))
        .collect()
}

/// Says what the handler's decision is, and why.
async fn tell(decision: Decision) -> String {
    let reasons: Vec<String> = exemptions(&decision)
        .into_iter()
        .map(|(policy, reason)| format!("{}:{reason}", policy.as_deref().unwrap_or("*")))
        .collect();
    format!("{:?} {}", decision.source(), reasons.join(","))
}

fn app(layer: &RateLimitLayer) -> Router {
    Router::new()
        .route("/", any(tell))
        .route("/healthz", any(tell))
        .route("/other", any(tell))
        .layer(layer.clone())
}

fn hourly(name: &str, limit: u64) -> Policy {
    Policy::new(name, Quota::per_hour(limit), user)
}

/// Nothing about limits, and the handler knows why.
#[track_caller]
fn assert_exempt(reply: &Reply, told: &str) {
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.limit_fields(), [""; 0]);
    assert_eq!(reply.body, told);
}

async fn what_is_skipped_is_counted_by_nobody(place: &Place) {
    let told = Told::default();
    let layer = RateLimitLayer::with_policies(place.store(), [hourly("hour", 1), hourly("more", 9)])
        .skip_when(|request: &http::request::Parts| user(request).as_deref() == Some("staff"))
        .skip_when(Rule::path("/other"))
        .on_decision(told.hook());
    let app = app(&layer);
    for request in [
        get_as("staff", "/"),
        get_as("staff", "/"),
        get_as("ann", "/other"),
    ] {
        assert_exempt(&ask(&app, request).await, "Exempt *:skipped");
        let all = vec![(None, ExemptReason::Skipped)];
        assert_eq!(told.only(), (Source::Exempt, all, None));
    }
    assert_eq!(place.keys().await, 0);
    assert_eq!(statuses(&app, 2, || get_as("ann", "/")).await, [200, 429]);
    // What would be decided says the same.
    let peeked = layer
        .peek(&super::parts(get_as("staff", "/")))
        .await
        .expect("it has a key");
    assert_eq!(exemptions(&peeked), [(None, ExemptReason::Skipped)]);
}

async fn one_policy_skips_alone(place: &Place) {
    let told = Told::default();
    let policies = [
        hourly("strict", 1)
            .skip_when(Rule::path("/other"))
            .skip_when(Rule::path("/healthz")),
        hourly("wide", 5),
    ];
    let layer = RateLimitLayer::with_policies(place.store(), policies).on_decision(told.hook());
    let app = app(&layer);
    for (path, remaining) in [("/other", 4), ("/healthz", 3), ("/other", 2)] {
        let reply = ask(&app, get_as("ann", path)).await;
        assert_eq!(reply.number("x-ratelimit-remaining"), remaining);
        assert_eq!(reply.body, "Store strict:skipped");
        let (source, exemptions, _) = told.only();
        assert_eq!(source, Source::Store);
        assert_eq!(exemptions, [(Some("strict".to_owned()), ExemptReason::Skipped)]);
    }
    assert_eq!(statuses(&app, 2, || get_as("ann", "/")).await, [200, 429]);
    assert_eq!(left(&layer, "wide", get_as("ann", "/")).await, 1);
}

async fn health_checks_are_free_wherever_the_layer_is(place: &Place) {
    let layer = RateLimitLayer::new(place.store(), Quota::per_hour(1), key::Global)
        .skip_when(Rule::path("/healthz").method(Method::GET));
    let on_routes = Router::new()
        .route("/healthz", any(tell))
        .route("/", any(tell))
        .route_layer(layer.clone());
    let around = Router::new().fallback_service(tower::Layer::layer(&layer, app_without()));
    for app in [app(&layer), on_routes, around] {
        for method in [Method::GET, Method::HEAD] {
            let mut health = get_request("/healthz");
            *health.method_mut() = method;
            let reply = ask(&app, health).await;
            assert_eq!(reply.status, StatusCode::OK);
            assert_eq!(reply.limit_fields(), [""; 0]);
        }
    }
    let app = app(&layer);
    assert_eq!(statuses(&app, 2, || get_request("/")).await, [200, 429]);
    let mut post = get_request("/healthz");
    *post.method_mut() = Method::POST;
    assert_eq!(ask(&app, post).await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ask(&app, get_request("/healthz")).await.status, StatusCode::OK);
}

fn app_without() -> Router {
    Router::new().route("/healthz", any(tell)).route("/", any(tell))
}

async fn own_networks_are_free(place: &Place) {
    let own = || {
        key::PeerIp
            .is_in(["10.0.0.0/8", "192.0.2.7", "fd00::/8"])
            .expect("networks")
    };
    let told = Told::default();
    let layer = RateLimitLayer::new(place.store(), Quota::per_hour(1), key::PeerIp)
        .skip_when(own())
        .on_decision(told.hook());
    let app = app(&layer);
    let from = |address: &str| {
        let mut request = get_request("/");
        let address: SocketAddr = address.parse().expect("an address");
        request.extensions_mut().insert(PeerAddr(address));
        request
    };
    for address in ["10.1.2.3:1", "192.0.2.7:1", "[fd00::1]:1", "[::ffff:10.9.9.9]:1"] {
        for _ in 0..2 {
            assert_exempt(&ask(&app, from(address)).await, "Exempt *:skipped");
            assert_eq!(told.only().1, [(None, ExemptReason::Skipped)]);
        }
    }
    for address in ["11.1.2.3:1", "192.0.2.8:1", "[fe00::1]:1"] {
        assert_eq!(statuses(&app, 2, || from(address)).await, [200, 429], "{address}");
    }
    // What nobody knows is in no network, and what a client writes is no address.
    let mut claimed = from("11.1.2.3:1");
    claimed
        .headers_mut()
        .insert("x-forwarded-for", "10.0.0.1".parse().expect("a value"));
    assert_eq!(ask(&app, claimed).await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(statuses(&app, 2, || get_request("/")).await, [200, 429]);
}

async fn known_keys_are_free(place: &Place) {
    let told = Told::default();
    let policies = [
        hourly("strict", 1)
            .allow_keys(["staff", "robot"])
            .allow_keys(["{odd} name"]),
        hourly("wide", 9).allow_keys([String::from("staff")]),
    ];
    let layer = RateLimitLayer::with_policies(place.store(), policies).on_decision(told.hook());
    let app = app(&layer);
    for _ in 0..3 {
        assert_exempt(
            &ask(&app, get_as("staff", "/")).await,
            "Exempt strict:allowed-key,wide:allowed-key",
        );
        let reasons = vec![
            (Some("strict".to_owned()), ExemptReason::AllowedKey),
            (Some("wide".to_owned()), ExemptReason::AllowedKey),
        ];
        assert_eq!(told.only(), (Source::Exempt, reasons, None));
    }
    for user in ["robot", "{odd} name"] {
        for remaining in [8, 7] {
            let reply = ask(&app, get_as(user, "/")).await;
            assert_eq!(reply.number("x-ratelimit-remaining"), remaining);
            assert_eq!(reply.body, "Store strict:allowed-key");
        }
    }
    for user in ["Staff", "staff2", ""] {
        assert_eq!(
            statuses(&app, 2, || get_as(user, "/")).await,
            [200, 429],
            "{user}"
        );
    }
}

async fn known_keys_of_other_extractors_are_free(place: &Place) {
    // Of hashed keys, as the extractor makes them.
    let hasher = KeyHasher::with_secret("0123456789abcdef").expect("long enough");
    let api_key = || key::Header::new(HeaderName::from_static("x-user"));
    let known: Key = {
        let mut key = KeyBuilder::new(&hasher);
        api_key()
            .extract(&super::parts(get_as("partner", "/")), &mut key)
            .expect("a key");
        key.finish()
    };
    let policy = Policy::new("key", Quota::per_hour(1), api_key()).allow_keys([&known]);
    let layer = RateLimitLayer::with_policies(place.store(), [policy]).key_hasher(hasher);
    let app = app(&layer);
    assert_eq!(statuses(&app, 3, || get_as("partner", "/")).await, [200; 3]);
    assert_eq!(statuses(&app, 2, || get_as("other", "/")).await, [200, 429]);
    // The layer tells the same key.
    assert_eq!(
        layer.key("key", &super::parts(get_as("partner", "/"))),
        Some(known)
    );
}

async fn r18_preflights_are_free_if_said(place: &Place) {
    let told = Told::default();
    let layer = RateLimitLayer::new(place.store(), Quota::per_hour(1), key::Global)
        .exempt_preflight(true)
        .on_decision(told.hook());
    let app = app(&layer);
    let preflight = || {
        Request::options("/")
            .header("origin", "https://page.example")
            .header("access-control-request-method", "PUT")
            .body(axum::body::Body::empty())
            .expect("a request")
    };
    for _ in 0..3 {
        assert_exempt(&ask(&app, preflight()).await, "Exempt *:preflight");
        assert_eq!(told.only().1, [(None, ExemptReason::Preflight)]);
    }
    assert_eq!(statuses(&app, 2, || get_request("/")).await, [200, 429]);
    let counted = self::app(&layer.clone().exempt_preflight(false));
    assert_eq!(statuses(&counted, 1, preflight).await, [429]);
}

async fn requests_without_a_key_can_be_free(place: &Place) {
    let told = Told::default();
    let policies = [
        hourly("user", 2).missing_key(MissingKey::Skip),
        Policy::new("all", Quota::per_hour(9), key::Global),
    ];
    let layer = RateLimitLayer::with_policies(place.store(), policies).on_decision(told.hook());
    let app = app(&layer);
    for remaining in [8, 7, 6] {
        let reply = ask(&app, get_request("/")).await;
        assert_eq!(reply.number("x-ratelimit-remaining"), remaining);
        assert_eq!(reply.body, "Store user:missing-key");
        let reasons = vec![(Some("user".to_owned()), ExemptReason::MissingKey)];
        assert_eq!(told.only(), (Source::Store, reasons, None));
    }
    assert_eq!(place.keys().await, 1);
}

async fn only_enforced_policies_refuse_for_want_of_a_key(place: &Place) {
    let told = Told::default();
    let reject = || MissingKey::Reject(StatusCode::UNAUTHORIZED);
    let policies = [
        Policy::new("all", Quota::per_hour(9), key::Global),
        hourly("tried", 2).missing_key(reject()).mode(PolicyMode::Shadow),
    ];
    let layer = RateLimitLayer::with_policies(place.store(), policies).on_decision(told.hook());
    let app = app(&layer);
    let reply = ask(&app, get_request("/")).await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.body, "Store tried:missing-key");
    let reasons = vec![(Some("tried".to_owned()), ExemptReason::MissingKey)];
    assert_eq!(told.only(), (Source::Store, reasons, None));

    // Nor does one that is off.
    let tried = layer.handle("tried").expect("it is there");
    tried.set_mode(PolicyMode::Off);
    assert_eq!(ask(&app, get_request("/")).await.body, "Store tried:off");
    told.only();

    // Enforced, it refuses, and nothing is charged to the others.
    tried.set_mode(PolicyMode::Enforce);
    let reply = ask(&app, get_request("/")).await;
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
    let (source, _, rejection) = told.only();
    assert_eq!(
        (source, rejection),
        (Source::Exempt, Some(RejectionKind::MissingKey))
    );
    assert_eq!(left(&layer, "all", get_as("ann", "/")).await, 7);
    assert!(layer.peek(&super::parts(get_request("/"))).await.is_err());
}

async fn predicates_combine(place: &Place) {
    let write = Rule::any().method(Method::GET).not();
    let staff = |request: &http::request::Parts| user(request).as_deref() == Some("staff");
    let policy = hourly("hour", 1).skip_when(write.and(staff).or(Rule::path("/healthz")));
    let layer = RateLimitLayer::with_policies(place.store(), [policy]);
    let app = app(&layer);
    let post = |user: &str| {
        let mut post = get_as(user, "/");
        *post.method_mut() = Method::POST;
        post
    };
    assert_eq!(statuses(&app, 3, || post("staff")).await, [200; 3]);
    assert_eq!(statuses(&app, 2, || get_as("ann", "/healthz")).await, [200; 2]);
    assert_eq!(statuses(&app, 2, || get_as("staff", "/")).await, [200, 429]);
    assert_eq!(statuses(&app, 2, || post("ann")).await, [200, 429]);
}

#[tokio::test]
async fn own_networks_are_free_over_sockets() {
    let own = key::PeerIp.is_in(["127.0.0.0/8"]).expect("a network");
    let store = tollgate::MemoryStore::new();
    let layer = RateLimitLayer::new(store.clone(), Quota::per_hour(1), key::PeerIp).skip_when(own);
    let app = Router::new().route("/", get(tell)).layer(layer);
    let address = crate::support::serve(app).await;
    for _ in 0..3 {
        assert_exempt(&crate::support::get(address, "/").await, "Exempt *:skipped");
    }
    assert_eq!(store.stats().keys, 0);
}
