//! Round trips to a fixed node over one link, back to back: the next begins when the last has ended (Peng 2005, ΔT).
//!
//! One that is not answered within [`PATIENCE`] has taken so long. Reads no clock and sends nothing: [`Rounds::next_probe`] says
//! what to send.

use std::time::Duration;

use crate::targets::ProbeId;
use crate::time::Time;

/// As Guo 2004 §III-B waits for a probe of latency.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// From one question to the next, however near the node is, on a link that is not metered.
pub const PACE: Duration = Duration::from_millis(20);

/// The round trips over one link.
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    pace: Duration,
    sent: u64,
    /// What was asked, when, and has not been answered.
    asked: Option<(ProbeId, Time)>,
    /// Not before.
    due: Time,
    last: Option<Duration>,
}

impl Rounds {
    /// From one question to the next at least `pace`.
    pub fn new(pace: Duration) -> Rounds {
        Rounds {
            pace,
            sent: 0,
            asked: None,
            due: Time::ZERO,
            last: None,
        }
    }

    /// Goes on as the same link's after another configuration, at the pace of this.
    pub fn succeed(&mut self, before: Rounds) {
        *self = Rounds {
            pace: self.pace,
            ..before
        };
    }

    /// Questions, since the beginning.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Of the last one that has ended.
    pub fn last(&self) -> Option<Duration> {
        self.last
    }

    /// The question to send at `now`, if its time has come, and when its answer is given up.
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

    /// Whether this ends a measurement: answers to former questions do not.
    pub fn answer(&mut self, id: ProbeId, round_trip: Duration) -> bool {
        let is_awaited = self.asked.is_some_and(|(asked, _)| asked == id);
        if is_awaited {
            self.end(round_trip);
        }
        is_awaited
    }

    /// Whether patience ends, and with it a measurement.
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
