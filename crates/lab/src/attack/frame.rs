//! The frames of a flood: a template, and which of its fields are random.

use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use anabranch_frames::{
    Ip, IpNumber, echo, icmp, mss_option, router_advertisement, tcp, udp, udp_without_checksum,
};
use anabranch_scenario::Family;
use aya::Pod;

use super::innocent::TCP_PORT;

/// As in `bpf/flood.bpf.c`.
const FRAME_MAX: usize = 128;
/// 64 bytes on the wire, less the frame check sequence.
const FRAME_MIN: usize = 60;
/// A priority tag, or one of VLAN 1, before one of VLAN 5 (IEEE 802.1Q §9.6).
const DOUBLE_TAG: [u8; 8] = [0x81, 0, 0, 0, 0x81, 0, 0, 5];
/// A TCP header with one option, or another header and data.
const L4_BYTES: usize = 24;
const UDP_BYTES: usize = 8;
const DATA: [u8; L4_BYTES - UDP_BYTES] = [0; 16];
/// Of the source, and of both ends if nothing else is said, where it is not random.
pub(super) const PORT: u16 = 1024;
/// An extension header of IPv6 (RFC 8200 section 4.5).
const FRAGMENT_BYTES: usize = 8;
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
    Echo,
    /// Of a UDP datagram, more to follow.
    FirstFragment,
    /// The end of a datagram whose beginning is never sent.
    LaterFragment,
    /// A UDP datagram behind as many options or extension headers as may be.
    Chain,
    /// An ICMP error that quotes a SYN of whom it is for, from that port to the source.
    Error,
    /// A router's advertisement of a network and of itself, of IPv6 alone (RFC 4861 section 4.2).
    Advertisement,
}

impl Payload {
    fn is_fragment(self) -> bool {
        matches!(self, Self::FirstFragment | Self::LaterFragment)
    }

    /// Where the checksum of the transport stands in it; 0: a datagram in fragments goes without.
    fn checksum_at(self) -> usize {
        match self {
            Self::Syn | Self::SynOfServer | Self::Ack => 16,
            Self::Udp | Self::Chain => 6,
            Self::Echo | Self::Error | Self::Advertisement => 2,
            Self::FirstFragment | Self::LaterFragment => 0,
        }
    }

    /// For this port of the destination.
    fn packet(self, source: IpAddr, destination: IpAddr, port: u16) -> Ip {
        let from = SocketAddr::new(source, PORT);
        let to = SocketAddr::new(destination, port);
        let segment = |from: SocketAddr, flags: &str| {
            let segment = tcp(from, to, flags, 0, 1);
            segment.options(&mss_option(1460)).ip()
        };
        match self {
            Self::Syn => segment(from, "S"),
            Self::SynOfServer => segment((source, TCP_PORT).into(), "S"),
            Self::Ack => segment(from, "A"),
            Self::Udp => udp(from, to, &DATA),
            Self::FirstFragment => {
                udp_without_checksum(from, to, &[0; 1500 - UDP_BYTES]).fragment(0, L4_BYTES)
            }
            Self::LaterFragment => {
                let datagram = udp_without_checksum(from, to, &[0; 1480 + DATA.len()]);
                datagram.fragment(1480, 1480 + L4_BYTES)
            }
            Self::Chain => chain(udp(from, to, &DATA)),
            Self::Echo => echo(source, destination, 0, &DATA),
            Self::Error => {
                let kind = if source.is_ipv4() { (3, 4) } else { (2, 0) };
                let quoted = tcp(to, from, "S", 0, 1).ip().packet();
                icmp(source, destination, kind, [0, 0, 0x05, 0], &quoted)
            }
            Self::Advertisement => {
                let message = router_advertisement(ROGUE_NETWORK, 3600);
                Ip::new(IpNumber::IPV6_ICMP, source, destination, message)
            }
        }
    }
}

/// Behind as many options as IPv4 has room for, or as many extension headers of IPv6 as are stepped over.
fn chain(packet: Ip) -> Ip {
    match packet.header.family() {
        // No operation, forty times.
        Family::V4 => packet.ip_options(&[1; 40]),
        // Six headers of options that pad.
        Family::V6 => (0..6).fold(packet, |packet, _| {
            packet.extension(
                IpNumber::IPV6_DESTINATION_OPTIONS,
                &[0, 0, 1, 4, 0, 0, 0, 0],
            )
        }),
    }
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
    known_by_sources: u32,
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
    /// The gateway changes their destinations: at the ISPs they are known by their sources.
    pub known_by_sources: bool,
    /// To which they are sent, where it is not random.
    pub port: u16,
    /// As many sources take turns; [`TRACKED`]: more than the kernel tracks connections.
    pub turns: u32,
}

/// See [`Recipe::turns`].
pub(super) const TRACKED: u32 = 0;

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
        let packet = payload.packet(ends.source, ends.destination, self.port);
        let packet = packet.ttl(self.ttl);
        let (protocol, transport) = (packet.header.protocol, packet.body.len());
        let packet = packet.packet();
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
        let l4 = ip + packet.len() - transport;
        let whole = [ethernet, packet].concat();
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
            l4_length: transport as u32,
            protocol: protocol.0.into(),
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
            known_by_sources: self.known_by_sources.into(),
            turns: match self.turns {
                TRACKED => beyond_tracked(),
                turns => turns,
            },
        }
    }
}
