//! Evidence of users against a link: retransmitted SYNs, counted by the hosts that send them and the remote ends that do not
//! answer.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_policy::abi::{Traffic, WITNESS_NS};

use super::{Availability, State};
use crate::targets::TargetSpec;
use crate::time::Time;

/// How long a host or end counts as evidence. The programs report the same one again only after this time ([`WITNESS_NS`]).
const WITNESS: Duration = Duration::from_secs(5);
const _: () = assert!(WITNESS.as_nanos() < WITNESS_NS as u128);

/// The distinct hosts and remote ends of SYNs that were retransmitted since a connection last made progress over the link.
#[derive(Clone, Debug, Default)]
pub(super) struct Complaint {
    /// Time of a report, new hosts and new ends in it.
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

    /// When the evidence began, if it outweighs one kind of targets that answers.
    pub fn grave_since(&self) -> Option<Time> {
        let ends: u64 = self.witnesses.iter().map(|(.., ends)| ends).sum();
        let is_grave = ends >= 3 || (ends >= 2 && !self.is_of_one_host());
        let (since, ..) = self.witnesses.front()?;
        is_grave.then_some(*since)
    }

    /// A single host is not enough evidence, however many ends it tries: it may have chosen ends that answer nobody.
    pub fn is_of_one_host(&self) -> bool {
        let hosts: u64 = self.witnesses.iter().map(|(_, hosts, _)| hosts).sum();
        hosts < 2
    }
}

impl Availability {
    /// When the evidence against a link in use began, if connections made progress over another link since.
    fn complaint_since(&self) -> Option<Time> {
        let since = self.complaint.grave_since()?;
        let is_compared = self.others.carried > Some(since);
        (self.is_in_use() && is_compared).then_some(since)
    }

    /// The same, if it comes from one host only: then it counts only if other links show that the fault is the link's.
    pub fn complaint_to_compare(&self) -> Option<Time> {
        let since = self.complaint_since();
        since.filter(|_| self.complaint.is_of_one_host())
    }

    /// Since when it matters which kinds of far targets answer over this link: users complain of it, or of another link.
    pub(super) fn comparison_since(&self) -> Option<Time> {
        let of_another = self.others.complained;
        let of_another = of_another.filter(|_| self.is_in_use() && !self.is_changing);
        self.complaint_since().max(of_another)
    }

    fn is_in_use(&self) -> bool {
        matches!(self.state, State::Up | State::PossiblyDown(_))
    }

    /// Declares the link captive if, after every kind of far targets was probed, at most one kind has answered.
    pub(super) fn judge_complaint(&mut self, now: Time) {
        let Some(since) = self.complaint_since() else {
            return;
        };
        let least = self.config.down_consecutive;
        self.silent_after = self.row.silent_after(self.quality(now), least);
        let is_silent = |(spec, lost): (TargetSpec, u32)| {
            let late = self.outstanding.iter().filter(|probe| {
                let is_late = probe.sent > since && probe.due <= now && !probe.noted;
                is_late && self.targets.is_of(probe.target, spec)
            });
            lost + late.count() as u32 >= self.silent_after
        };
        let unheard = || self.targets.kinds_unheard(since);
        // A kind that is silent on all links is no evidence against this one.
        let is_heard_elsewhere =
            |(spec, _): (TargetSpec, u32)| self.others.kinds.last(spec.kind) > Some(since);
        let is_borne_out = !self.complaint.is_of_one_host() || unheard().any(is_heard_elsewhere);
        let are_silent = unheard().all(is_silent);
        if is_borne_out && are_silent && self.targets.kinds_heard(since) < 2 {
            self.enter(now, State::Captive);
        }
    }
}
