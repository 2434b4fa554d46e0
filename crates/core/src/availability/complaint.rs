//! What hosts say against a link: SYNs that are repeated over it, counted by who repeats them and to whom.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_policy::abi::{Traffic, WITNESS_NS};

use crate::time::Time;

/// So long a witness counts; the programs count the same one no more often ([`WITNESS_NS`]).
const WITNESS: Duration = Duration::from_secs(5);
const _: () = assert!(WITNESS.as_nanos() < WITNESS_NS as u128);

/// Who says that a link carries nothing since anybody's connection last made progress over it: hosts and ends, each once.
#[derive(Clone, Debug, Default)]
pub(super) struct Complaint {
    /// When, and how many of each.
    witnesses: VecDeque<(Time, u64, u64)>,
}

impl Complaint {
    pub fn see(&mut self, now: Time, carried: &Traffic) {
        if carried.rx_progress > 0 {
            self.witnesses.clear();
        }
        self.witnesses.retain(|(at, ..)| now.since(*at) < WITNESS);
        if carried.retrying_hosts + carried.retried_ends > 0 {
            let (hosts, ends) = (carried.retrying_hosts, carried.retried_ends);
            self.witnesses.push_back((now, hosts, ends));
        }
    }

    /// Since when, if it weighs more than one witness for the link.
    pub fn grave_since(&self) -> Option<Time> {
        let ends: u64 = self.witnesses.iter().map(|(.., ends)| ends).sum();
        let is_grave = ends >= 3 || (ends >= 2 && !self.is_of_one_host());
        let (since, ..) = self.witnesses.front()?;
        is_grave.then_some(*since)
    }

    /// However many ends it names, it may have chosen those that answer nobody.
    pub fn is_of_one_host(&self) -> bool {
        let hosts: u64 = self.witnesses.iter().map(|(_, hosts, _)| hosts).sum();
        hosts < 2
    }
}
