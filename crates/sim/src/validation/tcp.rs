//! TCP over links against exact times and closed formulas.

use anabranch_core::Time;

use super::theory::{mathis, pftk};
use super::{Check, Effort, FAR, Mutant, Observed, Tolerance, Topic};
use crate::dumbbell::{line, one_flow};
use crate::link::{Buffer, LinkSpec, Loss};
use crate::tcp::{Control, Growth, Recovery, TcpConfig, Window};
use crate::world::{FlowId, FlowSpec, Work, World};

const MS: u64 = 1_000_000;

/// The time of a transfer over a pipe that is never full.
pub const IDLE: Topic = Topic::exact("idle pipe", measure_idle, judge_idle);

/// How the window doubles.
pub const SLOW_START: Topic = Topic::exact("slow start", measure_slow_start, judge_slow_start);

/// One flow and a buffer: the window's sawtooth.
pub const SAWTOOTH: Topic = Topic::exact("one flow and a buffer", measure_sawtooth, judge_sawtooth);

/// The window against RFC 9438's curve.
pub const CUBIC: Topic = Topic::exact("CUBIC's curve", measure_cubic, judge_cubic);

/// Where HyStart++ ends slow start (RFC 9406).
pub const HYSTART: Topic = Topic::exact("the end of slow start", measure_hystart, judge_hystart);

/// Shares of equal flows.
pub const FAIRNESS: Topic = Topic::random("equal flows", measure_fairness, judge_fairness);

/// Same seed, same run.
pub const REPEATS: Topic = Topic::random("repetition", measure_repeats, judge_repeats);

/// Goodput against loss (Mathis 1997, Padhye 1998).
pub const GOODPUT: Topic = Topic::random("goodput against loss", measure_goodput, judge_goodput);

/// Longer round trips, one loss for all, Reno for CUBIC, no HyStart++, and a longer way for every second flow.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::far(IDLE.title, |_, _| idle(FAR)),
    Mutant::far(SLOW_START.title, |_, _| slow_start(FAR)),
    Mutant::far(SAWTOOTH.title, |_, effort| sawtooth(effort, FAR)),
    Mutant::far(FAIRNESS.title, |seed, _| fairness(seed, FAR)),
    Mutant::far(GOODPUT.title, |seed, effort| {
        goodput_at_points(seed, effort, FAR, |p| p)
    }),
    Mutant {
        name: "one-loss",
        topic: GOODPUT.title,
        measure: |seed, effort| goodput_at_points(seed, effort, 1, |_| 1e-3),
    },
    Mutant {
        name: "reno",
        topic: CUBIC.title,
        measure: |_, _| vec![off_curve(Control::Reno)],
    },
    Mutant {
        name: "no-hystart",
        topic: HYSTART.title,
        measure: |_, _| hystart(false),
    },
];

/// When the opener's first `segments` were acknowledged, in ns; found to the ns by halving.
fn acknowledged_ns(mut build: impl FnMut() -> (World, FlowId), segments: u32, most_ns: u64) -> u64 {
    let mut reached = |at_ns| {
        let (mut world, flow) = build();
        world.run_until(Time::from_nanos(at_ns));
        world.opener(flow).acknowledged_segments() >= segments
    };
    let (mut before, mut after) = (0, most_ns);
    while after - before > 1 {
        let middle = before.midpoint(after);
        if reached(middle) {
            after = middle;
        } else {
            before = middle;
        }
    }
    after
}

const IDLE_RATE_BPS: u64 = 8_000_000;
const IDLE_DELAY_NS: u64 = 10 * MS;
const IDLE_TCP: TcpConfig = TcpConfig {
    header_bytes: 40,
    mss_bytes: 960,
    receive_window: 1,
    recovery: Recovery::Sack,
    control: Control::Reno,
    hystart: false,
    pacing: false,
    growth: Growth::PerAck,
    initial_window: 10,
    lost_syns: 2,
    dsack: false,
    ecn: false,
    min_rto_ns: 1000 * MS,
    delayed_ack_ns: None,
    overhead_ns: 0,
};

/// When the handshake is done and when one segment is acknowledged, in ns.
fn measure_idle(_: u64, _: Effort) -> Vec<f64> {
    idle(1)
}

