//! The rules, one function each.

use std::time::Duration;

use super::case::{Case, Counter};
use super::{Harness, TENTHS};
use crate::clock::micros;
use crate::quota::{Algorithm, DEFAULT_SLOTS, Kind, Layout, Phase, Quota, Rate};
use crate::store::{Ask, Mode, Outcome, Retry, Stamp};

pub(super) async fn all<H: Harness>(case: &Case<'_, H>) {
    a_fresh_counter_is_full(case).await;
    the_limit_is_granted_and_no_more(case).await;
    denials_are_free(case).await;
    retry_is_true(case).await;
    what_was_charged_is_forgotten(case).await;
    costs_at_the_edges(case).await;
    a_limit_of_zero_denies(case).await;
    unlimited_is_not_counted(case).await;
    as_many_grants_as_wanted_and_fit(case).await;
    all_or_nothing(case).await;
    charges_on_one_counter_add_up(case).await;
    shadows_are_counted_and_never_stop(case).await;
    held_units_are_charged_ahead(case).await;
    what_was_granted_can_be_given_back(case).await;
    only_what_was_granted_can_be_given_back(case).await;
    a_charge_is_unconditional(case).await;
    a_look_changes_nothing(case).await;
    a_reset_forgets_its_counters_only(case).await;
    a_changed_limit_finds_the_same_counter(case).await;
    keys_policies_and_layouts_tell_counters_apart(case).await;
    concurrent_asks_share_the_limit(case).await;
    a_dropped_ask_harms_nobody(case).await;
}

async fn a_fresh_counter_is_full<H: Harness>(case: &Case<'_, H>) {
    let rule = "a fresh counter is full";
    let counter = case.counter(rule, "fresh").await;
    for _ in 0..2 {
        let answer = case.peek(rule, &[counter.tenths(1)]).await;
        let state = answer.states[0];
        case.check(
            rule,
            (answer.granted, state.charged, state.remaining) == (1, 0, counter.limit())
                && (state.retry, state.reset_after) == (Retry::Now, Duration::ZERO),
            format_args!("{answer:?}"),
        );
    }
}

async fn the_limit_is_granted_and_no_more<H: Harness>(case: &Case<'_, H>) {
    let rule = "the limit is granted, and no more";
    let counter = case.counter(rule, "limit").await;
    for left in (0..TENTHS).rev() {
        let answer = case.acquire(rule, &[counter.tenths(1)]).await;
        let state = answer.states[0];
        case.check(
            rule,
            (answer.granted, state.charged, state.remaining) == (1, 1, counter.limit() / TENTHS * left),
            format_args!("{left} tenths should be left: {answer:?}"),
        );
        case.check(
            rule,
            answer.stamp == answer.now && !state.reset_after.is_zero(),
            format_args!("{answer:?}"),
        );
    }
    let denied = case.acquire(rule, &[counter.tenths(1)]).await;
    case.check(
        rule,
        (denied.granted, denied.states[0].charged) == (0, 0)
            && matches!(denied.states[0].retry, Retry::After(_)),
        format_args!("nothing should be left: {denied:?}"),
    );
}

async fn denials_are_free<H: Harness>(case: &Case<'_, H>) {
    let rule = "denials are free";
    let counter = case.counter(rule, "denials").await;
    case.acquire(rule, &[counter.tenths(8)]).await;
    for cost in [
        counter.limit() / TENTHS * 5,
        counter.limit(),
        counter.limit() + 1,
        u64::MAX,
    ] {
        for _ in 0..3 {
            let denied = case.acquire(rule, &[counter.cost(cost)]).await;
            case.check(rule, denied.granted == 0, format_args!("{cost} fit: {denied:?}"));
        }
    }
    let granted = case.acquire(rule, &[counter.tenths(2)]).await;
    case.check(
        rule,
        (granted.granted, granted.states[0].remaining) == (1, 0),
        format_args!("two tenths should be left: {granted:?}"),
    );
}

/// The time from which on one more grant should fit.
fn due<H: Harness>(case: &Case<'_, H>, rule: &str, denied: &Outcome) -> u64 {
    let Retry::After(retry) = denied.states[0].retry else {
        panic!("{rule}, with {}: no time to wait: {denied:?}", case.quota);
    };
    denied.now.as_micros() + micros(retry)
}

