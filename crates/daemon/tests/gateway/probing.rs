//! Connections whose SYN waits while their destination is probed over both links.

use std::time::{Duration, Instant};

use anabranch_core::Family;
use anabranch_testbed::netns::Exit;
use nix::sys::signal::Signal;

use crate::rig::*;

anabranch_testbed::in_both_families!(
    Family:
    a_connection_begins_over_the_link_whose_probe_is_answered_first,
    a_connection_that_is_probed_waits_for_no_link_that_is_dead,
);

/// Far below a second, after which a SYN is repeated.
const NO_RETRY: Duration = Duration::from_millis(500);

fn probing(family: Family) -> (Rig, Daemon) {
    let rig = Rig::of(family);
    let text = rig.config_text();
    rig.write_config(&text.replace("policy = \"rr\"", "policy = \"PCM\""));
    let daemon = rig.start();
    both_up(&daemon);
    (rig, daemon)
}

fn a_connection_begins_over_the_link_whose_probe_is_answered_first(family: Family) {
    const CONNECTIONS: u64 = 20;
    let (rig, daemon) = probing(family);
    let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| rig.connect().unwrap()).collect();
    for stream in &mut streams {
        echo(stream).expect("a connection");
    }
    assert_eq!(packets(&daemon, "probe-out"), 2 * CONNECTIONS);
    assert_eq!(packets(&daemon, "probe-answered"), CONNECTIONS);
    until("every other probe is answered, too", || {
        packets(&daemon, "probe-late") == CONNECTIONS
    });
    let live = ["fiber", "lte"].map(|link| daemon.link(link).flows.live);
    assert_eq!(live.iter().sum::<u64>(), CONNECTIONS, "{live:?}");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn a_connection_that_is_probed_waits_for_no_link_that_is_dead(family: Family) {
    let (rig, daemon) = probing(family);
    rig.cut("wan0", &rig.families());
    for _ in 0..4 {
        let begun = Instant::now();
        let mut stream = rig.connect().unwrap();
        assert!(begun.elapsed() < NO_RETRY, "{:?}", begun.elapsed());
        echo(&mut stream).expect("a connection over the other link");
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
