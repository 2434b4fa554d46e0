//! HyStart++ (RFC 9406): the first slow start ends when round trips lengthen, before a buffer overflows.
//!
//! A round is the time in which a window is acknowledged; its shortest round trip is compared with that of the round
//! before. Once it is longer by a threshold, the window grows more slowly (conservative slow start, CSS) for a few
//! rounds: if round trips shorten again, the lengthening was chance and slow start goes on; if not, congestion avoidance
//! begins. Names are those of the RFC's section 4.2 in this crate's spelling.

use std::collections::VecDeque;

/// Constants of RFC 9406 section 4.3.
const MIN_RTT_THRESHOLD_NS: u64 = 4_000_000;
const MAX_RTT_THRESHOLD_NS: u64 = 16_000_000;
const MIN_RTT_DIVISOR: u64 = 8;
const RTT_SAMPLES: u32 = 8;
const CSS_GROWTH_DIVISOR: f64 = 4.;
const CSS_ROUNDS: u32 = 5;
/// L: what one acknowledgement may count for where nothing paces the sender.
const COUNTED_SEGMENTS: f64 = 8.;

/// State of a sender that never lost anything.
#[derive(Clone, Debug)]
pub(super) struct HyStart {
    /// When each outstanding segment was sent, `una` first.
    sent_ns: VecDeque<u64>,
    una: u32,
    /// The round ends when everything below is acknowledged: what was sent before its first acknowledgement came.
    window_end: Option<u32>,
    last_min_ns: Option<u64>,
    current_min_ns: Option<u64>,
    samples: u32,
    css: Option<Css>,
}

/// Conservative slow start.
#[derive(Clone, Copy, Debug)]
struct Css {
    /// The shortest round trip of the round that began it.
    baseline_ns: u64,
    /// Completed, the first of them perhaps in part.
    rounds: u32,
}

impl HyStart {
    /// Of a sender that is about to send `first`.
    pub fn new(first: u32) -> Self {
        HyStart {
            sent_ns: VecDeque::new(),
            una: first,
            window_end: None,
            last_min_ns: None,
            current_min_ns: None,
            samples: 0,
            css: None,
        }
    }

    /// The next segment is sent.
    pub fn send(&mut self, now_ns: u64) {
        self.sent_ns.push_back(now_ns);
    }

    /// What an acknowledgement that counts for `units` adds to the window.
    pub fn increase(&self, units: f64) -> f64 {
        let counted = units.min(COUNTED_SEGMENTS);
        match self.css {
            None => counted,
            Some(_) => counted / CSS_GROWTH_DIVISOR,
        }
    }

    /// Everything below `ack` is acknowledged, something of it for the first time; `next` is sent next. Returns whether
    /// slow start is over.
    pub fn acknowledge(&mut self, ack: u32, next: u32, now_ns: u64) -> bool {
        let acked = (ack - self.una) as usize;
        let newest_ns = self.sent_ns.drain(..acked).next_back();
        if let Some(sent_ns) = newest_ns {
            self.sample(now_ns - sent_ns);
        }
        self.una = ack;
        let window_end = *self.window_end.get_or_insert(next);
        ack >= window_end && self.end_round()
    }

    fn sample(&mut self, rtt_ns: u64) {
        let current_ns = self.current_min_ns.map_or(rtt_ns, |min| min.min(rtt_ns));
        self.current_min_ns = Some(current_ns);
        self.samples += 1;
        if self.samples < RTT_SAMPLES {
            return;
        }
        match (self.css, self.last_min_ns) {
            (Some(css), _) if current_ns < css.baseline_ns => self.css = None,
            (None, Some(last_ns)) if current_ns >= last_ns + threshold_ns(last_ns) => {
                self.css = Some(Css {
                    baseline_ns: current_ns,
                    rounds: 0,
                });
            }
            _ => {}
        }
    }

    fn end_round(&mut self) -> bool {
        self.window_end = None;
        self.last_min_ns = self.current_min_ns.take();
        self.samples = 0;
        let Some(css) = &mut self.css else {
            return false;
        };
        css.rounds += 1;
        css.rounds == CSS_ROUNDS
    }
}

