//! What was observed seed by seed, and what it says of all seeds.
//!
//! An [`Observation`] keeps the value of every seed beside the statistic that is claimed, so that it can be judged over
//! any of the seeds. All intervals are of 95 %:
//!
//! - of a **mean**, Student's t;
//! - of a **median**, order statistics: how many of n values lie below the median is binomial, whatever their
//!   distribution. Fewer than six values have no such interval;
//! - of a **ratio of means** over the same seeds, Fieller's (1954): the ratios r for which Student's t of the paired
//!   differences a − r·b does not rule out 0. "More than r times as much" is thus the same test as a paired difference.
//!   Where the mean below cannot be told from 0, no ratio can be told either, and the interval says so: it has no ends.
//!   (The jackknife, which is the alternative, is a linear approximation that stays finite there.)
//! - the **greatest** and **least** of the seeds are facts about them, and have none; nor has the **upper end** of the interval of a
//!   ratio, which tells whether a mean may reach another.

use std::collections::BTreeMap;

use anabranch_scenario::stats::{self, NOT_NEGATIVE, mean, median, t_95};

use crate::Seeds;

/// Two-sided: so much is left out at either end of a median's interval.
const TAIL: f64 = 0.025;

/// A quantity by seed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample(BTreeMap<u64, f64>);

impl FromIterator<(u64, f64)> for Sample {
    fn from_iter<I: IntoIterator<Item = (u64, f64)>>(values: I) -> Self {
        Sample(values.into_iter().collect())
    }
}

impl Sample {
    /// In the order of their seeds.
    pub fn values(&self) -> Vec<f64> {
        self.0.values().copied().collect()
    }

    /// Another quantity under the same seeds.
    pub fn map(&self, of: impl Fn(f64) -> f64) -> Sample {
        let values = self.0.iter();
        values.map(|(&seed, &value)| (seed, of(value))).collect()
    }

    /// Of two quantities, under the seeds that both have.
    pub fn with(&self, other: &Sample, of: impl Fn(f64, f64) -> f64) -> Sample {
        let pairs = self.0.iter();
        pairs
            .filter_map(|(seed, &value)| Some((*seed, of(value, *other.0.get(seed)?))))
            .collect()
    }

    /// By how much more than `other`, seed by seed.
    pub fn minus(&self, other: &Sample) -> Sample {
        self.with(other, |a, b| a - b)
    }

    /// How many times `other`, seed by seed.
    pub fn per(&self, other: &Sample) -> Sample {
        self.with(other, |a, b| a / b)
    }

    /// Claimed of the mean.
    pub fn mean(&self) -> Observation {
        Observation::Mean(self.clone())
    }

    /// Claimed of the median.
    pub fn median(&self) -> Observation {
        Observation::Median(self.clone())
    }

    /// Claimed of the mean as a multiple of the mean of `other`.
    pub fn over(&self, other: &Sample) -> Observation {
        Observation::Ratio(self.clone(), other.clone())
    }

    /// Claimed of the most that the mean may be as a multiple of that of `other`.
    pub fn at_most_over(&self, other: &Sample) -> Observation {
        Observation::RatioAtMost(self.clone(), other.clone())
    }

    /// Claimed of the seed with the most.
    pub fn greatest(&self) -> Observation {
        Observation::Greatest(self.clone())
    }

    /// Claimed of the seed with the least.
    pub fn least(&self) -> Observation {
        Observation::Least(self.clone())
    }

    /// Mean and interval of what is never negative, for a plot; not a number if nothing was observed.
    pub fn plotted(&self) -> stats::Estimate {
        stats::Estimate::of(self.values()).map_or(stats::Estimate::exact(f64::NAN), |estimate| {
            estimate.within(NOT_NEGATIVE)
        })
    }

    /// Median and its interval, for a plot, in place of the mean's.
    pub fn plotted_median(&self) -> stats::Estimate {
        let all = of_median(self.values());
        let (low, high) = all.interval().unwrap_or((all.observed, all.observed));
        stats::Estimate {
            mean: all.observed,
            low,
            high,
            ..self.plotted()
        }
    }

