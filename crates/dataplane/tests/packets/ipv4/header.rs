//! The header of IPv4: options, checksum, ids, and packets that are cut where they are too long.

use std::net::SocketAddr;

use super::both::{
    bad_input::{assert_unharmed, innocents},
    hairpin::{RENDEZVOUS, narrow, neighbour},
    *,
};
use crate::{common::round_robin, frame::*, rig::*};

#[test]
fn headers_that_contradict_themselves_are_malformed() {
    let mut rig = Rig::new();
    let with = |at: usize, value: u8, ip: &Ip| {
        let mut packet = ip.packet();
        packet[at] = value;
        packet[10..12].fill(0);
        let check = !sum(&packet[..20]);
        packet[10..12].copy_from_slice(&check.to_be_bytes());
        frame(FAMILY, &packet)
    };
    let datagram = udp(client(4000), server(53), b"payload");
    let segment = tcp(client(4000), server(80), "S", 1, 0).ip();
    for broken in [
        with(0, 0x44, &datagram),
        with(0, 0x40, &datagram),
        with(0, 0x65, &datagram),
        with(3, 19, &datagram),
        with(2, 0xff, &datagram),
        with(3, 27, &datagram),
        with(25, 7, &datagram),
        with(24, 0xff, &datagram),
        with(32, 0x40, &segment),
        with(32, 0xf0, &segment),
    ] {
        rig.lan_sends(&broken).dropped("malformed");
    }
    let mut bad = datagram.frame();
    bad[ETHERNET + 10] ^= 1;
    rig.lan_sends(&bad).dropped("bad-checksum");
    let mut bad = datagram.ip_options(&[1; 8]).frame();
    bad[ETHERNET + 24] ^= 1;
    rig.lan_sends(&bad).dropped("bad-checksum");
    assert!(rig.flows().is_empty());
}

#[test]
fn source_routes_are_dropped_from_either_side() {
    let mut rig = Rig::new();
    let innocents = innocents(&mut rig);
    let (connection, _) = innocents;
    for kind in [131, 137] {
        for options in [
            &[kind, 7, 4, 198, 51, 100, 1, 0][..],
            &[1, 148, 4, 0, 0, kind, 3, 4],
            &[1, 1, 1, kind, 7, 4, 1, 2, 3, 4, 0, 0],
        ] {
            let out = udp(client(4001), server(53), b"x").ip_options(options);
            rig.lan_sends(&out.frame()).dropped("source-routed");
            let back = connection.answer("A", REMOTE_ISN + 1, LOCAL_ISN + 1).ip();
            rig.link_brings(connection.link, &back.ip_options(options).frame())
                .dropped("source-routed");
        }
    }
    let record = udp(client(4001), server(53), b"x").ip_options(&[7, 7, 4, 131, 137, 0, 0, 0]);
    rig.translates_out(&record.frame());
    assert_unharmed(&mut rig, innocents);
}

#[test]
fn headers_with_options_are_translated_with_them() {
    let mut rig = Rig::new();
    // Router alert, and no-operations up to the longest header.
    for length in (4..=40).step_by(4) {
        let mut options = vec![1u8; length];
        options[..4].copy_from_slice(&[148, 4, 0, 0]);
        let ip = udp(client(4000), server(53), b"query").ip_options(&options);
        let sent = rig.translates_out(&ip.frame());
        assert_eq!(sent.ip.options.as_slice(), options);
        let answer = udp(server(53), sent.src(), b"answer").ip_options(&options);
        let got = rig.translates_in(link_of(sent.src()), &answer.frame());
        assert_eq!(got.dst(), client(4000));
    }
}

#[test]
fn datagrams_that_may_be_fragmented_later_get_an_id_that_is_not_their_hosts() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let mut seen = std::collections::BTreeSet::new();
    for host in [client(4000), SocketAddr::new(SECOND_CLIENT, 4000)] {
        for _ in 0..8 {
            let ip = udp(host, server(53), b"query").id(7).may_fragment();
            let sent = rig.translates_out(&ip.frame());
            seen.insert(sent.ip.identification);
        }
    }
    assert!(
        seen.len() > 12,
        "RFC 6864 section 5.3: ids of hosts that share an address must not meet: {seen:?}"
    );
}

#[test]
fn a_packet_too_long_for_the_other_hosts_device_arrives_in_pieces() {
    let mut rig = narrow(0b01);
    let asked = udp(neighbour(5000), server(RENDEZVOUS), b"stun");
    let called = rig.translates_out(&asked.frame()).src();
    let long = udp(client(5000), called, &[7; 1400]).may_fragment();
    let out = rig.lan_sends(&long.frame());
    out.sent("hairpin");
    let left = rig.comes_back_in_pieces(&out.frame);
    assert_eq!(left["translated-in"], 2, "{left:?}");
}
