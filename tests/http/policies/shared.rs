//! Several layers: around each other, and around services of different kinds with one budget.

use axum::Router;
use axum::extract::Extension;
use axum::routing::get;
use http::{HeaderName, StatusCode};
use tollgate::{ChargeHandle, Decision, Policy, Quota, RateLimitLayer, key};
use tonic::Code;
use tonic::metadata::MetadataValue;
use tonic_health::pb::health_client::HealthClient;

use super::{Place, ask, get as get_request, get_as, left, statuses, user};
use crate::grpc;
use crate::support::{self, within};

on_both_stores! {
    stacked_layers_hand_on_the_innermost_charge,
    stacked_layers_settle_each_their_own,
    an_inner_layer_without_a_charge_hides_no_outer_one,
    what_an_inner_layer_denies_the_outer_one_has_charged,
    r36_grpc_and_http_share_one_budget,
    r36_grpc_and_http_share_all_of_several_policies,
}

fn hourly(name: &str, limit: u64, cost: u64) -> Policy {
    Policy::new(name, Quota::per_hour(limit), user).cost(cost)
}

fn layer(place: &Place, policy: Policy) -> RateLimitLayer {
    RateLimitLayer::with_policies(place.store(), [policy]).charge_extension(true)
}

/// What is left when all is settled.
async fn settled(layer: &RateLimitLayer, policy: &str) -> u64 {
    assert_eq!(layer.shutdown().await, 0);
    left(layer, policy, get_as("ann", "/")).await
}

/// Settles the innermost charge to 1, and says of which policies it was.
async fn settle(charge: ChargeHandle, decision: Decision) -> String {
    let names: Vec<String> = charge.policies().map(ToString::to_string).collect();
    for name in &names {
        charge.settle(name, 1);
    }
    assert_eq!(&decision, charge.decision());
    names.join(",")
}

async fn stacked_layers_hand_on_the_innermost_charge(place: &Place) {
    let inner = layer(place, hourly("inner", 100, 5));
    let outer = layer(place, hourly("outer", 100, 7));
    let app = Router::new()
        .route("/", get(settle))
        .layer(inner.clone())
        .layer(outer.clone());
    assert_eq!(ask(&app, get_as("ann", "/")).await.body, "inner");
    assert_eq!(settled(&inner, "inner").await, 99);
    assert_eq!(settled(&outer, "outer").await, 93);
}

async fn stacked_layers_settle_each_their_own(place: &Place) {
    // One name and one store: one counter, charged by both.
    let back = || hourly("one", 100, 5).give_back_on(|status| status.is_success());
    let (inner, outer) = (layer(place, back()), layer(place, back()));
    let app = Router::new()
        .route("/", get(async || "hello"))
        .route("/settled", get(settle))
        .layer(inner.clone())
        .layer(outer.clone());
    for (path, expected) in [("/", 100), ("/settled", 99), ("/none", 89)] {
        ask(&app, get_as("ann", path)).await;
        assert_eq!(inner.shutdown().await, 0);
        assert_eq!(settled(&outer, "one").await, expected, "{path}");
    }
    // Three of them, of which one says what it has really cost.
    let middle = layer(place, hourly("middle", 100, 2).cost_after(|_| Some(30)));
    let app = Router::new()
        .route("/", get(settle))
        .layer(layer(place, hourly("inner", 100, 9)))
        .layer(middle.clone())
        .layer(layer(place, hourly("outer", 100, 4).give_back_on(|_| true)));
    assert_eq!(ask(&app, get_as("ann", "/")).await.body, "inner");
    assert_eq!(settled(&middle, "middle").await, 70);
}

async fn an_inner_layer_without_a_charge_hides_no_outer_one(place: &Place) {
    let outer = layer(place, hourly("outer", 100, 7));
    let plain = layer(place, hourly("plain", 100, 7)).charge_extension(false);
    let exempt = layer(place, hourly("exempt", 100, 7)).skip_when(tollgate::Rule::any());
    let handler = async |Extension(charge): Extension<ChargeHandle>| charge.policies().count().to_string();
    let app = Router::new()
        .route("/", get(handler))
        .layer(plain)
        .layer(exempt)
        .layer(outer.clone());
    assert_eq!(ask(&app, get_as("ann", "/")).await.body, "1");
    let app = Router::new()
        .route(
            "/",
            get(async |charge: ChargeHandle| charge.settle("outer", 1).to_string()),
        )
        .layer(layer(place, hourly("other", 100, 7)).charge_extension(false))
        .layer(outer.clone());
    assert_eq!(ask(&app, get_as("ann", "/")).await.body, "true");
    assert_eq!(settled(&outer, "outer").await, 100 - 7 - 1);
}

