//! Policies.

mod name;

pub use self::name::{PolicyName, PolicyNameError};
