//! The policies of a layer.

use std::fmt;

use http::request::Parts;

use super::{Policy, PolicyName};
use crate::rules::Rules;

/// Panics if two policies have one name: they would share their counters.
#[track_caller]
pub(crate) fn check_names(policies: &[Policy]) {
    for (index, policy) in policies.iter().enumerate() {
        let is_new = policies[..index].iter().all(|other| other.name != policy.name);
        assert!(is_new, "{}", SameName(&policy.name));
    }
}

struct SameName<'a>(&'a PolicyName);

impl fmt::Display for SameName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "two policies are called `{}`, so they would share their counters: name each differently; to share one \
             limit between rules, give them clones of one policy",
            self.0
        )
    }
}

/// Those that every request meets, and those of the rule that a request falls under.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicySet {
    always: Vec<Policy>,
    rules: Option<Rules<Vec<Policy>>>,
}

impl PolicySet {
    /// Adds a policy that every request meets.
    #[track_caller]
    pub(crate) fn push(&mut self, policy: Policy) {
        self.always.push(policy);
        self.check();
    }

    #[track_caller]
    pub(crate) fn set_rules(&mut self, rules: Rules<Vec<Policy>>) {
        assert!(
            self.rules.is_none(),
            "the layer has rules already: give it one `Rules` with all of them (`.on(..)`)"
        );
        self.rules = Some(rules);
        self.check();
    }

    /// The policy that the layer's own setters mean.
    #[track_caller]
    pub(crate) fn set_first(&mut self, set: impl FnOnce(&mut Policy)) {
        let Some(first) = self.always.first_mut() else {
            panic!("the layer has no policy of its own to set this on: set it on a `Policy`");
        };
        set(first);
        self.check();
    }

    /// Panics if two policies that one request can meet have one name, or two policies of different rules, unless
    /// these are copies of one: their counters would be the same.
    #[track_caller]
    fn check(&self) {
        let mut ruled: Vec<&Policy> = Vec::new();
        check_names(&self.always);
        for group in self.rules.iter().flat_map(Rules::values) {
            let met: Vec<Policy> = self.always.iter().chain(group).cloned().collect();
            check_names(&met);
            for policy in group {
                let alike = ruled.iter().find(|other| other.name == policy.name);
                assert!(
                    alike.is_none_or(|other| other.is(policy)),
                    "{}",
                    SameName(&policy.name)
                );
                ruled.push(policy);
            }
        }
    }

    /// The policy, if every request meets it and no other.
    #[inline]
    pub(crate) fn only(&self) -> Option<&Policy> {
        match (&*self.always, &self.rules) {
            ([policy], None) => Some(policy),
            _ => None,
        }
    }

    /// The policies that a request meets.
    pub(crate) fn of(&self, request: &Parts) -> impl Iterator<Item = &Policy> {
        let chosen: &[Policy] = match &self.rules {
            Some(rules) => rules.choose(request),
            None => &[],
        };
        self.always.iter().chain(chosen)
    }

    /// All policies; those that stand in several rules are there as often.
    fn each(&self) -> impl Iterator<Item = &Policy> {
        let ruled = self.rules.iter().flat_map(Rules::values).flatten();
        self.always.iter().chain(ruled)
    }

    /// All policies, each once.
    pub(crate) fn all(&self) -> Vec<Policy> {
        let mut all: Vec<Policy> = Vec::new();
        for policy in self.each() {
            if !all.iter().any(|other| other.name == policy.name) {
                all.push(policy.clone());
            }
        }
        all
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Policy> {
        self.each().find(|policy| policy.name.as_str() == name)
    }
}
