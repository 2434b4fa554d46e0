//! Packets written by hand: fragments in any order, twice, or among a flood of others, frames with tags, other protocols.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use anabranch_testbed::netns::Namespace;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::{
    common::*,
    connections::{FALLBACK_MARK, kernel_nat},
    flood::{frame_socket, mac_of, sum_of},
    site::Site,
    *,
};

/// IPv4 packets as they are written; the kernel adds the header's checksum.
fn packet_socket(namespace: &Namespace) -> Socket {
    let raw = Protocol::from(libc::IPPROTO_RAW);
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(raw)).unwrap();
    namespace.run(open).unwrap()
}

const PIECE: usize = 1024;
const PROTOCOL_AT: usize = 9;

/// A UDP datagram without a checksum, in pieces.
fn pieces(from: SocketAddrV4, to: SocketAddrV4, id: u16, payload: &[u8]) -> Vec<Vec<u8>> {
    let length = (payload.len() + 8) as u16;
    let mut datagram = Vec::new();
    for word in [from.port(), to.port(), length, 0] {
        datagram.extend(word.to_be_bytes());
    }
    datagram.extend(payload);
    let count = datagram.len().div_ceil(PIECE);
    let piece = |(index, body): (usize, &[u8])| {
        let more = u16::from(index + 1 < count) << 13;
        let place = more | (index * PIECE / 8) as u16;
        let mut packet = vec![0x45, 0];
        for word in [(20 + body.len()) as u16, id, place, 64 << 8 | 17, 0] {
            packet.extend(word.to_be_bytes());
        }
        packet.extend(from.ip().octets());
        packet.extend(to.ip().octets());
        packet.extend(body);
        packet
    };
    datagram.chunks(PIECE).enumerate().map(piece).collect()
}

fn send(socket: &Socket, packets: &[Vec<u8>], to: Ipv4Addr) {
    let to = SockAddr::from(SocketAddrV4::new(to, 0));
    for packet in packets {
        socket.send_to(packet, &to).unwrap();
    }
}

fn v4(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(address) => panic!("{address}"),
    }
}

/// A client and a server that know each other, and the client's external endpoint.
fn acquaintances(site: &Site) -> (UdpSocket, UdpSocket, SocketAddrV4) {
    let client = udp_socket(&site.client, (CLIENT, 4000));
    let server = udp_socket(&site.internet, (SERVER, 53));
    client.send_to(b"hello", (SERVER, 53)).unwrap();
    let external = v4(receive(&server).1);
    server.send_to(b"hello", external).unwrap();
    receive(&client);
    (client, server, external)
}

/// The pieces of one datagram in an order of their own.
type Order = fn(Vec<Vec<u8>>) -> Vec<Vec<u8>>;

#[test]
fn fragments_in_any_order_and_twice_arrive_as_one_datagram_both_ways() {
    let site = Site::new();
    let (client, server, external) = acquaintances(&site);
    let (lan, internet) = (packet_socket(&site.client), packet_socket(&site.internet));
    let (inside, outside) = (
        SocketAddrV4::new(CLIENT, 4000),
        SocketAddrV4::new(SERVER, 53),
    );
    let reversed: Order = |mut pieces| {
        pieces.reverse();
        pieces
    };
    let twice: Order = |pieces| pieces.into_iter().flat_map(|p| [p.clone(), p]).collect();
    let turned: Order = |mut pieces| {
        pieces.rotate_left(1);
        pieces
    };
    let mut id = 100;
    for order in [reversed, twice, turned] {
        for length in [1500, 4000, 9000] {
            id += 1;
            let payload: Vec<u8> = (0..length)
                .map(|i| (i / 3 + usize::from(id)) as u8)
                .collect();
            send(&lan, &order(pieces(inside, outside, id, &payload)), SERVER);
            assert!(receive(&server).0 == payload, "{length} bytes out");
            send(
                &internet,
                &order(pieces(outside, external, id, &payload)),
                *external.ip(),
            );
            assert!(receive(&client).0 == payload, "{length} bytes in");
        }
    }
}

