//! Limits, windows, costs and wants of any size.

use std::time::Duration;

use super::super::case::Case;
use super::super::counter::Counter;
use super::super::{BEYOND_32_BITS, Harness, TENTHS};
use crate::quota::{Algorithm, MAX_LOG_UNITS, MAX_UNITS, Quota, Rate};
use crate::store::Ask;

/// Around what an implementation may take for granted: a log's most, a million, 32 bits.
const LIMITS: [u64; 6] = [
    TENTHS,
    1_000,
    MAX_LOG_UNITS,
    MAX_LOG_UNITS + 1,
    1_000_003,
    MAX_UNITS,
];

/// The shortest and the longest, and two that are no round numbers, in µs.
const WINDOWS: [u64; 4] = [1_000, 999_983, 1_001_000_001, 366 * 24 * 3_600 * 1_000_000];

/// One quota and its counter.
struct Trial<'a, H: Harness> {
    case: Case<'a, H>,
    counter: Counter,
}

fn trials<'a, H: Harness>(case: &Case<'a, H>, window: Duration) -> Vec<Trial<'a, H>> {
    let mut trials = Vec::new();
    for limit in LIMITS {
        let windowed = Quota::new(limit, window);
        let rate = Rate::new(limit, window);
        let quotas = [
            windowed,
            windowed.slots(7),
            windowed.slots(256),
            windowed.sliding_counter(),
            windowed.fixed_window(),
            windowed.fixed_window_offset(window / 3),
            windowed.fixed_window_per_key(),
            Quota::token_bucket(rate, limit),
            Quota::token_bucket(rate, limit.div_ceil(7)),
            Quota::token_bucket(Rate::new(limit.div_ceil(7), window), limit),
        ];
        trials.extend(quotas.into_iter().enumerate().map(|(kind, quota)| Trial {
            case: case.with(quota),
            counter: Counter::new(format!("{limit} of {kind}"), "sizes", quota),
        }));
    }
    trials
}

/// Nearly all that is asked for here is in the comparison with the store that [`Case`] asks beside this one, as it
/// holds at whatever times a clock that runs by itself makes of the calls.
pub(super) async fn limits_and_windows_of_any_size_are_exact<H: Harness>(case: &Case<'_, H>) {
    for window in WINDOWS.map(Duration::from_micros) {
        let trials = trials(case, window);
        for trial in &trials {
            trial.fill().await;
        }
        // Nothing waits for long windows on a real clock.
        if case.by_hand() || window <= case.window() {
            // So uneven that no time is a multiple of a tick, and all within few windows: years add up.
            for (percent, odd) in [(31, 1), (47, 3), (38, 7), (83, 11)] {
                case.advance(window * percent / 100 + Duration::from_micros(odd))
                    .await;
                for trial in &trials {
                    trial.look_and_take().await;
                }
            }
        }
        for trial in &trials {
            trial.correct().await;
        }
    }
}

impl<H: Harness> Trial<'_, H> {
    async fn fill(&self) {
        let rule = "limits, windows, costs and wants of any size are exact";
        let (case, counter) = (&self.case, &self.counter);
        let limit = counter.limit();
        for cost in [limit + 1, BEYOND_32_BITS] {
            let denied = case.acquire(rule, &[counter.cost(cost)]).await;
            case.check(rule, denied.granted == 0, format_args!("{cost} fit: {denied:?}"));
        }
        let one = [counter.cost(1)];
        let most = Ask::new(&one).want(u32::MAX);
        case.peek_ask(rule, &most).await;
        let answer = case.ask(rule, &most).await;
        case.check(
            rule,
            !case.by_hand() || u64::from(answer.granted) == limit.min(u64::from(u32::MAX)),
            format_args!("{answer:?}"),
        );
        case.reset(rule, &one).await;
        // As many as fit, not a round part of the limit.
        let most = limit - limit / 3;
        case.acquire(rule, &[counter.cost(most)]).await;
        case.acquire(rule, &[counter.cost(limit - most + 1)]).await;
        case.peek(rule, &[counter.cost(limit)]).await;
    }

    async fn look_and_take(&self) {
        let (case, counter) = (&self.case, &self.counter);
        let rule = if case.is(Algorithm::SlidingCounter) || case.is(Algorithm::TokenBucket) {
            "time counts in ticks where units and windows are large"
        } else {
            "limits and windows of any size are exact over time"
        };
        let limit = counter.limit();
        case.peek(rule, &[counter.cost(1)]).await;
        // What fits is told to the unit, and when all of it fits to the microsecond.
        case.acquire(rule, &[counter.cost(limit)]).await;
        case.ask(rule, &Ask::new(&[counter.cost(limit.div_ceil(5))]).want(2))
            .await;
        case.acquire(rule, &[counter.cost(1)]).await;
        case.peek(rule, &[counter.cost(limit - limit / 7)]).await;
    }

    async fn correct(&self) {
        let rule = "corrections of any size are exact";
        let (case, counter) = (&self.case, &self.counter);
        let limit = counter.limit();
        let half = [counter.cost(limit / 2)];
        case.reset(rule, &half).await;
        let hold = counter.quota.window() / 3;
        let answer = case.ask(rule, &Ask::new(&half).want(2).hold(hold)).await;
        // What a bucket takes back depends on a time that no store reports.
        if case.by_hand() || !case.is(Algorithm::TokenBucket) {
            case.give_back(rule, &half, 1, answer.stamp).await;
            case.peek(rule, &[counter.cost(limit)]).await;
        }
        case.reset(rule, &half).await;
        case.charge(rule, &[counter.cost(limit + limit / 2)]).await;
        case.peek(rule, &[counter.cost(limit)]).await;
    }
}
