//! What is malformed, cut short, spoofed or plain noise: one counted reason each, and no harm to any flow.

use std::net::{Ipv4Addr, SocketAddrV4};

use proptest::prelude::*;

use crate::{common::*, frame::*, rig::*};

/// A connection and a mapping that must not be harmed.
fn innocents(rig: &mut Rig) -> (Connection, SocketAddrV4) {
    let connection = rig.connect(client(4000), server(80));
    let sent = rig
        .lan_sends(&udp(client(4001), server(53), b"x").frame())
        .sent("translated-out");
    (connection, sent.src())
}

#[track_caller]
fn assert_unharmed(rig: &mut Rig, (connection, mapping): (Connection, SocketAddrV4)) {
    let data = connection.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1);
    let sent = rig
        .lan_sends(&data.payload(b"alive").frame())
        .sent("translated-out");
    assert_eq!(sent.src(), connection.external);
    let data = connection.answer("PA", REMOTE_ISN + 1, LOCAL_ISN + 1);
    rig.link_brings(connection.link, &data.payload(b"alive").frame())
        .sent("translated-in");
    let sent = rig
        .lan_sends(&udp(client(4001), server(53), b"x").frame())
        .sent("translated-out");
    assert_eq!(sent.src(), mapping);
}

#[test]
fn a_frame_cut_short_at_any_length_is_malformed() {
    let mut rig = Rig::new();
    let innocents = innocents(&mut rig);
    let (connection, mapping) = innocents;
    let outbound = [
        connection.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1).ip(),
        udp(client(4001), server(53), b"payload"),
        echo(CLIENT, SERVER, 1, b"payload"),
        udp(client(4001), server(53), b"x").ip_options(&[1; 40]),
    ];
    for ip in outbound {
        let frame = ip.frame();
        for length in ETHERNET + 20..frame.len() {
            rig.lan_sends(&frame[..length]).dropped("malformed");
        }
    }
    let inbound = [
        connection.answer("PA", REMOTE_ISN + 1, LOCAL_ISN + 1).ip(),
        udp(server(53), mapping, b"payload"),
    ];
    for ip in inbound {
        let frame = ip.frame();
        for length in ETHERNET + 20..frame.len() {
            rig.link_brings(connection.link, &frame[..length])
                .dropped("malformed");
        }
    }
    assert_unharmed(&mut rig, innocents);
}

/// What a sender of short packets fills a frame with is no header.
#[test]
fn a_transport_header_that_ends_in_the_padding_is_malformed() {
    let mut rig = Rig::new();
    let padded = |mut ip: Ip, length: usize| {
        ip.body.truncate(length);
        [ip.frame(), vec![0; 20]].concat()
    };
    let query = rig
        .lan_sends(&echo(CLIENT, SERVER, 7, b"x").frame())
        .sent("translated-out");
    let reply = echo_reply(SERVER, *query.src().ip(), query.src().port(), b"x");
    for length in 0..8 {
        rig.link_brings(link_of(query.src()), &padded(reply.clone(), length))
            .dropped("malformed");
        rig.lan_sends(&padded(echo(CLIENT, SERVER, 7, b"x"), length))
            .dropped("malformed");
        let mut piece = udp(client(4000), server(53), b"payload").fragment(0, 8);
        piece.header.more_fragments = true;
        rig.lan_sends(&padded(piece, length)).dropped("malformed");
    }
}

