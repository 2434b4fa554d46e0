//! Whoever is not on the way knows the endpoints of a flow, perhaps, and no number. A sweep of all ports with random ones ends no
//! flow, wins no race, sends no SYN that waits, and moves no binding.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use anabranch_core::{Choice, LinkId};
use anabranch_dataplane::FlowState;
use anabranch_policy::splitmix::mix;

use super::*;

const FIRST_PORT: u16 = 20_000;
/// What a RST with a random number is let through to the host for, which judges it by the number itself: within 2^20 of what it
/// expects, at either side.
const PLAUSIBLE: f64 = (1u64 << 21) as f64 / (1u64 << 32) as f64;

type Bindings = BTreeMap<(SocketAddr, SocketAddr), (SocketAddr, LinkId, FlowState)>;

fn bindings(rig: &mut Rig) -> Bindings {
    let flows = rig.flows().into_iter();
    let binding = |flow: anabranch_dataplane::FlowRow| {
        let to = (flow.external, LinkId(flow.link), flow.state);
        ((flow.local, flow.remote), to)
    };
    flows.map(binding).collect()
}

/// What somebody sends to an external endpoint in the name of the server.
fn forged(to: SocketAddr, random: u64) -> Vec<u8> {
    let [seq, ack] = [random as u32, (random >> 32) as u32];
    let flags = ["R", "RA", "SA", "ICMP"][(mix(random) % 4) as usize];
    if flags != "ICMP" {
        return tcp(server(80), to, flags, seq, ack).frame();
    }
    let quoted = tcp(to, server(80), "S", seq, ack).frame();
    let isp = ISP[usize::from(link_of(to))];
    icmp(
        isp,
        to.ip(),
        SITE.port_unreachable,
        [0; 4],
        &quoted[ETHERNET..],
    )
    .frame()
}

/// Every port of both links, and of each that a flow has a few more. How many of them left for which reason.
fn sweep(rig: &mut Rig, more: u64) -> BTreeMap<String, u64> {
    let seed = RandomState::new().hash_one(0);
    println!("seed {seed:#x}");
    let taken: Vec<_> = bindings(rig).into_values().map(|to| to.0.port()).collect();
    let mut left = BTreeMap::new();
    for (link, external) in EXTERNAL.into_iter().enumerate() {
        let all = (1..=u16::MAX).map(|port| (port, 1));
        let known = taken.iter().map(|port| (*port, more));
        let frames = all.chain(known).flat_map(|(port, times)| {
            let to = SocketAddr::new(external, port);
            let random = move |nth| mix(seed ^ mix(u64::from(port) << 32 | nth << 8 | link as u64));
            (0..times).map(move |nth| forged(to, random(nth)))
        });
        for (reason, times) in rig.link_pours(link as u16, frames) {
            *left.entry(reason).or_default() += times;
        }
    }
    left.retain(|_, times| *times > 0);
    println!("{left:?}");
    left
}

fn racing(holds: u32) -> Rig {
    let mut rig = Rig::new();
    rig.race(&Choice {
        races: 100_000,
        holds,
        ..round_robin(0b11)
    });
    rig
}

fn begin(rig: &mut Rig, flows: u16, reason: &str) {
    for port in FIRST_PORT..FIRST_PORT + flows {
        let syn = tcp(
            client(port),
            server(80),
            "S",
            LOCAL_ISN ^ mix(port.into()) as u32,
            0,
        );
        rig.lan_sends(&syn.frame()).sent(reason);
    }
}

fn assert_nothing_changes(rig: &mut Rig, more: u64) -> BTreeMap<String, u64> {
    let before = (bindings(rig), rig.live(), rig.unconfirmed(), rig.closed());
    let left = sweep(rig, more);
    let after = (bindings(rig), rig.live(), rig.unconfirmed(), rig.closed());
    assert!(before == after, "{left:?}");
    left
}

#[test]
fn a_sweep_of_all_ports_changes_nothing_of_two_thousand_live_flows() {
    let mut rig = Rig::new();
    for port in FIRST_PORT..FIRST_PORT + 2000 {
        rig.connect(client(port), server(80));
    }
    let left = assert_nothing_changes(&mut rig, 8);
    let resets = left["bad-rst"] as f64 / (1. - PLAUSIBLE);
    assert!(resets > 2000., "{resets} met a flow");
}

#[test]
fn a_sweep_of_all_ports_wins_none_of_two_hundred_races() {
    let mut rig = racing(0);
    begin(&mut rig, 200, "translated-out");
    let left = assert_nothing_changes(&mut rig, 32);
    // The host resets what acknowledges another number than its SYN's.
    assert!(
        left["challenge"] > 2000 && left["bad-rst"] > 4000,
        "{left:?}"
    );
    assert!(!left.contains_key("translated-in"), "{left:?}");
}

#[test]
fn a_sweep_of_all_ports_sends_none_of_two_hundred_syns_that_wait() {
    let mut rig = racing(1);
    begin(&mut rig, 200, "probe-out");
    let left = assert_nothing_changes(&mut rig, 32);
    assert!(left["bad-handshake"] > 3200, "{left:?}");
    for reason in ["translated-in", "error-in", "probe-answered"] {
        assert!(!left.contains_key(reason), "{left:?}");
    }
}
