//! What docs/availability.md promises of verdicts, for a few seeds of each case of its table.

#[path = "../examples/verdicts/cases.rs"]
mod cases;

use std::time::Duration;

use cases::{LASTING, SUDDEN, Shows};

const SEEDS: [u64; 2] = [2, 3];
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn every_verdict_comes_in_time_and_none_is_wrong() {
    let busy = cases::busy();
    for case in &SUDDEN {
        let most_s = match case.id {
            "cut" | "cut_down" => 0.8,
            "cut_5" => 1.5,
            "cut_up" => 2.5,
            "cut_20" | "idle" => 3.0,
            "captive_dns" | "captive_icmp" => 10.0,
            _ => 120.0,
        };
        for seed in SEEDS {
            let seen = case.seen(&busy, seed);
            println!("{}: {seen:?}", case.title);
            assert!(seen.verdict_s <= most_s, "{}: {seen:?}", case.title);
            assert_eq!(seen.wrong, 0.0, "{}: {seen:?}", case.title);
        }
    }
}

#[test]
fn what_lasts_takes_no_link_down_that_carries_flows() {
    let quiet = cases::quiet(HOUR);
    for case in &LASTING {
        let seen = case.seen(&quiet, SEEDS[0]);
        println!("{}: {seen:?}", case.title);
        assert_eq!(seen.wrong, 0.0, "{}: {seen:?}", case.title);
        match case.shows {
            Shows::Lossy => assert!(seen.lossy > 0.7, "{}: {seen:?}", case.title),
            Shows::Captive => assert!(seen.in_use < 0.2, "{}: {seen:?}", case.title),
            Shows::Nothing | Shows::Down => {}
        }
        assert_eq!(seen.other_lossy, 0.0, "{}: {seen:?}", case.title);
    }
}
