//! Packets and frames to send. Every length and checksum is right unless the caller changes it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use anabranch_core::Family;
use etherparse::{IpFragOffset, IpNumber, Ipv4Header, Ipv6FragmentHeader, Ipv6Header, TcpHeader};

/// Of the loopback device, on which packets of test runs arrive.
const DEVICE_MAC: [u8; 6] = [0; 6];

/// Extension headers of IPv6 that routers step over.
pub const EXTENSIONS: [IpNumber; 4] = [
    IpNumber::IPV6_HEADER_HOP_BY_HOP,
    IpNumber::IPV6_ROUTE_HEADER,
    IpNumber::IPV6_FRAGMENTATION_HEADER,
    IpNumber::IPV6_DESTINATION_OPTIONS,
];

/// The header of an IP packet, including options and extension headers.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// Of the transport header, behind all extension headers.
    pub protocol: IpNumber,
    /// In IPv4 the time to live.
    pub hop_limit: u8,
    /// In IPv4 the type of service.
    pub traffic_class: u8,
    /// IPv6 packets have one only if they are fragments.
    pub identification: u32,
    pub fragment: Option<Fragment>,
    /// IPv4 only: routers never fragment IPv6.
    pub dont_fragment: bool,
    /// IPv4 only.
    pub options: Vec<u8>,
    /// IPv6 only.
    pub flow_label: u32,
    /// IPv6 only: the extension headers before a fragment header. The first byte of each is set to the next header.
    pub extensions: Vec<(IpNumber, Vec<u8>)>,
}

/// The place of a fragment in its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// In bytes, a multiple of 8.
    pub offset: u16,
    pub more: bool,
}

impl Header {
    pub fn family(&self) -> Family {
        self.source.into()
    }

    /// The header of a packet with `length` bytes behind it.
    fn to_bytes(&self, length: usize) -> Vec<u8> {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = Ipv4Header::new(
                    0,
                    self.hop_limit,
                    self.protocol,
                    source.octets(),
                    destination.octets(),
                )
                .expect("an empty one");
                header.set_payload_len(length).expect("it fits");
                header.options = self
                    .options
                    .as_slice()
                    .try_into()
                    .expect("a multiple of 4, at most 40");
                header.set_payload_len(length).expect("it fits");
                header.dscp = (self.traffic_class >> 2).try_into().expect("6 bits");
                header.ecn = (self.traffic_class & 3).try_into().expect("2 bits");
                header.identification = self.identification as u16;
                header.dont_fragment = self.dont_fragment;
                if let Some(fragment) = self.fragment {
                    header.more_fragments = fragment.more;
                    header.fragment_offset = fragment.units();
                }
                header.header_checksum = header.calc_header_checksum();
                header.to_bytes().to_vec()
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut chain = self.extensions.clone();
                if let Some(fragment) = self.fragment {
                    let header = Ipv6FragmentHeader::new(
                        self.protocol,
                        fragment.units(),
                        fragment.more,
                        self.identification,
                    );
                    chain.push((
                        IpNumber::IPV6_FRAGMENTATION_HEADER,
                        header.to_bytes().to_vec(),
                    ));
                }
                let mut next_header = self.protocol;
                for (number, bytes) in chain.iter_mut().rev() {
                    bytes[0] = next_header.0;
                    next_header = *number;
                }
                let extensions: Vec<u8> = chain.into_iter().flat_map(|(_, bytes)| bytes).collect();
                let header = Ipv6Header {
                    traffic_class: self.traffic_class,
                    flow_label: self.flow_label.try_into().expect("20 bits"),
                    payload_length: (extensions.len() + length) as u16,
                    next_header,
                    hop_limit: self.hop_limit,
                    source: source.octets(),
                    destination: destination.octets(),
                };
                [header.to_bytes().as_slice(), &extensions].concat()
            }
            ends => panic!("of two families: {ends:?}"),
        }
    }
}

impl Fragment {
    fn units(self) -> IpFragOffset {
        IpFragOffset::try_new(self.offset / 8).expect("within a datagram")
    }
}

/// An IP packet to send.
#[derive(Clone, Debug)]
pub struct Ip {
    pub header: Header,
    pub body: Vec<u8>,
}

impl Ip {
    /// The body is sent as it is: see [`summed`] for the checksum of a transport.
    pub fn new(protocol: IpNumber, source: IpAddr, destination: IpAddr, body: Vec<u8>) -> Self {
        let header = Header {
            source,
            destination,
            protocol,
            hop_limit: 64,
            traffic_class: 0,
            identification: 0,
            fragment: None,
            dont_fragment: true,
            options: Vec::new(),
            flow_label: 0,
            extensions: Vec::new(),
        };
        Ip { header, body }
    }

