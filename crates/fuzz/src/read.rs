//! Frames as the checker reads them.

use std::net::Ipv4Addr;

/// Bytes of an Ethernet header without a tag.
pub const ETHERNET: usize = 14;
/// IP protocol number.
pub const TCP: u8 = 6;
/// IP protocol number.
pub const UDP: u8 = 17;
/// IP protocol number.
pub const ICMP: u8 = 1;
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

/// An IPv4 packet, as long as its header says.
#[derive(Clone, Copy, Debug)]
pub struct Ip<'a> {
    /// From the header on.
    pub bytes: &'a [u8],
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

fn address(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3])
}

impl<'a> Ip<'a> {
    /// None if it is no IPv4, or cut short.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() < 20 || bytes[0] >> 4 != 4 {
            return None;
        }
        let (header, length) = (usize::from(bytes[0] & 15) * 4, usize::from(word(bytes, 2)));
        let fits = header >= 20 && header <= length && length <= bytes.len();
        fits.then(|| Ip {
            bytes: &bytes[..length],
        })
    }

    /// Of an Ethernet frame that carries nothing but IPv4.
    pub fn of_frame(frame: &'a [u8]) -> Option<Self> {
        let is_ip = frame.len() > ETHERNET && frame[12..14] == [8, 0];
        is_ip.then(|| Ip::of(&frame[ETHERNET..])).flatten()
    }

    /// Without demanding that the packet is whole: what an ICMP error quotes.
    pub fn of_quote(bytes: &'a [u8]) -> Option<Self> {
        let readable = bytes.len() >= 20 && bytes[0] >> 4 == 4 && bytes[0] & 15 >= 5;
        let ip = Ip { bytes };
        (readable && bytes.len() >= ip.header() + 8).then_some(ip)
    }

    /// Bytes of the header, options included.
    pub fn header(&self) -> usize {
        usize::from(self.bytes[0] & 15) * 4
    }

    /// Bytes of the packet, as its header says.
    pub fn length(&self) -> usize {
        usize::from(word(self.bytes, 2))
    }

    /// Behind the header.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[self.header()..]
    }

    /// Identification.
    pub fn id(&self) -> u16 {
        word(self.bytes, 4)
    }

    /// Flags and offset.
    pub fn fragment(&self) -> u16 {
        word(self.bytes, 6)
    }

    /// A part of a datagram.
    pub fn is_fragment(&self) -> bool {
        self.fragment() & (OFFSET | MORE_FRAGMENTS) != 0
    }

    /// A part of a datagram that does not begin it.
    pub fn is_later_fragment(&self) -> bool {
        self.fragment() & OFFSET != 0
    }

    /// Without "do not fragment".
    pub fn may_fragment(&self) -> bool {
        self.fragment() & DONT_FRAGMENT == 0
    }

    /// Time to live.
    pub fn ttl(&self) -> u8 {
        self.bytes[8]
    }

    /// IP protocol number.
    pub fn proto(&self) -> u8 {
        self.bytes[9]
    }

    /// Source address.
    pub fn src(&self) -> Ipv4Addr {
        address(self.bytes, 12)
    }

    /// Destination address.
    pub fn dst(&self) -> Ipv4Addr {
        address(self.bytes, 16)
    }

    /// Source and destination port, or the id of an echo in both.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let body = self.body();
        if self.is_later_fragment() || body.len() < 8 {
            return None;
        }
        match self.proto() {
            TCP | UDP => Some((word(body, 0), word(body, 2))),
            ICMP if matches!(body[0], 0 | 8) => Some((word(body, 4), word(body, 4))),
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

    /// An ICMP error, with a packet in it.
    pub fn is_icmp_error(&self) -> bool {
        self.proto() == ICMP
            && !self.is_later_fragment()
            && self
                .body()
                .first()
                .is_some_and(|kind| [3, 11, 12].contains(kind))
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
