//! Where a site's connections go, and how long the ways there are by either of two ISPs.
//!
//! Neither the week of packets that figure 5 counts nor the internet that figure 6 probes is public. Both are drawn here:
//! how unevenly prefixes are used, how far the ways to one differ, and that two of them are cut off from one ISP after the
//! other are inputs. What the site knows of a way is what the product's own machine makes of it, [`Availability`] with a
//! probe of TCP's handshake every five minutes.

use std::ops::Range;
use std::time::Duration;

use anabranch_core::availability::Availability;
use anabranch_core::bandwidth::LinkLoad;
use anabranch_core::{Config, LinkSpec, LinkState, ProbeId, State, Time};
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// As many as the site's hosts visited in that week.
pub const COUNT: usize = 1541;
pub const ISPS: usize = 2;
const DAYS: usize = 7;
/// Both traces of table II: eight hours.
const CONNECTIONS_A_DAY: usize = 4_774 + 6_020;

/// Of the connections and of the internet: what mutations change.
#[derive(Clone, Copy, Debug)]
pub struct Prefixes {
    /// By Zipf's law the k-th prefix is visited k to this power times less often than the first.
    pub skew: f64,
    /// SYNs before a way is given up.
    pub tries: u32,
    /// With one, both ways are the same.
    pub isps: usize,
}

impl Prefixes {
    /// Nothing is broken.
    pub const WHOLE: Prefixes = Prefixes {
        skew: 0.9,
        tries: 3,
        isps: ISPS,
    };

    /// Connections to each prefix, day by day; each is visited once on the first day at least.
    pub fn week(&self, seed: u64) -> Vec<[u32; DAYS]> {
        let weights = (1..=COUNT).map(|rank| (rank as f64).powf(-self.skew));
        let popular = WeightedIndex::new(weights).expect("weights are finite and positive");
        let mut random = stream(seed, WEEK);
        let mut visits = vec![[0; DAYS]; COUNT];
        for connection in 0..DAYS * CONNECTIONS_A_DAY {
            visits[popular.sample(&mut random)][connection / CONNECTIONS_A_DAY] += 1;
        }
        for days in &mut visits {
            days[0] = days[0].max(1);
        }
        visits
    }

    /// What probes of a whole day told of each of so many prefixes, by ISP.
    pub fn probed(&self, seed: u64, count: usize) -> Vec<[Vec<Told>; ISPS]> {
        let mut random = stream(seed, WAYS);
        let mut ways: Vec<[Way; ISPS]> = (0..count).map(|_| Way::drawn(&mut random)).collect();
        for prefix in split(count, &mut random) {
            Way::cut(&mut ways[prefix], &mut random);
        }
        let ways = ways.iter().enumerate();
        let told = |(prefix, ways): (usize, &[Way; ISPS])| {
            std::array::from_fn(|isp| {
                let isp = isp % self.isps;
                let mut random = stream(seed, PROBES + (prefix * ISPS + isp) as u64);
                ways[isp].probed(self.tries, &mut random)
            })
        };
        ways.map(told).collect()
    }
}

/// Streams of a seed.
const WEEK: u64 = 0;
const WAYS: u64 = 1;
const PROBES: u64 = 2;

fn stream(seed: u64, of: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(of);
    random
}

/// The two prefixes that only one ISP reaches at times.
fn split(count: usize, random: &mut ChaCha8Rng) -> [usize; 2] {
    let first = random.random_range(0..count);
    [first, (first + random.random_range(1..count)) % count]
}

/// Runs of probes in a day.
const RUNS: u32 = 288;
const RUN_EVERY: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(3);
/// Of a SYN or its answer.
const LOSS: f64 = 0.01;
/// Round trips on the shortest ways, in s, and by how much the nearest and the farthest prefix differ.
const NEAREST_S: f64 = 0.01;
const FARTHEST: f64 = 10.0;
/// What an ISP's way has beyond the shortest is Pareto with this shape, up to so many times.
const DETOUR_SHAPE: f64 = 2.0;
const DETOUR_MAX: f64 = 20.0;
/// Mean wait in queues, of the round trip.
const QUEUES: f64 = 0.2;
/// How long a cut lasts.
const CUT: Duration = Duration::from_secs(1_800);

/// What a run of probes tells of a way: the round trip last measured in s, none if the way was down.
pub type Told = Option<f64>;

/// From the site to a prefix by one ISP.
#[derive(Clone, Debug)]
struct Way {
    round_trip_s: f64,
    cut: Range<Time>,
}

impl Way {
    fn drawn(random: &mut ChaCha8Rng) -> [Way; ISPS] {
        let shortest_s = NEAREST_S * FARTHEST.powf(random.random());
        std::array::from_fn(|_| {
            let left = 1.0 - random.random::<f64>() * (1.0 - DETOUR_MAX.powf(-DETOUR_SHAPE));
            Way {
                round_trip_s: shortest_s * left.powf(-1.0 / DETOUR_SHAPE),
                cut: Time::ZERO..Time::ZERO,
            }
        })
    }

