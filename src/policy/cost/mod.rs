//! What a request takes of a quota.

mod content_length;

use std::fmt;
use std::sync::Arc;

use http::request::Parts;

pub use self::content_length::ContentLengthCost;
use crate::rules::Rules;

/// Units that a request takes: a number, by [route](crate::Rules), by [length](Self::by_content_length), or any
/// function of the request. 1 if not set.
///
/// A cost of 0 lets a request pass without counting it; a cost above the limit is denied for ever.
///
/// ```
/// use http::request::Parts;
/// use tollgate::{Cost, Rule, Rules};
///
/// let fixed = Cost::from(5);
/// let by_route = Cost::from(Rules::new(1).on(Rule::path("/reports/*"), 25));
/// let by_size = Cost::from(Cost::by_content_length(64 * 1024));
/// let by_query = Cost::from(|request: &Parts| if request.uri.query().is_some() { 5 } else { 1 });
/// # let _ = (fixed, by_route, by_size, by_query);
/// ```
#[derive(Clone)]
pub struct Cost {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Fixed(u64),
    ByRule(Arc<Rules<u64>>),
    ByContentLength(ContentLengthCost),
    Of(Arc<dyn Fn(&Parts) -> u64 + Send + Sync>),
}

impl Cost {
    /// One unit for every `bytes_per_unit` bytes that a request's `Content-Length` declares, rounded up, and at
    /// least one.
    ///
    /// **A request that declares no length takes 1 unit, whatever it sends**, or what
    /// [`or_unknown`](ContentLengthCost::or_unknown) says. A `GET` or `HEAD` over HTTP/2 or later without a length takes
    /// 1 unit in any case, even if it streams a body: a cost cannot tell it from one without. Where handlers read such
    /// bodies, [settle](crate::ChargeHandle) what was read.
    ///
    /// # Panics
    ///
    /// If `bytes_per_unit` is 0.
    #[track_caller]
    pub const fn by_content_length(bytes_per_unit: u64) -> ContentLengthCost {
        ContentLengthCost::new(bytes_per_unit)
    }

    #[inline]
    pub(crate) fn of(&self, request: &Parts) -> u64 {
        match &self.kind {
            Kind::Fixed(cost) => *cost,
            Kind::ByRule(rules) => *rules.choose(request),
            Kind::ByContentLength(cost) => cost.of(request),
            Kind::Of(cost) => cost(request),
        }
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self::from(1)
    }
}

impl From<u64> for Cost {
    fn from(cost: u64) -> Self {
        Self {
            kind: Kind::Fixed(cost),
        }
    }
}

/// # Panics
///
/// If rules are [ambiguous](Rules).
impl From<Rules<u64>> for Cost {
    #[track_caller]
    fn from(rules: Rules<u64>) -> Self {
        Self {
            kind: Kind::ByRule(Arc::new(rules.checked())),
        }
    }
}

impl From<ContentLengthCost> for Cost {
    fn from(cost: ContentLengthCost) -> Self {
        Self {
            kind: Kind::ByContentLength(cost),
        }
    }
}

impl<F> From<F> for Cost
where
    F: Fn(&Parts) -> u64 + Send + Sync + 'static,
{
    fn from(cost: F) -> Self {
        Self {
            kind: Kind::Of(Arc::new(cost)),
        }
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Fixed(cost) => write!(f, "Cost({cost})"),
            Kind::ByRule(rules) => write!(f, "Cost({rules:?})"),
            Kind::ByContentLength(cost) => write!(f, "Cost({cost:?})"),
            Kind::Of(_) => f.write_str("Cost(of the request)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Request};

    use super::*;
    use crate::rules::Rule;

    #[test]
    fn rules_are_costs() {
        let cost = Cost::from(Rules::new(1).on(Rule::path("/a"), 7));
        let of = |uri| cost.of(&Request::get(uri).body(()).unwrap().into_parts().0);
        assert_eq!((of("/a"), of("/b")), (7, 1));
        assert_eq!(format!("{cost:?}"), "Cost({Rule(/a): 7, otherwise: 1})");
    }

    #[test]
    #[should_panic(expected = "add a rule for `POST /a`")]
    fn ambiguous_costs_panic() {
        let rules = Rules::new(1).on(Rule::path("/a"), 7);
        let _ = Cost::from(rules.on(Rule::any().method(Method::POST), 2));
    }
}
