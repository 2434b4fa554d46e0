//! Probes that are not yet answered.

use std::collections::VecDeque;
use std::time::Duration;

use crate::targets::ProbeId;
use crate::time::Time;

/// Probes older than this are forgotten. A later answer has no effect.
const FORGET_AFTER: Duration = Duration::from_secs(30);
const OUTSTANDING_MAX: usize = 128;

#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    pub id: ProbeId,
    pub target: usize,
    pub sent: Time,
    /// Deadline on a link without load.
    pub due: Time,
    /// Time added to the deadline for queues.
    pub allowance: Duration,
    pub judged: bool,
    /// Whether its loss is included in the link's quality.
    pub noted: bool,
    /// Whether it was sent beside the probes of suspicions, so that its loss takes no link down.
    pub beside: bool,
}

impl Outstanding {
    pub fn deadline(&self) -> Time {
        self.due + self.allowance
    }
}

/// In the order in which they were sent. If there are too many, the oldest are dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct Unanswered(VecDeque<Outstanding>);

impl Unanswered {
    pub fn push(&mut self, probe: Outstanding) {
        if self.0.len() == OUTSTANDING_MAX {
            self.0.pop_front();
        }
        self.0.push_back(probe);
    }

    /// Removes and returns the probe `id`.
    pub fn take(&mut self, id: ProbeId) -> Option<Outstanding> {
        let at = self.0.iter().position(|probe| probe.id == id)?;
        self.0.remove(at)
    }

    pub fn forget_old(&mut self, now: Time) {
        let is_old = |probe: &Outstanding| now.since(probe.due) > FORGET_AFTER;
        while self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Outstanding> {
        self.0.iter()
    }

    fn late(&mut self, now: Time) -> impl Iterator<Item = &mut Outstanding> {
        let probes = self.0.iter_mut();
        probes.filter(move |probe| !probe.noted && probe.deadline() <= now)
    }

    /// Gives this allowance to all probes that are late, because they may be queued.
    pub fn grant_late(&mut self, now: Time, allowance: Duration) {
        self.late(now).for_each(|probe| probe.allowance = allowance);
    }

    /// Marks the next late probe as judged, and returns it as it was before.
    pub fn note_late(&mut self, now: Time) -> Option<Outstanding> {
        let late = self.late(now).next()?;
        let before = *late;
        (late.noted, late.judged) = (true, true);
        Some(before)
    }

    /// Marks all as judged, so that their loss does not take the link down.
    pub fn judge_all(&mut self) {
        let probes = self.0.iter_mut().filter(|probe| !probe.beside);
        probes.for_each(|probe| probe.judged = true);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}
