//! The frames of a flood: a template, and which of its fields are random.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};

use anabranch_scenario::Family;
use aya::Pod;

use super::innocent::{TCP_PORT, UDP_PORT};

/// As in `bpf/flood.bpf.c`.
const FRAME_MAX: usize = 128;
/// 64 bytes on the wire, less the frame check sequence.
const FRAME_MIN: usize = 60;
/// A priority tag, or one of VLAN 1, before one of VLAN 5 (IEEE 802.1Q §9.6).
const DOUBLE_TAG: [u8; 8] = [0x81, 0, 0, 0, 0x81, 0, 0, 5];
/// A TCP header with one option of four bytes, or another header and data.
const L4_BYTES: usize = 24;
/// An extension header of IPv6 says so, or the header of IPv4 (RFC 8200 section 4.5).
const FRAGMENT_BYTES: usize = 8;
/// As many options as IPv4 has room for, and six extension headers of IPv6, as many as are stepped over.
const OPTIONS_BYTES: usize = 40;
const EXTENSIONS: usize = 6;
const ICMP_BYTES: usize = 8;

/// Connections that Linux tracks on a machine of some memory.
const CONNTRACK_USUAL: u32 = 1 << 18;
/// What a host advertises that is no router.
const ROGUE_NETWORK: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xbad, 0, 0, 0, 0, 0);

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
    /// One of eight hosts: MAC and source.
    pub const HOST: u32 = 128;
    /// Priority and VLAN of the first of two tags.
    pub const TAG: u32 = 256;
    /// Not random: as many sources in turn as the recipe says.
    pub const SOURCES_IN_TURN: u32 = 512;
    pub const PORTS: u32 = SOURCE_PORT | DESTINATION_PORT;
}

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload {
    Syn,
    /// The same from the port at which the innocents' servers answer.
    SynOfServer,
    Ack,
    Udp,
    /// A datagram for the port of a resolver.
    Question,
    Echo,
    /// Of a UDP datagram, more to follow.
    FirstFragment,
    /// The end of a datagram whose beginning is never sent.
    LaterFragment,
    /// A UDP datagram behind as many options or extension headers as may be.
    Chain,
    /// An ICMP error that quotes a SYN of whom it is for.
    Error,
    /// A router's advertisement of a network and of itself, of IPv6 alone (RFC 4861 section 4.2).
    Advertisement,
}

