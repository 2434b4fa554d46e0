//! The simulator held against theory and against a real stack.
//!
//! A [`Topic`] is one question with a known answer: a queue, a hash, a TCP under loss. It measures with one seed at a
//! time, so that whoever asks may spread seeds over processors, and judges all seeds together. A [`Check`] is one number
//! beside what it should be. It holds if the mean over the seeds lies within the tolerance or within three standard
//! errors, whichever is wider; what is exact has one seed's answer and no standard error.
//!
//! The numbers of the checks are those of `docs/validation.md`.

mod hash;
mod queues;
mod red;
mod tcp;
mod theory;

use std::fmt;

use anabranch_scenario::stats::{mean, standard_deviation};

pub use hash::HASHES;
pub use queues::QUEUES;
pub use red::RED;
pub use tcp::{
    CUBIC, FAIRNESS, GOODPUT, HYSTART, IDLE, Kind, LINUX_MBPS, REPEATS, RTT_S, SAWTOOTH,
    SLOW_START, beside_linux, cubic_curve, goodputs,
};
pub use theory::{mathis, pftk};

/// Seeds of a check that counts.
pub const SEEDS: u64 = 20;

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A test's worth: fewer points, shorter runs.
    Brief,
    /// As much as the claim needs.
    Full,
}

impl Effort {
    fn of<T>(self, brief: T, full: T) -> T {
        match self {
            Effort::Brief => brief,
            Effort::Full => full,
        }
    }
}

/// A question with a known answer.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    /// For people.
    pub title: &'static str,
    /// Whether the answer depends on the seed.
    pub random: bool,
    /// What one seed gives, in the order in which `judge` reads it.
    pub measure: fn(seed: u64, effort: Effort) -> Vec<f64>,
    /// Compares what all seeds gave with what is known.
    pub judge: fn(observed: &Observed, effort: Effort) -> Vec<Check>,
}

impl Topic {
    /// Those of `seeds` that are worth measuring.
    pub fn seeds<'a>(&self, seeds: &'a [u64]) -> &'a [u64] {
        if self.random { seeds } else { &seeds[..1] }
    }

    /// Measures with one seed after the other, and judges.
    pub fn check(&self, seeds: &[u64], effort: Effort) -> Vec<Check> {
        let seeds = self.seeds(seeds).iter();
        let observed = Observed::new(seeds.map(|seed| (self.measure)(*seed, effort)));
        (self.judge)(&observed, effort)
    }
}

/// What all seeds gave.
#[derive(Debug)]
pub struct Observed(Vec<Vec<f64>>);

impl Observed {
    /// The numbers of each seed, in the order of seeds.
    pub fn new(by_seed: impl IntoIterator<Item = Vec<f64>>) -> Self {
        Observed(by_seed.into_iter().collect())
    }

    /// The `i`-th number of each seed.
    pub fn column(&self, i: usize) -> Vec<f64> {
        self.0.iter().map(|numbers| numbers[i]).collect()
    }

    /// Their mean.
    pub fn mean(&self, i: usize) -> f64 {
        mean(&self.column(i))
    }
}

/// How far a mean may lie from what is expected, on either side.
#[derive(Clone, Copy, Debug)]
enum Tolerance {
    /// Of the expected value.
    Relative(f64),
    Absolute(f64),
}

/// What is expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expected {
    /// The mean is near.
    Around {
        /// The known answer.
        value: f64,
        /// How far the mean may lie from it, on either side.
        tolerance: f64,
    },
    /// The mean is no less.
    AtLeast(f64),
}

/// A number beside what it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// In `docs/validation.md`.
    pub number: u8,
    /// What is compared.
    pub name: String,
    /// Of observed and expected.
    pub unit: &'static str,
    /// The mean over the seeds.
    pub observed: f64,
    /// The known answer.
    pub expected: Expected,
    /// How many were measured.
    pub seeds: usize,
    /// Of the mean over the seeds.
    pub standard_error: f64,
}

impl Check {
    fn new(
        number: u8,
        name: impl Into<String>,
        unit: &'static str,
        observations: &[f64],
        expected: f64,
        tolerance: Tolerance,
    ) -> Self {
        let standard_error = standard_error(observations);
        let asked = match tolerance {
            Tolerance::Relative(part) => part * expected.abs(),
            Tolerance::Absolute(part) => part,
        };
        Check {
            number,
            name: name.into(),
            unit,
            observed: mean(observations),
            expected: Expected::Around {
                value: expected,
                tolerance: asked.max(3. * standard_error),
            },
            seeds: observations.len(),
            standard_error,
        }
    }

    /// The least over the seeds must reach `least`.
    fn at_least(
        number: u8,
        name: impl Into<String>,
        unit: &'static str,
        observations: &[f64],
        least: f64,
    ) -> Self {
        Check {
            number,
            name: name.into(),
            unit,
            observed: observations.iter().copied().fold(f64::INFINITY, f64::min),
            expected: Expected::AtLeast(least),
            seeds: observations.len(),
            standard_error: 0.,
        }
    }

    /// Whether the observation is as expected.
    pub fn holds(&self) -> bool {
        match self.expected {
            Expected::Around { value, tolerance } => (self.observed - value).abs() <= tolerance,
            Expected::AtLeast(least) => self.observed >= least,
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Check {
            number,
            name,
            unit,
            observed,
            seeds,
            ..
        } = self;
        write!(f, "check {number:>2}  {name}: observed {observed:.5}")?;
        match self.expected {
            Expected::Around { value, tolerance } => {
                write!(f, ", expected {value:.5} ± {tolerance:.5}")?;
            }
            Expected::AtLeast(least) => write!(f, ", expected at least {least}")?,
        }
        let gap = if unit.is_empty() { "" } else { " " };
        let verdict = if self.holds() {
            "holds"
        } else {
            "DOES NOT HOLD"
        };
        write!(
            f,
            "{gap}{unit} ({seeds} {}, standard error {:.5}): {verdict}",
            if *seeds == 1 { "seed" } else { "seeds" },
            self.standard_error
        )
    }
}

/// Of the mean; 0 for fewer than two values.
fn standard_error(values: &[f64]) -> f64 {
    standard_deviation(values) / (values.len() as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_holds_within_its_tolerance_or_three_standard_errors() {
        let check = |observed: &[f64]| {
            Check::new(1, "x", "s", observed, 10., Tolerance::Relative(0.01)).holds()
        };
        assert!(check(&[10.1]) && !check(&[10.11]));
        assert!(check(&[9., 12.]));
        assert!(!check(&[f64::NAN]));
    }

    #[test]
    fn a_check_reads_as_one_line() {
        let check = Check::new(2, "M/D/1 Wq", "s", &[2., 4.], 3., Tolerance::Absolute(0.));
        assert_eq!(
            check.to_string(),
            "check  2  M/D/1 Wq: observed 3.00000, expected 3.00000 ± 3.00000 s (2 seeds, standard error 1.00000): holds"
        );
    }
}
