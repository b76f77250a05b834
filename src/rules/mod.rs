//! Choosing by request: what a rule is for, and which of several rules wins.

mod any_of;
mod conflict;
mod error;
mod pattern;
#[cfg(test)]
mod properties;
mod request;
mod rule;
mod segment;
mod table;
#[cfg(all(test, feature = "axum"))]
mod tests;
mod tree;

pub use self::error::RuleError;
pub use self::rule::Rule;
pub use self::table::Rules;
