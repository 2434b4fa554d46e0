//! Peers in the gateway's place, in virtual time: who escapes what, and when.

use anabranch_core::catalogue::{Facts, TargetKind};
use anabranch_peers::catalogue::ROWS;
use anabranch_scenario::{Beyond, Change, Direction, Loss, Place, Policy, Record, Scenario};

mod common;

use common::*;

/// Small downloads by four users from the first second on, and a cut at 20 s.
fn cut(nat: bool, place: Place, end_s: u64) -> Scenario {
    let beyond = Beyond {
        shared: None,
        down: line(10 * MBIT, ms(5)),
        up: line(10 * MBIT, ms(5)),
    };
    let with_beyond = |name: &str, delay_ms| {
        let mut plan = link(name, 10 * MBIT);
        plan.up.delay = ms(delay_ms);
        plan.beyond = Some(beyond.clone());
        plan
    };
    let links = vec![
        with_beyond("a", 10),
        with_beyond("b", 20),
        with_beyond("c", 30),
    ];
    let load = downloads(4, 10_000, ms(100), ms(1_000), ms(end_s * 1_000 - 5_000));
    let mut scenario = scenario(links, load, ms(end_s * 1_000));
    scenario.patience = ms(2_000);
    if !nat {
        route(&mut scenario);
    }
    scenario.faults = vec![anabranch_scenario::Fault {
        place,
        ..fault(ms(20_000), "a", Change::Cut)
    }];
    scenario
}

fn peer(name: &str) -> Policy {
    let policy = Policy::parse(TargetKind::Link, name);
    policy.unwrap_or_else(|| panic!("{name}")).unwrap()
}

/// Seconds after the cut at which the last transfer began that failed; 0 if none did.
fn failed_for_s(record: &Record) -> f64 {
    let failed = record.transfers.iter().filter(|it| it.outcome.is_failure());
    let last = failed.map(|it| it.start_s).fold(20.0, f64::max);
    last - 20.0
}

fn failures(record: &Record) -> usize {
    let transfers = record.transfers.iter();
    transfers.filter(|it| it.outcome.is_failure()).count()
}

fn escape_s(name: &str, nat: bool, place: Place) -> f64 {
    let record = play(&cut(nat, place, 120), peer(name), 1);
    let first = record.transfers.iter().filter(|it| it.start_s < 19.0);
    assert!(first.clone().all(|it| it.outcome.is_ok()), "{name}");
    let after_s = failed_for_s(&record);
    println!("{name}, nat {nat}, {place:?}: {after_s} s");
    after_s
}

/// Transfers go on failing until the end.
const NEVER: f64 = 90.0;

#[test]
fn what_never_looks_loses_what_it_gives_to_a_dead_link() {
    let lost = |name: &str| {
        let record = play(&cut(true, Place::LastMile, 60), peer(name), 1);
        let after = record.transfers.iter().filter(|it| it.start_s > 20.0);
        let all = after.clone().count();
        let failed = after.filter(|it| it.outcome.is_failure()).count();
        println!("{name}: {failed} of {all}");
        failed as f64 / all as f64
    };
    assert_eq!(lost("one-link"), 1.0);
    // Two of four users have the first of three links, the others one each.
    assert!((0.49..0.51).contains(&lost("static")));
    for name in ["nftables", "ECMP"] {
        assert!((0.25..0.42).contains(&lost(name)), "a third");
    }
}

#[test]
fn a_dead_gateway_is_left_in_time_and_what_is_beyond_never() {
    for nat in [true, false] {
        let after_s = escape_s("dead-gateway 9s", nat, Place::LastMile);
        assert!((5.0..11.0).contains(&after_s));
        assert!(escape_s("dead-gateway 9s", nat, Place::Beyond) > NEVER);
    }
}

#[test]
fn bgp_ends_failures_after_its_delay_and_bfd_spares_the_hold_timer() {
    let after_s = escape_s("BGP 20s BFD", false, Place::LastMile);
    assert!((18.0..23.0).contains(&after_s));
    let after_s = escape_s("BGP 20s", false, Place::Beyond);
    assert!((17.0..22.0).contains(&after_s));
    let after_s = escape_s("BGP 5s", false, Place::LastMile);
    assert!((60.0..96.0).contains(&after_s), "a hold time, and 5 s");
}

#[test]
fn a_tunnel_waits_for_nobody_and_does_not_help_beyond() {
    assert!(escape_s("BGP-tunnelled 60s BFD", false, Place::LastMile) < 2.0);
    assert!(escape_s("BGP-tunnelled 60s BFD", false, Place::Beyond) > NEVER);
    let after_s = escape_s("BGP-injected 10s BFD", false, Place::LastMile);
    assert!((8.0..13.0).contains(&after_s));
    let after_s = escape_s("BGP-injected 10s BFD", false, Place::Beyond);
    assert!((17.0..22.0).contains(&after_s), "twice the delay");
}

#[test]
fn bgp_is_blind_to_load() {
    let mut scenario = cut(false, Place::LastMile, 30);
    scenario.faults.clear();
    let record = play(&scenario, peer("BGP"), 1);
    assert_eq!(failures(&record), 0);
    let bytes = |name: &str| {
        let series = record.series.iter().find(|series| series.name == name);
        series
            .and_then(|series| series.samples.last())
            .unwrap()
            .down_bytes
    };
    assert!(bytes("a") > 2_000_000 && bytes("b") < 10_000 && bytes("c") < 10_000);
}

#[test]
fn route_control_and_an_overlay_see_what_is_beyond() {
    for nat in [true, false] {
        for place in [Place::LastMile, Place::Beyond] {
            let after_s = escape_s("route-control 2s", nat, place);
            // Behind NAT a new flow has a new link; without, answers come by the internet's way, which is whole at once.
            assert!((2.0..9.0).contains(&after_s));
            let after_s = escape_s("RON", nat, place);
            assert!((3.0..20.0).contains(&after_s));
        }
    }
}

#[test]
fn route_control_leaves_a_link_that_loses_packets_and_an_overlay_by_latency_does_not() {
    let mut scenario = cut(true, Place::LastMile, 120);
    scenario.faults = vec![anabranch_scenario::Fault {
        direction: Some(Direction::Up),
        ..fault(
            ms(20_000),
            "a",
            Change::Loss(Loss::Independent { probability: 0.3 }),
        )
    }];
    let of_a = |name: &str| {
        let record = play(&scenario, peer(name), 1);
        let late = record.transfers.iter().filter(|it| it.start_s > 60.0);
        let of_a = late.clone().filter(|it| it.link.as_deref() == Some("a"));
        of_a.count() as f64 / late.count() as f64
    };
    assert!(of_a("route-control 2s") < 0.1);
    assert!(of_a("RON") > 0.5);
    assert!(of_a("RON loss") < 0.3);
}

#[test]
fn a_peers_packets_are_counted_and_equal_runs_are_equal() {
    for row in ROWS.iter().filter(|row| row.peer.is_modelled()) {
        let scenario = cut(false, Place::LastMile, 40);
        let [one, other] = [1, 1].map(|seed| play(&scenario, Policy::Peer(row.peer), seed));
        assert_eq!(one.difference(&other), None, "{}", row.name);
        let probes = one.counts.measuring.packets;
        let sends = row.peer.cost().probes != "none";
        assert_eq!(probes > 0, sends, "{}: {probes} packets", row.name);
    }
}
