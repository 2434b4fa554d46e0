use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::Direction;

/// What the gateway believes of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// It carries packets.
    #[default]
    Up,
    /// It may have failed.
    Suspect,
    /// It answers, and carries nothing of what users begin.
    Captive,
    /// It is given up.
    Down,
}

impl LinkState {
    /// As in tables.
    pub fn name(self) -> &'static str {
        match self {
            LinkState::Up => "up",
            LinkState::Suspect => "suspect",
            LinkState::Captive => "captive",
            LinkState::Down => "down",
        }
    }
}

/// What is known of a link at one instant; counters run from wherever they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkReading {
    /// Bytes from the internet to the users.
    pub down_bytes: u64,
    /// Bytes from the users to the internet.
    pub up_bytes: u64,
    /// Flows that began on the link.
    pub opened: u64,
    /// Flows alive on the link.
    pub flows: u64,
    /// What the gateway believes at that instant.
    pub state: LinkState,
}

/// A link at one instant, and its mean rates since the sample before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSample {
    /// Since the epoch of the run.
    pub t_s: f64,
    /// Bytes from the internet to the users since the first sample.
    pub down_bytes: u64,
    /// Bytes from the users to the internet since the first sample.
    pub up_bytes: u64,
    /// Bit/s from the internet to the users.
    pub down_bps: f64,
    /// Bit/s from the users to the internet.
    pub up_bps: f64,
    /// What the gateway believes at that instant.
    pub state: LinkState,
    /// Flows alive on the link; 0 on a sublink of a trunk, which does not see them end.
    pub flows: u64,
    /// Flows that began on the link since the first sample. On a sublink of a trunk these are TCP segments with SYN: each
    /// connection sends one in the trunk's direction, and another for each that it thinks lost.
    pub opened: u64,
}

impl LinkSample {
    /// In one direction since the first sample.
    pub fn bytes(&self, direction: Direction) -> u64 {
        match direction {
            Direction::Down => self.down_bytes,
            Direction::Up => self.up_bytes,
        }
    }
}

/// A link over time.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSeries {
    /// As in the scenario.
    pub name: String,
    /// Capacity in each direction.
    pub down_rate_bps: u64,
    /// Towards the internet.
    pub up_rate_bps: u64,
    /// In the order of time.
    pub samples: Vec<LinkSample>,
    #[serde(skip)]
    origin: Option<LinkReading>,
}

impl PartialEq for LinkSeries {
    /// The zero of the counters is not part of what was seen.
    fn eq(&self, other: &LinkSeries) -> bool {
        let seen = |series: &LinkSeries| (series.down_rate_bps, series.up_rate_bps);
        self.name == other.name && seen(self) == seen(other) && self.samples == other.samples
    }
}

impl LinkSeries {
    /// A series without samples.
    pub fn new(name: impl Into<String>, down_rate_bps: u64, up_rate_bps: u64) -> LinkSeries {
        LinkSeries {
            name: name.into(),
            down_rate_bps,
            up_rate_bps,
            samples: Vec::new(),
            origin: None,
        }
    }

    /// Appends a sample. The first call sets the zero of the counters; a counter that went backwards (its owner
    /// restarted) adds nothing.
    pub fn push(&mut self, t_s: f64, reading: LinkReading) {
        let zero = *self.origin.get_or_insert(reading);
        let last = self.samples.last();
        let (last_t, last_down, last_up, last_opened) = last.map_or((t_s, 0, 0, 0), |s| {
            (s.t_s, s.down_bytes, s.up_bytes, s.opened)
        });
        let since = |counter: u64, zero: u64, last: u64| counter.saturating_sub(zero).max(last);
        let down_bytes = since(reading.down_bytes, zero.down_bytes, last_down);
        let up_bytes = since(reading.up_bytes, zero.up_bytes, last_up);
        let seconds = t_s - last_t;
        let rate = |bytes: u64| {
            if seconds > 0.0 {
                bytes as f64 * 8.0 / seconds
            } else {
                0.0
            }
        };
        let (down_bps, up_bps) = (rate(down_bytes - last_down), rate(up_bytes - last_up));
        self.samples.push(LinkSample {
            t_s,
            down_bytes,
            up_bytes,
            down_bps,
            up_bps,
            state: reading.state,
            flows: reading.flows,
            opened: since(reading.opened, zero.opened, last_opened),
        });
    }

    /// Intervals of constant state: (from_s, to_s, state). The last one ends at the last sample.
    pub fn states(&self) -> Vec<(f64, f64, LinkState)> {
        let mut spans: Vec<(f64, f64, LinkState)> = Vec::new();
        for sample in &self.samples {
            match spans.last_mut() {
                Some(span) if span.2 == sample.state => span.1 = sample.t_s,
                Some(span) => {
                    span.1 = sample.t_s;
                    spans.push((sample.t_s, sample.t_s, sample.state));
                }
                None => spans.push((sample.t_s, sample.t_s, sample.state)),
            }
        }
        spans
    }

