//! The gateway in virtual time: what it does with flows when links differ, fill up and fail.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_core::{Balancer, ClassSpec, Config, Time};
use anabranch_policy::Granularity;
use anabranch_scenario::{
    Beyond, Change, Direction, EventKind, Fault, Load, Network, Outcome, Place, Policy, Ports,
    Queue, Record, Scenario, Transfer,
};
use anabranch_sim::SimError;
use anabranch_sim::gateway::{Gateway, Lines};
use anabranch_sim::link::{Buffer, LinkSpec, Loss};
use anabranch_sim::tcp::TcpConfig;
use anabranch_sim::world::{FlowSpec, Work, World};
use anabranch_workload::{ArrivalPlan, Class, Mix, Pattern, Size, Workload};
use common::*;

fn two_links() -> Vec<anabranch_scenario::LinkPlan> {
    vec![link("a", 20 * MBIT), link("b", 20 * MBIT)]
}

/// Small downloads at 20/s for 20 s.
fn steady() -> Load {
    downloads(10, 20_000, ms(50), ms(1_000), ms(20_000))
}

fn all_ok(record: &Record) -> bool {
    record.transfers.iter().all(|t| t.outcome == Outcome::Ok)
}

/// Times of one kind of event on a link, in s; the first second, in which links prove themselves, left out.
fn when(record: &Record, kind: EventKind, link: &str) -> Vec<f64> {
    let events = record.events.iter().filter(|e| e.t_s > 1.);
    let those = events.filter(|e| e.kind == kind && e.link.as_deref() == Some(link));
    those.map(|e| e.t_s).collect()
}

#[test]
fn without_faults_every_download_arrives_and_links_share_evenly() {
    let scenario = scenario(two_links(), steady(), ms(60_000));
    let record = play(&scenario, gateway("RR"), 1);
    assert!(all_ok(&record));
    assert_eq!(carried(&record, &["a", "b"]), [190, 190]);
    let first = &record.transfers[0];
    // SYN and SYN-ACK: 2 · 10 ms and two packets of 52 bytes at 20 Mbit/s.
    assert!(
        (first.setup_s.unwrap() - 0.020_041_6).abs() < 1e-6,
        "{first:?}"
    );
    assert!(first.duration_s > 2. * 0.02 + 20_000. * 8. / 20e6);
    assert_eq!(first.bytes, 20_000);
    assert!(record.counts.probes.packets > 0);
    assert_eq!(record.counts.lost.packets + record.counts.cut.packets, 0);
    assert!(when(&record, EventKind::Down, "a").is_empty());
}

#[test]
fn flows_follow_the_rates_of_unequal_links() {
    let links = vec![link("fast", 30 * MBIT), link("slow", 10 * MBIT)];
    let scenario = scenario(links, steady(), ms(60_000));
    let share = |policy| {
        let record = play(&scenario, gateway(policy), 1);
        assert!(all_ok(&record));
        carried(&record, &["fast", "slow"])[0] as f64 / record.transfers.len() as f64
    };
    assert!((share("WRR") - 0.75).abs() < 0.01);
    // By what is left of 30 and 10 Mbit/s under 3.2 Mbit/s of load.
    assert!((share("WSDM") - 0.75).abs() < 0.05, "{}", share("WSDM"));
    assert!((share("RR") - 0.5).abs() < 0.01);
}

