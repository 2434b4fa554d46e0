//! Connections whose SYN waits while their destination is probed over both links.

use std::time::{Duration, Instant};

use anabranch_api::{PrefixRow, Request, Response};
use anabranch_core::Family;
use anabranch_testbed::netns::Exit;
use nix::sys::signal::Signal;

use crate::rig::*;

anabranch_testbed::in_both_families!(
    Family:
    a_connection_begins_over_the_link_whose_probe_is_answered_first,
    a_connection_that_is_probed_waits_for_no_link_that_is_dead,
    a_destination_that_is_used_is_probed_over_both_links_and_known_by_them,
);

/// Below a second, after which a SYN is repeated.
const NO_RETRY: Duration = Duration::from_millis(900);

const ACTIVE: &str =
    r#"{ measure = "dispatched", dispatch = "weighted", active = "1s", listed = 5 }"#;

fn probing(family: Family, policy: &str) -> (Rig, Daemon) {
    let rig = Rig::of(family);
    let text = rig.config_text();
    rig.write_config(&text.replace("policy = \"rr\"", &format!("policy = {policy}")));
    let daemon = rig.start_up();
    (rig, daemon)
}

fn a_connection_begins_over_the_link_whose_probe_is_answered_first(family: Family) {
    const CONNECTIONS: u64 = 20;
    let (rig, daemon) = probing(family, "\"PCM\"");
    let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| rig.connect().unwrap()).collect();
    for stream in &mut streams {
        echo(stream).expect("a connection");
    }
    let reasons = daemon.status().reasons;
    assert_eq!(
        packets(&daemon, "probe-out"),
        2 * CONNECTIONS,
        "{reasons:?}"
    );
    assert_eq!(
        packets(&daemon, "probe-answered"),
        CONNECTIONS,
        "{reasons:?}"
    );
    until("every other probe is answered, too", || {
        packets(&daemon, "probe-late") == CONNECTIONS
    });
    let live = ["fiber", "lte"].map(|link| daemon.link(link).flows.live);
    assert_eq!(live.iter().sum::<u64>(), CONNECTIONS, "{live:?}");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn a_connection_that_is_probed_waits_for_no_link_that_is_dead(family: Family) {
    let (rig, daemon) = probing(family, "\"PCM\"");
    rig.cut("wan0", &rig.families());
    for _ in 0..4 {
        let begun = Instant::now();
        let mut stream = rig.connect().unwrap();
        assert!(begun.elapsed() < NO_RETRY, "{:?}", begun.elapsed());
        echo(&mut stream).expect("a connection over the other link");
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn prefixes(daemon: &Daemon) -> Vec<PrefixRow> {
    match daemon.call(&Request::Prefixes { limit: 10 }) {
        Response::Prefixes { prefixes, .. } => prefixes,
        other => panic!("{other:?}"),
    }
}

fn a_destination_that_is_used_is_probed_over_both_links_and_known_by_them(family: Family) {
    let (rig, daemon) = probing(family, ACTIVE);
    let mut stream = rig.connect().unwrap();
    echo(&mut stream).expect("a connection");
    until("both links are known for it", || {
        let rows = prefixes(&daemon);
        rows.iter().any(|row| row.listed && row.paths.len() == 2)
    });
    let rows = prefixes(&daemon);
    let paths = &rows[0].paths;
    assert!(
        paths
            .iter()
            .all(|path| path.samples > 0 && path.failures == 0)
    );
    let status = daemon.status().prefixes;
    assert_eq!((status.known, status.listed), (1, 1));
    assert!(status.asked >= 2, "{status:?}");
    assert!(packets(&daemon, "surveyed") >= 2);
    echo(&mut stream).expect("the connection is as it was");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
