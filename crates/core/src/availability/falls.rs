//! How often a link went down of late, and how long it is held down for that.

use std::collections::VecDeque;
use std::time::Duration;

use crate::config::Config;
use crate::time::Time;

/// How often a link went down of late.
#[derive(Clone, Debug, Default)]
pub(super) struct Falls {
    /// Those that were not forgotten at the last one.
    counted: VecDeque<Time>,
    /// Those of the last hour, forgotten or not.
    hour: VecDeque<Time>,
}

impl Falls {
    /// Those not forgotten.
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

    /// Adds one, and says how long the link is to stay down.
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

/// Further ones do not double the time.
const FALLS_MAX: usize = 20;
const HOUR: Duration = Duration::from_secs(3600);