    pub fn ttl(mut self, ttl: u8) -> Self {
        self.header.hop_limit = ttl;
        self
    }

    pub fn id(mut self, id: u16) -> Self {
        self.header.identification = id.into();
        self
    }

    pub fn may_fragment(mut self) -> Self {
        self.header.dont_fragment = false;
        self
    }

    pub fn ip_options(mut self, options: &[u8]) -> Self {
        self.header.options = options.to_vec();
        self
    }

    /// Adds an extension header of IPv6 behind those that are there. The first of `bytes` is set to the next header.
    pub fn extension(mut self, number: IpNumber, bytes: &[u8]) -> Self {
        self.header.extensions.push((number, bytes.to_vec()));
        self
    }

    /// The bytes `from..to` of the body as a fragment, `from` a multiple of 8.
    pub fn fragment(&self, from: usize, to: usize) -> Self {
        let mut piece = self.clone().may_fragment();
        let to = to.min(self.body.len());
        piece.body = self.body[from..to].to_vec();
        piece.header.fragment = Some(Fragment {
            offset: from as u16,
            more: to < self.body.len(),
        });
        piece
    }

    pub fn packet(&self) -> Vec<u8> {
        let header = self.header.to_bytes(self.body.len());
        [header.as_slice(), &self.body].concat()
    }

    pub fn frame(&self) -> Vec<u8> {
        frame(self.header.family(), &self.packet())
    }
}

/// `packet` in an Ethernet frame to the loopback device. The MAC of its sender contains its IP address: each address is a
/// host of its own.
pub fn frame(family: Family, packet: &[u8]) -> Vec<u8> {
    let mut frame = [DEVICE_MAC, [2, 0, 0, 0, 0, 0]].concat();
    let (kind, source) = match family {
        Family::V4 => ([0x08, 0x00], 12..16),
        Family::V6 => ([0x86, 0xdd], 20..24),
    };
    if let Some(source) = packet.get(source) {
        frame[8..12].copy_from_slice(source);
    }
    frame.extend(kind);
    frame.extend_from_slice(packet);
    frame
}

/// Changes the destination MAC.
pub fn sent_to(mac: [u8; 6], mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&mac);
    frame
}

/// Changes the source MAC.
pub fn sent_by(mac: [u8; 6], mut frame: Vec<u8>) -> Vec<u8> {
    frame[6..12].copy_from_slice(&mac);
    frame
}

/// A TCP segment.
#[derive(Clone, Debug)]
pub struct Segment {
    pub src: SocketAddr,
    pub dst: SocketAddr,
    pub header: TcpHeader,
    pub payload: Vec<u8>,
}

/// Flags of a TCP header: bits as they stand in the header, or letters.
#[derive(Clone, Copy, Debug)]
pub struct Flags(u8);

impl From<u8> for Flags {
    fn from(bits: u8) -> Self {
        Flags(bits)
    }
}

impl From<&str> for Flags {
    fn from(letters: &str) -> Self {
        // The order of their bits (RFC 9293 section 3.1).
        let bit = |letter| 1 << "FSRPAUEC".find(letter).expect("a flag of TCP");
        Flags(letters.chars().map(bit).sum())
    }
}

/// A segment without options and payload.
pub fn tcp(
    src: impl Into<SocketAddr>,
    dst: impl Into<SocketAddr>,
    flags: impl Into<Flags>,
    seq: u32,
    ack: u32,
) -> Segment {
    let (src, dst, Flags(flags)) = (src.into(), dst.into(), flags.into());
    let mut header = TcpHeader::new(src.port(), dst.port(), seq, 65535);
    header.acknowledgment_number = ack;
    let is_set = |bit: u8| flags >> bit & 1 == 1;
    [header.fin, header.syn, header.rst, header.psh] = [0, 1, 2, 3].map(is_set);
    [header.ack, header.urg, header.ece, header.cwr] = [4, 5, 6, 7].map(is_set);
    Segment {
        src,
        dst,
        header,
        payload: Vec::new(),
    }
}

impl Segment {
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    pub fn options(mut self, options: &[u8]) -> Self {
        self.header.set_options_raw(options).expect("at most 40");
        self
    }

    pub fn ip(&self) -> Ip {
        let (src, dst) = (self.src.ip(), self.dst.ip());
        let body = [&self.header.to_bytes(), self.payload.as_slice()].concat();
        summed(Ip::new(IpNumber::TCP, src, dst, body), 16)
    }

