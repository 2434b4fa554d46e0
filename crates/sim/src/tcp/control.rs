//! The congestion window, in segments: slow start, the first of them as HyStart++ has it (RFC 9406) if so configured,
//! and Reno (RFC 5681) or CUBIC (RFC 9438) above the threshold. BBR's window is its model's, which sets it.
//!
//! CUBIC as Linux 6 has it differs (`net/ipv4/tcp_cubic.c`): beside Reno the window grows by 0.53 segments per round trip
//! for good, where section 4.3 of the RFC has 1 above the former window; it is to be what the curve reaches after the
//! shortest round trip, not the smoothed; before the first loss it grows by a twentieth per round trip at least; a timeout
//! forgets the former window; and the first slow start is that of HyStart.

use super::hystart::HyStart;
use super::trains::Trains;
use super::{Control, Growth, TcpConfig};

/// Constants of RFC 9438 section 5.1.
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;
/// How fast a window that shrinks to that part grows to be as large as Reno's, in segments per round trip.
const FRIENDLY: f64 = 3. * (1. - CUBIC_BETA) / (1. + CUBIC_BETA);
/// What Linux's grows by in a round trip before the first loss, at least; and the most in any.
const UNKNOWN_GROWTH: f64 = 1. / 20.;
const MOST_GROWTH: f64 = 1. / 2.;
const RENO_BETA: f64 = 0.5;
/// Of a window that must leave room for growth, RFC 5681 equation 4.
const LEAST_THRESHOLD: f64 = 2.;

/// The congestion window, in segments (RFC 5681), and what makes it grow.
#[derive(Clone, Debug)]
pub struct Window {
    cwnd: f64,
    ssthresh: f64,
    /// Of those flows alone whom CUBIC has steered: an endpoint is held a million times.
    cubic: Option<Box<Cubic>>,
}

impl Window {
    /// Of a new connection, in segments: slow start without a threshold.
    pub fn new(initial: u32) -> Self {
        Window {
            cwnd: f64::from(initial),
            ssthresh: f64::INFINITY,
            cubic: None,
        }
    }

    /// In segments.
    pub fn cwnd(&self) -> f64 {
        self.cwnd
    }

    /// Whether so many segments fill it: a part of a segment is no room for one.
    #[inline]
    pub fn is_full(&self, segments: u32) -> bool {
        f64::from(segments) + 1. > self.cwnd
    }

    /// Where slow start ends, in segments; infinite before the first loss.
    pub fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    /// Sets the window, in segments.
    pub fn set(&mut self, cwnd: f64) {
        self.cwnd = cwnd;
    }

