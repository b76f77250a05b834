//! Leases.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::value::time::Time;
use crate::lease::Lease;

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Table {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_percent: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lifetime: Option<Time>,
}

impl<'de> Deserialize<'de> for Lease {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = Table::deserialize(deserializer)?;
        let mut lease = Self::new();
        if let Some(percent) = table.max_percent {
            lease = lease.try_max_percent(percent).map_err(de::Error::custom)?;
        }
        if let Some(lifetime) = table.lifetime {
            lease = lease.try_lifetime(lifetime.0).map_err(de::Error::custom)?;
        }
        Ok(lease)
    }
}

impl Serialize for Lease {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let lifetime: Option<Duration> = self.set_lifetime();
        let table = Table {
            max_percent: (self.percent() != Self::new().percent()).then(|| self.percent()),
            lifetime: lifetime.map(Time),
        };
        table.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for (lease, written) in [
            (Lease::new(), "{}"),
            (Lease::new().max_percent(5), r#"{"max-percent":5}"#),
            (
                Lease::new().lifetime(Duration::from_millis(300)),
                r#"{"lifetime":"300 milliseconds"}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&lease).unwrap(), written);
            assert_eq!(serde_json::from_str::<Lease>(written).unwrap(), lease);
        }
    }
}
