//! Traces of models.
//!
//! Only sums, products and the generator are in them, so that a seed draws the same trace on every machine.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::{Bucket, OPPORTUNITY_BYTES, Slot, Trace};
use crate::seconds;

/// Of a rate that walks: a step of the model of Winstein et al.
const LTE_STEP_MS: u32 = 20;
/// Of what neighbours load a cable with.
const CABLE_STEP_MS: u32 = 1000;
/// Of the neighbours' load, per square root of a second: it crosses its range in minutes.
const NEIGHBOURS_STEP: f64 = 0.05;

/// A cellular link: the rate is a Brownian motion, and now and then there is none for a while, as Winstein, Sivaraman and
/// Balakrishnan (Sprout, NSDI 2013, section 3) model what they measured of LTE and 3G. They step by 20 ms and have a
/// deviation of 200 packets a second per square root of a second in a range up to 1000, which is 40 % of the mean here.
///
/// The motion is reflected at 0 and at twice the mean. What was drawn is then scaled to have just the mean asked for, so
/// that traces of several seeds differ in how they vary and not in what they carry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lte {
    /// Over the whole length, outages included.
    pub mean_bps: u64,
    /// Standard deviation after a second, as a part of the mean.
    pub variation: f64,
    /// How long outages are in the mean; their lengths are geometric.
    #[serde(rename = "outage_s", serialize_with = "seconds")]
    pub outage: Duration,
    /// From the end of an outage to the next, in the mean; no outages if 0.
    #[serde(rename = "between_s", serialize_with = "seconds")]
    pub between: Duration,
    /// Then the trace begins anew.
    #[serde(rename = "length_s", serialize_with = "seconds")]
    pub length: Duration,
    /// That of the line in a run; 0 before.
    #[serde(skip)]
    pub seed: u64,
}

impl Lte {
    /// The trace of its seed.
    pub(super) fn draw(&self) -> Trace {
        let length_ms = milliseconds(self.length);
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let step_s = f64::from(LTE_STEP_MS) / 1000.;
        let chance = |mean: Duration| match mean.as_secs_f64() {
            0. => 0.,
            mean_s => (step_s / mean_s).min(1.),
        };
        let (begins, ends) = (chance(self.between), chance(self.outage));
        let mut walk = Walk::new(self.variation, step_s, 2., &mut random);
        let mut out = false;
        let steps = length_ms.div_ceil(LTE_STEP_MS);
        let drawn: Vec<f64> = (0..steps)
            .map(|_| {
                out ^= random.random_bool(if out { ends } else { begins });
                let rate = walk.step(&mut random);
                if out { 0. } else { rate }
            })
            .collect();
        let sum: f64 = drawn.iter().sum();
        let scale = match sum > 0. {
            true => f64::from(steps) / sum,
            false => 1.,
        };
        let rates = drawn.iter().map(|rate| rate * scale * self.mean_bps as f64);
        Trace::new(slots(rates, LTE_STEP_MS, length_ms), length_ms, None)
    }
}

/// A link over cable. What it carries needs tokens of a bucket, as DOCSIS shapes a subscriber: after a pause it is as
/// fast as `boost_bps` until the bucket is empty, and then as `steady_bps` (Bauer, Clark and Lehr, PowerBoost, HomeNets
/// 2011). The boost shrinks by what neighbours use, a half of which follows the hour of the day, and the other half a walk
/// (Sundaresan et al., Broadband Internet Performance, SIGCOMM 2011, saw both in homes).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cable {
    /// What lasts.
    pub steady_bps: u64,
    /// What the line carries as long as there are tokens.
    pub boost_bps: u64,
    /// Of the bucket, full at first.
    pub burst_bytes: u64,
    /// The part of the boost that neighbours take at most, below 1.
    pub dip: f64,
    /// From one busiest hour to the next; the trace begins at an hour that is drawn.
    #[serde(rename = "day_s", serialize_with = "seconds")]
    pub day: Duration,
    /// Then the trace begins anew.
    #[serde(rename = "length_s", serialize_with = "seconds")]
    pub length: Duration,
    /// That of the line in a run; 0 before.
    #[serde(skip)]
    pub seed: u64,
}

impl Cable {
    /// The trace of its seed.
    pub(super) fn draw(&self) -> Trace {
        let length_ms = milliseconds(self.length);
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let step_s = f64::from(CABLE_STEP_MS) / 1000.;
        let mut hour: f64 = random.random();
        let mut neighbours = Walk::new(NEIGHBOURS_STEP, step_s, 1., &mut random);
        let rates = (0..length_ms.div_ceil(CABLE_STEP_MS)).map(|_| {
            hour = (hour + step_s / self.day.as_secs_f64()) % 1.;
            // A triangle: 0 at the day's ends, 1 in its middle.
            let busy = 1. - (2. * hour - 1.).abs();
            let load = (busy + neighbours.step(&mut random)) / 2.;
            self.boost_bps as f64 * (1. - self.dip * load)
        });
        let bucket = Bucket {
            rate_bps: self.steady_bps,
            bytes: self.burst_bytes,
        };
        let slots = slots(rates, CABLE_STEP_MS, length_ms);
        Trace::new(slots, length_ms, Some(bucket))
    }
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1)
}

/// Between 0 and a bound, where it is reflected; in the long run every value is as likely.
struct Walk {
    at: f64,
    bound: f64,
    /// Steps are as likely between this and its negative, which in their sum is as good as a normal distribution.
    widest: f64,
}

impl Walk {
    /// `deviation` after a second, below the bound per step.
    fn new(deviation: f64, step_s: f64, bound: f64, random: &mut ChaCha8Rng) -> Walk {
        Walk {
            at: bound * random.random::<f64>(),
            bound,
            widest: (deviation * (3. * step_s).sqrt()).min(bound),
        }
    }

    fn step(&mut self, random: &mut ChaCha8Rng) -> f64 {
        let at = (self.at + self.widest * (2. * random.random::<f64>() - 1.)).abs();
        self.at = if at > self.bound {
            2. * self.bound - at
        } else {
            at
        };
        self.at
    }
}

/// Opportunities at these rates, each of which holds for `step_ms`; one at least.
fn slots(rates: impl Iterator<Item = f64>, step_ms: u32, length_ms: u32) -> Vec<Slot> {
    let mut slots = Vec::new();
    let mut waiting_bytes = 0.;
    let mut at_ms = 0;
    for rate_bps in rates {
        for _ in 0..step_ms.min(length_ms - at_ms) {
            at_ms += 1;
            waiting_bytes += rate_bps / 8000.;
            let opportunities = (waiting_bytes / f64::from(OPPORTUNITY_BYTES)) as u32;
            if opportunities > 0 {
                waiting_bytes -= f64::from(opportunities) * f64::from(OPPORTUNITY_BYTES);
                slots.push(Slot {
                    at_ms,
                    opportunities,
                });
            }
        }
    }
    if slots.is_empty() {
        slots.push(Slot {
            at_ms: length_ms,
            opportunities: 1,
        });
    }
    slots
}
