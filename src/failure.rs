//! What happens when the store gives no answer.

/// How a policy answers when the store cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// Counts in this process, by the system's clock: each of `instances` admits its share of the limit, at least one
    /// unit.
    Local {
        /// How many instances of the service share the limit.
        instances: u32,
    },
    /// The request passes; but when more is asked of the store than it can answer, this is `Local` with one instance, or
    /// whoever floods the service would switch its limits off.
    Allow,
    /// The request is refused, with status 503.
    Deny,
}

impl Default for FailurePolicy {
    /// Counts in this process, as if it were the only instance.
    fn default() -> Self {
        Self::Local { instances: 1 }
    }
}
