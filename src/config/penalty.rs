//! Penalties.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::value::WordOrTable;
use super::value::time::Time;
use crate::penalty::Penalty;

const WORDS: [(&str, Penalty); 1] = [("manual", Penalty::manual())];

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Table {
    after: u32,
    within: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    block_for: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    growing: Option<Growing>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Growing {
    factor: u32,
    longest: Time,
}

impl TryFrom<Table> for Penalty {
    type Error = &'static str;

    fn try_from(table: Table) -> Result<Self, &'static str> {
        let mut penalty = Self::try_after(table.after, table.within.0)?;
        if let Some(block) = table.block_for {
            penalty = penalty.try_block_for(block.0)?;
        }
        if let Some(Growing { factor, longest }) = table.growing {
            penalty = penalty.try_growing(factor, longest.0)?;
        }
        Ok(penalty)
    }
}

impl<'de> Deserialize<'de> for Penalty {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrTable::<Self, Table>::new(
            &WORDS,
            "`manual` or `{ after = 20, within = \"1 minute\" }`",
        ))
    }
}

impl Serialize for Penalty {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if *self == Self::manual() {
            return serializer.serialize_str("manual");
        }
        let time = |micros| Time(Duration::from_micros(micros));
        let (after, within) = (self.denials(), time(self.within()));
        let is_plain = Self::try_after(after, within.0) == self.try_block_for(within.0);
        let table = Table {
            after,
            within,
            block_for: (self.block() != self.within()).then(|| time(self.block())),
            growing: (!is_plain).then(|| Growing {
                factor: self.factor(),
                longest: time(self.longest()),
            }),
        };
        table.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let second = Duration::from_secs(1);
        let plain = Penalty::after(3, second);
        for (penalty, written) in [
            (Penalty::manual(), r#""manual""#),
            (plain, r#"{"after":3,"within":"second"}"#),
            (
                plain.block_for(90 * second),
                r#"{"after":3,"within":"second","block-for":"90 seconds"}"#,
            ),
            (
                plain.growing(2, 3_600 * second),
                r#"{"after":3,"within":"second","growing":{"factor":2,"longest":"hour"}}"#,
            ),
            (
                plain.growing(1, 5 * second),
                r#"{"after":3,"within":"second","growing":{"factor":1,"longest":"5 seconds"}}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&penalty).unwrap(), written);
            assert_eq!(serde_json::from_str::<Penalty>(written).unwrap(), penalty);
        }
    }
}