async fn retry_is_true<H: Harness>(case: &Case<'_, H>) {
    let rule = "waiting as told is enough, and needed";
    for tenths in [1, 4, 10] {
        let counter = case.counter(rule, &format!("retry {tenths}")).await;
        for first in [3, 4, 3] {
            case.acquire(rule, &[counter.tenths(first)]).await;
        }
        let charges = [counter.tenths(tenths)];
        let denied = case.acquire(rule, &charges).await;
        let due = due(case, rule, &denied);
        let early = (case.resolution() * 2).max(Duration::from_micros(1));
        let wait = Duration::from_micros(due - denied.now.as_micros()).saturating_sub(early);
        case.advance(wait).await;
        let before = case.acquire(rule, &charges).await;
        case.check(
            rule,
            before.granted == u32::from(before.now.as_micros() >= due),
            format_args!("{early:?} before {due}: {before:?}"),
        );
        if before.granted == 0 {
            case.advance(Duration::from_micros(due.saturating_sub(before.now.as_micros())))
                .await;
            let after = case.acquire(rule, &charges).await;
            case.check(rule, after.granted == 1, format_args!("from {due} on: {after:?}"));
        }
    }
}

async fn what_was_charged_is_forgotten<H: Harness>(case: &Case<'_, H>) {
    let rule = "what was charged is forgotten after reset_after";
    let counter = case.counter(rule, "forgotten").await;
    let charges = [counter.tenths(7)];
    let reset_after = case.acquire(rule, &charges).await.states[0].reset_after;
    case.advance(reset_after).await;
    let full = case.peek(rule, &charges).await.states[0];
    case.check(
        rule,
        (full.remaining, full.reset_after) == (counter.limit(), Duration::ZERO),
        format_args!("after {reset_after:?}: {full:?}"),
    );
    let answer = case.acquire(rule, &[counter.tenths(10)]).await;
    case.check(rule, answer.granted == 1, format_args!("{answer:?}"));
}

async fn costs_at_the_edges<H: Harness>(case: &Case<'_, H>) {
    let rule = "a cost above the limit is never granted, none always";
    let counter = case.counter(rule, "costs").await;
    let limit = counter.limit();
    for (cost, granted, remaining, retry) in [
        (u64::MAX, 0, limit, Retry::Never),
        (limit + 1, 0, limit, Retry::Never),
        (0, 1, limit, Retry::Now),
        (1, 1, limit - 1, Retry::Now),
        (0, 1, limit - 1, Retry::Now),
        (limit - 1, 1, 0, Retry::Now),
        (0, 1, 0, Retry::Now),
        (limit + 1, 0, 0, Retry::Never),
    ] {
        let answer = case.acquire(rule, &[counter.cost(cost)]).await;
        let state = answer.states[0];
        // What was granted may not fit once more.
        let retry = granted == 1 && cost > 0 || state.retry == retry;
        case.check(
            rule,
            (answer.granted, state.remaining) == (granted, remaining) && retry,
            format_args!("{cost} of {limit}: {answer:?}"),
        );
    }
}

async fn a_limit_of_zero_denies<H: Harness>(case: &Case<'_, H>) {
    let rule = "a limit of 0 denies all";
    let counter = case.counter(rule, "zero").await;
    let none = counter.under(with_limit(case.quota, 0));
    for cost in [0, 1, u64::MAX] {
        let denied = case.acquire(rule, &[none.cost(cost)]).await;
        case.check(
            rule,
            (denied.granted, denied.states[0].retry) == (0, Retry::Never),
            format_args!("{denied:?}"),
        );
    }
}

async fn unlimited_is_not_counted<H: Harness>(case: &Case<'_, H>) {
    let rule = "unlimited fits always and is not counted";
    let counter = case.counter(rule, "unlimited").await;
    let unlimited = counter.under(Quota::unlimited());
    for cost in [0, 1, u64::MAX] {
        let answer = case
            .acquire(rule, &[unlimited.cost(cost), counter.tenths(1)])
            .await;
        let state = answer.states[0];
        case.check(
            rule,
            answer.granted == 1 && (state.remaining, state.retry) == (u64::MAX, Retry::Now),
            format_args!("{answer:?}"),
        );
    }
    case.acquire(rule, &[]).await;
}

