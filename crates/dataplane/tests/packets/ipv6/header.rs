//! The header of IPv6: extensions, lengths, flow labels.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use etherparse::IpNumber;

use super::SITE;
use super::both::{
    bad_input::{assert_unharmed, innocents},
    *,
};
use crate::{common::round_robin, frame::*, rig::*};

const HOPS: IpNumber = IpNumber::IPV6_HEADER_HOP_BY_HOP;
const OPTIONS: IpNumber = IpNumber::IPV6_DESTINATION_OPTIONS;
const ROUTING: IpNumber = IpNumber::IPV6_ROUTE_HEADER;

/// Options that are nothing but padding, `length` bytes with their header.
fn padding(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[1] = (length / 8 - 1) as u8;
    bytes[2..4].copy_from_slice(&[1, (length - 4) as u8]);
    bytes
}

/// The datagram with padding of 8 bytes before its transport header, among what is cut into fragments.
fn padded(mut datagram: Ip) -> Ip {
    let mut options = padding(8);
    options[0] = datagram.header.protocol.0;
    datagram.header.protocol = OPTIONS;
    datagram.body.splice(0..0, options);
    datagram
}

/// Puts pieces together that came in order, and reads the datagram behind its padding with its checksum.
fn reassemble(pieces: &[Seen]) -> Seen {
    let id = pieces[0].ip.identification;
    assert!(pieces.iter().all(|piece| piece.ip.identification == id));
    let body: Vec<u8> = pieces
        .iter()
        .flat_map(|piece| piece.payload().to_vec())
        .collect();
    let mut header = pieces[0].ip.clone();
    (header.fragment, header.protocol) = (None, IpNumber(body[0]));
    let body = body[8..].to_vec();
    read_packet(&Ip { header, body }.packet())
}

#[test]
fn fragments_are_of_one_datagram_whatever_follows_their_header() {
    let mut rig = Rig::new();
    let payload: Vec<u8> = (0..2000).map(|i| i as u8).collect();
    let cuts = [(0, 720), (720, 1440), (1440, 2016)];
    let datagram = padded(udp(client(40000), server(53), &payload).id(7));
    let pieces = cuts.map(|(from, to)| {
        let frame = datagram.fragment(from, to).frame();
        rig.translates_out(&frame)
    });
    let out = reassemble(&pieces);
    assert_eq!((out.dst(), out.payload()), (server(53), &payload[..]));
    let answer = padded(udp(server(53), out.src(), &payload).id(9));
    let pieces = cuts.map(|(from, to)| {
        let frame = answer.fragment(from, to).frame();
        let arrives = rig.link_brings(link_of(out.src()), &frame);
        arrives.sent("translated-in")
    });
    let back = reassemble(&pieces);
    assert_eq!((back.dst(), back.payload()), (client(40000), &payload[..]));
    assert_eq!(rig.flows().len(), 1);
}

/// A routing header with no segments left.
fn routing(kind: u8) -> [u8; 8] {
    [0, 0, kind, 0, 0, 0, 0, 0]
}

#[test]
fn extension_headers_are_stepped_over_and_kept_both_ways() {
    let mut rig = Rig::new();
    let chains: [&[(IpNumber, &[u8])]; 5] = [
        &[(HOPS, &padding(8))],
        &[(OPTIONS, &padding(48))],
        &[(HOPS, &padding(16)), (OPTIONS, &padding(24))],
        &[(ROUTING, &routing(4)), (OPTIONS, &padding(8))],
        &[(HOPS, &padding(80)), (OPTIONS, &padding(80))],
    ];
    for (number, chain) in chains.into_iter().enumerate() {
        let extended = |ip: Ip| {
            let add = |ip: Ip, (kind, bytes): &(IpNumber, &[u8])| ip.extension(*kind, bytes);
            chain.iter().fold(ip, add)
        };
        let local = client(4000 + number as u16);
        for (request, answer) in [
            (
                udp(local, server(53), b"query"),
                (|from| udp(server(53), from, b"answer")) as fn(SocketAddr) -> Ip,
            ),
            (tcp(local, server(80), "S", LOCAL_ISN, 0).ip(), |from| {
                tcp(server(80), from, "SA", REMOTE_ISN, LOCAL_ISN + 1).ip()
            }),
            (echo(CLIENT, SERVER, local.port(), b"?"), |from| {
                echo_reply(SERVER, from.ip(), from.port(), b"!")
            }),
        ] {
            let request = extended(request);
            let sent = rig.translates_out(&request.frame());
            let written = read(&request.frame());
            assert_eq!(sent.ip.extensions, written.ip.extensions);
            assert_eq!(sent.payload(), written.payload());
            let answer = extended(answer(sent.src()));
            let got = rig.translates_in(link_of(sent.src()), &answer.frame());
            assert_eq!(got.ip.extensions, read(&answer.frame()).ip.extensions);
            assert_eq!(got.dst(), written.src());
        }
    }
}