    /// Takes back a reduction, with the window and the threshold of before. Slow start goes on without HyStart++, which
    /// has lost count.
    pub fn restore(&mut self, cwnd: f64, ssthresh: f64) {
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh).min(f64::MAX);
    }

    /// `number` is sent for the first time.
    #[inline]
    pub fn send(&mut self, number: u32, now_ns: u64, config: &TcpConfig) {
        let wanted = config.hystart && config.control.is_cubic();
        if wanted && self.ssthresh.is_infinite() {
            let cubic = self.cubic.get_or_insert_default();
            cubic.send(number, now_ns, config);
        }
    }

    /// Everything below `ack` is acknowledged, something of it for the first time; `next` is sent next.
    #[inline]
    pub fn acknowledge(&mut self, ack: u32, next: u32, now_ns: u64, config: &TcpConfig) {
        let Some(cubic) = &mut self.cubic else {
            return;
        };
        let heard = Heard {
            ack,
            next,
            now_ns,
            cwnd: self.cwnd,
        };
        if cubic.ends_slow_start(&heard, config) {
            self.ssthresh = self.cwnd;
        }
    }

    /// An acknowledgement of `acked` new segments came while the window was in full use. BBR's grows by other rules.
    pub fn grow(&mut self, acked: u32, now_ns: u64, rtt_ns: u64, config: &TcpConfig) {
        if config.control == Control::Bbr {
            return;
        }
        let mut units = match config.growth {
            Growth::PerAck => 1.,
            Growth::PerSegment => f64::from(acked),
        };
        if let Some(cubic) = &self.cubic
            && let Some(SlowStart::PlusPlus(hystart)) = &cubic.slow_start
        {
            units = hystart.increase(units);
        }
        if self.cwnd < self.ssthresh {
            let slow = units.min(self.ssthresh - self.cwnd);
            self.cwnd += slow;
            units -= slow;
        }
        if units > 0. {
            self.cwnd = match config.control {
                Control::Cubic => {
                    let cubic = self.cubic.get_or_insert_default();
                    cubic.grown(self.cwnd, units, now_ns, rtt_ns)
                }
                Control::CubicLinux => {
                    let cubic = self.cubic.get_or_insert_default();
                    cubic.grown_in_linux(self.cwnd, units, now_ns, rtt_ns)
                }
                Control::Reno | Control::Bbr => self.cwnd + units / self.cwnd,
            };
        }
    }

    /// A loss was found with `in_flight` segments outstanding: lowers the threshold, of BBR not below the window; the caller
    /// sets the window.
    pub fn reduce(&mut self, in_flight: f64, config: &TcpConfig) {
        let reduced = match config.control {
            Control::Reno => in_flight * RENO_BETA,
            Control::Bbr => self.cwnd,
            Control::Cubic => {
                let cubic = self.cubic.get_or_insert_default();
                cubic.reduced(self.cwnd.min(in_flight))
            }
            Control::CubicLinux => {
                let cubic = self.cubic.get_or_insert_default();
                cubic.reduced(self.cwnd)
            }
        };
        self.ssthresh = reduced.max(LEAST_THRESHOLD);
    }

    /// The retransmission timer ran out, and the window was reduced.
    pub fn time_out(&mut self, config: &TcpConfig) {
        if let Some(cubic) = &mut self.cubic
            && config.control == Control::CubicLinux
        {
            cubic.w_max = 0.;
        }
    }
}

/// State of RFC 9438 section 4.1.
#[derive(Clone, Debug, Default)]
struct Cubic {
    w_max: f64,
    cwnd_prior: f64,
    epoch: Option<Epoch>,
    /// The shortest round trip, as far as Linux's knows; `None` before the first.
    least_rtt_ns: Option<u64>,
    /// Until the first slow start is over.
    slow_start: Option<SlowStart>,
}

/// What ends the first slow start before a loss does.
#[derive(Clone, Debug)]
enum SlowStart {
    PlusPlus(Box<HyStart>),
    Trains(Box<Trains>),
}

/// An acknowledgement of everything below `ack`, when `next` is sent next.
#[derive(Clone, Copy, Debug)]
struct Heard {
    ack: u32,
    next: u32,
    now_ns: u64,
    cwnd: f64,
}

/// One stage of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start_ns: u64,
    /// When the window reaches `origin` again, in seconds after `start_ns`.
    k_s: f64,
    origin: f64,
    w_est: f64,
}

impl Epoch {
    fn new(cwnd: f64, w_max: f64, start_ns: u64) -> Self {
        let origin = w_max.max(cwnd);
        Epoch {
            start_ns,
            k_s: ((origin - cwnd) / CUBIC_C).cbrt(),
            origin,
            w_est: cwnd,
        }
    }

    /// W_cubic(t) of section 4.2.
    fn window_at(&self, t_s: f64) -> f64 {
        CUBIC_C * (t_s - self.k_s).powi(3) + self.origin
    }
}

impl Cubic {
    #[inline(never)]
    fn send(&mut self, number: u32, now_ns: u64, config: &TcpConfig) {
        let new = || match config.control {
            Control::CubicLinux => SlowStart::Trains(Box::new(Trains::new(number))),
            _ => SlowStart::PlusPlus(Box::new(HyStart::new(number))),
        };
        match self.slow_start.get_or_insert_with(new) {
            SlowStart::PlusPlus(hystart) => hystart.send(now_ns),
            SlowStart::Trains(trains) => trains.send(now_ns),
        }
    }

