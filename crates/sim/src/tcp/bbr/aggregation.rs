//! Acknowledgements that come in bunches: how much more is acknowledged at times than the bandwidth explains. So much
//! more must be outstanding for sending to go on while none come.

/// `bbr_extra_acked_win_rtts`: two windows of so many rounds are remembered.
const WINDOW_ROUNDS: u32 = 5;
/// `bbr_ack_epoch_acked_reset_thresh`.
const EPOCH_MOST: u32 = 1 << 20;
/// `bbr_extra_acked_max_us`: no more than passes at the bandwidth in this time.
const MOST_S: f64 = 0.1;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aggregation {
    /// Since when acknowledgements have been ahead of the bandwidth, and the segments they acknowledged since.
    epoch_ns: u64,
    acknowledged: u32,
    /// The greatest excess of the present window, and of the one before.
    excess: [u32; 2],
    rounds: u32,
}

impl Aggregation {
    /// Acknowledgements are counted anew from here.
    pub fn restart(&mut self, now_ns: u64) {
        self.epoch_ns = now_ns;
        self.acknowledged = 0;
    }

    pub fn begin_round(&mut self) {
        self.rounds += 1;
        if self.rounds >= WINDOW_ROUNDS {
            self.rounds = 0;
            self.excess = [0, self.excess[0]];
        }
    }

    /// So many segments were acknowledged at `now_ns`, of a window of `window`, at a bandwidth of `pps`.
    pub fn acknowledge(&mut self, segments: u32, window: u32, pps: f64, now_ns: u64) {
        let elapsed_s = (now_ns - self.epoch_ns) as f64 / 1e9;
        let mut expected = (pps * elapsed_s) as u32;
        if self.acknowledged <= expected || self.acknowledged + segments >= EPOCH_MOST {
            self.restart(now_ns);
            expected = 0;
        }
        self.acknowledged += segments;
        let excess = (self.acknowledged - expected).min(window);
        self.excess[0] = self.excess[0].max(excess);
    }

    /// Segments to add to the window at a bandwidth of `pps`.
    pub fn excess(&self, pps: f64) -> u32 {
        let [present, before] = self.excess;
        present.max(before).min((pps * MOST_S) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn bunches_count_in_full_and_a_steady_stream_by_one_acknowledgement() {
        let (mut bunched, mut steady) = (Aggregation::default(), Aggregation::default());
        for i in 1..=100u64 {
            bunched.acknowledge(20, 1000, 1000., i * 20 * MS);
            (1..=20).for_each(|ms| steady.acknowledge(1, 1000, 1000., (20 * i + ms) * MS));
        }
        assert_eq!((bunched.excess(1000.), steady.excess(1000.)), (20, 1));
    }

    #[test]
    fn an_excess_is_forgotten_after_two_windows_and_bounded_by_a_tenth_of_a_second() {
        let mut bunched = Aggregation::default();
        bunched.acknowledge(200, 1000, 1000., MS);
        assert_eq!(bunched.excess(1000.), 100);
        (0..2 * WINDOW_ROUNDS - 1).for_each(|_| bunched.begin_round());
        assert_eq!(bunched.excess(1000.), 100);
        bunched.begin_round();
        assert_eq!(bunched.excess(1000.), 0);
    }
}
