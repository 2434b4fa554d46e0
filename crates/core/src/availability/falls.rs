//! Counts how often a link went down lately, and computes the hold-down time from that.

use std::collections::VecDeque;
use std::time::Duration;

use crate::config::Config;
use crate::time::Time;

/// The times at which a link went down.
#[derive(Clone, Debug, Default)]
pub(super) struct Falls {
    /// Those that were not yet forgotten when the last one was added.
    counted: VecDeque<Time>,
    /// All within the last hour.
    hour: VecDeque<Time>,
}

impl Falls {
    /// Those that are not forgotten at `now`.
    pub fn recent(&self, now: Time, forget: Duration) -> impl Iterator<Item = Time> {
        let quiet = self
            .counted
            .back()
            .map_or(Duration::ZERO, |last| now.since(*last));
        let forgotten = quiet.as_nanos() / forget.as_nanos().max(1);
        self.counted
            .iter()
            .copied()
            .skip(forgotten.min(self.counted.len() as u128) as usize)
    }

    /// Adds one, and returns how long the link is held down.
    pub fn add(&mut self, now: Time, config: &Config) -> Duration {
        self.counted = self.recent(now, config.hold_forget).collect();
        for falls in [&mut self.counted, &mut self.hour] {
            if falls.len() == FALLS_MAX {
                falls.pop_front();
            }
            falls.push_back(now);
        }
        match self.counted.len() as u32 {
            1 => Duration::ZERO,
            falls => (config.hold_down * (1 << (falls - 2))).min(config.hold_down_max),
        }
    }

    pub fn within_an_hour(&self, now: Time) -> usize {
        let is_recent = |at: &&Time| now.since(**at) < HOUR;
        self.hour.iter().filter(is_recent).count()
    }
}

/// More failures than this do not double the time further.
const FALLS_MAX: usize = 20;
const HOUR: Duration = Duration::from_secs(3600);