#[test]
fn headers_that_contradict_themselves_are_malformed() {
    let mut rig = Rig::new();
    let with = |at: usize, value: u8, ip: &Ip| {
        let mut packet = ip.packet();
        packet[at] = value;
        packet[10..12].fill(0);
        let check = !sum(&packet[..20]);
        packet[10..12].copy_from_slice(&check.to_be_bytes());
        frame(&packet)
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
fn sources_that_lie_are_dropped_at_the_side_they_come_from() {
    let mut rig = Rig::new();
    let innocents = innocents(&mut rig);
    let (connection, mapping) = innocents;
    for stranger in [Ipv4Addr::new(192, 168, 7, 7), SERVER, EXTERNAL[0]] {
        let local = SocketAddrV4::new(stranger, 4000);
        rig.lan_sends(&udp(local, second_server(53), b"x").frame())
            .dropped("spoofed-lan");
        rig.lan_sends(&tcp(local, second_server(80), "S", 1, 0).frame())
            .dropped("spoofed-lan");
        rig.lan_sends(&tcp(local, second_server(80), "A", 1, 0).frame())
            .dropped("spoofed-lan");
    }
    for target in [connection.external, mapping] {
        let liar = SocketAddrV4::new(SECOND_CLIENT, 80);
        let outcome = rig.link_brings(connection.link, &udp(liar, target, b"x").frame());
        assert!(
            ["spoofed-wan", "filtered-in"].contains(&outcome.reason.as_str()),
            "{outcome:?}"
        );
        rig.link_brings(connection.link, &tcp(liar, target, "S", 1, 0).frame())
            .dropped("spoofed-wan");
    }
    assert_unharmed(&mut rig, innocents);
}

#[test]
fn what_is_not_the_gateways_is_left_to_the_stack() {
    let mut rig = Rig::new();
    let mut arp = vec![0xff; 12];
    arp.extend([8, 6]);
    arp.extend([0; 46]);
    rig.lan_sends(&arp).passed("not-ip");
    rig.link_brings(0, &arp).passed("not-ip");
    let external = SocketAddrV4::new(EXTERNAL[0], 53);
    let mut gre = udp(server(53), external, b"x");
    gre.header.protocol = etherparse::IpNumber::GRE;
    rig.link_brings(0, &gre.frame()).passed("other-protocol");
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
    rig.lan_sends(&record.frame()).sent("translated-out");
    assert_unharmed(&mut rig, innocents);
}

/// Frames of noise, of noise behind a header that holds, and of packets with some bytes changed.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
    let framed = bytes(120).prop_map(|bytes| {
        let mut packet = bytes;
        packet.resize(packet.len().max(20), 0);
        frame(&packet)
    });
    let headed = (
        bytes(100),
        any::<[u8; 4]>(),
        any::<bool>(),
        any::<u16>(),
        0..3u8,
    )
        .prop_map(|(body, hosts, whose, fragment, proto)| {
            let mut ip = udp(client(4001), server(53), &[]);
            ip.body = body;
            ip.header.protocol = [1, 6, 17][usize::from(proto)].into();
            if whose {
                ip.header.source = [10, 0, 0, hosts[0]];
            } else {
                ip.header.destination = EXTERNAL[usize::from(hosts[1] & 1)].octets();
            }
            if fragment & 3 == 0 {
                ip = Ip {
                    header: ip.header.clone(),
                    body: ip.body.clone(),
                };
                ip.header.dont_fragment = false;
                ip.header.more_fragments = fragment & 4 != 0;
                ip.header.fragment_offset =
                    etherparse::IpFragOffset::try_new(fragment >> 3).unwrap();
            }
            ip.frame()
        });
    let damaged = (
        0..4usize,
        proptest::collection::vec((0..74usize, any::<u8>()), 1..4),
        any::<bool>(),
    )
        .prop_map(|(kind, changes, mended)| {
            let external = SocketAddrV4::new(EXTERNAL[0], 4001);
            let ip = match kind {
                0 => tcp(client(4000), server(80), "PA", LOCAL_ISN, 1)
                    .payload(b"data")
                    .ip(),
                1 => udp(client(4001), server(53), b"data"),
                2 => udp(server(53), external, b"data"),
                _ => icmp_error(
                    SERVER,
                    EXTERNAL[0],
                    (3, 3),
                    [0; 4],
                    &udp(external, server(53), b"data").packet(),
                ),
            };
            let mut packet = ip.packet();
            for (at, value) in changes {
                let length = packet.len();
                packet[at % length] = value;
            }
            if mended {
                packet[10..12].fill(0);
                let check = !sum(&packet[..20]);
                packet[10..12].copy_from_slice(&check.to_be_bytes());
            }
            frame(&packet)
        });
    prop_oneof![framed, headed, damaged]
}

#[test]
fn noise_leaves_for_one_counted_reason_and_changes_no_mapping() {
    let mut rig = Rig::new();
    rig.set(|s| s.quota_per_host = 50);
    let connection = rig.connect(SocketAddrV4::new(SECOND_CLIENT, 4000), server(443));
    let before = rig.flow(connection.local);
    let strategy = proptest::collection::vec((noise(), any::<bool>()), 20);
    rig.for_all(600, strategy, |rig, frames| {
        for (frame, outbound) in frames {
            // The rig insists on one reason, and one for each fragment that the frame releases.
            if outbound {
                rig.lan_sends(&frame);
            } else {
                rig.link_brings(connection.link, &frame);
            }
        }
        let now = rig.flow(connection.local);
        prop_assert_eq!(
            (now.external, now.link, now.state),
            (before.external, before.link, before.state)
        );
        Ok(())
    });
    let data = connection.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1);
    let sent = rig
        .lan_sends(&data.payload(b"alive").frame())
        .sent("translated-out");
    assert_eq!(sent.src(), connection.external);
}
