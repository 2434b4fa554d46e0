//! The table of docs/availability.md: how soon a link is shown as what it is, and how often wrongly, over 20 seeds.
//!
//! ```text
//! cargo run --release --locked -p anabranch-sim --example verdicts
//! ```
//!
//! The names of cases limit it to them.

mod cases;

use std::thread;
use std::time::Duration;

use anabranch_scenario::Scenario;
use cases::{Case, LASTING, SUDDEN, Seen, Shows};

const SEEDS: std::ops::RangeInclusive<u64> = 31_001..=31_020;
/// Of each seed.
const DAY: Duration = Duration::from_secs(24 * 3600);

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let is_meant = |case: &&Case| named.is_empty() || named.iter().any(|name| name == case.id);
    println!("| case | shown | median | worst | wrong verdicts |");
    println!("|---|---|---|---|---|");
    let busy = cases::busy();
    for case in SUDDEN.iter().filter(is_meant) {
        let seen = each_seed(case, &busy);
        let mut times: Vec<f64> = seen.iter().map(|seen| seen.verdict_s).collect();
        times.sort_by(f64::total_cmp);
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        let (title, shows, wrong) = (case.title, word(case), wrong(&seen));
        println!("| {title} | {shows} | {median:.2} s | {worst:.2} s | {wrong} |");
    }
    println!(
        "\n| all the time | wrong verdicts in 24 hours of each seed | lossy | other link lossy | in use |"
    );
    println!("|---|---|---|---|---|");
    let quiet = cases::quiet(DAY);
    for case in LASTING.iter().filter(is_meant) {
        let seen = each_seed(case, &quiet);
        let mean =
            |of: fn(&Seen) -> f64| 100.0 * seen.iter().map(of).sum::<f64>() / seen.len() as f64;
        println!(
            "| {} | {} | {:.1} % | {:.1} % | {:.1} % |",
            case.title,
            wrong(&seen),
            mean(|seen| seen.lossy),
            mean(|seen| seen.other_lossy),
            mean(|seen| seen.in_use)
        );
    }
}

/// What each seed shows, in their order.
fn each_seed(case: &Case, file: &Scenario) -> Vec<Seen> {
    let seeds: Vec<u64> = SEEDS.collect();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let share = seeds.chunks(seeds.len().div_ceil(threads));
        let runs: Vec<_> = share
            .map(|seeds| scope.spawn(|| seeds.iter().map(|seed| case.seen(file, *seed)).collect()))
            .collect();
        let seen = runs.into_iter().map(|run| run.join());
        seen.flat_map(|seen: thread::Result<Vec<Seen>>| seen.expect("a run ends"))
            .collect()
    })
}

fn wrong(seen: &[Seen]) -> f64 {
    seen.iter().map(|seen| seen.wrong).sum()
}

fn word(case: &Case) -> &'static str {
    match case.shows {
        Shows::Nothing => "up",
        Shows::Down => "down",
        Shows::Captive => "captive",
        Shows::Lossy => "lossy",
    }
}
