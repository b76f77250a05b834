//! What a run found: ratios first, then the figures they come from.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) command: &'static str,
    pub(crate) ratios: BTreeMap<&'static str, f64>,
    /// The least and the greatest of the rounds' ratios.
    pub(crate) ranges: BTreeMap<&'static str, (f64, f64)>,
    /// What some ratios have to be.
    pub(crate) bars: &'static [Bar],
    /// Name, value, unit.
    pub(crate) figures: Vec<(String, f64, &'static str)>,
    pub(crate) notes: Vec<String>,
}

/// What a ratio has to be, and what it should be.
pub(crate) struct Bar {
    name: &'static str,
    must: f64,
    goal: f64,
    at_least: bool,
}

impl Bar {
    pub(crate) const fn at_least(name: &'static str, must: f64, goal: f64) -> Self {
        Self {
            name,
            must,
            goal,
            at_least: true,
        }
    }

    pub(crate) const fn at_most(name: &'static str, must: f64, goal: f64) -> Self {
        Self {
            name,
            must,
            goal,
            at_least: false,
        }
    }

    fn is_met(&self, ratio: f64) -> bool {
        self.passes(ratio, self.must)
    }

    const fn passes(&self, ratio: f64, bound: f64) -> bool {
        if self.at_least {
            ratio >= bound
        } else {
            ratio <= bound
        }
    }

    fn verdict(&self, ratio: f64) -> &'static str {
        if !self.is_met(ratio) {
            "missed"
        } else if self.passes(ratio, self.goal) {
            "met, and the goal"
        } else {
            "met"
        }
    }
}

impl Report {
    /// Notes the median of the rounds' ratios, and how far they reach.
    pub(crate) fn add_ratio(&mut self, name: &'static str, ratios: Vec<f64>) {
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        self.ranges.insert(name, (least, greatest));
        self.ratios.insert(name, median(ratios));
    }

    pub(crate) fn to_json(&self) -> String {
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|(name, value, unit)| json!({ "name": name, "value": value, "unit": unit }))
            .collect();
        let bars: Vec<Value> = self
            .bars
            .iter()
            .map(|bar| {
                let ratio = self.ratios.get(bar.name);
                let met = ratio.is_some_and(|&ratio| bar.is_met(ratio));
                let sense = if bar.at_least { "at least" } else { "at most" };
                json!({ "name": bar.name, "sense": sense, "bar": bar.must, "goal": bar.goal, "ratio": ratio, "met": met })
            })
            .collect();
        let report = json!({
            "command": self.command,
            "ratios": self.ratios,
            "ranges": self.ranges,
            "bars": bars,
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
            write!(f, "  {name:<36} {ratio:>8.3}")?;
            if let Some((least, greatest)) = self.ranges.get(name) {
                write!(f, "  ({least:.3} to {greatest:.3})")?;
            }
            if let Some(bar) = self.bars.iter().find(|bar| bar.name == *name) {
                let sense = if bar.at_least { "at least" } else { "at most" };
                write!(
                    f,
                    "  {sense} {}, goal {}: {}",
                    bar.must,
                    bar.goal,
                    bar.verdict(*ratio)
                )?;
            }
            writeln!(f)?;
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
