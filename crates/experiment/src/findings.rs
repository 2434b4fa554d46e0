use crate::claim::{Bound, Check};

/// What a figure's runs came to.
#[derive(Debug, Default)]
pub struct Findings {
    pub(crate) observed: Vec<(String, f64)>,
    pub(crate) checks: Vec<(String, f64, Bound, &'static str)>,
    /// Names of files, without ending, and SVGs.
    pub(crate) plots: Vec<(String, String)>,
    pub(crate) notes: Vec<String>,
}

impl Findings {
    /// A number for the claim `key` of this figure in `expected.toml`.
    pub fn observe(&mut self, key: impl Into<String>, value: f64) {
        self.observed.push((key.into(), value));
    }

    /// A number for a claim whose bounds are themselves computed: a theory evaluated at the run's parameters.
    pub fn check(
        &mut self,
        claim: impl Into<String>,
        observed: f64,
        bound: Bound,
        unit: &'static str,
    ) {
        self.checks.push((claim.into(), observed, bound, unit));
    }

    /// A plot of the figure, by its name without ending.
    pub fn plot(&mut self, name: impl Into<String>, svg: String) {
        self.plots.push((name.into(), svg));
    }

    /// A line the reader should know, that is no claim: the number of flows reached, a confidence interval.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    pub(crate) fn computed_checks(&self, figure: &str) -> Vec<Check> {
        let check = |(claim, observed, bound, unit): &(String, f64, Bound, &'static str)| {
            Check::new(figure, claim, *observed, *bound, unit)
        };
        self.checks.iter().map(check).collect()
    }
}
