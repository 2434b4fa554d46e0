//! A link under Poisson arrivals against queueing theory.
//!
//! Each check runs 20 seeds and passes if the mean lies within its tolerance or three standard errors, whichever is
//! wider. Times are in units of the mean service time, 1/μ; ρ = λ/μ.

use anabranch_core::Time;
use anabranch_sim::link::{Buffer, Link, LinkSpec, Loss, Offer};
use anabranch_sim::packet::Slab;
use anabranch_sim::queue::EventQueue;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SEEDS: u64 = 20;
const PACKETS: u64 = 60_000;
const WARM_UP: u64 = 5_000;
/// Mean size in bytes, large so that whole bytes follow the distribution, and the mean service time it takes.
const MEAN_BYTES: f64 = 100_000.;
const SERVICE_NS: f64 = 1_000_000.;
const RATE_BPS: u64 = 800_000_000;

#[derive(Clone, Copy)]
enum Event {
    Arrival,
    Delivery,
}

#[derive(Clone, Copy)]
enum Service {
    Exponential,
    Deterministic,
    /// Shape, and the greatest size as a multiple of the least.
    BoundedPareto {
        alpha: f64,
        ratio: f64,
    },
}

impl Service {
    fn bytes(self, random: &mut ChaCha8Rng) -> u32 {
        let u: f64 = random.random();
        let units = match self {
            Service::Exponential => -(1. - u).ln(),
            Service::Deterministic => 1.,
            Service::BoundedPareto { alpha, ratio } => {
                let least = 1. / self.moment(1.);
                least * (1. - u * (1. - ratio.powf(-alpha))).powf(-1. / alpha)
            }
        };
        (units * MEAN_BYTES).round().max(1.) as u32
    }

    /// E[Sⁿ] of a bounded Pareto whose least value is 1.
    fn moment(self, n: f64) -> f64 {
        let Service::BoundedPareto { alpha, ratio } = self else {
            panic!("only the bounded Pareto needs its moments computed");
        };
        alpha / (alpha - n) * (1. - ratio.powf(n - alpha)) / (1. - ratio.powf(-alpha))
    }
}

struct Outcome {
    /// Times in the link, in service times, sorted.
    sojourns: Vec<f64>,
    drop_ratio: f64,
}

impl Outcome {
    fn mean(&self) -> f64 {
        self.sojourns.iter().sum::<f64>() / self.sojourns.len() as f64
    }

    fn p99(&self) -> f64 {
        self.sojourns[self.sojourns.len() * 99 / 100]
    }
}

fn run(seed: u64, load: f64, service: Service, buffer: Buffer) -> Outcome {
    let spec = LinkSpec {
        rate_bps: RATE_BPS,
        delay_ns: 0,
        buffer,
        loss: Loss::None,
    };
    let mut link = Link::new(spec, seed, 0);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut events, mut packets) = (EventQueue::default(), Slab::default());
    let (mut sojourns, mut arrivals) = (Vec::new(), 0);
    let (mut last, mut area_ns, mut total_ns) = (Time::ZERO, 0, 0);
    events.push(Time::ZERO, Event::Arrival);
    while let Some((now, event)) = events.pop() {
        area_ns += packets.len() as u128 * now.since(last).as_nanos();
        last = now;
        match event {
            Event::Arrival => {
                arrivals += 1;
                let packet = packets.insert(now);
                match link.offer(now, packet, service.bytes(&mut random)) {
                    Offer::Wake(at) => events.push(at, Event::Delivery),
                    Offer::Queued => {}
                    Offer::Overflowed | Offer::Lost => drop(packets.remove(packet)),
                }
                if arrivals < PACKETS {
                    let gap_ns = -(1. - random.random::<f64>()).ln() * SERVICE_NS / load;
                    let next_ns = now.as_nanos() + gap_ns.round() as u64;
                    events.push(Time::from_nanos(next_ns), Event::Arrival);
                }
            }
            Event::Delivery => {
                let (packet, next) = link.deliver();
                let sojourn_ns = now.since(packets.remove(packet)).as_nanos();
                total_ns += sojourn_ns;
                sojourns.push(sojourn_ns as f64 / SERVICE_NS);
                if let Some(at) = next {
                    events.push(at, Event::Delivery);
                }
            }
        }
    }
    assert!(link.conserves());
    assert!(packets.is_empty());
    assert_eq!(
        area_ns, total_ns,
        "Little's law: packets present over time are times in the link over packets"
    );
    let counters = link.counters();
    let mut sojourns = sojourns.split_off(WARM_UP as usize);
    sojourns.sort_unstable_by(f64::total_cmp);
    Outcome {
        sojourns,
        drop_ratio: counters.overflowed.packets as f64 / counters.offered.packets as f64,
    }
}

/// Runs all seeds and holds the mean of `observe` against `expected`, relative `tolerance`.
fn check(name: &str, expected: f64, tolerance: f64, observe: impl Fn(u64) -> f64) {
    let observed: Vec<f64> = (1..=SEEDS).map(observe).collect();
    let n = observed.len() as f64;
    let mean = observed.iter().sum::<f64>() / n;
    let variance = observed.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.);
    let allowed = (tolerance * expected).max(3. * (variance / n).sqrt());
    let told = format!("{name}: observed {mean:.5}, expected {expected:.5} ± {allowed:.5}");
    println!("{told}");
    assert!((mean - expected).abs() <= allowed, "{told}");
}

#[test]
fn mm1_time_in_system_and_its_99th_percentile() {
    let load = 0.7;
    let run = |seed| run(seed, load, Service::Exponential, Buffer::Unlimited);
    let mean = 1. / (1. - load);
    check("M/M/1 W", mean, 0.01, |seed| run(seed).mean());
    check("M/M/1 p99", mean * 100f64.ln(), 0.03, |seed| {
        run(seed).p99()
    });
}

#[test]
fn mm1k_drop_probability() {
    for (load, k) in [(0.8f64, 5), (1.2, 10)] {
        let drops = (1. - load) * load.powi(k) / (1. - load.powi(k + 1));
        let buffer = Buffer::Packets(k as u64);
        check(
            &format!("M/M/1/{k} P_drop at ρ = {load}"),
            drops,
            0.01,
            |seed| run(seed, load, Service::Exponential, buffer).drop_ratio,
        );
    }
}

#[test]
fn md1_waiting_time() {
    for load in [0.5, 0.8] {
        let waiting = load / (2. * (1. - load));
        check(&format!("M/D/1 Wq at ρ = {load}"), waiting, 0.01, |seed| {
            run(seed, load, Service::Deterministic, Buffer::Unlimited).mean() - 1.
        });
    }
}

#[test]
fn mg1_waiting_time_with_bounded_pareto_sizes() {
    let service = Service::BoundedPareto {
        alpha: 1.5,
        ratio: 100.,
    };
    let load = 0.6;
    let second_moment = service.moment(2.) / service.moment(1.).powi(2);
    let waiting = load * second_moment / (2. * (1. - load));
    check("M/G/1 Wq", waiting, 0.01, |seed| {
        run(seed, load, service, Buffer::Unlimited).mean() - 1.
    });
}
