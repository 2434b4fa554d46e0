//! HyStart as Linux has it (Ha and Rhee, "Taming the elephants: new TCP slow start", 2011; `net/ipv4/tcp_cubic.c`): the
//! first slow start ends at once when acknowledgements come in a train as long as half the shortest round trip, or when
//! round trips lengthen.

use std::collections::VecDeque;

/// From this window on, in segments (`hystart_low_window`).
const LEAST_WINDOW: f64 = 16.;
/// Acknowledgements no further apart are one train (`hystart_ack_delta_us`).
const APART_NS: u64 = 2_000_000;
/// What a train may last longer for the sake of segments sent together, at less than 2 Gbit/s (`hystart_ack_delay`).
const TOGETHER_NS: u64 = 1_000_000;
/// Round trips of a round before the shortest of them counts.
const SAMPLES: u32 = 8;
/// By how much it must exceed the shortest of all: an eighth of that, within bounds.
const DELAY_DIVISOR: u64 = 8;
const LEAST_DELAY_NS: u64 = 4_000_000;
const MOST_DELAY_NS: u64 = 16_000_000;

/// State of a sender that never lost anything.
#[derive(Clone, Debug)]
pub(super) struct Trains {
    /// When each outstanding segment was sent, `una` first.
    sent_ns: VecDeque<u64>,
    una: u32,
    /// The round ends when something beyond is acknowledged.
    round_end: u32,
    round_start_ns: u64,
    /// When the last acknowledgement of the train came that began the round.
    train_ns: u64,
    round_least_ns: u64,
    samples: u32,
    least_ns: u64,
}

impl Trains {
    /// Of a sender that is about to send `first`.
    pub fn new(first: u32) -> Self {
        Trains {
            sent_ns: VecDeque::new(),
            una: first,
            round_end: first,
            round_start_ns: 0,
            train_ns: 0,
            round_least_ns: u64::MAX,
            samples: 0,
            least_ns: u64::MAX,
        }
    }

    /// The shortest round trip, `u64::MAX` before the first.
    pub fn least_ns(&self) -> u64 {
        self.least_ns
    }

    /// The next segment is sent.
    pub fn send(&mut self, now_ns: u64) {
        self.sent_ns.push_back(now_ns);
    }

    /// Everything below `ack` is acknowledged, something of it for the first time; `next` is sent next. Returns whether
    /// slow start is over, of a window of `cwnd` segments whose sender is `paced` or not.
    pub fn acknowledge(
        &mut self,
        ack: u32,
        next: u32,
        now_ns: u64,
        cwnd: f64,
        paced: bool,
    ) -> bool {
        let acked = (ack - self.una) as usize;
        let newest_ns = self.sent_ns.drain(..acked).next_back();
        self.una = ack;
        let Some(rtt_ns) = newest_ns.map(|sent_ns| now_ns - sent_ns) else {
            return false;
        };
        self.least_ns = self.least_ns.min(rtt_ns);
        if cwnd < LEAST_WINDOW {
            return false;
        }
        if ack > self.round_end {
            self.begin_round(next, now_ns);
        }
        self.is_long(now_ns, paced) || self.is_late(rtt_ns)
    }

    fn begin_round(&mut self, next: u32, now_ns: u64) {
        self.round_end = next;
        self.round_start_ns = now_ns;
        self.train_ns = now_ns;
        self.round_least_ns = u64::MAX;
        self.samples = 0;
    }

    /// Whether the train has lasted too long. Pacing spreads it over half a round trip by itself.
    fn is_long(&mut self, now_ns: u64, paced: bool) -> bool {
        if now_ns - self.train_ns > APART_NS {
            return false;
        }
        self.train_ns = now_ns;
        let whole_ns = self.least_ns + TOGETHER_NS;
        let most_ns = if paced { whole_ns } else { whole_ns / 2 };
        now_ns - self.round_start_ns > most_ns
    }

    fn is_late(&mut self, rtt_ns: u64) -> bool {
        self.round_least_ns = self.round_least_ns.min(rtt_ns);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        let longer_ns = (self.least_ns / DELAY_DIVISOR).clamp(LEAST_DELAY_NS, MOST_DELAY_NS);
        self.round_least_ns > self.least_ns + longer_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const RTT_MS: u64 = 40;

    /// A window of 40 after a round trip of 40 ms; then, after `rtt_ms`, one acknowledgement every `apart_ms`. After how
    /// many of these slow start is over, if it is.
    fn over_after(rtt_ms: u64, apart_ms: u64, paced: bool) -> Option<u64> {
        let mut state = Trains::new(1);
        (0..41).for_each(|_| state.send(0));
        assert!(!state.acknowledge(2, 42, RTT_MS * MS, 40., paced));
        state.begin_round(1, 0);
        let ends = |i: &u64| {
            let now_ns = (RTT_MS + rtt_ms + apart_ms * i) * MS;
            *state.sent_ns.front_mut().expect("one is outstanding") = now_ns - rtt_ms * MS;
            state.acknowledge(3 + *i as u32, 82, now_ns, 40., paced)
        };
        (0..40).find(ends)
    }

    #[test]
    fn a_train_of_half_the_shortest_round_trip_ends_slow_start() {
        assert_eq!(over_after(RTT_MS, 1, false), Some(21));
        assert_eq!(over_after(RTT_MS, 2, false), Some(11));
        assert_eq!(over_after(RTT_MS, 2, true), Some(21));
        assert_eq!(over_after(RTT_MS, 3, false), None);
    }

    #[test]
    fn round_trips_longer_by_an_eighth_end_it_with_the_ninth_of_a_round() {
        assert_eq!(over_after(RTT_MS + 5, 3, false), None);
        assert_eq!(over_after(RTT_MS + 6, 3, false), Some(8));
    }

    #[test]
    fn small_windows_are_left_alone() {
        let mut state = Trains::new(1);
        (0..15).for_each(|_| state.send(0));
        let over = |number: u32| {
            let now_ns = (RTT_MS + 10 * u64::from(number)) * MS;
            state.acknowledge(number + 1, 16, now_ns, 15., false)
        };
        assert!(!(1..=15).any(over));
    }
}
