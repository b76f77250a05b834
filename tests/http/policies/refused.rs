//! What is refused when it is built.

use std::panic::{AssertUnwindSafe, catch_unwind};

use http::Method;
use tollgate::{Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule, Rules};

use super::several::hourly;
use super::user;

/// The message of a panic.
#[track_caller]
fn panics<T>(act: impl FnOnce() -> T) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(act)) else {
        panic!("it was accepted");
    };
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => (*panic.downcast::<&str>().expect("a message")).to_owned(),
    }
}

#[test]
fn two_policies_of_one_name_are_refused_when_built() {
    let store = MemoryStore::new;
    let (a, other_a, b) = (|| hourly("a", 1), || hourly("a", 2), || hourly("b", 1));
    let on = |path: &str, policy| Rules::new(vec![]).on(Rule::path(path), vec![policy]);
    let refusals = [
        panics(|| RateLimitLayer::with_policies(store(), [a(), b(), other_a()])),
        panics(|| RateLimitLayer::with_policies(store(), [a()]).policy(other_a())),
        panics(|| RateLimitLayer::with_policies(store(), [b(), a()]).name("a")),
        panics(|| {
            RateLimitLayer::new(store(), Quota::per_hour(1), user)
                .name("a")
                .policy(a())
        }),
        panics(|| RateLimitLayer::with_policies(store(), [a()]).rules(on("/x", other_a()))),
        panics(|| {
            RateLimitLayer::with_policies(store(), [])
                .rules(on("/x", a()))
                .policy(a())
        }),
        panics(|| {
            let rules = on("/x", a()).on(Rule::path("/y"), vec![other_a()]);
            RateLimitLayer::with_policies(store(), [b()]).rules(rules)
        }),
        panics(|| {
            let rules = Rules::new(vec![a()]).on(Rule::path("/y"), vec![a()]);
            RateLimitLayer::with_policies(store(), []).rules(rules)
        }),
        panics(|| {
            let one = a();
            RateLimitLayer::with_policies(store(), [one.clone(), one])
        }),
        panics(|| Limiter::new(store(), Quota::per_hour(1)).name("a").policy(a())),
        panics(|| Limiter::new(store(), Quota::per_hour(1)).policy(a()).name("a")),
    ];
    for refusal in refusals {
        assert!(
            refusal.starts_with("two policies are called `a`, so they would share their counters"),
            "{refusal}"
        );
    }
    // The same by default: its quota in words.
    let twice = panics(|| {
        RateLimitLayer::new(store(), Quota::per_minute(5), user).policy(Policy::new(
            "5-per-60s",
            Quota::per_hour(1),
            user,
        ))
    });
    assert!(twice.contains("`5-per-60s`"), "{twice}");
}

#[test]
fn ambiguous_rules_are_refused_when_built() {
    let rules = Rules::new(vec![])
        .on(Rule::path("/login"), vec![hourly("a", 1)])
        .on(Rule::any().method(Method::POST), vec![hourly("b", 1)]);
    let build = |rules| {
        let build = || RateLimitLayer::with_policies(MemoryStore::new(), []).rules(rules);
        catch_unwind(AssertUnwindSafe(build)).map(drop)
    };
    let panic = build(rules.clone()).expect_err("it is ambiguous");
    let text = panic.downcast::<String>().expect("a message");
    assert!(text.contains("POST /login"), "{text}");
    let third = rules.on(Rule::path("/login").method(Method::POST), vec![hourly("c", 1)]);
    build(third).expect("it is decided now");
}

#[test]
fn a_second_set_of_rules_is_refused_when_built() {
    let on = |path: &str, name: &str| Rules::new(vec![]).on(Rule::path(path), vec![hourly(name, 1)]);
    let layer = RateLimitLayer::with_policies(MemoryStore::new(), []).rules(on("/a", "a"));
    let why = panics(|| layer.rules(on("/b", "b")));
    assert!(why.contains("has rules already"), "{why}");
}