impl Payload {
    fn protocol(self, family: Family) -> u8 {
        match (self, family) {
            (Self::Syn | Self::SynOfServer | Self::Ack, _) => 6,
            (Self::Udp | Self::Question | Self::Chain, _) => 17,
            (Self::FirstFragment | Self::LaterFragment, _) => 17,
            (Self::Echo | Self::Error | Self::Advertisement, Family::V4) => 1,
            (Self::Echo | Self::Error | Self::Advertisement, Family::V6) => 58,
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

    fn is_fragment(self) -> bool {
        matches!(self, Self::FirstFragment | Self::LaterFragment)
    }

    fn checksum_at(self) -> usize {
        match self {
            Self::Syn | Self::SynOfServer | Self::Ack => 16,
            Self::Udp | Self::Question | Self::Chain => 6,
            Self::Echo | Self::Error | Self::Advertisement => 2,
            // A datagram in fragments goes without.
            Self::FirstFragment | Self::LaterFragment => 0,
        }
    }

    /// The header of the transport and what is behind it.
    fn transport(self, ends: &Ends) -> Vec<u8> {
        let mut bytes = vec![0; L4_BYTES];
        let flags = match self {
            Self::Syn | Self::SynOfServer => 0x02,
            _ => 0x10,
        };
        match self {
            // Ports of 1024 where they are not random; a header of six words with a segment size of 1460.
            Self::Syn | Self::SynOfServer | Self::Ack => {
                bytes[..4].copy_from_slice(&[4, 0, 4, 0]);
                if self == Self::SynOfServer {
                    bytes[..2].copy_from_slice(&TCP_PORT.to_be_bytes());
                }
                bytes[8] = 1;
                bytes[12..16].copy_from_slice(&[0x60, flags, 0xff, 0xff]);
                bytes[20..24].copy_from_slice(&[2, 4, 0x05, 0xb4]);
            }
            Self::Udp | Self::Chain => bytes[..6].copy_from_slice(&[4, 0, 4, 0, 0, L4_BYTES as u8]),
            Self::Question => {
                bytes[..6].copy_from_slice(&[4, 0, 0, UDP_PORT as u8, 0, L4_BYTES as u8]);
            }
            Self::FirstFragment => bytes[..6].copy_from_slice(&[4, 0, 4, 0, 0x05, 0xdc]),
            Self::Echo => bytes[0] = if ends.is_ipv6() { 128 } else { 8 },
            Self::LaterFragment => {}
            Self::Error => return ends.error(),
            Self::Advertisement => return advertisement(),
        }
        bytes
    }
}

/// Of a default router for half an hour, and of a network for two hours, whose addresses hosts may make up.
fn advertisement() -> Vec<u8> {
    let router = [134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
    let network = [
        3, 4, 64, 0xc0, 0, 0, 0x1c, 0x20, 0, 0, 0x0e, 0x10, 0, 0, 0, 0,
    ];
    [&router[..], &network, &ROGUE_NETWORK.octets()].concat()
}

/// Addresses in network byte order, of IPv4 the last word: `first`, with any bits of `mask`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    first: [u32; 4],
    mask: [u32; 4],
}

impl Range {
    pub fn prefix(first: IpAddr, length: u32) -> Self {
        let (bits, mask) = match first {
            IpAddr::V4(first) => (
                first.to_bits().into(),
                u32::MAX.checked_shr(length).unwrap_or(0).into(),
            ),
            IpAddr::V6(first) => (first.to_bits(), u128::MAX.checked_shr(length).unwrap_or(0)),
        };
        let words = |bits: u128| [96, 64, 32, 0].map(|shift| ((bits >> shift) as u32).to_be());
        Self {
            first: words(bits),
            mask: words(mask),
        }
    }
}

/// As in `bpf/flood.bpf.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    frame: [u8; FRAME_MAX],
    random: u32,
    sources: Range,
    destinations: Range,
    is_ipv6: u32,
    length: u32,
    ip: u32,
    l4: u32,
    l4_length: u32,
    protocol: u32,
    ports: u32,
    id: u32,
    checksum_at: u32,
    answered: u32,
    claims_sources: u32,
    turns: u32,
}

impl Plan {
    /// Room for one of its frames.
    pub fn room(&self) -> Vec<u8> {
        vec![0; self.length as usize]
    }
}

// SAFETY: integers without padding, all of 32 bits but for the frame, which is a multiple of them.
unsafe impl Pod for Plan {}
// SAFETY: integers of one size.
unsafe impl Pod for Range {}

/// Where frames come from and go to, where their fields are not random.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub macs: [[u8; 6]; 2],
    pub source: IpAddr,
    pub destination: IpAddr,
    pub sources: Range,
    pub destinations: Range,
}

impl Ends {
    fn is_ipv6(&self) -> bool {
        self.source.is_ipv6()
    }

    fn family(&self) -> Family {
        self.source.into()
    }

    /// "Too big", about a SYN that the destination sent to the source.
    fn error(&self) -> Vec<u8> {
        let kind = if self.is_ipv6() { [2, 0] } else { [3, 4] };
        let head = [kind[0], kind[1], 0, 0, 0, 0, 0x05, 0];
        let back = Ends {
            source: self.destination,
            destination: self.source,
            ..*self
        };
        let syn = Payload::Syn.transport(&back);
        let quoted = back.header(Payload::Syn, 64, &[], syn.len());
        [&head, &quoted[..], &syn[..20]].concat()
    }

    /// The IP header, with `extensions` behind it, before `length` bytes.
    fn header(&self, payload: Payload, ttl: u8, extensions: &[u8], length: usize) -> Vec<u8> {
        let protocol = payload.protocol(self.family());
        let extended = (extensions.len() + length) as u16;
        let head = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let [high, low] = (extended + 20).to_be_bytes();
                let words = (5 + extensions.len() / 4) as u8;
                let fragment = payload.fragment().to_be_bytes();
                let head = [0x40 | words, 0, high, low, 0, 0, fragment[0], fragment[1]];
                let rest = [ttl, protocol, 0, 0];
                [&head, &rest[..], &source.octets(), &destination.octets()].concat()
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let [high, low] = extended.to_be_bytes();
                let next = payload.first_extension().unwrap_or(protocol);
                let head = [0x60, 0, 0, 0, high, low, next, ttl];
                [&head, &source.octets()[..], &destination.octets()].concat()
            }
            _ => unreachable!("both ends are of the attack's family"),
        };
        [&head, extensions].concat()
    }
}