/// Over so many times the delay.
fn idle(far: u64) -> Vec<f64> {
    let build = || {
        let mut world = World::new(1);
        let spec = line(IDLE_RATE_BPS, far * IDLE_DELAY_NS, Buffer::Unlimited);
        let (there, back) = (world.add_link(spec), world.add_link(spec));
        let spec = FlowSpec {
            start: Time::ZERO,
            work: Work::Endless,
            forward: world.add_path(&[there]),
            back: world.add_path(&[back]),
            tcp: IDLE_TCP,
        };
        let flow = world.open(spec);
        (world, flow)
    };
    let acknowledged_ns = acknowledged_ns(build, 1, 1000 * MS);
    let (mut world, flow) = build();
    world.run_until(Time::from_nanos(acknowledged_ns));
    let established = world.times(flow).established;
    let established_ns = established.map_or(f64::NAN, |time| time.as_nanos() as f64);
    vec![established_ns, acknowledged_ns as f64]
}

fn judge_idle(observed: &Observed, _: Effort) -> Vec<Check> {
    let wire_ns = |bytes: u32| f64::from(bytes) * 8e9 / IDLE_RATE_BPS as f64;
    let (header_ns, rtt_ns) = (wire_ns(IDLE_TCP.header_bytes), 2. * IDLE_DELAY_NS as f64);
    let full_ns = wire_ns(IDLE_TCP.mss_bytes + IDLE_TCP.header_bytes);
    let opened_ns = rtt_ns + 2. * header_ns;
    let exact = |i, name, expected| {
        let tolerance = Tolerance::Absolute(1.);
        Check::new(10, name, "ns", &observed.column(i), expected, tolerance)
    };
    vec![
        exact(0, "idle pipe, handshake", opened_ns),
        exact(
            1,
            "idle pipe, one segment",
            opened_ns + rtt_ns + full_ns + header_ns,
        ),
    ]
}

const SLOW_START_SEGMENTS: [u32; 4] = [1, 7, 100, 1000];
const SLOW_START_RTT_S: f64 = 0.1;
/// Segments per second.
const SLOW_START_RATE: f64 = 2500. / 3.;

fn measure_slow_start(_: u64, _: Effort) -> Vec<f64> {
    slow_start(1)
}

/// Over so many times the delay.
fn slow_start(far: u64) -> Vec<f64> {
    let tcp = TcpConfig {
        initial_window: 1,
        mss_bytes: 1500,
        header_bytes: 0,
        ..TcpConfig::default()
    };
    let forward = line(10_000_000, far * 50 * MS, Buffer::Unlimited);
    let seconds = |segments: u32| {
        let work = Work::Transfer(u64::from(segments) * 1500);
        let build = || {
            let (world, flow, _) = one_flow(1, forward, work, tcp);
            (world, flow)
        };
        acknowledged_ns(build, segments, 60_000 * MS) as f64 / 1e9
    };
    SLOW_START_SEGMENTS.into_iter().map(seconds).collect()
}

/// Two round trips, the transmission, and the stalls while the window is smaller than the pipe.
fn judge_slow_start(observed: &Observed, _: Effort) -> Vec<Check> {
    let (rtt_s, rate) = (SLOW_START_RTT_S, SLOW_START_RATE);
    let checks = SLOW_START_SEGMENTS
        .into_iter()
        .enumerate()
        .map(|(i, segments)| {
            let stalled = (1. + rtt_s * rate).log2().floor() + 1.;
            let rounds = (1. + f64::from(segments)).log2().ceil();
            let p = stalled.min(rounds - 1.);
            let stalls = p * (rtt_s + 1. / rate) - (p.exp2() - 1.) / rate;
            let expected = 2. * rtt_s + f64::from(segments) / rate + stalls;
            let name = format!("slow start from one segment, {segments} segments");
            let (observed, tolerance) = (observed.column(i), Tolerance::Relative(0.005));
            Check::new(11, name, "s", &observed, expected, tolerance)
        });
    checks.collect()
}

const SAWTOOTH_RATE_BPS: u64 = 12_000_000;
/// Segments of 1500 bytes in 100 ms.
const SAWTOOTH_BDP: f64 = 100.;
/// Buffer in bandwidth-delay products, and tolerance of the utilisation. Without any buffer a sender that does not pace
/// loses one of every two segments that leave together, which the formula's fluid does not.
const SAWTOOTH_BUFFERS: [(f64, f64); 4] = [(0.1, 0.03), (0.25, 0.03), (0.5, 0.03), (1., 0.02)];

fn measure_sawtooth(_: u64, effort: Effort) -> Vec<f64> {
    sawtooth(effort, 1)
}

