use std::f64::consts::TAU;
use std::fmt;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// How many bytes an object has. No object is empty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Size {
    /// Every object has the same size, in bytes.
    Fixed(u64),
    /// Exponential, without a cap: the files and pages of Jo 2002.
    Exponential {
        /// Above 0.
        mean_bytes: f64,
    },
    /// The logarithm is normal with standard deviation `sigma`; half of the objects are larger than `median_bytes`.
    /// Without a cap: the mean converges.
    Lognormal {
        /// Above 0.
        median_bytes: f64,
        /// Of the natural logarithm, above 0.
        sigma: f64,
    },
    /// Pareto with shape `alpha`, truncated to `min_bytes ..= max_bytes`: the heavy tail of web objects with the cap
    /// made explicit, since an uncapped sample mean for `alpha` < 2 does not converge within a run.
    BoundedPareto {
        /// Shape, above 0.
        alpha: f64,
        /// The least, above 0.
        min_bytes: u64,
        /// The largest, above the least.
        max_bytes: u64,
    },
}

/// A parameter of a distribution that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key} = {value} is not possible; {allowed}")]
pub struct BadSize {
    /// The field of [`Size`].
    pub key: &'static str,
    /// What it was given.
    pub value: f64,
    /// What would be possible.
    pub allowed: &'static str,
}

impl Size {
    /// The file of Peng's test-bed, in bytes.
    pub const PENG: Size = Size::Fixed(50_250);

    pub(crate) fn draw(&self, random: &mut ChaCha8Rng) -> u64 {
        match *self {
            Size::Fixed(bytes) => bytes,
            Size::Exponential { mean_bytes } => whole(-mean_bytes * open_unit(random).ln()),
            Size::Lognormal {
                median_bytes,
                sigma,
            } => whole(median_bytes * (sigma * normal(random)).exp()),
            Size::BoundedPareto {
                alpha,
                min_bytes,
                max_bytes,
            } => bounded_pareto(alpha, min_bytes, max_bytes, random.random::<f64>()),
        }
    }

    /// The largest size in bytes, of distributions that have one.
    pub fn cap_bytes(&self) -> Option<u64> {
        match *self {
            Size::Fixed(bytes) => Some(bytes),
            Size::BoundedPareto { max_bytes, .. } => Some(max_bytes),
            Size::Exponential { .. } | Size::Lognormal { .. } => None,
        }
    }

    /// The first parameter that makes no sense.
    pub fn check(&self) -> Result<(), BadSize> {
        let positive = |key, value: f64| {
            let good = value.is_finite() && value > 0.0;
            let allowed = "must be greater than 0";
            good.then_some(()).ok_or(BadSize {
                key,
                value,
                allowed,
            })
        };
        match *self {
            Size::Fixed(bytes) => positive("fixed", bytes as f64),
            Size::Exponential { mean_bytes } => positive("mean_bytes", mean_bytes),
            Size::Lognormal {
                median_bytes,
                sigma,
            } => positive("median_bytes", median_bytes).and(positive("sigma", sigma)),
            Size::BoundedPareto {
                alpha,
                min_bytes,
                max_bytes,
            } => {
                positive("alpha", alpha)?;
                positive("min_bytes", min_bytes as f64)?;
                positive("max_bytes", max_bytes as f64)?;
                let value = max_bytes as f64;
                let allowed = "must not be less than min_bytes";
                (min_bytes <= max_bytes).then_some(()).ok_or(BadSize {
                    key: "max_bytes",
                    value,
                    allowed,
                })
            }
        }
    }

    /// The expected size in bytes, to a byte: draws are rounded to whole bytes.
    pub fn mean_bytes(&self) -> f64 {
        match *self {
            Size::Fixed(bytes) => bytes as f64,
            Size::Exponential { mean_bytes } => mean_bytes,
            Size::Lognormal {
                median_bytes,
                sigma,
            } => median_bytes * (sigma * sigma / 2.0).exp(),
            Size::BoundedPareto {
                alpha,
                min_bytes,
                max_bytes,
            } => bounded_pareto_mean(alpha, min_bytes as f64, max_bytes as f64),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Fixed(bytes) => write!(f, "{bytes} bytes"),
            Size::Exponential { mean_bytes } => write!(f, "exponential({mean_bytes}) bytes"),
            Size::Lognormal {
                median_bytes,
                sigma,
            } => write!(f, "lognormal({median_bytes}, {sigma}) bytes"),
            Size::BoundedPareto {
                alpha,
                min_bytes,
                max_bytes,
            } => write!(f, "Pareto({alpha}) bytes in {min_bytes}..={max_bytes}"),
        }
    }
}

