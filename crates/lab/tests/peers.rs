//! Peers in the gateway's place, in short scenarios: who escapes a cut, and who does not.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anabranch_lab::scenario::{Setup, run};
use anabranch_scenario::{Record, ScenarioFile, Transfer, World};
use anabranch_workload::client::Stop;

/// Users ask for a small file each quarter of a second, and the first link is cut in the midst.
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
const BEFORE: std::ops::Range<f64> = 0.0..1.8;
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
fn a_peer_carries_ipv6_as_well() {
    for peer in ["one-link", "nftables", "ECMP"] {
        let record = play(&format!("family = \"both\"\n{CUT}"), peer);
        let (links, failed) = fates(&record, BEFORE);
        assert!(links.values().sum::<usize>() > 20 && failed == 0);
    }
}
