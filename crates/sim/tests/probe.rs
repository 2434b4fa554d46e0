//! Connections that wait while their destination is probed over all links (PCM in Peng 2005).

mod common;

use anabranch_core::{Algorithm, Racing};
use anabranch_scenario::{Change, Outcome, Policy, Scenario};
use common::*;

/// Small downloads at 20/s for 19 s.
fn probed() -> Scenario {
    let steady = downloads(10, 20_000, ms(50), ms(1_000), ms(20_000));
    scenario(three_links(), steady, ms(60_000))
}

fn with(per_s: u32) -> Policy {
    let algorithm: Algorithm = "PCM".parse().expect("a policy of the table");
    Policy::gateway(Algorithm {
        racing: Racing::Probes { per_s },
        ..algorithm
    })
}

#[test]
fn every_connection_takes_the_link_of_the_first_answer_a_round_trip_later() {
    for seed in 1..=3 {
        let record = play(&probed(), gateway("PCM"), seed);
        assert_all_ok(&record);
        let connections = record.transfers.len();
        assert_eq!(carried(&record, &NAMES), [0, connections, 0]);
        for transfer in &record.transfers {
            let setup_s = transfer.setup_s.unwrap();
            // What waits in the queue of the fastest link comes on top.
            assert!((0.050..0.070).contains(&setup_s), "{transfer:?}");
        }
        let measuring = record.counts.measuring;
        assert_eq!(measuring.packets, 3 * connections as u64);
        assert!(record.counts.probes.packets >= measuring.packets);
    }
}

#[test]
fn a_connection_over_a_dead_link_loses_nothing_by_it() {
    let mut scenario = probed();
    scenario.faults.push(fault(ms(5_000), "b", Change::Cut));
    scenario
        .faults
        .push(fault(ms(12_000), "b", Change::Restore));
    let record = play(&scenario, gateway("PCM"), 1);
    let dead = |start_s: f64| (5.0..12.0).contains(&start_s);
    for transfer in record.transfers.iter().filter(|t| dead(t.start_s)) {
        assert_eq!(transfer.outcome, Outcome::Ok);
        assert_eq!(transfer.link.as_deref(), Some("a"), "{transfer:?}");
        assert!(transfer.setup_s.unwrap() < 0.12, "{transfer:?}");
    }
}

#[test]
fn what_the_rate_refuses_goes_by_the_rest_of_the_tuple_at_once() {
    // 20 connections a second, of which 5 may wait, and 5 more at the beginning.
    let record = play(&probed(), with(5), 1);
    assert_all_ok(&record);
    let probed = record.counts.measuring.packets / 3;
    assert!(probed.abs_diff(19 * 5 + 5) <= 2, "{probed}");
    let at_once = |t: &&anabranch_scenario::Transfer| t.link.as_deref() != Some("b");
    let others = record.transfers.iter().filter(at_once).count();
    let expected = (record.transfers.len() - probed as usize) * 2 / 3;
    assert!(others.abs_diff(expected) <= 5, "{others}, not {expected}");
}

#[test]
fn a_syn_that_no_answer_comes_for_is_sent_when_it_is_repeated() {
    let load = downloads(1, 20_000, ms(4_000), ms(2_000), ms(3_000));
    let mut scenario = scenario(three_links(), load, ms(60_000));
    for name in NAMES {
        // Too short for anybody to find out.
        scenario.faults.push(fault(ms(1_950), name, Change::Cut));
        scenario
            .faults
            .push(fault(ms(2_100), name, Change::Restore));
    }
    let record = play(&scenario, gateway("PCM"), 1);
    assert_all_ok(&record);
    let [transfer] = &record.transfers[..] else {
        panic!("one download")
    };
    let setup_s = transfer.setup_s.unwrap();
    assert!((1.02..1.10).contains(&setup_s), "{transfer:?}");
    assert_eq!(record.counts.measuring.packets, 3, "once");
}
