//! Connections that race over both links.

use std::time::{Duration, Instant};

use anabranch_core::Family;
use anabranch_testbed::netns::Exit;
use nix::sys::signal::Signal;

use crate::rig::*;

anabranch_testbed::in_both_families!(
    Family:
    a_connection_that_races_costs_the_server_one_and_its_other_tries_are_reset,
    a_connection_that_races_waits_for_no_link_that_is_dead,
);

/// Far below a second, after which a SYN is repeated.
const NO_RETRY: Duration = Duration::from_millis(500);

fn racing(family: Family) -> (Rig, Daemon) {
    let rig = Rig::of(family);
    let text = rig.config_text();
    rig.write_config(&text.replace("policy = \"rr\"", "policy = \"FRRTDF\""));
    let daemon = rig.start_up();
    (rig, daemon)
}

/// Connections at the server that wait for the end of a handshake.
fn half_open(rig: &Rig) -> usize {
    let all = ["-Htn", "state", "syn-recv"];
    rig.internet.exec("ss", &all).unwrap().lines().count()
}

fn a_connection_that_races_costs_the_server_one_and_its_other_tries_are_reset(family: Family) {
    const CONNECTIONS: u64 = 20;
    let (rig, daemon) = racing(family);
    let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| rig.connect().unwrap()).collect();
    for stream in &mut streams {
        echo(stream).expect("a connection");
    }
    until("every race has a losing copy", || {
        packets(&daemon, "race-lost") == CONNECTIONS
    });
    until("nobody waits at the server", || half_open(&rig) == 0);
    let live = ["fiber", "lte"].map(|link| daemon.link(link).flows.live);
    assert_eq!(live.iter().sum::<u64>(), CONNECTIONS, "{live:?}");
    assert_eq!(packets(&daemon, "race-over"), 0);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn a_connection_that_races_waits_for_no_link_that_is_dead(family: Family) {
    let (rig, daemon) = racing(family);
    rig.cut("wan0", &rig.families());
    for _ in 0..4 {
        let begun = Instant::now();
        let mut stream = rig.connect().unwrap();
        assert!(begun.elapsed() < NO_RETRY, "{:?}", begun.elapsed());
        echo(&mut stream).expect("a connection over the other link");
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