#[test]
fn flows_follow_the_round_trips_to_a_node_behind_the_last_mile() {
    let mut congested = link("far", 20 * MBIT);
    congested.beyond = Some(Beyond {
        shared: None,
        down: line(20 * MBIT, ms(30)),
        up: line(20 * MBIT, Duration::ZERO),
    });
    let scenario = scenario(
        vec![congested, link("near", 20 * MBIT)],
        steady(),
        ms(60_000),
    );
    let share = |policy| {
        let record = play(&scenario, gateway(policy), 1);
        assert!(all_ok(&record));
        let measuring = record.counts.measuring.packets;
        assert_eq!(
            measuring > 0,
            policy.ends_with("FRRTFNF"),
            "{policy}: {measuring}"
        );
        assert!(
            measuring < record.counts.probes.packets,
            "links are watched too"
        );
        carried(&record, &["far", "near"])[0] as f64 / record.transfers.len() as f64
    };
    // Available bandwidth of the last mile tells nothing of it.
    assert!((share("WMIRBF") - 0.5).abs() < 0.05, "{}", share("WMIRBF"));
    assert!(share("FRRTFNF") < 0.01, "{}", share("FRRTFNF"));
    // 50 ms against 20 ms.
    assert!(
        (share("WFRRTFNF") - 2.0 / 7.0).abs() < 0.03,
        "{}",
        share("WFRRTFNF")
    );
}

#[test]
fn the_hash_spreads_flows_as_chance_does() {
    let links = ["a", "b", "c", "d"].map(|name| link(name, 20 * MBIT));
    let load = downloads(50, 2_000, ms(5), ms(1_000), ms(6_000));
    let record = play(
        &scenario(links.into(), load, ms(30_000)),
        gateway("hash"),
        3,
    );
    let counts = carried(&record, &["a", "b", "c", "d"]);
    let expected = record.transfers.len() as f64 / 4.;
    let chi2: f64 = counts
        .iter()
        .map(|&n| (n as f64 - expected).powi(2) / expected)
        .sum();
    println!("{counts:?}: chi-square {chi2:.2}, 99.9 % below 16.27 with 3 degrees of freedom");
    assert!(chi2 < 16.27);
}

/// Addresses stay the same, and so each sum is one more than the last: Guo's replaying host.
#[test]
fn the_sum_of_consecutive_ports_takes_links_in_turn() {
    let names = ["a", "b", "c"];
    let links = names.map(|name| link(name, 20 * MBIT));
    let load = downloads(1, 2_000, ms(20), ms(1_000), ms(6_000));
    let in_turn = |policy, ports| {
        let mut scenario = scenario(links.clone().into(), load.clone(), ms(30_000));
        scenario.tcp.ports = ports;
        let record = play(&scenario, gateway(policy), 3);
        let link = |t: &Transfer| {
            names
                .iter()
                .position(|name| t.link.as_deref() == Some(*name))
        };
        let taken: Vec<_> = record.transfers.iter().filter_map(link).collect();
        assert!(taken.len() >= 100);
        taken.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 3)
    };
    assert!(in_turn("hash-sum", Ports::Consecutive));
    assert!(!in_turn("hash-sum", Ports::Random));
    assert!(!in_turn("hash", Ports::Consecutive));
}

#[test]
fn fewest_open_flows_sends_more_flows_where_they_end_sooner() {
    let links = vec![link("fast", 20 * MBIT), link("slow", 2 * MBIT)];
    let load = downloads(10, 100_000, ms(100), ms(1_000), ms(30_000));
    let scenario = scenario(links, load, ms(120_000));
    let lcf = play(&scenario, gateway("LCF"), 1);
    let rr = play(&scenario, gateway("RR"), 1);
    let share = |record: &Record| carried(record, &["fast", "slow"])[0] as f64 / 290.;
    let mean = |record: &Record| {
        record.transfers.iter().map(|t| t.duration_s).sum::<f64>() / record.transfers.len() as f64
    };
    println!(
        "LCF {:.2} in {:.2} s, RR {:.2} in {:.2} s",
        share(&lcf),
        mean(&lcf),
        share(&rr),
        mean(&rr)
    );
    assert!(all_ok(&lcf) && share(&lcf) > 0.7 && mean(&lcf) < mean(&rr) / 2.);
}

