use std::collections::BTreeSet;
use std::time::Duration;

use http::{HeaderValue, Response, StatusCode};

use super::*;
use crate::clock::ManualClock;
use crate::decision::Verdict;
use crate::fixtures::{Said, decision, ready};
use crate::quota::{Quota, Rate};
use crate::rejection::Rejection;
use crate::{Limiter, MemoryStore, Penalty, Policy, PolicyDecision, key};

fn write(headers: &Headers, decision: &Decision, mut response: Response<()>) -> Vec<(String, String)> {
    headers.write(decision, &mut response);
    let mut lines: Vec<_> = response
        .headers()
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().expect("ASCII").to_owned()))
        .collect();
    lines.sort();
    lines
}

pub(super) fn fresh(headers: &Headers, decision: &Decision) -> Vec<(String, String)> {
    write(headers, decision, Response::new(()))
}

fn lines(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut lines: Vec<_> = lines
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    lines.sort();
    lines
}

fn inner(status: StatusCode, fields: &[(&'static str, &'static str)]) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    for &(name, value) in fields {
        response
            .headers_mut()
            .append(name, HeaderValue::from_static(value));
    }
    response
}

#[test]
fn the_default_is_x_ratelimit_with_seconds_from_now() {
    let headers = Headers::default();
    assert_eq!(
        fresh(&headers, &decision(true, &[Said::new(42)])),
        lines(&[
            ("x-ratelimit-limit", "100"),
            ("x-ratelimit-remaining", "42"),
            ("x-ratelimit-reset", "30"),
        ])
    );
    let denied = decision(false, &[Said::new(0).retry(Duration::from_millis(4_200))]);
    assert_eq!(
        fresh(&headers, &denied),
        lines(&[
            ("retry-after", "5"),
            ("x-ratelimit-limit", "100"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "5"),
        ])
    );
}

#[test]
fn families_combine() {
    let headers = Headers::x_ratelimit().reset_as_epoch().ietf(Draft::V8);
    assert_eq!(
        fresh(&headers, &decision(true, &[Said::new(42)])),
        lines(&[
            ("x-ratelimit-limit", "100"),
            ("x-ratelimit-remaining", "42"),
            ("x-ratelimit-reset", "1800000030"),
            ("ratelimit", "\"default\";r=42;t=30"),
            ("ratelimit-policy", "\"default\";q=100;w=60"),
        ])
    );
    assert_eq!(
        fresh(&Headers::none(), &decision(true, &[Said::new(42)])),
        lines(&[])
    );
}

