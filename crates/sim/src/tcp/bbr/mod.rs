//! BBR, version 1, as in Linux 6 (Cardwell et al., "BBR: Congestion-Based Congestion Control", 2016;
//! draft-cardwell-iccrg-bbr-congestion-control-00; `net/ipv4/tcp_bbr.c`).
//!
//! A path is known by two numbers: the bandwidth of its bottleneck, which is the greatest delivery rate of the last ten
//! round trips, and its round trip without a queue, which is the least of the last ten seconds. Their product (BDP) is
//! what has to be outstanding for the pipe to be full. BBR paces at the bandwidth and bounds what is outstanding by
//! twice the product; neither follows a loss.
//!
//! The two cannot be seen at once, so the sender goes through modes. *Startup* doubles its rate every round trip until
//! the bandwidth no longer grows; *drain* takes away the queue which that built. Then bandwidth is *probed* in cycles of
//! eight round trips: one with a quarter more, one with a quarter less, six at the bandwidth. If no round trip has been
//! as short as the least for ten seconds, the sender empties the pipe to four segments for 200 ms and *probes the round
//! trip*.
//!
//! Three parts have a file each: the filter of the bandwidth, policers, and acknowledgements that come in bunches.
//! Gains are those of the kernel's fractions of 256, without their rounding.

mod aggregation;
mod filter;
mod policer;

use anabranch_policy::splitmix::SplitMix64;

use super::TcpConfig;
use super::burst::burst;
use super::phase::Phase;
use super::rate::{DeliveryRate, RateSample};
use aggregation::Aggregation;
use filter::WindowedMax;
use policer::{News, Policer, Totals};

/// `bbr_high_gain`: 2/ln 2, the least gain of a pace that doubles every round trip. `bbr_drain_gain` is its inverse.
const HIGH_GAIN: f64 = 2.885;
/// `bbr_cwnd_gain`: room for acknowledgements that are delayed or come in bunches.
const WINDOW_GAIN: f64 = 2.;
/// `bbr_pacing_gain`: of the phases of a cycle.
const CYCLE: [f64; 8] = [1.25, 0.75, 1., 1., 1., 1., 1., 1.];
/// `bbr_cycle_rand`: a cycle begins with any phase but the second.
const CYCLE_STARTS: u64 = 7;
/// `bbr_bw_rtts`: rounds for which a delivery rate counts.
const BANDWIDTH_ROUNDS: u32 = 10;
/// `bbr_min_rtt_win_sec`.
const MIN_RTT_NS: u64 = 10_000_000_000;
/// `bbr_probe_rtt_mode_ms`.
const PROBE_RTT_NS: u64 = 200_000_000;
/// `bbr_cwnd_min_target`: what keeps a pipe going whose every second segment is acknowledged.
const LEAST_WINDOW: u32 = 4;
/// `bbr_pacing_margin_percent`: a little less than the bandwidth, so that queues shrink.
const MARGIN: f64 = 0.99;
/// `bbr_min_tso_rate`: slower senders send segment by segment.
const SINGLY_BPS: f64 = 1_200_000.;
/// `TCP_INIT_CWND`.
const INITIAL_WINDOW: u32 = 10;
/// Before the first round trip is known.
const NOMINAL_RTT_NS: u64 = 1_000_000;

/// What the sender tells of an acknowledgement. Segments throughout.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    pub now_ns: u64,
    /// 0 before the first round trip.
    pub srtt_ns: u64,
    /// Everything below is acknowledged.
    pub una: u32,
    /// What is being repaired after it.
    pub repair: Phase,
    /// Estimated to be in the network, before it and after it.
    pub in_flight_before: u32,
    pub in_flight: u32,
    /// Sent and not acknowledged in order.
    pub outstanding: u32,
    /// Found lost by it, and ever.
    pub newly_lost: u32,
    pub lost: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth {
        phase: usize,
        since_ns: u64,
    },
    ProbeRtt {
        /// Once little enough is outstanding.
        until_ns: Option<u64>,
        /// Whether a round has passed since.
        round_passed: bool,
    },
}

