//! Links that translate the prefix alone (RFC 6296).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use anabranch_core::{ClassId, DataPlane, LinkId};

use super::SITE;
use super::both::*;
use crate::{common::round_robin, frame::*, rig::*};

/// Routed to us by each link.
pub const PREFIXES: [(Ipv6Addr, u8); 2] = [
    (Ipv6Addr::new(0x2001, 0xdb8, 0x1111, 0, 0, 0, 0, 0), 48),
    (Ipv6Addr::new(0x2001, 0xdb8, 0x2222, 0x2200, 0, 0, 0, 0), 56),
];

/// The links in `prefixed` translate the prefix alone; the choice is among those in `usable`.
fn prefixed(prefixed: usize, usable: u64) -> Rig {
    let mut rig = Rig::new();
    for link in (0..2).filter(|link| prefixed >> link & 1 == 1) {
        let prefix = Some(PREFIXES[link]);
        rig.tell_link(link as u16, EXTERNAL[link], MTU, prefix);
    }
    rig.install(&round_robin(usable));
    rig
}

pub fn is_in((prefix, length): (Ipv6Addr, u8), address: IpAddr) -> bool {
    let IpAddr::V6(address) = address else {
        return false;
    };
    (u128::from(address) ^ u128::from(prefix)) >> (128 - length) == 0
}

/// The link whose prefix an address is of.
fn link_of_prefix(address: IpAddr) -> Option<usize> {
    PREFIXES
        .into_iter()
        .position(|prefix| is_in(prefix, address))
}

