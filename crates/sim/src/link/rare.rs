//! What few links have: losses, impairments, random early detection, a cut, an audit.

use anabranch_scenario::Opportunities;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Frame, Impairments, Loss, Nature, Red, Tally, Verdict};

/// Set in the stream of a link's early drops, clear in that of its losses.
const EARLY: u64 = 1 << 63;
/// Set in the stream of its jitter, as in the emulator's.
const JITTER: u64 = 1 << 62;
/// Packets of this size would have left an idle line while nothing came: what the mean queue of RED forgets by
/// (Floyd and Jacobson 1993, section 11, "a small packet").
const SMALL_BYTES: u64 = 500;

/// The rare part of a link.
#[derive(Debug)]
pub(super) struct Rare {
    seed: u64,
    stream: u64,
    chance: Option<Chance>,
    impairments: Impairments,
    /// Of jitter, once there is any.
    delays: Option<Box<ChaCha8Rng>>,
    /// A packet's [`Nature`] decides whether it is lost.
    asks_nature: bool,
    early_detection: Option<EarlyDetection>,
    pub is_cut: bool,
    /// When packets leave, in place of a rate.
    pub trace: Option<Box<Opportunities>>,
    pub audit: Option<Audit>,
    pub lost: Tally,
    pub early: Tally,
    /// Marked as they came.
    pub marked: Tally,
    /// Offered to a cut line or waiting before it, and on the line when it was cut.
    pub refused: Tally,
    pub swallowed: Tally,
}

impl Rare {
    /// Losses are drawn from the stream `stream` of `seed`.
    pub fn new(loss: Loss, seed: u64, stream: u64) -> Self {
        let mut rare = Rare {
            seed,
            stream,
            chance: None,
            impairments: Impairments::default(),
            delays: None,
            asks_nature: false,
            early_detection: None,
            is_cut: false,
            trace: None,
            audit: None,
            lost: Tally::default(),
            early: Tally::default(),
            marked: Tally::default(),
            refused: Tally::default(),
            swallowed: Tally::default(),
        };
        rare.set_loss(loss);
        rare
    }

    /// Goes on with the stream it has.
    pub fn set_loss(&mut self, loss: Loss) {
        match &mut self.chance {
            Some(chance) => {
                chance.loss = loss;
                chance.bad = false;
            }
            None if loss == Loss::None => {}
            None => self.chance = Some(Chance::new(loss, self.seed, self.stream)),
        }
        self.note_nature();
    }

    pub fn impairments(&self) -> Impairments {
        self.impairments
    }

    /// For packets that come from here on.
    pub fn set_impairments(&mut self, impairments: Impairments) {
        self.impairments = impairments;
        if !impairments.jitter.is_zero() && self.delays.is_none() {
            self.delays = Some(Box::new(random(self.seed, self.stream | JITTER)));
        }
        self.note_nature();
    }

    fn note_nature(&mut self) {
        let chance = self.chance.as_ref();
        let by_distance = chance.is_some_and(|chance| matches!(chance.loss, Loss::PerHop { .. }));
        self.asks_nature = by_distance || !self.impairments.passage.is_all();
    }

    /// How much longer than its delay a packet takes that comes now.
    pub fn later_ns(&mut self) -> u64 {
        let Some(delays) = &mut self.delays else {
            return 0;
        };
        self.impairments.later_ns(|| delays.next_u64())
    }

    pub fn set_red(&mut self, red: Red) {
        self.early_detection = Some(EarlyDetection::new(red, self.seed, self.stream));
    }

    pub fn detects_early(&self) -> bool {
        self.early_detection.is_some()
    }

    pub fn loses_by_nature(&self) -> bool {
        self.asks_nature
    }

    /// Whether the line will lose the packet that it accepts.
    pub fn loses(&mut self, bytes: u32, nature: Nature) -> bool {
        let chance = self.chance.as_mut();
        let loses = !self.impairments.takes(bytes, nature.sort)
            || chance.is_some_and(|chance| chance.loses(nature.hops));
        if loses {
            self.lost.add(bytes);
        }
        loses
    }

    /// What early detection makes of a packet that finds `queue_bytes` before it. The line has been idle for the
    /// transmission of `idle_bytes`.
    pub fn detect(&mut self, queue_bytes: u64, idle_bytes: u64, frame: Frame) -> Verdict {
        let Some(detection) = &mut self.early_detection else {
            return Verdict::Taken;
        };
        if !detection.drops(queue_bytes, idle_bytes) {
            return Verdict::Taken;
        }
        if frame.ect && detection.may_mark() {
            return Verdict::Marked;
        }
        self.early.add(frame.bytes);
        Verdict::Refused
    }

    /// A packet waits before the line from `now_ns` on.
    pub fn wait_begins(&mut self, now_ns: u64) {
        if let Some(audit) = &mut self.audit {
            audit.pass(now_ns);
            audit.count += 1;
        }
    }

    /// It waited from `since_ns` to `now_ns`.
    pub fn wait_ends(&mut self, since_ns: u64, now_ns: u64) {
        self.leave(now_ns);
        self.shift(i128::from(now_ns) - i128::from(since_ns));
    }

    /// A packet comes at `now_ns` and will leave at `arrival_ns`.
    pub fn enter(&mut self, now_ns: u64, arrival_ns: u64) {
        if let Some(audit) = &mut self.audit {
            audit.pass(now_ns);
            audit.count += 1;
            audit.sojourn_ns += i128::from(arrival_ns) - i128::from(now_ns);
        }
    }

    /// A packet leaves.
    pub fn leave(&mut self, now_ns: u64) {
        if let Some(audit) = &mut self.audit {
            audit.pass(now_ns);
            audit.count -= 1;
        }
    }

