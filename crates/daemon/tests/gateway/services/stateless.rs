//! Connections without an entry: their packets go by a keyed hash.

use super::*;

anabranch_testbed::in_both_families!(
    Family:
    pages_come_without_entries_above_the_limit,
);

/// How often a packet left for this reason.
fn counted(daemon: &Daemon, reason: &str) -> u64 {
    let services = daemon.instance_status().services.expect("services");
    let mut reasons = services.reasons.into_iter();
    reasons
        .find(|one| one.name == reason)
        .map_or(0, |one| one.packets)
}

fn pages_come_without_entries_above_the_limit(family: Family) {
    let site = Site::new(family);
    site.write_with(SERVERS, "unknown = \"hash\"\ninsert_limit = 1\n");
    let daemon = site.rig.start_up();
    let said = said(site.curl_pages(PAGES / 5));
    let right = said.lines().filter(|line| *line == "200").count();
    assert_eq!(right, PAGES / 5, "{said}");
    let entries = opened(&daemon);
    assert!(entries < PAGES as u64 / 10, "{entries} have an entry");
    for reason in ["hashed", "aliased"] {
        assert!(counted(&daemon, reason) > PAGES as u64 / 5, "{reason}");
    }
    let mut streams: Vec<_> = (0..3).map(|_| site.held()).collect();
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    for stream in &mut streams {
        echo(stream).expect("a connection without a daemon");
    }
    let daemon = site.rig.start();
    for stream in &mut streams {
        echo(stream).expect("a connection that needs no entry");
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
