//! Connections that race over all links (FRRTDF in Peng 2005, OFRP in Lin, Tsao and Leong 2007).

mod common;

use anabranch_core::{Algorithm, Racing};
use anabranch_scenario::{Change, Load, Loss, Outcome, Place, Policy, Scenario};
use common::*;

/// Small downloads at 20/s for 19 s.
fn steady() -> Load {
    downloads(10, 20_000, ms(50), ms(1_000), ms(20_000))
}

fn raced(load: Load) -> Scenario {
    scenario(three_links(), load, ms(60_000))
}

fn with(racing: Racing) -> Policy {
    Policy::gateway(Algorithm {
        racing,
        ..gateway_algorithm("FRRTDF")
    })
}

fn gateway_algorithm(name: &str) -> Algorithm {
    name.parse().expect("a policy of the table")
}

#[test]
fn every_connection_takes_the_shortest_round_trip_and_none_is_reset() {
    for seed in 1..=3 {
        let record = play(&raced(steady()), gateway("FRRTDF"), seed);
        assert_all_ok(&record);
        assert_eq!(carried(&record, &NAMES), [0, record.transfers.len(), 0]);
        for transfer in &record.transfers {
            // The fastest link's own round trip, but for what waits in its queue.
            assert!(transfer.setup_s.unwrap() < 0.025 + 0.010, "{transfer:?}");
        }
    }
}

#[test]
fn a_race_costs_the_fastest_link_s_round_trip_and_nothing_more() {
    let alone = downloads(1, 2_000, ms(500), ms(1_000), ms(10_000));
    let record = play(&raced(alone), gateway("FRRTDF"), 1);
    for transfer in &record.transfers {
        let setup_s = transfer.setup_s.unwrap();
        assert!((0.025..0.026).contains(&setup_s), "{transfer:?}");
    }
}

#[test]
fn the_race_finds_the_shortest_round_trip_anew_when_paths_change() {
    let mut scenario = raced(steady());
    let slower = Change::Delay(ms(100));
    let mut change = fault(ms(10_000), "b", slower);
    change.place = Place::Beyond;
    scenario.faults.push(change);
    let record = play(&scenario, gateway("FRRTDF"), 1);
    assert_all_ok(&record);
    for transfer in &record.transfers {
        let expected = if transfer.start_s < 10. { "b" } else { "a" };
        // A connection at the change itself may see either.
        if (transfer.start_s - 10.).abs() > 0.2 {
            assert_eq!(transfer.link.as_deref(), Some(expected), "{transfer:?}");
        }
    }
}

#[test]
fn with_loss_on_every_link_all_connections_come_through() {
    let mut links = three_links();
    for link in &mut links {
        link.up.loss = Loss::Independent { probability: 0.05 };
        link.down.loss = Loss::Independent { probability: 0.05 };
    }
    let scenario = scenario(links, steady(), ms(120_000));
    for seed in 1..=5 {
        let record = play(&scenario, gateway("FRRTDF"), seed);
        assert_all_ok(&record);
        let [a, b, c] = carried(&record, &NAMES)[..] else {
            panic!("three links")
        };
        // One SYN or SYN-ACK in ten is lost: then the next fastest wins.
        let all = record.transfers.len() as f64;
        println!("seed {seed}: {a} {b} {c}");
        assert!((b as f64 / all - 0.9).abs() < 0.07, "{a} {b} {c}");
        assert!(a > c, "{a} {b} {c}");
    }
}

#[test]
fn a_connection_over_a_dead_link_loses_nothing_by_it() {
    let mut scenario = raced(steady());
    for at in [ms(5_000), ms(12_000)] {
        let change = match at == ms(5_000) {
            true => Change::Cut,
            false => Change::Restore,
        };
        scenario.faults.push(fault(at, "b", change));
    }
    let record = play(&scenario, gateway("FRRTDF"), 1);
    let dead = |start_s: f64| (5.0..12.0).contains(&start_s);
    for transfer in record.transfers.iter().filter(|t| dead(t.start_s)) {
        assert_eq!(transfer.outcome, Outcome::Ok);
        assert_eq!(transfer.link.as_deref(), Some("a"), "{transfer:?}");
        assert!(transfer.setup_s.unwrap() < 0.06, "{transfer:?}");
    }
}

#[test]
fn what_the_rate_refuses_goes_by_the_rest_of_the_tuple() {
    // 20 connections a second, of which 5 may race, and 5 more at the beginning.
    let record = play(&raced(steady()), with(Racing::Syns { per_s: 5 }), 1);
    assert_all_ok(&record);
    let fastest = |t: &&anabranch_scenario::Transfer| t.link.as_deref() == Some("b");
    let all = record.transfers.len();
    let by_race = 19 * 5 + 5;
    let expected = by_race + (all - by_race) / 3;
    let found = record.transfers.iter().filter(fastest).count();
    assert!(
        found.abs_diff(expected) <= all / 20,
        "{found} of {all}, not {expected}"
    );

    let never = play(&raced(steady()), with(Racing::None), 1);
    let even = carried(&never, &NAMES);
    assert!(even.iter().all(|&n| n.abs_diff(all / 3) <= 1), "{even:?}");
}

#[test]
fn a_repeated_syn_races_again_over_the_same_links() {
    let mut scenario = raced(downloads(1, 20_000, ms(4_000), ms(2_000), ms(3_000)));
    for name in NAMES {
        // Too short for anybody to find out.
        scenario.faults.push(fault(ms(1_950), name, Change::Cut));
        scenario
            .faults
            .push(fault(ms(2_100), name, Change::Restore));
    }
    let record = play(&scenario, gateway("FRRTDF"), 1);
    assert_all_ok(&record);
    let [transfer] = &record.transfers[..] else {
        panic!("one download")
    };
    assert_eq!(transfer.link.as_deref(), Some("b"));
    let setup_s = transfer.setup_s.unwrap();
    assert!((1.025..1.03).contains(&setup_s), "{transfer:?}");
}
