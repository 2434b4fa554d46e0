//! The table of docs/availability.md: how soon a link is shown as what it is, and how often wrongly, over 20 seeds.
//!
//! ```text
//! cargo run --release --locked -p anabranch-sim --example verdicts
//! ```

mod cases;

use cases::{Case, LASTING, SUDDEN, Seen, Shows};

const SEEDS: std::ops::RangeInclusive<u64> = 31_001..=31_020;

fn main() {
    println!("| case | shown | median | worst | wrong verdicts |");
    println!("|---|---|---|---|---|");
    let busy = cases::busy();
    for case in &SUDDEN {
        let seen: Vec<Seen> = SEEDS.map(|seed| case.seen(&busy, seed)).collect();
        let mut times: Vec<f64> = seen.iter().map(|seen| seen.verdict_s).collect();
        times.sort_by(f64::total_cmp);
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        let (title, shows, wrong) = (case.title, word(case), wrong(&seen));
        println!("| {title} | {shows} | {median:.2} s | {worst:.2} s | {wrong} |");
    }
    println!("\n| all the time | wrong verdicts in 24 hours | lossy | other link lossy | in use |");
    println!("|---|---|---|---|---|");
    let quiet = cases::quiet();
    for case in &LASTING {
        let seen: Vec<Seen> = SEEDS.map(|seed| case.seen(&quiet, seed)).collect();
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