#[test]
fn too_many_or_too_long_extension_headers_are_malformed() {
    let mut rig = Rig::new();
    let innocents = innocents(&mut rig);
    let (connection, _) = innocents;
    let datagram = || udp(client(4001), server(53), b"x");
    let answer = || connection.answer("A", REMOTE_ISN + 1, LOCAL_ISN + 1).ip();
    let many =
        |ip: Ip, count: usize| (0..count).fold(ip, |ip, _| ip.extension(OPTIONS, &padding(8)));
    rig.translates_out(&many(datagram(), 6).frame());
    rig.lan_sends(&many(datagram(), 7).frame())
        .dropped("malformed");
    rig.link_brings(connection.link, &many(answer(), 7).frame())
        .dropped("malformed");
    let long = |ip: Ip| ip.extension(OPTIONS, &padding(168));
    rig.lan_sends(&long(datagram()).frame())
        .dropped("malformed");
    rig.link_brings(connection.link, &long(answer()).frame())
        .dropped("malformed");
    // One that ends behind the packet.
    let mut beyond = padding(8);
    beyond[1] = 9;
    rig.lan_sends(&datagram().extension(OPTIONS, &beyond).frame())
        .dropped("malformed");
    assert_unharmed(&mut rig, innocents);
}

#[test]
fn source_routes_are_dropped_from_either_side() {
    let mut rig = Rig::new();
    let innocents = innocents(&mut rig);
    let (connection, _) = innocents;
    for before in [0, 1] {
        let routed = |ip: Ip| {
            let ip = (0..before).fold(ip, |ip, _| ip.extension(HOPS, &padding(8)));
            ip.extension(ROUTING, &routing(0))
        };
        let out = routed(udp(client(4001), server(53), b"x"));
        rig.lan_sends(&out.frame()).dropped("source-routed");
        let back = routed(connection.answer("A", REMOTE_ISN + 1, LOCAL_ISN + 1).ip());
        rig.link_brings(connection.link, &back.frame())
            .dropped("source-routed");
    }
    assert_unharmed(&mut rig, innocents);
}

#[test]
fn headers_that_contradict_themselves_are_malformed() {
    let mut rig = Rig::new();
    let with = |at: usize, value: u8, ip: &Ip| {
        let mut packet = ip.packet();
        packet[at] = value;
        frame(FAMILY, &packet)
    };
    let datagram = udp(client(4000), server(53), b"payload");
    let segment = tcp(client(4000), server(80), "S", 1, 0).ip();
    for broken in [
        with(0, 0x40, &datagram),
        with(0, 0x70, &datagram),
        with(4, 0xff, &datagram),
        with(5, 16, &datagram),
        with(5, 7, &datagram),
        // Jumbograms (RFC 2675) have no length here.
        with(5, 0, &datagram),
        with(
            5,
            0,
            &datagram
                .clone()
                .extension(HOPS, &[0, 0, 0xc2, 4, 0, 1, 0, 0]),
        ),
        with(44, 0xff, &datagram),
        with(45, 7, &datagram),
        with(52, 0x40, &segment),
        with(52, 0xf0, &segment),
    ] {
        rig.lan_sends(&broken).dropped("malformed");
    }
    assert!(rig.flows().is_empty());
}

/// Nobody passes for IPv4 (RFC 4291 section 2.5.5.2).
#[test]
fn mapped_addresses_are_dropped_from_either_side() {
    let mut rig = Rig::new();
    let innocents = innocents(&mut rig);
    let (connection, mapping) = innocents;
    for v4 in [[10, 0, 0, 2], [203, 0, 113, 2], [198, 51, 100, 10], [0; 4]] {
        let mapped = SocketAddr::new(IpAddr::V6(Ipv4Addr::from(v4).to_ipv6_mapped()), 80);
        for ip in [
            udp(mapped, server(53), b"x"),
            udp(client(4001), mapped, b"x"),
            tcp(client(4000), mapped, "S", LOCAL_ISN, 0).ip(),
            echo(CLIENT, mapped.ip(), 7, b"x"),
        ] {
            rig.lan_sends(&ip.frame()).dropped("malformed");
        }
        for ip in [
            udp(mapped, mapping, b"x"),
            tcp(mapped, connection.external, "A", REMOTE_ISN + 1, 0).ip(),
            udp(server(53), mapped, b"x"),
        ] {
            rig.link_brings(connection.link, &ip.frame())
                .dropped("malformed");
        }
    }
    assert_unharmed(&mut rig, innocents);
}

