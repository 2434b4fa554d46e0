//! The table that assigns each bin to a sublink.

use anabranch_policy::abi::BINS;
use anabranch_policy::spread::Table;

use super::{BinId, Move, SublinkId, TrunkError, sublinks};

/// The table of a trunk: the sublink of each bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bins {
    table: Table,
    sublinks: u16,
}

impl Bins {
    /// Assigns bin `i` to sublink `i mod count`.
    pub fn new(count: usize) -> Result<Self, TrunkError> {
        let sublinks = sublinks(count)?;
        let table = std::array::from_fn(|bin| (bin % count) as u16);
        Ok(Bins { table, sublinks })
    }

    /// Takes over the data path's table. A bin on a sublink that the trunk does not have goes where [`Bins::new`] puts it, so the
    /// result has to be written back.
    pub fn adopt(count: usize, table: &Table) -> Result<Self, TrunkError> {
        let mut bins = Bins::new(count)?;
        for (ours, &theirs) in bins.table.iter_mut().zip(table) {
            if theirs < bins.sublinks {
                *ours = theirs;
            }
        }
        Ok(bins)
    }

    /// In the form of the data path.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Where the packets of a bin go.
    pub fn sublink(&self, bin: BinId) -> SublinkId {
        SublinkId(self.table[bin.index()])
    }

    /// The bins of one sublink, in order.
    pub fn of(&self, sublink: SublinkId) -> impl Iterator<Item = BinId> {
        BinId::all().filter(move |&bin| self.sublink(bin) == sublink)
    }

    pub(super) fn sublinks(&self) -> usize {
        self.sublinks.into()
    }

    pub(super) fn apply(&mut self, Move { bin, to, .. }: Move) {
        self.table[bin.index()] = to.0;
    }
}

const _: () = assert!(BINS <= 1 << u16::BITS, "a bin's number has 16 bits");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_trunk_gives_every_sublink_the_same_number_of_bins() {
        let bins = Bins::new(8).unwrap();
        for sublink in (0..8).map(SublinkId) {
            assert_eq!(bins.of(sublink).count(), 128);
        }
    }

    #[test]
    fn a_new_table_sends_every_hash_where_static_hashing_would_if_the_sublinks_are_a_power_of_two()
    {
        use anabranch_policy::spread::{by_bin, by_hash};
        let bins = Bins::new(8).unwrap();
        for hash in (0..u32::MAX).step_by(1_000_003) {
            assert_eq!(by_bin(bins.table(), hash, 0xff), by_hash(hash, 0xff));
        }
    }

    #[test]
    fn an_adopted_table_keeps_its_bins_unless_their_sublink_is_gone() {
        let mut table = [1; BINS];
        table[7] = 3;
        let bins = Bins::adopt(2, &table).unwrap();
        assert_eq!(bins.table()[6], 1);
        assert_eq!(bins.table()[7], 7 % 2);
        assert_eq!(bins.table()[8], 1);
    }

    #[test]
    fn a_trunk_of_no_or_too_many_sublinks_is_refused() {
        assert_eq!(Bins::new(0), Err(TrunkError::Sublinks(0)));
        assert_eq!(Bins::new(17), Err(TrunkError::Sublinks(17)));
        assert_eq!(
            Bins::new(17).unwrap_err().to_string(),
            "a trunk has 1 to 16 sublinks, not 17"
        );
    }
}
