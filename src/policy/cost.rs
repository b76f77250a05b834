//! What a request takes of a quota.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;

/// Units that a request takes: a number, or a function of the request. 1 if not set.
///
/// A cost of 0 lets a request pass without counting it; a cost above the limit is denied for ever.
///
/// ```
/// use tollgate::Cost;
///
/// let fixed = Cost::from(5);
/// let by_route = Cost::from(|request: &http::request::Parts| match request.uri.path() {
///     "/export" => 25,
///     _ => 1,
/// });
/// # let _ = (fixed, by_route);
/// ```
#[derive(Clone)]
pub struct Cost {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Fixed(u64),
    Of(Arc<dyn Fn(&Parts) -> u64 + Send + Sync>),
}

impl Cost {
    pub(crate) fn of(&self, request: &Parts) -> u64 {
        match &self.kind {
            Kind::Fixed(cost) => *cost,
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
            Kind::Of(_) => f.write_str("Cost(of the request)"),
        }
    }
}