/// RFC 6437: it is a flow's on the link, and says nothing of the host's other flows.
#[test]
fn the_flow_label_is_set_anew_for_each_flow_and_stays_its_own() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    let labelled = |mut ip: Ip, label| {
        ip.header.flow_label = label;
        ip
    };
    let mut labels = BTreeSet::new();
    for port in 0..64 {
        let say = |flags, seq| {
            let segment = tcp(client(4000 + port), server(80), flags, seq, REMOTE_ISN + 1);
            labelled(segment.ip(), 0xabcde).frame()
        };
        let connection = rig.connect(client(4000 + port), server(80));
        let label = |sent: Seen| sent.ip.flow_label;
        let first = label(rig.translates_out(&say("A", LOCAL_ISN + 1)));
        for flags in ["A", "PA", "FA"] {
            let next = rig.lan_sends(&say(flags, LOCAL_ISN + 1));
            assert_eq!(label(next.sent("translated-out")), first);
        }
        // A host asks for another path so.
        let other = labelled(connection.say("A", LOCAL_ISN + 1, REMOTE_ISN + 1).ip(), 7);
        let other = rig.translates_out(&other.frame());
        assert_ne!(label(other), first);
        labels.insert(first);
    }
    assert!(!labels.contains(&0xabcde));
    assert!(labels.len() > 60, "{labels:?}");
    // Fragments are of one flow.
    let datagram = labelled(udp(client(9000), server(53), &[7; 3000]), 1).id(1);
    let pieces = [(0, 1440), (1440, 2880), (2880, 3008)].map(|(from, to)| {
        let sent = rig.lan_sends(&datagram.fragment(from, to).frame());
        sent.sent("translated-out").ip.flow_label
    });
    assert_eq!(BTreeSet::from(pieces).len(), 1, "{pieces:?}");
}

#[test]
fn what_arrives_keeps_its_flow_label_and_both_ways_their_traffic_class() {
    let mut rig = Rig::new();
    let marked = |mut ip: Ip| {
        (ip.header.flow_label, ip.header.traffic_class) = (0x12345, 0xb9);
        ip.frame()
    };
    for protocol in 0..2 {
        let (out, back): (Ip, fn(SocketAddr) -> Ip) = match protocol {
            0 => (udp(client(4000), server(53), b"?"), |to| {
                udp(server(53), to, b"!")
            }),
            _ => (echo(CLIENT, SERVER, 7, b"?"), |to| {
                echo_reply(SERVER, to.ip(), to.port(), b"!")
            }),
        };
        let sent = rig.translates_out(&marked(out));
        assert_eq!(sent.ip.traffic_class, 0xb9);
        let got = rig.link_brings(link_of(sent.src()), &marked(back(sent.src())));
        let got = got.sent("translated-in").ip;
        assert_eq!((got.flow_label, got.traffic_class), (0x12345, 0xb9));
    }
}

#[test]
fn a_fragment_that_is_its_whole_datagram_is_translated_as_such() {
    let mut rig = Rig::new();
    let mut whole = udp(client(4000), server(53), b"atomic").id(7);
    whole.header.fragment = Some(Fragment {
        offset: 0,
        more: false,
    });
    let sent = rig.translates_out(&whole.frame());
    assert_eq!(sent.ip.fragment, whole.header.fragment);
    let header = Header {
        fragment: None,
        ..sent.ip.clone()
    };
    let body = sent.payload().to_vec();
    let seen = read_packet(&Ip { header, body }.packet());
    assert_eq!((seen.dst(), seen.payload()), (server(53), &b"atomic"[..]));
    assert_eq!(rig.flow(client(4000)).external, seen.src());
}

/// The quote of an error may begin behind extension headers of the error itself.
#[test]
fn an_error_with_extension_headers_is_read_as_far_as_headers_may_reach() {
    let mut rig = Rig::new();
    let out = rig.lan_sends(&udp(client(4000), server(53), b"x").frame());
    let external = out.sent("translated-out").src();
    let quoted = &out.frame[ETHERNET..];
    for length in (8..=160).step_by(8) {
        let error = icmp(
            SITE.router,
            external.ip(),
            SITE.port_unreachable,
            [0; 4],
            quoted,
        );
        let error = error.extension(OPTIONS, &padding(length));
        let got = rig.link_brings(link_of(external), &error.frame());
        if length <= 152 {
            assert_eq!(quote(&got.sent("error-in")).src(), client(4000));
        } else {
            got.dropped("malformed");
        }
    }
}
