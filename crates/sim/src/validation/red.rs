//! Gentle random early detection against its curve, at a queue that is held where it is.

use anabranch_core::Time;

use super::{Check, Effort, Mutant, Observed, Tolerance, Topic};
use crate::dumbbell::line;
use crate::link::{Buffer, Link, Offer, Queue, Red};
use crate::packet::PacketId;

/// Drops of random early detection against its curve (Floyd and Jacobson 1993).
pub const RED: Topic = Topic::random("gentle random early detection", measure, judge);

/// The curve begins and ends elsewhere.
pub(super) const MUTANTS: &[Mutant] = &[Mutant {
    name: "wide-curve",
    topic: RED.title,
    measure: |seed, effort| {
        let wide = Red {
            min_bytes: CURVE.min_bytes / 2,
            max_bytes: CURVE.max_bytes * 2,
            ..CURVE
        };
        at_points(seed, effort, wide)
    },
}];

const RATE_BPS: u64 = 8_000_000;
/// Of every packet: a millisecond of the line.
const BYTES: u32 = 1000;
const PACKET_NS: u64 = 1_000_000;
/// The mean queue is the present one.
const CURVE: Red = Red {
    min_bytes: 10_000,
    max_bytes: 30_000,
    max_probability: 0.1,
    gentle: true,
    weight: 1.,
    ecn: false,
};
/// Queues in packets and the probability of a drop there: straight from 0 at min to 0.1 at max (Floyd and Jacobson
/// 1993), and on to 1 at twice max (Floyd 2000).
const POINTS: [(u64, f64); 8] = [
    (10, 0.),
    (20, 0.05),
    (30, 0.1),
    (35, 0.25),
    (40, 0.4),
    (45, 0.55),
    (54, 0.82),
    (60, 1.),
];

/// The share of packets dropped at each point.
fn measure(seed: u64, effort: Effort) -> Vec<f64> {
    at_points(seed, effort, CURVE)
}

fn at_points(seed: u64, effort: Effort, curve: Red) -> Vec<f64> {
    let offers = effort.of(20_000, 100_000);
    POINTS
        .map(|(packets, _)| dropped(seed, packets, offers, curve))
        .to_vec()
}

/// A packet comes whenever `packets` are before it: at once if the last was dropped, else when one has left.
fn dropped(seed: u64, packets: u64, offers: u64, curve: Red) -> f64 {
    let mut link = Link::new(line(RATE_BPS, 0, Buffer::Unlimited), seed, 0);
    for _ in 0..packets {
        link.offer(Time::ZERO, PacketId(0), BYTES);
    }
    link.set_queue(&Queue::Red(curve));
    let mut now_ns = 0;
    for _ in 0..offers {
        let offer = link.offer(Time::from_nanos(now_ns), PacketId(0), BYTES);
        if matches!(offer, Offer::Arrives(_)) {
            now_ns += PACKET_NS;
        }
    }
    link.counters(Time::from_nanos(now_ns)).early.packets as f64 / offers as f64
}

fn judge(observed: &Observed, _: Effort) -> Vec<Check> {
    let checks = POINTS.into_iter().enumerate().map(|(i, (packets, p))| {
        let name = format!("gentle RED, drops at {packets} packets of queue, p = {p}");
        let (observed, tolerance) = (observed.column(i), Tolerance::Relative(0.01));
        Check::new(21, name, "", &observed, share(p), tolerance)
    });
    checks.collect()
}

/// What is dropped in the long run. From one drop to the next it is 1, 2, … packets with probability `p` each until all
/// probability is used up (Floyd and Jacobson 1993, section 7, method 2).
fn share(p: f64) -> f64 {
    if p == 0. {
        return 0.;
    }
    let whole = (1. / p + 1e-9).floor();
    let gap = p * whole * (whole + 1.) / 2. + (1. - whole * p) * (whole + 1.);
    1. / gap
}
