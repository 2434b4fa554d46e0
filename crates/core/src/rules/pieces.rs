//! A range of values that is cut wherever a range of a rule begins or ends. No rule distinguishes two values of the same piece.

use std::ops::RangeInclusive;

/// Where the pieces begin, ascending from 0.
#[derive(Clone, Debug)]
pub(super) struct Pieces(Vec<u128>);

impl Pieces {
    /// Cuts the values 0 to `last`.
    pub fn cut<'a>(last: u128, ranges: impl IntoIterator<Item = &'a RangeInclusive<u128>>) -> Self {
        let mut starts = vec![0];
        for range in ranges {
            starts.push(*range.start());
            starts.extend((*range.end() < last).then(|| range.end() + 1));
        }
        starts.sort_unstable();
        starts.dedup();
        Pieces(starts)
    }

    pub fn starts(&self) -> &[u128] {
        &self.0
    }

    /// For each piece, whether it is in one of the ranges. These must be among those that it was cut by.
    pub fn within(&self, ranges: &[RangeInclusive<u128>]) -> Vec<bool> {
        let lies = |start: &u128| ranges.iter().any(|range| range.contains(start));
        self.0.iter().map(lies).collect()
    }
}
