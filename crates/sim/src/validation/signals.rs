//! Queues that tell senders before they are full: CoDel's law of drops, and marks in place of drops.

use std::time::Duration;

use anabranch_core::Time;

use super::{Check, Effort, FAR, Mutant, Observed, Tolerance, Topic};
use crate::dumbbell::line;
use crate::link::{Buffer, Codel, Frame, Link, Nature, Queue};
use crate::packet::PacketId;
use crate::tcp::TcpConfig;
use crate::world::{FlowSpec, Work, World};

const MS: u64 = 1_000_000;

/// When CoDel drops from a queue that no sender spares (RFC 8289, section 5.3).
pub const CODEL: Topic = Topic::exact("CoDel's law", measure_codel, judge_codel);

/// Flows that hear marks in place of drops (RFC 3168).
pub const ECN: Topic = Topic::exact("marks in place of drops", measure_ecn, judge_ecn);

/// CoDel with twice the interval, senders that do not speak ECN, and marks on longer ways.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "slow-codel",
        topic: CODEL.title,
        measure: |_, _| drops_s(2 * INTERVAL),
    },
    Mutant {
        name: "no-ecn",
        topic: ECN.title,
        measure: |_, _| marked_flows(false, 1),
    },
    Mutant::far(ECN.title, |_, _| marked_flows(true, FAR)),
];

const TARGET: Duration = Duration::from_millis(10);
const INTERVAL: Duration = Duration::from_millis(50);
/// A packet takes a millisecond of the line, and one comes every 0.8 ms.
const RATE_BPS: u64 = 8_000_000;
const BYTES: u32 = 1000;
const APART_NS: u64 = 800_000;
/// Which drops are timed: counted from the first.
const DROPS: [usize; 4] = [1, 2, 10, 100];

fn codel(interval: Duration, ecn: bool) -> Queue {
    Queue::Codel(Codel {
        target: TARGET,
        interval,
        mtu_bytes: 1500,
        ecn,
    })
}

fn measure_codel(_: u64, _: Effort) -> Vec<f64> {
    drops_s(INTERVAL)
}

/// When the drops are, in s from the first packet; the second and later ones from the first drop.
fn drops_s(interval: Duration) -> Vec<f64> {
    let mut link = Link::new(line(RATE_BPS, 0, Buffer::Unlimited), 1, 1);
    link.set_queue(&codel(interval, false));
    let (mut drops_ns, mut departs) = (Vec::new(), None);
    for number in 0.. {
        let now = Time::from_nanos(u64::from(number) * APART_NS);
        while let Some(at) = departs.filter(|at| *at <= now) {
            link.next(at, |_| Nature::ORDINARY);
            drops_ns.extend(link.take_dropped().map(|_| at.as_nanos()));
            departs = link.arm(at);
        }
        if drops_ns.len() >= DROPS[DROPS.len() - 1] {
            break;
        }
        let frame = Frame {
            packet: PacketId(number),
            bytes: BYTES,
            flow: 0,
            ect: false,
            nature: Nature::ORDINARY,
        };
        link.take(now, frame);
        departs = link.arm(now).or(departs);
    }
    let first_ns = drops_ns[0];
    let since = |drop: usize| match drop {
        1 => first_ns,
        later => drops_ns[later - 1] - first_ns,
    };
    DROPS.map(|drop| since(drop) as f64 / 1e9).to_vec()
}

/// The queue is at the target when it has grown to that by a fifth of the time; the first drop is an interval later, and
/// each further one after an interval divided by the root of how many there were.
fn judge_codel(observed: &Observed, _: Effort) -> Vec<Check> {
    let interval_s = INTERVAL.as_secs_f64();
    let checks = DROPS.into_iter().enumerate().map(|(i, drop)| {
        let (name, expected) = match drop {
            1 => (
                "CoDel, first drop".to_owned(),
                5.0 * TARGET.as_secs_f64() + interval_s,
            ),
            later => {
                let roots: f64 = (1..later).map(|count| 1.0 / (count as f64).sqrt()).sum();
                (
                    format!("CoDel, drop {later} after the first"),
                    interval_s * roots,
                )
            }
        };
        let (observed, tolerance) = (observed.column(i), Tolerance::Relative(0.02));
        Check::new(26, name, "s", &observed, expected, tolerance)
    });
    checks.collect()
}

fn measure_ecn(_: u64, _: Effort) -> Vec<f64> {
    marked_flows(true, 1)
}

/// Of four flows whose queue is CoDel's, with marks in place of drops and over so many times the delay: segments sent
/// again, and what they receive as a multiple of what they do with drops.
fn marked_flows(ecn: bool, far: u64) -> Vec<f64> {
    let ((again, marked), (_, dropped)) = (four_flows(ecn, far), four_flows(false, 1));
    vec![again, marked / dropped]
}

/// Segments sent again and segments received in a minute, over so many times the delay.
fn four_flows(ecn: bool, far: u64) -> (f64, f64) {
    let mut world = World::new(1);
    let trunk = line(RATE_BPS, far * 30 * MS, Buffer::Unlimited);
    let (there, back) = (world.add_link(trunk), world.add_link(trunk));
    world.link_mut(there).set_queue(&codel(2 * INTERVAL, ecn));
    let (forward, back) = (world.add_path(&[there]), world.add_path(&[back]));
    let flows: Vec<_> = (0..4)
        .map(|number| {
            let spec = FlowSpec {
                start: Time::from_nanos(10 * MS * number),
                work: Work::Endless,
                forward,
                back,
                tcp: TcpConfig {
                    ecn,
                    ..TcpConfig::default()
                },
            };
            world.open(spec)
        })
        .collect();
    world.run_until(Time::from_millis(60_000));
    let sum = |of: &dyn Fn(&_) -> u32| flows.iter().map(|flow| f64::from(of(flow))).sum();
    (
        sum(&|flow| world.opener(*flow).counters().retransmitted),
        sum(&|flow| world.receiver(*flow).received_segments()),
    )
}

fn judge_ecn(observed: &Observed, _: Effort) -> Vec<Check> {
    let check = |i, name, unit, expected, tolerance| {
        Check::new(27, name, unit, &observed.column(i), expected, tolerance)
    };
    vec![
        check(
            0,
            "four flows under CoDel with ECN, segments sent again",
            "",
            0.,
            Tolerance::Absolute(0.),
        ),
        check(
            1,
            "four flows under CoDel, received with ECN over received without",
            "",
            1.,
            Tolerance::Absolute(0.05),
        ),
    ]
}