    fn under(&self, seeds: Seeds) -> Vec<f64> {
        let all = self.0.iter();
        let asked = all.filter(|(seed, _)| seeds.contains(**seed));
        asked.map(|(_, value)| *value).collect()
    }
}

/// What is claimed of one or two quantities.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// No seed has a part in it: a formula, a model without chance.
    Exact(f64),
    /// Of the seeds.
    Mean(Sample),
    /// Of the seeds.
    Median(Sample),
    /// Of the mean of the first to that of the second.
    Ratio(Sample, Sample),
    /// The upper end of the interval of that.
    RatioAtMost(Sample, Sample),
    /// Of the seeds.
    Greatest(Sample),
    /// Of the seeds.
    Least(Sample),
}

impl Observation {
    /// Over these of its seeds.
    pub fn estimate(&self, seeds: Seeds) -> Estimate {
        match self {
            Observation::Exact(value) => Estimate::certain(*value),
            Observation::Mean(sample) => of_mean(&sample.under(seeds)),
            Observation::Median(sample) => of_median(sample.under(seeds)),
            Observation::Ratio(above, below) => of_ratio(&pairs(above, below, seeds)),
            Observation::RatioAtMost(above, below) => {
                of_ratio(&pairs(above, below, seeds)).upper_end()
            }
            Observation::Greatest(sample) => extreme(&sample.under(seeds), f64::max),
            Observation::Least(sample) => extreme(&sample.under(seeds), f64::min),
        }
    }

    /// What is claimed of the seeds, in a word or two.
    pub fn statistic(&self) -> &'static str {
        match self {
            Observation::Exact(_) => "exact",
            Observation::Mean(_) => "mean",
            Observation::Median(_) => "median",
            Observation::Ratio(..) => "ratio of means",
            Observation::RatioAtMost(..) => "upper end of the ratio of means",
            Observation::Greatest(_) => "greatest",
            Observation::Least(_) => "least",
        }
    }

    /// Whether other seeds would give the same.
    pub fn is_exact(&self) -> bool {
        matches!(self, Observation::Exact(_))
    }

    /// Every seed's value, or both of a ratio.
    pub fn by_seed(&self) -> BTreeMap<u64, Vec<f64>> {
        match self {
            Observation::Exact(_) => BTreeMap::new(),
            Observation::Mean(sample)
            | Observation::Median(sample)
            | Observation::Greatest(sample)
            | Observation::Least(sample) => {
                let values = sample.0.iter();
                values.map(|(seed, value)| (*seed, vec![*value])).collect()
            }
            Observation::Ratio(above, below) | Observation::RatioAtMost(above, below) => {
                let both = above.0.iter();
                both.filter_map(|(seed, a)| Some((*seed, vec![*a, *below.0.get(seed)?])))
                    .collect()
            }
        }
    }
}

/// What an observation comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Not a number if nothing was observed.
    pub observed: f64,
    /// How sure it is.
    pub certainty: Certainty,
}

/// How sure an estimate is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Certainty {
    /// A fact: chance has no part in it, or it is a fact about the seeds.
    Fact,
    /// The 95 % interval, infinite where it has no end.
    Interval {
        /// Its lower end.
        low: f64,
        /// Its upper end.
        high: f64,
    },
    /// Too few seeds for an interval.
    Unknown,
}

impl Estimate {
    fn certain(observed: f64) -> Estimate {
        Estimate {
            observed,
            certainty: Certainty::Fact,
        }
    }

    fn unsure(observed: f64) -> Estimate {
        Estimate {
            observed,
            certainty: Certainty::Unknown,
        }
    }

    fn between(observed: f64, low: f64, high: f64) -> Estimate {
        Estimate {
            observed,
            certainty: Certainty::Interval { low, high },
        }
    }

    /// Without an end nobody knows.
    fn upper_end(self) -> Estimate {
        match self.interval() {
            Some((_, high)) if high.is_finite() => Estimate::certain(high),
            _ => Estimate::unsure(self.observed),
        }
    }

