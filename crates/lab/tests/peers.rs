//! Peers in the gateway's place, in short scenarios: who escapes a cut, and who does not.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anabranch_lab::scenario::{Setup, run};
use anabranch_scenario::{Record, ScenarioFile, Transfer, World};
use anabranch_workload::client::Stop;

/// Users ask for a small file each quarter of a second, and the first link is cut after 2 s.
const CUT: &str = r#"
length = "4s"
patience = "1s"
link.fiber = { rate = "20mbit", delay = "2ms" }
link.lte = { rate = "20mbit", delay = "2ms" }
fault = [{ at = "2s", link = "fiber", change = "cut" }]
[workload]
kind = "mix"
users = 8
duration = "3500ms"
class.web = { per_user = "4/s", size = "10kB" }
"#;

/// The same for longer.
fn cut_for(seconds: u64) -> String {
    let length = CUT.replace("\"4s\"", &format!("\"{seconds}s\""));
    length.replace("3500ms", &format!("{}500ms", seconds - 1))
}

/// Beside another laboratory, packets would be late enough for transfers to fail.
static ALONE: Mutex<()> = Mutex::new(());

fn play(text: &str, peer: &str) -> Record {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let file = ScenarioFile::parse(Path::new("peers.toml"), text).unwrap();
    let file = file.with_policies(&[peer.to_owned()]).unwrap();
    file.fits(World::Lab).unwrap();
    let setup = Setup {
        binary: "/nowhere".into(),
        stop: Stop::default(),
    };
    let record = run(&file.runs()[0], &setup, &mut |_| {});
    let record = record.unwrap_or_else(|error| panic!("{peer}: {error}"));
    println!("{peer}: {:?}", record.problems);
    record
}

/// Of those that began in `seconds`: how many came over each link, and how many failed.
fn fates(record: &Record, seconds: std::ops::Range<f64>) -> (BTreeMap<String, usize>, usize) {
    let begun = |transfer: &&Transfer| seconds.contains(&transfer.planned_start_s);
    let begun: Vec<_> = record.transfers.iter().filter(begun).collect();
    let mut links = BTreeMap::new();
    for transfer in begun.iter().filter(|transfer| transfer.outcome.is_ok()) {
        let link = transfer.link.clone().unwrap_or_default();
        *links.entry(link).or_default() += 1;
    }
    let failed = begun.iter().filter(|it| it.outcome.is_failure()).count();
    println!("{seconds:?}: {links:?}, {failed} failed");
    (links, failed)
}

/// Before the cut, and after what it interrupted.
const BEFORE: std::ops::Range<f64> = 0.0..1.5;
const AFTER: std::ops::Range<f64> = 2.0..4.0;

#[test]
fn one_link_carries_all_until_it_is_cut_and_nothing_afterwards() {
    let record = play(CUT, "one-link");
    let (links, failed) = fates(&record, BEFORE);
    assert!(links.keys().eq(["fiber"]) && failed == 0);
    let (links, failed) = fates(&record, AFTER);
    assert!(links.is_empty() && failed > 10);
}

#[test]
fn a_random_mark_and_a_multipath_route_use_all_links_and_go_on_using_a_dead_one() {
    for peer in ["nftables", "ECMP"] {
        let record = play(CUT, peer);
        let (links, failed) = fates(&record, BEFORE);
        // All on one link: below 10^-9.
        assert!(links.len() == 2 && failed == 0);
        let (links, failed) = fates(&record, AFTER);
        assert!(links.keys().eq(["lte"]));
        assert!(failed > 5 && links["lte"] > 5);
    }
}

#[test]
fn with_static_sharing_each_user_has_a_link_dead_or_alive() {
    let record = play(CUT, "static");
    let links_of = |user: u32| {
        let of_user = record.transfers.iter().filter(|it| it.user.0 == user);
        let ok = of_user.filter(|it| it.outcome.is_ok());
        let mut links: Vec<_> = ok.filter_map(|it| it.link.as_deref()).collect();
        links.dedup();
        links
    };
    for user in 0..8 {
        assert_eq!(links_of(user), [["fiber", "lte"][user as usize % 2]]);
    }
    let (links, failed) = fates(&record, AFTER);
    assert!(links.keys().eq(["lte"]) && failed > 5);
}

#[test]
fn a_dead_gateway_is_left_in_time() {
    let record = play(&cut_for(6), "dead-gateway 1s");
    let (links, failed) = fates(&record, BEFORE);
    assert!(links.keys().eq(["fiber"]) && failed == 0);
    // A second of silence, of which a third may be over at the cut, and as much until it is looked at.
    let (links, failed) = fates(&record, 2.0..2.5);
    assert!(links.is_empty() && failed > 5);
    let (links, failed) = fates(&record, 3.5..6.0);
    assert!(links.keys().eq(["lte"]) && failed == 0);
    let asked = record.counts.measuring.packets;
    // Three a second over each link.
    assert!((30..50).contains(&asked), "{asked}");
}