/// The example of `anabranch_core::catalogue`: after a period in which a link carried packets, the other has carried fewer.
#[test]
fn a_toy_policy_by_a_toy_measure_gives_links_their_turn() {
    let scenario = scenario(two_links(), steady(), ms(60_000));
    let record = play(&scenario, gateway("toy"), 1);
    assert!(all_ok(&record));
    let carried = carried(&record, &["a", "b"]);
    assert!(carried.iter().all(|&flows| flows > 130), "{carried:?}");
    let links = record.transfers.iter().map(|transfer| &transfer.link);
    let changes = links.clone().zip(links.skip(1)).filter(|(a, b)| a != b);
    assert!(changes.count() > 100);
}

#[test]
fn a_session_keeps_its_link() {
    let mut policy: anabranch_core::Algorithm = "RR".parse().unwrap();
    policy.granularity = Granularity::Session;
    let scenario = scenario(two_links(), steady(), ms(60_000));
    let record = play(&scenario, Policy::gateway(policy), 1);
    assert!(all_ok(&record));
    for user in 0..10 {
        let of_user = record.transfers.iter().filter(|t| t.user.0 == user);
        let links: std::collections::BTreeSet<_> = of_user.map(|t| t.link.clone()).collect();
        assert_eq!(links.len(), 1, "user {user}");
    }
    assert_eq!(carried(&record, &["a", "b"]), [190, 190]);
}

fn with_cut(load: Load, place: Place, direction: Option<Direction>) -> Scenario {
    let mut links = two_links();
    for link in &mut links {
        link.beyond = Some(Beyond {
            shared: None,
            down: line(50 * MBIT, ms(5)),
            up: line(50 * MBIT, ms(5)),
        });
    }
    Scenario {
        faults: vec![Fault {
            place,
            direction,
            ..fault(ms(10_000), "b", Change::Cut)
        }],
        ..scenario(links, load, ms(60_000))
    }
}

#[test]
fn a_dead_link_is_found_within_a_second_and_flows_after_two_seconds_notice_nothing() {
    // Servers that repeat themselves keep a link alive that fails upwards: that takes the second of `one_way` more.
    for (place, direction, within_s) in [
        (Place::LastMile, None, 1.),
        (Place::Beyond, None, 1.),
        (Place::LastMile, Some(Direction::Up), 1.75),
        (Place::Beyond, Some(Direction::Down), 1.),
    ] {
        let scenario = with_cut(steady(), place, direction);
        for policy in ["WSDM", "RR", "hash"] {
            let record = play(&scenario, gateway(policy), 2);
            let down = when(&record, EventKind::Down, "b");
            println!("{place:?} {direction:?} {policy}: down at {down:?}");
            assert!(
                down.len() == 1 && down[0] > 10. && down[0] < 10. + within_s,
                "{:?}",
                record.events
            );
            let after = record.transfers.iter().filter(|t| t.start_s >= 12.);
            assert!(after.clone().count() > 100);
            for t in after {
                assert_eq!((t.outcome, t.syn_retransmits), (Outcome::Ok, 0), "{t:?}");
            }
            assert!(record.counts.cut.packets > 0);
        }
    }
}

#[test]
fn a_repeated_syn_takes_another_link_before_the_failure_is_found() {
    // Upwards, so that the failure is found later than a SYN is repeated.
    let scenario = with_cut(steady(), Place::LastMile, Some(Direction::Up));
    let begun = |policy, from_s, to_s| {
        let record = play(&scenario, gateway(policy), 2);
        let down_s = when(&record, EventKind::Down, "b")[0];
        let gap = |t: &&Transfer| t.start_s >= from_s && t.start_s < to_s;
        let transfers: Vec<_> = record.transfers.iter().filter(gap).cloned().collect();
        let moved = record.counts.reassignments;
        (transfers, down_s, moved)
    };
    let repeated = |transfers: &[Transfer]| -> Vec<Transfer> {
        let those = transfers.iter().filter(|t| t.syn_retransmits > 0);
        those.cloned().collect()
    };
    let (wsdm, down_s, moved) = begun("WSDM", 10., 10.2);
    assert!(!repeated(&wsdm).is_empty() && moved > 0 && down_s > 11.2);
    for t in repeated(&wsdm) {
        assert_eq!(
            (t.outcome, t.link.as_deref()),
            (Outcome::Ok, Some("a")),
            "{t:?}"
        );
        assert!(
            t.setup_s.unwrap() < 1.1,
            "one retransmission timeout: {t:?}"
        );
    }
    let (rr, _, _) = begun("RR", 10., 10.2);
    for t in repeated(&rr) {
        // The first repetition takes the dead link as well; the next finds it unusable.
        assert_eq!((t.outcome, t.syn_retransmits), (Outcome::Ok, 2), "{t:?}");
    }
}

