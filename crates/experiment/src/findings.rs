use anabranch_report::chart::Plot;
use serde::{Deserialize, Serialize};

use crate::expected::{Region, Verdict};
use crate::judge::Theory;
use crate::sample::Observation;

/// What a figure's runs came to.
#[derive(Debug, Default)]
pub struct Findings {
    pub(crate) observed: Vec<(String, Observation)>,
    pub(crate) theories: Vec<Theory>,
    /// Names of files, without ending, and what they show.
    pub(crate) plots: Vec<(String, Plot)>,
    pub(crate) notes: Vec<String>,
    pub(crate) tables: Vec<Table>,
}

/// What a figure's runs came to beside its claims, for the README: a head, and rows as long as it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Table {
    pub title: String,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Findings {
    /// For the claim `key` of this figure in `expected.toml`.
    pub fn observe(&mut self, key: impl Into<String>, observation: Observation) {
        self.observed.push((key.into(), observation));
    }

    /// For a claim whose region is itself computed: a theory evaluated at the run's parameters. `stated` is what
    /// `expected.toml` would say.
    pub fn check(
        &mut self,
        claim: impl Into<String>,
        observation: Observation,
        region: Region,
        unit: &'static str,
        stated: Verdict,
    ) {
        self.theories.push(Theory {
            claim: claim.into(),
            observation,
            region,
            unit,
            stated,
        });
    }

    /// A plot of the figure, by its name without ending.
    pub fn plot(&mut self, name: impl Into<String>, plot: impl Into<Plot>) {
        self.plots.push((name.into(), plot.into()));
    }

    /// A line the reader should know, that is no claim: the number of flows reached, a value nobody published.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// A table under the claims of the README.
    pub(crate) fn table(&mut self, table: Table) {
        self.tables.push(table);
    }
}

impl Table {
    /// As a README shows it.
    pub fn lines(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!(
            "\n{}\n\n{}|{}\n{rows}",
            self.title,
            line(&self.head),
            "---|".repeat(self.head.len())
        )
    }
}