/// What a flood consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recipe {
    pub payload: Payload,
    pub random: u32,
    pub ttl: u8,
    /// By an internet that helps the attacker.
    pub answered: bool,
    /// The attacker answers for the addresses that its frames come from.
    pub claims_sources: bool,
    /// As many sources take turns; [`TRACKED`]: more than the kernel tracks connections.
    pub turns: u32,
}

/// See [`Recipe::turns`].
pub(super) const TRACKED: u32 = 0;

impl Payload {
    fn first_extension(self) -> Option<u8> {
        match self {
            Self::Chain => Some(DESTINATION),
            payload if payload.is_fragment() => Some(FRAGMENT),
            _ => None,
        }
    }

    /// What stands between the header and the transport.
    fn extensions(self, family: Family) -> Vec<u8> {
        match (self, family) {
            // No operation, forty times.
            (Self::Chain, Family::V4) => vec![1; OPTIONS_BYTES],
            (Self::Chain, Family::V6) => {
                let last = self.protocol(family);
                let next = (1..EXTENSIONS).map(|_| DESTINATION).chain([last]);
                // Options that pad.
                next.flat_map(|next| [next, 0, 1, 4, 0, 0, 0, 0]).collect()
            }
            (payload, Family::V6) if payload.is_fragment() => {
                let [high, low] = match payload {
                    Self::FirstFragment => 1u16,
                    _ => 1480,
                }
                .to_be_bytes();
                vec![self.protocol(family), 0, high, low, 0, 0, 0, 0]
            }
            _ => Vec::new(),
        }
    }
}

/// Next headers of IPv6.
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// A twentieth more than the kernel tracks connections.
fn beyond_tracked() -> u32 {
    let max = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max");
    let max = max.ok().and_then(|text| text.trim().parse().ok());
    let max: u32 = max.unwrap_or(CONNTRACK_USUAL);
    max.saturating_add(max / 20)
}

impl Recipe {
    pub fn plan(self, ends: &Ends) -> Plan {
        let (payload, is_ipv6) = (self.payload, ends.is_ipv6());
        let extensions = payload.extensions(ends.family());
        let transport = payload.transport(ends);
        let header = ends.header(payload, self.ttl, &extensions, transport.len());
        let [from, to] = ends.macs;
        let mut ethernet = [to, from].concat();
        if self.random & (random::MAC | random::HOST) != 0 {
            // Locally administered, unicast (IEEE 802 §8.2).
            ethernet[6..8].copy_from_slice(&[0x02, 0xab]);
        }
        if self.random & random::TAG != 0 {
            ethernet.extend(DOUBLE_TAG);
        }
        ethernet.extend(if is_ipv6 { [0x86, 0xdd] } else { [0x08, 0x00] });
        let ip = ethernet.len();
        let l4 = ip + header.len();
        let whole = [ethernet, header, transport.clone()].concat();
        let mut frame = [0; FRAME_MAX];
        frame[..whole.len()].copy_from_slice(&whole);
        let quoted = if is_ipv6 { 40 } else { 20 };
        Plan {
            frame,
            random: self.random,
            sources: ends.sources,
            destinations: ends.destinations,
            is_ipv6: is_ipv6.into(),
            length: whole.len().max(FRAME_MIN) as u32,
            ip: ip as u32,
            l4: l4 as u32,
            l4_length: transport.len() as u32,
            protocol: payload.protocol(ends.family()).into(),
            ports: match payload {
                Payload::Error => l4 + ICMP_BYTES + quoted,
                _ => l4,
            } as u32,
            id: match (is_ipv6, payload.is_fragment()) {
                (false, _) => ip + 4,
                (true, true) => l4 - FRAGMENT_BYTES + 4,
                (true, false) => 0,
            } as u32,
            checksum_at: payload.checksum_at() as u32,
            answered: self.answered.into(),
            claims_sources: self.claims_sources.into(),
            turns: match self.turns {
                TRACKED => beyond_tracked(),
                turns => turns,
            },
        }
    }
}
