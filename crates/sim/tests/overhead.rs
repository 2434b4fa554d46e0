//! Hosts that take a little time for each packet, and what they break: links that are alike keep step without it.

use std::collections::BTreeMap;
use std::path::Path;

use anabranch_core::Time;
use anabranch_scenario::{Record, ScenarioFile, Transfer};

/// Over three alike links; as many files at once as there are links.
fn play_by(policy: &str, users: u32, overhead: &str) -> Record {
    let text = format!(
        "length = \"20min\"
        patience = \"5min\"
        policies = [\"{policy}\"]
        seeds = [5]
        link.a = {{ rate = \"512kbit\", delay = \"1ms\" }}
        link.b = {{ rate = \"512kbit\", delay = \"1ms\" }}
        link.c = {{ rate = \"512kbit\", delay = \"1ms\" }}
        workload = {{ kind = \"pages\", users = {users}, files = 3, rounds = 4, size = \"50250B\", jitter = \"100ms\" }}
        tcp = {{ control = \"reno\", initial_window = 2, receive_window = 22, overhead = \"{overhead}\" }}"
    );
    let file = ScenarioFile::parse(Path::new("alike.toml"), &text).expect("a scenario");
    let runs = file.runs();
    let record = anabranch_sim::run(&runs[0], &mut |_: Time| {}).expect("it can be run");
    assert_eq!(record.problems, Vec::<String>::new());
    record
}

/// In turn, so that each link carries one file of every round.
fn play(users: u32, overhead: &str) -> Record {
    play_by("RR", users, overhead)
}

/// Of each round of a user, the shortest and the longest duration.
fn rounds(record: &Record) -> Vec<(f64, f64)> {
    let mut rounds: BTreeMap<_, (f64, f64)> = BTreeMap::new();
    for Transfer {
        user,
        round,
        duration_s,
        ..
    } in &record.transfers
    {
        let ends = rounds.entry((user, round)).or_insert((f64::MAX, 0.));
        *ends = (ends.0.min(*duration_s), ends.1.max(*duration_s));
    }
    rounds.into_values().collect()
}

#[test]
fn alike_links_keep_step_to_the_nanosecond_unless_hosts_take_time() {
    let in_step = play(10, "0ms");
    let rounds_in_step = rounds(&in_step);
    assert_eq!(rounds_in_step.len(), 40);
    assert!(rounds_in_step.iter().all(|(least, most)| least == most));
    for overhead in ["100us", "1ms"] {
        let apart = play(10, overhead);
        let gaps = rounds(&apart)
            .into_iter()
            .filter(|(least, most)| most / least > 1.1);
        let gaps = gaps.count();
        assert!(gaps >= 30, "{overhead}: {gaps} of 40 rounds");
    }
}

#[test]
fn who_has_a_link_alone_hardly_notices() {
    let longest = |record: &Record| {
        rounds(record)
            .iter()
            .fold(0., |most: f64, round| most.max(round.1))
    };
    let (at_once, late) = (play(1, "0ms"), play(1, "100us"));
    let ratio = longest(&late) / longest(&at_once);
    assert!((ratio - 1.).abs() < 0.01, "{ratio}");
}

#[test]
fn the_same_seed_is_late_by_the_same() {
    assert_eq!(play(3, "100us"), play(3, "100us"));
}

/// Whoever asks which link is faster sees no difference to the nanosecond, and spreads what begins at once; of links that differ by some
/// microseconds one is the fastest until the next answer.
#[test]
fn probes_tell_alike_links_apart_once_hosts_take_time() {
    let on_one_link = |overhead| {
        let mut links: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for transfer in &play_by("FRRTFNF", 3, overhead).transfers {
            let round = links.entry((transfer.user, transfer.round)).or_default();
            round.push(transfer.link.clone());
        }
        let alike = links
            .values()
            .filter(|links| links.iter().all(|link| *link == links[0]));
        (alike.count(), links.len())
    };
    assert_eq!(on_one_link("0ms"), (0, 12));
    let (alike, rounds) = on_one_link("100us");
    assert!(alike > rounds * 3 / 4, "{alike} of {rounds}");
}
