//! Requests without a key, by name.

use http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::value::WordOrTable;
use crate::policy::MissingKey;

const WORDS: [(&str, MissingKey); 2] = [("shared", MissingKey::Shared), ("skip", MissingKey::Skip)];

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Table {
    Reject(Status),
}

/// The status of an error.
struct Status(StatusCode);

impl From<Table> for MissingKey {
    fn from(Table::Reject(Status(status)): Table) -> Self {
        Self::Reject(status)
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u16::deserialize(deserializer)?;
        let status = StatusCode::from_u16(number)
            .map_err(|_| de::Error::custom(format_args!("{number} is not a status of HTTP")))?;
        let checked = MissingKey::Reject(status).try_check();
        checked.map(|()| Self(status)).map_err(de::Error::custom)
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(self.0.as_u16())
    }
}

impl<'de> Deserialize<'de> for MissingKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrTable::<Self, Table>::new(
            &WORDS,
            "`shared`, `skip` or `{ reject = 401 }`",
        ))
    }
}

impl Serialize for MissingKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Shared => serializer.serialize_str("shared"),
            Self::Skip => serializer.serialize_str("skip"),
            Self::Reject(status) => Table::Reject(Status(*status)).serialize(serializer),
        }
    }
}
