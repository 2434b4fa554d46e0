//! When a segment may leave, as Linux paces where no queueing discipline does it (`tcp_output.c`).
//!
//! Segments leave in bursts of about a millisecond's worth; the next burst waits until the last would have passed at
//! the pacing rate. Whoever was late, for want of a window, catches up by half of each burst at most.

use super::bbr::{Ack, Bbr};
use super::burst::{BURST_LEAST, burst};
use super::control::Window;
use super::{Control, TcpConfig};

/// So many segments of a connection leave unpaced, `tcp_update_skb_after_send`.
const UNPACED: u32 = 9;
/// `net.ipv4.tcp_pacing_ss_ratio` and `tcp_pacing_ca_ratio`.
const SLOW_START_GAIN: f64 = 2.;
const AVOIDANCE_GAIN: f64 = 1.2;

/// What a sender has whose segments have a time.
#[derive(Debug)]
pub struct Paced {
    pacer: Pacer,
    bbr: Option<Bbr>,
}

impl Paced {
    /// If the configuration paces; `seed` is for BBR's draws, `first` the first segment.
    pub fn new(config: &TcpConfig, first: u32, seed: u64) -> Option<Box<Paced>> {
        let bbr = config.control == Control::Bbr;
        (config.pacing || bbr).then(|| {
            Box::new(Paced {
                pacer: Pacer::default(),
                bbr: bbr.then(|| Bbr::new(first, seed)),
            })
        })
    }

    /// Whether a segment may leave now. If not, [`Paced::held_until_ns`] says when.
    pub fn may_send(&mut self, now_ns: u64) -> bool {
        self.pacer.may_send(now_ns)
    }

    /// When the segment may leave that was held back last; `u64::MAX` if another has left since.
    #[inline]
    pub fn held_until_ns(&self) -> u64 {
        if self.pacer.holds {
            self.pacer.next_ns
        } else {
            u64::MAX
        }
    }

    /// `sent` leaves.
    pub fn send(&mut self, sent: &Sent, window: &Window, now_ns: u64, config: &TcpConfig) {
        if self.pacer.sent == 0 {
            self.start(window, sent.srtt_ns, now_ns);
        }
        let least = match &mut self.bbr {
            None => BURST_LEAST,
            Some(bbr) => {
                bbr.send(sent.number, sent.from_idle, now_ns);
                bbr.least_burst(config)
            }
        };
        let share = f64::from(sent.payload_bytes) / f64::from(config.mss_bytes);
        let burst = burst(self.pacer.rate_pps, least, config);
        self.pacer.send(share, burst, now_ns);
        if let Some(bbr) = &self.bbr {
            self.pacer.rate_pps = bbr.pacing_rate_pps();
        }
    }

    fn start(&mut self, window: &Window, srtt_ns: u64, now_ns: u64) {
        match &mut self.bbr {
            None => self.pacer.rate_pps = window_rate_pps(window, 0, srtt_ns),
            Some(bbr) => {
                bbr.start(window.cwnd() as u32, srtt_ns, now_ns);
                self.pacer.rate_pps = bbr.pacing_rate_pps();
            }
        }
    }

    /// The application has written while nothing waited to be sent and the window had room.
    pub fn limit_by_application(&mut self, in_flight: u32) {
        if let Some(bbr) = &mut self.bbr {
            bbr.limit_by_application(in_flight);
        }
    }

    /// A segment arrived, as the peer says selectively.
    #[inline(never)]
    pub fn arrive(&mut self, number: u32, now_ns: u64) {
        if let Some(bbr) = &mut self.bbr {
            bbr.arrive(number, now_ns);
        }
    }

    /// After everything that an acknowledgement says was taken in.
    pub fn acknowledge(&mut self, ack: &Ack, window: &mut Window, config: &TcpConfig) {
        match &mut self.bbr {
            None => self.pacer.rate_pps = window_rate_pps(window, ack.outstanding, ack.srtt_ns),
            Some(bbr) => {
                let departs_ns = self.pacer.next_ns.max(ack.now_ns);
                window.set(f64::from(bbr.acknowledge(ack, departs_ns, config)));
                self.pacer.rate_pps = bbr.pacing_rate_pps();
            }
        }
    }

    /// The retransmission timer ran out, and `lost` segments were lost so far.
    pub fn time_out(&mut self, lost: u32, window: &mut Window, config: &TcpConfig) {
        if let Some(bbr) = &mut self.bbr {
            window.set(f64::from(bbr.time_out(lost, config)));
        }
    }
}

/// A segment that leaves.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub number: u32,
    pub payload_bytes: u32,
    /// Whether nothing else was in the network.
    pub from_idle: bool,
    /// 0 before the first round trip.
    pub srtt_ns: u64,
}

