//! Who may open a flow: shares of hosts, of the kernel's NAT, ports of the gateway itself, sources of other devices.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::time::Instant;

use anabranch_dataplane::{Route, Sizes, Verdict};

use crate::{common::*, frame::*, rig::*};

fn host(number: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, number), port)
}

/// SYNs of one network card from many addresses to many servers.
fn flood(rig: &mut Rig, syns: u32) {
    rig.lan_floods((0..syns).map(|i| {
        let local = host(10 + (i % 200) as u8, 1024 + (i % 60_000) as u16);
        let remote = SocketAddrV4::new(Ipv4Addr::from(0x1400_0000 + i), 80);
        sent_by(FLOODER, tcp(local, remote, "S", i, 0).frame())
    }));
}

/// 200 k SYN/s for a round trip of 800 ms are 160 000; the order of evictions is the same after ten shares.
#[test]
fn a_flood_of_syns_evicts_no_handshake_of_another_host() {
    let mut rig = Rig::new();
    let mut waiting = Vec::new();
    for port in 0..80 {
        let syn = tcp(client(4000 + port), server(80), "S", LOCAL_ISN, 0);
        let sent = rig.lan_sends(&syn.frame()).sent("translated-out");
        waiting.push((client(4000 + port), sent.src()));
    }
    flood(&mut rig, 10 * settings().embryos_per_host);
    for (local, external) in waiting {
        let answer = tcp(server(80), external, "SA", REMOTE_ISN, LOCAL_ISN + 1);
        rig.link_brings(link_of(external), &answer.frame())
            .sent("translated-in");
        let ack = tcp(local, server(80), "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
        rig.lan_sends(&ack.frame()).sent("translated-out");
    }
    assert_eq!(rig.plane().confirmed().unwrap(), 80);
}

#[test]
fn invented_network_cards_cost_newcomers_their_place_and_nobody_else() {
    let mut rig = Rig::sized(Sizes {
        hosts_max: 64,
        ..small()
    });
    rig.connect(client(4000), server(80));
    let mut refused = 0;
    for i in 0..1000u16 {
        let [high, low] = i.to_be_bytes();
        let syn = tcp(host(9, i + 1024), server(80), "S", LOCAL_ISN, 0).frame();
        let outcome = rig.lan_sends(&sent_by([2, 0, 0, 1, high, low], syn));
        refused += u32::from(outcome.reason == "refused-hosts");
    }
    assert_eq!(refused, 1000 - 63);
    rig.connect(client(4001), server(80));
    let newcomer = tcp(host(3, 4000), server(80), "S", LOCAL_ISN, 0);
    assert_eq!(rig.lan_sends(&newcomer.frame()).reason, "refused-hosts");
}

#[test]
fn a_link_without_a_port_is_passed_over_in_the_same_packet() {
    let mut rig = Rig::new();
    rig.set(|s| (s.port_min, s.port_max) = (2000, 2063));
    rig.install(&round_robin(0b01));
    let ask = |rig: &mut Rig, number, port| {
        let query = udp(host(number, port), server(53), b"q").frame();
        rig.lan_sends(&query).sent("translated-out").src()
    };
    for i in 0..64u16 {
        ask(&mut rig, 10 + (i / 16) as u8, 5000 + i);
    }
    rig.install(&round_robin(0b11));
    for i in 0..64u16 {
        let external = ask(&mut rig, 20 + (i / 16) as u8, 5000 + i);
        assert_eq!(link_of(external), 1);
    }
}

#[test]
fn ended_flows_give_their_ports_to_whom_finds_no_other() {
    let mut rig = Rig::new();
    rig.install(&round_robin(0b01));
    rig.set(|s| (s.port_min, s.port_max) = (2000, 2015));
    for port in 5000..5016 {
        let ended = rig.connect(client(port), server(443));
        let end = ended.say("R", LOCAL_ISN + 1, 0);
        rig.lan_sends(&end.frame()).sent("translated-out");
    }
    for port in 6000..6016 {
        rig.connect(host(3, port), server(443));
    }
    assert_eq!(rig.live(), 16);
    let syn = tcp(host(4, 6000), server(443), "S", LOCAL_ISN, 0);
    assert_eq!(rig.lan_sends(&syn.frame()).reason, "refused-ports");
    assert_eq!(rig.live(), 16);
}

/// What ended counts against its device for as long as it is in the table, whichever cards it came from.
#[test]
fn a_device_is_charged_for_ended_embryos_until_they_are_gone() {
    let mut rig = Rig::new();
    rig.set(|s| (s.flows_per_device, s.embryos_per_device) = (1000, 4));
    for port in 4000..4004 {
        for (flags, seq) in [("S", LOCAL_ISN), ("R", LOCAL_ISN + 1)] {
            let segment = tcp(host(9, port), server(80), flags, seq, 0).frame();
            rig.lan_sends(&sent_by(FLOODER, segment))
                .sent("translated-out");
        }
    }
    assert_eq!((rig.live(), rig.embryos()), (0, 8));
    rig.sweep();
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0);
    assert_eq!(rig.lan_sends(&syn.frame()).reason, "refused-embryos");
}