async fn what_an_inner_layer_denies_the_outer_one_has_charged(place: &Place) {
    let outer = layer(place, hourly("outer", 100, 7));
    let back = layer(
        place,
        hourly("back", 100, 7).give_back_on(|status| status == StatusCode::TOO_MANY_REQUESTS),
    );
    let inner = layer(place, hourly("inner", 1, 1));
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(inner)
        .layer(outer.clone())
        .layer(back.clone());
    assert_eq!(statuses(&app, 3, || get_as("ann", "/")).await, [200, 429, 429]);
    // Unlike policies of one layer; and a policy can make up for that.
    assert_eq!(settled(&outer, "outer").await, 79);
    assert_eq!(settled(&back, "back").await, 93);
}

const TENANT: HeaderName = HeaderName::from_static("x-tenant");

fn of_tenant<T>(tenant: &str, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let tenant: MetadataValue<_> = tenant.parse().expect("a value");
    request.metadata_mut().insert("x-tenant", tenant);
    request
}

async fn by_http(address: std::net::SocketAddr, tenant: &str) -> support::Reply {
    let mut request = support::request(address, "/");
    request
        .headers_mut()
        .insert(TENANT, tenant.parse().expect("a value"));
    support::send(request).await
}

async fn r36_grpc_and_http_share_one_budget(place: &Place) {
    let tenant = || Policy::new("tenant", Quota::per_hour(4), key::Header::new(TENANT));
    let for_tonic = RateLimitLayer::with_policies(place.store(), [tenant()]);
    // An instance of its own, as processes are.
    let for_axum = RateLimitLayer::with_policies(place.another().await, [tenant()]);
    let mut grpc = HealthClient::new(grpc::connect(grpc::serve(for_tonic).await).await);
    let http = Router::new().route("/", get(async || "hello")).layer(for_axum);
    let http = support::serve(http).await;

    let call = within(grpc.check(of_tenant("acme", grpc::request()))).await;
    let allowed = call.expect("it is allowed");
    let remaining = allowed
        .metadata()
        .get("x-ratelimit-remaining")
        .expect("it is there");
    assert_eq!(remaining, "3");
    assert_eq!(by_http(http, "acme").await.number("x-ratelimit-remaining"), 2);
    assert_eq!(by_http(http, "other").await.number("x-ratelimit-remaining"), 3);
    within(grpc.check(of_tenant("acme", grpc::request())))
        .await
        .expect("it is allowed");
    assert_eq!(by_http(http, "acme").await.number("x-ratelimit-remaining"), 0);

    let call = within(grpc.check(of_tenant("acme", grpc::request()))).await;
    let denied = call.expect_err("it is denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    let pushback = denied.metadata().get("grpc-retry-pushback-ms").expect("a hint");
    let pushback: u64 = pushback.to_str().expect("text").parse().expect("a number");
    assert!((3_500_000..=3_600_000).contains(&pushback), "{pushback}");
    let refused = by_http(http, "acme").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!((3_500..=3_600).contains(&refused.number("retry-after")));
    within(grpc.check(of_tenant("other", grpc::request())))
        .await
        .expect("it is allowed");
    assert_eq!(place.keys().await, 2);
}

async fn r36_grpc_and_http_share_all_of_several_policies(place: &Place) {
    let policies = || {
        [
            Policy::new("tenant", Quota::per_hour(2), key::Header::new(TENANT)),
            Policy::new("all", Quota::per_hour(3), key::Global),
        ]
    };
    let layer = RateLimitLayer::with_policies(place.store(), policies());
    let mut grpc = HealthClient::new(grpc::connect(grpc::serve(layer.clone()).await).await);
    let http = Router::new()
        .route("/", get(async || "hello"))
        .layer(layer.clone());
    let http = support::serve(http).await;
    assert_eq!(by_http(http, "a").await.status, StatusCode::OK);
    within(grpc.check(of_tenant("a", grpc::request())))
        .await
        .expect("it is allowed");
    for _ in 0..3 {
        let denied = within(grpc.check(of_tenant("a", grpc::request()))).await;
        assert_eq!(denied.expect_err("it is denied").code(), Code::ResourceExhausted);
        assert_eq!(by_http(http, "a").await.status, StatusCode::TOO_MANY_REQUESTS);
    }
    // One is left in all, whatever was denied.
    within(grpc.check(of_tenant("b", grpc::request())))
        .await
        .expect("it is allowed");
    assert_eq!(by_http(http, "c").await.status, StatusCode::TOO_MANY_REQUESTS);
    let denied = layer
        .peek(&super::parts(get_request("/")))
        .await
        .expect("all share a key");
    assert!(denied.is_denied());
}
