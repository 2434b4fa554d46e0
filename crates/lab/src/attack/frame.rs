//! The frames of a flood: a template, and which of its fields are random.

use std::net::Ipv4Addr;

use aya::Pod;

/// As in `bpf/flood.bpf.c`.
pub(super) const FRAME_BYTES: usize = 60;
const IP_AT: usize = 14;
const L4_AT: usize = 34;
const L4_BYTES: u16 = 24;
const IP_BYTES: u16 = 20 + L4_BYTES;

/// Bits of [`Plan::random`], as in `bpf/flood.bpf.c`.
pub(super) mod random {
    pub const MAC: u32 = 1;
    pub const SOURCE: u32 = 2;
    pub const DESTINATION: u32 = 4;
    pub const SOURCE_PORT: u32 = 8;
    pub const DESTINATION_PORT: u32 = 16;
    /// Of the transport, behind the ports: TCP's sequence number, ICMP echo's identifier and number.
    pub const FIRST_WORD: u32 = 32;
    pub const IP_ID: u32 = 64;
    pub const PORTS: u32 = SOURCE_PORT | DESTINATION_PORT;
}

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload {
    Syn,
    Ack,
    Udp,
    Echo,
    /// Of a UDP datagram, more to follow.
    FirstFragment,
    /// The end of a datagram whose beginning is never sent.
    LaterFragment,
}

impl Payload {
    fn protocol(self) -> u8 {
        match self {
            Self::Syn | Self::Ack => 6,
            Self::Udp | Self::FirstFragment | Self::LaterFragment => 17,
            Self::Echo => 1,
        }
    }

    /// Flags and offset of the IP header (RFC 791 §3.1).
    fn fragment(self) -> u16 {
        match self {
            Self::FirstFragment => 0x2000,
            Self::LaterFragment => 1480 / 8,
            _ => 0x4000,
        }
    }

    fn checksum_at(self) -> u32 {
        match self {
            Self::Syn | Self::Ack => 16,
            Self::Udp => 6,
            Self::Echo => 2,
            // A datagram in fragments goes without.
            Self::FirstFragment | Self::LaterFragment => 0,
        }
    }

    fn header(self) -> [u8; L4_BYTES as usize] {
        let mut bytes = [0; L4_BYTES as usize];
        let flags = match self {
            Self::Syn => 0x02,
            _ => 0x10,
        };
        match self {
            // Ports of 1024 where they are not random; a header of six words with a segment size of 1460.
            Self::Syn | Self::Ack => {
                bytes[..4].copy_from_slice(&[4, 0, 4, 0]);
                bytes[8] = 1;
                bytes[12..16].copy_from_slice(&[0x60, flags, 0xff, 0xff]);
                bytes[20..24].copy_from_slice(&[2, 4, 0x05, 0xb4]);
            }
            Self::Udp => bytes[..6].copy_from_slice(&[4, 0, 4, 0, 0, L4_BYTES as u8]),
            Self::FirstFragment => bytes[..6].copy_from_slice(&[4, 0, 4, 0, 0x05, 0xdc]),
            Self::Echo => bytes[0] = 8,
            Self::LaterFragment => {}
        }
        bytes
    }
}

/// Addresses in network byte order: `first`, with any bits of `mask`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    first: u32,
    mask: u32,
}

impl Range {
    pub fn prefix(first: Ipv4Addr, length: u32) -> Self {
        Self {
            first: first.to_bits().to_be(),
            mask: (u32::MAX >> length).to_be(),
        }
    }
}

/// As in `bpf/flood.bpf.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    frame: [u8; FRAME_BYTES],
    random: u32,
    sources: Range,
    destinations: Range,
    checksum_at: u32,
    answered: u32,
}

// SAFETY: integers without padding (60 + 4 + 8 + 8 + 4 + 4 bytes).
unsafe impl Pod for Plan {}
// SAFETY: two integers.
unsafe impl Pod for Range {}

/// Where frames come from and go to, where their fields are not random.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub macs: [[u8; 6]; 2],
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub sources: Range,
    pub destinations: Range,
}

/// What a flood consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recipe {
    pub payload: Payload,
    pub random: u32,
    pub ttl: u8,
    /// By an internet that helps the attacker.
    pub answered: bool,
}

impl Recipe {
    pub fn plan(self, ends: &Ends) -> Plan {
        let mut frame = [0; FRAME_BYTES];
        let [from, to] = ends.macs;
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&from);
        if self.random & random::MAC != 0 {
            // Locally administered, unicast (IEEE 802 §8.2).
            frame[6..8].copy_from_slice(&[0x02, 0xab]);
        }
        frame[12] = 0x08;
        let ip = &mut frame[IP_AT..L4_AT];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&IP_BYTES.to_be_bytes());
        ip[6..8].copy_from_slice(&self.payload.fragment().to_be_bytes());
        ip[8..10].copy_from_slice(&[self.ttl, self.payload.protocol()]);
        ip[12..16].copy_from_slice(&ends.source.octets());
        ip[16..20].copy_from_slice(&ends.destination.octets());
        frame[L4_AT..][..L4_BYTES.into()].copy_from_slice(&self.payload.header());
        Plan {
            frame,
            random: self.random,
            sources: ends.sources,
            destinations: ends.destinations,
            checksum_at: self.payload.checksum_at(),
            answered: self.answered.into(),
        }
    }
}
