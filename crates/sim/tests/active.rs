//! Links by probes of the destinations that are used most (active measurement: Akella et al. in Peng 2005, section 2.3).

mod common;

use anabranch_core::{Active, Algorithm, Learning};
use anabranch_scenario::{Change, Outcome, Place, Policy, Record, Scenario};
use common::*;

/// Small downloads at 10/s for 29 s.
fn surveyed() -> Scenario {
    let steady = downloads(10, 20_000, ms(100), ms(1_000), ms(30_000));
    scenario(three_links(), steady, ms(60_000))
}

fn every(period_s: u32, listed: u32) -> Policy {
    let algorithm: Algorithm = "active".parse().expect("a policy of the table");
    Policy::gateway(Algorithm {
        learning: Learning::Active(Active { period_s, listed }),
        ..algorithm
    })
}

fn links_between(record: &Record, from_s: f64, to_s: f64) -> Vec<&str> {
    let begun = |at: f64| (from_s..to_s).contains(&at);
    let transfers = record.transfers.iter().filter(|t| begun(t.start_s));
    transfers.map(|t| t.link.as_deref().unwrap()).collect()
}

#[test]
fn what_is_used_much_takes_the_fastest_link_once_it_was_probed() {
    for seed in 1..=3 {
        let record = play(&surveyed(), every(2, 100), seed);
        assert!(record.transfers.iter().all(|t| t.outcome == Outcome::Ok));
        let before = links_between(&record, 0., 2.);
        assert!(NAMES.iter().all(|name| before.contains(name)), "{before:?}");
        let after = links_between(&record, 5., 30.);
        assert!(after.iter().all(|link| *link == "b"), "{after:?}");
        let measuring = record.counts.measuring.packets;
        assert!(measuring > 0 && measuring.is_multiple_of(3), "{measuring}");
    }
}

#[test]
fn a_period_later_the_link_is_known_that_is_the_fastest_now() {
    let mut scenario = surveyed();
    let mut change = fault(ms(12_000), "b", Change::Delay(ms(300)));
    change.place = Place::Beyond;
    scenario.faults.push(change);
    let record = play(&scenario, every(1, 100), 1);
    let after = links_between(&record, 24., 30.);
    assert!(after.iter().all(|link| *link == "a"), "{after:?}");
}

#[test]
fn probes_are_as_many_as_destinations_and_links_in_a_period_and_no_connection_adds_any() {
    let few = play(&surveyed(), every(1, 100), 1).counts.measuring;
    let mut scenario = surveyed();
    scenario.load = downloads(10, 20_000, ms(50), ms(1_000), ms(30_000));
    let many = play(&scenario, every(1, 100), 1).counts.measuring;
    let rarely = play(&surveyed(), every(5, 100), 1).counts.measuring;
    assert!(few.packets.abs_diff(many.packets) <= 9, "{few:?} {many:?}");
    assert!(few.packets > 4 * rarely.packets, "{few:?} {rarely:?}");
    assert_eq!(few.bytes, 40 * few.packets);
}