/// Over so many times the delay, with the same buffers.
fn sawtooth(effort: Effort, far: u64) -> Vec<f64> {
    let seconds = effort.of(400, 2000);
    let utilisation = |(beta, _)| {
        let packets = (beta * SAWTOOTH_BDP) as u64 + 1; // and the one in transmission
        let forward = line(SAWTOOTH_RATE_BPS, far * 50 * MS, Buffer::Packets(packets));
        let (mut world, _, there) = one_flow(1, forward, Work::Endless, TcpConfig::default());
        let mut bytes_at = |seconds: u64| {
            world.run_until(Time::from_millis(1000 * seconds));
            world.counters(there).delivered.bytes
        };
        let before = bytes_at(50);
        let bytes = bytes_at(50 + seconds) - before;
        bytes as f64 * 8. / seconds as f64 / SAWTOOTH_RATE_BPS as f64
    };
    SAWTOOTH_BUFFERS.into_iter().map(utilisation).collect()
}

fn judge_sawtooth(observed: &Observed, _: Effort) -> Vec<Check> {
    let checks = SAWTOOTH_BUFFERS
        .into_iter()
        .enumerate()
        .map(|(i, (beta, tolerance))| {
            let expected = 0.75 * (1. + beta).powi(2) / (1. + beta + beta * beta);
            let name = format!("one flow, buffer of {beta} × bandwidth × delay, utilisation");
            let (observed, tolerance) = (observed.column(i), Tolerance::Absolute(tolerance));
            Check::new(12, name, "", &observed, expected, tolerance)
        });
    checks.collect()
}

const CUBIC_W_MAX: f64 = 1000.;
const CUBIC_RTT_NS: u64 = 100 * MS;
/// Longer than the curve takes to come back to its greatest window.
const CUBIC_NS: u64 = 15_000 * MS;

/// The window after a loss at 1000 segments, acknowledged one by one: seconds, window and RFC 9438's curve
/// `C·(t − K)³ + W_max`.
pub fn cubic_curve() -> Vec<(f64, f64, f64)> {
    curve_of(Control::Cubic)
}

fn curve_of(control: Control) -> Vec<(f64, f64, f64)> {
    let config = TcpConfig {
        control,
        growth: Growth::PerSegment,
        ..TcpConfig::default()
    };
    let mut window = Window::new(CUBIC_W_MAX as u32);
    window.reduce(CUBIC_W_MAX, &config);
    window.set(window.ssthresh());
    let (c, beta) = (0.4f64, 0.7);
    let k_s = (CUBIC_W_MAX * (1. - beta) / c).cbrt();
    let (mut curve, mut now_ns) = (Vec::new(), 0);
    while now_ns < CUBIC_NS {
        let t_s = now_ns as f64 / 1e9;
        let expected = c * (t_s - k_s).powi(3) + CUBIC_W_MAX;
        curve.push((t_s, window.cwnd(), expected));
        window.grow(1, now_ns, CUBIC_RTT_NS, &config);
        now_ns += (CUBIC_RTT_NS as f64 / window.cwnd()) as u64;
    }
    curve
}

fn measure_cubic(_: u64, _: Effort) -> Vec<f64> {
    vec![off_curve(Control::Cubic)]
}

fn off_curve(control: Control) -> f64 {
    let off = |(_, window, curve): (f64, f64, f64)| (window / curve - 1.).abs();
    curve_of(control).into_iter().map(off).fold(0., f64::max)
}

fn judge_cubic(observed: &Observed, _: Effort) -> Vec<Check> {
    let name = "CUBIC after a loss, greatest distance from W(t) over 15 s";
    let (observed, tolerance) = (observed.column(0), Tolerance::Absolute(0.005));
    vec![Check::new(15, name, "", &observed, 0., tolerance)]
}

const CUBIC_TCP: TcpConfig = TcpConfig {
    control: Control::Cubic,
    hystart: true,
    growth: Growth::PerSegment,
    ..RENO_TCP
};
const RENO_TCP: TcpConfig = TcpConfig {
    recovery: Recovery::Sack,
    control: Control::Reno,
    hystart: false,
    pacing: false,
    growth: Growth::PerAck,
    mss_bytes: 1448,
    header_bytes: 52,
    initial_window: 10,
    lost_syns: 2,
    dsack: false,
    ecn: false,
    receive_window: 1 << 16,
    min_rto_ns: 1000 * MS,
    delayed_ack_ns: None,
    overhead_ns: 0,
};
const HYSTART_RATE_BPS: u64 = 45_000_000;
/// Segments of 1500 bytes in 50 ms.
const HYSTART_BDP: f64 = 187.5;
/// Buffers in bandwidth-delay products, and by what HyStart++ must at least divide the losses. A quarter of the growth
/// overshoots by a quarter, once round trips tell in time; into a buffer as small as the pipe the last doubling comes
/// before they do.
const HYSTART_BUFFERS: [(f64, f64); 3] = [(1., 1.1), (2., 4.), (4., 4.)];

