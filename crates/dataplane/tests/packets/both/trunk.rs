//! A trunk's packets: which sublink each takes must be what the native build of the same headers says, and each must leave for
//! one counted reason.

use anabranch_core::multilink::{Bins, Drr, SublinkId};
use anabranch_dataplane::trunk::{NextHop, SublinkPath};
use anabranch_policy::{
    abi::{BINS, Flowlet, MAX_LINKS, Spread},
    flow_hash,
    spread::{Table, bin, by_bin, by_hash, by_rendezvous},
};
use etherparse::IpNumber;

use super::*;
use crate::trunk::{Rig, TC_ACT_REDIRECT, *};

const NUMBER: usize = FAMILY.index();

/// Of a fixed sequence, with any addresses of the family.
fn flow(draw: &mut Draw) -> (SocketAddr, SocketAddr) {
    let mut end = || {
        let ip: IpAddr = match FAMILY {
            Family::V4 => draw.next().to_be_bytes().into(),
            // Not in 0::/16, where those of IPv4 are.
            Family::V6 => {
                let words = [draw.next() | 1 << 31, draw.next(), draw.next(), draw.next()];
                let bytes = words.map(u32::to_be_bytes).concat();
                <[u8; 16]>::try_from(bytes).unwrap().into()
            }
        };
        SocketAddr::new(ip, draw.next() as u16)
    };
    (end(), end())
}

fn hash((src, dst): (SocketAddr, SocketAddr)) -> u32 {
    flow_hash(src.ip().into(), dst.ip().into(), src.port(), dst.port())
}

/// The hash of a pair of hosts without ports.
fn hash_of_hosts(src: IpAddr, dst: IpAddr) -> u32 {
    flow_hash(src.into(), dst.into(), 0, 0)
}

#[test]
fn every_flow_takes_the_sublink_that_the_native_build_names() {
    let mut rig = Rig::new();
    let mut draw = Draw(1);
    for round in 0..400 {
        let spread = [Spread::Hash, Spread::Bins, Spread::Rendezvous][round % 3];
        let mut told = spreading(spread, 1 + draw.next() % 17);
        // Bits beyond the last sublink must not matter.
        told.sublinks[NUMBER].usable = (draw.next() | draw.next()).into();
        let bits = [2, 8, 20, 32][draw.next() as usize % 4];
        told.sublinks[NUMBER].weight = std::array::from_fn(|_| draw.next() >> (32 - bits));
        let table: Table = std::array::from_fn(|_| (draw.next() % 18) as u16);
        rig.tell(told);
        rig.trunk().set_table(&table).unwrap();

        let pair = flow(&mut draw);
        let outcome = rig.send(&tcp(pair.0, pair.1, "A", 1, 1).frame());
        let (hash, count) = (
            hash(pair),
            told.sublinks[NUMBER].count.min(MAX_LINKS as u32),
        );
        let usable = told.sublinks[NUMBER].usable & ((1 << count) - 1);
        let native = match spread {
            Spread::Bins => by_bin(&table, hash, usable),
            Spread::Rendezvous => by_rendezvous(&told.sublinks[NUMBER], hash),
            _ => by_hash(hash, usable),
        };
        let context = format!("round {round}: {told:?}, {pair:?}, {outcome:?}");
        match native {
            Some(sublink) => assert_eq!(outcome.went, Some((sublink, bin(hash))), "{context}"),
            None => outcome.left(TC_ACT_SHOT, "no-sublink"),
        }
    }
}