#[test]
fn what_is_beyond_is_seen_by_route_control_and_not_by_who_asks_gateways() {
    let beyond = "link.fiber = { rate = \"20mbit\", delay = \"2ms\", beyond = { rate = \"20mbit\", delay = \"1ms\" } }";
    let text = cut_for(9)
        .replace(
            "link.fiber = { rate = \"20mbit\", delay = \"2ms\" }",
            beyond,
        )
        .replace("change = \"cut\"", "place = \"beyond\", change = \"cut\"");
    let late = 7.0..9.0;
    let (links, failed) = fates(&play(&text, "dead-gateway 1s"), late.clone());
    assert!(links.is_empty() && failed > 20);
    // Three probes are lost by the fourth second after the cut.
    let record = play(&text, "route-control 1s");
    let (links, failed) = fates(&record, late);
    assert!(links.keys().eq(["lte"]) && failed == 0);
}

/// Bytes that a link has carried down by so many seconds.
fn carried(record: &Record, link: &str, until_s: f64) -> u64 {
    let series = record.series.iter().find(|series| series.name == link);
    let mut samples = series.unwrap().samples.iter();
    let before = samples.rfind(|sample| sample.t_s <= until_s);
    before.map_or(0, |sample| sample.down_bytes)
}

#[test]
fn bgp_moves_all_traffic_when_bfd_tells_and_waits_for_the_hold_timer_without() {
    let text = format!("nat = false\n{}", cut_for(8));
    let record = play(&text, "BGP 1s BFD");
    let (_, failed) = fates(&record, BEFORE);
    assert_eq!(failed, 0);
    assert!(carried(&record, "fiber", 1.8) > 100_000 && carried(&record, "lte", 1.8) < 20_000);
    let (_, failed) = fates(&record, 2.0..2.5);
    assert!(failed > 5);
    // 0.9 s, and the second that the internet takes.
    let (links, failed) = fates(&record, 5.0..8.0);
    assert!(failed == 0 && links.values().sum::<usize>() > 20);
    assert!(carried(&record, "lte", 8.0) > 100_000);
    let record = play(&text, "BGP 1s");
    let (links, failed) = fates(&record, 2.0..8.0);
    assert!(links.is_empty() && failed > 40);
}

/// Three files, one after the other: over one link each takes 2 s at least.
const FILES: &str = r#"
length = "12s"
patience = "4s"
link.fiber = { rate = "8mbit", delay = "5ms" }
link.lte = { rate = "8mbit", delay = "5ms" }
fault = [{ at = "6500ms", link = "lte", change = "cut" }]
[workload]
kind = "rows"
rows = [{ at = "500ms", size = "2MB" }, { at = "3s", size = "2MB" }, { at = "6s", size = "2MB" }]
"#;

#[test]
fn with_mptcp_a_file_takes_all_links_and_outlives_one() {
    let record = play(FILES, "MPTCP");
    let [first, second, third] = &record.transfers[..] else {
        panic!("{:?}", record.transfers);
    };
    assert!(first.outcome.is_ok() && second.outcome.is_ok());
    // On a busy host the second subflow of either may come late.
    let took_s = [first, second].map(|transfer| transfer.end_s() - transfer.start_s);
    println!("{took_s:?} s");
    assert!(took_s.iter().any(|took_s| *took_s < 2.0), "one link's time");
    assert!(carried(&record, "fiber", 6.0) > 500_000);
    assert!(carried(&record, "lte", 6.0) > 500_000);
    // Begun before the cut.
    assert!(third.start_s < 6.5 && third.outcome.is_ok());
}

#[test]
fn a_peer_carries_ipv6_as_well() {
    let whole: String = CUT
        .lines()
        .filter(|line| !line.starts_with("fault"))
        .map(|line| format!("{line}\n"))
        .collect();
    for peer in [
        "one-link",
        "nftables",
        "ECMP",
        "static",
        "dead-gateway",
        "route-control",
        "BGP",
        "MPTCP",
    ] {
        let routed = if peer == "BGP" { "nat = false\n" } else { "" };
        let record = play(&format!("family = \"both\"\n{routed}{whole}"), peer);
        let (links, failed) = fates(&record, BEFORE);
        assert!(links.values().sum::<usize>() > 20 && failed == 0);
    }
}
