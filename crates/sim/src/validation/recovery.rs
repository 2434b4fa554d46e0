//! How TCP repairs losses, against what other simulators make of the same pipe.

use anabranch_core::Time;

use super::{Check, Effort, FAR, Mutant, Observed, Tolerance, Topic};
use crate::dumbbell::{line, one_flow};
use crate::link::{Buffer, LinkSpec, Loss};
use crate::tcp::{Recovery, TcpConfig};
use crate::world::{FlowSpec, Work, World};

const MS: u64 = 1_000_000;

/// Both variants of NewReno (RFC 6582) against ns-2.
pub const NEWRENO: Topic = Topic::exact("NewReno beside ns-2", measure_newreno, judge_newreno);

/// Short transfers whose handshake may be hit, against ns-3.
pub const LOST_SYNS: Topic =
    Topic::random("lost SYNs beside ns-3", measure_lost_syns, judge_lost_syns);

/// Losses of which too few acknowledgements tell, with and without RACK's probe (RFC 8985, section 7).
pub const TAILS: Topic = Topic::random("lost tails", measure_tails, judge_tails);

/// Each variant of NewReno in place of the other, SACK and RACK too, and a longer round trip.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "other-newreno",
        topic: NEWRENO.title,
        measure: |_, _| {
            newreno(|recovery| match recovery {
                Recovery::NewReno => Recovery::NewRenoSlowButSteady,
                _ => Recovery::NewReno,
            })
        },
    },
    Mutant::far(LOST_SYNS.title, |seed, effort| lost_syns(seed, effort, FAR)),
    Mutant {
        name: "other-recovery",
        topic: TAILS.title,
        measure: |seed, effort| {
            let others = [Recovery::Rack, Recovery::Sack];
            others.map(|other| timed_out(seed, effort, other)).to_vec()
        },
    },
];

const TRANSFER_BYTES: u64 = 100_000_000;
const RATE_BPS: u64 = 45_000_000;
const ONE_WAY_NS: u64 = 60 * MS;
/// ns-2.35's `Agent/TCP/Newreno`, whose `newreno_changes1_` is 1 or 0, with an acknowledgement per segment, a first window
/// of 10 and a least timeout of 1 s: recovery, the buffer in packets, the seconds of the transfer.
const NS2_NEWRENO: [(Recovery, u64, f64); 8] = [
    (Recovery::NewReno, 50, 47.41),
    (Recovery::NewReno, 100, 45.71),
    (Recovery::NewReno, 200, 42.07),
    (Recovery::NewReno, 400, 21.79),
    (Recovery::NewRenoSlowButSteady, 50, 39.98),
    (Recovery::NewRenoSlowButSteady, 100, 35.09),
    (Recovery::NewRenoSlowButSteady, 200, 86.03),
    (Recovery::NewRenoSlowButSteady, 400, 103.70),
];

/// How long a transfer takes whose slow start overflows the buffer, in s.
fn measure_newreno(_: u64, _: Effort) -> Vec<f64> {
    newreno(|recovery| recovery)
}

fn newreno(of: fn(Recovery) -> Recovery) -> Vec<f64> {
    let seconds = |(recovery, packets, _)| {
        let tcp = TcpConfig {
            recovery: of(recovery),
            mss_bytes: 1460,
            header_bytes: 40,
            ..TcpConfig::default()
        };
        let forward = line(RATE_BPS, ONE_WAY_NS, Buffer::Packets(packets));
        let (mut world, flow, _) = one_flow(1, forward, Work::Transfer(TRANSFER_BYTES), tcp);
        world.run_until(Time::from_millis(1_000_000));
        let finished = world.times(flow).finished;
        finished.map_or(f64::INFINITY, |at| at.as_nanos() as f64 / 1e9)
    };
    NS2_NEWRENO.map(seconds).to_vec()
}

fn judge_newreno(observed: &Observed, _: Effort) -> Vec<Check> {
    let check = |(i, (recovery, packets, ns2))| {
        let variant = match recovery {
            Recovery::NewRenoSlowButSteady => "slow but steady",
            _ => "impatient",
        };
        let name = format!("NewReno, {variant}, 100 MB past a buffer of {packets} packets");
        let tolerance = Tolerance::Relative(0.02);
        Check::new(23, name, "s", &observed.column(i), ns2, tolerance)
    };
    NS2_NEWRENO.into_iter().enumerate().map(check).collect()
}