#[test]
fn packet_by_packet_the_sublinks_take_their_turns_as_in_the_native_build() {
    let mut draw = Draw(2);
    for count in [1, 2, 5, 16] {
        let mut told = spreading(Spread::Packet, count);
        told.quantum = std::array::from_fn(|_| 1 + draw.next() % 3000);
        let mut native = Drr::new(&told.quantum[..count as usize]).unwrap();
        let mut rig = Rig::of(told);
        for _ in 0..200 {
            if draw.next().is_multiple_of(8) {
                told.sublinks[NUMBER].usable = draw.next().into();
                rig.tell(told);
            }
            let payload = vec![0; (draw.next() % 1400) as usize];
            let packet = udp(client(1), server(2), &payload).frame();
            let expected = native.choose(packet.len() as u32, told.sublinks[NUMBER].usable);
            let outcome = rig.send(&packet);
            match expected {
                Some(sublink) => assert_eq!(outcome.sublink(), sublink.0, "{count} sublinks"),
                None => outcome.left(TC_ACT_SHOT, "no-sublink"),
            }
        }
    }
}

#[test]
fn a_superpacket_of_many_quanta_is_placed_in_its_turn() {
    let mut told = spreading(Spread::Packet, 4);
    told.quantum = [100; MAX_LINKS];
    let mut rig = Rig::of(told);
    let small = udp(client(1), server(2), &[0; 20]).frame();
    let large = udp(client(1), server(2), &[0; 3000]).frame();
    let mut native = Drr::new(&[100; 4]).unwrap();
    for packet in [&small, &large, &small, &small, &large, &large, &small] {
        let expected = native.choose(packet.len() as u32, 0b1111).unwrap();
        assert_eq!(rig.send(packet).sublink(), expected.0);
    }
}

#[test]
fn a_flowlet_keeps_its_sublink_through_gaps_that_are_not_longer_than_the_bound() {
    let mut told = spreading(Spread::Flowlet, 16);
    told.flowlet_gap_ns = u64::MAX / 2;
    let mut rig = Rig::of(told);
    let mut draw = Draw(3);
    for _ in 0..10 {
        let (src, dst) = flow(&mut draw);
        let packet = tcp(src, dst, "A", 1, 1).frame();
        let first = rig.send(&packet).sublink();
        for _ in 0..10 {
            assert_eq!(rig.send(&packet).sublink(), first);
        }
    }
}

/// With no gap allowed every packet is a flowlet: sublinks of weights 1 and 3 get a quarter and three quarters, within
/// five standard deviations of 400 draws.
#[test]
fn flowlets_begin_on_sublinks_in_the_ratio_of_their_weights() {
    let mut told = spreading(Spread::Flowlet, 2);
    told.sublinks[NUMBER].weight[1] = 3;
    told.flowlet_gap_ns = 0;
    let mut rig = Rig::of(told);
    let packet = tcp(client(1), server(2), "A", 1, 1).frame();
    let light = (0..400)
        .filter(|_| rig.send(&packet).sublink() == 0)
        .count();
    assert!((57..=143).contains(&light), "{light} of 400, 100 ± 43");
}

#[test]
fn a_flowlet_leaves_an_unusable_sublink_with_its_next_packet() {
    let mut told = spreading(Spread::Flowlet, 4);
    told.flowlet_gap_ns = u64::MAX / 2;
    let mut rig = Rig::of(told);
    let packet = tcp(client(1), server(2), "A", 1, 1).frame();
    let first = rig.send(&packet).sublink();
    told.sublinks[NUMBER].usable &= !(1 << first);
    rig.tell(told);
    let second = rig.send(&packet).sublink();
    assert_ne!(second, first);
    told.sublinks[NUMBER].usable = 0b1111;
    rig.tell(told);
    assert_eq!(rig.send(&packet).sublink(), second);
    assert_eq!(size_of::<Flowlet>(), 16);
}

#[test]
fn moving_a_bin_moves_its_flows_and_no_others() {
    let mut rig = Rig::of(spreading(Spread::Bins, 8));
    let table = *Bins::new(8).unwrap().table();
    rig.trunk().set_table(&table).unwrap();
    let mut draw = Draw(4);
    let flows: Vec<_> = (0..50).map(|_| flow(&mut draw)).collect();
    let moved = bin(hash(flows[0]));
    let to = (table[usize::from(moved)] + 1) % 8;
    let mut after = table;
    after[usize::from(moved)] = to;
    rig.trunk().set_table(&after).unwrap();
    for pair in flows {
        let outcome = rig.send(&tcp(pair.0, pair.1, "A", 1, 1).frame());
        let own = table[usize::from(outcome.bin())];
        let expected = if outcome.bin() == moved { to } else { own };
        assert_eq!(outcome.sublink(), expected);
        assert_eq!(outcome.reason, "spread");
    }
    assert_eq!(rig.trunk().table().unwrap(), after);
}