#[test]
fn ports_of_the_gateways_sockets_and_reserved_ones_are_never_given_away() {
    let mut rig = Rig::new();
    rig.install(&round_robin(0b01));
    rig.set(|s| s.reserved[3] = 1195);
    let _vpn = UdpSocket::bind("0.0.0.0:1194").unwrap();
    let _web = TcpListener::bind("0.0.0.0:8080").unwrap();
    for port in [1194, 1195] {
        let query = udp(client(port), server(53), b"q").frame();
        let sent = rig.lan_sends(&query).sent("translated-out");
        assert_ne!(sent.src().port(), port);
    }
    let syn = tcp(client(8080), server(80), "S", LOCAL_ISN, 0).frame();
    assert_ne!(
        rig.lan_sends(&syn).sent("translated-out").src().port(),
        8080
    );
    let syn = tcp(client(8081), server(80), "S", LOCAL_ISN, 0).frame();
    assert_eq!(
        rig.lan_sends(&syn).sent("translated-out").src().port(),
        8081
    );
}

#[test]
fn a_source_of_another_lan_device_is_dropped_unless_lans_may_be_asymmetric() {
    let mut rig = Rig::new();
    let lan = |third, ifindex| Route {
        prefix: (Ipv4Addr::new(10, 0, third, 0).into(), 24),
        verdict: Verdict::Lan { ifindex, via: None },
    };
    rig.plane().set_routes(&[lan(0, 1), lan(9, 7)]).unwrap();
    let local = SocketAddrV4::new(Ipv4Addr::new(10, 0, 9, 2), 4000);
    let syn = tcp(local, server(80), "S", LOCAL_ISN, 0).frame();
    rig.lan_sends(&syn).dropped("spoofed-device");
    rig.set(|s| s.lan_sources_loose = 1);
    rig.connect(local, server(80));
    let data = tcp(local, server(80), "A", LOCAL_ISN + 1, REMOTE_ISN + 1).frame();
    rig.lan_sends(&data).sent("translated-out");
    rig.set(|_| {});
    rig.lan_sends(&data).dropped("spoofed-device");
}

#[test]
fn what_a_host_gives_to_the_kernels_nat_is_bounded_and_paid_for_once() {
    let mut rig = Rig::new();
    rig.set(|s| (s.quota_per_host, s.fallback_mark) = (0, 7));
    let syn = |port| tcp(client(port), server(80), "S", LOCAL_ISN, 0).frame();
    let begun = Instant::now();
    let left = rig.lan_pours((2000..4000).map(syn));
    let passed = left["fallback-quota"];
    // 512 at once, and 64 a second for as long as this took.
    let refilled = 64 * (begun.elapsed().as_secs() + 1);
    assert!((512..=512 + refilled).contains(&passed), "{left:?}");
    assert_eq!(passed + left["refused-rate-host"], 2000, "{left:?}");
    rig.lan_sends(&syn(2000)).passed("fallback-quota");
}

/// One port of a host that speaks to everybody fills neither the table of embryos nor that of permissions for others.
#[test]
fn the_remote_addresses_of_one_mapping_cost_no_other_host_anything() {
    let mut rig = Rig::new();
    let speak = |rig: &mut Rig, remote: u32| {
        let remote = SocketAddrV4::new(Ipv4Addr::from(remote), 6881);
        let packet = udp(host(66, 6881), remote, b"x").frame();
        rig.lan_sends(&sent_by(FLOODER, packet))
            .sent("translated-out")
            .src()
    };
    let quota = settings().quota_per_host;
    let external = (0..=2 * quota)
        .map(|i| speak(&mut rig, 0x1400_0000 + i))
        .last()
        .unwrap();
    assert!(rig.embryos() <= 2, "{} entries", rig.embryos());
    let answer = |remote: u32| {
        udp(
            SocketAddrV4::new(Ipv4Addr::from(remote), 6881),
            external,
            b"y",
        )
        .frame()
    };
    rig.link_brings(link_of(external), &answer(0x1400_0000 + quota))
        .sent("translated-in");
    rig.link_brings(link_of(external), &answer(0x1400_0000 + 2 * quota))
        .dropped("filtered-in");

    let other = rig
        .lan_sends(&udp(client(4000), server(53), b"x").frame())
        .sent("translated-out");
    rig.lan_sends(&udp(client(4000), second_server(53), b"x").frame())
        .sent("translated-out");
    rig.link_brings(
        link_of(other.src()),
        &udp(second_server(53), other.src(), b"y").frame(),
    )
    .sent("translated-in");
}

#[test]
fn a_flood_of_syns_takes_no_permission_away() {
    let mut rig = Rig::new();
    for remote in [server(53), second_server(53)] {
        rig.lan_sends(&udp(client(4000), remote, b"x").frame())
            .sent("translated-out");
    }
    let external = rig
        .lan_sends(&udp(client(4000), server(53), b"x").frame())
        .sent("translated-out")
        .src();
    flood(&mut rig, 10 * settings().embryos_per_host);
    rig.link_brings(
        link_of(external),
        &udp(second_server(53), external, b"y").frame(),
    )
    .sent("translated-in");
}