    /// The ends of its interval, if it has one.
    pub fn interval(&self) -> Option<(f64, f64)> {
        match self.certainty {
            Certainty::Interval { low, high } => Some((low, high)),
            Certainty::Fact | Certainty::Unknown => None,
        }
    }
}

fn of_mean(values: &[f64]) -> Estimate {
    match stats::Estimate::of(values.iter().copied()) {
        Some(estimate) if values.len() > 1 => {
            Estimate::between(estimate.mean, estimate.low, estimate.high)
        }
        _ => Estimate::unsure(mean(values)),
    }
}

fn of_median(mut values: Vec<f64>) -> Estimate {
    values.sort_by(f64::total_cmp);
    let observed = median(&values);
    match left_out(values.len()) {
        Some(out) => Estimate::between(observed, values[out], values[values.len() - 1 - out]),
        None => Estimate::unsure(observed),
    }
}

/// How many of `count` ordered values may be left out at either end of the median's interval: the most, k, for which the
/// probability that at most k values lie below the median is within [`TAIL`].
fn left_out(count: usize) -> Option<usize> {
    let mut ln_probability = count as f64 * 0.5f64.ln();
    let (mut below, mut cumulated) = (0, ln_probability.exp());
    while cumulated <= TAIL {
        ln_probability += ((count - below) as f64 / (below + 1) as f64).ln();
        below += 1;
        cumulated += ln_probability.exp();
    }
    below.checked_sub(1)
}

fn pairs(above: &Sample, below: &Sample, seeds: Seeds) -> Vec<(f64, f64)> {
    let asked = above.0.iter().filter(|(seed, _)| seeds.contains(**seed));
    asked
        .filter_map(|(seed, a)| Some((*a, *below.0.get(seed)?)))
        .collect()
}

/// Fieller's interval of the ratio of means: r² (B² − t² v_b) − 2 r (A B − t² v_ab) + A² − t² v_a ≤ 0, where A and B are the
/// means and v the variances and the covariance of the means.
fn of_ratio(pairs: &[(f64, f64)]) -> Estimate {
    let (above, below): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (a, b) = (mean(&above), mean(&below));
    let Some(t) = pairs.len().checked_sub(1).and_then(t_95) else {
        return Estimate::unsure(a / b);
    };
    let of_means = (pairs.len() * (pairs.len() - 1)) as f64;
    let covariance = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / of_means;
    let v_a = covariance(&|(x, _)| (x - a).powi(2));
    let v_b = covariance(&|(_, y)| (y - b).powi(2));
    let v_ab = covariance(&|(x, y)| (x - a) * (y - b));
    let square = b * b - t * t * v_b;
    if square <= 0.0 {
        return Estimate::between(a / b, f64::NEG_INFINITY, f64::INFINITY);
    }
    let half = a * b - t * t * v_ab;
    let rest = a * a - t * t * v_a;
    let root = (half * half - square * rest).max(0.0).sqrt();
    Estimate::between(a / b, (half - root) / square, (half + root) / square)
}

