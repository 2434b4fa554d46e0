//! The retransmission timeout, RFC 6298.

use super::TcpConfig;

const INITIAL_NS: u64 = 1_000_000_000;
/// After a lost SYN, RFC 6298 section 5.7.
const AFTER_LOST_SYN_NS: u64 = 3_000_000_000;
const MAX_NS: u64 = 60_000_000_000;
/// G of RFC 6298: virtual time has no ticks, so the variance term has only this floor.
const GRANULARITY_NS: u64 = 1;

/// What is known of the round trip, and the timeout that follows.
#[derive(Clone, Copy, Debug)]
pub struct RetransmissionTimeout {
    /// Zero before the first sample.
    srtt_ns: u64,
    rttvar_ns: u64,
    base_ns: u64,
    backoffs: u32,
    doublings: u32,
}

impl Default for RetransmissionTimeout {
    fn default() -> Self {
        RetransmissionTimeout {
            srtt_ns: 0,
            rttvar_ns: 0,
            base_ns: INITIAL_NS,
            backoffs: 0,
            doublings: 0,
        }
    }
}

impl RetransmissionTimeout {
    /// Takes a round trip of a segment that was sent once (Karn), section 2. It alone ends the doubling (section 5): where
    /// the round trip has outgrown the timeout, everything is sent twice and acknowledged, but nothing is measured.
    pub fn sample(&mut self, rtt_ns: u64, config: &TcpConfig) {
        if self.srtt_ns == 0 {
            self.srtt_ns = rtt_ns.max(1);
            self.rttvar_ns = rtt_ns / 2;
        } else {
            self.rttvar_ns = (3 * self.rttvar_ns + self.srtt_ns.abs_diff(rtt_ns)) / 4;
            self.srtt_ns = (7 * self.srtt_ns + rtt_ns) / 8;
        }
        let timeout_ns = self.srtt_ns + GRANULARITY_NS.max(4 * self.rttvar_ns);
        self.base_ns = timeout_ns.clamp(config.min_rto_ns, MAX_NS);
        self.doublings = 0;
    }

    /// Doubles the timeout, section 5.5.
    pub fn back_off(&mut self) {
        self.backoffs += 1;
        self.doublings += 1;
    }

    /// Something new was acknowledged: the other end is there, though the timeout stays as long as it is.
    pub fn progress(&mut self) {
        self.backoffs = 0;
    }

    /// After a lost SYN it starts from 3 s (RFC 6298 section 5.7).
    pub fn lose_syn(&mut self) {
        self.base_ns = AFTER_LOST_SYN_NS;
        self.doublings = 0;
    }

    /// Timeouts in a row, since something new was acknowledged.
    pub fn backoffs(&self) -> u32 {
        self.backoffs
    }

    /// Whether no round trip was measured since a segment counted as lost.
    pub fn is_doubled(&self) -> bool {
        self.doublings > 0
    }

    /// Smoothed round trip; 0 before the first.
    pub fn smoothed_ns(&self) -> u64 {
        self.srtt_ns
    }

    /// How long until a segment counts as lost, backed off.
    pub fn current_ns(&self) -> u64 {
        (self.base_ns << self.doublings.min(6)).min(MAX_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn config(min_rto_ns: u64) -> TcpConfig {
        TcpConfig {
            min_rto_ns,
            ..TcpConfig::default()
        }
    }

    #[test]
    fn samples_follow_the_equations_of_section_2() {
        let mut timeout = RetransmissionTimeout::default();
        assert_eq!(timeout.current_ns(), 1000 * MS);
        timeout.sample(100 * MS, &config(0));
        assert_eq!(timeout.current_ns(), 300 * MS); // 100 + 4 · 50
        timeout.sample(140 * MS, &config(0));
        // RTTVAR = 3/4 · 50 + 1/4 · 40 = 47.5, SRTT = 7/8 · 100 + 1/8 · 140 = 105
        assert_eq!(timeout.current_ns(), 295 * MS);
        timeout.sample(105 * MS, &config(0));
        assert_eq!(timeout.current_ns(), 247 * MS + MS / 2);
    }

    #[test]
    fn it_stays_between_its_minimum_and_sixty_seconds() {
        let mut timeout = RetransmissionTimeout::default();
        timeout.sample(MS, &config(200 * MS));
        assert_eq!(timeout.current_ns(), 200 * MS);
        for expected_ms in [400, 800, 1600, 3200, 6400, 12_800] {
            timeout.back_off();
            assert_eq!(timeout.current_ns(), expected_ms * MS);
        }
        timeout.sample(30_000 * MS, &config(200 * MS));
        timeout.back_off();
        assert_eq!(timeout.current_ns(), 60_000 * MS);
    }

    #[test]
    fn a_round_trip_ends_the_doubling_and_an_acknowledgement_does_not() {
        let mut timeout = RetransmissionTimeout::default();
        timeout.sample(MS, &config(200 * MS));
        timeout.back_off();
        timeout.back_off();
        timeout.progress();
        assert_eq!((timeout.backoffs(), timeout.current_ns()), (0, 800 * MS));
        timeout.sample(MS, &config(200 * MS));
        assert_eq!(timeout.current_ns(), 200 * MS);
        timeout.back_off();
        timeout.lose_syn();
        assert_eq!(timeout.current_ns(), 3000 * MS);
    }
}