#[test]
fn a_round_trip_longer_than_the_syn_timer_costs_no_policy_a_second_one() {
    let mut links = two_links();
    for link in &mut links {
        link.beyond = Some(Beyond {
            shared: None,
            down: line(50 * MBIT, ms(590)),
            up: line(50 * MBIT, ms(590)),
        });
    }
    let load = downloads(10, 20_000, ms(50), ms(10_000), ms(20_000));
    let scenario = scenario(links, load, ms(60_000));
    for policy in ["RR", "WSDM"] {
        let record = play(&scenario, gateway(policy), 1);
        let moved = record.counts.reassignments;
        assert_eq!(moved > 0, policy == "WSDM", "{policy}: {moved}");
        for t in &record.transfers {
            assert_eq!((t.outcome, t.syn_retransmits), (Outcome::Ok, 1), "{t:?}");
            // 10 ms of the last mile and 590 ms beyond it, both ways, and what 52 bytes and their queues take.
            let setup_s = t.setup_s.unwrap();
            assert!((1.2..1.25).contains(&setup_s), "{policy}: {t:?}");
        }
    }
}

#[test]
fn flows_of_a_dead_link_are_ended_with_rst_at_once() {
    // Long downloads, under way when the link dies.
    let load = downloads(4, 20_000_000, ms(1_000), ms(1_000), ms(9_000));
    let record = play(&with_cut(load, Place::LastMile, None), gateway("RR"), 1);
    let down_s = when(&record, EventKind::Down, "b")[0];
    let reset: Vec<_> = record
        .transfers
        .iter()
        .filter(|t| t.outcome == Outcome::Reset)
        .collect();
    assert_eq!(reset.len(), 4);
    for t in reset {
        assert_eq!(t.link.as_deref(), Some("b"));
        let end_s = t.start_s + t.duration_s;
        assert!(
            (end_s - down_s).abs() < 1e-6,
            "ended at {end_s}, down at {down_s}"
        );
    }
}

#[test]
fn a_link_that_comes_back_is_used_again() {
    let mut scenario = with_cut(steady(), Place::LastMile, None);
    scenario
        .faults
        .push(fault(ms(13_000), "b", Change::Restore));
    let record = play(&scenario, gateway("RR"), 1);
    let up = when(&record, EventKind::Up, "b");
    assert!(up.len() == 1 && up[0] > 13. && up[0] < 16., "{up:?}");
    let late = record.transfers.iter().filter(|t| t.start_s > up[0]);
    assert!(late.filter(|t| t.link.as_deref() == Some("b")).count() > 20);
}

#[test]
fn a_saturated_link_is_not_called_dead() {
    let links = vec![link("a", 2 * MBIT), link("b", 2 * MBIT)];
    let workload = Workload::continuous(10, 2, Size::Fixed(500_000), ms(30_000));
    let scenario = scenario(links, Load::Pages(workload), ms(30_000));
    for policy in ["WSDM", "LCF"] {
        let record = play(&scenario, gateway(policy), 1);
        assert!(
            when(&record, EventKind::Down, "a").is_empty(),
            "{:?}",
            record.events
        );
        assert!(
            when(&record, EventKind::Down, "b").is_empty(),
            "{:?}",
            record.events
        );
        let carried: u64 = record
            .series
            .iter()
            .map(|s| s.samples.last().unwrap().down_bytes)
            .sum();
        assert!(
            carried as f64 > 0.9 * 30. * 4e6 / 8.,
            "{carried} bytes of 15 MB"
        );
        assert!(record.counts.overflowed.packets > 0);
    }
}