#[test]
fn bins_of_an_unusable_sublink_go_around_it_and_come_back() {
    let mut told = spreading(Spread::Bins, 4);
    let mut rig = Rig::of(told);
    rig.trunk().set_table(&[2; BINS]).unwrap();
    let packet = tcp(client(1), server(2), "A", 1, 1).frame();
    told.sublinks[NUMBER].usable = 0b1011;
    rig.tell(told);
    let around = rig.send(&packet);
    assert_ne!(around.sublink(), 2);
    assert_eq!(around.reason, "spread-around");
    told.sublinks[NUMBER].usable = 0b1111;
    rig.tell(told);
    let back = rig.send(&packet);
    assert_eq!((back.sublink(), back.reason.as_str()), (2, "spread"));
}

#[test]
fn all_fragments_of_a_datagram_are_in_the_bin_of_their_addresses() {
    let mut rig = Rig::of(spreading(Spread::Bins, 8));
    let (src, dst) = (client(4000), server(53));
    let expected = bin(hash_of_hosts(src.ip(), dst.ip()));
    assert_ne!(expected, bin(hash((src, dst))));
    for whole in with_more_headers(udp(src, dst, &[7; 3000])) {
        for (from, to) in [(0, 1400), (1400, 2800), (2800, 9999)] {
            let piece = whole.fragment(from, to).frame();
            assert_eq!(rig.send(&piece).bin(), expected, "bytes {from} to {to}");
        }
        assert_eq!(rig.send(&whole.frame()).bin(), bin(hash((src, dst))));
    }
}

#[test]
fn every_protocol_goes_by_what_it_has() {
    let mut rig = Rig::of(spreading(Spread::Hash, 8));
    let (src, dst) = (CLIENT, SERVER);
    let (from, to) = (SocketAddr::new(src, 4000), SocketAddr::new(dst, 53));
    let with_ports = bin(hash((from, to)));
    let without = bin(hash_of_hosts(src, dst));
    let with_id = bin(flow_hash(src.into(), dst.into(), 77, 77));
    let as_protocol = |number: u8| {
        let mut ip: Ip = udp(from, to, b"data");
        ip.header.protocol = IpNumber(number);
        ip.frame()
    };
    let unreachable = frame::icmp(src, dst, SITE.port_unreachable, [0; 4], &[0; 28]).frame();
    let mut other_icmp = frame::echo(src, dst, 77, b"x");
    other_icmp.header.protocol = frame::icmp_of(match FAMILY {
        Family::V4 => Family::V6,
        Family::V6 => Family::V4,
    });
    for (what, packet, expected) in [
        ("TCP", tcp(from, to, "S", 1, 0).frame(), with_ports),
        ("UDP", udp(from, to, b"data").frame(), with_ports),
        ("DCCP", as_protocol(33), with_ports),
        ("SCTP", as_protocol(132), with_ports),
        ("UDP-Lite", as_protocol(136), with_ports),
        ("GRE", as_protocol(47), without),
        ("ESP", as_protocol(50), without),
        ("echo", frame::echo(src, dst, 77, b"x").frame(), with_id),
        (
            "echo reply",
            frame::echo_reply(src, dst, 77, b"x").frame(),
            with_id,
        ),
        ("ICMP error", unreachable, without),
        ("ICMP of the other family", other_icmp.frame(), without),
    ] {
        assert_eq!(rig.send(&packet).bin(), expected, "{what}");
    }
    for ip in with_more_headers(udp(from, to, b"data")) {
        assert_eq!(rig.send(&ip.frame()).bin(), with_ports, "{:?}", ip.header);
    }
}

