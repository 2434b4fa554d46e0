//! Deficit round robin: packet by packet over all sublinks.

use anabranch_policy::abi::{self, MAX_LINKS};

use super::{SublinkId, TrunkError, sublinks};

/// Deficit round robin: `bpf/policy/drr.h` over the sublinks of one trunk.
///
/// After each visit, the bytes that a sublink has carried differ by less than one packet from what it was granted, so the shares
/// follow the quanta more closely than with any hash. Packets of one flow take different sublinks and may overtake each other.
#[derive(Clone, Debug)]
pub struct Drr {
    quanta_bytes: [u32; MAX_LINKS],
    sublinks: u16,
    turn: abi::Drr,
}

impl Drr {
    /// Quanta in the ratio of the sublinks' rates. Smaller ones share more finely.
    pub fn new(quanta_bytes: &[u32]) -> Result<Self, TrunkError> {
        let count = sublinks(quanta_bytes.len())?;
        if let Some(empty) = (0u16..)
            .zip(quanta_bytes)
            .find(|(_, quantum)| **quantum == 0)
        {
            return Err(TrunkError::Quantum(SublinkId(empty.0)));
        }
        let mut drr = Drr {
            quanta_bytes: [0; MAX_LINKS],
            sublinks: count,
            turn: abi::Drr::default(),
        };
        drr.quanta_bytes[..quanta_bytes.len()].copy_from_slice(quanta_bytes);
        Ok(drr)
    }

    /// The sublink of the next packet, among those whose bit in `usable` is set; none if there is none. A sublink that
    /// is passed over as unusable keeps no deficit.
    pub fn choose(&mut self, length_bytes: u32, usable: u64) -> Option<SublinkId> {
        self.turn
            .sublink(
                &self.quanta_bytes,
                self.sublinks.into(),
                length_bytes,
                usable,
            )
            .map(SublinkId)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sent(drr: &mut Drr, lengths_bytes: &[u32]) -> Vec<u16> {
        lengths_bytes
            .iter()
            .map(|&length| drr.choose(length, u64::MAX).unwrap().0)
            .collect()
    }

    #[test]
    fn packets_of_one_quantum_take_the_sublinks_in_turn() {
        let mut drr = Drr::new(&[1500; 3]).unwrap();
        assert_eq!(sent(&mut drr, &[1500; 7]), [0, 1, 2, 0, 1, 2, 0]);
    }

    /// With quantum 500, a sublink that was sent 200 has 300 left, which do not cover 750; its next visit does.
    #[test]
    fn what_a_visit_leaves_over_counts_at_the_next() {
        let mut drr = Drr::new(&[500; 2]).unwrap();
        // Sublink 0: 500 - 200 = 300. 750 passes 0 (300), 1 (500), 0 (800): 50 left.
        assert_eq!(sent(&mut drr, &[200, 750]), [0, 0]);
        // 100 passes 0 (50); sublink 1 has 500 + 500: 900 left, then 300, then 0 after 600 and 300.
        assert_eq!(sent(&mut drr, &[100, 600, 300]), [1, 1, 1]);
        // 51 passes 1 (0); sublink 0 has 50 + 500.
        assert_eq!(sent(&mut drr, &[51]), [0]);
    }

    #[test]
    fn a_sublink_of_twice_the_quantum_carries_twice_the_packets() {
        let mut drr = Drr::new(&[3000, 1500]).unwrap();
        assert_eq!(sent(&mut drr, &[1500; 6]), [0, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn unusable_sublinks_are_passed_over_and_save_nothing_up() {
        let mut drr = Drr::new(&[1500; 3]).unwrap();
        for _ in 0..10 {
            assert_ne!(drr.choose(1500, 0b101), Some(SublinkId(1)));
        }
        let after = sent(&mut drr, &[1500; 6]);
        let on_one = after.iter().filter(|&&sublink| sublink == 1).count();
        assert_eq!(on_one, 2, "{after:?}");
        assert_eq!(drr.choose(1500, 0), None);
        assert_eq!(drr.choose(1500, 0b1000), None, "there is no sublink 3");
    }

    #[test]
    fn a_quantum_of_no_bytes_is_refused() {
        let error = Drr::new(&[1500, 0]).unwrap_err();
        assert_eq!(error, TrunkError::Quantum(SublinkId(1)));
        assert_eq!(Drr::new(&[]).unwrap_err(), TrunkError::Sublinks(0));
    }

    proptest! {
        /// Of any two sublinks, visits differ by one at most, and grants and bytes by less than a packet.
        #[test]
        fn what_the_sublinks_carry_stays_in_the_ratio_of_their_quanta(
            quanta in prop::collection::vec(1..10_000u32, 1..=16),
            lengths in prop::collection::vec(1..=9000u32, 1..500),
        ) {
            let mut drr = Drr::new(&quanta).unwrap();
            let mut carried = vec![0u64; quanta.len()];
            for &length in &lengths {
                carried[drr.choose(length, u64::MAX).unwrap().index()] += u64::from(length);
            }
            let visits = |i: usize| carried[i] as f64 / f64::from(quanta[i]);
            let slack = |i: usize| 9000.0 / f64::from(quanta[i]);
            for i in 0..quanta.len() {
                for j in 0..quanta.len() {
                    let apart = visits(i) - visits(j);
                    prop_assert!(apart <= 1.0 + slack(i) + slack(j), "{i} is {apart} rounds before {j}");
                }
            }
        }
    }
}
