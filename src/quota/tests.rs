//! Quotas as text, and their names.

use std::time::Duration;

use super::{Quota, Rate};

#[test]
fn reads_the_words_that_people_write() {
    let cases = [
        ("100/minute", Quota::per_minute(100)),
        ("100 per minute", Quota::per_minute(100)),
        ("5 per 10 seconds", Quota::new(5, Duration::from_secs(10))),
        ("5/10s", Quota::new(5, Duration::from_secs(10))),
        ("1_000/h", Quota::per_hour(1_000)),
        ("7/500ms", Quota::new(7, Duration::from_millis(500))),
        ("0/s", Quota::per_second(0)),
        ("10/s burst 20", Quota::token_bucket(Rate::per_second(10), 20)),
        ("10/s sliding window", Quota::per_second(10)),
        ("10/S Sliding Counter", Quota::per_second(10).sliding_counter()),
        ("1000/d fixed window", Quota::per_day(1_000).fixed_window()),
        (
            "1000/d fixed window offset 6 hours",
            Quota::per_day(1_000).fixed_window_offset(Duration::from_secs(6 * 3_600)),
        ),
        (
            "9/m fixed window per key",
            Quota::per_minute(9).fixed_window_per_key(),
        ),
        ("9/m slots 16", Quota::per_minute(9).slots(16)),
        (" unlimited ", Quota::unlimited()),
    ];
    for (text, quota) in cases {
        assert_eq!(text.trim().parse(), Ok(quota), "{text}");
        assert_eq!(quota.to_string().parse(), Ok(quota), "{text} as {quota}");
    }
}

#[test]
fn refuses_what_is_no_quota_and_says_why() {
    for (text, part) in [
        ("", "whole number of units"),
        ("fast", "whole number of units"),
        ("10", "`/` or `per`"),
        ("10/", "unit of time"),
        ("10/fortnight", "unit of time"),
        ("10/0s", "1 ms to 366 days"),
        ("10/367d", "1 ms to 366 days"),
        ("10/99999999999999999999s", "too large"),
        ("5000000000/s", "4294967296"),
        ("0/s burst 5", "a rate is 1"),
        ("10/s burst", "burst is a whole number"),
        ("10/s slots 1", "2 to 256"),
        ("10/s slots 70000", "2 to 256"),
        ("10/s fixed", "comes `window`"),
        ("10/s sometimes", "after its end"),
        ("10/s; drop", "after its end"),
        ("10/s fixed window offset 18446744073709551615d", "too long"),
        ("10/18446744073709551615d", "too long"),
        ("1/366d burst 4294967296", "35 years"),
        ("10 per münute", "unit of time"),
    ] {
        let error = text.parse::<Quota>().expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert!(error.contains("100/minute"), "{error}");
    }
}

#[test]
fn names_a_policy_in_words() {
    for (quota, slug) in [
        (Quota::per_minute(100), "100-per-60s"),
        (Quota::new(5, Duration::from_millis(1_500)), "5-per-1500ms"),
        (
            Quota::token_bucket(Rate::per_second(10), 20),
            "10-per-1s-burst-20",
        ),
        (Quota::per_minute(9).fixed_window(), "9-per-60s-fixed-window"),
        (
            Quota::per_minute(9).sliding_counter(),
            "9-per-60s-sliding-counter",
        ),
        (
            Quota::per_day(9).fixed_window_offset(Duration::from_secs(3_600)),
            "9-per-86400s-fixed-window-offset-3600000000us",
        ),
    ] {
        assert_eq!(quota.slug(), slug);
    }
}

#[test]
fn r10_debug_says_the_rate_in_plain_words() {
    assert_eq!(
        format!("{:?}", Quota::per_second(4_000)),
        "Quota(4000 per second)"
    );
    assert_eq!(format!("{:?}", Rate::per_minute(3)), "Rate(3 per minute)");
}

#[test]
fn every_default_name_is_a_name() {
    let window = Duration::from_secs(366 * 86_400);
    let longest = [
        Quota::new(1 << 32, window).fixed_window_offset(window - Duration::from_micros(1)),
        Quota::new(1 << 32, Duration::from_micros(1_000_001)).fixed_window_per_key(),
        Quota::token_bucket(Rate::new(1 << 32, window), 1 << 32),
    ];
    for quota in longest {
        assert!(crate::PolicyName::new(quota.slug()).is_ok(), "{}", quota.slug());
    }
}

#[test]
fn a_store_can_tell_all_quotas_apart() {
    let minute = Quota::per_minute(10);
    let bucket = Quota::token_bucket(Rate::per_minute(7), 10);
    assert_eq!(bucket.rate(), Some(Rate::per_minute(7)));
    assert_eq!(bucket.rate().map(|rate| rate.units_per_window()), Some(7));
    assert_eq!(minute.rate(), None);
    assert_eq!(
        (minute.slot_count(), minute.slots(9).slot_count()),
        (None, Some(9))
    );
    assert_eq!(Quota::per_minute(4_097).slot_count(), Some(64));
    let offset = Duration::from_secs(7);
    assert_eq!(minute.fixed_window_offset(offset).window_offset(), Some(offset));
    assert_eq!(minute.fixed_window().window_offset(), Some(Duration::ZERO));
    assert_eq!(minute.fixed_window_per_key().window_offset(), None);
}
