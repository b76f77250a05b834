//! One of several values, by request.

use std::fmt;

use http::request::Parts;

use super::conflict;
use super::error::RuleError;
use super::request::Request;
use super::rule::Rule;
use super::tree::{Leaf, Node};

/// Chooses one of several values by the request: that of the most specific rule that matches.
///
/// A rule is more specific than another if its path, methods and hosts are each at least as specific, and one of
/// them more so. A set of methods or hosts is more specific than a larger one that includes it, and than none. A
/// path is more specific than none, and of two paths the first segment in which they differ decides, as in axum's
/// router: text before `{id}`, then `{*rest}`, then `/*`. So `/users/me` comes before `/users/{id}`, that before
/// `/users/*`, and that before `/*`. Between two routes (not `/*`) the path alone decides.
///
/// **Two rules that can match one request, neither of them more specific, are ambiguous**, such as `/login` and
/// `POST`, unless there is one more for what both are for: `POST /login`. Rules are added in any order, so this is
/// checked once all of them are there: by whatever takes the rules, or with [`check`](Self::check).
///
/// ```
/// use http::{Method, Request};
/// use tollgate::{Rule, Rules};
///
/// let cost = Rules::new(1)
///     .on(Rule::path("/search"), 10)
///     .on(Rule::any().method(Method::POST), 5)
///     .on(Rule::path("/search").method(Method::POST), 20)
///     .on(Rule::path("/reports/*").method(Method::GET), 50);
/// assert!(cost.check().is_ok());
///
/// let (request, ()) = Request::post("/search").body(()).unwrap().into_parts();
/// assert_eq!(*cost.choose(&request), 20);
/// let (request, ()) = Request::get("/elsewhere").body(()).unwrap().into_parts();
/// assert_eq!(*cost.choose(&request), 1);
/// ```
///
/// [`Rule`] says how routes and paths match. What is looked up is the segments of a request's route or path, so many
/// rules are no slower than few.
#[derive(Clone)]
pub struct Rules<T> {
    rules: Vec<Rule>,
    values: Vec<T>,
    otherwise: T,
    by_path: Node,
    any_path: Leaf,
}

impl<T> Rules<T> {
    /// Chooses `otherwise` for requests that match no rule.
    pub fn new(otherwise: T) -> Self {
        Self {
            rules: Vec::new(),
            values: Vec::new(),
            otherwise,
            by_path: Node::default(),
            any_path: Leaf::default(),
        }
    }

    /// Chooses `value` for requests that match `rule`.
    ///
    /// # Panics
    ///
    /// If there is an equal rule. Ambiguity panics later, where the rules are used.
    #[must_use]
    #[track_caller]
    pub fn on(self, rule: Rule, value: T) -> Self {
        match self.try_on(rule, value) {
            Ok(rules) => rules,
            Err(error) => panic!("{error}"),
        }
    }

    /// Chooses `value` for requests that match `rule`, as [`on`](Self::on).
    ///
    /// # Errors
    ///
    /// If there is an equal rule.
    pub fn try_on(mut self, rule: Rule, value: T) -> Result<Self, RuleError> {
        if self.rules.contains(&rule) {
            return Err(RuleError::twice(rule));
        }
        let number = self.rules.len();
        self.rules.push(rule);
        self.values.push(value);
        let leaf = match &self.rules[number].path {
            Some(path) => self.by_path.leaf(path),
            None => &mut self.any_path,
        };
        leaf.add(number, &self.rules);
        Ok(self)
    }

    /// Checks that no two rules are ambiguous.
    ///
    /// # Errors
    ///
    /// If two are; the error names both and the rule to add.
    pub fn check(&self) -> Result<(), RuleError> {
        conflict::find(&self.rules).map_or(Ok(()), Err)
    }

    /// For those who take rules.
    #[track_caller]
    pub(crate) fn checked(self) -> Self {
        match self.check() {
            Ok(()) => self,
            Err(error) => panic!("{error}"),
        }
    }

    /// The value for a request.
    ///
    /// If rules are ambiguous, the path decides before hosts, and hosts before methods.
    pub fn choose(&self, request: &Parts) -> &T {
        let request = Request::new(request);
        let pick = |leaf: &Leaf| leaf.pick(&request, &self.rules);
        let number = self
            .by_path
            .find(request.place, &pick)
            .or_else(|| pick(&self.any_path));
        number.map_or(&self.otherwise, |number| &self.values[number])
    }

    /// The rules with their values, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&Rule, &T)> {
        self.rules.iter().zip(&self.values)
    }

    /// All values, also that for requests that match no rule.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.values.iter().chain([&self.otherwise])
    }

    /// The value for requests that match no rule.
    pub const fn otherwise(&self) -> &T {
        &self.otherwise
    }
}

impl<T: fmt::Debug> fmt::Debug for Rules<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter())
            .entry(&format_args!("otherwise"), &self.otherwise)
            .finish()
    }
}
