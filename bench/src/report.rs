//! What a run found: ratios first, then the figures they come from.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) command: &'static str,
    pub(crate) ratios: BTreeMap<&'static str, f64>,
    /// Name, value, unit.
    pub(crate) figures: Vec<(String, f64, &'static str)>,
    pub(crate) notes: Vec<String>,
}

impl Report {
    pub(crate) fn to_json(&self) -> String {
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|(name, value, unit)| json!({ "name": name, "value": value, "unit": unit }))
            .collect();
        let report = json!({
            "command": self.command,
            "ratios": self.ratios,
            "figures": figures,
            "notes": self.notes,
        });
        format!("{report:#}\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "ratios")?;
        for (name, ratio) in &self.ratios {
            writeln!(f, "  {name:<36} {ratio:>8.3}")?;
        }
        writeln!(f, "figures")?;
        for (name, value, unit) in &self.figures {
            writeln!(f, "  {name:<52} {value:>12.1} {unit}")?;
        }
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        Ok(())
    }
}

/// The middle of `values`.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
