//! Failure policies by name.

use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::value::WordOrTable;
use crate::failure::FailurePolicy;

const WORDS: [(&str, FailurePolicy); 3] = [
    ("allow", FailurePolicy::Allow),
    ("deny", FailurePolicy::Deny),
    ("local", FailurePolicy::Local { instances: 1 }),
];

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Table {
    Local { instances: NonZeroU32 },
}

impl From<Table> for FailurePolicy {
    fn from(Table::Local { instances }: Table) -> Self {
        Self::Local {
            instances: instances.get(),
        }
    }
}

impl<'de> Deserialize<'de> for FailurePolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrTable::<Self, Table>::new(
            &WORDS,
            "`allow`, `deny`, `local` or `{ local = { instances = 4 } }`",
        ))
    }
}

impl Serialize for FailurePolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Allow => serializer.serialize_str("allow"),
            Self::Deny => serializer.serialize_str("deny"),
            Self::Local { instances } => {
                let instances = NonZeroU32::new(*instances).unwrap_or(NonZeroU32::MIN);
                Table::Local { instances }.serialize(serializer)
            }
        }
    }
}