const SHORT_BYTES: u64 = 30_000;
/// The 99th percentile that ns-3.37 gives, in s: of transfers of 30 kB with a round trip of 50 ms and 2 % of the packets
/// towards the receiver lost, a SYN among them, a first window of 10 and a least timeout of 200 ms.
const NS3_P99_S: f64 = 1.152;
/// One starts after the other.
const APART_NS: u64 = 100 * MS;

/// The 99th percentile of short transfers, in s.
fn measure_lost_syns(seed: u64, effort: Effort) -> Vec<f64> {
    lost_syns(seed, effort, 1)
}

/// Over so many times the delay.
fn lost_syns(seed: u64, effort: Effort, far: u64) -> Vec<f64> {
    let tcp = TcpConfig {
        min_rto_ns: 200 * MS,
        ..TcpConfig::default()
    };
    let transfers = effort.of(1000, 4000);
    let mut taken_s = taken_s(seed, transfers, SHORT_BYTES, 0.02, far * 25 * MS, tcp);
    taken_s.sort_unstable_by(f64::total_cmp);
    vec![taken_s[taken_s.len() * 99 / 100]]
}

/// How long transfers take, in s, one of which starts every [`APART_NS`] and whose packets are lost independently of
/// another towards the receiver.
fn taken_s(
    seed: u64,
    transfers: u64,
    bytes: u64,
    probability: f64,
    one_way_ns: u64,
    tcp: TcpConfig,
) -> Vec<f64> {
    let mut world = World::new(seed);
    let clean = line(100_000_000, one_way_ns, Buffer::Unlimited);
    let there = world.add_link(LinkSpec {
        loss: Loss::Independent { probability },
        ..clean
    });
    let back = world.add_link(clean);
    let (forward, back) = (world.add_path(&[there]), world.add_path(&[back]));
    for i in 0..transfers {
        world.open(FlowSpec {
            start: Time::from_nanos(APART_NS * i),
            work: Work::Transfer(bytes),
            forward,
            back,
            tcp,
        });
    }
    world.run_until(Time::from_nanos(APART_NS * transfers + 600_000 * MS));
    let taken_s = |flow| {
        let finished = world.times(flow).finished.map_or(u64::MAX, Time::as_nanos);
        (finished - world.spec(flow).start.as_nanos()) as f64 / 1e9
    };
    world.flows().map(taken_s).collect()
}

fn judge_lost_syns(observed: &Observed, _: Effort) -> Vec<Check> {
    let name = "30 kB at 2 % loss, 99th percentile";
    let (observed, tolerance) = (observed.column(0), Tolerance::Relative(0.02));
    vec![Check::new(24, name, "s", &observed, NS3_P99_S, tolerance)]
}

const TAIL_LOSS: f64 = 0.01;
const TAIL_WINDOW: u32 = 10;
/// Longer than any repair, shorter than the least timeout.
const TIMED_OUT_S: f64 = 0.9;

fn measure_tails(seed: u64, effort: Effort) -> Vec<f64> {
    [Recovery::Sack, Recovery::Rack]
        .map(|recovery| timed_out(seed, effort, recovery))
        .to_vec()
}

/// Of transfers of one first window with a round trip of 80 ms, the share that waits for a timeout.
fn timed_out(seed: u64, effort: Effort, recovery: Recovery) -> f64 {
    let tcp = TcpConfig {
        recovery,
        initial_window: TAIL_WINDOW,
        ..TcpConfig::default()
    };
    let bytes = u64::from(TAIL_WINDOW * tcp.mss_bytes);
    let transfers = effort.of(2_000, 10_000);
    let taken_s = taken_s(seed, transfers, bytes, TAIL_LOSS, 40 * MS, tcp);
    let late = taken_s.iter().filter(|taken_s| **taken_s > TIMED_OUT_S);
    late.count() as f64 / transfers as f64
}

/// A timeout takes a lost SYN, or a retransmission that is lost with nothing sent after it; of SACK also a loss among the
/// last three, of which too few acknowledgements tell; of RACK that of the last alone, whose probe waits as long.
fn judge_tails(observed: &Observed, _: Effort) -> Vec<Check> {
    let arrives = 1. - TAIL_LOSS;
    let again = 1. - f64::from(TAIL_WINDOW) * TAIL_LOSS * TAIL_LOSS;
    let check = |i, name: &str, in_time: f64| {
        let name =
            format!("{TAIL_WINDOW} segments at 1 % loss, {name}, share that waits for a timeout");
        let (observed, tolerance) = (observed.column(i), Tolerance::Relative(0.15));
        Check::new(25, name, "", &observed, 1. - in_time, tolerance)
    };
    vec![
        check(0, "SACK", arrives.powi(4) * again),
        check(1, "RACK", arrives.powi(2) * again),
    ]
}