    /// The first way some time in the first half of the day, the second in the other.
    fn cut(ways: &mut [Way; ISPS], random: &mut ChaCha8Rng) {
        let half = RUN_EVERY * RUNS / 2;
        for (way, begins) in ways.iter_mut().zip([Duration::ZERO, half]) {
            let from = Time::ZERO + begins + (half - CUT).mul_f64(random.random());
            way.cut = from..from + CUT;
        }
    }

    /// The round trip of a SYN sent at `now`, unless it is lost.
    fn answer(&self, now: Time, random: &mut ChaCha8Rng) -> Option<Duration> {
        let (is_lost, draw) = (random.random_bool(LOSS), random.random::<f64>());
        let queued = -QUEUES * (1.0 - draw).ln();
        let round_trip = Duration::from_secs_f64(self.round_trip_s * (1.0 + queued));
        let answers = !is_lost && !self.cut.contains(&now) && round_trip < PATIENCE;
        answers.then_some(round_trip)
    }

    /// What the product's machine knows of the way, at the end of every run.
    fn probed(&self, tries: u32, random: &mut ChaCha8Rng) -> Vec<Told> {
        let load = LinkLoad::new(Time::ZERO, &LinkSpec::default(), Duration::ZERO);
        let mut machine = Availability::new(Time::ZERO, probing(tries), false);
        machine.set_link_state(Time::ZERO, LinkState::Present);
        let mut answer: Option<(Time, ProbeId, Duration)> = None;
        let run = |run: u32| {
            let end = Time::ZERO + RUN_EVERY * run;
            let mut was_down = false;
            loop {
                was_down |= matches!(machine.state(), State::Down(_));
                let answered_at = answer.map(|(at, ..)| at);
                let next = [answered_at, machine.probe_due(), machine.next_timeout()];
                let Some(now) = next.into_iter().flatten().min().filter(|now| *now < end) else {
                    break;
                };
                if let Some((_, id, round_trip)) = answer.take_if(|(at, ..)| *at == now) {
                    machine.answer(now, id, round_trip);
                }
                machine.tick(now, &load);
                if let Some(probe) = machine.next_probe(now, &load) {
                    let round_trip = self.answer(now, random);
                    answer = round_trip.map(|trip| (now + trip, probe.id, trip));
                }
            }
            let measured = machine.targets()[0].round_trip.filter(|_| !was_down);
            measured.map(|round_trip| round_trip.as_secs_f64())
        };
        (1..=RUNS).map(run).collect()
    }
}

/// A probe every five minutes, up to two more while none is answered within three seconds: then the way is down.
fn probing(tries: u32) -> Config {
    Config {
        idle_probe: RUN_EVERY,
        down_interval: RUN_EVERY,
        probe_interval: PATIENCE,
        deadline_min: PATIENCE,
        deadline_unmeasured: PATIENCE,
        deadline_max: PATIENCE,
        window_age: RUN_EVERY,
        down_consecutive: tries,
        down_loss: 10,
        up_consecutive: 0,
        up_loss: 9,
        hold_down: Duration::ZERO,
        hold_down_max: Duration::ZERO,
        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_takes_the_papers_windows() {
        assert_eq!(probing(3).validate(), Ok(()));
    }

    fn told(way: &Way, tries: u32) -> Vec<Told> {
        way.probed(tries, &mut stream(1, PROBES))
    }

    fn way(cut: Range<Time>) -> Way {
        Way {
            round_trip_s: 0.05,
            cut,
        }
    }

    #[test]
    fn a_way_is_down_in_the_runs_in_which_it_is_cut_and_in_no_others() {
        let at = |runs: u32| Time::ZERO + RUN_EVERY * runs;
        let told = told(&way(at(100)..at(106)), 3);
        assert_eq!(told.len(), RUNS as usize);
        let down: Vec<usize> = (0..told.len()).filter(|run| told[*run].is_none()).collect();
        // The machine finds it up again by the first probe after the cut.
        assert_eq!(down, (100..107).collect::<Vec<_>>());
        let trips_s: Vec<f64> = told.into_iter().flatten().collect();
        let mean_s = trips_s.iter().sum::<f64>() / trips_s.len() as f64;
        assert!((0.057..0.063).contains(&mean_s), "{mean_s}");
    }

    /// One in a hundred is lost, and so is one run in a hundred if nobody asks again.
    #[test]
    fn who_asks_but_once_takes_a_lost_packet_for_a_cut() {
        let nowhere = way(Time::ZERO..Time::ZERO);
        assert!(told(&nowhere, 3).iter().all(Option::is_some));
        assert!(told(&nowhere, 1).iter().any(Option::is_none));
    }
}