/// How fast Linux paces Reno and CUBIC, in segments per second (`tcp_update_pacing_rate`); infinite before the first
/// round trip.
fn window_rate_pps(window: &Window, outstanding: u32, srtt_ns: u64) -> f64 {
    let gain = if window.cwnd() < window.ssthresh() / 2. {
        SLOW_START_GAIN
    } else {
        AVOIDANCE_GAIN
    };
    gain * window.cwnd().max(f64::from(outstanding)) * 1e9 / srtt_ns as f64
}

/// The clock of one sender's departures.
#[derive(Clone, Debug, Default)]
struct Pacer {
    rate_pps: f64,
    /// When the next burst may begin.
    next_ns: u64,
    /// When the present one began, and the segments that may yet leave with it.
    burst_ns: u64,
    burst_left: u32,
    /// How late the present burst began, as far as it was not made up for.
    late_ns: u64,
    /// Segments, as far as they are unpaced.
    sent: u32,
    /// Whether a segment was held back, and none has left since.
    holds: bool,
}

impl Pacer {
    fn may_send(&mut self, now_ns: u64) -> bool {
        self.holds = now_ns < self.next_ns && (now_ns != self.burst_ns || self.burst_left == 0);
        !self.holds
    }

    /// A segment leaves that is `share` of a full one, perhaps with the others of a burst of `burst`.
    fn send(&mut self, share: f64, burst: u32, now_ns: u64) {
        self.holds = false;
        if self.sent < UNPACED {
            self.sent += 1;
            self.next_ns = now_ns;
            return;
        }
        if now_ns >= self.next_ns {
            self.late_ns = now_ns - self.next_ns;
            self.next_ns = now_ns;
            self.burst_ns = now_ns;
            self.burst_left = burst;
        }
        self.burst_left = self.burst_left.saturating_sub(1);
        let length_ns = (share * 1e9 / self.rate_pps) as u64;
        let caught_up_ns = self.late_ns.min(length_ns / 2);
        self.late_ns -= caught_up_ns;
        self.next_ns += length_ns - caught_up_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// At 1000 segments per second, after those that are not paced.
    fn pacer() -> Pacer {
        let mut pacer = Pacer {
            rate_pps: 1000.,
            ..Pacer::default()
        };
        for _ in 0..UNPACED {
            assert!(pacer.may_send(0));
            pacer.send(1., 2, 0);
        }
        pacer
    }

    /// When each of the next `count` segments leaves of a sender that always has one.
    fn departures(pacer: &mut Pacer, mut now_ns: u64, count: usize) -> Vec<u64> {
        let mut times_ns = Vec::new();
        while times_ns.len() < count {
            if pacer.may_send(now_ns) {
                pacer.send(1., 2, now_ns);
                times_ns.push(now_ns);
            } else {
                now_ns = pacer.next_ns;
            }
        }
        times_ns
    }

    #[test]
    fn bursts_are_as_far_apart_as_the_rate_says() {
        let times_ns = departures(&mut pacer(), 0, 6);
        assert_eq!(times_ns, [0, 0, 2 * MS, 2 * MS, 4 * MS, 4 * MS]);
    }

    #[test]
    fn a_late_burst_catches_up_by_half_of_itself() {
        let mut pacer = pacer();
        departures(&mut pacer, 0, 2);
        let times_ns = departures(&mut pacer, 10 * MS, 4);
        assert_eq!(times_ns, [10 * MS, 10 * MS, 11 * MS, 11 * MS]);
        assert_eq!(pacer.next_ns, 13 * MS);
    }

    #[test]
    fn a_burst_goes_on_only_in_the_moment_in_which_it_began() {
        let mut pacer = pacer();
        departures(&mut pacer, 0, 1);
        assert!(pacer.may_send(0) && !pacer.may_send(1));
        assert!(pacer.holds && pacer.next_ns == MS);
    }

    #[test]
    fn a_burst_is_a_millisecond_of_the_rate_within_bounds() {
        let config = TcpConfig::default();
        assert_eq!(burst(100., 2, &config), 2);
        assert_eq!(burst(10_240., 2, &config), 10);
        assert_eq!(burst(f64::INFINITY, 2, &config), 45);
    }

    #[test]
    fn reno_is_paced_at_twice_its_window_below_half_the_threshold_and_a_fifth_above_it_then() {
        let mut window = Window::new(10);
        assert_eq!(window_rate_pps(&window, 4, 100 * MS), 200.);
        let config = TcpConfig::default();
        window.reduce(24., &config);
        assert_eq!(window_rate_pps(&window, 4, 100 * MS), 120.);
        assert_eq!(window_rate_pps(&window, 20, 100 * MS), 240.);
        assert_eq!(window_rate_pps(&window, 4, 0), f64::INFINITY);
    }
}
