//! The rules, one function each.

mod charges;
mod corrections;
mod futures;
mod identity;
mod limit;
mod penalties;
mod settling;
mod sizes;
mod time;

use super::Harness;
use super::case::Case;

/// The rules that every kind of quota keeps.
pub(super) async fn all<H: Harness>(case: &Case<'_, H>) {
    limit::a_fresh_counter_is_full(case).await;
    limit::the_limit_is_granted_and_no_more(case).await;
    limit::denials_are_free(case).await;
    time::retry_is_true(case).await;
    time::what_was_charged_is_forgotten(case).await;
    limit::costs_at_the_edges(case).await;
    limit::a_limit_of_zero_denies(case).await;
    limit::unlimited_is_not_counted(case).await;
    limit::as_many_grants_as_wanted_and_fit(case).await;
    charges::all_or_nothing(case).await;
    charges::charges_on_one_counter_add_up(case).await;
    charges::shadows_are_counted_and_never_stop(case).await;
    charges::a_look_is_at_all_charges(case).await;
    time::held_units_are_charged_ahead(case).await;
    corrections::what_was_granted_can_be_given_back(case).await;
    corrections::only_what_was_granted_can_be_given_back(case).await;
    corrections::all_charges_are_given_back(case).await;
    corrections::a_charge_is_unconditional(case).await;
    corrections::a_charge_is_of_all_and_once(case).await;
    settling::corrections_made_together_do_what_each_does_alone(case).await;
    settling::each_charge_can_be_given_back_by_its_own_stamp(case).await;
    limit::a_look_changes_nothing(case).await;
    corrections::a_reset_forgets_its_counters_only(case).await;
    identity::a_changed_limit_finds_the_same_counter(case).await;
    corrections::what_exceeds_the_limit_is_counted(case).await;
    identity::keys_policies_and_layouts_tell_counters_apart(case).await;
    futures::concurrent_asks_share_the_limit(case).await;
    futures::a_dropped_ask_harms_nobody(case).await;
    penalties::denials_block_a_key(case).await;
    penalties::denials_count_where_there_was_no_room(case).await;
    penalties::denials_are_forgotten(case).await;
    penalties::blocks_grow(case).await;
    penalties::keys_are_blocked_by_hand(case).await;
    penalties::a_pardon_forgets_denials(case).await;
    penalties::a_step_back_holds_no_block_for_long(case).await;
    time::a_small_step_back_admits_nothing(case).await;
    time::a_large_step_back_holds_nobody_for_long(case).await;
}

/// The rules that are tried once: they bring quotas of their own.
pub(super) async fn once<H: Harness>(case: &Case<'_, H>) {
    sizes::limits_and_windows_of_any_size_are_exact(case).await;
    identity::many_counters_are_kept(case).await;
    penalties::unlimited_is_blocked_by_hand(case).await;
}
