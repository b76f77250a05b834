//! What holds for all rules, tried with many.

use std::cmp::Ordering;

use http::header::HOST;
use http::request::Parts;
use http::{Method, Request};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::pattern::Pattern;
use super::request::Place;
use super::rule::Rule;
use super::table::Rules;
use crate::key::Route;
use crate::predicate::Predicate;

const METHODS: [Method; 3] = [Method::GET, Method::HEAD, Method::POST];
const HOSTS: [&str; 2] = ["a", "b"];

/// Patterns of few words, so that many overlap.
fn pattern() -> impl Strategy<Value = String> {
    let segment = select(&["/a", "/ab", "/{x}", "/a{x}", "/"][..]);
    let tail = select(&["", "", "/*", "/{*rest}"][..]);
    (vec(segment, 0..4), tail).prop_map(|(segments, tail)| match segments.concat() + tail {
        empty if empty.is_empty() => "/".to_owned(),
        pattern => pattern,
    })
}

fn path() -> impl Strategy<Value = String> {
    vec(select(&["/a", "/ab", "/abc", "/b", "/"][..]), 1..5).prop_map(|segments| segments.concat())
}

fn rule() -> impl Strategy<Value = Rule> {
    let methods = vec(select(&METHODS[..]), 0..3);
    let hosts = vec(select(&HOSTS[..]), 0..2);
    (proptest::option::of(pattern()), methods, hosts).prop_map(|(path, methods, hosts)| {
        let rule = path.map_or(Rule::any(), Rule::path);
        let rule = methods.into_iter().fold(rule, Rule::method);
        hosts.into_iter().fold(rule, Rule::host)
    })
}

fn rules_of(list: &[Rule]) -> Rules<Option<Rule>> {
    list.iter().fold(Rules::new(None), |rules, rule| {
        rules
            .clone()
            .try_on(rule.clone(), Some(rule.clone()))
            .unwrap_or(rules)
    })
}

fn request() -> impl Strategy<Value = Parts> {
    let route = proptest::option::of(pattern());
    let host = select(&[None, Some("a"), Some("b"), Some("c")][..]);
    (path(), route, select(&METHODS[..]), host).prop_map(|(path, route, method, host)| {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(route) = route {
            request = request.extension(Route(route.into()));
        }
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        request.body(()).unwrap().into_parts().0
    })
}

/// The documented order, put down again: whether `a` is at least as specific as `b` where both match.
fn at_least_as_specific(a: &Rule, b: &Rule) -> bool {
    let paths = match (&a.path, &b.path) {
        (Some(a), Some(b)) => a.precedence().cmp(b.precedence()),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    };
    let is_route = |rule: &Rule| rule.path.as_ref().is_some_and(Pattern::is_route);
    if paths != Ordering::Equal && is_route(a) && is_route(b) {
        return paths == Ordering::Less;
    }
    paths != Ordering::Greater && a.methods.is_within(&b.methods) && a.hosts.is_within(&b.hosts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_most_specific_rule_that_matches_is_chosen(
        list in vec(rule(), 0..7),
        requests in vec(request(), 16),
    ) {
        let rules = rules_of(&list);
        for request in &requests {
            let chosen = rules.choose(request);
            let matching: Vec<&Rule> = list.iter().filter(|rule| rule.holds(request)).collect();
            prop_assert_eq!(chosen.is_none(), matching.is_empty());
            let Some(chosen) = chosen else { continue };
            prop_assert!(chosen.holds(request));
            if rules.check().is_ok() {
                for other in matching {
                    prop_assert!(at_least_as_specific(chosen, other), "{chosen} {other}");
                }
            } else {
                // Something decides, and nothing else is more specific.
                for other in matching {
                    prop_assert!(other == chosen || !at_least_as_specific(other, chosen), "{chosen} {other}");
                }
            }
        }
    }

    #[test]
    fn the_order_of_adding_changes_nothing(
        list in vec(rule(), 0..7),
        order in vec(any::<Index>(), 7),
        requests in vec(request(), 8),
    ) {
        let mut shuffled = list.clone();
        for (at, other) in order.iter().enumerate().take(list.len()) {
            shuffled.swap(at, other.index(list.len()));
        }
        let (rules, others) = (rules_of(&list), rules_of(&shuffled));
        prop_assert_eq!(rules.check().is_ok(), others.check().is_ok());
        if rules.check().is_ok() {
            for request in &requests {
                prop_assert_eq!(rules.choose(request), others.choose(request));
            }
        }
    }

    #[test]
    fn adding_what_is_missing_ends_in_rules_that_are_decided(list in vec(rule(), 0..7)) {
        let mut list = list;
        let mut rounds = 0;
        while let Err(error) = rules_of(&list).check() {
            let missing = error.missing().unwrap().clone();
            prop_assert!(!list.contains(&missing), "{missing} {list:?}");
            list.push(missing);
            rounds += 1;
            prop_assert!(rounds < 500);
        }
    }

    #[test]
    fn patterns_overlap_where_one_path_matches_both(
        a in pattern(),
        b in pattern(),
        paths in vec(path(), 32),
    ) {
        let [a, b] = [a, b].map(|text| Pattern::parse(&text).unwrap());
        prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
        prop_assert!(a.overlaps(&a));
        let both = |path: &String| a.matches(Place::Path(path)) && b.matches(Place::Path(path));
        if paths.iter().any(both) {
            prop_assert!(a.overlaps(&b), "{a} {b}");
        }
        if a.overlaps(&b) {
            prop_assert_eq!(a.precedence().eq(b.precedence()), a == b);
            // Not only one of them: there is such a path.
            let letters = ["/a", "/ab", "/abc", "/b", "/"];
            let longer = |paths: &Vec<String>| -> Vec<String> {
                paths.iter().flat_map(|path| letters.map(|letter| path.clone() + letter)).collect()
            };
            let mut level = vec![String::new()];
            let found = (0..6).any(|_| {
                level = longer(&level);
                level.iter().any(both)
            });
            prop_assert!(found, "{a} {b}");
        }
    }
}