async fn as_many_grants_as_wanted_and_fit<H: Harness>(case: &Case<'_, H>) {
    let rule = "an ask is granted as often as it is wanted and fits";
    let counter = case.counter(rule, "want").await;
    let charges = [counter.tenths(3)];
    for (want, granted) in [(0, 0), (1, 1), (u32::MAX, 2), (5, 0)] {
        let answer = case.ask(rule, &Ask::new(&charges).want(want)).await;
        case.check(
            rule,
            (answer.granted, answer.states[0].charged) == (granted, granted),
            format_args!("{want} wanted: {answer:?}"),
        );
    }
    let nothing = counter.cost(0);
    let answer = case.ask(rule, &Ask::new(&[nothing]).want(1_000)).await;
    case.check(rule, answer.granted == 1_000, format_args!("cost 0: {answer:?}"));
}

async fn all_or_nothing<H: Harness>(case: &Case<'_, H>) {
    let rule = "all charges of an ask or none";
    let counter = case.counter(rule, "all").await;
    let other = Counter::new("all", "other", Quota::new(4, case.window()));
    let charges = [counter.tenths(2), other.cost(1)];
    case.acquire(rule, &charges).await;
    case.acquire(rule, &[other.cost(3)]).await;
    for charges in [charges, [charges[1], charges[0]]] {
        let denied = case.acquire(rule, &charges).await;
        case.check(rule, denied.granted == 0, format_args!("{denied:?}"));
    }
    let answer = case.acquire(rule, &[counter.tenths(8)]).await;
    case.check(
        rule,
        answer.granted == 1,
        format_args!("what the other policy denied was charged: {answer:?}"),
    );
}

async fn charges_on_one_counter_add_up<H: Harness>(case: &Case<'_, H>) {
    let rule = "charges on one counter add up";
    let counter = case.counter(rule, "sum").await;
    let charges = [counter.tenths(2), counter.tenths(2)];
    let answer = case.ask(rule, &Ask::new(&charges).want(5)).await;
    let left = counter.limit() / TENTHS * 2;
    case.check(
        rule,
        answer.granted == 2 && answer.states.iter().all(|state| state.remaining == left),
        format_args!("{answer:?}"),
    );
}

async fn shadows_are_counted_and_never_stop<H: Harness>(case: &Case<'_, H>) {
    let rule = "shadow charges are counted if they fit, and never stop an ask";
    let counter = case.counter(rule, "shadow").await;
    let other = Counter::new("shadow", "other", Quota::new(1_000, case.window()));
    let shadow = counter.tenths(4).mode(Mode::Shadow);
    let charges = [other.cost(1), shadow];
    for (want, granted, charged) in [(1, 1, 1), (3, 3, 1), (1, 1, 0)] {
        let answer = case.ask(rule, &Ask::new(&charges).want(want)).await;
        case.check(
            rule,
            (answer.granted, answer.states[0].charged, answer.states[1].charged)
                == (granted, granted, charged),
            format_args!("{answer:?}"),
        );
    }
    let answer = case.acquire(rule, &[shadow]).await;
    case.check(
        rule,
        (answer.granted, answer.states[0].charged) == (1, 0),
        format_args!("a shadow alone: {answer:?}"),
    );
    // With nothing granted, shadows are not counted either.
    let denied = case
        .acquire(rule, &[other.cost(1_001), counter.tenths(1).mode(Mode::Shadow)])
        .await;
    case.check(
        rule,
        (denied.granted, denied.states[1].charged) == (0, 0),
        format_args!("{denied:?}"),
    );
    let answer = case.acquire(rule, &[counter.tenths(2)]).await;
    case.check(
        rule,
        answer.granted == 1,
        format_args!("two tenths were left: {answer:?}"),
    );
    // What is enforced has its room before a shadow of the same counter.
    let both = case.counter(rule, "both").await;
    let charges = [both.tenths(4).mode(Mode::Shadow), both.tenths(7)];
    let answer = case.acquire(rule, &charges).await;
    case.check(
        rule,
        (answer.granted, answer.states[0].charged, answer.states[1].charged) == (1, 0, 1),
        format_args!("{answer:?}"),
    );
}

