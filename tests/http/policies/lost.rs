//! Settling when answers are lost: every unit is given back at most once, and what is lost errs on a known side.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::runtime::{Builder, Runtime};
use tollgate::store::AnyStore;
use tollgate::{ChargeHandle, Limiter, Quota};

use super::lossy::{Fate, Lossy};
use super::{LONG, Place, YEAR, left_by};

on_both_stores! {
    a_lost_answer_gives_nothing_back_twice,
    a_lost_correction_errs_on_its_side,
    a_refused_correction_is_made_later,
    a_refused_give_back_can_be_tried_again,
    a_grant_whose_answer_is_lost_stays_charged,
}

const LIMIT: u64 = 1_000;

/// So slow that nothing here comes too late.
fn lossy(store: AnyStore) -> Lossy {
    Lossy::new(store, LONG)
}

fn limiter(store: &Lossy) -> Limiter {
    Limiter::new(store.clone(), Quota::new(LIMIT, YEAR))
        .name("units")
        .deadline(LONG)
}

async fn used(limiter: &Limiter, key: &str) -> u64 {
    LIMIT - left_by(&limiter.peek(key).await, "units")
}

async fn reserve(limiter: &Limiter, key: &str, cost: u64) -> ChargeHandle {
    limiter.reserve(key, cost).await.expect("there is room")
}

async fn a_lost_answer_gives_nothing_back_twice(place: &Place) {
    let store = lossy(place.store());
    let limiter = limiter(&store);
    let (first, second) = (
        reserve(&limiter, "ann", 10).await,
        reserve(&limiter, "ann", 10).await,
    );
    store.settles([Fate::DoneUnheard]);
    first.settle("units", 3);
    // Whether it was done is not known, so it is not sent again.
    limiter.shutdown().await;
    assert_eq!(used(&limiter, "ann").await, 13);
    first.settle("units", 0);
    first.give_back();
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(used(&limiter, "ann").await, 13);
    // The other one's units are still there for it.
    second.give_back();
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(used(&limiter, "ann").await, 3);
    assert_eq!(store.corrected(), (17, 0));
}

async fn a_lost_correction_errs_on_its_side(place: &Place) {
    let store = lossy(place.store());
    let limiter = limiter(&store);
    let (down, up) = (
        reserve(&limiter, "ann", 10).await,
        reserve(&limiter, "ben", 10).await,
    );
    store.settles([Fate::Lost, Fate::Lost]);
    down.settle("units", 3);
    limiter.shutdown().await;
    up.settle("units", 30);
    limiter.shutdown().await;
    // What was to be given back stays charged: strict. What was to be charged is forgotten: loose.
    assert_eq!(used(&limiter, "ann").await, 10);
    assert_eq!(used(&limiter, "ben").await, 10);
}

async fn a_refused_give_back_can_be_tried_again(place: &Place) {
    let store = lossy(place.store());
    let limiter = limiter(&store);
    let charge = reserve(&limiter, "ann", 10).await;
    store.settles([Fate::Refused, Fate::Refused, Fate::Done]);
    for _ in 0..2 {
        let refused = charge.give_back_now().await.expect_err("as the store says");
        assert!(refused.is_undone());
    }
    charge.clone().give_back_now().await.expect("done");
    assert_eq!(used(&limiter, "ann").await, 0);
    assert!(!charge.settle("units", 5), "that was it");
    assert_eq!(store.corrected(), (10, 0));

    // But not where it may have been done.
    for (fate, left) in [(Fate::Lost, 10), (Fate::DoneUnheard, 0)] {
        let charge = reserve(&limiter, "ben", 10).await;
        store.settles([fate]);
        charge.give_back_now().await.expect_err("no answer");
        charge.give_back_now().await.expect("nothing to do");
        assert!(!charge.settle("units", 0));
        assert_eq!(used(&limiter, "ben").await, left, "{fate:?}");
        limiter.reset("ben").await.expect("done");
    }
}

async fn a_refused_correction_is_made_later(place: &Place) {
    // Sent again after a deadline.
    let store = Lossy::new(place.store(), Duration::from_millis(200));
    let limiter = limiter(&store);
    let (down, up) = (
        reserve(&limiter, "ann", 10).await,
        reserve(&limiter, "ben", 10).await,
    );
    store.settles([Fate::Refused, Fate::Refused]);
    down.settle("units", 3);
    up.settle("units", 30);
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(used(&limiter, "ann").await, 3);
    assert_eq!(used(&limiter, "ben").await, 30);
    assert_eq!(store.corrected(), (7, 20));
}