/// By how much a round's shortest round trip must exceed the last one's.
fn threshold_ns(last_ns: u64) -> u64 {
    (last_ns / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESHOLD_NS, MAX_RTT_THRESHOLD_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const WINDOW: u32 = 10;

    /// Rounds of [`WINDOW`] segments, each sent when the round before is acknowledged.
    struct Rounds {
        state: HyStart,
        next: u32,
        now_ns: u64,
    }

    impl Rounds {
        fn new() -> Self {
            Rounds {
                state: HyStart::new(1),
                next: 1,
                now_ns: 0,
            }
        }

        /// A round whose segments are acknowledged one by one after `rtt_ms`, the first of them after `first_ms`.
        fn round(&mut self, first_ms: u64, rtt_ms: u64) -> bool {
            for _ in 0..WINDOW {
                self.state.send(self.now_ns);
            }
            let (first, sent_ns) = (self.next, self.now_ns);
            self.next += WINDOW;
            let mut over = false;
            for number in first..self.next {
                let rtt_ms = if number == first { first_ms } else { rtt_ms };
                self.now_ns = sent_ns + rtt_ms * MS;
                over |= self.state.acknowledge(number + 1, self.next, self.now_ns);
            }
            over
        }

        fn is_conservative(&self) -> bool {
            self.state.css.is_some()
        }
    }

    #[test]
    fn the_threshold_is_an_eighth_of_the_last_round_between_its_bounds() {
        for (last_ms, threshold_ms) in [(8, 4), (32, 4), (64, 8), (128, 16), (800, 16)] {
            assert_eq!(threshold_ns(last_ms * MS), threshold_ms * MS);
        }
    }

    #[test]
    fn a_round_longer_by_the_threshold_begins_conservative_slow_start() {
        let mut short = Rounds::new();
        assert!(!short.round(80, 80) && !short.round(89, 89));
        assert!(!short.is_conservative(), "80 + 9 ms is below 80 + 10 ms");
        let mut long = Rounds::new();
        assert!(!long.round(80, 80) && !long.round(90, 90));
        assert!(long.is_conservative());
    }

    #[test]
    fn one_short_round_trip_among_long_ones_keeps_slow_start() {
        let mut rounds = Rounds::new();
        assert!(!rounds.round(80, 80) && !rounds.round(81, 120));
        assert!(!rounds.is_conservative());
    }

    #[test]
    fn fewer_than_eight_samples_decide_nothing() {
        let mut state = HyStart::new(1);
        for _ in 0..20 {
            state.send(0);
        }
        // The first round has one sample, of 10 ms.
        assert!(!state.acknowledge(3, 3, 10 * MS));
        for number in 3..10 {
            assert!(!state.acknowledge(number + 1, 21, 100 * MS));
            assert!(state.css.is_none(), "sample {} of the round", number - 2);
        }
        assert!(!state.acknowledge(11, 21, 100 * MS));
        assert!(state.css.is_some(), "the eighth");
    }

    #[test]
    fn the_window_grows_by_a_quarter_and_no_acknowledgement_counts_for_more_than_eight() {
        let mut rounds = Rounds::new();
        assert_eq!(rounds.state.increase(2.), 2.);
        assert_eq!(rounds.state.increase(12.), 8.);
        rounds.round(80, 80);
        rounds.round(90, 90);
        assert_eq!(rounds.state.increase(2.), 0.5);
        assert_eq!(rounds.state.increase(12.), 2.);
    }

    #[test]
    fn slow_start_goes_on_when_round_trips_shorten_again() {
        let mut rounds = Rounds::new();
        rounds.round(80, 80);
        rounds.round(90, 90);
        assert!(!rounds.round(90, 90) && rounds.is_conservative());
        assert!(!rounds.round(89, 89));
        assert!(!rounds.is_conservative());
    }

    #[test]
    fn five_rounds_of_conservative_slow_start_end_it() {
        let mut rounds = Rounds::new();
        rounds.round(80, 80);
        let over: Vec<bool> = (0..5).map(|_| rounds.round(95, 95)).collect();
        assert_eq!(over, [false, false, false, false, true]);
    }
}
