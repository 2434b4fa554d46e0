//! What is done to a packet, and which checksums are mended afterwards.

use std::net::IpAddr;

use anabranch_policy::abi;
use rand::{RngExt, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use crate::build;
use crate::read::{DESTINATION, FRAGMENT, HOPS, ICMP, ICMP6, IPV6, Ip, ROUTING, TCP, word};
use crate::script::Shot;
use crate::site::{self, Addresses};
use crate::sum;

/// Values at which code decides.
const EDGES: [u8; 12] = [0, 1, 2, 4, 5, 6, 17, 0x45, 0x7f, 0x80, 0xfe, 0xff];

fn edge(rng: &mut ChaCha8Rng) -> u8 {
    match rng.random_bool(0.5) {
        true => *EDGES.choose(rng).unwrap_or(&0),
        false => rng.random(),
    }
}

/// Somebody's of a family.
pub fn address(rng: &mut ChaCha8Rng, site: &Addresses) -> IpAddr {
    let hosts = site.hosts.map(|(address, _)| address);
    let pools: [&[IpAddr]; 6] = [
        &hosts,
        &site.servers,
        &site.external,
        &site.gateway,
        &site.isp,
        &site.strangers,
    ];
    let pool = pools.choose(rng).unwrap_or(&pools[0]);
    *pool.choose(rng).unwrap_or(&site.servers[0])
}

/// Writes an address where there is room for it.
pub fn write_address(packet: &mut [u8], at: usize, address: IpAddr) {
    match address {
        IpAddr::V4(address) => write(packet, at, &address.octets()),
        IpAddr::V6(address) => write(packet, at, &address.octets()),
    }
}

/// Changes one to three things of a packet.
pub fn packet(rng: &mut ChaCha8Rng, packet: &mut Vec<u8>) {
    let is_ipv6 = packet[0] >> 4 == 6;
    for _ in 0..rng.random_range(1..4) {
        match rng.random_range(0..10) {
            0..4 if is_ipv6 => header6(rng, packet),
            0..4 => header(rng, packet),
            4..8 => transport(rng, packet),
            8 => length(rng, packet),
            _ => anything(rng, packet),
        }
        if packet.len() < 20 {
            break;
        }
    }
    if packet.len() < 20 {
        return;
    }
    if rng.random_bool(0.7) {
        mend_quote(rng, packet);
        sum::mend_transport(packet);
    }
    if rng.random_bool(0.9) {
        sum::mend_header(packet);
    }
}

fn write(packet: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = packet.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn header(rng: &mut ChaCha8Rng, packet: &mut Vec<u8>) {
    match rng.random_range(0..12) {
        0 => packet[0] = 0x40 | rng.random_range(0..16),
        1 => packet[0] = edge(rng),
        2 => packet[1] = rng.random(),
        3 => {
            let length = word(packet, 2).wrapping_add_signed(rng.random_range(-24..24));
            write(packet, 2, &length.to_be_bytes());
        }
        4 => {
            let id = [rng.random_range(0..4), 0];
            write(packet, 4, &id);
        }
        5 => {
            let flags = *[0x00, 0x20, 0x40, 0x60, 0x80].choose(rng).unwrap_or(&0);
            packet[6] = flags | (packet[6] & 0x1f);
        }
        6 => {
            let offset = [rng.random_range(0..64), edge(rng)];
            write(packet, 6, &offset);
        }
        7 => packet[8] = *[0, 1, 2, 255].choose(rng).unwrap_or(&1),
        8 => {
            packet[9] = *[1, 6, 17, 2, 4, 41, 47, 50, 58, 132, 255]
                .choose(rng)
                .unwrap_or(&0)
        }
        9 => {
            let source = address(rng, &site::IPV4);
            write_address(packet, 12, source);
        }
        10 => {
            let target = address(rng, &site::IPV4);
            write_address(packet, 16, target);
        }
        _ => *packet = build::with_options(packet, &options(rng)),
    }
}

/// The same of IPv6, whose extensions are what options were.
fn header6(rng: &mut ChaCha8Rng, packet: &mut Vec<u8>) {
    match rng.random_range(0..12) {
        0 => packet[0] = edge(rng),
        1 => {
            let label = [0x60 | rng.random_range(0..16), rng.random(), rng.random()];
            write(packet, 0, &label);
        }
        2 if packet.len() >= IPV6 => {
            let length = word(packet, 4).wrapping_add_signed(rng.random_range(-24..24));
            write(packet, 4, &length.to_be_bytes());
        }
        3 => {
            let next = [0, 1, 6, 17, 41, 43, 44, 50, 51, 58, 59, 60, 132, 135, 255];
            write(packet, 6, &[*next.choose(rng).unwrap_or(&0)]);
        }
        4 => write(packet, 7, &[*[0, 1, 2, 255].choose(rng).unwrap_or(&1)]),
        5 => {
            let source = address(rng, &site::IPV6);
            write_address(packet, 8, source);
        }
        6 => {
            let target = address(rng, &site::IPV6);
            write_address(packet, 24, target);
        }
        // A host has more addresses than one.
        7 => {
            let last = rng.random::<u64>().to_be_bytes();
            write(packet, 16, &last);
        }
        _ => {
            for _ in 0..*[1, 1, 1, 2, 3, 8].choose(rng).unwrap_or(&1) {
                let (kind, bytes) = extension(rng);
                *packet = build::with_extension(packet, kind, &bytes);
            }
        }
    }
}

/// An extension header: harmless ones, those that steer or cut, jumbo's option, and nonsense.
fn extension(rng: &mut ChaCha8Rng) -> (u8, Vec<u8>) {
    let offset = [edge(rng), edge(rng)];
    let mut long = vec![0, 20, 1, 162];
    long.resize(168, 0);
    let known: [(u8, &[u8]); 11] = [
        (HOPS, &[0, 0, 1, 4, 0, 0, 0, 0]),
        (HOPS, &[0, 0, 5, 2, 0, 0, 1, 0]),
        // A jumbogram (RFC 2675), and what is none.
        (HOPS, &[0, 0, 0xc2, 4, 0, 1, 0, 0]),
        (DESTINATION, &[0, 0, 1, 4, 0, 0, 0, 0]),
        (DESTINATION, &[0, 9, 1, 4, 0, 0, 0, 0]),
        (DESTINATION, &long),
        (ROUTING, &[0, 0, 0, 0, 0, 0, 0, 0]),
        (ROUTING, &[0, 0, 4, 0, 0, 0, 0, 0]),
        // A fragment that is the whole datagram (RFC 6946), and others.
        (FRAGMENT, &[0, 0, 0, 0, 0, 0, 0, 7]),
        (FRAGMENT, &[0, 0, 0, 1, 0, 0, 0, 7]),
        (FRAGMENT, &[0, 0, offset[0], offset[1], 0, 0, 0, 7]),
    ];
    if rng.random_bool(0.9) {
        let (kind, bytes) = known.choose(rng).unwrap_or(&known[0]);
        return (*kind, bytes.to_vec());
    }
    let kind = *[HOPS, ROUTING, FRAGMENT, DESTINATION, 51, 135, 139, 253]
        .choose(rng)
        .unwrap_or(&HOPS);
    let length = rng.random_range(1..5) * 8;
    (kind, (0..length).map(|_| edge(rng)).collect())
}

/// IP options: harmless ones, those that record or steer, and nonsense.
fn options(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let [a, b, c, d] = [198, 51, 100, 10];
    let known: [&[u8]; 6] = [
        &[1, 1, 1, 0],
        &[148, 4, 0, 0],
        &[7, 7, 4, 0, 0, 0, 0, 0],
        &[131, 7, 4, a, b, c, d, 0],
        &[137, 7, 4, a, b, c, d, 0],
        &[68, 8, 5, 0, 0, 0, 0, 0],
    ];
    match rng.random_bool(0.8) {
        true => known
            .choose(rng)
            .map_or(Vec::new(), |option| option.to_vec()),
        false => (0..rng.random_range(1..11) * 4)
            .map(|_| edge(rng))
            .collect(),
    }
}

fn transport(rng: &mut ChaCha8Rng, packet: &mut [u8]) {
    let Some(ip) = Ip::of(packet) else { return };
    let (proto, at, room) = (ip.proto(), ip.header(), ip.body().len());
    if room < 8 {
        return;
    }
    if rng.random_bool(0.15) {
        let place = at + rng.random_range(0..room.min(40));
        packet[place] = edge(rng);
        return;
    }
    match proto {
        TCP => segment(rng, packet, at),
        ICMP | ICMP6 => message(rng, packet, at),
        _ => datagram(rng, packet, at),
    }
}

fn segment(rng: &mut ChaCha8Rng, packet: &mut [u8], at: usize) {
    let near = |rng: &mut ChaCha8Rng, packet: &mut [u8], place: usize| {
        if packet.len() < place + 4 {
            return;
        }
        let was = u32::from(word(packet, place)) << 16 | u32::from(word(packet, place + 2));
        let steps = [1, 1000, 1 << 20, (1 << 20) + 1, 1 << 31];
        let step: u32 = *steps.choose(rng).unwrap_or(&1);
        let is = if rng.random() {
            was.wrapping_add(step)
        } else {
            was.wrapping_sub(step)
        };
        write(packet, place, &is.to_be_bytes());
    };
    match rng.random_range(0..8) {
        0 => near(rng, packet, at + 4),
        1 => near(rng, packet, at + 8),
        2 => {
            let size = rng.random_range(0..16) << 4;
            write(packet, at + 12, &[size]);
        }
        3..6 => {
            let common = [1, 2, 4, 5, 16, 17, 18, 20, 41, 0, 255];
            let flags = *common.choose(rng).unwrap_or(&0);
            write(packet, at + 13, &[flags]);
        }
        6 => {
            let place = at + 20 + rng.random_range(0..20);
            let value = edge(rng);
            write(packet, place, &[value]);
        }
        _ => ports(rng, packet, at),
    }
}

fn ports(rng: &mut ChaCha8Rng, packet: &mut [u8], at: usize) {
    let common = [
        0, 1, 53, 80, 443, 1023, 1024, 32_768, 60_999, 61_000, 65_535,
    ];
    let port = match rng.random_bool(0.5) {
        true => *common.choose(rng).unwrap_or(&0),
        false => rng.random::<u16>(),
    };
    let place = at + 2 * rng.random_range(0..2);
    write(packet, place, &port.to_be_bytes());
}

fn datagram(rng: &mut ChaCha8Rng, packet: &mut [u8], at: usize) {
    match rng.random_range(0..4) {
        0 => ports(rng, packet, at),
        1 => {
            let length = word(packet, at + 4).wrapping_add_signed(rng.random_range(-12..12));
            write(packet, at + 4, &length.to_be_bytes());
        }
        2 => {
            let length = [0, edge(rng)];
            write(packet, at + 4, &length);
        }
        _ => write(packet, at + 6, &[0, 0]),
    }
}

fn message(rng: &mut ChaCha8Rng, packet: &mut [u8], at: usize) {
    match rng.random_range(0..8) {
        0 => {
            let kinds = [0, 3, 4, 5, 8, 11, 12, 13, 255];
            let kinds6 = [1, 2, 3, 4, 128, 129, 134, 137, 255];
            let kinds = if packet[0] >> 4 == 6 { kinds6 } else { kinds };
            write(packet, at, &[*kinds.choose(rng).unwrap_or(&0)]);
        }
        1 => {
            let code = rng.random_range(0..16);
            write(packet, at + 1, &[code]);
        }
        2 => {
            let rest = [edge(rng), edge(rng), edge(rng), edge(rng)];
            write(packet, at + 4, &rest);
        }
        _ if packet[0] >> 4 == 6 => quote6(rng, packet, at + 8),
        _ => quote(rng, packet, at + 8),
    }
}

/// Of the packet that an ICMPv6 error quotes.
fn quote6(rng: &mut ChaCha8Rng, packet: &mut [u8], at: usize) {
    match rng.random_range(0..7) {
        0 => write(packet, at, &[edge(rng)]),
        1 => {
            let length = rng.random::<u16>().to_be_bytes();
            write(packet, at + 4, &length);
        }
        2 => {
            let next = *[0, 1, 6, 17, 43, 44, 58, 60].choose(rng).unwrap_or(&0);
            write(packet, at + 6, &[next]);
        }
        3 => {
            let source = address(rng, &site::IPV6);
            write_address(packet, at + 8, source);
        }
        4 => {
            let target = address(rng, &site::IPV6);
            write_address(packet, at + 24, target);
        }
        _ => {
            let place = at + rng.random_range(0..64);
            let value = edge(rng);
            write(packet, place, &[value]);
        }
    }
}

/// Of the packet that an ICMP error quotes.
fn quote(rng: &mut ChaCha8Rng, packet: &mut [u8], at: usize) {
    match rng.random_range(0..9) {
        0 => {
            let first = 0x40 | rng.random_range(0..16);
            write(packet, at, &[first]);
        }
        1 => {
            let length = rng.random::<u16>().to_be_bytes();
            write(packet, at + 2, &length);
        }
        2 => {
            let fragment = [rng.random_range(0..64), rng.random()];
            write(packet, at + 6, &fragment);
        }
        3 => {
            let proto = *[1, 6, 17, 47].choose(rng).unwrap_or(&1);
            write(packet, at + 9, &[proto]);
        }
        4 => {
            let source = address(rng, &site::IPV4);
            write_address(packet, at + 12, source);
        }
        5 => {
            let target = address(rng, &site::IPV4);
            write_address(packet, at + 16, target);
        }
        6 => {
            let sums = [edge(rng), edge(rng)];
            write(packet, at + 26, &sums);
        }
        _ => {
            let place = at + rng.random_range(0..40);
            let value = edge(rng);
            write(packet, place, &[value]);
        }
    }
}

/// Cut, padded, or longer than it says.
fn length(rng: &mut ChaCha8Rng, packet: &mut Vec<u8>) {
    let length = packet.len();
    match rng.random_range(0..4) {
        0 => packet.truncate(rng.random_range(1..=length)),
        1 => packet.resize(length + rng.random_range(1..64), 0),
        2 => packet.resize(length + rng.random_range(1..64), 0xa5),
        _ => {
            // The header agrees.
            let is_ipv6 = packet[0] >> 4 == 6;
            let header = if is_ipv6 { IPV6 } else { 20 };
            let length = rng.random_range(header..=length.max(header));
            packet.resize(length, 0);
            match is_ipv6 {
                true => write(packet, 4, &((length - IPV6) as u16).to_be_bytes()),
                false => write(packet, 2, &(length as u16).to_be_bytes()),
            }
        }
    }
}

fn anything(rng: &mut ChaCha8Rng, packet: &mut [u8]) {
    let place = rng.random_range(0..packet.len());
    packet[place] ^= 1 << rng.random_range(0..8);
}

/// Rights the sum of a quoted header.
fn mend_quote(rng: &mut ChaCha8Rng, packet: &mut [u8]) {
    let Some(ip) = Ip::of(packet) else { return };
    let at = ip.header() + 8;
    if ip.is_icmp_error() && ip.quote().is_some() && rng.random_bool(0.5) {
        sum::mend_header(&mut packet[at..]);
    }
}

/// A tag of 802.1Q, or of a provider (802.1ad): a mere priority, or a VLAN.
fn tag(rng: &mut ChaCha8Rng) -> [u8; 4] {
    let kinds = [[0x81, 0], [0x81, 0], [0x88, 0xa8]];
    let [high, low] = *kinds.choose(rng).unwrap_or(&kinds[0]);
    let vlan = *[0, 0, 1, 5, 0xff].choose(rng).unwrap_or(&0);
    [high, low, rng.random_range(0..8) << 5, vlan]
}

/// What another program may mark a packet with, as if the gateway's programs had, too.
pub fn mark(rng: &mut ChaCha8Rng) -> u32 {
    let likes = [
        1,
        0xff,
        abi::CONNECTION_MARK | 1,
        abi::TAIL_MARK | 8,
        abi::UNTRACKED_MARK,
        abi::FALLBACK_MARK,
        abi::HAIRPIN_MARK,
        abi::STRAY_MARK,
        abi::RACE_COPY_MARK | 1,
        abi::LOSING_COPY_MARK,
        abi::INBOUND_MARK,
        u32::MAX,
    ];
    match rng.random_bool(0.5) {
        true => *likes.choose(rng).unwrap_or(&1),
        false => rng.random(),
    }
}

/// Changes what is before the IP header.
pub fn frame(rng: &mut ChaCha8Rng, shot: &mut Shot) {
    if shot.port.header() == 0 {
        return;
    }
    let frame = &mut shot.frame;
    match rng.random_range(0..7) {
        0 | 1 => {
            for _ in 0..*[1, 2, 2, 3].choose(rng).unwrap_or(&1) {
                frame.splice(12..12, tag(rng));
            }
        }
        2 => {
            let kinds = [[0x86, 0xdd], [8, 0], [8, 6], [0, 46], [0x88, 0x64]];
            let kind = *kinds.choose(rng).unwrap_or(&kinds[0]);
            frame[12..14].copy_from_slice(&kind);
        }
        3 => frame[..6].fill(0xff),
        // For another host of the segment, or a group of them.
        4 => frame[..6].copy_from_slice(&[2 | rng.random_range(0..2), 0, 0, 0, 2, rng.random()]),
        5 => frame[11] = rng.random(),
        _ => frame.resize(frame.len() + rng.random_range(1..40), 0),
    }
}
