//! Converts measured values into the weights of a choice.

use anabranch_policy::abi::{WEIGHT_MAX, WEIGHT_MIN};

/// Peng 2005 eq. 5 for measures where more is better: `W = max(W_max · M / max M, W_min)`.
pub fn of_more(measured: u64, most: u64) -> u32 {
    ratio(measured, most)
}

/// Peng 2005 eq. 5 for measures where less is better: `W = max(W_max · min M / M, W_min)`.
pub fn of_less(measured: u64, least: u64) -> u32 {
    ratio(least, measured)
}

/// Scales a value to a link with the greatest of all rates that is used to the same degree.
pub fn per_rate(measured: u64, rate: u64, greatest: u64) -> u64 {
    let scaled = u128::from(measured) * u128::from(greatest) / u128::from(rate.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

fn ratio(part: u64, whole: u64) -> u32 {
    let scaled = u128::from(WEIGHT_MAX) * u128::from(part) / u128::from(whole.max(1));
    u32::try_from(scaled)
        .unwrap_or(WEIGHT_MAX)
        .clamp(WEIGHT_MIN, WEIGHT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_link_has_the_greatest_weight_and_the_others_their_part_of_it() {
        assert_eq!(of_more(500, 500), WEIGHT_MAX);
        assert_eq!(of_more(50, 500), WEIGHT_MAX / 10);
        assert_eq!(of_less(30, 10), WEIGHT_MAX / 3);
    }

    #[test]
    fn a_measure_for_a_rate_is_that_of_the_greatest_rate_used_as_much() {
        assert_eq!(per_rate(50, 1_000_000, 3_000_000), 150);
        assert_eq!(per_rate(150, 3_000_000, 3_000_000), 150);
        assert_eq!(per_rate(u64::MAX, 1, 2), u64::MAX);
    }

    #[test]
    fn no_link_weighs_less_than_the_least_weight() {
        assert_eq!(of_more(0, 500), WEIGHT_MIN);
        assert_eq!(of_more(0, 0), WEIGHT_MIN);
        assert_eq!(of_less(u64::MAX, 1), WEIGHT_MIN);
    }
}