#[test]
fn a_segment_with_syn_opens_a_flow_on_its_sublink_every_time_it_is_sent() {
    let mut rig = Rig::of(spreading(Spread::Packet, 8));
    let segment = |flags| tcp(client(4000), server(80), flags, 1, 1);
    for (flags, opens) in [
        ("S", true),
        ("S", true),
        ("SA", true),
        ("SF", true),
        ("", false),
        ("A", false),
        ("PA", false),
        ("FA", false),
        ("R", false),
        ("RA", false),
    ] {
        let outcome = rig.send(&segment(flags).frame());
        assert_eq!(outcome.opened, opens, "{flags:?}: {outcome:?}");
    }
    // With ECN it asks by two more flags (RFC 3168, section 6.1.1); with Fast Open it has data (RFC 7413).
    let mut ecn = segment("S");
    (ecn.header.ece, ecn.header.cwr) = (true, true);
    let with_data = segment("S").options(&mss_option(1460)).payload(&[7; 500]);
    for frame in [ecn.frame(), with_data.frame()] {
        assert!(rig.send(&frame).opened);
    }
    for ip in with_more_headers(segment("S").ip()) {
        assert!(rig.send(&ip.frame()).opened);
    }
}

/// The byte that has TCP's flags is 2, which is SYN, in all of them.
#[test]
fn what_only_looks_like_a_syn_opens_nothing() {
    let mut rig = Rig::of(spreading(Spread::Hash, 8));
    let (from, to) = (client(4000), server(53));
    let looks_like_syn = [2; 32];
    let as_protocol = |number: u8| {
        let mut ip: Ip = udp(from, to, &looks_like_syn);
        ip.header.protocol = IpNumber(number);
        ip.frame()
    };
    for (what, frame) in [
        ("UDP", udp(from, to, &looks_like_syn).frame()),
        (
            "echo",
            frame::echo(CLIENT, SERVER, 7, &looks_like_syn).frame(),
        ),
        ("DCCP", as_protocol(33)),
        ("GRE", as_protocol(47)),
        ("SCTP", as_protocol(132)),
    ] {
        assert_eq!(frame[L4 + 13], 2, "{what}");
        assert!(!rig.send(&frame).opened, "{what}");
    }
    let mut cut_short = tcp(from, to, "S", 1, 0).ip();
    cut_short.body.truncate(13);
    let outcome = rig.send(&cut_short.frame());
    assert!(!outcome.opened);
    assert_eq!(outcome.bin(), bin(hash((from, to))), "its ports are there");
}

#[test]
fn of_a_fragmented_syn_the_first_fragment_alone_opens_a_flow() {
    let mut rig = Rig::of(spreading(Spread::Hash, 8));
    let (from, to) = (client(4000), server(80));
    let whole = tcp(from, to, "S", 1, 0).payload(&[2; 100]).ip();
    let hosts = bin(hash_of_hosts(CLIENT, SERVER));
    for (piece, opens) in [((0, 40), true), ((40, 80), false), ((80, 999), false)] {
        let outcome = rig.send(&whole.fragment(piece.0, piece.1).frame());
        assert_eq!((outcome.opened, outcome.bin()), (opens, hosts), "{piece:?}");
    }
    // A fragment without the flags (RFC 1858, section 3) is sent, and opens nothing.
    assert!(!rig.send(&whole.fragment(0, 8).frame()).opened);
}

#[test]
fn a_packet_is_sent_as_it_is_however_odd() {
    let mut rig = Rig::of(spreading(Spread::Hash, 8));
    let mut broken = tcp(client(1), server(2), "SF", 1, 1).frame();
    if FAMILY == Family::V4 {
        broken[24] ^= 0xff; // the IP checksum
    }
    broken[L4 + 12] = 0xf0; // a TCP header longer than the packet
    for frame in [broken, tcp(client(1), server(2), "A", 1, 1).frame()] {
        let (outcome, ran) = rig.send_bytes(&frame);
        outcome.sublink();
        assert_eq!(ran.packet, frame);
    }
    // A transport header without room for ports.
    let mut short = udp(client(1), server(2), b"");
    short.body.truncate(2);
    let hosts = hash_of_hosts(CLIENT, SERVER);
    assert_eq!(rig.send(&short.frame()).bin(), bin(hosts));
}

