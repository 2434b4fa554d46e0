//! Links without NAT in virtual time: connections keep the site's own addresses, and may change their link.

use std::path::Path;

use anabranch_core::Algorithm;
use anabranch_policy::{Dispatch, Granularity};
use anabranch_scenario::{
    Change, Direction, EventKind, LinkPlan, Load, Loss, Network, Outcome, Policy, Record, Run,
    Scenario, ScenarioFile,
};
use anabranch_workload::{Arrival, ArrivalPlan, ClassId, Pattern, RemoteServerId, UserId};

mod common;

use common::*;

/// Transfers of each user in turn, which begin between 1 s and 5 s.
fn transfers(count: u32, bytes: u64, direction: Direction) -> Load {
    let arrival = |number| Arrival {
        at: ms(1_000 + u64::from(number) * 4_000 / u64::from(count)),
        user: UserId(number),
        server: RemoteServerId(0),
        class: ClassId(0),
        bytes,
        direction,
    };
    Load::Arrivals(ArrivalPlan {
        pattern: Pattern::Rows((0..count).map(arrival).collect()),
        seed: 0,
    })
}

fn two_links() -> Vec<LinkPlan> {
    vec![link("a", 10 * MBIT), link("b", 10 * MBIT)]
}

fn routed(load: Load) -> Scenario {
    let mut scenario = scenario(two_links(), load, ms(60_000));
    route(&mut scenario);
    scenario
}

/// Bytes down and up that a link carried between these times.
fn carried_between(record: &Record, link: &str, from_s: f64, to_s: f64) -> (u64, u64) {
    let series = record.series.iter().find(|series| series.name == link);
    let samples = &series.expect("a link of the scenario").samples;
    let at = |t_s: f64| {
        let before = samples.iter().rfind(|sample| sample.t_s <= t_s);
        before.map_or((0, 0), |sample| (sample.down_bytes, sample.up_bytes))
    };
    let (from, to) = (at(from_s), at(to_s));
    (to.0 - from.0, to.1 - from.1)
}

fn outcomes(record: &Record, outcome: Outcome) -> usize {
    let transfers = record.transfers.iter();
    transfers.filter(|t| t.outcome == outcome).count()
}

#[test]
fn the_internet_sends_over_the_first_link_whose_lines_are_whole() {
    let load = downloads(10, 100_000, ms(100), ms(1_000), ms(30_000));
    let mut scenario = routed(load);
    scenario.faults = vec![
        fault(ms(10_000), "a", Change::Cut),
        fault(ms(20_000), "a", Change::Restore),
    ];
    let record = play(&scenario, gateway("RR"), 1);
    let down = |link, from_s, to_s| carried_between(&record, link, from_s, to_s).0;
    // Answers to probes are the link's own.
    let few = 10_000;
    let all = 8_000_000;
    assert!(down("a", 1.0, 10.0) > all && down("b", 1.0, 10.0) < few);
    assert!(down("a", 10.0, 20.0) < few && down("b", 10.0, 20.0) > all);
    assert!(down("a", 20.0, 30.0) > all && down("b", 20.5, 30.0) < few);
    let (_, up_a) = carried_between(&record, "a", 1.0, 9.0);
    let (_, up_b) = carried_between(&record, "b", 1.0, 9.0);
    assert!(up_a.abs_diff(up_b) < up_a / 5, "{up_a} and {up_b}");
    assert_eq!(outcomes(&record, Outcome::Ok), record.transfers.len());
}

#[test]
fn connections_outlive_a_link_without_nat_and_no_other() {
    for direction in [Direction::Up, Direction::Down] {
        let with_cut = |link: &str, nat: bool| {
            let mut scenario =
                scenario(two_links(), transfers(8, 2_000_000, direction), ms(60_000));
            if !nat {
                route(&mut scenario);
            }
            scenario.faults = vec![fault(ms(6_000), link, Change::Cut)];
            play(&scenario, gateway("RR"), 1)
        };
        for link in ["a", "b"] {
            let [kept, lost] = [false, true].map(|nat| with_cut(link, nat));
            assert_eq!(outcomes(&kept, Outcome::Ok), 8, "{link} {direction:?}");
            assert!(outcomes(&lost, Outcome::Ok) < 8, "{link} {direction:?}");
            let down = |event: &&anabranch_scenario::Event| event.kind == EventKind::Down;
            assert_eq!(kept.events.iter().filter(down).count(), 1);
        }
    }
}

