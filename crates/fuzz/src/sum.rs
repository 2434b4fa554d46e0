//! The checksum of the internet protocols from scratch (RFC 1071): nothing here is shared with the programs in C.

pub use anabranch_frames::sum;

use crate::read::{ICMP, ICMP6, Ip, TCP, UDP};

/// Where the checksum stands in a transport header.
pub fn field(proto: u8) -> Option<usize> {
    match proto {
        TCP => Some(16),
        UDP => Some(6),
        ICMP | ICMP6 => Some(2),
        _ => None,
    }
}

/// The same of a packet that has one.
pub fn field_of(ip: &Ip) -> Option<usize> {
    let is_of_family = ip.is_icmp() || ![ICMP, ICMP6].contains(&ip.proto());
    field(ip.proto()).filter(|_| is_of_family && !ip.is_later_fragment())
}

/// What the transport of `ip` sums to with its pseudo header, its own checksum included: 0xffff if it is right. None
/// where there is no checksum: later fragments, other protocols, UDP whose sender made none.
pub fn transport(ip: &Ip) -> Option<u16> {
    let at = field_of(ip)?;
    let written = ip.body().get(at..at + 2)?;
    let has_none = ip.proto() == UDP && written == [0, 0];
    (!has_none).then(|| with_pseudo_header(ip))
}

fn with_pseudo_header(ip: &Ip) -> u16 {
    if ip.proto() == ICMP {
        return sum(ip.body());
    }
    let (at, size) = ip.addresses();
    let length = (ip.body().len() as u32).to_be_bytes();
    let pseudo = [&ip.bytes[at..at + 2 * size], &length, &[0, ip.proto()]].concat();
    sum(&[&pseudo, ip.body()].concat())
}

/// Zero has two forms in one's complement.
pub fn is_same(one: u16, other: u16) -> bool {
    one % 0xffff == other % 0xffff
}

/// Whether a sum is as right, or as wrong, as it was; and is there if it was.
pub fn follows(before: Option<u16>, after: Option<u16>) -> bool {
    match (before, after) {
        (None, None) => true,
        (Some(before), Some(after)) => is_same(before, after),
        _ => false,
    }
}

/// Writes the checksum of the header; IPv6 has none.
pub fn mend_header(packet: &mut [u8]) {
    if packet.first().is_none_or(|first| first >> 4 == 6) {
        return;
    }
    let header = usize::from(packet[0] & 15) * 4;
    if header < 20 || header > packet.len() {
        return;
    }
    packet[10..12].fill(0);
    let check = !sum(&packet[..header]);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
}

/// Writes the transport checksum of a packet that is not cut short.
pub fn mend_transport(packet: &mut [u8]) {
    let Some(ip) = Ip::of(packet) else { return };
    let (proto, header) = (ip.proto(), ip.header());
    let Some(at) = field_of(&ip) else {
        return;
    };
    if ip.body().len() < at + 2 {
        return;
    }
    let check = header + at..header + at + 2;
    packet[check.clone()].fill(0);
    let sum = Ip::of(packet).map_or(0, |ip| with_pseudo_header(&ip));
    let written = match !sum {
        0 if proto == UDP => 0xffff,
        other => other,
    };
    packet[check].copy_from_slice(&written.to_be_bytes());
}
