//! Quotas, costs and exemptions that depend on the request, and what has to be looked up for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::routing::get;
use http::StatusCode;
use http::request::Parts;
use tollgate::{Decision, ExemptReason, Policy, Quota, Quotas, RateLimitLayer, Source, key};

use super::{Decisions, LONG, Place, ask, get_as, left_by, statuses, user};
use crate::support::{clocked, within};

on_both_stores! {
    quota_cost_and_exemption_follow_the_plan,
    another_plan_finds_the_same_counter,
    what_is_looked_up_decides,
    lookups_follow_each_other,
    what_is_exempt_before_lookups_is_asked_once,
    a_lookup_that_finds_nothing_leaves_the_default,
    a_lookup_that_never_ends_is_given_up,
    a_lookup_may_take_its_time,
    lookups_of_a_deadline_without_end,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Free,
    Pro,
    Internal,
}

fn plan_of(user: &str) -> Option<Plan> {
    match user.split('-').next()? {
        "free" => Some(Plan::Free),
        "pro" => Some(Plan::Pro),
        "internal" => Some(Plan::Internal),
        _ => None,
    }
}

fn plan(request: &Parts) -> Option<Plan> {
    request.extensions.get().copied()
}

/// 2, 4 or any number an hour.
fn quota() -> Quotas {
    Quotas::by("plan", |request: &Parts| match plan(request) {
        Some(Plan::Internal) => Quota::unlimited(),
        Some(Plan::Pro) => Quota::per_hour(4),
        Some(Plan::Free) | None => Quota::per_hour(2),
    })
}

/// Says what the handler knows of the plan.
async fn hello(request: Request) -> String {
    format!("{:?}", request.extensions().get::<Plan>())
}

fn app(layer: &RateLimitLayer) -> Router {
    Router::new().route("/", get(hello)).layer(layer.clone())
}

async fn authenticate(mut request: Request, next: Next) -> axum::response::Response {
    let plan = request
        .headers()
        .get("x-user")
        .and_then(|user| plan_of(user.to_str().ok()?));
    if let Some(plan) = plan {
        request.extensions_mut().insert(plan);
    }
    next.run(request).await
}

async fn quota_cost_and_exemption_follow_the_plan(place: &Place) {
    let seen = Decisions::default();
    let units = Policy::new("units", Quota::per_hour(12), user)
        .cost(|request: &Parts| if plan(request) == Some(Plan::Pro) { 3 } else { 6 })
        .skip_when(|request: &Parts| plan(request) == Some(Plan::Internal));
    let layer = RateLimitLayer::new(place.store(), quota(), user)
        .policy(units)
        .on_decision(seen.clone());
    let app = app(&layer).layer(middleware::from_fn(authenticate));
    for (user, expected) in [
        ("free", [200, 200, 429, 429, 429]),
        ("pro", [200, 200, 200, 200, 429]),
        ("internal", [200; 5]),
        ("nobody", [200, 200, 429, 429, 429]),
    ] {
        assert_eq!(statuses(&app, 5, || get_as(user, "/")).await, expected, "{user}");
        for decision in seen.take() {
            if user != "internal" {
                let [plan, units] = decision.policies() else {
                    panic!("{decision:?}");
                };
                let (limit, cost) = if user == "pro" { (4, 3) } else { (2, 6) };
                assert_eq!((plan.limit(), plan.cost()), (limit, 1));
                assert_eq!((units.limit(), units.cost()), (12, cost));
                continue;
            }
            assert_eq!(decision.source(), Source::Exempt);
            let reasons: Vec<_> = decision
                .exemptions()
                .iter()
                .map(|exemption| (exemption.policy().map(ToString::to_string), exemption.reason()))
                .collect();
            assert_eq!(
                reasons,
                [
                    (Some("plan".to_owned()), ExemptReason::Unlimited),
                    (Some("units".to_owned()), ExemptReason::Skipped)
                ]
            );
        }
    }
    // Nothing is kept of who is exempt.
    assert_eq!(place.keys().await, 6);
}

