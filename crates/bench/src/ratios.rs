//! Two that took turns, pair by pair: the median of the pairs' ratios, and its exact interval by order statistics
//! (David & Nagaraja, Order Statistics, section 7.1), which supposes no distribution.

use std::fmt;

use serde::Serialize;

use crate::rows::Better;

/// Fewer pairs have no interval of 95 %.
pub const FEWEST_PAIRS: usize = 6;

/// Above 1 where the second of a pair is better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratios {
    pub pairs: usize,
    pub median: f64,
    /// Of 95 %, where there are pairs enough.
    pub interval: Option<(f64, f64)>,
}

impl fmt::Display for Ratios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.interval {
            None => write!(f, "{:.2}", self.median),
            Some((low, high)) => write!(f, "{:.3}\n{low:.3} to {high:.3}", self.median),
        }
    }
}

impl Ratios {
    /// None if no pair has a ratio.
    pub fn of(better: Better, pairs: &[[f64; 2]]) -> Option<Self> {
        let of = |&[other, ours]: &[f64; 2]| ratio(better, ours, other);
        let ratios = sorted(pairs.iter().filter_map(of));
        (!ratios.is_empty()).then(|| Ratios {
            pairs: ratios.len(),
            median: median(&ratios),
            interval: interval(&ratios),
        })
    }
}

/// Above 1 where `ours` is better. Differences that are not above zero have no ratio.
fn ratio(better: Better, ours: f64, other: f64) -> Option<f64> {
    let ratio = match better {
        Better::More => ours / other,
        Better::Less => other / ours,
    };
    (ours > 0.0 && other > 0.0).then_some(ratio)
}

pub fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

pub fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

/// Holds the median of what the values were drawn from, in 95 % of cases at least: how many values lie below that
/// median is a binomial variate of chance ½.
fn interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let n = sorted.len();
    let (mut below, mut chance) = (0, 0.5_f64.powi(i32::try_from(n).ok()?));
    let mut tail = chance;
    while tail <= 0.025 {
        below += 1;
        chance *= (n + 1 - below) as f64 / below as f64;
        tail += chance;
    }
    (below > 0).then(|| (sorted[below - 1], sorted[n - below]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        let values: Vec<_> = (1..=15).map(f64::from).collect();
        assert_eq!(interval(&values), Some((4.0, 12.0)));
        assert_eq!(interval(&values[..FEWEST_PAIRS]), Some((1.0, 6.0)));
        assert_eq!(interval(&values[..FEWEST_PAIRS - 1]), None);
    }

    #[test]
    fn ratios_are_of_pairs_and_not_of_medians() {
        let ratios = Ratios::of(Better::More, &[[1.0, 2.0], [10.0, 5.0], [100.0, 300.0]]);
        let expected = Ratios {
            pairs: 3,
            median: 2.0,
            interval: None,
        };
        assert_eq!(ratios, Some(expected));
    }
}
