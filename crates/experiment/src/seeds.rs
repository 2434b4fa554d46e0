//! Ranges of seeds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Of one range.
const COUNT_MAX: u64 = 100_000;

/// Seeds from the first to the last, both included: `1001..1020`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Seeds {
    first: u64,
    last: u64,
}

/// Why something is no range of seeds, or cannot be cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum SeedsError {
    #[error(
        "no range of seeds: write the first and the last, both included, as \"1001..1020\" (at most {COUNT_MAX} seeds)"
    )]
    Range,
    #[error("{count} seeds cannot be cut into {windows} windows of equal size")]
    Windows { count: u64, windows: u64 },
}

impl Seeds {
    /// `first` to `last`, both included.
    ///
    /// # Errors
    /// If there is none, or there are too many.
    pub fn new(first: u64, last: u64) -> Result<Seeds, SeedsError> {
        match last.checked_sub(first) {
            Some(more) if more < COUNT_MAX => Ok(Seeds { first, last }),
            _ => Err(SeedsError::Range),
        }
    }

    /// The first of them.
    pub fn first(self) -> u64 {
        self.first
    }

    /// How many there are: at least one.
    pub fn count(self) -> u64 {
        self.last - self.first + 1
    }

    /// In their order.
    pub fn all(self) -> Vec<u64> {
        (self.first..=self.last).collect()
    }

    /// The first `count` of them, at least one.
    pub fn begin(self, count: u64) -> Seeds {
        let last = self.first.saturating_add(count.max(1) - 1);
        Seeds {
            last: last.min(self.last),
            ..self
        }
    }

    /// Whether both have a seed in common.
    pub fn overlaps(self, other: Seeds) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether `seed` is one of them.
    pub fn contains(self, seed: u64) -> bool {
        (self.first..=self.last).contains(&seed)
    }

    /// So many disjoint windows of equal size, in the order of their seeds.
    ///
    /// # Errors
    /// If seeds would be left over.
    pub fn windows(self, windows: u64) -> Result<Vec<Seeds>, SeedsError> {
        let count = self.count();
        if !count.is_multiple_of(windows) {
            return Err(SeedsError::Windows { count, windows });
        }
        let size = count / windows;
        let window = |i| Seeds {
            first: self.first + i * size,
            last: self.first + (i + 1) * size - 1,
        };
        Ok((0..windows).map(window).collect())
    }
}

impl FromStr for Seeds {
    type Err = SeedsError;

    fn from_str(text: &str) -> Result<Seeds, SeedsError> {
        let (first, last) = text.split_once("..").ok_or(SeedsError::Range)?;
        let seed = |text: &str| text.trim().parse().map_err(|_| SeedsError::Range);
        Seeds::new(seed(first)?, seed(last)?)
    }
}

impl TryFrom<String> for Seeds {
    type Error = SeedsError;

    fn try_from(text: String) -> Result<Seeds, SeedsError> {
        text.parse()
    }
}

impl From<Seeds> for String {
    fn from(seeds: Seeds) -> String {
        seeds.to_string()
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_belong_to_a_range() {
        let seeds: Seeds = "1001..1020".parse().unwrap();
        assert_eq!((seeds.count(), seeds.first()), (20, 1001));
        assert!(seeds.contains(1001) && seeds.contains(1020) && !seeds.contains(1021));
        assert_eq!(seeds.to_string(), "1001..1020");
        assert_eq!(seeds.begin(3).all(), [1001, 1002, 1003]);
        assert_eq!(seeds.begin(99), seeds);
        for wrong in ["", "7", "9..8", "a..b", "1..2..3", "1..100001", "-1..2"] {
            assert_eq!(wrong.parse::<Seeds>(), Err(SeedsError::Range), "{wrong}");
        }
    }

    #[test]
    fn ranges_overlap_in_one_seed_already() {
        let range = |text: &str| text.parse::<Seeds>().unwrap();
        assert!(range("1..20").overlaps(range("20..30")));
        assert!(range("20..30").overlaps(range("1..20")));
        assert!(!range("1..20").overlaps(range("21..30")));
    }

    #[test]
    fn windows_have_every_seed_once() {
        let seeds: Seeds = "2001..2240".parse().unwrap();
        let windows = seeds.windows(12).unwrap();
        let together: Vec<u64> = windows.iter().flat_map(|window| window.all()).collect();
        assert_eq!(together, seeds.all());
        assert!(windows.iter().all(|window| window.count() == 20));
        let error = seeds.windows(7).unwrap_err().to_string();
        let expected = "240 seeds cannot be cut into 7 windows of equal size";
        assert_eq!(error, expected);
        assert!(seeds.windows(0).is_err());
    }
}
