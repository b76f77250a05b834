//! What services ask of their limits (several policies, plans, live changes, rules, exemptions, costs, settling), each
//! on the memory store and on a real Redis server.

/// Runs each of these tests on both stores, as `name::memory` and `name::redis`.
macro_rules! on_both_stores {
    ($($test:ident),+ $(,)?) => {$(
        mod $test {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn memory() {
                super::$test(&crate::policies::Place::memory()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn redis() {
                super::$test(&crate::policies::Place::redis().await).await;
            }
        }
    )+};
}

mod admin;
mod costs;
mod exempt;
mod hooks;
mod limiter;
mod live;
mod login;
mod lossy;
mod lost;
mod model;
mod outage;
mod place;
mod properties;
mod refused;
mod responses;
mod rules;
mod settle;
mod several;
mod shared;
mod streams;
mod tiers;
mod unsettled;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use http::request::Parts;
use http_body_util::BodyExt;
use tollgate::{Decision, DecisionEvent, OnDecision, RateLimitLayer};
use tower::ServiceExt;

use self::place::Place;
use crate::support::{Reply, within};

/// Long enough that nothing here depends on how busy the machine is.
const LONG: Duration = Duration::from_secs(10);

/// In which nothing leaves a window.
const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// The user that a request names.
fn user(request: &Parts) -> Option<String> {
    Some(request.headers.get("x-user")?.to_str().ok()?.to_owned())
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).expect("a request")
}

fn get_as(user: &str, path: &str) -> Request<Body> {
    of_user(user, get(path))
}

fn of_user<B>(user: &str, mut request: Request<B>) -> Request<B> {
    let user = user.parse().expect("a value");
    request.headers_mut().insert("x-user", user);
    request
}

/// What a request is, without its body.
fn parts<B>(request: Request<B>) -> Parts {
    request.into_parts().0
}

/// The app's reply, read to its end.
async fn ask(app: &Router, request: Request<Body>) -> Reply {
    let Ok(response) = within(app.clone().oneshot(request)).await;
    let (head, body) = response.into_parts();
    let body = within(body.collect()).await.expect("a body").to_bytes();
    Reply {
        status: head.status,
        version: head.version,
        headers: head.headers,
        body: String::from_utf8(body.into()).expect("it is text"),
    }
}

/// The statuses of so many equal requests.
async fn statuses(app: &Router, times: usize, request: impl Fn() -> Request<Body>) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..times {
        statuses.push(ask(app, request()).await.status.as_u16());
    }
    statuses
}

/// What a policy has left, as the layer would tell this request.
async fn left(layer: &RateLimitLayer, policy: &str, request: Request<Body>) -> u64 {
    let decision = layer.peek(&parts(request)).await.expect("it has its keys");
    left_by(&decision, policy)
}

/// What a policy has left by a decision.
fn left_by(decision: &Decision, policy: &str) -> u64 {
    assert!(!decision.is_degraded(), "{decision:?}");
    let named = decision
        .policies()
        .iter()
        .find(|each| each.name().as_str() == policy);
    named
        .unwrap_or_else(|| panic!("no `{policy}` in {decision:?}"))
        .remaining()
}

/// Keeps every decision that a hook is told of.
#[derive(Clone, Default)]
struct Decisions(Arc<Mutex<Vec<Decision>>>);

impl Decisions {
    /// Those since the last time.
    fn take(&self) -> Vec<Decision> {
        std::mem::take(&mut *self.0.lock().expect("no test has failed under it"))
    }

    /// The only one since the last time.
    #[track_caller]
    fn only(&self) -> Decision {
        let mut decisions = self.take();
        assert_eq!(decisions.len(), 1, "{decisions:?}");
        decisions.remove(0)
    }
}

impl OnDecision for Decisions {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        let mut decisions = self.0.lock().expect("no test has failed under it");
        decisions.push(event.decision().clone());
    }
}
