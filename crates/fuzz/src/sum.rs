//! The checksum of the internet protocols from scratch (RFC 1071): nothing here is shared with the programs in C.

use crate::read::{ICMP, Ip, TCP, UDP};

/// One's complement sum of `parts` one after the other, all but the last of even length.
pub fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u64 = words
        .map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u64::from(low)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Whether data that contains its own checksum sums to all ones.
pub fn holds(parts: &[&[u8]]) -> bool {
    sum(parts) == 0xffff
}

/// Where the checksum stands in a transport header.
pub fn field(proto: u8) -> Option<usize> {
    match proto {
        TCP => Some(16),
        UDP => Some(6),
        ICMP => Some(2),
        _ => None,
    }
}

/// What the transport of `ip` sums to with its pseudo header, its own checksum included: 0xffff if it is right. None
/// where there is no checksum: later fragments, other protocols, UDP whose sender made none.
pub fn transport(ip: &Ip) -> Option<u16> {
    let at = field(ip.proto()).filter(|_| !ip.is_later_fragment())?;
    let written = ip.body().get(at..at + 2)?;
    let has_none = ip.proto() == UDP && written == [0, 0];
    (!has_none).then(|| with_pseudo_header(ip))
}

fn with_pseudo_header(ip: &Ip) -> u16 {
    if ip.proto() == ICMP {
        return sum(&[ip.body()]);
    }
    let length = (ip.body().len() as u16).to_be_bytes();
    let pseudo = [&ip.bytes[12..20], &[0, ip.proto()], &length].concat();
    sum(&[&pseudo, ip.body()])
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

/// Writes the checksum of an IPv4 header.
pub fn mend_header(packet: &mut [u8]) {
    let header = usize::from(packet[0] & 15) * 4;
    if header < 20 || header > packet.len() {
        return;
    }
    packet[10..12].fill(0);
    let check = !sum(&[&packet[..header]]);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
}

/// Writes the transport checksum of an IPv4 packet that is not cut short.
pub fn mend_transport(packet: &mut [u8]) {
    let Some(ip) = Ip::of(packet) else { return };
    let (proto, header) = (ip.proto(), ip.header());
    let Some(at) = field(proto).filter(|_| !ip.is_later_fragment()) else {
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
