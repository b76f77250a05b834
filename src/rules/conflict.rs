//! Rules of which neither is more specific.

use std::cmp::Ordering;

use super::error::RuleError;
use super::pattern::Pattern;
use super::rule::Rule;

/// Two rules that one request can match, of which neither wins and no third one does. Whether there are any does not
/// depend on the rules' order.
pub(super) fn find(rules: &[Rule]) -> Option<RuleError> {
    let pairs = (0..rules.len()).flat_map(|b| (0..b).map(move |a| [&rules[a], &rules[b]]));
    pairs
        .filter(|[a, b]| !is_decided(a, b))
        .find_map(|[a, b]| Some(RuleError::ambiguous([a, b], missing(&meet(a, b)?, rules)?)))
}

/// Whether one is more specific, if there are requests for both. Two routes are always decided: a router picks by
/// path, before it looks at anything else.
fn is_decided(a: &Rule, b: &Rule) -> bool {
    let within = |a: &Rule, b: &Rule| a.methods.is_within(&b.methods) && a.hosts.is_within(&b.hosts);
    let routes = [a, b].map(|rule| rule.path.as_ref().is_some_and(Pattern::is_route));
    match compare_paths(a, b) {
        Ordering::Less => routes == [true; 2] || within(a, b),
        Ordering::Greater => routes == [true; 2] || within(b, a),
        Ordering::Equal => within(a, b) || within(b, a),
    }
}

/// Which path is more specific, if one request can be to both.
fn compare_paths(a: &Rule, b: &Rule) -> Ordering {
    match (&a.path, &b.path) {
        (Some(a), Some(b)) => a.precedence().cmp(b.precedence()),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// The rule that is for all requests that are for both, and more specific than both; `None` if there are no such
/// requests. Where paths cross, its path is the more specific of them.
fn meet(a: &Rule, b: &Rule) -> Option<Rule> {
    if let (Some(a), Some(b)) = (&a.path, &b.path)
        && !a.overlaps(b)
    {
        return None;
    }
    let first = if compare_paths(a, b).is_le() { a } else { b };
    Some(Rule {
        path: first.path.clone(),
        methods: a.methods.meet(&b.methods)?,
        hosts: a.hosts.meet(&b.hosts)?,
    })
}

/// What must be added to `rules` so that those as specific as `meet` are for all that it is for.
fn missing(meet: &Rule, rules: &[Rule]) -> Option<Rule> {
    let within: Vec<&Rule> = rules
        .iter()
        .filter(|rule| {
            rule.path == meet.path
                && rule.methods.is_within(&meet.methods)
                && rule.hosts.is_within(&meet.hosts)
        })
        .collect();
    if within.is_empty() {
        return Some(meet.clone());
    }
    for methods in meet.methods.one_by_one() {
        for hosts in meet.hosts.one_by_one() {
            let covers = |rule: &&Rule| methods.is_within(&rule.methods) && hosts.is_within(&rule.hosts);
            if !within.iter().any(covers) {
                return Some(Rule {
                    path: meet.path.clone(),
                    methods,
                    hosts,
                });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn rule(text: &str) -> Rule {
        text.split(' ').fold(Rule::any(), |rule, word| match word {
            path if path.starts_with('/') => Rule {
                path: Rule::path(path).path,
                ..rule
            },
            host if host.starts_with('@') => rule.host(&host[1..]),
            "" => rule,
            method => rule.method(method.parse::<Method>().unwrap()),
        })
    }

    /// The rule that is missing, whatever the order of those there are.
    fn missing_of(rules: &[&str]) -> Option<String> {
        let mut rules: Vec<Rule> = rules.iter().map(|text| rule(text)).collect();
        let found = find(&rules).map(|error| error.to_string());
        rules.reverse();
        assert_eq!(find(&rules).is_some(), found.is_some(), "{rules:?}");
        found.map(|error| error.rsplit_once("add a rule for ").unwrap().1.to_owned())
    }

    #[test]
    fn one_of_two_is_more_specific() {
        for rules in [
            &["", "/users"][..],
            &["/users", "POST /users"],
            &["/users", "/users @a"],
            &["POST", "POST /users @a"],
            &["/*", "/api/*", "/api/users/*", "GET /api/users/{id}"],
            &["HEAD", "GET", "GET POST"],
            &["/a @a", "/b @b", "@b"],
        ] {
            assert_eq!(missing_of(rules), None, "{rules:?}");
        }
    }

    #[test]
    fn rules_for_other_requests_do_not_meet() {
        for rules in [
            &["POST /users", "GET"][..],
            &["/a @a", "POST @b"],
            &["/a/*", "POST /b/*"],
            &["/users", "POST /users/*", "POST /users"],
            &["/files/{*rest}", "POST /files"],
            &["/files/{*rest}", "POST /files/"],
        ] {
            assert_eq!(missing_of(rules), None, "{rules:?}");
        }
    }

    #[test]
    fn routes_are_decided_by_path() {
        for rules in [
            &["/users/me", "POST /users/{id}"][..],
            &["/users/{id}", "POST /{a}/me", "/{*rest} @a"],
        ] {
            assert_eq!(missing_of(rules), None, "{rules:?}");
        }
    }

    #[test]
    fn what_is_for_both_is_missing() {
        for (rules, missing) in [
            (&["/login", "POST"][..], "`POST /login`"),
            (&["/login", "@a"], "`/login on a`"),
            (&["POST", "@a"], "`POST on a`"),
            (&["GET POST", "POST PUT"], "`POST`"),
            (&["@a @b", "@b @c"], "`any request on b`"),
            (&["/users/{id}", "POST /users/*"], "`POST /users/{id}`"),
            (&["/users", "GET /users/*"], "`GET /users`"),
            (&["POST /{a}/x/*", "/b/*"], "`POST /b/*`"),
        ] {
            assert_eq!(missing_of(rules).as_deref(), Some(missing), "{rules:?}");
        }
    }

    #[test]
    fn a_third_rule_decides() {
        for rules in [
            &["/login", "POST", "POST /login"][..],
            &["GET POST", "POST PUT", "POST"],
            &["/login", "POST PUT", "POST /login", "PUT /login"],
            &["/login @a @b", "POST", "POST /login @a", "POST /login @b"],
            &["/users/{id}", "GET /users/*", "GET /users/{name}"],
        ] {
            assert_eq!(missing_of(rules), None, "{rules:?}");
        }
        // Too narrow, too wide, or less specific than one of the two.
        for (rules, missing) in [
            (&["/login", "POST PUT", "POST /login"][..], "`PUT /login`"),
            (&["/login", "GET", "HEAD /login"], "`GET /login`"),
            (&["/login @a", "POST", "POST /login"], "`POST /login on a`"),
            (&["/login/{x}", "POST", "POST /login/*"], "`POST /login/{x}`"),
        ] {
            assert_eq!(missing_of(rules).as_deref(), Some(missing), "{rules:?}");
        }
    }
}
