use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// How many bytes an object has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Every object has the same size, in bytes.
    Fixed(u64),
    /// Pareto with shape `alpha`, truncated to `min_bytes ..= max_bytes`: the heavy tail of web objects with the cap
    /// made explicit, since an uncapped sample mean for `alpha` < 2 does not converge within a run.
    BoundedPareto {
        alpha: f64,
        min_bytes: u64,
        max_bytes: u64,
    },
}

impl Size {
    /// The file of Peng's test-bed, in bytes.
    pub const PENG: Size = Size::Fixed(50_250);

    pub(crate) fn draw(&self, random: &mut ChaCha8Rng) -> u64 {
        match *self {
            Size::Fixed(bytes) => bytes,
            Size::BoundedPareto {
                alpha,
                min_bytes,
                max_bytes,
            } => bounded_pareto(alpha, min_bytes, max_bytes, random.random::<f64>()),
        }
    }

    /// The expected size in bytes.
    pub fn mean_bytes(&self) -> f64 {
        match *self {
            Size::Fixed(bytes) => bytes as f64,
            Size::BoundedPareto {
                alpha,
                min_bytes,
                max_bytes,
            } => bounded_pareto_mean(alpha, min_bytes as f64, max_bytes as f64),
        }
    }
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
    fn the_sample_mean_of_bounded_pareto_approaches_the_analytic_mean() {
        let size = Size::BoundedPareto {
            alpha: 1.2,
            min_bytes: 4_000,
            max_bytes: 1_000_000,
        };
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let draws = 200_000;
        let mean = (0..draws)
            .map(|_| size.draw(&mut random) as f64)
            .sum::<f64>()
            / f64::from(draws);
        let error = (mean / size.mean_bytes() - 1.0).abs();
        // The standard deviation is about 3 means, so 0.02 is three standard errors of 200 000 draws.
        assert!(
            error < 0.02,
            "sample mean {mean}, analytic {}",
            size.mean_bytes()
        );
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
