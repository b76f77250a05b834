use std::collections::BTreeSet;
use std::time::Duration;

use http::Response;
use proptest::prelude::*;
use sfv::{BareItem, Dictionary, List, ListEntry, Parser};

use super::number::ceil_secs;
use super::tests::fresh;
use super::*;
use crate::fixtures::{Said, decision};
use crate::quota::{Quota, Rate};

fn knobs() -> impl Strategy<Value = Headers> {
    let x_ratelimit = prop::option::of(prop_oneof![Just(Reset::Delta), Just(Reset::Epoch)]);
    let ietf = prop::option::of(prop_oneof![Just(Draft::V6), Just(Draft::V7), Just(Draft::V8)]);
    (x_ratelimit, ietf, any::<bool>()).prop_map(|(x_ratelimit, ietf, retry_after)| Headers {
        shadow: false,
        x_ratelimit,
        ietf,
        retry_after,
    })
}

fn said() -> impl Strategy<Value = Said> {
    let quota = prop_oneof![
        (0..5_000_u64, 1_000..100_000_000_u64)
            .prop_map(|(limit, window)| Quota::new(limit, Duration::from_micros(window))),
        (1..1_000_u64, 0..1_u64 << 30)
            .prop_map(|(rate, burst)| Quota::token_bucket(Rate::per_second(rate), burst)),
    ];
    ("[a-zA-Z0-9._/:-]{1,64}", quota, any::<[u64; 2]>()).prop_map(|(name, quota, [remaining, reset])| {
        Said::new(remaining)
            .name(&name)
            .quota(quota)
            .reset(Duration::from_micros(reset))
    })
}

fn integer(item: &BareItem) -> u64 {
    item.as_integer()
        .expect("an Integer")
        .try_into()
        .expect("not negative")
}

proptest! {
    #[test]
    fn the_names_are_those_that_can_be_written(headers in knobs()) {
        let allowed = decision(true, &[Said::new(1)]);
        let denied = decision(false, &[Said::new(0).retry(Duration::from_secs(1))]);
        let written: BTreeSet<String> = [allowed, denied]
            .iter()
            .flat_map(|decision| fresh(&headers, decision))
            .map(|(name, _)| name)
            .collect();
        let names: Vec<String> = headers.names().iter().map(ToString::to_string).collect();
        prop_assert_eq!(names.len(), written.len());
        prop_assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), written);
    }

    #[test]
    fn ietf_fields_parse_back(policies in prop::collection::vec(said(), 1..4)) {
        let decision = decision(true, &policies);
        let leading = decision.leading().expect("a policy leads");
        let cap = |value: u64| value.min(number::MAX_INTEGER);

        let mut response = Response::new(());
        Headers::from(Draft::V8).write(&decision, &mut response);
        let parse = |name: &str| -> Vec<sfv::Item> {
            let list: List = Parser::new(&response.headers()[name]).parse().expect("a List");
            list.into_iter()
                .map(|entry| match entry {
                    ListEntry::Item(item) => item,
                    ListEntry::InnerList(_) => panic!("items only"),
                })
                .collect()
        };
        let state = parse("ratelimit");
        prop_assert_eq!(state.len(), 1);
        prop_assert_eq!(state[0].bare_item.as_string().unwrap().as_str(), leading.name().as_str());
        prop_assert_eq!(integer(&state[0].params["r"]), cap(leading.remaining()));
        prop_assert_eq!(integer(&state[0].params["t"]), ceil_secs(leading.reset_after()));
        let written = parse("ratelimit-policy");
        prop_assert_eq!(written.len(), decision.policies().len());
        for (item, policy) in written.iter().zip(decision.policies()) {
            prop_assert_eq!(item.bare_item.as_string().unwrap().as_str(), policy.name().as_str());
            prop_assert_eq!(integer(&item.params["q"]), policy.limit());
            prop_assert!(item.params.get("w").is_none_or(|w| integer(w) > 0));
        }

        let mut response = Response::new(());
        Headers::from(Draft::V7).write(&decision, &mut response);
        let state: Dictionary = Parser::new(&response.headers()["ratelimit"]).parse().expect("a Dictionary");
        let ListEntry::Item(remaining) = &state["remaining"] else { panic!("an Item") };
        prop_assert_eq!(integer(&remaining.bare_item), cap(leading.remaining()));
        if let Some(policies) = response.headers().get("ratelimit-policy") {
            let policies: List = Parser::new(policies).parse().expect("a List");
            prop_assert!(!policies.is_empty());
        }
    }

    #[test]
    fn what_was_written_is_read_back(headers in knobs(), policy in said()) {
        let decision = decision(true, &[policy]);
        let mut response = Response::new(());
        headers.write(&decision, &mut response);
        let found = Inner::read(response.headers(), decision.now().as_micros() / 1_000_000);
        prop_assert_eq!(found.is_some(), headers.x_ratelimit.is_some() || headers.ietf.is_some());
        if let Some(found) = found {
            let shown = Shown::of(&decision).unwrap();
            // Equal numbers are no reason to keep the inner ones.
            prop_assert!(!found.is_more_binding(&shown) || shown.remaining > number::MAX_INTEGER);
        }
    }
}