    pub fn frame(&self) -> Vec<u8> {
        self.ip().frame()
    }
}

pub fn udp(src: impl Into<SocketAddr>, dst: impl Into<SocketAddr>, payload: &[u8]) -> Ip {
    let (src, dst) = (src.into(), dst.into());
    let length = (8 + payload.len()) as u16;
    let words = [src.port(), dst.port(), length, 0].map(u16::to_be_bytes);
    let body = [words.as_flattened(), payload].concat();
    let mut ip = summed(Ip::new(IpNumber::UDP, src.ip(), dst.ip(), body), 6);
    if ip.body[6..8] == [0, 0] {
        ip.body[6..8].fill(0xff);
    }
    ip
}

/// UDP whose sender computed no checksum (RFC 768).
pub fn udp_without_checksum(
    src: impl Into<SocketAddr>,
    dst: impl Into<SocketAddr>,
    payload: &[u8],
) -> Ip {
    let mut ip = udp(src, dst, payload);
    ip.body[6..8].fill(0);
    ip
}

pub fn echo(src: IpAddr, dst: IpAddr, id: u16, payload: &[u8]) -> Ip {
    query(src, dst, [8, 128], id, payload)
}

pub fn echo_reply(src: IpAddr, dst: IpAddr, id: u16, payload: &[u8]) -> Ip {
    query(src, dst, [0, 129], id, payload)
}

/// `kinds`: the type of the message in each family.
fn query(src: IpAddr, dst: IpAddr, kinds: [u8; 2], id: u16, payload: &[u8]) -> Ip {
    let [high, low] = id.to_be_bytes();
    let kind = kinds[Family::from(src).index()];
    icmp(src, dst, (kind, 0), [high, low, 0, 1], payload)
}

/// Of the family of its ends. `rest` is the second word of the header; an error has the packet it is about as payload.
pub fn icmp(src: IpAddr, dst: IpAddr, (kind, code): (u8, u8), rest: [u8; 4], payload: &[u8]) -> Ip {
    let body = [&[kind, code, 0, 0], rest.as_slice(), payload].concat();
    summed(Ip::new(icmp_of(src.into()), src, dst, body), 2)
}

pub fn icmp_of(family: Family) -> IpNumber {
    match family {
        Family::V4 => IpNumber::ICMP,
        Family::V6 => IpNumber::IPV6_ICMP,
    }
}

/// Writes the transport checksum, `at` bytes into the body.
pub fn summed(mut ip: Ip, at: usize) -> Ip {
    ip.body[at..at + 2].fill(0);
    let check = !transport_sum(&ip.header, &ip.body);
    ip.body[at..at + 2].copy_from_slice(&check.to_be_bytes());
    ip
}

/// The TCP option that tells a maximum segment size.
pub fn mss_option(mss: u16) -> [u8; 4] {
    let [high, low] = mss.to_be_bytes();
    [2, 4, high, low]
}

/// What a router multicasts to tell of itself and of a prefix for addresses (RFC 4861 section 4.2): the ICMPv6 message without
/// its checksum.
pub fn router_advertisement(prefix: Ipv6Addr, preferred_s: u32) -> Vec<u8> {
    const HOP_LIMIT: u8 = 64;
    const ROUTER_LIFETIME_S: u16 = 1800;
    const VALID_S: u32 = 7200;
    const ON_LINK_AND_AUTONOMOUS: u8 = 0xc0;
    let mut message = vec![134, 0, 0, 0, HOP_LIMIT, 0];
    message.extend(ROUTER_LIFETIME_S.to_be_bytes());
    message.extend([0; 8]);
    message.extend([3, 4, 64, ON_LINK_AND_AUTONOMOUS]);
    message.extend(VALID_S.to_be_bytes());
    message.extend(preferred_s.to_be_bytes());
    message.extend([0; 4]);
    message.extend(prefix.octets());
    message
}

/// The one's complement sum (RFC 1071).
pub fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|word| u64::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)])));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The sum of the body and of its pseudo header (RFC 768, RFC 9293, RFC 8200 section 8.1).
pub fn transport_sum(ip: &Header, body: &[u8]) -> u16 {
    let address = |address| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let length = (body.len() as u32).to_be_bytes();
    let pseudo = [
        address(ip.source).as_slice(),
        &address(ip.destination),
        &[0, ip.protocol.0],
        &length,
    ]
    .concat();
    let pseudo = if ip.protocol == IpNumber::ICMP {
        &[][..]
    } else {
        &pseudo
    };
    sum(&[pseudo, body].concat())
}
