//! Slow start: a server that comes up is given more and more of its weight, so that its caches fill and its programs start before
//! it takes as much as others.

use std::time::Duration;

/// The parts into which weights are divided.
pub const WHOLE: u32 = 20;
const LEAST: u32 = WHOLE / 10;

/// How many parts of its weight a server has that came up before `since`: from a tenth on, in a straight line to all after `lasts`.
pub fn parts(since: Duration, lasts: Duration) -> u32 {
    let gained = u128::from(WHOLE - LEAST) * since.as_nanos() / lasts.as_nanos().max(1);
    LEAST + u32::try_from(gained).map_or(WHOLE - LEAST, |gained| gained.min(WHOLE - LEAST))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_begins_with_a_tenth_and_never_falls_and_ends_in_time(
            lasts in 1u64..3_600_000,
            first in 0u64..7_200_000,
            later in 0u64..7_200_000,
        ) {
            let of = |ms| parts(Duration::from_millis(ms), Duration::from_millis(lasts));
            prop_assert_eq!(of(0), WHOLE / 10);
            prop_assert!(of(first) <= of(first + later));
            prop_assert_eq!(of(first) == WHOLE, first >= lasts);
            let line = f64::from(LEAST) + f64::from(WHOLE - LEAST) * first as f64 / lasts as f64;
            prop_assert!((line.min(f64::from(WHOLE)) - f64::from(of(first))).abs() <= 1.0);
        }
    }
}
