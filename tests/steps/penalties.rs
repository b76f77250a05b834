//! Sequences that are about penalties.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;

use super::{Cost, Move, Part, Scenario, Step, any_move, any_window};
use crate::model::{Punishment, Rule, Terms};

pub(super) fn any_block() -> impl Strategy<Value = i128> {
    let forever = 2 * 366 * 86_400 * 1_000_000;
    prop_oneof![
        1 => Just(0),
        2 => 1i128..100_000,
        2 => 1i128..100_000_000,
        1 => Just(forever),
    ]
}

fn any_penalty() -> impl Strategy<Value = Punishment> {
    let year = 366 * 86_400 * 1_000_000;
    let time = move || {
        prop_oneof![
            3 => select(vec![1_000, 1_001, 500_000, 1_000_000, 5_000_000, 60_000_000, year]),
            2 => 1_000i128..10_000_000,
            1 => 1_000..=year,
        ]
    };
    let factor = prop_oneof![2 => Just(1i128), 3 => 2i128..4, 1 => Just(i128::from(u32::MAX))];
    (0i128..5, time(), time(), factor, time()).prop_map(|(denials, within, block, factor, longest)| {
        Punishment {
            denials,
            within,
            block,
            factor,
            longest,
        }
    })
}

/// Of each counter, and of what is unlimited: none, one, or two that change.
pub(super) fn any_penalties() -> impl Strategy<Value = Vec<Vec<Punishment>>> {
    let each = prop_oneof![
        3 => Just(Vec::new()),
        4 => prop::collection::vec(any_penalty(), 1),
        1 => prop::collection::vec(any_penalty(), 2),
    ];
    prop_oneof![1 => Just(Vec::new()), 2 => prop::collection::vec(each, 4)]
}

/// Sequences of a few keys that are denied often, and of which all charges may have penalties.
pub(crate) fn any_offences(rules: Vec<Rule>, back: bool) -> impl Strategy<Value = Scenario> {
    let terms = (select(rules), 0i128..3, any_window());
    let counters = terms.prop_map(|(rule, limit, window)| {
        let rate = limit.max(1);
        vec![Terms {
            rule,
            window,
            limit,
            rate,
        }]
    });
    // Where they change, it is not tried when exactly something is forgotten.
    let penalties = prop_oneof![3 => Just(1usize), 1 => Just(2)]
        .prop_flat_map(|most| prop::collection::vec(prop::collection::vec(any_penalty(), 1..=most), 3));
    let part = (0usize..3, 0usize..3, prop::bool::weighted(0.1), 0usize..2).prop_map(
        |(counter, units, shadow, penalty)| Part {
            counter,
            terms: 0,
            cost: Cost::Units(units as u64),
            shadow,
            penalty: (penalty < 2).then_some(penalty),
        },
    );
    let parts = prop::collection::vec(part, 1..3);
    let to = prop_oneof![
        3 => (-1i128..=1).prop_map(Move::Retry),
        3 => (-1i128..=1).prop_map(Move::Pardon),
        2 => any_move(back),
        // As far as a first denial may lie ahead.
        u32::from(back) => Just(Move::By(-1_000_000)),
    ];
    let step = prop_oneof![
        3 => to.prop_map(Step::Move),
        8 => (parts.clone(), 0u32..5).prop_map(|(parts, want)| Step::Acquire(parts, want, Duration::ZERO)),
        1 => parts.clone().prop_map(|parts| Step::Charge(parts, Duration::ZERO)),
        1 => (parts.clone(), 1u32..3).prop_map(|(parts, want)| Step::Peek(parts, want)),
        1 => (parts, any_block()).prop_map(|(parts, time)| Step::Block(parts, time)),
    ];
    (
        prop::collection::vec(counters, 1..3),
        penalties,
        prop::collection::vec(step, 1..60),
    )
        .prop_map(|(counters, penalties, steps)| Scenario {
            counters,
            penalties,
            steps,
        })
}