/// Of the transport header.
fn check_of(seen: &Seen) -> u16 {
    match &seen.inside {
        Inside::Tcp(tcp, _) => tcp.checksum,
        Inside::Udp(udp, _) => udp.checksum,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_prefix_is_translated_both_ways_with_port_and_checksum_as_they_were() {
    for link in [0, 1] {
        let mut rig = prefixed(0b11, 1 << link);
        for host in [2u32, 3, 77, 0xffff, 0x1234_5678] {
            let local = SocketAddr::new(lan_host(host), 4000);
            let query = udp(local, server(53), b"query").frame();
            let sent = rig.translates_out(&query);
            assert_eq!(link_of_prefix(sent.src().ip()), Some(link), "{sent:?}");
            assert_eq!(sent.src().port(), 4000);
            assert_eq!(check_of(&sent), check_of(&read(&query)));
            let answer = udp(server(53), sent.src(), b"answer").frame();
            let got = rig.translates_in(link as u16, &answer);
            assert_eq!(got.dst(), local);
            assert_eq!(check_of(&got), check_of(&read(&answer)));

            let ping = rig.lan_sends(&echo(local.ip(), SERVER, 9, b"?").frame());
            let ping = ping.sent("translated-out").src();
            assert_eq!((ping.ip(), ping.port()), (sent.src().ip(), 9));
            let pong = echo_reply(SERVER, ping.ip(), 9, b"!").frame();
            let got = rig.translates_in(link as u16, &pong);
            assert_eq!(got.dst(), SocketAddr::new(local.ip(), 9));
        }
    }
}

#[test]
fn a_connection_and_an_error_about_it_pass_by_a_prefix() {
    let mut rig = prefixed(0b01, 0b01);
    let (local, remote) = (client(4000), server(443));
    let syn = rig.lan_sends(&tcp(local, remote, "S", LOCAL_ISN, 0).frame());
    let external = syn.sent("translated-out").src();
    assert!(is_in(PREFIXES[0], external.ip()));
    let connection = Connection {
        local,
        remote,
        external,
        link: 0,
    };
    rig.confirm(&connection);
    let data = connection.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1);
    let out = rig.lan_sends(&data.payload(b"data").frame());
    assert_eq!(out.sent("translated-out").src(), external);
    let quoted = &out.frame[ETHERNET..];
    let error = icmp(
        SITE.router,
        external.ip(),
        SITE.too_big,
        [0, 0, 5, 0],
        quoted,
    );
    let told = rig.link_brings(0, &error.frame()).sent("error-in");
    assert_eq!((told.dst().ip(), quote(&told).src()), (CLIENT, local));
    // Off-path RSTs end nothing.
    let guess = connection.answer("R", REMOTE_ISN ^ 1 << 31, 0).frame();
    rig.link_brings(0, &guess).dropped("bad-rst");
    assert_eq!(rig.live(), 1);
    let fin = connection.answer("FA", REMOTE_ISN + 1, LOCAL_ISN + 5);
    rig.translates_in(0, &fin.frame());
    let fin = connection.say("FA", LOCAL_ISN + 5, REMOTE_ISN + 2);
    rig.translates_out(&fin.frame());
    assert_eq!(rig.live(), 0);
    let last = connection.answer("A", REMOTE_ISN + 2, LOCAL_ISN + 6);
    rig.translates_in(0, &last.frame());
}

#[test]
fn what_comes_first_from_outside_is_dropped_as_with_ports() {
    let mut rig = prefixed(0b11, 0b01);
    let sent = rig.lan_sends(&udp(client(4000), server(53), b"?").frame());
    let external = sent.sent("translated-out").src();
    rig.link_brings(0, &udp(second_server(53), external, b"!").frame())
        .dropped("filtered-in");
    rig.translates_in(0, &udp(server(99), external, b"!").frame());
    let other_port = SocketAddr::new(external.ip(), 4001);
    rig.link_brings(0, &udp(server(53), other_port, b"!").frame())
        .dropped("not-forwarded");
    let syn = tcp(server(5000), SocketAddr::new(external.ip(), 22), "S", 1, 0);
    rig.link_brings(0, &syn.frame()).dropped("not-forwarded");
    rig.link_brings(1, &udp(server(53), external, b"!").frame())
        .dropped("not-forwarded");
}

#[test]
fn an_attempt_begins_anew_over_a_link_with_another_prefix_or_none() {
    for (with_prefix, syn_retry) in [(0b11, 1), (0b01, 1), (0b10, 1)] {
        let mut rig = prefixed(with_prefix, 0b11);
        let mut choice = round_robin(0b11);
        choice.syn_retry = syn_retry;
        rig.install(&choice);
        let syn = tcp(client(4000), server(443), "S", LOCAL_ISN, 0).frame();
        let tries = [0, 1].map(|_| rig.translates_out(&syn).src());
        let links = tries.map(|external| {
            link_of_prefix(external.ip()).unwrap_or_else(|| usize::from(link_of(external)))
        });
        assert_ne!(links[0], links[1], "{tries:?}");
        assert_eq!(tries.map(|external| external.port()), [4000; 2]);
        let answer = tcp(server(443), tries[1], "SA", REMOTE_ISN, LOCAL_ISN + 1);
        let got = rig.link_brings(links[1] as u16, &answer.frame());
        assert_eq!(got.sent("translated-in").dst(), client(4000));
        assert_eq!((rig.flows().len(), rig.live()), (1, 1));
    }
}

#[test]
fn flows_by_a_prefix_end_with_their_link_and_the_next_take_the_other() {
    let mut rig = prefixed(0b11, 0b01);
    let query = udp(client(4000), server(53), b"?").frame();
    rig.translates_out(&query);
    rig.install(&round_robin(0b10));
    rig.plane()
        .end_flows(ClassId::DEFAULT, FAMILY, LinkId(0))
        .unwrap();
    assert_eq!(rig.live(), 0);
    let sent = rig.translates_out(&query).src();
    assert_eq!(link_of_prefix(sent.ip()), Some(1));
}

#[test]
fn fragments_leave_by_a_prefix_and_return() {
    let mut rig = prefixed(0b01, 0b01);
    let datagram = udp(client(4000), server(53), &[7; 2000]).id(7);
    let pieces = [(0, 1440), (1440, 2008)].map(|(from, to)| {
        let sent = rig.lan_sends(&datagram.fragment(from, to).frame());
        sent.sent("translated-out").ip
    });
    assert_eq!(pieces[0].source, pieces[1].source);
    assert!(is_in(PREFIXES[0], pieces[0].source));
    let external = SocketAddr::new(pieces[0].source, 4000);
    let answer = udp(server(53), external, &[8; 2000]).id(8);
    for (from, to) in [(0, 1440), (1440, 2008)] {
        let piece = rig.link_brings(0, &answer.fragment(from, to).frame());
        assert_eq!(piece.sent("translated-in").ip.destination, CLIENT);
    }
}

/// RFC 6296 section 3.6.
#[test]
fn an_address_that_no_prefix_makes_another_has_that_of_the_link() {
    let mut rig = prefixed(0b10, 0b10);
    let IpAddr::V6(lan) = SITE.lan.0 else {
        panic!("{:?}", SITE.lan)
    };
    let all_ones = IpAddr::from(Ipv6Addr::from(u128::from(lan) | u128::from(u64::MAX)));
    for port in [4000, 40000] {
        let local = SocketAddr::new(all_ones, port);
        let sent = rig.lan_sends(&udp(local, server(53), b"?").frame());
        let external = sent.sent("translated-out").src();
        assert_eq!(external.ip(), EXTERNAL[1]);
        let answer = udp(server(53), external, b"!").frame();
        let got = rig.translates_in(1, &answer);
        assert_eq!(got.dst(), local);
    }
}
