//! Maglev's table: which target a hash leads to (Eisenbud et al. 2016, "Maglev", section 3.4).
//!
//! Each target has an order of its own in which it likes the slots, a permutation that follows from its name alone. In turn they take
//! the first free slot of theirs, until all are taken. So equal shares are equal to one slot, and others exact to a hundredth. Whoever
//! builds the table from the same names and weights builds the same one, and without one target the others mostly keep their slots.

use anabranch_policy::NO_TABLE;
use anabranch_policy::abi::{CONSISTENT_SLOTS, Consistent, KEYED_WORDS, NO_TARGET, Secret};
use anabranch_policy::keyed::keyed;

/// A target that takes slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entrant {
    /// What the slots are to say.
    pub target: u16,
    /// Who it is, to all that build the table.
    pub name: [u64; KEYED_WORDS],
    /// Its share beside others; at least one.
    pub weight: u32,
}

/// The slots are not secret, since what leads to them is.
const OFFSETS: Secret = Secret { word: [1, 1] };
const SKIPS: Secret = Secret { word: [2, 2] };

/// In which order an entrant likes the slots.
struct Order {
    next: usize,
    skip: usize,
}

impl Order {
    fn of(name: &[u64; KEYED_WORDS]) -> Order {
        let below = |secret, most: usize| (keyed(secret, name) % most as u64) as usize;
        Order {
            next: below(&OFFSETS, CONSISTENT_SLOTS),
            skip: 1 + below(&SKIPS, CONSISTENT_SLOTS - 1),
        }
    }

    /// The number of slots is a prime, so that every one comes.
    fn first_free(&mut self, table: &Consistent) -> usize {
        loop {
            let slot = self.next;
            self.next = (slot + self.skip) % CONSISTENT_SLOTS;
            if table.target[slot] == NO_TARGET {
                return slot;
            }
        }
    }
}

/// The table of these entrants, in whatever order they are.
pub fn table(entrants: &[Entrant]) -> Box<Consistent> {
    let mut table = Box::new(NO_TABLE);
    let mut entrants = entrants.to_vec();
    entrants.sort_by_key(|entrant| entrant.name);
    let most = entrants.iter().map(|entrant| entrant.weight).max();
    let Some(most) = most.map(u64::from).filter(|most| *most > 0) else {
        return table;
    };
    let mut turns: Vec<_> = entrants
        .iter()
        .map(|entrant| (entrant, Order::of(&entrant.name), 0))
        .collect();
    let mut free = CONSISTENT_SLOTS;
    loop {
        for (entrant, order, credit) in &mut turns {
            *credit += u64::from(entrant.weight);
            if *credit < most {
                continue;
            }
            *credit -= most;
            let slot = order.first_free(&table);
            table.target[slot] = entrant.target;
            free -= 1;
            if free == 0 {
                return table;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entrants(weights: &[u32]) -> Vec<Entrant> {
        let entrants = (0..).zip(weights);
        entrants
            .map(|(target, &weight)| Entrant {
                target,
                name: [u64::from(target) + 7, 0, 0, 0, 0],
                weight,
            })
            .collect()
    }

    fn slots(table: &Consistent, target: u16) -> usize {
        table.target.iter().filter(|slot| **slot == target).count()
    }

    #[test]
    fn without_entrants_nobody_has_a_slot() {
        assert_eq!(slots(&table(&[]), NO_TARGET), CONSISTENT_SLOTS);
    }

    #[test]
    fn of_256_targets_none_has_a_hundredth_more_than_another() {
        let table = table(&entrants(&[1; 256]));
        let shares = (0..256).map(|target| slots(&table, target));
        let (least, most) = shares.fold((usize::MAX, 0), |(least, most), share| {
            (least.min(share), most.max(share))
        });
        assert!(most - least <= 1 && least >= 100, "{least} to {most}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn shares_are_as_weights_and_the_order_of_entrants_is_nothing(
            weights in proptest::collection::vec(1u32..20, 1..20),
            rotated: usize,
        ) {
            let mut entrants = entrants(&weights);
            let one = table(&entrants);
            let sum: u32 = weights.iter().sum();
            // Each may have less than a slot to its credit when the table is full. All others share these slots by their weights.
            let lent = weights.len() as f64 / CONSISTENT_SLOTS as f64;
            for (target, weight) in (0..).zip(&weights) {
                let fair = f64::from(*weight) * CONSISTENT_SLOTS as f64 / f64::from(sum);
                let more = slots(&one, target) as f64 - fair;
                prop_assert!((-2.0..=1.0 + fair * lent).contains(&more), "{}: {}", target, more);
            }
            let by = rotated % entrants.len();
            entrants.rotate_left(by);
            prop_assert!(table(&entrants).target == one.target);
        }

        #[test]
        fn without_one_of_n_little_moves_beside_its_own_slots(count in 2usize..64, gone: usize) {
            let mut entrants = entrants(&vec![1; count]);
            let before = table(&entrants);
            let gone = entrants.remove(gone % count).target;
            let after = table(&entrants);
            let pairs = before.target.iter().zip(&after.target);
            let moved = pairs.filter(|(before, after)| before != after).count();
            let own = slots(&before, gone);
            prop_assert!(moved >= own);
            prop_assert!(moved - own <= CONSISTENT_SLOTS * 3 / 100, "{} beside {}", moved - own, own);
        }
    }
}
