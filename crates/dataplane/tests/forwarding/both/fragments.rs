//! Packets written by hand: fragments in any order, twice, or among a flood of others, frames with tags, other protocols.

use anabranch_frames::{Ip, IpNumber, frame_socket, sent_to, udp};

use super::{
    connections::{FALLBACK_MARK, kernel_nat},
    *,
};

/// Payload of a fragment.
const PIECE: usize = 1024;

/// A client and a server that know each other, and the client's external endpoint.
fn acquaintances(site: &Site) -> (UdpSocket, UdpSocket, SocketAddr) {
    let client = udp_socket(&site.client, (CLIENT, 4000));
    let server = udp_socket(&site.internet, (SERVER, 53));
    client.send_to(b"hello", (SERVER, 53)).unwrap();
    let (_, external) = receive(&server);
    server.send_to(b"hello", external).unwrap();
    receive(&client);
    (client, server, external)
}

/// The client's and the server's.
fn ends() -> (SocketAddr, SocketAddr) {
    ((CLIENT, 4000).into(), (SERVER, 53).into())
}

/// A UDP datagram, in fragments if it is longer than one of them.
fn pieces(from: SocketAddr, to: SocketAddr, id: u16, payload: &[u8]) -> Vec<Ip> {
    let whole = udp(from, to, payload).id(id);
    let length = whole.body.len();
    match length <= PIECE {
        true => vec![whole],
        false => (0..length)
            .step_by(PIECE)
            .map(|at| whole.fragment(at, at + PIECE))
            .collect(),
    }
}

/// The pieces of one datagram in an order of their own.
type Order = fn(Vec<Ip>) -> Vec<Ip>;

#[test]
fn fragments_in_any_order_and_twice_arrive_as_one_datagram_both_ways() {
    let site = site();
    let (client, server, external) = acquaintances(&site);
    let (lan, internet) = (packet_socket(&site.client), packet_socket(&site.internet));
    let (inside, outside) = ends();
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
            send(&lan, &order(pieces(inside, outside, id, &payload)));
            assert!(receive(&server).0 == payload, "{length} bytes out");
            send(&internet, &order(pieces(outside, external, id, &payload)));
            assert!(receive(&client).0 == payload, "{length} bytes in");
        }
    }
}

#[test]
fn fragments_that_come_before_their_first_wait_for_it_and_are_sent_on_behind_it() {
    let mut site = site();
    let (client, server, external) = acquaintances(&site);
    let (lan, internet) = (packet_socket(&site.client), packet_socket(&site.internet));
    let (inside, outside) = ends();
    let of_two = |number: u16| vec![number as u8; 4000];
    // Of two datagrams at once, and of neither the first.
    let datagrams = [1, 2].map(|id| pieces(inside, outside, id, &of_two(id)));
    let count: usize = datagrams.iter().map(|pieces| pieces.len() - 1).sum();
    for pieces in &datagrams {
        send(&lan, &pieces[1..]);
    }
    eventually("all wait", || site.reason("fragment-held") == count as u64);
    for (id, pieces) in (1..).zip(&datagrams) {
        send(&lan, &pieces[..1]);
        assert_eq!(receive(&server), (of_two(id), external));
    }

    let datagrams = [3, 4].map(|id| pieces(outside, external, id, &of_two(id)));
    let before = site.reason("no-flow-in");
    for pieces in &datagrams {
        send(&internet, &pieces[1..]);
    }
    eventually("all wait", || {
        site.reason("no-flow-in") == before + count as u64
    });
    for (id, pieces) in (3..).zip(&datagrams) {
        send(&internet, &pieces[..1]);
        assert_eq!(receive(&client), (of_two(id), outside));
    }
    assert_eq!(site.reason("fragment-overlap"), 0);
}

#[test]
fn datagrams_of_two_hosts_with_one_id_are_never_mixed() {
    let mut site = site();
    site.install(0b01);
    let server = udp_socket(&site.internet, (SERVER, 53));
    let lan = packet_socket(&site.client);
    let (_, outside) = ends();
    let hosts = [CLIENT, SECOND_CLIENT];
    let payload = |host: usize| vec![7 + host as u8; 4000];
    let datagrams = [0, 1].map(|host| {
        let from = SocketAddr::new(hosts[host], 4000);
        pieces(from, outside, 7, &payload(host))
    });
    for (first, second) in datagrams[0].iter().zip(&datagrams[1]) {
        send(&lan, &[first.clone(), second.clone()]);
    }
    let mut heard = [receive(&server), receive(&server)];
    heard.sort();
    assert!(heard[0].0 == payload(0) && heard[1].0 == payload(1));
    assert_ne!(heard[0].1, heard[1].1, "two hosts, two endpoints");
}

