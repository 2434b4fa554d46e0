//! Frames as the checker reads them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of an Ethernet header without a tag.
pub const ETHERNET: usize = 14;
/// IP protocol number.
pub const TCP: u8 = 6;
/// IP protocol number.
pub const UDP: u8 = 17;
/// IP protocol number.
pub const ICMP: u8 = 1;
/// IP protocol number.
pub const ICMP6: u8 = 58;
/// Next header of IPv6: options of every hop.
pub const HOPS: u8 = 0;
/// Next header of IPv6.
pub const ROUTING: u8 = 43;
/// Next header of IPv6.
pub const FRAGMENT: u8 = 44;
/// Next header of IPv6: options of the destination.
pub const DESTINATION: u8 = 60;
/// Bytes of an IPv6 header without extensions.
pub const IPV6: usize = 40;
/// Bit of the fragment field (RFC 791).
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// Bit of the fragment field (RFC 791).
pub const DONT_FRAGMENT: u16 = 0x4000;
const OFFSET: u16 = 0x1fff;

/// What a TCP header says of its place in the stream.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// As in [`crate::build`].
    pub flags: u8,
    /// Of its first byte, or of its SYN.
    pub seq: u32,
    /// Behind what it occupies.
    pub end: u32,
    /// If it acknowledges anything.
    pub ack: Option<u32>,
}

/// A packet of either family, as long as its header says.
#[derive(Clone, Copy, Debug)]
pub struct Ip<'a> {
    /// From the header on.
    pub bytes: &'a [u8],
    /// Bytes of the header, options and extensions included.
    header: usize,
    proto: u8,
    /// Where the fragment header of IPv6 is.
    fragment_at: Option<usize>,
}

/// The kind of a frame of either family.
pub fn ether_type(is_ipv6: bool) -> [u8; 2] {
    if is_ipv6 { [0x86, 0xdd] } else { [8, 0] }
}

/// Two bytes in network order.
pub fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Bytes of a map as what they are.
pub fn pod<T: aya::Pod>(bytes: &[u8]) -> T {
    assert_eq!(bytes.len(), size_of::<T>(), "the contract's size");
    // SAFETY: as long as T, and any bytes are a valid T.
    unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }
}

fn address(bytes: &[u8], at: usize, is_ipv6: bool) -> IpAddr {
    let octets = |length: usize| &bytes[at..at + length];
    match is_ipv6 {
        true => Ipv6Addr::from(<[u8; 16]>::try_from(octets(16)).expect("16 bytes")).into(),
        false => Ipv4Addr::from(<[u8; 4]>::try_from(octets(4)).expect("4 bytes")).into(),
    }
}