#[test]
fn packets_in_turn_use_all_links_for_one_flow() {
    let mut scenario = scenario(
        two_links(),
        downloads(1, 5_000_000, ms(1_000), ms(0), ms(1)),
        ms(60_000),
    );
    let refused = anabranch_sim::run(&of(&scenario, Policy::PACKET, 1), &mut |_| {});
    assert!(matches!(refused, Err(SimError::Policy { .. })));
    route(&mut scenario);
    let packet = play(&scenario, Policy::PACKET, 1);
    let one = play(&scenario, gateway("RR"), 1);
    let times = [&packet, &one].map(|record| record.transfers[0].duration_s);
    println!("over both {:.2} s, over one {:.2} s", times[0], times[1]);
    assert!(times[0] < 0.6 * times[1]);
    let bytes: Vec<u64> = packet
        .series
        .iter()
        .map(|s| s.samples.last().unwrap().down_bytes)
        .collect();
    assert!(bytes[0].abs_diff(bytes[1]) < 5_000, "{bytes:?}");
}

#[test]
fn packets_in_turn_leave_a_dead_link_out_until_it_is_back() {
    let mut scenario = scenario(two_links(), steady(), ms(60_000));
    route(&mut scenario);
    for direction in [None, Some(Direction::Down), Some(Direction::Up)] {
        let fault = |at, change| Fault {
            at: ms(at),
            link: "b".into(),
            place: Place::LastMile,
            direction,
            change,
        };
        scenario.faults = vec![fault(5_000, Change::Cut), fault(12_000, Change::Restore)];
        let record = play(&scenario, Policy::PACKET, 1);
        let [down, up] = [EventKind::Down, EventKind::Up].map(|kind| when(&record, kind, "b"));
        println!("cut {direction:?} at 5 s: down at {down:?}, up at {up:?}");
        let [down_s] = down[..] else {
            panic!("{down:?}")
        };
        // What servers repeat into the site looks like life until they wait for seconds.
        let bound_s = if direction == Some(Direction::Up) {
            7.0
        } else {
            6.0
        };
        assert!(down_s > 5.0 && down_s < bound_s, "{down_s}");
        let [up_s] = up[..] else { panic!("{up:?}") };
        assert!(up_s > 12.0 && up_s < 14.0, "{up_s}");
        assert!(when(&record, EventKind::Down, "a").is_empty());
        assert!(all_ok(&record));
        let slow = |t: &&Transfer| t.start_s > down_s && t.start_s < 12.0 && t.duration_s > 0.3;
        assert_eq!(record.transfers.iter().find(slow), None);
        let carried = |from_s: f64, to_s: f64| {
            let rates = record.series[1].down_bps_in_bins(from_s, to_s, 1);
            rates[0] * (to_s - from_s) / 8.0
        };
        let probes = carried(down_s + 0.5, 11.9);
        assert!(probes < 2_000.0, "{probes} bytes on a dead link");
        assert!(carried(up_s + 0.2, 19.0) > 500_000.0);
    }
}

#[test]
fn uploads_fill_the_way_up() {
    let load = match downloads(2, 1_000_000, ms(500), ms(0), ms(5_000)) {
        Load::Arrivals(mut plan) => {
            let anabranch_workload::Pattern::Rows(rows) = &mut plan.pattern else {
                panic!()
            };
            rows.iter_mut()
                .for_each(|row| row.direction = Direction::Up);
            Load::Arrivals(plan)
        }
        other => other,
    };
    let record = play(&scenario(two_links(), load, ms(60_000)), gateway("RR"), 1);
    assert!(all_ok(&record) && record.transfers.len() == 10);
    let last = |i: usize| record.series[i].samples.last().unwrap();
    assert!(last(0).up_bytes > 5_000_000 && last(0).down_bytes < 500_000);
    assert!(
        record
            .transfers
            .iter()
            .all(|t| t.direction == Direction::Up)
    );
}

