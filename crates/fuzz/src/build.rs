//! Well-formed packets as bytes.

use std::net::IpAddr;

use anabranch_frames::{Ip, IpNumber};

use crate::read::{self, ETHERNET, FRAGMENT, ICMP, ICMP6, IPV6, MORE_FRAGMENTS, ether_type};
use crate::script::Shot;
use crate::site::{FAMILIES, Port};
use crate::sum;

/// Flag of RFC 9293 section 3.1.
pub const SYN: u8 = 2;
/// Flag of RFC 9293 section 3.1.
pub const RST: u8 = 4;
/// Flag of RFC 9293 section 3.1.
pub const FIN: u8 = 1;
/// Flag of RFC 9293 section 3.1.
pub const ACK: u8 = 16;

/// An address and a port.
pub type End = (IpAddr, u16);

/// A packet with right checksums, of the family of its ends. `id`: its label, if it is IPv6.
///
/// # Panics
/// If its ends are of two families.
pub fn packet(proto: u8, src: IpAddr, dst: IpAddr, id: u16, body: &[u8]) -> Vec<u8> {
    let mut packet = bytes(Ip::new(IpNumber(proto), src, dst, body.to_vec()), id);
    sum::mend_transport(&mut packet);
    packet
}

fn bytes(mut packet: Ip, id: u16) -> Vec<u8> {
    packet.header.flow_label = id.into();
    packet.id(id).packet()
}

/// What a TCP segment says besides its ends.
pub struct Says<'a> {
    /// The bits above, or others.
    pub flags: u8,
    /// Of the first byte, or of the SYN.
    pub seq: u32,
    /// Written with or without the flag.
    pub ack: u32,
    /// A multiple of four bytes.
    pub options: &'a [u8],
    /// Behind the header.
    pub payload: &'a [u8],
}

/// A packet with a TCP segment, checksums right.
pub fn tcp(src: End, dst: End, id: u16, says: &Says) -> Vec<u8> {
    let segment = anabranch_frames::tcp(src, dst, says.flags, says.seq, says.ack);
    let segment = segment.options(says.options).payload(says.payload);
    bytes(segment.ip(), id)
}

/// A packet with a UDP datagram, checksums right.
pub fn udp(src: End, dst: End, id: u16, payload: &[u8]) -> Vec<u8> {
    bytes(anabranch_frames::udp(src, dst, payload), id)
}

/// ICMP with this type, code and second word.
pub fn icmp(src: IpAddr, dst: IpAddr, head: (u8, u8, u32), payload: &[u8]) -> Vec<u8> {
    let (kind, code, rest) = head;
    let message = anabranch_frames::icmp(src, dst, (kind, code), rest.to_be_bytes(), payload);
    bytes(message, rest as u16)
}

/// The protocol that is ICMP of an address's family.
pub fn icmp_of(address: IpAddr) -> u8 {
    if address.is_ipv6() { ICMP6 } else { ICMP }
}

/// The same with options behind the header, a multiple of four bytes; of IPv4 alone.
pub fn with_options(whole: &[u8], options: &[u8]) -> Vec<u8> {
    let mut packet = whole.to_vec();
    let Some(ip) = read::Ip::of(whole).filter(|ip| !ip.is_ipv6()) else {
        return packet;
    };
    let header = ip.header() + options.len();
    if header > 60 {
        return packet;
    }
    let length = (ip.length() + options.len()) as u16;
    packet.splice(ip.header()..ip.header(), options.iter().copied());
    packet[0] = 0x40 | (header / 4) as u8;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    sum::mend_header(&mut packet);
    packet
}

/// The same with an extension header of this kind, a multiple of eight bytes, before all others; of IPv6 alone. Its first byte
/// becomes what follows.
pub fn with_extension(whole: &[u8], kind: u8, extension: &[u8]) -> Vec<u8> {
    let mut packet = whole.to_vec();
    let is_ipv6 = packet.len() >= IPV6 && packet[0] >> 4 == 6;
    let length = packet.len() - IPV6.min(packet.len()) + extension.len();
    let (true, Ok(length)) = (is_ipv6, u16::try_from(length)) else {
        return packet;
    };
    packet.splice(IPV6..IPV6, extension.iter().copied());
    packet[IPV6] = std::mem::replace(&mut packet[6], kind);
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet
}

/// Lets a packet be fragmented, which IPv6 never may on its way.
pub fn may_fragment(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        packet[6] &= !0x40;
        sum::mend_header(&mut packet);
    }
    packet
}

/// Behind what every fragment has.
pub fn fragmentable(whole: &[u8]) -> usize {
    match read::Ip::of(whole) {
        Some(ip) if ip.is_ipv6() => ip.length() - IPV6,
        Some(ip) => ip.body().len(),
        None => 0,
    }
}

/// Bytes `from..to` of what is [`fragmentable`] as a fragment; `from` a multiple of 8. Of IPv6 the label is the id.
pub fn fragment(whole: &[u8], from: usize, to: usize) -> Option<Vec<u8>> {
    let ip = read::Ip::of(whole)?;
    let header = ip.length() - fragmentable(whole);
    let body = &ip.bytes[header..];
    let piece = body.get(from..to.min(body.len()))?;
    let more = to < body.len();
    if ip.is_ipv6() {
        let [high, low] = ((from as u16) | u16::from(more)).to_be_bytes();
        let extension = [0, 0, high, low, 0, 0, whole[2], whole[3]];
        let piece = [&whole[..header], piece].concat();
        return Some(with_extension(&piece, FRAGMENT, &extension));
    }
    let more = if more { MORE_FRAGMENTS } else { 0 };
    let mut packet = [&whole[..header], piece].concat();
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[6..8].copy_from_slice(&((from / 8) as u16 | more).to_be_bytes());
    sum::mend_header(&mut packet);
    Some(packet)
}

/// Whom frames are for.
pub const GATEWAY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Of the LAN host with this address, or of the router it is behind.
pub fn mac_of(host: IpAddr) -> [u8; 6] {
    let mut hosts = FAMILIES
        .into_iter()
        .flat_map(|family| (16u8..).zip(&family.hosts));
    let known = hosts.find(|&(_, &(address, _))| address == host);
    [2, 0, 0, 0, 0, known.map_or(0xff, |(last, _)| last)]
}

/// As `ip` takes it.
pub fn words(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The packet as it arrives at `port`.
pub fn arriving(port: Port, packet: Vec<u8>) -> Shot {
    let sender = match port {
        Port::Lan(_) => read::Ip::of(&packet).map_or([2, 0, 0, 0, 0, 0xfe], |ip| mac_of(ip.src())),
        Port::Link(link) => [2, 0, 0, 0, 1, link as u8],
    };
    let mut frame = Vec::with_capacity(ETHERNET + packet.len());
    if port.header() > 0 {
        frame.extend(GATEWAY_MAC);
        frame.extend(sender);
        frame.extend(ether_type(
            packet.first().is_some_and(|first| first >> 4 == 6),
        ));
    }
    frame.extend(packet);
    Shot {
        port,
        frame,
        mark: 0,
    }
}
