//! Who says that a link carries nothing: `bpf/policy/witness.h` behind a safe API.

use std::fmt;

use crate::abi;
use crate::ffi;

/// The hosts that repeat SYNs over one link, and the ends that do not answer them.
#[derive(Default)]
pub struct Witnesses(abi::Witnesses);

impl fmt::Debug for Witnesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |places: &[u64]| places.iter().filter(|at| **at != 0).count();
        let (hosts, ends) = (counted(&self.0.host_ns), counted(&self.0.end_ns));
        write!(f, "Witnesses({hosts} hosts, {ends} ends)")
    }
}

/// Which of two was not counted within [`abi::WITNESS_NS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// The host.
    pub host: bool,
    /// The remote end.
    pub end: bool,
}

impl Witnesses {
    /// The host of this hash repeats a SYN to the end of that hash.
    pub fn repeat(&mut self, host: u32, end: u32, now_ns: u64) -> News {
        let news = ffi::ab_witness(&mut self.0, host, end, now_ns);
        News {
            host: news & abi::WITNESS_HOST != 0,
            end: news & abi::WITNESS_END != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_and_each_end_is_one_witness_for_a_while_however_often_it_says_so() {
        let mut witnesses = Witnesses::default();
        let mut count = |host, end, now_s: u64| {
            let news = witnesses.repeat(host, end, now_s * 1_000_000_000);
            (news.host, news.end)
        };
        assert_eq!(count(1, 7, 100), (true, true));
        assert_eq!(count(1, 7, 101), (false, false));
        assert_eq!(count(2, 7, 102), (true, false));
        assert_eq!(count(1, 8, 103), (false, true));
        let another_place = 1 + abi::WITNESSES;
        assert_eq!(
            count(another_place, 7, 104),
            (false, false),
            "takes a place that is taken"
        );
        assert_eq!(count(1, 7, 107), (true, true));
    }
}
