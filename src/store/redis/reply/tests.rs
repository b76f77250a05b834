use super::*;
use crate::store::ask::Heeds;
use crate::store::{Ask, Charge};
use crate::{Key, PolicyName, Quota, Rate};

const NOW: u64 = 1_700_000_000_000_000;

/// What callers are told without an [`Outcome`] is what the outcome says.
#[test]
fn an_ordinary_answer_is_told_in_both_ways_alike() {
    let (key, policy) = (Key::from("a"), PolicyName::new("p").expect("a name"));
    let minute = Duration::from_secs(60);
    let quotas = [
        Quota::per_minute(9),
        Quota::per_minute(9).slots(4),
        Quota::per_minute(9).sliding_counter(),
        Quota::per_minute(9).fixed_window(),
        Quota::token_bucket(Rate::new(9, minute), 9),
    ];
    let mut random = fastrand::Rng::with_seed(7);
    let mut ordinary = 0;
    for turn in 0..20_000 {
        let cost = random.u64(0..4);
        let charges = [Charge::new(&key, &policy, quotas[turn % quotas.len()]).cost(cost)];
        let order = Order::new("t", &Ask::new(&charges), Heeds::Enforced);
        let granted = random.u32(0..4);
        // What was charged is there, and the window is this one.
        let units = (u64::from(granted) * cost) as i64 + random.i64(0..9);
        let window = (NOW / 60_000_000) as i64;
        let numbers = match turn % quotas.len() {
            0 | 1 => [units, random.i64(-1..12), random.i64(0..60_000_000)],
            2 => [window, units, random.i64(0..9)],
            3 => [window, units, 0],
            _ => [NOW as i64, units * 60_000_000, 0],
        };
        let answer = Answer {
            now: NOW,
            stamp: NOW + random.u64(0..3),
            sent: None,
            granted,
            reports: SmallVec::from_buf([Report {
                charged: granted,
                numbers,
            }]),
            blocks: SmallVec::new(),
        };
        for place in 0..=granted {
            let share = Share::new(place.min(granted), u32::from(place < granted), 1);
            let known = answer.known(&order, share).expect("an ordinary answer");
            let outcome = answer.outcome(&order, share);
            let told = (u32::from(known.granted), known.now, known.stamp);
            assert_eq!(told, (outcome.granted, outcome.now, outcome.stamp), "{answer:?}");
            assert_eq!([known.state()], *outcome.states, "{answer:?} {share:?}");
            ordinary += 1;
        }
        let twice = Share::new(0, granted.min(2), 2);
        assert!(answer.known(&order, twice).is_none(), "more than one grant");
    }
    assert!(ordinary > 20_000);
}

/// Nor are those answers that have more to tell.
#[test]
fn no_other_answer_is_ordinary() {
    let (key, policy) = (Key::from("a"), PolicyName::new("p").expect("a name"));
    let penalty = crate::penalty::Penalty::after(3, Duration::from_secs(60));
    let charge = Charge::new(&key, &policy, Quota::per_minute(9));
    let is_ordinary = |charges: &[Charge<'_>]| {
        let order = Order::new("t", &Ask::new(charges), Heeds::Enforced);
        let report = Report {
            charged: 1,
            numbers: [1, 0, 60_000_000],
        };
        let answer = Answer {
            now: NOW,
            stamp: NOW,
            sent: None,
            granted: 1,
            reports: order.counters().map(|_| report).collect(),
            blocks: SmallVec::new(),
        };
        answer.known(&order, Share::new(0, 1, 1)).is_some()
    };
    assert!(is_ordinary(&[charge]));
    assert!(!is_ordinary(&[charge.mode(Mode::Shadow)]));
    assert!(!is_ordinary(&[charge.penalty(&penalty)]));
    assert!(!is_ordinary(&[charge, charge.cost(2)]));
    assert!(!is_ordinary(&[Charge::new(&key, &policy, Quota::unlimited())]));
}

#[test]
fn a_reply_of_units_alone_is_one_text() {
    let units = [1, u64::from(u32::MAX), 1 << 32];
    let mut text = NOW.to_be_bytes()[1..].to_vec();
    for units in units {
        text.extend_from_slice(&units.to_be_bytes()[3..]);
    }
    let replies = Replies::read(Value::BulkString(text.clone())).expect("a reply");
    assert_eq!(replies.now, NOW);
    assert_eq!(replies.each(), units.map(|units| Value::Int(units as i64)));
    for length in [0, 6, 8, text.len() - 1, text.len() + 1] {
        text.resize(length, 0);
        assert!(
            Replies::read(Value::BulkString(text.clone())).is_err(),
            "{length}"
        );
    }
}