/// Two classes over two links, one each way.
fn both_ways(per_user_per_s: f64, bytes: u64) -> Load {
    let class = |name: &str, direction| Class {
        name: name.into(),
        per_user_per_s,
        size: Size::Fixed(bytes),
        servers: Vec::new(),
        direction,
        bursts: None,
    };
    Load::Arrivals(ArrivalPlan {
        pattern: Pattern::Mix(Mix {
            users: 3,
            servers: 2,
            duration_s: 4.0,
            exact: false,
            classes: vec![class("mail", Direction::Up), class("web", Direction::Down)],
        }),
        seed: 1,
    })
}

#[test]
fn a_transfer_names_its_class_its_server_and_its_direction() {
    let record = play(
        &scenario(two_links(), both_ways(2.0, 10_000), ms(60_000)),
        gateway("RR"),
        1,
    );
    let of = |class: &str| {
        let own = record.transfers.iter();
        own.filter(|t| t.class.as_deref() == Some(class))
            .collect::<Vec<_>>()
    };
    let (mail, web) = (of("mail"), of("web"));
    assert!(all_ok(&record) && mail.len() + web.len() == record.transfers.len());
    assert!(mail.len() > 5 && mail.iter().all(|t| t.direction == Direction::Up));
    assert!(web.len() > 5 && web.iter().all(|t| t.direction == Direction::Down));
    let servers: BTreeSet<_> = record.transfers.iter().map(|t| t.server.0).collect();
    assert!(servers.into_iter().eq([0, 1]));
}

#[test]
fn an_upload_that_runs_has_its_link_and_what_has_arrived() {
    let record = play(
        &scenario(two_links(), both_ways(0.5, 50_000_000), ms(6_000)),
        gateway("RR"),
        1,
    );
    let up = || {
        record
            .transfers
            .iter()
            .filter(|t| t.direction == Direction::Up)
    };
    assert!(up().count() > 2 && up().all(|t| t.outcome == Outcome::Unfinished));
    let (mut files, mut begun) = (0, 0);
    for transfer in up().filter(|t| t.setup_s.is_some()) {
        begun += 1;
        assert!(transfer.link.is_some() && transfer.first_byte_s.is_none());
        files += transfer.bytes;
    }
    let packets: u64 = record
        .series
        .iter()
        .map(|series| series.bytes(Direction::Up))
        .sum();
    // Of packets of 1500 bytes 1448 are the file's; the rest, acknowledgements and what is on its way are not.
    let share = files as f64 / packets as f64;
    assert!(
        begun > 2 && (0.7..0.966).contains(&share),
        "{files} of {packets}"
    );
}

