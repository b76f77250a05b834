//! Statuses of responses.

use std::fmt;

use http::StatusCode;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::value::shown;

/// Statuses of responses: `"2xx"`, all of a class from 2 to 5, or one, `302` or `"302"`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StatusConfig(Kind);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Class(u16),
    One(u16),
}

impl StatusConfig {
    /// Whether a status is one of these.
    #[must_use]
    pub fn holds(self, status: StatusCode) -> bool {
        match self.0 {
            Kind::Class(class) => status.as_u16() / 100 == class,
            Kind::One(number) => status.as_u16() == number,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix("xx") {
            Some(class @ ("2" | "3" | "4" | "5")) => Some(Self(Kind::Class(class.parse().ok()?))),
            None if text.len() == 3 => Self::one(text.parse().ok()?),
            Some(_) | None => None,
        }
    }

    fn one(number: u64) -> Option<Self> {
        let number = u16::try_from(number).ok()?;
        (200..=599).contains(&number).then_some(Self(Kind::One(number)))
    }
}

impl fmt::Display for StatusConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Class(class) => write!(f, "{class}xx"),
            Kind::One(number) => write!(f, "{number}"),
        }
    }
}

impl fmt::Debug for StatusConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for StatusConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Kind::Class(_) => serializer.collect_str(self),
            Kind::One(number) => serializer.serialize_u16(number),
        }
    }
}

impl<'de> Deserialize<'de> for StatusConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StatusVisitor)
    }
}

struct StatusVisitor;

impl Visitor<'_> for StatusVisitor {
    type Value = StatusConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("statuses of responses, such as `2xx` or 302")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<StatusConfig, E> {
        StatusConfig::one(number).ok_or_else(|| not_a_status(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<StatusConfig, E> {
        let status = u64::try_from(number).ok().and_then(StatusConfig::one);
        status.ok_or_else(|| not_a_status(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<StatusConfig, E> {
        StatusConfig::parse(text).ok_or_else(|| not_a_status(shown(text)))
    }
}

fn not_a_status<E: de::Error>(what: impl fmt::Display) -> E {
    E::custom(format_args!(
        "`{what}` is no status that a response ends with: write 200 to 599, or `2xx` to `5xx`"
    ))
}
