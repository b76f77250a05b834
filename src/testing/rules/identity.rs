//! What tells counters apart.

use super::super::case::Case;
use super::super::counter::{Counter, with_limit};
use super::super::{Harness, TENTHS};
use crate::key::{Key, KeyBuilder, KeyHasher};
use crate::quota::{Algorithm, Quota, Rate};

pub(super) async fn a_changed_limit_finds_the_same_counter<H: Harness>(case: &Case<'_, H>) {
    let rule = "a changed limit finds the same counter";
    let counter = case.counter(rule, "changed").await;
    let limit = counter.limit();
    case.acquire(rule, &[counter.tenths(9)]).await;
    let lower = counter.under(with_limit(case.quota, limit / TENTHS * 5));
    let denied = case.acquire(rule, &[lower.cost(1)]).await;
    case.check(
        rule,
        (denied.granted, denied.states[0].remaining) == (0, 0),
        format_args!("lower: {denied:?}"),
    );
    let higher = counter.under(with_limit(case.quota, limit / TENTHS * 12));
    let raised = case.acquire(rule, &[higher.cost(limit / TENTHS * 3)]).await;
    case.check(
        rule,
        (raised.granted, raised.states[0].remaining) == (1, 0),
        format_args!("higher: {raised:?}"),
    );
}

/// Quotas whose counters are others than the tried quota's, whatever key and policy.
pub(super) fn other_quotas<H: Harness>(case: &Case<'_, H>) -> Vec<Quota> {
    let ten = Quota::new(TENTHS, case.window());
    let quotas = [
        ten,
        ten.slots(5),
        ten.sliding_counter(),
        ten.fixed_window(),
        ten.fixed_window_per_key(),
        Quota::token_bucket(Rate::new(TENTHS, case.window()), TENTHS),
        Quota::new(TENTHS, case.window() * 2),
    ];
    // Buckets of any rate are one counter, and so are windows with any offset.
    let same = |quota: &Quota| {
        with_limit(*quota, 1) == with_limit(case.quota, 1)
            || case.is(Algorithm::TokenBucket) && quota.algorithm() == case.quota.algorithm()
            || case.quota.window_offset().is_some() && quota.window_offset().is_some()
    };
    quotas.into_iter().filter(|quota| !same(quota)).collect()
}

/// A key of more than a hundred bytes, none of them hashed.
fn long_key(last: u8) -> Key {
    let hasher = KeyHasher::default();
    let mut key = KeyBuilder::new(&hasher);
    let mut value = [b'x'; 60];
    key.plain("long", &value);
    value[59] = last;
    key.plain("key", &value);
    key.finish()
}

pub(super) async fn keys_policies_and_layouts_tell_counters_apart<H: Harness>(case: &Case<'_, H>) {
    let rule = "key, policy, algorithm and window tell counters apart";
    let long = "long".repeat(2_500);
    let longer = format!("{long}!");
    let policy = "p".repeat(63);
    let (policy_a, policy_b) = (format!("{policy}a"), format!("{policy}b"));
    let counters = [
        ("a", "b:c"),
        ("a:b", "c"),
        ("a", "b"),
        ("b", "a"),
        ("A", "b"),
        ("a", "B"),
        ("a", "b.c"),
        ("a", "b-c"),
        ("a", "b_c"),
        ("a", "b/c"),
        ("a", &policy),
        ("a", &policy_a),
        ("a", &policy_b),
        ("{a}", "b"),
        ("a}b{c", "b"),
        ("{}", "b"),
        (" ", "b"),
        ("a ", "b"),
        ("a\0", "b"),
        ("\0", "b"),
        ("a\r\nb", "b"),
        ("a*?[b]\\", "b"),
        ("\u{e9}", "b"),
        ("e\u{301}", "b"),
        ("\u{1f511}", "b"),
        (&long, "b"),
        (&longer, "b"),
    ]
    .map(|(key, policy)| Counter::new(key, policy, case.quota));
    let long_keys = [b'a', b'b'].map(|last| Counter::new(long_key(last), "b", case.quota));
    for counter in counters.iter().chain(&long_keys) {
        let answer = case.acquire(rule, &[counter.tenths(10)]).await;
        case.check(
            rule,
            answer.granted == 1,
            format_args!(
                "{:?} of {:?} was charged: {answer:?}",
                counter.key, counter.policy
            ),
        );
    }
    for quota in other_quotas(case) {
        let other = counters[0].under(quota);
        let answer = case.peek(rule, &[other.cost(1)]).await;
        case.check(rule, answer.granted == 1, format_args!("{quota}: {answer:?}"));
    }
}

pub(super) async fn many_counters_are_kept<H: Harness>(case: &Case<'_, H>) {
    let rule = "as many counters as there are keys are kept";
    let case = case.with(Quota::per_hour(1));
    let counters: Vec<_> = (0..1_100)
        .map(|number| Counter::new(format!("one of many: {number}"), "policy", case.quota))
        .collect();
    for granted in [1, 0] {
        for counter in &counters {
            let answer = case.acquire(rule, &[counter.cost(1)]).await;
            case.check(
                rule,
                answer.granted == granted,
                format_args!("key {:?}: {answer:?}", counter.key),
            );
        }
    }
}
