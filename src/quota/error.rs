//! What is wrong with a quota.

use std::fmt;

/// Why a quota or a rate was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QuotaError {
    /// The limit exceeds 2³².
    Limit,
    /// The burst exceeds 2³².
    Burst,
    /// The rate is 0 or exceeds 2³².
    Rate,
    /// The window is not a whole number of microseconds from 1 ms to 366 days.
    Window,
    /// An empty bucket would take more than about 35 years to refill.
    Refill,
}

impl QuotaError {
    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::Limit => "a limit goes up to 4294967296 units; use Quota::unlimited() for none",
            Self::Burst => "a burst goes up to 4294967296 units",
            Self::Rate => "a rate is 1 to 4294967296 units; a quota that denies all is a limit of 0",
            Self::Window => "a window is a whole number of microseconds from 1 ms to 366 days",
            Self::Refill => {
                "an empty bucket would take more than 35 years to refill: lower the burst or raise the rate"
            }
        }
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for QuotaError {}

/// Why a text is not a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseQuotaError {
    pub(super) text: String,
    pub(super) kind: ParseErrorKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ParseErrorKind {
    Syntax(&'static str),
    Quota(QuotaError),
}

impl fmt::Display for ParseQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a quota: ", self.text.escape_debug())?;
        match &self.kind {
            ParseErrorKind::Syntax(what) => f.write_str(what)?,
            ParseErrorKind::Quota(error) => error.fmt(f)?,
        }
        f.write_str(" (write `100/minute`, `5 per 10 seconds`, `10/s burst 20` or `unlimited`)")
    }
}

impl std::error::Error for ParseQuotaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ParseErrorKind::Syntax(_) => None,
            ParseErrorKind::Quota(error) => Some(error),
        }
    }
}
