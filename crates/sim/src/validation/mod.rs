//! The simulator held against theory and against a real stack.
//!
//! A [`Topic`] is one question with a known answer: a queue, a hash, a TCP under loss. It measures with one seed at a
//! time, so that whoever asks may spread seeds over processors, and judges all seeds together. A [`Check`] is what every
//! seed gave beside what it should be. It holds if the whole 95 % interval of the mean lies within the tolerance, which has
//! room for what the model leaves out and for the interval of a full measurement; what is exact has one answer and no
//! interval. A short measurement is less sure: it refutes only what lies outside as a whole.
//!
//! The numbers of the checks are those of `docs/validation.md`.

mod hash;
mod mutant;
mod mutants;
mod queues;
mod recovery;
mod red;
mod signals;
mod tcp;
mod theory;

use std::fmt;

use anabranch_scenario::stats::{Estimate, mean};
use mutant::FAR;

pub use hash::HASHES;
pub use mutant::Mutant;
pub use mutants::mutants;
pub use queues::QUEUES;
pub use recovery::{LOST_SYNS, NEWRENO, TAILS};
pub use red::RED;
pub use signals::{CODEL, ECN};
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

type Measure = fn(u64, Effort) -> Vec<f64>;
type Judge = fn(&Observed, Effort) -> Vec<Check>;

impl Topic {
    /// One whose answer depends on the seed.
    const fn random(title: &'static str, measure: Measure, judge: Judge) -> Topic {
        Topic {
            title,
            random: true,
            measure,
            judge,
        }
    }

    /// One that has the same answer under every seed.
    const fn exact(title: &'static str, measure: Measure, judge: Judge) -> Topic {
        Topic {
            random: false,
            ..Topic::random(title, measure, judge)
        }
    }

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
    /// What each seed gave, in the order of seeds; one value if they all give the same.
    pub values: Vec<f64>,
    /// The known answer.
    pub expected: Expected,
    /// It fails only if the harness or the simulator miscounts.
    pub identity: bool,
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
        let tolerance = match tolerance {
            Tolerance::Relative(part) => part * expected.abs(),
            Tolerance::Absolute(part) => part,
        };
        Check {
            number,
            name: name.into(),
            unit,
            values: observations.to_vec(),
            expected: Expected::Around {
                value: expected,
                tolerance,
            },
            identity: false,
        }
    }

    /// The mean must reach `least`.
    fn at_least(
        number: u8,
        name: impl Into<String>,
        unit: &'static str,
        observations: &[f64],
        least: f64,
    ) -> Self {
        Check {
            expected: Expected::AtLeast(least),
            ..Check::new(
                number,
                name,
                unit,
                observations,
                least,
                Tolerance::Absolute(0.),
            )
        }
    }

    fn identity(self) -> Self {
        Check {
            identity: true,
            ..self
        }
    }

    /// The mean of the values and its 95 % interval; not a number if nothing was measured.
    pub fn estimate(&self) -> Estimate {
        let values = self.values.iter().copied();
        Estimate::of(values).unwrap_or(Estimate::exact(f64::NAN))
    }

    /// Whether the whole interval is as expected.
    pub fn holds(&self) -> bool {
        let Estimate { low, high, .. } = self.estimate();
        match self.expected {
            Expected::Around { value, tolerance } => {
                low >= value - tolerance && high <= value + tolerance
            }
            Expected::AtLeast(least) => low >= least,
        }
    }

    /// Whether nothing of the interval is as expected.
    pub fn is_refuted(&self) -> bool {
        let Estimate { low, high, .. } = self.estimate();
        let may_hold = match self.expected {
            Expected::Around { value, tolerance } => {
                high >= value - tolerance && low <= value + tolerance
            }
            Expected::AtLeast(least) => high >= least,
        };
        !may_hold
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Check {
            number, name, unit, ..
        } = self;
        let observed = self.estimate();
        write!(
            f,
            "check {number:>2}  {name}: observed {:.5}",
            observed.mean
        )?;
        if observed.count > 1 {
            write!(f, " ({:.5} to {:.5})", observed.low, observed.high)?;
        }
        match self.expected {
            Expected::Around { value, tolerance } => {
                write!(f, ", expected {value:.5} ± {tolerance:.5}")?;
            }
            Expected::AtLeast(least) => write!(f, ", expected at least {least}")?,
        }
        let gap = if unit.is_empty() { "" } else { " " };
        let verdict = match (self.holds(), self.is_refuted()) {
            (true, _) => "holds",
            (false, false) => "not sure",
            (false, true) => "REFUTED",
        };
        let seeds = if observed.count == 1 { "seed" } else { "seeds" };
        write!(f, "{gap}{unit} ({} {seeds}): {verdict}", observed.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(observed: &[f64]) -> Check {
        Check::new(1, "x", "s", observed, 10., Tolerance::Relative(0.01))
    }

    #[test]
    fn a_check_holds_if_all_of_its_interval_is_within_the_tolerance() {
        assert!(check(&[10.1]).holds() && !check(&[10.11]).holds());
        assert!(check(&[9.99, 10., 10.01]).holds());
        assert!(!check(&[9., 10., 11.]).holds());
        assert!(!check(&[f64::NAN]).holds() && !check(&[]).holds());
    }

    #[test]
    fn a_check_is_refuted_if_nothing_of_its_interval_is_within_the_tolerance() {
        assert!(!check(&[9., 10., 11.]).is_refuted());
        assert!(check(&[11., 11.1, 11.2]).is_refuted());
        assert!(check(&[f64::NAN]).is_refuted());
        let least = Check::at_least(1, "x", "", &[0.8, 0.9, 1.], 0.95);
        assert!(!least.holds() && !least.is_refuted());
    }

    #[test]
    fn a_check_reads_as_one_line() {
        let check = Check::new(2, "M/D/1 Wq", "s", &[2., 4.], 3., Tolerance::Absolute(1.));
        assert_eq!(
            check.to_string(),
            "check  2  M/D/1 Wq: observed 3.00000 (-9.70600 to 15.70600), expected 3.00000 ± 1.00000 s (2 seeds): not sure"
        );
    }
}
