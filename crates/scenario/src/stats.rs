//! What several observations say together: mean, median, and the 95 % confidence interval of the mean.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// Of rates, times, amounts and counts: none is below 0.
pub const NOT_NEGATIVE: RangeInclusive<f64> = 0.0..=f64::INFINITY;
/// Of parts of a whole.
pub const SHARE: RangeInclusive<f64> = 0.0..=1.0;

/// Two-sided 95 % quantiles of Student's t by degrees of freedom from 1; beyond them [`T_MANY`] is near enough.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The normal quantile, to which t falls; the first term of its expansion, 1 + (z² + 1) / (4·df), brings it within 0.1 %.
const T_MANY: f64 = 1.960;

/// A quantity observed in several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// Observations.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// The one in the middle, or the mean of both.
    pub median: f64,
    /// The 95 % confidence interval of the mean (Student's t); the mean itself for a single observation.
    pub low: f64,
    /// The upper end of that interval.
    pub high: f64,
    /// The least observation.
    pub min: f64,
    /// The greatest observation.
    pub max: f64,
}

impl Estimate {
    /// Nothing if there are no observations.
    pub fn of(observations: impl IntoIterator<Item = f64>) -> Option<Estimate> {
        let mut sorted: Vec<f64> = observations.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let mean = mean(&sorted);
        let half = half_width(&sorted);
        Some(Estimate {
            count: sorted.len() as u64,
            mean,
            median: median_of_sorted(&sorted),
            low: mean - half,
            high: mean + half,
            min,
            max,
        })
    }

    /// A value that is known exactly.
    pub fn exact(value: f64) -> Estimate {
        Estimate {
            count: 1,
            mean: value,
            median: value,
            low: value,
            high: value,
            min: value,
            max: value,
        }
    }

    /// The same in a unit of so many base units.
    pub fn scaled(&self, unit: f64) -> Estimate {
        Estimate {
            count: self.count,
            mean: self.mean / unit,
            median: self.median / unit,
            low: self.low / unit,
            high: self.high / unit,
            min: self.min / unit,
            max: self.max / unit,
        }
    }

    /// The same, of a quantity that is never outside `range`: what the interval has beyond it is cut off. Student's
    /// interval knows nothing of such bounds, and the true mean lies in what is left as often as in all of it.
    pub fn within(self, range: RangeInclusive<f64>) -> Estimate {
        Estimate {
            low: self.low.max(*range.start()),
            high: self.high.min(*range.end()),
            ..self
        }
    }

    /// The distance from the mean to the end of the confidence interval, the farther one if a bound cut the other.
    pub fn half_width(&self) -> f64 {
        (self.high - self.mean).max(self.mean - self.low)
    }
}

/// The mean; not a number if there are no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The middle value, or the mean of the two middle ones; not a number if there are no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

/// `part` / `whole`, and 0 of nothing.
pub fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Standard deviation of a sample; 0 for fewer than two values.
pub fn standard_deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// The two-sided 95 % quantile of Student's t; none without a degree of freedom.
pub fn t_95(freedom: usize) -> Option<f64> {
    let many = || T_MANY * (1.0 + (T_MANY * T_MANY + 1.0) / (4.0 * freedom as f64));
    let index = freedom.checked_sub(1)?;
    Some(T_95.get(index).copied().unwrap_or_else(many))
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

fn half_width(values: &[f64]) -> f64 {
    let Some(t) = values.len().checked_sub(1).and_then(t_95) else {
        return 0.0;
    };
    t * standard_deviation(values) / (values.len() as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_three_values_is_that_of_students_t() {
        let estimate = Estimate::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(
            (estimate.count, estimate.mean, estimate.median),
            (3, 2.0, 2.0)
        );
        // t(2) = 4.303, standard deviation 1, standard error 1/√3.
        assert!((estimate.half_width() - 4.303 / 3f64.sqrt()).abs() < 1e-9);
        assert_eq!((estimate.min, estimate.max), (1.0, 3.0));
    }

    #[test]
    fn the_interval_of_a_bounded_quantity_ends_at_its_bounds() {
        let free = Estimate::of([0.0, 0.0, 0.9]).unwrap();
        assert!(free.low < 0.0 && free.high > 1.0);
        let share = free.within(SHARE);
        assert_eq!((share.low, share.high), (0.0, 1.0));
        let time = free.within(NOT_NEGATIVE);
        assert_eq!((time.low, time.high), (0.0, free.high));
        assert_eq!((time.mean, time.median), (free.mean, free.median));
        assert!((time.half_width() - free.half_width()).abs() < 1e-12);
        let far = Estimate::of([5.0, 6.0]).unwrap();
        assert_eq!(far.within(NOT_NEGATIVE).high, far.high);
    }

    #[test]
    fn one_observation_has_no_interval_and_none_no_estimate() {
        let one = Estimate::of([5.0]).unwrap();
        assert_eq!(one, Estimate::exact(5.0));
        assert_eq!(Estimate::of([]), None);
    }

    #[test]
    fn the_quantile_of_many_observations_is_near_the_table_of_t() {
        // Student's t, two-sided 95 %: 2.021 at 40, 2.000 at 60, 1.984 at 100 degrees of freedom.
        for (freedom, t) in [(40, 2.021), (60, 2.000), (100, 1.984)] {
            let values: Vec<f64> = (0..=freedom).map(f64::from).collect();
            let error = standard_deviation(&values) / (values.len() as f64).sqrt();
            let found = Estimate::of(values.clone()).unwrap().half_width() / error;
            assert!(
                (found / t - 1.0).abs() < 1e-3,
                "{freedom}: {found}, table {t}"
            );
        }
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
    }
}
