//! How delays and losses beyond the links change over a day.
//!
//! The logarithm of each, in relation to what the scenario file says, is an Ornstein–Uhlenbeck process: where it stands is normal,
//! and forgotten with a time constant of hours. Every link, and delay and loss of it, draws from a stream of its own.

use std::f64::consts::TAU;
use std::time::Duration;

use anabranch_scenario::{Change, Direction, Fault, Line, Loss, Network, Place, Scenario};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Standard deviations of the logarithms.
const DELAY: f64 = 0.3;
const LOSS: f64 = 0.25;
/// As long as figure 1 (b) has round trips keep.
const MEMORY: Duration = Duration::from_secs(12 * 3600);
/// Delays change by less than a hundredth in so short a time.
const STEP: Duration = Duration::from_secs(50);

/// What changes beyond the links of a site until its limit, in the order of time. `place` tells destinations apart, whose ways are
/// others under the same seed.
pub fn faults(scenario: &Scenario, seed: u64, place: u64) -> Vec<Fault> {
    let Network::Site(site) = &scenario.network else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    for (link, number) in site.links.iter().zip(0..) {
        let Some(beyond) = &link.beyond else { continue };
        let fault = |at, direction, change| Fault {
            at,
            link: link.name.clone(),
            place: Place::Beyond,
            direction,
            change,
        };
        let stream = |of: u64| stream(seed, place << 16 | number << 1 | of);
        let (delays, losses) = (wander(DELAY, stream(0)), wander(LOSS, stream(1)));
        let steps = (0..).map(|step| STEP * step);
        let until_end = steps.take_while(|at| *at < scenario.limit);
        for ((at, delay), loss) in until_end.zip(delays).zip(losses) {
            let delay = Change::Delay(beyond.down.delay.mul_f64(delay));
            faults.push(fault(at, None, delay));
            if let Some(loss) = scaled(&beyond.down, loss) {
                faults.push(fault(at, Some(Direction::Down), Change::Loss(loss)));
            }
        }
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// None of a line that loses nothing.
fn scaled(line: &Line, by: f64) -> Option<Loss> {
    match line.loss {
        Loss::Independent { probability } => Some(Loss::Independent {
            probability: (probability * by).min(1.0),
        }),
        Loss::None | Loss::Bursty { .. } | Loss::PerHop { .. } => None,
    }
}

/// Factors around 1, a [`STEP`] apart.
fn wander(deviation: f64, mut random: ChaCha8Rng) -> impl Iterator<Item = f64> {
    let kept = (-STEP.as_secs_f64() / MEMORY.as_secs_f64()).exp();
    let fresh = deviation * (1.0 - kept * kept).sqrt();
    let mut at = deviation * normal(&mut random);
    std::iter::repeat_with(move || {
        let factor = at.exp();
        at = kept * at + fresh * normal(&mut random);
        factor
    })
}

/// Box and Muller 1958.
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let (radius, turn): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (TAU * turn).cos()
}

fn stream(seed: u64, of: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(of);
    random
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wanders_is_as_wide_as_it_is_told_and_forgets_within_its_memory() {
        let steps_a_memory = (MEMORY.as_secs_f64() / STEP.as_secs_f64()) as usize;
        let apart: Vec<f64> = (0..2000)
            .map(|seed| {
                let mut logs = wander(0.2, stream(seed, 0)).map(f64::ln);
                let (first, last) = (logs.next(), logs.nth(steps_a_memory - 1));
                first.expect("endless") * last.expect("endless")
            })
            .collect();
        let covariance = apart.iter().sum::<f64>() / apart.len() as f64;
        let expected = 0.2 * 0.2 / std::f64::consts::E;
        assert!((covariance / expected - 1.0).abs() < 0.15, "{covariance}");
    }
}