fn extreme(values: &[f64], pick: fn(f64, f64) -> f64) -> Estimate {
    let found = values.iter().copied().reduce(pick);
    Estimate::certain(found.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: &[f64]) -> Sample {
        (1..).zip(values.iter().copied()).collect()
    }

    fn all() -> Seeds {
        Seeds::new(1, 1000).unwrap()
    }

    fn interval(observation: Observation) -> (f64, f64) {
        observation.estimate(all()).interval().unwrap()
    }

    fn near(found: (f64, f64), expected: (f64, f64)) -> bool {
        (found.0 - expected.0).abs() < 1e-3 && (found.1 - expected.1).abs() < 1e-3
    }

    #[test]
    fn a_mean_has_students_interval_and_one_seed_none() {
        let half = 4.303 / 3f64.sqrt();
        let found = interval(sample(&[1.0, 2.0, 3.0]).mean());
        assert!(near(found, (2.0 - half, 2.0 + half)), "{found:?}");
        let one = sample(&[5.0]);
        for observation in [one.mean(), one.median(), one.over(&one)] {
            let estimate = observation.estimate(all());
            assert_eq!(estimate.certainty, Certainty::Unknown);
        }
    }

    /// Of 20 values the 6th and the 15th (95.9 %), as in tables of the sign test.
    #[test]
    fn a_median_lies_between_order_statistics() {
        let twenty: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(interval(sample(&twenty).median()), (6.0, 15.0));
        assert_eq!(interval(sample(&twenty[..6]).median()), (1.0, 6.0));
        let five = sample(&twenty[..5]).median().estimate(all());
        assert_eq!((five.observed, five.certainty), (3.0, Certainty::Unknown));
        assert_eq!([100, 2000].map(left_out), [Some(39), Some(955)]);
    }

    #[test]
    fn the_most_that_a_ratio_may_be_is_the_upper_end_of_its_interval() {
        let sample = |values: [f64; 4]| -> Sample { (1..).zip(values).collect() };
        let (ours, theirs) = (sample([9.0, 10.0, 11.0, 9.0]), sample([10.0; 4]));
        let seeds = Seeds::new(1, 4).unwrap();
        let (_, high) = ours.over(&theirs).estimate(seeds).interval().unwrap();
        let most = ours.at_most_over(&theirs).estimate(seeds);
        assert_eq!(most, Estimate::certain(high));
        assert!(high > 1.0 && most.observed < 1.2, "{most:?}");
        let one = ours
            .at_most_over(&theirs)
            .estimate(Seeds::new(1, 1).unwrap());
        assert_eq!(one.certainty, Certainty::Unknown);
        let nothing = ours.at_most_over(&sample([-1.0, 1.0, -1.0, 1.0]));
        assert_eq!(nothing.estimate(seeds).certainty, Certainty::Unknown);
    }

    /// A ratio r is in the interval exactly if 0 is in Student's interval of a − r·b.
    #[test]
    fn the_interval_of_a_ratio_is_that_of_the_paired_differences() {
        let (a, b) = (
            sample(&[4.0, 7.0, 5.0, 9.0, 6.0]),
            sample(&[2.0, 3.0, 3.0, 4.0, 2.0]),
        );
        let (low, high) = interval(a.over(&b));
        for end in [low, high] {
            let ends = interval(a.minus(&b.map(|b| b * end)).mean());
            assert!(ends.0.abs() < 1e-9 || ends.1.abs() < 1e-9, "{ends:?}");
        }
        let observed = a.over(&b).estimate(all()).observed;
        assert!(low < observed && observed < high);
        assert_eq!(interval(a.over(&a)), (1.0, 1.0));
    }

    #[test]
    fn no_ratio_to_what_may_be_nothing() {
        let rare = sample(&[0.0, 0.0, 0.0, 0.0, 9.0]);
        let found = interval(sample(&[5.0; 5]).over(&rare));
        assert_eq!(found, (f64::NEG_INFINITY, f64::INFINITY));
    }

    #[test]
    fn the_extremes_and_what_is_exact_are_facts() {
        let values = sample(&[3.0, 1.0, 2.0]);
        for (observation, observed) in [
            (values.greatest(), 3.0),
            (values.least(), 1.0),
            (Observation::Exact(7.0), 7.0),
        ] {
            let estimate = observation.estimate(all());
            assert_eq!(
                (estimate.observed, estimate.certainty),
                (observed, Certainty::Fact)
            );
        }
    }

    #[test]
    fn only_the_seeds_asked_for_count_and_pairs_need_both() {
        let values = sample(&[1.0, 2.0, 30.0, 40.0]);
        let window = Seeds::new(3, 4).unwrap();
        assert_eq!(values.mean().estimate(window).observed, 35.0);
        let fewer = values.with(&sample(&[1.0, 1.0]), |a, b| a - b);
        assert_eq!(fewer.values(), [0.0, 1.0]);
        assert_eq!(values.over(&fewer).by_seed().len(), 2);
        let none = Seeds::new(5, 9).unwrap();
        assert!(values.mean().estimate(none).observed.is_nan());
    }
}