/// State of one sender.
#[derive(Clone, Debug)]
pub struct Bbr {
    rates: DeliveryRate,
    random: SplitMix64,
    mode: Mode,
    /// Round trips, counted in what is delivered: one ends when what is sent after it began is delivered.
    rounds: u32,
    round_ends: u32,
    round_began: bool,
    max_pps: WindowedMax,
    policer: Policer,
    aggregation: Aggregation,
    full: FullPipe,
    /// `None` before the first.
    min_rtt_ns: Option<u64>,
    min_rtt_at_ns: u64,
    /// Sending goes on after a pause that the application made.
    resumes: bool,
    rate_pps: f64,
    /// Whether the rate has followed a round trip yet.
    knows_rtt: bool,
    window: u32,
    /// Before losses or a probe of the round trip made it small.
    window_before: u32,
    /// What was being repaired at the last acknowledgement of something new.
    repair: Phase,
    /// In the first round of a recovery, what leaves the network is replaced and no more.
    conserves: bool,
}

impl Bbr {
    /// Of a sender that is about to send `first`.
    pub fn new(first: u32, seed: u64) -> Self {
        Bbr {
            rates: DeliveryRate::new(first),
            random: SplitMix64(seed),
            mode: Mode::Startup,
            rounds: 0,
            round_ends: 0,
            round_began: false,
            max_pps: WindowedMax::default(),
            policer: Policer::default(),
            aggregation: Aggregation::default(),
            full: FullPipe::default(),
            min_rtt_ns: None,
            min_rtt_at_ns: 0,
            resumes: false,
            rate_pps: 0.,
            knows_rtt: false,
            window: 0,
            window_before: 0,
            repair: Phase::Open,
            conserves: false,
        }
    }

    /// The first segment is about to be sent, with a window of `window` and the handshake's round trip, 0 if that is not
    /// known.
    pub fn start(&mut self, window: u32, srtt_ns: u64, now_ns: u64) {
        self.window = window;
        self.min_rtt_ns = (srtt_ns > 0).then_some(srtt_ns);
        self.min_rtt_at_ns = now_ns;
        self.aggregation.restart(now_ns);
        self.pace_by_window(srtt_ns);
    }

    /// In segments per second.
    pub fn pacing_rate_pps(&self) -> f64 {
        self.rate_pps
    }

    /// Segments of a burst, at least (`bbr_min_tso_segs`).
    pub fn least_burst(&self, config: &TcpConfig) -> u32 {
        let rate_bps = self.rate_pps * f64::from(8 * config.mss_bytes);
        if rate_bps < SINGLY_BPS { 1 } else { 2 }
    }

    /// A segment leaves; `from_idle` if nothing else is in the network.
    pub fn send(&mut self, number: u32, from_idle: bool, now_ns: u64) {
        if from_idle && self.rates.app_limited() {
            self.resume(now_ns);
        }
        self.rates.send(number, now_ns);
    }

    /// After a pause no more speed is needed than there was (`bbr_cwnd_event`).
    fn resume(&mut self, now_ns: u64) {
        self.resumes = true;
        self.aggregation.restart(now_ns);
        match self.mode {
            Mode::ProbeBandwidth { .. } => self.pace(1.),
            Mode::ProbeRtt { .. } => self.maybe_end_probe_rtt(now_ns),
            Mode::Startup | Mode::Drain => {}
        }
    }

    /// As [`DeliveryRate::limit_by_application`].
    pub fn limit_by_application(&mut self, in_flight: u32) {
        self.rates.limit_by_application(in_flight);
    }

    /// As [`DeliveryRate::arrive`].
    pub fn arrive(&mut self, number: u32, now_ns: u64) {
        self.rates.arrive(number, now_ns);
    }

    /// Takes in an acknowledgement whose blocks were told already; the next burst may leave at `departs_ns`. Returns the
    /// window, in segments.
    pub fn acknowledge(&mut self, ack: &Ack, departs_ns: u64, config: &TcpConfig) -> u32 {
        self.rates.acknowledge(ack.una, ack.now_ns);
        let sample = self.rates.sample(ack.now_ns);
        let ahead_ns = departs_ns - ack.now_ns;
        self.update_bandwidth(ack, &sample, config);
        self.update_aggregation(&sample);
        self.update_cycle(ack, ahead_ns, config);
        self.update_full(&sample);
        self.update_drain(ack, ahead_ns, config);
        self.update_min_rtt(ack, &sample);
        self.update_rate(ack.srtt_ns);
        self.update_window(ack, &sample, config);
        self.window
    }

