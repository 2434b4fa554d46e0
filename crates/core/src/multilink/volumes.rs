//! Counts what each bin carried lately.

use std::cmp::Reverse;
use std::collections::VecDeque;

use anabranch_policy::abi::BINS;

use super::{BinChoice, BinId, Bins, SublinkId};

/// Total bytes of each bin, as the data path counts them.
pub type Counters = [u64; BINS];

/// The bytes of every bin in the last slots, oldest first, and their sum.
#[derive(Clone, Debug)]
pub struct Volumes {
    counters: Box<Counters>,
    slots: VecDeque<Box<Counters>>,
    sums: Box<Counters>,
}

impl Volumes {
    /// Counting starts at `counters`.
    pub fn new(slots: usize, counters: &Counters) -> Self {
        Volumes {
            counters: Box::new(*counters),
            slots: (0..slots).map(|_| Box::new([0; BINS])).collect(),
            sums: Box::new([0; BINS]),
        }
    }

    /// Ends a slot. If a counter went backwards, it was replaced: the slot counts as 0.
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

    /// One of the sublink's bins that carried anything, of equal ones the first. `below` returns a random number below its
    /// argument.
    pub fn choose(
        &self,
        choice: BinChoice,
        bins: &Bins,
        sublink: SublinkId,
        below: impl FnOnce(usize) -> usize,
    ) -> Option<BinId> {
        let carried = || bins.of(sublink).filter(|&bin| self.of(bin) > 0);
        let largest_but = |but: Option<BinId>| {
            let others = carried().filter(|&bin| Some(bin) != but);
            others.min_by_key(|&bin| Reverse(self.of(bin)))
        };
        match choice {
            BinChoice::Largest => largest_but(None),
            BinChoice::Second => largest_but(Some(largest_but(None)?)),
            BinChoice::Random => carried().nth(below(carried().count())),
            BinChoice::Smallest => carried().min_by_key(|&bin| self.of(bin)),
        }
    }

    /// Bytes of the bins that the sublink has now, wherever these were when they carried them.
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

    const CHOICES: [BinChoice; 4] = [
        BinChoice::Largest,
        BinChoice::Second,
        BinChoice::Random,
        BinChoice::Smallest,
    ];

    /// Sublink 0 of two has the even bins. The draw is the last of those there are to draw from.
    fn chosen(volumes: &Volumes, sublink: u16) -> [Option<u16>; 4] {
        let bins = Bins::new(2).unwrap();
        CHOICES.map(|choice| {
            let bin = volumes.choose(choice, &bins, SublinkId(sublink), |count| {
                count.saturating_sub(1)
            });
            bin.map(|BinId(bin)| bin)
        })
    }

    #[test]
    fn a_bin_is_chosen_among_those_that_carried_anything_and_is_the_first_of_equals() {
        let mut volumes = Volumes::new(3, &[0; BINS]);
        assert_eq!(chosen(&volumes, 0), [None; 4]);
        let mut counters = [0; BINS];
        counters[3] = 99;
        for (bin, bytes) in [(2, 5), (4, 7), (8, 7), (10, 1), (12, 1), (14, 2)] {
            counters[bin] = bytes;
        }
        volumes.record(&counters);
        assert_eq!(
            chosen(&volumes, 0),
            [Some(4), Some(8), Some(14), Some(10)],
            "{CHOICES:?}"
        );
        assert_eq!(
            chosen(&volumes, 1),
            [Some(3), None, Some(3), Some(3)],
            "{CHOICES:?}"
        );
        assert_eq!(volumes.total(&Bins::new(2).unwrap(), SublinkId(0)), 23);
    }
}
