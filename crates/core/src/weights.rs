//! From what was measured to what the choice uses.

use anabranch_policy::abi::{WEIGHT_MAX, WEIGHT_MIN};

/// Peng 2005 eq. 5 for measures where more is better: `W = max(W_max · M / max M, W_min)`.
pub fn of_more(measured: u64, most: u64) -> u32 {
    ratio(measured, most)
}

/// Peng 2005 eq. 5 for measures where less is better: `W = max(W_max · min M / M, W_min)`.
pub fn of_less(measured: u64, least: u64) -> u32 {
    ratio(least, measured)
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
    fn no_link_weighs_less_than_the_least_weight() {
        assert_eq!(of_more(0, 500), WEIGHT_MIN);
        assert_eq!(of_more(0, 0), WEIGHT_MIN);
        assert_eq!(of_less(u64::MAX, 1), WEIGHT_MIN);
    }
}