#[test]
fn a_flood_of_first_fragments_from_outside_costs_no_datagram_of_a_flow() {
    let mut site = Site::new();
    let (client, _server, external) = acquaintances(&site);
    let internet = packet_socket(&site.internet);
    let outside = SocketAddrV4::new(SERVER, 53);
    let flood = |round: u32| {
        for i in 0..1000u32 {
            let stranger = Ipv4Addr::from(0x1400_0000 + round * 1000 + i);
            let to = SocketAddrV4::new(*external.ip(), 9);
            let lie = pieces(SocketAddrV4::new(stranger, 9), to, i as u16, &[0; 1100]);
            send(&internet, &lie[..1], *external.ip());
        }
    };
    for round in 0..20u16 {
        let payload = vec![round as u8; 3000];
        let pieces = pieces(outside, external, 500 + round, &payload);
        let (first, rest) = pieces.split_at(1);
        send(&internet, first, *external.ip());
        flood(round.into());
        send(&internet, rest, *external.ip());
        assert!(receive(&client).0 == payload, "datagram {round}");
    }
    assert!(site.reason("stray") >= 20_000);
}

/// GRE, ESP, SCTP, and one for experiments (RFC 3692).
const PROTOCOLS: [u8; 4] = [47, 50, 132, 253];

/// How often the internet's rules have counted what they name so.
fn counted(site: &Site, name: &str) -> u64 {
    let arguments = ["list", "counter", "ip", "seen", name];
    let said = site.internet.exec("nft", &arguments).unwrap();
    let packets = said
        .split_whitespace()
        .skip_while(|word| *word != "packets");
    packets.into_iter().nth(1).unwrap().parse().unwrap()
}

#[test]
fn no_other_protocol_leaves_a_link_with_its_lan_source() {
    let mut site = Site::new();
    kernel_nat(&site.gateway);
    let back = format!("route add default via {} dev wan0", ISP[0]);
    site.gateway.ip(&back).unwrap();
    let [lan, external] = [CLIENT, EXTERNAL[0]];
    let protocols = "meta l4proto { 47, 50, 132, 253 }";
    let rules = format!(
        "table ip seen {{
            counter untranslated {{ }}
            counter translated {{ }}
            chain seen {{
                type filter hook prerouting priority raw
                {protocols} ip saddr {lan} counter name untranslated
                {protocols} ip saddr {external} counter name translated
            }}
        }}"
    );
    site.internet
        .exec_with_input("nft", &["-f", "-"], &rules)
        .unwrap();
    let send_all = |site: &Site| {
        let socket = packet_socket(&site.client);
        let at = |address| SocketAddrV4::new(address, 0);
        for protocol in PROTOCOLS {
            let mut packet = pieces(at(CLIENT), at(SERVER), 1, b"something").remove(0);
            packet[PROTOCOL_AT] = protocol;
            send(&socket, &[packet], SERVER);
        }
    };
    let count = PROTOCOLS.len() as u64;
    send_all(&site);
    eventually("all are refused", || {
        site.reason("refused-protocol") == count
    });
    let mut lenient = settings();
    lenient.fallback_mark = FALLBACK_MARK;
    site.plane().set_settings(&lenient).unwrap();
    send_all(&site);
    // SCTP that begins no association is invalid to the kernel.
    eventually("the kernel's NAT has carried all the others", || {
        counted(&site, "translated") == count - 1
    });
    assert_eq!(site.reason("fallback-protocol"), count);
    assert_eq!(counted(&site, "untranslated"), 0);
}

/// A datagram of the client's in an Ethernet frame with an 802.1Q tag.
fn tagged(mac: [u8; 6], tag: u16, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (
        SocketAddrV4::new(CLIENT, 4000),
        SocketAddrV4::new(SERVER, 53),
    );
    let mut packet = pieces(from, to, 1, payload).remove(0);
    let sum = !sum_of(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = Vec::from(mac);
    frame.extend([2, 0, 0, 0, 0, 9, 0x81, 0]);
    frame.extend(tag.to_be_bytes());
    frame.extend([8, 0]);
    frame.extend(packet);
    frame
}

#[test]
fn a_tagged_frame_is_another_devices_and_one_with_a_mere_priority_is_not() {
    let mut site = Site::new();
    let server = udp_socket(&site.internet, (SERVER, 53));
    let mac = mac_of(&site.gateway, "lan0");
    let lan = site.client.run(|| frame_socket("eth0")).unwrap();
    lan.send(&tagged(mac, 7, b"tagged")).unwrap();
    lan.send(&tagged(mac, 0xa000, b"priority")).unwrap();
    assert_eq!(receive(&server).0, b"priority");
    assert_eq!(site.reason("tagged"), 1);
}