async fn another_plan_finds_the_same_counter(place: &Place) {
    // All plans of one account.
    let account = |request: &Parts| Some(user(request)?.rsplit_once('-')?.1.to_owned());
    let layer = RateLimitLayer::new(place.store(), quota(), account);
    let app = app(&layer).layer(middleware::from_fn(authenticate));
    let remaining = async |user: &str, times| {
        let reply = ask(&app, get_as(user, "/")).await;
        assert_eq!(reply.status.as_u16(), times, "{user}");
        reply.header("x-ratelimit-remaining").map(str::to_owned)
    };
    assert_eq!(
        statuses(&app, 3, || get_as("free-ann", "/")).await,
        [200, 200, 429]
    );
    // Room at once, and exactly what is left of it.
    assert_eq!(remaining("pro-ann", 200).await.as_deref(), Some("1"));
    assert_eq!(remaining("pro-ann", 200).await.as_deref(), Some("0"));
    assert_eq!(remaining("pro-ann", 429).await.as_deref(), Some("0"));
    assert_eq!(remaining("internal-ann", 200).await, None);
    assert_eq!(remaining("free-ann", 429).await.as_deref(), Some("0"));
    assert_eq!(place.keys().await, 1);
}

/// Looks the plan up as a database would: not at once.
async fn look_up(user: Option<String>) -> Option<Plan> {
    tokio::task::yield_now().await;
    plan_of(&user?)
}

async fn what_is_looked_up_decides(place: &Place) {
    let layer =
        RateLimitLayer::new(place.store(), quota(), user).lookup(|request: &Parts| look_up(user(request)));
    let app = app(&layer);
    for (user, limit, remaining) in [("free", 2, 1), ("pro", 4, 3)] {
        let reply = ask(&app, get_as(user, "/")).await;
        assert_eq!(reply.number("x-ratelimit-limit"), limit);
        assert_eq!(reply.number("x-ratelimit-remaining"), remaining);
        // What is found is there for the handler too.
        assert_eq!(reply.body, format!("{:?}", plan_of(user)));
    }
    let reply = ask(&app, get_as("internal", "/")).await;
    assert_eq!(reply.limit_fields(), [""; 0]);
    assert_eq!(reply.body, "Some(Internal)");
    assert_eq!(statuses(&app, 2, || get_as("free", "/")).await, [200, 429]);
}

#[derive(Clone)]
struct Account(String);

async fn lookups_follow_each_other(place: &Place) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let account = |request: &Parts| {
        let user = user(request);
        async move {
            tokio::task::yield_now().await;
            Some(Account(format!("pro-{}", user?)))
        }
    };
    let plan = move |request: &Parts| {
        counted.fetch_add(1, Ordering::SeqCst);
        let account = request.extensions.get::<Account>().cloned();
        async move { look_up(Some(account?.0)).await }
    };
    // The key, the quota and the exemption depend on what is found.
    let by_account = |request: &Parts| Some(request.extensions.get::<Account>()?.0.clone());
    let layer = RateLimitLayer::new(place.store(), quota(), by_account)
        .lookup(account)
        .lookup(plan)
        .skip_when(|request: &Parts| {
            request
                .extensions
                .get::<Account>()
                .is_some_and(|account| account.0 == "pro-staff")
        });
    let app = app(&layer);
    assert_eq!(
        statuses(&app, 5, || get_as("ann", "/")).await,
        [200, 200, 200, 200, 429]
    );
    assert_eq!(ask(&app, get_as("ben", "/")).await.body, "Some(Pro)");
    assert_eq!(statuses(&app, 9, || get_as("staff", "/")).await, [200; 9]);
    assert_eq!(asked.load(Ordering::SeqCst), 15, "each once for a request");
    assert_eq!(place.keys().await, 2);
}

async fn what_is_exempt_before_lookups_is_asked_once(place: &Place) {
    let (asked, seen) = (Arc::new(AtomicUsize::new(0)), Decisions::default());
    let counted = Arc::clone(&asked);
    // A predicate that would say otherwise if it was asked again.
    let layer = RateLimitLayer::new(place.store(), quota(), user)
        .charge_extension(true)
        .on_decision(seen.clone())
        .skip_when(move |_: &Parts| counted.fetch_add(1, Ordering::SeqCst) % 2 == 0)
        .lookup(|request: &Parts| look_up(user(request)));
    let app = app(&layer);
    let reply = ask(&app, get_as("pro", "/")).await;
    assert_eq!((reply.status.as_u16(), reply.limit_fields()), (200, vec![]));
    assert_eq!(reply.body, "None", "nothing was looked up");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let decision = seen.only();
    assert_eq!(decision.source(), Source::Exempt);
    assert_eq!(decision.exemptions()[0].reason(), ExemptReason::Skipped);
    assert_eq!(place.keys().await, 0);
    // What is not is asked again, for it may be known by then.
    let reply = ask(&app, get_as("pro", "/")).await;
    assert_eq!(reply.body, "Some(Pro)");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert_eq!(seen.only().source(), Source::Exempt);
}