/// `scenarios/multihomed.toml`: each policy, and the first of them behind NAT.
#[test]
fn a_multihomed_site_loses_no_transfer_with_a_link() {
    let text = include_str!("../../../scenarios/multihomed.toml");
    let read = |text: &str| {
        let file = ScenarioFile::parse(Path::new("multihomed.toml"), text);
        file.unwrap_or_else(|error| panic!("{error}")).runs()
    };
    let failed = |run: &Run| -> usize {
        let of_seed = |seed| {
            let record = play(&run.scenario, run.policy, seed);
            let transfers = record.transfers.iter();
            transfers.filter(|t| !t.outcome.is_ok()).count()
        };
        (1..=5).map(of_seed).sum()
    };
    assert_eq!(read(text).iter().map(failed).collect::<Vec<_>>(), [0, 0]);
    // WSDM alone.
    let lines = text.lines().filter(|line| !line.starts_with("policies"));
    let behind_nat = lines.collect::<Vec<_>>().join("\n");
    let behind_nat = behind_nat.replace("nat = false", "nat = true");
    assert_eq!(
        read(&behind_nat).iter().map(failed).collect::<Vec<_>>(),
        [3]
    );
}

#[test]
fn a_repeated_syn_takes_another_link_to_the_same_connection() {
    let mut scenario = routed(downloads(4, 2_000, ms(100), ms(1_000), ms(20_000)));
    let Network::Site(site) = &mut scenario.network else {
        panic!("no links");
    };
    site.links[1].up.loss = Loss::Independent { probability: 0.2 };
    let record = play(&scenario, gateway("WSDM"), 1);
    println!("{} moved", record.counts.reassignments);
    assert!(record.counts.reassignments > 5);
    assert_eq!(outcomes(&record, Outcome::Ok), record.transfers.len());
}

#[test]
fn a_class_per_packet_uses_all_links_for_one_connection() {
    let algorithm = Algorithm {
        granularity: Granularity::Packet,
        dispatch: Dispatch::Turns,
        ..Algorithm::default()
    };
    let scenario = routed(transfers(1, 5_000_000, Direction::Up));
    let packet = play(&scenario, Policy::gateway(algorithm), 1);
    let one = play(&scenario, gateway("RR"), 1);
    let up = |record: &Record, link| carried_between(record, link, 0.0, 60.0).1;
    let [a, b] = ["a", "b"].map(|link| up(&packet, link));
    assert!(a.abs_diff(b) < 10_000, "{a} and {b}");
    assert!(up(&one, "a").min(up(&one, "b")) < 10_000);
    let [packet, one] = [&packet, &one].map(|record| record.transfers[0].duration_s);
    println!("over both {packet:.2} s, over one {one:.2} s");
    assert!(packet < 0.7 * one);
}

#[test]
fn what_has_the_site_s_own_address_takes_no_link_with_nat() {
    let mut scenario = scenario(
        two_links(),
        transfers(8, 4_000_000, Direction::Up),
        ms(60_000),
    );
    let Network::Site(site) = &mut scenario.network else {
        panic!("no links");
    };
    site.links[0].nat = false;
    scenario.faults = vec![fault(ms(5_000), "a", Change::Cut)];
    let record = play(&scenario, gateway("RR"), 1);
    let of = |link: &str| {
        let those = record.transfers.iter();
        those
            .filter(|t| t.link.as_deref() == Some(link))
            .map(|t| t.outcome)
            .collect::<Vec<_>>()
    };
    assert_eq!(of("b"), [Outcome::Ok; 4]);
    assert!(
        of("a").iter().all(|outcome| outcome.is_failure()),
        "{:?}",
        of("a")
    );
}