    /// The retransmission timer ran out (`bbr_set_state`). Returns the window, in segments.
    pub fn time_out(&mut self, lost: u32, config: &TcpConfig) -> u32 {
        self.save_window();
        self.repair = Phase::Loss;
        self.full.pps = 0.;
        self.round_began = true;
        self.look_for_policer(lost, true, false, config);
        self.window = 1;
        self.window
    }

    // ---- the model

    fn bandwidth_pps(&self) -> f64 {
        self.policer
            .rate_pps()
            .unwrap_or_else(|| self.max_pps.get())
    }

    fn update_bandwidth(&mut self, ack: &Ack, sample: &RateSample, config: &TcpConfig) {
        self.round_began = false;
        let Some(rate) = sample.rate else {
            return;
        };
        if rate.prior_delivered >= self.round_ends {
            self.round_ends = self.rates.delivered();
            self.rounds += 1;
            self.round_began = true;
            self.conserves = false;
        }
        self.look_for_policer(ack.lost, ack.newly_lost > 0, sample.app_limited, config);
        let pps = rate.pps();
        if !sample.app_limited || pps >= self.max_pps.get() {
            self.max_pps.update(BANDWIDTH_ROUNDS, self.rounds, pps);
        }
    }

    fn look_for_policer(&mut self, lost: u32, loses: bool, app_limited: bool, config: &TcpConfig) {
        if self.policer.rate_pps().is_some() {
            let probes = matches!(self.mode, Mode::ProbeBandwidth { .. });
            if probes && self.round_began && self.policer.age() {
                self.probe_bandwidth();
            }
            return;
        }
        let news = News {
            totals: Totals {
                delivered: self.rates.delivered(),
                delivered_ns: self.rates.delivered_ns(),
                lost,
            },
            loses,
            round_began: self.round_began,
            app_limited,
        };
        self.policer.observe(&news, config.mss_bytes);
    }

    fn update_aggregation(&mut self, sample: &RateSample) {
        if sample.arrived == 0 || sample.rate.is_none() {
            return;
        }
        if self.round_began {
            self.aggregation.begin_round();
        }
        let (pps, now_ns) = (self.bandwidth_pps(), self.rates.delivered_ns());
        self.aggregation
            .acknowledge(sample.arrived, self.window, pps, now_ns);
    }

    fn update_full(&mut self, sample: &RateSample) {
        if self.round_began && !sample.app_limited {
            self.full.end_round(self.max_pps.get());
        }
    }

    fn update_min_rtt(&mut self, ack: &Ack, sample: &RateSample) {
        let expired = ack.now_ns > self.min_rtt_at_ns + MIN_RTT_NS;
        let known_ns = self.min_rtt_ns.filter(|_| !expired).unwrap_or(u64::MAX);
        if let Some(rtt_ns) = sample.rtt_ns.filter(|rtt_ns| *rtt_ns <= known_ns) {
            self.min_rtt_ns = Some(rtt_ns);
            self.min_rtt_at_ns = ack.now_ns;
        }
        let probes = matches!(self.mode, Mode::ProbeRtt { .. });
        if expired && !self.resumes && !probes {
            self.save_window();
            self.mode = Mode::ProbeRtt {
                until_ns: None,
                round_passed: false,
            };
        }
        self.probe_rtt(ack);
        self.resumes &= sample.rate.is_none();
    }