async fn a_lookup_that_finds_nothing_leaves_the_default(place: &Place) {
    let layer = RateLimitLayer::new(place.store(), quota(), user)
        .lookup(|_: &Parts| std::future::ready(None::<Plan>))
        .lookup(|request: &Parts| look_up(user(request)));
    let app = app(&layer);
    assert_eq!(statuses(&app, 3, || get_as("nobody", "/")).await, [200, 200, 429]);
    // The next one is asked all the same.
    let reply = ask(&app, get_as("pro", "/")).await;
    assert_eq!(reply.number("x-ratelimit-limit"), 4);
}

async fn a_lookup_that_never_ends_is_given_up(place: &Place) {
    let layer = RateLimitLayer::new(place.store(), quota(), user)
        .deadline(Duration::from_millis(400))
        .lookup(|request: &Parts| look_up(user(request)))
        .lookup(|_: &Parts| std::future::pending::<Option<Account>>())
        .lookup(|_: &Parts| std::future::ready(Some(Plan::Internal)));
    let reply = within(ask(&app(&layer), get_as("pro", "/"))).await;
    // What was found before counts; what comes after is not asked for.
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.body, "Some(Pro)");
    assert_eq!(reply.number("x-ratelimit-limit"), 4);
}

#[tokio::test(start_paused = true)]
async fn lookups_have_one_deadline_together() {
    use tokio::time::{Instant, sleep};

    let slow = |millis| {
        move |_: &Parts| async move {
            sleep(Duration::from_millis(millis)).await;
            Some(Plan::Pro)
        }
    };
    // 70 and 70 are more than the 100 that there are.
    for (times, expected) in [([40, 50, 0], 90), ([70, 70, 0], 100), ([70, 20, 700], 100)] {
        let (_, store) = clocked();
        let layer = RateLimitLayer::new(store, quota(), user)
            .lookup(slow(times[0]))
            .lookup(slow(times[1]))
            .lookup(slow(times[2]));
        let start = Instant::now();
        let reply = ask(&app(&layer), get_as("ann", "/")).await;
        assert_eq!(reply.number("x-ratelimit-limit"), 4);
        let took = start.elapsed().as_millis();
        assert!((expected..=expected + 4).contains(&took), "{times:?}: {took}");
    }
}

async fn a_lookup_may_take_its_time(place: &Place) {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let held = Arc::clone(&gate);
    let layer = RateLimitLayer::new(place.store(), quota(), user)
        .deadline(LONG)
        .lookup(move |_: &Parts| {
            let held = Arc::clone(&held);
            async move {
                held.acquire().await.ok()?.forget();
                Some(Plan::Pro)
            }
        });
    let app = app(&layer);
    let waiting: Vec<_> = (0..6)
        .map(|_| {
            let app = app.clone();
            tokio::spawn(async move { ask(&app, get_as("ann", "/")).await.status.as_u16() })
        })
        .collect();
    // A client that goes away meanwhile harms nobody, and is charged nothing.
    waiting[0].abort();
    gate.add_permits(6);
    let mut statuses = Vec::new();
    for waiting in waiting.into_iter().skip(1) {
        statuses.push(waiting.await.expect("it is answered"));
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
}

async fn lookups_of_a_deadline_without_end(place: &Place) {
    let seen = Decisions::default();
    let layer = RateLimitLayer::new(place.store(), quota(), key::Global)
        .deadline(Duration::MAX)
        .on_decision(seen.clone())
        .lookup(|request: &Parts| look_up(user(request)));
    let reply = within(ask(&app(&layer), get_as("pro", "/"))).await;
    assert_eq!(reply.status, StatusCode::OK);
    let decision: Decision = seen.only();
    assert_eq!(left_by(&decision, "plan"), 3);
}

#[tokio::test]
async fn exempt_requests_are_not_looked_up() {
    let times = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&times);
    let layer = RateLimitLayer::new(tollgate::MemoryStore::new(), Quota::per_hour(9), user)
        .skip_when(|request: &Parts| request.uri.path() == "/healthz")
        .exempt_preflight(true)
        .lookup(move |_: &Parts| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Some(7_u8))
        });
    let app = axum::Router::new().fallback(async || "fine").layer(layer);
    let mut preflight = get_as("ann", "/");
    *preflight.method_mut() = http::Method::OPTIONS;
    for name in ["origin", "access-control-request-method"] {
        preflight
            .headers_mut()
            .insert(name, http::HeaderValue::from_static("x"));
    }
    for (request, expected) in [
        (get_as("ann", "/healthz"), 0),
        (preflight, 0),
        (get_as("ann", "/"), 1),
    ] {
        assert_eq!(super::ask(&app, request).await.status, 200);
        assert_eq!(times.load(Ordering::SeqCst), expected);
    }
}