/// Segments lost at the end of slow start without HyStart++ over those lost with it.
fn measure_hystart(_: u64, _: Effort) -> Vec<f64> {
    hystart(true)
}

fn hystart(with: bool) -> Vec<f64> {
    let lost = |beta: f64, hystart| {
        let tcp = TcpConfig {
            hystart,
            ..CUBIC_TCP
        };
        let packets = (beta * HYSTART_BDP) as u64;
        let forward = line(HYSTART_RATE_BPS, 25 * MS, Buffer::Packets(packets));
        let (mut world, _, there) = one_flow(1, forward, Work::Endless, tcp);
        world.run_until(Time::from_millis(3000));
        world.counters(there).overflowed.packets as f64
    };
    HYSTART_BUFFERS
        .map(|(beta, _)| lost(beta, false) / lost(beta, with))
        .to_vec()
}

fn judge_hystart(observed: &Observed, _: Effort) -> Vec<Check> {
    let checks = HYSTART_BUFFERS
        .into_iter()
        .enumerate()
        .map(|(i, (beta, least))| {
            let name = format!(
                "slow start into a buffer of {beta} × bandwidth × delay, losses without HyStart++ over those with it"
            );
            Check::at_least(22, name, "", &observed.column(i), least)
        });
    checks.collect()
}

const FAIR: [(u64, &str, TcpConfig); 6] = [
    (2, "Reno", RENO_TCP),
    (10, "Reno", RENO_TCP),
    (50, "Reno", RENO_TCP),
    (2, "CUBIC", CUBIC_TCP),
    (10, "CUBIC", CUBIC_TCP),
    (50, "CUBIC", CUBIC_TCP),
];

/// Jain's index of what each of equal flows through 45 Mbit/s received, started 10 ms apart. The seed moves the starts.
fn measure_fairness(seed: u64, _: Effort) -> Vec<f64> {
    fairness(seed, 1)
}

/// With so many times the way for every second flow, most of it before the bottleneck.
fn fairness(seed: u64, far: u64) -> Vec<f64> {
    let index = |(flows, _, tcp)| {
        let mut world = World::new(seed);
        let trunk = line(45_000_000, 10 * MS, Buffer::Packets(100));
        let (there, back) = (world.add_link(trunk), world.add_link(trunk));
        let before = world.add_link(line(10_000_000_000, (far - 1) * 50 * MS, Buffer::Unlimited));
        let (forward, back) = (world.add_path(&[there]), world.add_path(&[back]));
        let longer = world.add_path(&[before, there]);
        let flows: Vec<FlowId> = (0..flows)
            .map(|i| {
                world.open(FlowSpec {
                    start: Time::from_nanos(10 * MS * i + 100_000 * seed * (i % 7)),
                    work: Work::Endless,
                    forward: if far > 1 && i % 2 == 1 {
                        longer
                    } else {
                        forward
                    },
                    back,
                    tcp,
                })
            })
            .collect();
        world.run_until(Time::from_millis(300_000));
        let received = |flow: &FlowId| f64::from(world.receiver(*flow).received_segments());
        let (sum, squares) = flows
            .iter()
            .map(received)
            .fold((0., 0.), |(sum, squares), x| (sum + x, squares + x * x));
        sum * sum / (flows.len() as f64 * squares)
    };
    FAIR.into_iter().map(index).collect()
}

fn judge_fairness(observed: &Observed, _: Effort) -> Vec<Check> {
    let checks = FAIR
        .into_iter()
        .enumerate()
        .map(|(i, (flows, control, _))| {
            let name = format!("{flows} equal flows of {control}, Jain index");
            Check::at_least(17, name, "", &observed.column(i), 0.95)
        });
    checks.collect()
}