#[test]
fn what_comes_for_a_flow_that_is_gone_is_answered_with_rst() {
    let mut network = World::new(1);
    let line = LinkSpec {
        rate_bps: 10 * MBIT,
        delay_ns: 10_000_000,
        buffer: Buffer::Packets(1000),
        loss: Loss::None,
    };
    let lines = [(); 2].map(|()| Lines {
        up: vec![network.add_link(line)],
        down: vec![network.add_link(line)],
        routed: false,
    });
    let told = vec![anabranch_core::LinkSpec::default(); 2];
    let in_turn = ClassSpec::alone("RR".parse().unwrap());
    let balancer = Balancer::new(Time::ZERO, in_turn, told, Config::default());
    let mut world = network.become_site(Gateway::new(balancer.unwrap(), &lines, 1));
    let (gateway, net) = world.parts();
    gateway.begin(net);
    let path = world.add_path(&[Gateway::LAN]);
    for _ in 0..4 {
        world.open(FlowSpec {
            start: Time::from_millis(100),
            work: Work::Request {
                request_bytes: 200,
                response_bytes: 10_000_000,
            },
            forward: path,
            back: path,
            tcp: TcpConfig::default(),
        });
    }
    world.run_until(Time::from_millis(2_000));
    assert_eq!((world.flow_count(), world.side_count()), (4, 8));
    world.cut(lines[0].down[0]);
    world.run_until(Time::from_millis(4_000));
    // The hosts were told, their servers were not.
    assert_eq!(
        (
            world.site.ended().tcp,
            world.flow_count(),
            world.side_count()
        ),
        (2, 2, 6)
    );
    world.restore(lines[0].down[0]);
    world.run_until(Time::from_millis(8_000));
    assert_eq!((world.flow_count(), world.side_count()), (2, 4));
    assert!(world.conserves());
}

#[test]
fn memory_follows_what_is_alive_and_not_how_long_the_world_lives() {
    let peaks = |rounds| {
        let mut workload = Workload::page_rounds(10, 3, rounds);
        workload.pacing.min_period = ms(200);
        let record = play(
            &scenario(two_links(), Load::Pages(workload), ms(600_000)),
            gateway("WSDM"),
            1,
        );
        assert!(all_ok(&record) && record.transfers.len() == 30 * rounds as usize);
        let of = |key: &str| -> usize {
            let found = record.conditions.iter().find(|(name, _)| name == key);
            found.unwrap().1.parse().unwrap()
        };
        (of("peak_sides"), of("peak_packets"))
    };
    let ((sides, packets), (sides_later, packets_later)) = (peaks(10), peaks(100));
    println!("sides {sides} → {sides_later}, packets {packets} → {packets_later}");
    assert!(sides_later <= sides + sides / 4 && packets_later <= packets + packets / 4);
}

#[test]
fn thousands_of_flows_are_open_at_once_and_all_come_through() {
    let load = downloads(500, 20_000, ms(1), ms(500), ms(3_500));
    let mut scenario = scenario(two_links(), load, ms(120_000));
    let Network::Site(site) = &mut scenario.network else {
        panic!()
    };
    for link in &mut site.links {
        link.down.buffer = Buffer::Unlimited;
    }
    let record = play(&scenario, gateway("RR"), 1);
    let flows = |i: usize| {
        record.series[i]
            .samples
            .iter()
            .map(|s| s.flows)
            .max()
            .unwrap()
    };
    println!("{} + {} flows at once", flows(0), flows(1));
    assert!(all_ok(&record) && record.transfers.len() == 3000 && flows(0) + flows(1) > 1000);
}

fn bytes_of(record: &Record) -> String {
    format!("{:?}", record)
}

#[test]
fn equal_runs_give_equal_records_and_other_seeds_others() {
    let mut workload = Workload::page_rounds(5, 3, 10);
    workload.size = Size::BoundedPareto {
        alpha: 1.2,
        min_bytes: 2_000,
        max_bytes: 500_000,
    };
    let mut scenario = scenario(two_links(), Load::Pages(workload), ms(60_000));
    scenario.faults = vec![fault(ms(3_000), "a", Change::Cut)];
    let first = play(&scenario, gateway("random"), 1);
    assert!(first.transfers.len() >= 100);
    assert_eq!(
        bytes_of(&first),
        bytes_of(&play(&scenario, gateway("random"), 1))
    );
    let other = play(&scenario, gateway("random"), 2);
    assert_ne!(bytes_of(&first), bytes_of(&other));
}