    #[inline(never)]
    fn ends_slow_start(&mut self, heard: &Heard, config: &TcpConfig) -> bool {
        let Heard {
            ack,
            next,
            now_ns,
            cwnd,
        } = *heard;
        let least_rtt_ns = &mut self.least_rtt_ns;
        let ends = |slow_start: &mut SlowStart| match slow_start {
            SlowStart::PlusPlus(hystart) => hystart.acknowledge(ack, next, now_ns),
            SlowStart::Trains(trains) => {
                let ends = trains.acknowledge(ack, next, now_ns, cwnd, config.pacing);
                *least_rtt_ns = Some(trains.least_ns());
                ends
            }
        };
        self.slow_start.take_if(ends).is_some()
    }

    fn grown(&mut self, cwnd: f64, units: f64, now_ns: u64, rtt_ns: u64) -> f64 {
        let w_max = self.w_max;
        let epoch = self
            .epoch
            .get_or_insert_with(|| Epoch::new(cwnd, w_max, now_ns));
        let t_s = (now_ns - epoch.start_ns) as f64 / 1e9;
        let friendly = if epoch.w_est < self.cwnd_prior {
            FRIENDLY
        } else {
            1.
        };
        epoch.w_est += friendly * units / cwnd;
        if epoch.window_at(t_s) < epoch.w_est {
            return epoch.w_est.max(cwnd);
        }
        let target = epoch
            .window_at(t_s + rtt_ns as f64 / 1e9)
            .clamp(cwnd, 1.5 * cwnd);
        cwnd + (target - cwnd) * units / cwnd
    }

    fn grown_in_linux(&mut self, cwnd: f64, units: f64, now_ns: u64, rtt_ns: u64) -> f64 {
        let w_max = self.w_max;
        let least_ns = self
            .least_rtt_ns
            .map_or(rtt_ns, |least_ns| least_ns.min(rtt_ns));
        self.least_rtt_ns = Some(least_ns);
        let epoch = self
            .epoch
            .get_or_insert_with(|| Epoch::new(cwnd, w_max, now_ns));
        epoch.w_est += FRIENDLY * units / cwnd;
        let t_s = (now_ns - epoch.start_ns + least_ns) as f64 / 1e9;
        let target = epoch.window_at(t_s).max(epoch.w_est);
        let least_growth = if w_max == 0. { UNKNOWN_GROWTH } else { 0. };
        let growth = (target - cwnd) / cwnd;
        cwnd + growth.clamp(least_growth, MOST_GROWTH) * units
    }

