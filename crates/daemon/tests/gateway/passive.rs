//! Links by what flows tell of the way to their destinations.

use std::net::{SocketAddr, TcpStream};

use anabranch_api::{Explanation, PathRow, PrefixRow, Proto, Request, Response};
use anabranch_core::Family;
use anabranch_testbed::netns::Exit;
use nix::sys::signal::Signal;

use crate::rig::*;

anabranch_testbed::in_both_families!(
    Family:
    connections_tell_how_fast_their_link_is_and_the_next_ones_take_the_fastest,
    a_daemon_that_follows_another_knows_what_that_has_learned,
);

const ROOM: u64 = 500;

fn learning(family: Family) -> (Rig, Daemon) {
    let rig = Rig::of(family);
    let text = rig.config_text();
    let text = text.replace("policy = \"rr\"", "policy = \"passive\"");
    rig.write_config(&format!("{text}\n[limits]\nprefixes = {ROOM}\n"));
    let daemon = rig.start_up();
    (rig, daemon)
}

fn prefixes(daemon: &Daemon) -> Vec<PrefixRow> {
    match daemon.call(&Request::Prefixes { limit: 10 }) {
        Response::Prefixes {
            total,
            limit,
            prefixes,
        } => {
            assert_eq!((total, limit), (prefixes.len(), ROOM));
            prefixes
        }
        other => panic!("{other:?}"),
    }
}

/// What is known of the server's prefix over each link.
fn paths(daemon: &Daemon) -> Vec<PathRow> {
    let mut rows = prefixes(daemon);
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.remove(0).paths
}

fn fastest(paths: &[PathRow]) -> u16 {
    let known = paths.iter().filter(|path| path.response_us.is_some());
    known.min_by_key(|path| path.response_us).expect("one").link
}

fn explained(rig: &Rig, daemon: &Daemon, from: SocketAddr) -> Explanation {
    let to = rig.server().parse().unwrap();
    let proto = Proto::Tcp;
    match daemon.call(&Request::Explain { from, to, proto }) {
        Response::Explanation(explained) => explained.explanation,
        other => panic!("{other:?}"),
    }
}

/// The link of a connection that works.
fn connect(rig: &Rig, daemon: &Daemon, streams: &mut Vec<TcpStream>) -> u16 {
    let mut stream = rig.connect().unwrap();
    echo(&mut stream).expect("a connection");
    let local = stream.local_addr().unwrap();
    streams.push(stream);
    let bound = explained(rig, daemon, local);
    assert!(bound.bound, "{bound:?}");
    bound.link.expect("a link")
}

fn connections_tell_how_fast_their_link_is_and_the_next_ones_take_the_fastest(family: Family) {
    let (rig, daemon) = learning(family);
    let mut streams = Vec::new();
    assert_eq!(daemon.status().prefixes.known, 0);
    let first = [(); 2].map(|()| connect(&rig, &daemon, &mut streams));
    assert_ne!(
        first[0], first[1],
        "what the first cannot tell, the second does"
    );
    for path in paths(&daemon) {
        assert_eq!((path.samples, path.failures), (1, 0));
        assert!(
            path.response_us.is_some_and(|us| us < 1_000_000),
            "{path:?}"
        );
    }
    let status = daemon.status().prefixes;
    assert_eq!((status.known, status.limit), (1, ROOM));
    for _ in 0..5 {
        let expected = fastest(&paths(&daemon));
        let host = SocketAddr::new(rig.plan().lan[1].parse().unwrap(), 9);
        let forecast = explained(&rig, &daemon, host);
        assert_eq!(forecast.link, Some(expected), "{forecast:?}");
        assert!(
            forecast.why.starts_with("least response time"),
            "{forecast:?}"
        );
        let told = forecast
            .weighed
            .iter()
            .all(|link| link.response_us.is_some());
        assert!(told, "{forecast:?}");
        assert_eq!(connect(&rig, &daemon, &mut streams), expected);
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn a_daemon_that_follows_another_knows_what_that_has_learned(family: Family) {
    let (rig, daemon) = learning(family);
    let mut streams = Vec::new();
    connect(&rig, &daemon, &mut streams);
    let before = paths(&daemon);
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    let next = rig.start();
    let after = paths(&next);
    let told = |paths: &[PathRow]| -> Vec<_> {
        let told = paths.iter();
        told.map(|path| (path.link, path.response_us, path.samples))
            .collect()
    };
    assert_eq!(told(&after), told(&before));
    assert_eq!(next.end(Signal::SIGTERM), Exit::Code(0));
}
