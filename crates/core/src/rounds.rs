//! Round trips to a fixed node over one link, back to back: each probe is sent when the answer to the last one has come (Peng 2005,
//! ΔT).
//!
//! A probe without an answer after [`PATIENCE`] counts as a round trip of that length. This module reads no clock and sends
//! nothing: [`Rounds::next_probe`] returns the probe to send.

use std::time::Duration;

use crate::targets::ProbeId;
use crate::time::Time;

/// How long an answer may take; the time that Guo 2004 §III-B allows for a latency probe.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// Least time between two probes on a link that is not metered, however near the node is.
pub const PACE: Duration = Duration::from_millis(20);

/// The measurement over one link.
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    pace: Duration,
    sent: u64,
    /// The probe that is not answered yet, and when it was sent.
    asked: Option<(ProbeId, Time)>,
    /// Earliest time of the next probe.
    due: Time,
    last: Option<Duration>,
}

impl Rounds {
    /// `pace` is the least time between two probes.
    pub fn new(pace: Duration) -> Rounds {
        Rounds {
            pace,
            sent: 0,
            asked: None,
            due: Time::ZERO,
            last: None,
        }
    }

    /// Takes over the results of the same link under the former configuration. The pace stays the new one.
    pub fn succeed(&mut self, before: Rounds) {
        *self = Rounds {
            pace: self.pace,
            ..before
        };
    }

    /// Probes since the start.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The last round trip.
    pub fn last(&self) -> Option<Duration> {
        self.last
    }

    /// The probe to send at `now` if one is due, and the time at which it counts as lost.
    pub fn next_probe(&mut self, now: Time) -> Option<(ProbeId, Time)> {
        if self.probe_due().is_none_or(|due| due > now) {
            return None;
        }
        let id = ProbeId(self.sent);
        self.sent += 1;
        self.asked = Some((id, now));
        self.due = now + self.pace;
        Some((id, now + PATIENCE))
    }

    /// When to call [`Rounds::next_probe`].
    pub fn probe_due(&self) -> Option<Time> {
        self.asked.is_none().then_some(self.due)
    }

    /// Reports an answer. Returns whether it ends a measurement: late answers to former probes do not.
    pub fn answer(&mut self, id: ProbeId, round_trip: Duration) -> bool {
        let is_awaited = self.asked.is_some_and(|(asked, _)| asked == id);
        if is_awaited {
            self.end(round_trip);
        }
        is_awaited
    }

    /// Returns whether the probe has waited too long by now, which ends a measurement.
    pub fn tick(&mut self, now: Time) -> bool {
        let is_over = self.timeout().is_some_and(|at| at <= now);
        if is_over {
            self.end(PATIENCE);
        }
        is_over
    }

    /// When to call [`Rounds::tick`].
    pub fn timeout(&self) -> Option<Time> {
        self.asked.map(|(_, sent)| sent + PATIENCE)
    }

    fn end(&mut self, round_trip: Duration) {
        self.asked = None;
        self.last = Some(round_trip);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_next_begins_when_the_last_has_ended_but_no_sooner_than_the_pace() {
        let mut rounds = Rounds::new(PACE);
        let start = Time::ZERO;
        let (first, _) = rounds.next_probe(start).unwrap();
        assert_eq!(rounds.next_probe(start + PACE), None, "not answered yet");
        assert!(rounds.answer(first, MS * 5));
        assert_eq!(rounds.last(), Some(MS * 5));
        assert_eq!(rounds.probe_due(), Some(start + PACE));
        assert_eq!(rounds.next_probe(start + MS * 5), None, "too soon");
        let (second, _) = rounds.next_probe(start + PACE).unwrap();
        assert!(rounds.answer(second, MS * 500));
        assert!(rounds.next_probe(start + MS * 520).is_some());
    }

    #[test]
    fn what_is_not_answered_in_time_has_taken_as_long_as_patience_lasts() {
        let mut rounds = Rounds::new(PACE);
        let (lost, deadline) = rounds.next_probe(Time::ZERO).unwrap();
        assert!(!rounds.tick(Time::ZERO + PATIENCE / 2));
        assert!(rounds.tick(deadline));
        assert_eq!(rounds.last(), Some(PATIENCE));
        assert!(!rounds.answer(lost, PATIENCE * 2), "it was given up");
    }
}
