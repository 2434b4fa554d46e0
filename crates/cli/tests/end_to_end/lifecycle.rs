//! The daemon is killed, comes back, and goes: what becomes of flows and of the host.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread;

use anabranch_api::Paths;
use anabranch_dataplane::programs_at;
use anabranch_lab::topology::Anabranch;
use anabranch_testbed::netns::{Exit, Namespace};
use aya::programs::TcAttachType;
use nix::net::if_::if_nametoindex;

use crate::house::{House, build, flows, status, take_turn, three_links, until};
use crate::programs::{Downloads, Visitor, curl, iperf, iperf_server, seen};

const IDLE: usize = 20;

/// The flows of these local ends, as `anabranch flows` tells them.
fn rows(gateway: &Anabranch, visitors: &[Visitor]) -> BTreeSet<String> {
    let locals: BTreeSet<SocketAddr> = visitors.iter().map(Visitor::local).collect();
    let mine = flows(gateway)
        .into_iter()
        .filter(|flow| locals.contains(&flow.local));
    mine.map(|flow| {
        format!(
            "{} {} {} over {}",
            flow.local, flow.external, flow.remote, flow.link
        )
    })
    .collect()
}

#[test]
fn a_killed_daemon_leaves_its_flows_alone_and_the_next_one_adopts_them() {
    let mut house = House::new("policy = \"RR\"");
    let House { lab, gateway, .. } = &mut house;
    let mut visitors = Visitor::many(lab, 3);
    let before = Visitor::ask_all(&mut visitors);
    let flows_before = rows(gateway, &visitors);
    assert_eq!(flows_before.len(), 3);
    gateway.kill().unwrap();
    assert_eq!(Visitor::ask_all(&mut visitors), before, "without a daemon");
    gateway.restart(lab.gateway()).unwrap();
    assert!(status(gateway).adopted);
    assert_eq!(rows(gateway, &visitors), flows_before);
    assert_eq!(Visitor::ask_all(&mut visitors), before, "adopted");
    seen(&curl(lab.clients(), &[], 100, 3));
}

#[test]
fn killing_the_daemon_under_load_loses_nothing_and_the_next_one_adopts_every_flow() {
    let mut house = House::new("policy = \"WRR\"");
    let House { lab, gateway, .. } = &mut house;
    let _server = iperf_server(lab.internet(), lab.server().ip());
    let mut visitors = Visitor::many(lab, IDLE);
    let before = Visitor::ask_all(&mut visitors);
    let ((), downloads) = thread::scope(|scope| {
        let long = scope.spawn(|| iperf(lab.clients(), lab.server().ip(), 6, &["--reverse"]));
        let done = Downloads::during(lab, |downloads| {
            let flows_before = rows(gateway, &visitors);
            assert_eq!(flows_before.len(), IDLE);
            gateway.kill().unwrap();
            downloads.more(100);
            seen(&curl(lab.clients(), &[], 100, 20));
            let again = Visitor::ask_all(&mut visitors);
            assert_eq!(again, before, "each over the link it had");
            gateway.restart(lab.gateway()).unwrap();
            assert!(status(gateway).adopted);
            assert_eq!(rows(gateway, &visitors), flows_before);
            downloads.more(100);
        });
        assert!(long.join().unwrap() > 1e6, "iperf3 goes on");
        done
    });
    seen(&downloads);
    let after = Visitor::ask_all(&mut visitors);
    assert_eq!(after, before, "each over the link it had");
}

#[test]
fn a_clean_stop_puts_everything_back_even_what_a_killed_daemon_had_changed() {
    let turn = take_turn();
    let lab = build(&three_links());
    let before = fingerprint(lab.gateway());
    let mut house = House::around(turn, lab, "");
    let House { lab, gateway, .. } = &mut house;
    let running = fingerprint(lab.gateway());
    assert!(running.contains("proto 171"), "rules of ours: {running}");
    assert_eq!(attached(lab.gateway()), 4);

    assert_eq!(gateway.stop().unwrap(), Exit::Code(0));
    assert_eq!(fingerprint(lab.gateway()), before);
    // The kernel lets go of programs in work of its own.
    until("no program is left", || attached(lab.gateway()) == 0);
    let paths = Paths::new(gateway.instance()).unwrap();
    for path in [
        paths.pins().to_owned(),
        paths.socket(),
        paths.state_of("gateway"),
    ] {
        assert!(!path.exists(), "{} is left", path.display());
    }
    gateway.restart(lab.gateway()).unwrap();
    assert!(!status(gateway).adopted);
    assert_eq!(fingerprint(lab.gateway()), running);
    seen(&curl(lab.clients(), &[], 100, 3));
    gateway.kill().unwrap();
    gateway.restart(lab.gateway()).unwrap();
    assert!(status(gateway).adopted);
    assert_eq!(gateway.stop().unwrap(), Exit::Code(0));
    assert_eq!(fingerprint(lab.gateway()), before);
}

/// Programs on the devices of the gateway, whoever put them there.
fn attached(gateway: &Namespace) -> usize {
    let count = || {
        ["lan0", "wan0", "wan1", "wan2"]
            .map(|device| {
                let ifindex = if_nametoindex(device).unwrap();
                programs_at(ifindex, TcAttachType::Ingress).unwrap().len()
            })
            .iter()
            .sum()
    };
    gateway.run(count).unwrap()
}

/// Everything a gateway may change in a namespace.
fn fingerprint(namespace: &Namespace) -> String {
    let mut text = String::new();
    for (program, words) in [
        ("ip", &["rule"][..]),
        ("ip", &["-4", "route", "show", "table", "all"]),
        ("ip", &["-brief", "address"]),
        ("nft", &["--stateless", "--terse", "list", "ruleset"]),
    ] {
        text += &namespace.exec(program, words).unwrap();
    }
    for key in [
        "ip_forward",
        "conf/all/rp_filter",
        "conf/wan0/rp_filter",
        "conf/wan1/rp_filter",
    ] {
        text += &format!(
            "{key} = {}\n",
            namespace.sysctl(&format!("net/ipv4/{key}")).unwrap()
        );
    }
    text
}