#[test]
fn r15_never_gets_no_false_hint() {
    let never = decision(false, &[Said::new(5).never()]);
    assert_eq!(
        fresh(&Headers::default(), &never),
        lines(&[("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "5")])
    );
}

#[test]
fn a_refusal_without_a_store_says_only_when_to_retry() {
    let unavailable = Decision::degraded(Verdict::Unavailable);
    for headers in [Headers::default(), Headers::none(), Headers::from(Draft::V6)] {
        assert_eq!(fresh(&headers, &unavailable), lines(&[("retry-after", "1")]));
        assert_eq!(fresh(&headers.retry_after(false), &unavailable), lines(&[]));
    }
}

#[test]
fn a_blocked_key_of_an_unlimited_policy_has_no_numbers() {
    let store = MemoryStore::builder().clock(ManualClock::new().clock()).build();
    let free = Policy::new("free", Quota::unlimited(), key::Global).penalty(Penalty::manual());
    let limiter = Limiter::new(store, Quota::per_minute(100)).policy(free);
    ready(limiter.block("ann", Duration::from_secs(5))).expect("it can");
    let blocked = ready(limiter.check("ann"));
    assert!(blocked.leading().is_some_and(PolicyDecision::is_blocked));
    let families = [Draft::V6, Draft::V7, Draft::V8].map(|draft| Headers::x_ratelimit().ietf(draft));
    for headers in families.into_iter().chain([Headers::default(), Headers::none()]) {
        assert_eq!(fresh(&headers, &blocked), lines(&[("retry-after", "5")]));
    }
}

#[test]
fn nothing_is_said_where_no_policy_leads() {
    let headers = Headers::x_ratelimit().ietf(Draft::V8);
    for decision in [
        Decision::exempt(),
        Decision::degraded(Verdict::Allowed),
        decision(true, &[Said::new(0).shadow().retry(Duration::from_secs(9))]),
        decision(true, &[Said::new(0).quota(Quota::unlimited())]),
    ] {
        assert_eq!(fresh(&headers, &decision), lines(&[]), "{decision:?}");
    }
}

#[test]
fn a_retry_after_that_the_refusal_has_already_stays() {
    let denied = decision(false, &[Said::new(0).retry(Duration::from_secs(5))]);
    let refusal = inner(StatusCode::TOO_MANY_REQUESTS, &[("retry-after", "9")]);
    let written = write(&Headers::none(), &denied, refusal);
    assert_eq!(written, lines(&[("retry-after", "9")]));
}

#[test]
fn a_refusal_shows_its_own_numbers_whatever_its_builder_wrote() {
    let denied = decision(false, &[Said::new(3).retry(Duration::from_secs(5))]);
    for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::OK] {
        let mut refusal = inner(status, &[("x-ratelimit-remaining", "0")]);
        refusal.extensions_mut().insert(Rejection::of(denied.clone()));
        assert_eq!(
            write(&Headers::default(), &denied, refusal),
            fresh(&Headers::default(), &denied)
        );
    }
}

#[test]
fn stacked_layers_show_the_more_binding_decision() {
    // Ours has 10 left and resets in 30 s.
    let ours = decision(true, &[Said::new(10)]);
    for family in [
        Headers::x_ratelimit(),
        Headers::x_ratelimit().reset_as_epoch(),
        Headers::from(Draft::V6),
        Headers::from(Draft::V7),
        Headers::from(Draft::V8),
    ] {
        for (remaining, reset, stays) in [
            (9, 1, true),
            (11, 99, false),
            (10, 31, true),
            (10, 30, false),
            (10, 29, false),
        ] {
            let theirs = decision(
                true,
                &[Said::new(remaining)
                    .name("inner")
                    .quota(Quota::per_hour(77))
                    .reset(Duration::from_secs(reset))],
            );
            let mut response = Response::new(());
            family.write(&theirs, &mut response);
            let outer = Headers::x_ratelimit().ietf(Draft::V8);
            let expected = if stays {
                fresh(&family, &theirs)
            } else {
                fresh(&outer, &ours)
            };
            assert_eq!(
                write(&outer, &ours, response),
                expected,
                "{family:?} {remaining} {reset}"
            );
        }
    }
}

#[test]
fn an_inner_refusal_stays_untouched() {
    let ours = decision(true, &[Said::new(1)]);
    let headers = Headers::x_ratelimit().ietf(Draft::V8);

    let fields = [("x-ratelimit-remaining", "50"), ("retry-after", "7")];
    let refused = inner(StatusCode::TOO_MANY_REQUESTS, &fields);
    assert_eq!(write(&headers, &ours, refused), lines(&fields));

    // As with gRPC, or where the user chose another status.
    let mut refused = inner(StatusCode::OK, &[("grpc-status", "8")]);
    refused
        .extensions_mut()
        .insert(Rejection::of(decision(false, &[Said::new(0).never()])));
    assert_eq!(write(&headers, &ours, refused), lines(&[("grpc-status", "8")]));

    let failed = inner(StatusCode::SERVICE_UNAVAILABLE, &[("retry-after", "7")]);
    let written = write(&headers, &ours, failed);
    assert!(written.contains(&("x-ratelimit-remaining".to_owned(), "1".to_owned())));
    assert!(written.contains(&("retry-after".to_owned(), "7".to_owned())));
}

#[test]
fn garbage_inside_is_overwritten() {
    let ours = decision(true, &[Said::new(10)]);
    for garbage in [
        &[("x-ratelimit-remaining", "none"), ("x-ratelimit-reset", "soon")][..],
        &[("ratelimit", "\"unclosed;r=1"), ("ratelimit-policy", ";;;")],
        &[("ratelimit-limit", "5"), ("ratelimit-limit", "6")],
    ] {
        let response = inner(StatusCode::OK, garbage);
        assert_eq!(
            write(&Headers::default(), &ours, response),
            fresh(&Headers::default(), &ours)
        );
    }
}

#[test]
fn no_family_leaves_inner_fields_alone() {
    let ours = decision(true, &[Said::new(0)]);
    let fields = [("x-ratelimit-remaining", "50")];
    assert_eq!(
        write(&Headers::none(), &ours, inner(StatusCode::OK, &fields)),
        lines(&fields)
    );
    // Nor does a layer that does not limit this request.
    let exempt = Decision::exempt();
    assert_eq!(
        write(&Headers::default(), &exempt, inner(StatusCode::OK, &fields)),
        lines(&fields)
    );
}

#[test]
fn r9_waiting_as_told_is_enough() {
    for quota in [
        Quota::per_second(10),
        Quota::per_second(10).fixed_window(),
        Quota::per_second(10).slots(8),
        Quota::per_second(10).sliding_counter(),
        Quota::token_bucket(Rate::per_second(10), 10),
    ] {
        let clock = ManualClock::new();
        clock.advance(Duration::from_micros(123_457));
        let limiter = Limiter::new(MemoryStore::builder().clock(clock.clock()).build(), quota);
        while ready(limiter.check("a")).is_allowed() {}
        let told = fresh(&Headers::none(), &ready(limiter.check("a")));
        let [(_, secs)] = &told[..] else {
            panic!("{quota}: {told:?}")
        };
        let secs: u64 = secs.parse().expect("whole seconds");
        assert!(secs >= 1, "{quota}");
        clock.advance(Duration::from_secs(secs));
        assert!(ready(limiter.check("a")).is_allowed(), "{quota}");
    }
}

#[test]
fn b25_the_epoch_reset_is_constant_within_a_fixed_window() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clock()).build();
    let limiter = Limiter::new(store, Quota::per_minute(40).fixed_window());
    let headers = Headers::x_ratelimit().reset_as_epoch();
    let mut resets = BTreeSet::new();
    for step in 0..100 {
        let decision = ready(limiter.check("a"));
        for (name, value) in fresh(&headers, &decision) {
            match name.as_str() {
                "x-ratelimit-reset" => drop(resets.insert(value)),
                "x-ratelimit-remaining" if decision.is_denied() => assert_eq!(value, "0"),
                _ => {}
            }
        }
        clock.advance(Duration::from_micros(500_000 + step * 997));
    }
    assert_eq!(resets, BTreeSet::from(["1800000060".to_owned()]));
}

#[test]
fn the_reset_of_a_family_that_is_not_written_switches_nothing_on() {
    for headers in [Headers::none().without_reset(), Headers::none().reset_as_epoch()] {
        assert_eq!(headers, Headers::none());
    }
    let ietf = Headers::from(Draft::V8);
    assert_eq!(ietf.without_reset().names(), ietf.names());
    assert_eq!(Headers::x_ratelimit().without_reset().names().len(), 3);
}