async fn held_units_are_charged_ahead<H: Harness>(case: &Case<'_, H>) {
    let rule = "held units are charged ahead, by a second and the window at most";
    let most = case.window().min(Duration::from_secs(1));
    for (number, hold) in [most / 4, most, Duration::MAX].into_iter().enumerate() {
        let counter = case.counter(rule, &format!("held {number}")).await;
        let charges = [counter.tenths(10)];
        let answer = case.ask(rule, &Ask::new(&charges).hold(hold)).await;
        let ahead = answer.stamp.as_micros() - answer.now.as_micros();
        let expected = micros(hold.min(most));
        // A lease ends with its window.
        let ends = case.is(Algorithm::FixedWindow) && ahead < micros(answer.states[0].reset_after);
        case.check(
            rule,
            answer.granted == 1 && (ahead == expected || ends && ahead < expected),
            format_args!("{hold:?}: {answer:?}"),
        );
        if case.is(Algorithm::SlidingWindow) {
            // In use up to then, and in the window from then on.
            let reset_after = answer.states[0].reset_after;
            case.check(
                rule,
                reset_after >= hold.min(most) + case.window(),
                format_args!("{hold:?}: {answer:?}"),
            );
        }
        case.acquire(rule, &charges).await;
    }
}

async fn what_was_granted_can_be_given_back<H: Harness>(case: &Case<'_, H>) {
    let rule = "what was granted can be given back";
    let counter = case.counter(rule, "give back").await;
    let charges = [counter.tenths(3)];
    let answer = case.ask(rule, &Ask::new(&charges).want(3)).await;
    let unit = counter.limit() / TENTHS;
    for (times, left) in [(0, 1), (2, 7), (1, 10)] {
        case.give_back(rule, &charges, times, answer.stamp).await;
        let remaining = case.remaining(rule, counter.cost(1)).await;
        case.check(
            rule,
            remaining.abs_diff(unit * left) <= case.refilled(),
            format_args!("{left} tenths should be left, not {remaining}"),
        );
    }
}

async fn only_what_was_granted_can_be_given_back<H: Harness>(case: &Case<'_, H>) {
    let rule = "nothing is given back that was not granted";
    let counter = case.counter(rule, "nothing back").await;
    let charges = [counter.tenths(4)];
    let answer = case.acquire(rule, &charges).await;
    let before = answer.states[0].remaining;
    // No stamp, no refund.
    case.give_back(rule, &charges, 1, Stamp::default()).await;
    case.give_back(rule, &charges, 1, Stamp::from_micros(u64::MAX))
        .await;
    if !case.is(Algorithm::TokenBucket) {
        // Exactly those units or nothing.
        case.give_back(rule, &charges, 2, answer.stamp).await;
        case.give_back(rule, &[counter.cost(u64::MAX)], u32::MAX, answer.stamp)
            .await;
    }
    let remaining = case.remaining(rule, counter.cost(1)).await;
    case.check(
        rule,
        (before..=before + case.refilled()).contains(&remaining),
        format_args!("{remaining} are left of {before}"),
    );
    let unknown = Counter::new("never asked", "policy", case.quota);
    case.give_back(rule, &[unknown.tenths(5)], 1, answer.stamp).await;
    let remaining = case.remaining(rule, unknown.cost(1)).await;
    case.check(rule, remaining == counter.limit(), format_args!("{remaining}"));
}

async fn a_charge_is_unconditional<H: Harness>(case: &Case<'_, H>) {
    let rule = "a charge is counted whether it fits or not";
    let counter = case.counter(rule, "charge").await;
    for (tenths, left) in [(6, 4), (6, 0), (1, 0)] {
        let answer = case.charge(rule, &[counter.tenths(tenths)]).await;
        case.check(
            rule,
            (answer.granted, answer.states[0].charged) == (1, 1)
                && answer.states[0].remaining == counter.limit() / TENTHS * left,
            format_args!("{answer:?}"),
        );
    }
    let denied = case.acquire(rule, &[counter.tenths(1)]).await;
    case.check(rule, denied.granted == 0, format_args!("{denied:?}"));
    case.charge(rule, &[counter.cost(u64::MAX)]).await;
    case.peek(rule, &[counter.cost(1)]).await;
}

async fn a_look_changes_nothing<H: Harness>(case: &Case<'_, H>) {
    let rule = "a look changes nothing";
    let counter = case.counter(rule, "look").await;
    case.acquire(rule, &[counter.tenths(1)]).await;
    let charges = [counter.tenths(3)];
    for (want, granted) in [(1, 1), (u32::MAX, 3), (2, 2), (0, 0)] {
        let answer = case.peek_ask(rule, &Ask::new(&charges).want(want)).await;
        case.check(
            rule,
            (answer.granted, answer.states[0].charged) == (granted, 0),
            format_args!("{want} wanted: {answer:?}"),
        );
    }
    let answer = case.ask(rule, &Ask::new(&charges).want(3)).await;
    case.check(rule, answer.granted == 3, format_args!("{answer:?}"));
}