    /// Capacity in one direction.
    pub fn rate_bps(&self, direction: Direction) -> u64 {
        match direction {
            Direction::Down => self.down_rate_bps,
            Direction::Up => self.up_rate_bps,
        }
    }

    /// Bytes in one direction from the first sample to the last.
    pub fn bytes(&self, direction: Direction) -> u64 {
        let last = self.samples.last();
        last.map_or(0, |last| last.bytes(direction))
    }

    /// As [`LinkSeries::bps_in_bins`], towards the users.
    pub fn down_bps_in_bins(&self, from_s: f64, to_s: f64, bins: usize) -> Vec<f64> {
        self.bps_in_bins(Direction::Down, from_s..to_s, bins)
    }

    /// Mean rate in one direction in each of `bins` equal intervals of a span in seconds, from bytes interpolated between
    /// samples, so that bytes are conserved whatever the sampling times.
    pub fn bps_in_bins(&self, direction: Direction, span_s: Range<f64>, bins: usize) -> Vec<f64> {
        let width_s = (span_s.end - span_s.start) / bins as f64;
        let edge = |bin: usize| self.bytes_at(direction, span_s.start + width_s * bin as f64);
        (0..bins)
            .map(|bin| (edge(bin + 1) - edge(bin)) * 8.0 / width_s)
            .collect()
    }

    /// Bytes since the first sample at `t_s`: linear between samples, constant outside of them.
    fn bytes_at(&self, direction: Direction, t_s: f64) -> f64 {
        let bytes = |sample: &LinkSample| sample.bytes(direction) as f64;
        let after = self.samples.partition_point(|sample| sample.t_s < t_s);
        let Some(left) = after.checked_sub(1).map(|before| &self.samples[before]) else {
            return 0.0;
        };
        let Some(right) = self.samples.get(after) else {
            return bytes(left);
        };
        let share = (t_s - left.t_s) / (right.t_s - left.t_s);
        bytes(left) + share * (bytes(right) - bytes(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(down_bytes: u64, up_bytes: u64) -> LinkReading {
        LinkReading {
            down_bytes,
            up_bytes,
            ..LinkReading::default()
        }
    }

    #[test]
    fn rates_are_the_difference_of_counters_over_the_time_between_samples() {
        let mut series = LinkSeries::new("fiber", 1, 1);
        series.push(1.0, reading(1_000, 500));
        series.push(1.5, reading(2_000, 600));
        assert_eq!(series.samples[0].down_bps, 0.0);
        assert_eq!(series.samples[1].down_bytes, 1_000);
        assert_eq!(
            (series.samples[1].down_bps, series.samples[1].up_bps),
            (16_000.0, 1_600.0)
        );
    }

    #[test]
    fn bins_conserve_bytes_whatever_their_width() {
        let mut series = LinkSeries::new("fiber", 1, 1);
        for (t_s, counter) in [(0.0, 7), (0.9, 1_007), (2.1, 5_007), (3.0, 9_007)] {
            series.push(t_s, reading(counter, counter / 9));
        }
        for (direction, bytes) in [(Direction::Down, 9_000.0), (Direction::Up, 1_000.0)] {
            for bins in [1, 3, 7] {
                let rates = series.bps_in_bins(direction, -1.0..5.0, bins);
                let bits: f64 = rates.iter().map(|bps| bps * 6.0 / bins as f64).sum();
                assert!(
                    (bits - bytes * 8.0).abs() < 1e-6,
                    "{bins} bins carry {bits} bits"
                );
            }
        }
    }

    #[test]
    fn a_counter_that_restarts_adds_nothing_until_it_catches_up() {
        let mut series = LinkSeries::new("fiber", 1, 1);
        for (t_s, counter) in [(0.0, 7), (1.0, 107), (2.0, 5), (3.0, 157)] {
            let opened = counter;
            let reading = reading(counter, 0);
            series.push(t_s, LinkReading { opened, ..reading });
        }
        let samples = series.samples.iter();
        let counted: Vec<_> = samples.map(|s| (s.down_bytes, s.opened)).collect();
        assert_eq!(
            counted,
            [0, 100, 100, 150].map(|counted| (counted, counted))
        );
    }

    #[test]
    fn states_join_equal_neighbours_and_leave_no_gap() {
        use LinkState::*;
        let mut series = LinkSeries::new("fiber", 1, 1);
        for (t_s, state) in [
            (0.0, Up),
            (1.0, Up),
            (2.0, Suspect),
            (3.0, Down),
            (4.0, Down),
        ] {
            let reading = LinkReading::default();
            series.push(t_s, LinkReading { state, ..reading });
        }
        assert_eq!(
            series.states(),
            [(0.0, 2.0, Up), (2.0, 3.0, Suspect), (3.0, 4.0, Down)]
        );
    }
}