/// Runs of 20 flows that must be alike, and what they left unaccounted for.
fn measure_repeats(seed: u64, _: Effort) -> Vec<f64> {
    let run = |unused: bool, tcp: TcpConfig| {
        let mut world = World::new(seed);
        let trunk = LinkSpec {
            loss: Loss::Independent { probability: 0.01 },
            ..line(45_000_000, 10 * MS, Buffer::Packets(100))
        };
        let (there, back) = (world.add_link(trunk), world.add_link(trunk));
        let (forward, back) = (world.add_path(&[there]), world.add_path(&[back]));
        if unused {
            let other = world.add_link(trunk);
            world.add_path(&[other]);
        }
        for i in 0..20 {
            world.open(FlowSpec {
                start: Time::from_millis(10 * i),
                work: Work::Endless,
                forward,
                back,
                tcp,
            });
        }
        world.run_until(Time::from_millis(5_000));
        (world.trajectory(), world.conserves())
    };
    let (first, conserves) = run(false, RENO_TCP);
    let other = TcpConfig {
        initial_window: 2,
        ..RENO_TCP
    };
    let alike = [(false, RENO_TCP), (true, RENO_TCP), (false, other)];
    let differs = alike.map(|(unused, tcp)| run(unused, tcp).0 != first);
    let facts = [!conserves, differs[0], differs[1], differs[2]];
    facts.map(|fact| f64::from(u8::from(fact))).to_vec()
}

fn judge_repeats(observed: &Observed, _: Effort) -> Vec<Check> {
    let exact = |number, i, name, expected| {
        let (observed, tolerance) = (observed.column(i), Tolerance::Absolute(0.));
        Check::new(number, name, "of runs", &observed, expected, tolerance).identity()
    };
    vec![
        exact(
            9,
            0,
            "20 lossy flows, links that lose count of a packet",
            0.,
        ),
        exact(20, 1, "the same seed, another trajectory", 0.),
        exact(20, 2, "an unused link, another trajectory", 0.),
        exact(20, 3, "another initial window, another trajectory", 1.),
    ]
}

/// Of the flow whose goodput is measured.
pub const RTT_S: f64 = 0.05;
const MIN_RTO_S: f64 = 0.2;

/// A TCP whose goodput is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SACK, an acknowledgement per segment: what Mathis describes.
    Sack,
    /// RFC 5681 without SACK: what PFTK describes.
    Reno,
    /// As Linux does: delayed acknowledgements, growth by acknowledged segments.
    LinuxReno,
    /// The same with CUBIC.
    LinuxCubic,
}

impl Kind {
    /// In the order of the checks.
    pub const ALL: [Kind; 4] = [Kind::Sack, Kind::Reno, Kind::LinuxReno, Kind::LinuxCubic];

    fn tcp(self) -> TcpConfig {
        let linux = TcpConfig {
            growth: Growth::PerSegment,
            min_rto_ns: 200 * MS,
            delayed_ack_ns: Some(40 * MS),
            ..RENO_TCP
        };
        match self {
            Kind::Sack => RENO_TCP,
            Kind::Reno => TcpConfig {
                recovery: Recovery::Reno,
                min_rto_ns: 200 * MS,
                ..RENO_TCP
            },
            Kind::LinuxReno => linux,
            Kind::LinuxCubic => TcpConfig {
                control: Control::Cubic,
                hystart: true,
                ..linux
            },
        }
    }

    fn losses(self, effort: Effort) -> &'static [f64] {
        match (self, effort) {
            (Kind::Sack, Effort::Full) => &[1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3],
            (Kind::Sack, Effort::Brief) => &[1e-3, 2e-3, 5e-3],
            (Kind::Reno, _) => &[1e-3, 3e-3, 1e-2, 3e-2],
            (Kind::LinuxReno | Kind::LinuxCubic, _) => &[1e-3, 1e-2, 3e-2],
        }
    }
}

/// Loss, and the Mbit/s that Linux 6.18 reached with Reno and with CUBIC over an emulated line of 50 ms, with segments
/// of 1448 bytes.
pub const LINUX_MBPS: [(f64, f64, f64); 3] =
    [(0.001, 8.39, 8.39), (0.01, 2.98, 2.85), (0.03, 1.53, 1.35)];

fn points(effort: Effort) -> impl Iterator<Item = (Kind, f64)> {
    let of = move |kind: Kind| kind.losses(effort).iter().map(move |p| (kind, *p));
    Kind::ALL.into_iter().flat_map(of)
}

/// Segments per second that an endless flow delivers at each point.
fn measure_goodput(seed: u64, effort: Effort) -> Vec<f64> {
    goodput_at_points(seed, effort, 1, |p| p)
}