    /// A packet that is held leaves `by_ns` later than it was to.
    pub fn shift(&mut self, by_ns: i128) {
        if let Some(audit) = &mut self.audit {
            audit.sojourn_ns += by_ns;
        }
    }
}

/// Both sides of Little's law, in ns: how long packets were there, and the integral of how many were there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Audit {
    pub sojourn_ns: i128,
    pub integral_ns: i128,
    pub count: u64,
    last_ns: u64,
}

impl Audit {
    pub fn new(now_ns: u64, count: u64) -> Self {
        Audit {
            sojourn_ns: 0,
            integral_ns: 0,
            count,
            last_ns: now_ns,
        }
    }

    /// As many were there until now.
    pub fn pass(&mut self, now_ns: u64) {
        let elapsed_ns = i128::from(now_ns) - i128::from(self.last_ns);
        self.integral_ns += elapsed_ns * i128::from(self.count);
        self.last_ns = now_ns;
    }
}

/// A link's own random stream, and the state of its bursts.
#[derive(Debug)]
struct Chance {
    loss: Loss,
    random: ChaCha8Rng,
    bad: bool,
}

impl Chance {
    fn new(loss: Loss, seed: u64, stream: u64) -> Self {
        Chance {
            loss,
            random: random(seed, stream),
            bad: false,
        }
    }

    fn loses(&mut self, hops: u16) -> bool {
        let random = &mut self.random;
        self.loss.strikes(&mut self.bad, hops, |probability| {
            random.random::<f64>() < probability
        })
    }
}

/// Random early detection, Floyd and Jacobson 1993: the mean queue moves with every arrival and decays while the line
/// is idle; as long as not all are dropped the probability of a drop grows with the packets since the last, so that
/// drops are spread evenly.
#[derive(Debug)]
struct EarlyDetection {
    red: Red,
    mean_bytes: f64,
    /// Packets since the last drop.
    spared: u32,
    random: ChaCha8Rng,
}

impl EarlyDetection {
    fn new(red: Red, seed: u64, stream: u64) -> Self {
        EarlyDetection {
            red,
            mean_bytes: 0.,
            spared: 0,
            random: random(seed, stream | EARLY),
        }
    }

    fn drops(&mut self, queue_bytes: u64, idle_bytes: u64) -> bool {
        self.average(queue_bytes, idle_bytes);
        let share = share(&self.red, self.mean_bytes);
        if share == 0. {
            self.spared = 0;
            return false;
        }
        let left = 1. - f64::from(self.spared) * share;
        let drops = left <= share || self.random.random::<f64>() < share / left;
        self.spared = if drops { 0 } else { self.spared + 1 };
        drops
    }

    /// As long as not all packets are dropped (RFC 3168 section 7).
    fn may_mark(&self) -> bool {
        self.red.ecn && share(&self.red, self.mean_bytes) < 1.
    }

    fn average(&mut self, queue_bytes: u64, idle_bytes: u64) {
        let weight = self.red.weight;
        if queue_bytes == 0 {
            let small = idle_bytes / SMALL_BYTES;
            self.mean_bytes *= (1. - weight).powf(small as f64);
        }
        self.mean_bytes += weight * (queue_bytes as f64 - self.mean_bytes);
    }
}

/// The probability p_b of a drop at a mean queue, before drops are spread.
fn share(red: &Red, mean_bytes: f64) -> f64 {
    let (min, max) = (red.min_bytes as f64, red.max_bytes as f64);
    if mean_bytes <= min {
        0.
    } else if mean_bytes < max {
        red.max_probability * (mean_bytes - min) / (max - min)
    } else if red.gentle && mean_bytes < 2. * max {
        red.max_probability + (1. - red.max_probability) * (mean_bytes - max) / max
    } else {
        1.
    }
}

fn random(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    random
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of packets dropped at a constant queue.
    fn dropped(queue_bytes: u64) -> f64 {
        let red = Red {
            min_bytes: 10_000,
            max_bytes: 30_000,
            max_probability: 0.1,
            gentle: false,
            weight: 0.002,
            ecn: false,
        };
        let mut detection = EarlyDetection::new(red, 7, 0);
        detection.mean_bytes = queue_bytes as f64;
        let drops = (0..400_000).filter(|_| detection.drops(queue_bytes, 0));
        drops.count() as f64 / 400_000.
    }

    #[test]
    fn drops_follow_the_curve_of_the_paper() {
        assert_eq!(dropped(9_999), 0.);
        assert_eq!(dropped(30_000), 1.);
        for queue_bytes in [12_000, 20_000, 28_000] {
            // The distance between drops is uniform on 1..=1/p: (1 + 1/p) / 2 in the mean (section 7, method 2).
            let p = 0.1 * (queue_bytes - 10_000) as f64 / 20_000.;
            let expected = 2. * p / (1. + p);
            let observed = dropped(queue_bytes);
            println!("{queue_bytes} bytes: observed {observed:.5}, expected {expected:.5} ± 2 %");
            assert!((observed / expected - 1.).abs() < 0.02);
        }
    }

    #[test]
    fn the_mean_queue_follows_arrivals_and_decays_while_the_line_is_idle() {
        let red = Red {
            min_bytes: 1_000_000,
            max_bytes: 2_000_000,
            max_probability: 0.1,
            gentle: false,
            weight: 0.01,
            ecn: false,
        };
        let mut detection = EarlyDetection::new(red, 7, 0);
        for _ in 0..69 {
            detection.drops(10_000, 0);
        }
        assert!(
            (detection.mean_bytes - 5_000.).abs() < 10.,
            "half-life of 69 packets"
        );
        detection.drops(0, 68 * SMALL_BYTES);
        assert!(
            (detection.mean_bytes - 2_500.).abs() < 10.,
            "as many were missing"
        );
    }
}
