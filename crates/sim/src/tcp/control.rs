//! The congestion window, in segments: slow start, the first of them as HyStart++ has it (RFC 9406) if so configured,
//! and Reno (RFC 5681) or CUBIC (RFC 9438) above the threshold. BBR's window is its model's, which sets it.

use super::hystart::HyStart;
use super::{Control, Growth, TcpConfig};

/// Constants of RFC 9438 section 5.1.
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;
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
        let wanted = config.hystart && config.control == Control::Cubic;
        if wanted && self.ssthresh.is_infinite() {
            let cubic = self.cubic.get_or_insert_default();
            cubic.send(number, now_ns);
        }
    }

    /// Everything below `ack` is acknowledged, something of it for the first time; `next` is sent next.
    #[inline]
    pub fn acknowledge(&mut self, ack: u32, next: u32, now_ns: u64) {
        let Some(cubic) = &mut self.cubic else {
            return;
        };
        if cubic.ends_slow_start(ack, next, now_ns) {
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
        if let Some(hystart) = self.cubic.as_ref().and_then(|cubic| cubic.hystart.as_ref()) {
            units = hystart.increase(units);
        }
        if self.cwnd < self.ssthresh {
            let slow = units.min(self.ssthresh - self.cwnd);
            self.cwnd += slow;
            units -= slow;
        }
        if units > 0. {
            self.cwnd = if config.control == Control::Cubic {
                let cubic = self.cubic.get_or_insert_default();
                cubic.grown(self.cwnd, units, now_ns, rtt_ns)
            } else {
                self.cwnd + units / self.cwnd
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
        };
        self.ssthresh = reduced.max(LEAST_THRESHOLD);
    }
}

/// State of RFC 9438 section 4.1.
#[derive(Clone, Debug, Default)]
struct Cubic {
    w_max: f64,
    cwnd_prior: f64,
    epoch: Option<Epoch>,
    /// Until the first slow start is over.
    hystart: Option<Box<HyStart>>,
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
    fn send(&mut self, number: u32, now_ns: u64) {
        let new = || Box::new(HyStart::new(number));
        self.hystart.get_or_insert_with(new).send(now_ns);
    }

    #[inline(never)]
    fn ends_slow_start(&mut self, ack: u32, next: u32, now_ns: u64) -> bool {
        let ends = |hystart: &mut Box<HyStart>| hystart.acknowledge(ack, next, now_ns);
        self.hystart.take_if(ends).is_some()
    }

    fn grown(&mut self, cwnd: f64, units: f64, now_ns: u64, rtt_ns: u64) -> f64 {
        let w_max = self.w_max;
        let epoch = self
            .epoch
            .get_or_insert_with(|| Epoch::new(cwnd, w_max, now_ns));
        let t_s = (now_ns - epoch.start_ns) as f64 / 1e9;
        let friendly = if epoch.w_est < self.cwnd_prior {
            3. * (1. - CUBIC_BETA) / (1. + CUBIC_BETA)
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

    /// Section 4.6, with fast convergence (4.7).
    fn reduced(&mut self, cwnd: f64) -> f64 {
        self.hystart = None;
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
                window.acknowledge(number + 1, next, now_ns);
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
        window.acknowledge(21, 21, 1_000_000);
        assert!(window.cubic.is_some_and(|cubic| cubic.hystart.is_none()));
    }
}
