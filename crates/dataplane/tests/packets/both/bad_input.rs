//! What is malformed, cut short, spoofed or plain noise: one counted reason each, and no harm to any flow.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

/// A connection and a mapping that must not be harmed.
pub fn innocents(rig: &mut Rig) -> (Connection, SocketAddr) {
    let connection = rig.connect(client(4000), server(80));
    let sent = rig.translates_out(&udp(client(4001), server(53), b"x").frame());
    (connection, sent.src())
}

#[track_caller]
pub fn assert_unharmed(rig: &mut Rig, (connection, mapping): (Connection, SocketAddr)) {
    let data = connection.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1);
    let sent = rig.translates_out(&data.payload(b"alive").frame());
    assert_eq!(sent.src(), connection.external);
    let data = connection.answer("PA", REMOTE_ISN + 1, LOCAL_ISN + 1);
    rig.translates_in(connection.link, &data.payload(b"alive").frame());
    let sent = rig.translates_out(&udp(client(4001), server(53), b"x").frame());
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
        for length in L4..frame.len() {
            rig.lan_sends(&frame[..length]).dropped("malformed");
        }
    }
    let inbound = [
        connection.answer("PA", REMOTE_ISN + 1, LOCAL_ISN + 1).ip(),
        udp(server(53), mapping, b"payload"),
    ];
    for ip in inbound {
        let frame = ip.frame();
        for length in L4..frame.len() {
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
    let query = rig.translates_out(&echo(CLIENT, SERVER, 7, b"x").frame());
    let reply = echo_reply(SERVER, query.src().ip(), query.src().port(), b"x");
    for length in 0..8 {
        rig.link_brings(link_of(query.src()), &padded(reply.clone(), length))
            .dropped("malformed");
        rig.lan_sends(&padded(echo(CLIENT, SERVER, 7, b"x"), length))
            .dropped("malformed");
        let mut piece = udp(client(4000), server(53), b"payload").fragment(0, 8);
        piece.header.fragment = Some(Fragment {
            offset: 0,
            more: true,
        });
        rig.lan_sends(&padded(piece, length)).dropped("malformed");
    }
}

#[test]
fn sources_that_lie_are_dropped_at_the_side_they_come_from() {
    let mut rig = Rig::new();
    let innocents = innocents(&mut rig);
    let (connection, mapping) = innocents;
    for stranger in [SITE.stranger, SERVER, EXTERNAL[0]] {
        let local = SocketAddr::new(stranger, 4000);
        rig.lan_sends(&udp(local, second_server(53), b"x").frame())
            .dropped("spoofed-lan");
        rig.lan_sends(&tcp(local, second_server(80), "S", 1, 0).frame())
            .dropped("spoofed-lan");
        rig.lan_sends(&tcp(local, second_server(80), "A", 1, 0).frame())
            .dropped("spoofed-lan");
    }
    for target in [connection.external, mapping] {
        let liar = SocketAddr::new(SECOND_CLIENT, 80);
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
    let external = SocketAddr::new(EXTERNAL[0], 53);
    let mut gre = udp(server(53), external, b"x");
    gre.header.protocol = etherparse::IpNumber::GRE;
    rig.link_brings(0, &gre.frame()).passed("other-protocol");
}

/// Frames of noise, of noise behind a header that holds, and of packets with some bytes changed.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
    let framed = bytes(120).prop_map(|bytes| {
        let mut packet = bytes;
        packet.resize(packet.len().max(IP_HEADER), 0);
        frame(FAMILY, &packet)
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
                ip.header.source = lan_host(hosts[0]);
            } else {
                ip.header.destination = EXTERNAL[usize::from(hosts[1] & 1)];
            }
            if fragment & 3 == 0 {
                ip = ip.may_fragment();
                ip.header.fragment = Some(Fragment {
                    offset: fragment & !7,
                    more: fragment & 4 != 0,
                });
            }
            ip.frame()
        });
    let damaged = (
        0..4usize,
        proptest::collection::vec((0..74usize, any::<u8>()), 1..4),
        any::<bool>(),
    )
        .prop_map(|(kind, changes, mended)| {
            let external = SocketAddr::new(EXTERNAL[0], 4001);
            let ip = match kind {
                0 => tcp(client(4000), server(80), "PA", LOCAL_ISN, 1)
                    .payload(b"data")
                    .ip(),
                1 => udp(client(4001), server(53), b"data"),
                2 => udp(server(53), external, b"data"),
                _ => icmp(
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
            frame(FAMILY, &packet)
        });
    prop_oneof![framed, headed, damaged]
}

#[test]
fn noise_leaves_for_one_counted_reason_and_changes_no_mapping() {
    let mut rig = Rig::new();
    rig.set(|s| s.quota_per_host = 50);
    let connection = rig.connect(SocketAddr::new(SECOND_CLIENT, 4000), server(443));
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
    let sent = rig.translates_out(&data.payload(b"alive").frame());
    assert_eq!(sent.src(), connection.external);
}
