//! What is expected, and how an observation compares.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ExperimentError, World};

/// The numbers that count as reproduced; one side may be open.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// The least that holds; unbounded below if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The most that holds; unbounded above if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

impl Bound {
    /// `min` and all above.
    pub fn at_least(min: f64) -> Self {
        Bound {
            min: Some(min),
            max: None,
        }
    }

    /// `max` and all below.
    pub fn at_most(max: f64) -> Self {
        Bound {
            min: None,
            max: Some(max),
        }
    }

    /// Both ends hold.
    pub fn within(min: f64, max: f64) -> Self {
        Bound {
            min: Some(min),
            max: Some(max),
        }
    }

    /// `value` ± `tolerance`, in the unit of `value`.
    pub fn around(value: f64, tolerance: f64) -> Self {
        Bound::within(value - tolerance, value + tolerance)
    }

    /// What is no finite number holds no bound.
    pub fn holds(&self, value: f64) -> bool {
        value.is_finite()
            && self.min.is_none_or(|min| value >= min)
            && self.max.is_none_or(|max| value <= max)
    }

    fn words(&self) -> String {
        match (self.min.map(number), self.max.map(number)) {
            (Some(min), Some(max)) if min == max => min,
            (Some(min), Some(max)) => format!("{min} to {max}"),
            (Some(min), None) => format!("at least {min}"),
            (None, Some(max)) => format!("at most {max}"),
            (None, None) => "anything".into(),
        }
    }
}

/// A row of `expected.toml`: `[figure.key]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// A sentence that can be true or false.
    pub claim: String,
    /// The published value, if there is one.
    pub published: Option<f64>,
    /// The least observation that agrees.
    pub min: Option<f64>,
    /// The greatest observation that agrees.
    pub max: Option<f64>,
    /// Of all these values; empty if they have none.
    #[serde(default)]
    pub unit: String,
    /// Where it is claimed.
    #[serde(default = "sim")]
    pub world: World,
    /// Needs the full number of seeds: not judged in a quick run.
    #[serde(default)]
    pub full_only: bool,
}

fn sim() -> World {
    World::Sim
}

impl Claim {
    /// What an observation must keep.
    pub fn bound(&self) -> Bound {
        Bound {
            min: self.min,
            max: self.max,
        }
    }

    pub(crate) fn is_asked(&self, world: World, quick: bool) -> bool {
        self.world == world && !(quick && self.full_only)
    }

    /// The claim beside what was observed.
    pub(crate) fn check(&self, figure: &str, observed: f64) -> Check {
        Check {
            published: self.published,
            ..Check::new(figure, &self.claim, observed, self.bound(), &self.unit)
        }
    }
}

/// Figure, then key.
pub(crate) type Claims = BTreeMap<String, BTreeMap<String, Claim>>;

/// Reads an `expected.toml`.
pub(crate) fn read(experiment: &str, text: &str) -> Result<Claims, ExperimentError> {
    let wrong = |reason: String| ExperimentError::Expected {
        experiment: experiment.into(),
        reason,
    };
    let claims: Claims = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
    for (figure, claims) in &claims {
        for (key, claim) in claims {
            let bound = claim.bound();
            if bound.min.is_none() && bound.max.is_none() {
                return Err(wrong(format!("{figure}.{key} has neither `min` nor `max`")));
            }
            if claim.published.is_some_and(|value| !bound.holds(value)) {
                return Err(wrong(format!(
                    "{figure}.{key}: the published value is outside its own bounds"
                )));
            }
        }
    }
    Ok(claims)
}

/// A claim, what was observed, and the verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The figure's `id`.
    pub figure: String,
    /// The sentence.
    pub claim: String,
    /// In `unit`.
    pub observed: f64,
    /// `bound` in words, with its unit.
    pub expected: String,
    /// Whether `observed` lies within `bound`.
    pub pass: bool,
    /// What was expected.
    pub bound: Bound,
    /// Empty if there is none.
    pub unit: String,
    /// The published value, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
}

impl Check {
    /// Judges an observation.
    pub fn new(figure: &str, claim: &str, observed: f64, bound: Bound, unit: &str) -> Self {
        let words = [bound.words(), unit.into()];
        Check {
            figure: figure.into(),
            claim: claim.into(),
            observed,
            expected: words.join(" ").trim_end().into(),
            pass: bound.holds(observed),
            bound,
            unit: unit.into(),
            published: None,
        }
    }

    /// The observation for reading.
    pub fn observed_words(&self) -> String {
        let words = [number(self.observed), self.unit.clone()];
        words.join(" ").trim_end().into()
    }
}

/// Four significant digits, whole numbers whole.
fn number(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (3 - magnitude).clamp(0, 12) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_takes_its_edges_and_no_more() {
        let bound = Bound::within(1.0, 2.0);
        assert!(bound.holds(1.0) && bound.holds(2.0));
        assert!(!bound.holds(0.999) && !bound.holds(2.001) && !bound.holds(f64::NAN));
        assert!(Bound::at_least(3.0).holds(1e9) && !Bound::at_most(3.0).holds(1e9));
    }

    #[test]
    fn a_claim_without_bounds_is_refused_because_it_cannot_fail() {
        let text = "[fig1.a]\nclaim = \"something\"\n";
        let error = read("x", text).unwrap_err().to_string();
        assert_eq!(
            error,
            "expected.toml of x: fig1.a has neither `min` nor `max`"
        );
    }

    #[test]
    fn a_published_value_must_satisfy_its_own_claim() {
        let text = "[fig1.a]\nclaim = \"c\"\npublished = 5\nmax = 4\n";
        assert!(read("x", text).is_err());
    }

    #[test]
    fn numbers_are_written_to_four_digits() {
        let written = [0.0, 12.0, 352_000.0, 40.4523, 0.000_123_456, 98765.4321].map(number);
        assert_eq!(
            written,
            ["0", "12", "352000", "40.45", "0.0001235", "98765"]
        );
    }

    #[test]
    fn a_check_says_what_was_expected_in_words() {
        let check = Check::new("fig9", "lost", 200.0, Bound::within(176.0, 704.0), "kB");
        assert_eq!(check.expected, "176 to 704 kB");
        assert_eq!(check.observed_words(), "200 kB");
        assert!(check.pass);
    }
}
