//! Well-formed packets as bytes.

use std::net::Ipv4Addr;

use crate::read::{DONT_FRAGMENT, ETHERNET, ICMP, Ip, MORE_FRAGMENTS, TCP, UDP};
use crate::script::Shot;
use crate::site::{HOSTS, Port};
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
pub type End = (Ipv4Addr, u16);

/// An IPv4 packet with right checksums.
pub fn packet(proto: u8, src: Ipv4Addr, dst: Ipv4Addr, id: u16, body: &[u8]) -> Vec<u8> {
    let length = (20 + body.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend(id.to_be_bytes());
    packet.extend(DONT_FRAGMENT.to_be_bytes());
    packet.extend([64, proto, 0, 0]);
    packet.extend(src.octets());
    packet.extend(dst.octets());
    packet.extend(body);
    sum::mend_header(&mut packet);
    sum::mend_transport(&mut packet);
    packet
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

/// An IPv4 packet with a TCP segment, checksums right.
pub fn tcp(src: End, dst: End, id: u16, says: &Says) -> Vec<u8> {
    let mut body = Vec::with_capacity(20 + says.options.len() + says.payload.len());
    body.extend(src.1.to_be_bytes());
    body.extend(dst.1.to_be_bytes());
    body.extend(says.seq.to_be_bytes());
    body.extend(says.ack.to_be_bytes());
    body.extend([(((20 + says.options.len()) / 4) << 4) as u8, says.flags]);
    body.extend([0xff, 0xff, 0, 0, 0, 0]);
    body.extend(says.options);
    body.extend(says.payload);
    packet(TCP, src.0, dst.0, id, &body)
}

/// An IPv4 packet with a UDP datagram, checksums right.
pub fn udp(src: End, dst: End, id: u16, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(8 + payload.len());
    body.extend(src.1.to_be_bytes());
    body.extend(dst.1.to_be_bytes());
    body.extend(((8 + payload.len()) as u16).to_be_bytes());
    body.extend([0, 0]);
    body.extend(payload);
    packet(UDP, src.0, dst.0, id, &body)
}

/// ICMP with this type, code and second word.
pub fn icmp(src: Ipv4Addr, dst: Ipv4Addr, head: (u8, u8, u32), payload: &[u8]) -> Vec<u8> {
    let (kind, code, rest) = head;
    let mut body = vec![kind, code, 0, 0];
    body.extend(rest.to_be_bytes());
    body.extend(payload);
    packet(ICMP, src, dst, rest as u16, &body)
}

/// The same with options behind the header, a multiple of four bytes.
pub fn with_options(whole: &[u8], options: &[u8]) -> Vec<u8> {
    let mut packet = whole.to_vec();
    let Some(ip) = Ip::of(whole) else {
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

/// Lets a packet be fragmented.
pub fn may_fragment(mut packet: Vec<u8>) -> Vec<u8> {
    packet[6] &= !0x40;
    sum::mend_header(&mut packet);
    packet
}

/// Bytes `from..to` of the packet's body as a fragment; `from` a multiple of 8.
pub fn fragment(whole: &[u8], from: usize, to: usize) -> Option<Vec<u8>> {
    let ip = Ip::of(whole)?;
    let piece = ip.body().get(from..to.min(ip.body().len()))?;
    let more = if to < ip.body().len() {
        MORE_FRAGMENTS
    } else {
        0
    };
    let mut packet = [&whole[..ip.header()], piece].concat();
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[6..8].copy_from_slice(&((from / 8) as u16 | more).to_be_bytes());
    sum::mend_header(&mut packet);
    Some(packet)
}

/// Whom frames are for.
pub const GATEWAY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Of the LAN host with this address, or of the router it is behind.
pub fn mac_of(host: Ipv4Addr) -> [u8; 6] {
    let known = HOSTS.iter().position(|&(address, _)| address == host);
    [2, 0, 0, 0, 0, known.map_or(0xff, |index| 16 + index as u8)]
}

/// The packet as it arrives at `port`.
pub fn arriving(port: Port, packet: Vec<u8>) -> Shot {
    let sender = match port {
        Port::Lan(_) => Ip::of(&packet).map_or([2, 0, 0, 0, 0, 0xfe], |ip| mac_of(ip.src())),
        Port::Link(link) => [2, 0, 0, 0, 1, link as u8],
    };
    let mut frame = Vec::with_capacity(ETHERNET + packet.len());
    if port.header() > 0 {
        frame.extend(GATEWAY_MAC);
        frame.extend(sender);
        frame.extend([8, 0]);
    }
    frame.extend(packet);
    Shot { port, frame }
}