#[test]
fn a_family_goes_by_the_sublinks_that_carry_it() {
    let told = spreading(Spread::Packet, 4);
    for spread in [
        Spread::Hash,
        Spread::Bins,
        Spread::Rendezvous,
        Spread::Flowlet,
        Spread::Packet,
    ] {
        let mut told = told;
        told.spread = spread.into();
        told.sublinks[1 - NUMBER].usable = 0b0111;
        told.sublinks[NUMBER].usable = 0b1000;
        let mut rig = Rig::of(told);
        for port in 1..20 {
            let packet = udp(client(port), server(53), b"x").frame();
            assert_eq!(rig.send(&packet).sublink(), 3, "{spread:?}");
        }
        told.sublinks[NUMBER].usable = 0;
        rig.tell(told);
        let packet = udp(client(1), server(53), b"x").frame();
        rig.send(&packet).left(TC_ACT_SHOT, "no-sublink");
    }
}

#[test]
fn a_sublink_without_next_hop_of_a_family_takes_none_of_its_packets() {
    let mut rig = Rig::of(spreading(Spread::Hash, 1));
    let packet = udp(client(1), server(53), b"x").frame();
    rig.send(&packet).sublink();
    let mut addresses = other_ends(0);
    addresses[FAMILY] = None;
    let path = SublinkPath {
        ifindex: 1,
        next_hop: NextHop::Addresses(addresses),
    };
    let told = rig.trunk().set_sublink(SublinkId(0), Some(path));
    told.unwrap();
    rig.send(&packet).left(TC_ACT_SHOT, "no-next-hop");
}

#[test]
fn what_a_trunk_cannot_carry_leaves_for_a_reason_of_its_own() {
    let mut rig = Rig::new();
    let packet = tcp(client(1), server(2), "A", 1, 1).frame();
    rig.send(&packet).left(TC_ACT_UNSPEC, "not-told");

    let mut told = spreading(Spread::Hash, 2);
    rig.tell(told);
    let mut arp = packet.clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    rig.send(&arp).left(TC_ACT_UNSPEC, "not-ip");
    let mut multicast = packet.clone();
    multicast[0] = 1;
    rig.send(&multicast).left(TC_ACT_UNSPEC, "not-unicast");
    let odd_starts: &[u8] = match FAMILY {
        Family::V4 => &[0x65, 0x44],
        Family::V6 => &[0x45, 0x00],
    };
    for start in odd_starts {
        let mut odd = packet.clone();
        odd[ETHERNET] = *start;
        rig.send(&odd).left(TC_ACT_SHOT, "cut-short");
    }

    for sublink in [0, 1].map(SublinkId) {
        rig.trunk().set_sublink(sublink, None).unwrap();
    }
    rig.send(&packet).left(TC_ACT_SHOT, "no-next-hop");
    told.sublinks[NUMBER].usable = 0;
    rig.tell(told);
    rig.send(&packet).left(TC_ACT_SHOT, "no-sublink");
}

#[test]
fn every_way_to_spread_is_timed() {
    const REPEAT: u32 = 100_000;
    let packet = tcp(client(1), server(2), "A", 1, 1);
    let packet = packet.payload(&[7; 1448]).frame();
    for spread in [
        Spread::Hash,
        Spread::Bins,
        Spread::Rendezvous,
        Spread::Flowlet,
        Spread::Packet,
    ] {
        let mut told = spreading(spread, 8);
        told.flowlet_gap_ns = 1_000_000;
        let mut rig = Rig::of(told);
        let ran = rig.trunk().run(&packet, REPEAT).unwrap();
        assert_eq!(ran.action, TC_ACT_REDIRECT);
        println!("{spread:?}: {} ns per packet", ran.took.as_nanos());
        assert!(!ran.took.is_zero());
    }
}