async fn a_grant_whose_answer_is_lost_stays_charged(place: &Place) {
    let store = lossy(place.store());
    let limiter = limiter(&store);
    store.acquires([Fate::DoneUnheard, Fate::Lost, Fate::Done]);
    let unheard = reserve(&limiter, "ann", 10).await;
    let lost = reserve(&limiter, "ann", 20).await;
    let heard = reserve(&limiter, "ann", 40).await;
    assert!(unheard.decision().is_degraded() && lost.decision().is_degraded());
    // What was counted here is given back here: whether the store has charged it is not known.
    unheard.give_back();
    lost.give_back();
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(used(&limiter, "ann").await, 50);
    heard.give_back();
    assert_eq!(limiter.shutdown().await, 0);
    assert_eq!(used(&limiter, "ann").await, 10);
    assert_eq!(store.corrected(), (40, 0));
}

/// A reservation, what it has really cost, and of whom.
type Settled = (usize, u64, u64);

fn settled() -> impl Strategy<Value = Settled> {
    (0..3_usize, 1..=8_u64, 0..=12_u64)
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        3 => Just(Fate::Done),
        2 => Just(Fate::DoneUnheard),
        2 => Just(Fate::Lost),
    ]
}

const USERS: [&str; 3] = ["ann", "ben", "cem"];

/// Reserves all, settles all at once, in order or after each other's calls, and compares with what was really done.
async fn settle_all(
    store: AnyStore,
    charges: &[Settled],
    fates: &[Fate],
    one_by_one: bool,
) -> Result<(), TestCaseError> {
    let store = lossy(store);
    let limiter = limiter(&store);
    let mut handles = Vec::new();
    for &(user, cost, real) in charges {
        handles.push((reserve(&limiter, USERS[user], cost).await, real));
    }
    store.settles(fates.iter().copied());
    let mut unsure = 0;
    for (handle, real) in &handles {
        prop_assert!(handle.settle("units", *real));
        prop_assert!(!handle.settle("units", 0));
        if one_by_one {
            unsure += limiter.shutdown().await;
        }
    }
    unsure += limiter.shutdown().await;

    let sum = |of: fn(&Settled) -> u64| charges.iter().map(of).sum::<u64>();
    let reserved = sum(|&(_, cost, _)| cost);
    let to_give_back = sum(|&(_, cost, real)| cost.saturating_sub(real));
    let to_charge = sum(|&(_, cost, real)| real.saturating_sub(cost));
    let (given_back, charged) = store.corrected();
    // At most once, each.
    prop_assert!(given_back <= to_give_back && charged <= to_charge);
    let mut in_all = 0;
    for user in USERS {
        in_all += used(&limiter, user).await;
    }
    // And exactly that is gone or has come, whatever was heard of it.
    prop_assert_eq!(in_all, reserved + charged - given_back);
    if fates.iter().all(|&fate| fate == Fate::Done) {
        prop_assert_eq!((given_back, charged, unsure), (to_give_back, to_charge, 0));
    }
    if one_by_one {
        let corrections = charges.iter().filter(|(_, cost, real)| cost != real).count();
        let lost = fates
            .iter()
            .take(corrections)
            .filter(|&&fate| fate != Fate::Done)
            .count();
        prop_assert_eq!(unsure, lost as u64);
    }
    Ok(())
}

fn check(cases: u32, runtime: &Runtime, mut store: impl FnMut() -> AnyStore) {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let case = (vec(settled(), 1..40), vec(fate(), 0..20), any::<bool>());
    let mut runner = TestRunner::new(config);
    let store = std::cell::RefCell::new(&mut store);
    let result = runner.run(&case, |(charges, fates, one_by_one)| {
        let store = (store.borrow_mut())();
        runtime.block_on(settle_all(store, &charges, &fates, one_by_one))
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

#[test]
fn every_unit_is_given_back_at_most_once_in_memory() {
    let runtime = runtime();
    let place = Place::memory();
    check(128, &runtime, || runtime.block_on(place.fresh("")));
}

#[test]
fn every_unit_is_given_back_at_most_once_in_redis() {
    let runtime = runtime();
    let place = runtime.block_on(Place::redis());
    let mut number = 0;
    check(32, &runtime, || {
        number += 1;
        runtime.block_on(place.fresh(&format!("case-{number}")))
    });
}