#[test]
fn an_unused_link_changes_nothing_for_the_transfers() {
    let lossy = |mut link: anabranch_scenario::LinkPlan| {
        link.down.loss = anabranch_scenario::Loss::Independent { probability: 0.01 };
        link
    };
    let mut links: Vec<_> = two_links().into_iter().map(lossy).collect();
    let few = play(
        &scenario(links.clone(), steady(), ms(60_000)),
        gateway("RR"),
        1,
    );
    let mut spare = link("spare", MBIT);
    spare.metered = true;
    links.push(lossy(spare));
    let more = play(&scenario(links, steady(), ms(60_000)), gateway("RR"), 1);
    assert_eq!(few.transfers, more.transfers);
}

#[test]
fn lines_that_change_carry_what_they_can_from_then_on() {
    let workload = Workload::continuous(4, 1, Size::Fixed(200_000), ms(40_000));
    let mut scenario = scenario(
        vec![link("a", 20 * MBIT)],
        Load::Pages(workload),
        ms(40_000),
    );
    let loss = anabranch_scenario::Loss::Independent { probability: 0.02 };
    scenario.faults = vec![
        fault(ms(10_000), "a", Change::Rate(5 * MBIT)),
        fault(ms(20_000), "a", Change::Rate(20 * MBIT)),
        fault(ms(20_000), "a", Change::Delay(ms(50))),
        fault(ms(30_000), "a", Change::Loss(loss)),
    ];
    let record = play(&scenario, gateway("RR"), 1);
    let rates = record.series[0].down_bps_in_bins(0., 40., 40);
    let mean = |from: usize, to: usize| rates[from..to].iter().sum::<f64>() / (to - from) as f64;
    let [before, slow, far, lossy] = [mean(2, 10), mean(11, 20), mean(22, 30), mean(31, 40)];
    println!("20 Mbit/s: {before:.0}, 5 Mbit/s: {slow:.0}, 50 ms: {far:.0}, 2 % loss: {lossy:.0}");
    assert!(before > 0.8 * 20e6 && before <= 20.1e6);
    assert!(slow > 0.9 * 5e6 && slow <= 5.05e6);
    assert!(far < before && lossy < far);
    let least_setup_s = |from: f64, to: f64| {
        let those = record
            .transfers
            .iter()
            .filter(|t| t.start_s > from && t.start_s < to);
        those
            .filter_map(|t| t.setup_s)
            .fold(f64::INFINITY, f64::min)
    };
    assert!(least_setup_s(0., 10.) < 0.04 && least_setup_s(20.5, 30.) > 0.1);
    assert!(record.counts.lost.packets > 0);
}

#[test]
fn early_detection_keeps_the_queue_short_before_the_buffer_is_full() {
    let workload = Workload::continuous(8, 1, Size::Fixed(1_000_000), ms(20_000));
    let mut scenario = scenario(
        vec![link("a", 10 * MBIT)],
        Load::Pages(workload),
        ms(20_000),
    );
    let drop_tail = play(&scenario, gateway("RR"), 1);
    let Network::Site(site) = &mut scenario.network else {
        panic!()
    };
    site.links[0].down.queue = Queue::Red(anabranch_scenario::Red {
        min_bytes: 15_000,
        max_bytes: 75_000,
        max_probability: 0.1,
        gentle: false,
        weight: 0.002,
        ecn: false,
    });
    let red = play(&scenario, gateway("RR"), 1);
    // Of handshakes that lost nothing: twice the delay of 10 ms, and the queue.
    let mean_setup_s = |record: &Record| {
        let whole = record.transfers.iter().filter(|t| t.syn_retransmits == 0);
        let setups: Vec<f64> = whole.filter_map(|t| t.setup_s).collect();
        setups.iter().sum::<f64>() / setups.len() as f64
    };
    let setups = [&drop_tail, &red].map(mean_setup_s);
    println!(
        "mean set-up {:.3} s with drop-tail, {:.3} s with RED",
        setups[0], setups[1]
    );
    assert!(setups[1] < 0.75 * setups[0]);
    assert_eq!(drop_tail.counts.early.packets, 0);
    assert!(red.counts.early.packets > red.counts.overflowed.packets);
}
