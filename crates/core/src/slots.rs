//! Tables whose slots are taken in turn, or by lot.

use anabranch_policy::NO_TABLE;
use anabranch_policy::abi::{CONSISTENT_SLOTS, Consistent};

/// In the first round all targets, in the second those with a weight of at least two, and so on: weights of 4, 3 and 2 make
/// A B C A B C A B A (Zhang 2002 §2.3, weighted round robin).
pub fn rounds(weights: &[(u16, u32)]) -> Box<Consistent> {
    let weights = fitting(weights);
    let rounds = weights.iter().map(|(_, weight)| *weight).max();
    let slots = (0..rounds.unwrap_or(0)).flat_map(|round| {
        let left = weights.iter().filter(move |(_, weight)| *weight > round);
        left.map(|(target, _)| *target)
    });
    filled(slots)
}

/// As many slots for each as its weight says, as exactly as all slots together can.
pub fn lots(weights: &[(u16, u32)]) -> Box<Consistent> {
    let all: u64 = weights.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let mut before = 0;
    let slots = weights.iter().flat_map(|(target, weight)| {
        let begin = before * CONSISTENT_SLOTS as u64 / all.max(1);
        before += u64::from(*weight);
        let end = before * CONSISTENT_SLOTS as u64 / all.max(1);
        (begin..end).map(|_| *target)
    });
    filled(slots)
}

fn filled(targets: impl Iterator<Item = u16>) -> Box<Consistent> {
    let mut table = Box::new(NO_TABLE);
    for (slot, target) in table.target.iter_mut().zip(targets) {
        *slot = target;
        table.slots += 1;
    }
    table
}

/// Weights in the same proportion, as far as whole numbers go, that together are no more than there are slots.
fn fitting(weights: &[(u16, u32)]) -> Vec<(u16, u32)> {
    let divisor = weights
        .iter()
        .fold(0, |divisor, (_, weight)| gcd(divisor, u64::from(*weight)));
    let reduced = weights
        .iter()
        .map(|(target, weight)| (*target, u64::from(*weight) / divisor.max(1)));
    let all: u64 = reduced.clone().map(|(_, weight)| weight).sum();
    // Each may be rounded up to one.
    let room = (CONSISTENT_SLOTS - weights.len()) as u64;
    let fitted = reduced.map(|(target, weight)| match all <= room {
        true => (target, weight as u32),
        false => (target, (weight * room / all).max(1) as u32),
    });
    fitted.collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(table: &Consistent) -> &[u16] {
        &table.target[..usize::from(table.slots)]
    }

    #[test]
    fn rounds_are_in_the_order_of_the_thesis() {
        for weights in [[(0, 4), (1, 3), (2, 2)], [(0, 400), (1, 300), (2, 200)]] {
            assert_eq!(taken(&rounds(&weights)), [0, 1, 2, 0, 1, 2, 0, 1, 0]);
        }
        assert_eq!(rounds(&[]).slots, 0);
    }

    proptest! {
        #[test]
        fn shares_are_as_the_weights_say(weights in proptest::collection::vec(1u32..=1000, 1..=256)) {
            let weights: Vec<(u16, u32)> = (0..).zip(weights).collect();
            let all: u64 = weights.iter().map(|(_, weight)| u64::from(*weight)).sum();
            for (table, tolerance) in [(rounds(&weights), 0.02), (lots(&weights), 0.0001)] {
                let mut count = vec![0; weights.len()];
                taken(&table).iter().for_each(|target| count[usize::from(*target)] += 1);
                for (target, weight) in &weights {
                    let share = f64::from(count[usize::from(*target)]) / f64::from(table.slots);
                    let wanted = f64::from(*weight) / all as f64;
                    prop_assert!((share - wanted).abs() < tolerance, "{share} {wanted}");
                }
            }
        }

        #[test]
        fn small_weights_are_kept_exactly(weights in proptest::collection::vec(1u32..=90, 1..=256)) {
            let weights: Vec<(u16, u32)> = (0..).zip(weights).collect();
            let table = rounds(&weights);
            let first = weights[0].1;
            for (target, weight) in &weights {
                let count = |wanted| taken(&table).iter().filter(|target| **target == wanted).count() as u64;
                prop_assert_eq!(count(*target) * u64::from(first), count(0) * u64::from(*weight));
            }
        }
    }
}
