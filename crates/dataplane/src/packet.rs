//! The few packets that user space writes itself, in either family.

use std::net::IpAddr;

use crate::Error;

/// Without options.
const IPV4_HEADER: usize = 20;
const TTL: u8 = 64;

/// The addresses of a packet, which are of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    from: IpAddr,
    to: IpAddr,
}

impl Ends {
    /// # Errors
    /// They are of two families.
    pub fn new(from: IpAddr, to: IpAddr) -> Result<Self, Error> {
        match from.is_ipv4() == to.is_ipv4() {
            true => Ok(Ends { from, to }),
            false => Err(Error::MixedFamilies { from, to }),
        }
    }

    /// As Ethernet names the family.
    pub fn ethertype(self) -> [u8; 2] {
        match self.to {
            IpAddr::V4(_) => [0x08, 0x00],
            IpAddr::V6(_) => [0x86, 0xdd],
        }
    }

    /// A packet with this behind its header.
    pub fn packet(self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = match self.to {
            IpAddr::V4(_) => ipv4_header(protocol, payload.len()),
            IpAddr::V6(_) => ipv6_header(protocol, payload.len()),
        };
        packet.extend(octets(self.from));
        packet.extend(octets(self.to));
        if self.to.is_ipv4() {
            let sum = checksum(&packet, 0);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        packet.extend(payload);
        packet
    }

    /// Of a TCP segment or UDP datagram whose own is zero as yet (RFC 9293 section 3.1, RFC 8200 section 8.1).
    pub fn transport_checksum(self, protocol: u8, segment: &[u8]) -> u16 {
        let addresses = sum_words(&octets(self.from)) + sum_words(&octets(self.to));
        checksum(
            segment,
            addresses + u32::from(protocol) + segment.len() as u32,
        )
    }
}

/// Up to the addresses (RFC 791).
fn ipv4_header(protocol: u8, payload: usize) -> Vec<u8> {
    let mut header = vec![0; 12];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&((IPV4_HEADER + payload) as u16).to_be_bytes());
    header[8] = TTL;
    header[9] = protocol;
    header
}

/// The same (RFC 8200).
fn ipv6_header(protocol: u8, payload: usize) -> Vec<u8> {
    let mut header = vec![0; 8];
    header[0] = 0x60;
    header[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    header[6] = protocol;
    header[7] = TTL;
    header
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A last odd byte counts as if zero followed it.
fn sum_words(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    };
    bytes.chunks(2).map(word).sum()
}

/// RFC 1071.
fn checksum(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start + sum_words(bytes);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