    // ---- the modes

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1. / HIGH_GAIN,
            Mode::ProbeBandwidth { .. } if self.policer.rate_pps().is_some() => 1.,
            Mode::ProbeBandwidth { phase, .. } => CYCLE[phase],
            Mode::ProbeRtt { .. } => 1.,
        }
    }

    fn window_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup | Mode::Drain => HIGH_GAIN,
            Mode::ProbeBandwidth { .. } => WINDOW_GAIN,
            Mode::ProbeRtt { .. } => 1.,
        }
    }

    fn probe_bandwidth(&mut self) {
        let start = (self.random.draw() % CYCLE_STARTS) as usize;
        self.mode = Mode::ProbeBandwidth {
            phase: (CYCLE.len() - start) % CYCLE.len(),
            since_ns: self.rates.delivered_ns(),
        };
    }

    fn update_cycle(&mut self, ack: &Ack, ahead_ns: u64, config: &TcpConfig) {
        let Mode::ProbeBandwidth { phase, since_ns } = self.mode else {
            return;
        };
        let delivered_ns = self.rates.delivered_ns();
        let full_length = delivered_ns - since_ns > self.min_rtt_ns.unwrap_or(u64::MAX);
        if self.phase_is_over(full_length, ack, ahead_ns, config) {
            self.mode = Mode::ProbeBandwidth {
                phase: (phase + 1) % CYCLE.len(),
                since_ns: delivered_ns,
            };
        }
    }

    /// More than the bandwidth is sent until that much is in the network, or more than it holds; less, until the queue is
    /// gone. Each takes a round trip, draining at most.
    fn phase_is_over(
        &self,
        full_length: bool,
        ack: &Ack,
        ahead_ns: u64,
        config: &TcpConfig,
    ) -> bool {
        let gain = self.pacing_gain();
        let in_network = self.in_network(ack.in_flight_before, ahead_ns, config);
        let reaches = |gain| self.budget(self.bdp(self.max_pps.get(), gain), config);
        if gain > 1. {
            full_length && (ack.newly_lost > 0 || in_network >= reaches(gain))
        } else if gain < 1. {
            full_length || in_network <= reaches(1.)
        } else {
            full_length
        }
    }

    fn update_drain(&mut self, ack: &Ack, ahead_ns: u64, config: &TcpConfig) {
        if self.mode == Mode::Startup && self.full.reached() {
            self.mode = Mode::Drain;
        }
        let pipe = self.budget(self.bdp(self.max_pps.get(), 1.), config);
        if self.mode == Mode::Drain && self.in_network(ack.in_flight, ahead_ns, config) <= pipe {
            self.probe_bandwidth();
        }
    }

    fn probe_rtt(&mut self, ack: &Ack) {
        let Mode::ProbeRtt {
            until_ns,
            round_passed,
        } = &mut self.mode
        else {
            return;
        };
        self.rates.limit_by_application(ack.in_flight);
        if until_ns.is_some() {
            *round_passed |= self.round_began;
            if *round_passed {
                self.maybe_end_probe_rtt(ack.now_ns);
            }
        } else if ack.in_flight <= LEAST_WINDOW {
            *until_ns = Some(ack.now_ns + PROBE_RTT_NS);
            self.round_ends = self.rates.delivered();
        }
    }

    fn maybe_end_probe_rtt(&mut self, now_ns: u64) {
        let Mode::ProbeRtt {
            until_ns: Some(until_ns),
            ..
        } = self.mode
        else {
            return;
        };
        if now_ns <= until_ns {
            return;
        }
        self.min_rtt_at_ns = now_ns;
        self.window = self.window.max(self.window_before);
        if self.full.reached() {
            self.probe_bandwidth();
        } else {
            self.mode = Mode::Startup;
        }
    }

    // ---- what is made of it

    fn update_rate(&mut self, srtt_ns: u64) {
        if !self.knows_rtt && srtt_ns > 0 {
            self.pace_by_window(srtt_ns);
        }
        let former_pps = self.rate_pps;
        self.pace(self.pacing_gain());
        if !self.full.reached() {
            self.rate_pps = self.rate_pps.max(former_pps);
        }
    }

    fn pace(&mut self, gain: f64) {
        self.rate_pps = MARGIN * gain * self.bandwidth_pps();
    }

    /// As fast as slow start would double the window.
    fn pace_by_window(&mut self, srtt_ns: u64) {
        self.knows_rtt = srtt_ns > 0;
        let rtt_ns = if self.knows_rtt {
            srtt_ns
        } else {
            NOMINAL_RTT_NS
        };
        self.rate_pps = MARGIN * HIGH_GAIN * f64::from(self.window) * 1e9 / rtt_ns as f64;
    }

    fn update_window(&mut self, ack: &Ack, sample: &RateSample, config: &TcpConfig) {
        if sample.arrived > 0 {
            self.follow_repair(ack, sample.arrived);
            if !self.conserves {
                self.approach_target(sample.arrived, config);
            }
        }
        if matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.window = self.window.min(LEAST_WINDOW);
        }
    }

    /// A recovery begins with conservation of packets and ends with the window from before it.
    fn follow_repair(&mut self, ack: &Ack, arrived: u32) {
        let before = self.repair;
        if ack.repair == Phase::Recovery && before != Phase::Recovery {
            self.save_window();
            self.conserves = true;
            self.round_ends = self.rates.delivered();
            self.window = ack.in_flight + arrived;
        } else {
            self.window = self.window.saturating_sub(ack.newly_lost).max(1);
        }
        if ack.repair == Phase::Open && before != Phase::Open {
            self.window = self.window.max(self.window_before);
            self.conserves = false;
        }
        self.repair = ack.repair;
        if self.conserves {
            self.window = self.window.max(ack.in_flight + arrived);
        }
    }

    fn approach_target(&mut self, arrived: u32, config: &TcpConfig) {
        let mut target = self.bdp(self.bandwidth_pps(), self.window_gain());
        if self.full.reached() {
            target += self.aggregation.excess(self.bandwidth_pps());
        }
        let target = self.budget(target, config);
        if self.full.reached() {
            self.window = (self.window + arrived).min(target);
        } else if self.window < target || self.rates.delivered() < INITIAL_WINDOW {
            self.window += arrived;
        }
        self.window = self.window.max(LEAST_WINDOW);
    }

    fn save_window(&mut self) {
        let is_good = self.repair == Phase::Open && !matches!(self.mode, Mode::ProbeRtt { .. });
        self.window_before = if is_good {
            self.window
        } else {
            self.window_before.max(self.window)
        };
    }

    /// What the pipe holds at `gain` times `pps`.
    fn bdp(&self, pps: f64, gain: f64) -> u32 {
        match self.min_rtt_ns {
            None => INITIAL_WINDOW,
            Some(min_rtt_ns) => (gain * pps * min_rtt_ns as f64 / 1e9).ceil() as u32,
        }
    }

    /// Room for what is on its way between the ends' own layers in bursts, and for the probe in a short pipe
    /// (`bbr_quantization_budget`).
    fn budget(&self, segments: u32, config: &TcpConfig) -> u32 {
        let probes = matches!(self.mode, Mode::ProbeBandwidth { phase: 0, .. });
        let even = (segments + 3 * self.burst(config)).next_multiple_of(2);
        even + 2 * u32::from(probes)
    }

    fn burst(&self, config: &TcpConfig) -> u32 {
        burst(self.rate_pps, self.least_burst(config), config)
    }

    /// Of `in_flight` segments, those in the network when the next burst leaves, after `ahead_ns`.
    fn in_network(&self, in_flight: u32, ahead_ns: u64, config: &TcpConfig) -> u32 {
        let delivered = (self.bandwidth_pps() * ahead_ns as f64 / 1e9) as u32;
        let joins = if self.pacing_gain() > 1. {
            self.burst(config)
        } else {
            0
        };
        (in_flight + joins).saturating_sub(delivered)
    }
}

/// Whether startup has filled the pipe: three rounds in a row without a quarter more bandwidth
/// (`bbr_check_full_bw_reached`).
#[derive(Clone, Copy, Debug, Default)]
struct FullPipe {
    /// When it last had grown.
    pps: f64,
    rounds: u32,
}

impl FullPipe {
    const GROWTH: f64 = 1.25;
    const ROUNDS: u32 = 3;

    fn reached(&self) -> bool {
        self.rounds >= Self::ROUNDS
    }

    fn end_round(&mut self, pps: f64) {
        if self.reached() {
            return;
        }
        if pps >= Self::GROWTH * self.pps {
            *self = FullPipe { pps, rounds: 0 };
        } else {
            self.rounds += 1;
        }
    }
}