/// Uniform in (0, 1], whose logarithm is finite.
pub(crate) fn open_unit(random: &mut ChaCha8Rng) -> f64 {
    1.0 - random.random::<f64>()
}

/// A standard normal number (Box and Muller 1958).
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let radius = (-2.0 * open_unit(random).ln()).sqrt();
    radius * (TAU * random.random::<f64>()).cos()
}

fn whole(bytes: f64) -> u64 {
    (bytes.round() as u64).max(1)
}

/// Inverse of the truncated distribution function at `uniform` in [0, 1).
fn bounded_pareto(alpha: f64, min_bytes: u64, max_bytes: u64, uniform: f64) -> u64 {
    let (min, max) = (min_bytes as f64, max_bytes as f64);
    let kept = 1.0 - (min / max).powf(alpha);
    let bytes = min * (1.0 - uniform * kept).powf(-1.0 / alpha);
    (bytes as u64).clamp(min_bytes, max_bytes)
}

fn bounded_pareto_mean(alpha: f64, min: f64, max: f64) -> f64 {
    let kept = 1.0 - (min / max).powf(alpha);
    if kept == 0.0 {
        return min;
    }
    let scale = alpha * min.powf(alpha) / kept;
    if alpha == 1.0 {
        scale * (max / min).ln()
    } else {
        scale * (max.powf(1.0 - alpha) - min.powf(1.0 - alpha)) / (1.0 - alpha)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;

    proptest! {
        #[test]
        fn a_bounded_pareto_size_never_leaves_its_bounds(
            alpha in 0.5f64..3.0, min_bytes in 1u64..10_000, extra in 0u64..10_000_000, uniform in 0.0f64..1.0
        ) {
            let bytes = bounded_pareto(alpha, min_bytes, min_bytes + extra, uniform);
            prop_assert!((min_bytes..=min_bytes + extra).contains(&bytes));
        }
    }

    #[test]
    fn the_sample_mean_of_each_distribution_approaches_its_analytic_mean() {
        // Standard deviations of 3, 1 and 1.31 means: 0.02 is three standard errors of 200 000 draws of the first.
        let sizes = [
            Size::BoundedPareto {
                alpha: 1.2,
                min_bytes: 4_000,
                max_bytes: 1_000_000,
            },
            Size::Exponential {
                mean_bytes: 600_000.0,
            },
            Size::Lognormal {
                median_bytes: 5_000.0,
                sigma: 1.0,
            },
        ];
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let draws = 200_000;
        for size in sizes {
            let sum: f64 = (0..draws).map(|_| size.draw(&mut random) as f64).sum();
            let (mean, expected) = (sum / f64::from(draws), size.mean_bytes());
            let error = (mean / expected - 1.0).abs();
            assert!(error < 0.02, "{size}: sample {mean}, analytic {expected}");
        }
    }

    #[test]
    fn half_of_lognormal_sizes_exceed_the_median_and_a_share_of_exponential_ones_the_mean() {
        let above = |size: Size, bound: u64| {
            let mut random = ChaCha8Rng::seed_from_u64(3);
            let count = (0..40_000)
                .filter(|_| size.draw(&mut random) > bound)
                .count();
            count as f64 / 40_000.0
        };
        let lognormal = Size::Lognormal {
            median_bytes: 5e3,
            sigma: 2.0,
        };
        let exponential = Size::Exponential { mean_bytes: 5e3 };
        assert!((above(lognormal, 5_000) - 0.5).abs() < 0.01);
        assert!(
            (above(lognormal, 36_945) - 0.1587).abs() < 0.01,
            "one sigma"
        );
        assert!((above(exponential, 5_000) - (-1f64).exp()).abs() < 0.01);
    }

    #[test]
    fn a_parameter_that_makes_no_sense_is_named_with_what_is_allowed() {
        let size = Size::BoundedPareto {
            alpha: 1.2,
            min_bytes: 10,
            max_bytes: 9,
        };
        let message = size.check().unwrap_err().to_string();
        assert_eq!(
            message,
            "max_bytes = 9 is not possible; must not be less than min_bytes"
        );
        let size = Size::Exponential { mean_bytes: -1.0 };
        assert_eq!(size.check().unwrap_err().key, "mean_bytes");
        assert_eq!(Size::Fixed(0).check().unwrap_err().key, "fixed");
        assert_eq!(Size::PENG.check(), Ok(()));
    }

    #[test]
    fn equal_bounds_make_a_fixed_size() {
        let size = Size::BoundedPareto {
            alpha: 1.2,
            min_bytes: 9,
            max_bytes: 9,
        };
        assert_eq!(size.draw(&mut ChaCha8Rng::seed_from_u64(0)), 9);
        assert_eq!(size.mean_bytes(), 9.0);
    }
}