    /// Section 4.6, with fast convergence (4.7).
    fn reduced(&mut self, cwnd: f64) -> f64 {
        self.slow_start = None;
        self.epoch = None;
        self.cwnd_prior = cwnd;
        self.w_max = if cwnd < self.w_max {
            cwnd * (1. + CUBIC_BETA) / 2.
        } else {
            cwnd
        };
        cwnd * CUBIC_BETA
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reno_doubles_per_round_below_the_threshold_and_adds_one_above() {
        let config = TcpConfig::default();
        let mut window = Window::new(4);
        for _ in 0..4 {
            window.grow(1, 0, 0, &config);
        }
        assert_eq!(window.cwnd(), 8.);
        window.reduce(8., &config);
        window.set(window.ssthresh());
        for _ in 0..4 {
            window.grow(1, 0, 0, &config);
        }
        assert!((window.cwnd() - 4.95).abs() < 0.05, "{}", window.cwnd());
    }

    #[test]
    fn a_part_of_a_segment_is_no_room_for_one() {
        for (cwnd, fits) in [
            (1., 1),
            (1.999, 1),
            (2., 2),
            (9.5, 9),
            (f64::from(1 << 24), 1 << 24),
        ] {
            let mut window = Window::new(1);
            window.set(cwnd);
            assert!(!window.is_full(fits - 1) && window.is_full(fits), "{cwnd}");
        }
    }

    fn with_hystart() -> TcpConfig {
        TcpConfig {
            control: Control::Cubic,
            hystart: true,
            ..TcpConfig::default()
        }
    }

    #[test]
    fn longer_round_trips_end_slow_start_where_it_is_after_five_rounds() {
        let config = with_hystart();
        let mut window = Window::new(10);
        let (mut next, mut now_ns) = (1, 0);
        for rtt_ms in [80, 95, 95, 95, 95, 95] {
            assert_eq!(window.ssthresh(), f64::INFINITY);
            let first = next;
            next += window.cwnd() as u32;
            (first..next).for_each(|number| window.send(number, now_ns, &config));
            now_ns += rtt_ms * 1_000_000;
            for number in first..next {
                window.grow(1, now_ns, 0, &config);
                window.acknowledge(number + 1, next, now_ns, &config);
            }
        }
        // 10 double; then 8 samples, and a quarter for each of the rest of five rounds.
        let least = (20. + 8. + 12. / 4.) * 1.25f64.powi(4);
        assert!(
            (window.ssthresh() - least).abs() < 2.,
            "{}",
            window.ssthresh()
        );
        assert_eq!(window.ssthresh(), window.cwnd());
    }

    #[test]
    fn a_loss_ends_hystart_for_good() {
        let config = with_hystart();
        let mut window = Window::new(10);
        (1..=10).for_each(|number| window.send(number, 0, &config));
        window.reduce(10., &config);
        window.set(window.ssthresh());
        assert_eq!(window.ssthresh(), 7.);
        (11..=20).for_each(|number| window.send(number, 1, &config));
        window.acknowledge(21, 21, 1_000_000, &config);
        assert!(window.cubic.is_some_and(|cubic| cubic.slow_start.is_none()));
    }

    const RTT_NS: u64 = 100_000_000;

    /// After a loss at 10 segments, what so many round trips add in congestion avoidance.
    fn added(control: Control, rounds: u64) -> f64 {
        let config = TcpConfig {
            control,
            growth: Growth::PerSegment,
            ..TcpConfig::default()
        };
        let mut window = Window::new(10);
        window.reduce(10., &config);
        window.set(window.ssthresh());
        for round in 0..rounds {
            for _ in 0..window.cwnd() as u32 {
                window.grow(1, round * RTT_NS, RTT_NS, &config);
            }
        }
        window.cwnd() - 7.
    }

    #[test]
    fn above_the_former_window_linux_grows_as_slowly_as_below() {
        for control in [Control::Cubic, Control::CubicLinux] {
            let below = added(control, 5);
            assert!((below - 5. * FRIENDLY).abs() < 0.8, "{control:?} {below}");
        }
        let [rfc, linux] = [Control::Cubic, Control::CubicLinux]
            .map(|control| added(control, 15) - added(control, 10));
        assert!((linux - 5. * FRIENDLY).abs() < 0.4, "{linux}");
        assert!(rfc > 4., "{rfc}");
    }

    #[test]
    fn before_a_loss_and_after_a_timeout_linux_grows_by_a_twentieth_at_least() {
        let config = TcpConfig {
            control: Control::CubicLinux,
            growth: Growth::PerSegment,
            ..TcpConfig::default()
        };
        let mut window = Window::new(100);
        window.reduce(100., &config);
        window.set(window.ssthresh());
        let mut remembers = window.clone();
        remembers.grow(70, 0, RTT_NS, &config);
        window.time_out(&config);
        window.grow(70, 0, RTT_NS, &config);
        assert!((window.cwnd() - 73.5).abs() < 1e-9, "{}", window.cwnd());
        assert!(remembers.cwnd() < 73., "{}", remembers.cwnd());
    }
}
