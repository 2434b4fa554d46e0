//! What every bin carried of late.

use std::collections::VecDeque;

use anabranch_policy::abi::BINS;

use super::{BinId, Bins, SublinkId};

/// Bytes that every bin has carried since the beginning, as the packet path counts them.
pub type Counters = [u64; BINS];

/// The bytes of every bin in the last slots, oldest first, and their sum.
#[derive(Clone, Debug)]
pub struct Volumes {
    counters: Box<Counters>,
    slots: VecDeque<Box<Counters>>,
    sums: Box<Counters>,
}

impl Volumes {
    /// Nothing is known of what was carried before `counters`.
    pub fn new(slots: usize, counters: &Counters) -> Self {
        Volumes {
            counters: Box::new(*counters),
            slots: (0..slots).map(|_| Box::new([0; BINS])).collect(),
            sums: Box::new([0; BINS]),
        }
    }

    /// Ends a slot. A counter that went backwards was replaced, and counts as nothing carried.
    pub fn record(&mut self, counters: &Counters) {
        let Some(mut slot) = self.slots.pop_front() else {
            return;
        };
        for bin in BinId::all().map(BinId::index) {
            let carried = counters[bin].saturating_sub(self.counters[bin]);
            self.sums[bin] = self.sums[bin] - slot[bin] + carried;
            slot[bin] = carried;
        }
        self.slots.push_back(slot);
        *self.counters = *counters;
    }

    pub fn of(&self, bin: BinId) -> u64 {
        self.sums[bin.index()]
    }

    /// The bin of the sublink that carried most; of equals, the first. None if none carried anything.
    pub fn largest(&self, bins: &Bins, sublink: SublinkId) -> Option<BinId> {
        bins.of(sublink)
            .filter(|&bin| self.of(bin) > 0)
            .min_by_key(|&bin| std::cmp::Reverse(self.of(bin)))
    }

    /// What the bins that the sublink has carried, wherever they were.
    pub fn total(&self, bins: &Bins, sublink: SublinkId) -> u64 {
        bins.of(sublink).map(|bin| self.of(bin)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(bin: u16, bytes: u64) -> Counters {
        let mut counters = [0; BINS];
        counters[usize::from(bin)] = bytes;
        counters
    }

    #[test]
    fn a_bin_s_volume_is_the_sum_of_its_last_slots() {
        let mut volumes = Volumes::new(3, &with(5, 1000));
        let sums = [1010, 1110, 1110, 2110, 2110].map(|bytes| {
            volumes.record(&with(5, bytes));
            volumes.of(BinId(5))
        });
        assert_eq!(sums, [10, 110, 110, 1100, 1000]);
    }

    #[test]
    fn a_counter_that_starts_again_carried_nothing_in_that_slot() {
        let mut volumes = Volumes::new(3, &with(5, 1000));
        volumes.record(&with(5, 400));
        assert_eq!(volumes.of(BinId(5)), 0);
        volumes.record(&with(5, 450));
        assert_eq!(volumes.of(BinId(5)), 50);
    }

    #[test]
    fn the_largest_bin_is_the_first_of_equals_and_none_if_nothing_was_carried() {
        let bins = Bins::new(2).unwrap();
        let mut volumes = Volumes::new(3, &[0; BINS]);
        assert_eq!(volumes.largest(&bins, SublinkId(0)), None);
        let mut counters = [0; BINS];
        counters[3] = 99;
        counters[4] = 7;
        counters[8] = 7;
        volumes.record(&counters);
        assert_eq!(volumes.largest(&bins, SublinkId(0)), Some(BinId(4)));
        assert_eq!(volumes.largest(&bins, SublinkId(1)), Some(BinId(3)));
        assert_eq!(volumes.total(&bins, SublinkId(0)), 14);
    }
}