#[test]
fn a_flood_of_first_fragments_from_outside_costs_no_datagram_of_a_flow() {
    let mut site = site();
    let (client, _server, external) = acquaintances(&site);
    let internet = packet_socket(&site.internet);
    let (_, outside) = ends();
    let flood = |round: u32| {
        for i in 0..1000u32 {
            let stranger = nth(SITE.internet, round * 1000 + i);
            let to = SocketAddr::new(external.ip(), 9);
            let lie = pieces(SocketAddr::new(stranger, 9), to, i as u16, &[0; 1100]);
            send(&internet, &lie[..1]);
        }
    };
    for round in 0..20u16 {
        let payload = vec![round as u8; 3000];
        let pieces = pieces(outside, external, 500 + round, &payload);
        let (first, rest) = pieces.split_at(1);
        send(&internet, first);
        flood(round.into());
        send(&internet, rest);
        assert!(receive(&client).0 == payload, "datagram {round}");
    }
    assert!(site.reason("stray") >= 20_000);
}

/// GRE, ESP, SCTP, and one for experiments (RFC 3692).
const PROTOCOLS: [u8; 4] = [47, 50, 132, 253];

/// How often the internet's rules have counted what they name so.
fn counted(site: &Site, name: &str) -> u64 {
    let arguments = ["list", "counter", NFT, "seen", name];
    let said = site.internet.exec("nft", &arguments).unwrap();
    let packets = said
        .split_whitespace()
        .skip_while(|word| *word != "packets");
    packets.into_iter().nth(1).unwrap().parse().unwrap()
}

#[test]
fn no_other_protocol_leaves_a_link_with_its_lan_source() {
    let mut site = site();
    kernel_nat(&site.gateway);
    let back = format!("route add default via {} dev wan0", ISP[0]);
    site.gateway.ip(&back).unwrap();
    let [lan, external] = [CLIENT, EXTERNAL[0]];
    let protocols = "meta l4proto { 47, 50, 132, 253 }";
    let rules = format!(
        "table {NFT} seen {{
            counter untranslated {{ }}
            counter translated {{ }}
            chain seen {{
                type filter hook prerouting priority raw
                {protocols} {NFT} saddr {lan} counter name untranslated
                {protocols} {NFT} saddr {external} counter name translated
            }}
        }}"
    );
    site.internet.nft(&rules).unwrap();
    let send_all = |site: &Site| {
        let socket = packet_socket(&site.client);
        for protocol in PROTOCOLS {
            let body = b"something without ports".to_vec();
            let packet = Ip::new(IpNumber(protocol), CLIENT, SERVER, body);
            send(&socket, &[packet]);
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

const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;
const PRIORITY: u16 = 0xa000;

/// A datagram of the client's in an Ethernet frame with tags (IEEE 802.1Q), each of a kind, the outermost first.
fn tagged(mac: [u8; 6], tags: &[(u16, u16)], payload: &[u8]) -> Vec<u8> {
    let (from, to) = ends();
    let datagram = pieces(from, to, 1, payload).remove(0);
    let mut frame = sent_to(mac, datagram.frame());
    let words = tags.iter().flat_map(|&(kind, tag)| [kind, tag]);
    frame.splice(12..12, words.flat_map(u16::to_be_bytes));
    frame
}

#[test]
fn a_tagged_frame_is_another_devices_and_one_with_a_mere_priority_is_not() {
    let mut site = site();
    let server = udp_socket(&site.internet, (SERVER, 53));
    let mac = site.gateway.mac("lan0").unwrap();
    let lan = site.client.run(|| frame_socket("eth0").unwrap()).unwrap();
    let customer = |tag| (CUSTOMER_TAG, tag);
    lan.send(&tagged(mac, &[customer(7)], b"tagged")).unwrap();
    lan.send(&tagged(mac, &[customer(PRIORITY)], b"priority"))
        .unwrap();
    assert_eq!(receive(&server).0, b"priority");
    assert_eq!(site.reason("tagged"), 1);
}

#[test]
fn a_tag_behind_a_tag_is_not_overlooked() {
    let mut site = site();
    let server = udp_socket(&site.internet, (SERVER, 53));
    let mac = site.gateway.mac("lan0").unwrap();
    let lan = site.client.run(|| frame_socket("eth0").unwrap()).unwrap();
    let of_others: [&[(u16, u16)]; 5] = [
        &[(CUSTOMER_TAG, PRIORITY), (CUSTOMER_TAG, 7)],
        &[(SERVICE_TAG, 0), (CUSTOMER_TAG, 7)],
        &[(SERVICE_TAG, 7), (CUSTOMER_TAG, 0)],
        &[(SERVICE_TAG, 7), (CUSTOMER_TAG, 8)],
        &[(CUSTOMER_TAG, 0), (CUSTOMER_TAG, 0), (CUSTOMER_TAG, 7)],
    ];
    for tags in of_others {
        lan.send(&tagged(mac, tags, b"tagged")).unwrap();
    }
    let priorities = [(SERVICE_TAG, PRIORITY), (CUSTOMER_TAG, PRIORITY)];
    lan.send(&tagged(mac, &priorities, b"priorities")).unwrap();
    assert_eq!(receive(&server).0, b"priorities");
    assert_eq!(site.reason("tagged"), of_others.len() as u64);
}
