//! Packets and frames written by hand.

use anabranch_testbed::netns::Namespace;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

use super::*;

pub const UDP: u8 = 17;
pub const TCP: u8 = 6;
/// Payload of a fragment.
pub const PIECE: usize = 1024;

/// Where a fragment stands in its datagram.
struct Place {
    id: u16,
    at: usize,
    is_last: bool,
}

pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().into(),
        IpAddr::V6(address) => address.octets().into(),
    }
}

/// The sum of RFC 1071.
fn sum_of(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// A packet from one address to another, whole if it has no place.
fn piece(ends: [IpAddr; 2], protocol: u8, place: Option<&Place>, body: &[u8]) -> Vec<u8> {
    let ends = ends.map(octets).concat();
    let more = |place: &Place| u16::from(!place.is_last);
    let mut packet = Vec::new();
    let mut words = |words: &[u16]| packet.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    match FAMILY {
        Family::V4 => {
            let (id, fragment) = place.map_or((0, 0), |place| {
                (place.id, more(place) << 13 | (place.at / 8) as u16)
            });
            let length = (20 + body.len()) as u16;
            words(&[
                0x4500,
                length,
                id,
                fragment,
                64 << 8 | u16::from(protocol),
                0,
            ]);
            packet.extend(ends);
            let sum = !sum_of(&packet);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Family::V6 => {
            const FRAGMENT: u8 = 44;
            let header = 8 * u16::from(place.is_some());
            let next = place.map_or(protocol, |_| FRAGMENT);
            let length = header + body.len() as u16;
            words(&[0x6000, 0, length, u16::from(next) << 8 | 64]);
            packet.extend(ends);
            if let Some(place) = place {
                let fragment = [
                    u16::from(protocol) << 8,
                    place.at as u16 | more(place),
                    0,
                    place.id,
                ];
                packet.extend(fragment.iter().flat_map(|word| word.to_be_bytes()));
            }
        }
    }
    packet.extend(body);
    packet
}

/// A whole packet.
pub fn packet(from: IpAddr, to: IpAddr, protocol: u8, body: &[u8]) -> Vec<u8> {
    piece([from, to], protocol, None, body)
}

/// A UDP datagram, in fragments if it is longer than one of them.
pub fn pieces(from: SocketAddr, to: SocketAddr, id: u16, payload: &[u8]) -> Vec<Vec<u8>> {
    let ends = [from.ip(), to.ip()];
    let length = (payload.len() + 8) as u16;
    let header = [from.port(), to.port(), length, 0];
    let mut datagram = header.map(u16::to_be_bytes).concat();
    datagram.extend(payload);
    let mut pseudo = ends.map(octets).concat();
    pseudo.extend([length, UDP.into()].map(u16::to_be_bytes).concat());
    let sum = !sum_of(&[pseudo, datagram.clone()].concat());
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    if datagram.len() <= PIECE {
        return vec![packet(ends[0], ends[1], UDP, &datagram)];
    }
    let count = datagram.len().div_ceil(PIECE);
    let bodies = datagram.chunks(PIECE).enumerate();
    let pieces = bodies.map(|(index, body)| {
        let place = Place {
            id,
            at: index * PIECE,
            is_last: index + 1 == count,
        };
        piece(ends, UDP, Some(&place), body)
    });
    pieces.collect()
}

/// Which sends packets as they are written.
pub fn packet_socket(namespace: &Namespace) -> Socket {
    let raw = Protocol::from(libc::IPPROTO_RAW);
    let open = || Socket::new(domain(), Type::RAW, Some(raw)).unwrap();
    namespace.run(open).unwrap()
}

pub fn send(socket: &Socket, packets: &[Vec<u8>], to: IpAddr) {
    let to = SocketAddr::new(to, 0).into();
    for packet in packets {
        socket.send_to(packet, &to).unwrap();
    }
}

/// A packet in an Ethernet frame, behind what else stands there, such as a tag.
pub fn frame(mac: [u8; 6], before: &[u8], packet: &[u8]) -> Vec<u8> {
    let mut frame = Vec::from(mac);
    frame.extend([2, 0, 0, 0, 0, 9]);
    frame.extend(before);
    frame.extend(ethertype().to_be_bytes());
    frame.extend(packet);
    frame
}

fn ethertype() -> u16 {
    let ethertype = match FAMILY {
        Family::V4 => libc::ETH_P_IP,
        Family::V6 => libc::ETH_P_IPV6,
    };
    ethertype as u16
}

/// A socket that sends frames out of `device`.
pub fn frame_socket(device: &str) -> Socket {
    let socket = Socket::new(Domain::PACKET, Type::RAW, None).unwrap();
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: sockaddr_ll fits the storage, and all its bits may be zero.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ethertype().to_be();
    address.sll_ifindex = nix::net::if_::if_nametoindex(device).unwrap() as i32;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the storage holds a sockaddr_ll of this length.
    socket
        .bind(&unsafe { SockAddr::new(storage, length) })
        .unwrap();
    socket
}

pub fn mac_of(namespace: &Namespace, device: &str) -> [u8; 6] {
    let text = namespace
        .exec("ip", &["-o", "link", "show", device])
        .unwrap();
    let mut words = text
        .split_whitespace()
        .skip_while(|word| *word != "link/ether");
    let mac = words.nth(1).unwrap_or_else(|| panic!("{text}"));
    let bytes: Vec<u8> = mac
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    bytes.try_into().unwrap()
}
