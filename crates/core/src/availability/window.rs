//! The results of the last probes, and how many were lost.

use std::collections::VecDeque;

use crate::config::Config;
use crate::targets::ProbeId;
use crate::time::Time;

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// None: evidence by users' flows on a link that is down.
    id: Option<ProbeId>,
    at: Time,
    /// The target, if it did not answer.
    lost: Option<usize>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Window(VecDeque<Sample>);

impl Window {
    /// Adds an answer. If the probe was recorded as lost before, that is corrected.
    pub fn answered(&mut self, now: Time, id: Option<ProbeId>, config: &Config) {
        let same = |sample: &&mut Sample| id.is_some() && sample.id == id;
        match self.0.iter_mut().find(same) {
            Some(sample) => sample.lost = None,
            None => self.record(
                Sample {
                    id,
                    at: now,
                    lost: None,
                },
                config,
            ),
        }
    }

    pub fn lost(&mut self, now: Time, id: ProbeId, target: usize, config: &Config) {
        self.record(
            Sample {
                id: Some(id),
                at: now,
                lost: Some(target),
            },
            config,
        );
    }

    fn record(&mut self, sample: Sample, config: &Config) {
        self.0
            .retain(|other| sample.at.since(other.at) <= config.window_age);
        if self.0.len() == config.window {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// Removes the losses of these targets.
    pub fn forget_of(&mut self, is_mute: impl Fn(usize) -> bool) {
        self.0.retain(|sample| !sample.lost.is_some_and(&is_mute));
    }

    /// Lost and all.
    pub fn loss(&self) -> (usize, usize) {
        let lost = self.0.iter().filter(|sample| sample.lost.is_some());
        (lost.count(), self.0.len())
    }

    /// When evidence other than an answer was last counted.
    pub fn last_passive(&self) -> Option<Time> {
        let last = self.0.iter().rev().find(|sample| sample.id.is_none());
        last.map(|sample| sample.at)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}