/// Over so many times the delay, and with the loss that `of` makes of each.
fn goodput_at_points(seed: u64, effort: Effort, far: u64, of: fn(f64) -> f64) -> Vec<f64> {
    let measured = |(kind, p): (Kind, f64)| {
        goodput(
            seed,
            of(p),
            kind.tcp(),
            measured_s(p, effort),
            far * 25 * MS,
        )
    };
    points(effort).map(measured).collect()
}

/// At least so many seconds and, by Mathis, so many losses: few of them say little.
fn measured_s(p: f64, effort: Effort) -> u64 {
    let (least_s, losses) = effort.of((100, 100.), (200, 200.));
    let losses_s = losses / (p * mathis(p, RTT_S, 1.));
    least_s.max(losses_s.ceil() as u64)
}

fn goodput(seed: u64, p: f64, tcp: TcpConfig, seconds: u64, delay_ns: u64) -> f64 {
    let forward = LinkSpec {
        loss: Loss::Independent { probability: p },
        ..line(1_000_000_000, delay_ns, Buffer::Unlimited)
    };
    let (mut world, flow, _) = one_flow(seed, forward, Work::Endless, tcp);
    let mut received_at = |seconds: u64| {
        world.run_until(Time::from_millis(1000 * seconds));
        world.receiver(flow).received_segments()
    };
    let before = received_at(20);
    f64::from(received_at(20 + seconds) - before) / seconds as f64
}

/// Goodput in segments per second by TCP and loss.
pub fn goodputs(observed: &Observed, effort: Effort) -> Vec<(Kind, f64, Vec<f64>)> {
    let columns = points(effort).enumerate();
    columns
        .map(|(i, (kind, p))| (kind, p, observed.column(i)))
        .collect()
}

fn judge_goodput(observed: &Observed, effort: Effort) -> Vec<Check> {
    let all = goodputs(observed, effort);
    let of = |kind| all.iter().filter(move |(other, ..)| *other == kind);
    let check = |number, name: &str, p: f64, observed: &[f64], expected, part| {
        let name = format!("{name} at p = {p}, goodput");
        let tolerance = Tolerance::Relative(part);
        Check::new(number, name, "segments/s", observed, expected, tolerance)
    };
    let mut checks: Vec<Check> = of(Kind::Sack)
        .map(|(_, p, observed)| check(13, "Mathis", *p, observed, mathis(*p, RTT_S, 1.), 0.12))
        .collect();
    checks.push(slope(&of(Kind::Sack).cloned().collect::<Vec<_>>()));
    checks.extend(of(Kind::Reno).map(|(_, p, observed)| {
        let expected = pftk(*p, RTT_S, 1., MIN_RTO_S);
        check(14, "PFTK", *p, observed, expected, 0.2)
    }));
    checks
}

/// Of log goodput over log loss, seed by seed.
fn slope(points: &[(Kind, f64, Vec<f64>)]) -> Check {
    let logs: Vec<f64> = points.iter().map(|(_, p, _)| p.ln()).collect();
    let middle = super::mean(&logs);
    let spread: f64 = logs.iter().map(|x| (x - middle).powi(2)).sum();
    let of_seed = |seed: usize| {
        let products = logs.iter().zip(points);
        products
            .map(|(x, (_, _, observed))| (x - middle) * observed[seed].ln())
            .sum::<f64>()
            / spread
    };
    let slopes: Vec<f64> = (0..points[0].2.len()).map(of_seed).collect();
    let name = "Mathis, slope of log goodput over log p";
    Check::new(13, name, "", &slopes, -0.5, Tolerance::Relative(0.1))
}

/// Goodput of every seed as a multiple of Linux's at the same loss, with Reno and with CUBIC.
pub fn beside_linux(observed: &Observed, effort: Effort) -> Vec<(Kind, f64, Vec<f64>)> {
    let over = |segments: Vec<f64>, linux_mbps: f64| {
        let mbps = |segments: f64| segments * f64::from(RENO_TCP.mss_bytes) * 8. / 1e6;
        segments
            .into_iter()
            .map(|each| mbps(each) / linux_mbps)
            .collect()
    };
    let ratios = goodputs(observed, effort)
        .into_iter()
        .filter_map(|(kind, p, segments)| {
            let (_, reno, cubic) = *LINUX_MBPS.iter().find(|(other, ..)| *other == p)?;
            match kind {
                Kind::LinuxReno => Some((kind, p, over(segments, reno))),
                Kind::LinuxCubic => Some((kind, p, over(segments, cubic))),
                Kind::Sack | Kind::Reno => None,
            }
        });
    ratios.collect()
}
