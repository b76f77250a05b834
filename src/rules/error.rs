//! What is wrong with rules.

use std::fmt;

use super::rule::Rule;

/// Why a rule was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Path {
        text: String,
        why: &'static str,
    },
    Host {
        text: String,
    },
    Twice(Box<Rule>),
    Ambiguous {
        rules: Box<[Rule; 2]>,
        missing: Box<Rule>,
    },
}

impl RuleError {
    pub(super) fn path(text: &str, why: &'static str) -> Self {
        let text = shown(text);
        Self(Kind::Path { text, why })
    }

    pub(super) fn host(text: &str) -> Self {
        let text = shown(text);
        Self(Kind::Host { text })
    }

    pub(super) fn twice(rule: Rule) -> Self {
        Self(Kind::Twice(Box::new(rule)))
    }

    pub(super) fn ambiguous(rules: [&Rule; 2], missing: Rule) -> Self {
        Self(Kind::Ambiguous {
            rules: Box::new(rules.map(Rule::clone)),
            missing: Box::new(missing),
        })
    }

    /// The rule to add, if two are ambiguous.
    #[must_use]
    pub fn missing(&self) -> Option<&Rule> {
        match &self.0 {
            Kind::Ambiguous { missing, .. } => Some(missing),
            Kind::Path { .. } | Kind::Host { .. } | Kind::Twice(_) => None,
        }
    }
}

/// As much of a text as helps to find it.
fn shown(text: &str) -> String {
    text.chars().take(200).collect()
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Path { text, why } => write!(
                f,
                "`{}` is no path of a rule: {why} (write `/users`, `/users/{{id}}`, `/files/{{*rest}}` or `/api/*`)",
                text.escape_debug()
            ),
            Kind::Host { text } => write!(
                f,
                "`{}` is no host of a rule: write a name or an address without a port, such as `api.example.com` \
                 or `[2001:db8::1]`",
                text.escape_debug()
            ),
            Kind::Twice(rule) => write!(f, "there are two rules for the same requests: `{rule}`"),
            Kind::Ambiguous { rules, missing } => {
                let [first, second] = &**rules;
                write!(
                    f,
                    "a request can match both the rule `{first}` and the rule `{second}`, and neither is more \
                     specific: add a rule for `{missing}`"
                )
            }
        }
    }
}

impl std::error::Error for RuleError {}