async fn a_reset_forgets_its_counters_only<H: Harness>(case: &Case<'_, H>) {
    let rule = "a reset forgets its counters only";
    let (counter, other) = (
        case.counter(rule, "reset").await,
        Counter::new("not reset", "policy", Quota::new(9, case.window())),
    );
    case.acquire(rule, &[counter.tenths(10), other.cost(9)]).await;
    case.reset(rule, &[counter.tenths(1)]).await;
    let remaining = case.remaining(rule, counter.cost(1)).await;
    case.check(rule, remaining == counter.limit(), format_args!("{remaining}"));
    let remaining = case.remaining(rule, other.cost(1)).await;
    case.check(rule, remaining == 0, format_args!("{remaining} of the other"));
}

/// The same counter's quota with another limit.
fn with_limit(quota: Quota, limit: u64) -> Quota {
    let windowed = Quota::new(limit, quota.window());
    match quota.kind() {
        Kind::Unlimited => quota,
        Kind::Sliding { slots: 0 } if quota.layout() == Some(Layout::Log) => windowed,
        Kind::Sliding { slots: 0 } => windowed.slots(DEFAULT_SLOTS),
        Kind::Sliding { slots } => windowed.slots(slots),
        Kind::Counter => windowed.sliding_counter(),
        Kind::Fixed(Phase::Utc(offset)) => windowed.fixed_window_offset(Duration::from_micros(offset)),
        Kind::Fixed(Phase::PerKey) => windowed.fixed_window_per_key(),
        Kind::Bucket { .. } => {
            Quota::token_bucket(Rate::new(quota.units_per_window(), quota.window()), limit)
        }
    }
}

async fn a_changed_limit_finds_the_same_counter<H: Harness>(case: &Case<'_, H>) {
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

async fn keys_policies_and_layouts_tell_counters_apart<H: Harness>(case: &Case<'_, H>) {
    let rule = "key, policy, algorithm and window tell counters apart";
    let long = "long".repeat(2_500);
    let longer = format!("{long}!");
    let counters = [
        ("a", "b:c"),
        ("a:b", "c"),
        ("a", "b"),
        ("b", "a"),
        ("A", "b"),
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
    for counter in &counters {
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
    let ten = Quota::new(TENTHS, case.window());
    let others = [
        ten,
        ten.slots(5),
        ten.sliding_counter(),
        ten.fixed_window(),
        ten.fixed_window_per_key(),
        Quota::token_bucket(Rate::new(TENTHS, case.window()), TENTHS),
        Quota::new(TENTHS, case.window() * 2),
    ];
    for quota in others {
        // Buckets of any rate are one counter.
        let same = with_limit(quota, 1) == with_limit(case.quota, 1)
            || case.is(Algorithm::TokenBucket) && quota.algorithm() == case.quota.algorithm();
        let other = counters[0].under(quota);
        let answer = case.peek(rule, &[other.cost(1)]).await;
        case.check(
            rule,
            same || answer.granted == 1,
            format_args!("{quota}: {answer:?}"),
        );
    }
}

async fn concurrent_asks_share_the_limit<H: Harness>(case: &Case<'_, H>) {
    let rule = "concurrent asks share the limit";
    let counter = case.counter(rule, "concurrent").await;
    let other = Counter::new("concurrent", "other", Quota::new(1_000, case.window()));
    let granted = case.at_once(rule, &[other.cost(1), counter.tenths(1)], 40).await;
    case.check(
        rule,
        (10..=10 + case.refilled()).contains(&u64::from(granted)),
        format_args!("{granted} of 10 were granted"),
    );
}

async fn a_dropped_ask_harms_nobody<H: Harness>(case: &Case<'_, H>) {
    let rule = "a dropped ask harms nobody else";
    let dropped = Counter::new("dropped", "policy", case.quota);
    for _ in 0..10 {
        case.drop_halfway(&[dropped.tenths(1)]).await;
    }
    let counter = case.counter(rule, "not dropped").await;
    let answer = case.acquire(rule, &[counter.tenths(10)]).await;
    case.check(rule, answer.granted == 1, format_args!("{answer:?}"));
}