impl<'a> Ip<'a> {
    /// None if it is no IP, or cut short.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let length = match bytes.first()? >> 4 {
            4 => usize::from(word(bytes.get(..20)?, 2)),
            6 => IPV6 + usize::from(word(bytes.get(..IPV6)?, 4)),
            _ => return None,
        };
        Ip::within(bytes.get(..length)?)
    }

    /// Of an Ethernet frame that carries nothing but IP.
    pub fn of_frame(frame: &'a [u8]) -> Option<Self> {
        let ip = Ip::of(frame.get(ETHERNET..)?)?;
        (frame[12..14] == ether_type(ip.is_ipv6())).then_some(ip)
    }

    /// Without demanding that the packet is whole: what an ICMP error quotes.
    pub fn of_quote(bytes: &'a [u8]) -> Option<Self> {
        Ip::within(bytes).filter(|ip| bytes.len() >= ip.header + 8)
    }

    /// Whose headers lie within `bytes`.
    fn within(bytes: &'a [u8]) -> Option<Self> {
        if bytes.first()? >> 4 == 6 {
            return Ip::behind_extensions(bytes);
        }
        let header = usize::from(bytes[0] & 15) * 4;
        let fits = bytes[0] >> 4 == 4 && header >= 20 && header <= bytes.len();
        fits.then(|| Ip {
            bytes,
            header,
            proto: bytes[9],
            fragment_at: None,
        })
    }

    fn behind_extensions(bytes: &'a [u8]) -> Option<Self> {
        let mut ip = Ip {
            bytes,
            header: IPV6,
            proto: bytes.get(..IPV6)?[6],
            fragment_at: None,
        };
        while [HOPS, ROUTING, FRAGMENT, DESTINATION].contains(&ip.proto) && !ip.is_later_fragment()
        {
            let extension = bytes.get(ip.header..ip.header + 8)?;
            let length = match ip.proto {
                // A fragment of a fragment nobody sends.
                FRAGMENT if ip.fragment_at.is_some() => return None,
                FRAGMENT => {
                    ip.fragment_at = Some(ip.header);
                    8
                }
                _ => 8 + 8 * usize::from(extension[1]),
            };
            ip.proto = extension[0];
            ip.header += length;
        }
        (ip.header <= bytes.len()).then_some(ip)
    }

    /// Whether it is IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.bytes[0] >> 4 == 6
    }

    /// Bytes of the header, options and extensions included.
    pub fn header(&self) -> usize {
        self.header
    }

    /// Bytes of the packet, as its header says.
    pub fn length(&self) -> usize {
        match self.is_ipv6() {
            true => IPV6 + usize::from(word(self.bytes, 4)),
            false => usize::from(word(self.bytes, 2)),
        }
    }

    /// Behind the header.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[self.header()..]
    }

    /// Where its addresses are: source, then destination, and how long each is.
    pub fn addresses(&self) -> (usize, usize) {
        if self.is_ipv6() { (8, 16) } else { (12, 4) }
    }

    /// Where its identification is; IPv6 has one in fragments.
    pub fn id_at(&self) -> Option<usize> {
        match self.is_ipv6() {
            true => self.fragment_at.map(|at| at + 4),
            false => Some(4),
        }
    }

    /// Identification.
    pub fn id(&self) -> u32 {
        match (self.is_ipv6(), self.id_at()) {
            (false, _) => word(self.bytes, 4).into(),
            (true, Some(at)) => {
                u32::from(word(self.bytes, at)) << 16 | u32::from(word(self.bytes, at + 2))
            }
            (true, None) => 0,
        }
    }

    /// Flags and offset, as IPv4 has them.
    pub fn fragment(&self) -> u16 {
        match (self.is_ipv6(), self.fragment_at) {
            (false, _) => word(self.bytes, 6),
            (true, Some(at)) => {
                let field = word(self.bytes, at + 2);
                (field >> 3) | ((field & 1) * MORE_FRAGMENTS) | DONT_FRAGMENT
            }
            (true, None) => DONT_FRAGMENT,
        }
    }

    /// A part of a datagram.
    pub fn is_fragment(&self) -> bool {
        self.fragment() & (OFFSET | MORE_FRAGMENTS) != 0
    }

    /// A part of a datagram that does not begin it.
    pub fn is_later_fragment(&self) -> bool {
        self.fragment() & OFFSET != 0
    }

    /// A router may: IPv4 without "do not fragment".
    pub fn may_fragment(&self) -> bool {
        self.fragment() & DONT_FRAGMENT == 0
    }

    /// Where time to live, or hop limit, is.
    pub fn ttl_at(&self) -> usize {
        if self.is_ipv6() { 7 } else { 8 }
    }

    /// Time to live, or hop limit.
    pub fn ttl(&self) -> u8 {
        self.bytes[self.ttl_at()]
    }

    /// IP protocol number, behind extensions.
    pub fn proto(&self) -> u8 {
        self.proto
    }

    /// Whether it is ICMP of its family.
    pub fn is_icmp(&self) -> bool {
        self.proto == if self.is_ipv6() { ICMP6 } else { ICMP }
    }

    /// Source address.
    pub fn src(&self) -> IpAddr {
        address(self.bytes, self.addresses().0, self.is_ipv6())
    }

    /// Destination address.
    pub fn dst(&self) -> IpAddr {
        let (at, length) = self.addresses();
        address(self.bytes, at + length, self.is_ipv6())
    }

    /// Source and destination port, or the id of an echo in both.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let body = self.body();
        if self.is_later_fragment() || body.len() < 8 {
            return None;
        }
        match self.proto() {
            TCP | UDP => Some((word(body, 0), word(body, 2))),
            _ if self.is_query() => Some((word(body, 4), word(body, 4))),
            _ => None,
        }
    }

    /// The sequence number of TCP, also of a quote.
    pub fn seq(&self) -> Option<u32> {
        let is_tcp = self.proto() == TCP && !self.is_later_fragment();
        let seq = self.body().get(4..8).filter(|_| is_tcp)?;
        Some(u32::from(word(seq, 0)) << 16 | u32::from(word(seq, 2)))
    }

    /// Its TCP segment; none if it has no whole TCP header.
    pub fn segment(&self) -> Option<Segment> {
        let (flags, seq, body) = (self.flags()?, self.seq()?, self.body());
        let header = usize::from(body[12] >> 4) * 4;
        let occupied =
            body.len().checked_sub(header)? as u32 + u32::from((flags >> 1 & 1) + (flags & 1));
        let ack = u32::from(word(body, 8)) << 16 | u32::from(word(body, 10));
        Some(Segment {
            flags,
            seq,
            end: seq.wrapping_add(occupied),
            ack: (flags & 0x10 != 0).then_some(ack),
        })
    }

    /// Its type, if it is ICMP of its family.
    fn icmp_type(&self) -> Option<u8> {
        let is_icmp = self.is_icmp() && !self.is_later_fragment();
        self.body().first().copied().filter(|_| is_icmp)
    }

    /// An echo, or its reply.
    fn is_query(&self) -> bool {
        let types = if self.is_ipv6() { [128, 129] } else { [8, 0] };
        self.icmp_type().is_some_and(|kind| types.contains(&kind))
    }

    /// An ICMP error, with a packet in it.
    pub fn is_icmp_error(&self) -> bool {
        let types: &[u8] = if self.is_ipv6() {
            &[1, 2, 3, 4]
        } else {
            &[3, 11, 12]
        };
        self.icmp_type().is_some_and(|kind| types.contains(&kind))
    }

    /// Neighbour discovery, which nobody forwards (RFC 4861).
    pub fn is_neighbour(&self) -> bool {
        let is_of_link = self.is_ipv6() && self.ttl() == 255;
        is_of_link
            && self
                .icmp_type()
                .is_some_and(|kind| (133..=137).contains(&kind))
    }

    /// The packet an ICMP error is about.
    pub fn quote(&self) -> Option<Ip<'a>> {
        Ip::of_quote(self.body().get(8..)?)
    }

    /// TCP flags.
    pub fn flags(&self) -> Option<u8> {
        let is_tcp = self.proto() == TCP && !self.is_later_fragment();
        self.body().get(13).copied().filter(|_| is_tcp)
    }
}
