//! Frames of either family as tests write and read them. What is built is well formed unless a field says otherwise; what
//! is read has its checksums recomputed from scratch.

use std::net::{IpAddr, SocketAddr};

use anabranch_core::Family;
use etherparse::{
    IpFragOffset, IpNumber, Ipv4Header, Ipv6FragmentHeader, Ipv6Header, TcpHeader, UdpHeader,
};

pub const ETHERNET: usize = 14;

/// Of the device that frames arrive on.
const DEVICE_MAC: [u8; 6] = [0; 6];

/// Headers of IPv6 that others stand behind.
pub const EXTENSIONS: [IpNumber; 4] = [
    IpNumber::IPV6_HEADER_HOP_BY_HOP,
    IpNumber::IPV6_ROUTE_HEADER,
    IpNumber::IPV6_FRAGMENTATION_HEADER,
    IpNumber::IPV6_DESTINATION_OPTIONS,
];

/// The header of an IP packet, with what stands between it and the transport header.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// Of the transport header.
    pub protocol: IpNumber,
    /// Of IPv4 the time to live.
    pub hop_limit: u8,
    /// Of IPv4 the type of service.
    pub traffic_class: u8,
    /// IPv6 has it in fragments alone.
    pub identification: u32,
    pub fragment: Option<Fragment>,
    /// IPv4; nobody fragments IPv6 on its way.
    pub dont_fragment: bool,
    /// IPv4.
    pub options: Vec<u8>,
    /// IPv6.
    pub flow_label: u32,
    /// IPv6: what stands before a fragment header, each with a first byte that is filled in.
    pub extensions: Vec<(IpNumber, Vec<u8>)>,
}

/// Which piece of its datagram a fragment is.
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

    /// As it stands before `length` bytes.
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

    /// The header of a packet, the bytes behind it, and how many there should be.
    pub fn read(packet: &[u8]) -> (Header, &[u8], usize) {
        match packet[0] >> 4 {
            4 => Header::read_v4(packet),
            6 => Header::read_v6(packet),
            version => panic!("IP version {version}"),
        }
    }

    fn read_v4(packet: &[u8]) -> (Header, &[u8], usize) {
        let (ip, rest) = Ipv4Header::from_slice(packet).expect("an IPv4 header");
        assert_eq!(
            ip.header_checksum,
            ip.calc_header_checksum(),
            "the IP checksum of {ip:?}"
        );
        let fragment = Fragment {
            offset: ip.fragment_offset.value() * 8,
            more: ip.more_fragments,
        };
        let length = ip.payload_len().expect("tot_len covers the header");
        let header = Header {
            source: IpAddr::from(ip.source),
            destination: IpAddr::from(ip.destination),
            protocol: ip.protocol,
            hop_limit: ip.time_to_live,
            traffic_class: ip.dscp.value() << 2 | ip.ecn.value(),
            identification: ip.identification.into(),
            fragment: ip.is_fragmenting_payload().then_some(fragment),
            dont_fragment: ip.dont_fragment,
            options: ip.options.to_vec(),
            flow_label: 0,
            extensions: Vec::new(),
        };
        (header, rest, length.into())
    }

    fn read_v6(packet: &[u8]) -> (Header, &[u8], usize) {
        let (ip, mut rest) = Ipv6Header::from_slice(packet).expect("an IPv6 header");
        let mut length = usize::from(ip.payload_length);
        let mut header = Header {
            source: IpAddr::from(ip.source),
            destination: IpAddr::from(ip.destination),
            protocol: ip.next_header,
            hop_limit: ip.hop_limit,
            traffic_class: ip.traffic_class,
            identification: 0,
            fragment: None,
            dont_fragment: true,
            options: Vec::new(),
            flow_label: ip.flow_label.value(),
            extensions: Vec::new(),
        };
        while EXTENSIONS.contains(&header.protocol) && header.fragment.is_none() {
            let number = header.protocol;
            let size = if number == IpNumber::IPV6_FRAGMENTATION_HEADER {
                let (fragment, _) =
                    Ipv6FragmentHeader::from_slice(rest).expect("a fragment header");
                header.identification = fragment.identification;
                header.fragment = Some(Fragment {
                    offset: fragment.fragment_offset.value() * 8,
                    more: fragment.more_fragments,
                });
                8
            } else {
                let size = 8 + 8 * usize::from(rest[1]);
                header.extensions.push((number, rest[..size].to_vec()));
                size
            };
            header.protocol = IpNumber(rest[0]);
            rest = &rest[size..];
            length -= size;
        }
        (header, rest, length)
    }
}

impl Fragment {
    fn units(self) -> IpFragOffset {
        IpFragOffset::try_new(self.offset / 8).expect("within a datagram")
    }
}

/// An IP packet to be framed.
#[derive(Clone, Debug)]
pub struct Ip {
    pub header: Header,
    pub body: Vec<u8>,
}

impl Ip {
    fn new(protocol: IpNumber, source: IpAddr, destination: IpAddr, body: Vec<u8>) -> Self {
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

    /// One more extension header of IPv6, behind those that are there. Of `bytes` the first names what follows.
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

/// `packet` behind an Ethernet header from its sender, every address of whom is another host, to the gateway.
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

/// The same frame for another network card.
pub fn sent_to(mac: [u8; 6], mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&mac);
    frame
}

/// The same frame of another network card.
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

/// `flags` of S, A, F, R, P.
pub fn tcp(src: SocketAddr, dst: SocketAddr, flags: &str, seq: u32, ack: u32) -> Segment {
    let mut header = TcpHeader::new(src.port(), dst.port(), seq, 65535);
    header.acknowledgment_number = ack;
    header.syn = flags.contains('S');
    header.ack = flags.contains('A');
    header.fin = flags.contains('F');
    header.rst = flags.contains('R');
    header.psh = flags.contains('P');
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

pub fn udp(src: SocketAddr, dst: SocketAddr, payload: &[u8]) -> Ip {
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
pub fn udp_without_checksum(src: SocketAddr, dst: SocketAddr, payload: &[u8]) -> Ip {
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

/// `kinds`: its type in each family.
fn query(src: IpAddr, dst: IpAddr, kinds: [u8; 2], id: u16, payload: &[u8]) -> Ip {
    let [high, low] = id.to_be_bytes();
    let kind = kinds[Family::from(src).index()];
    icmp_error(src, dst, (kind, 0), [high, low, 0, 1], payload)
}

/// An ICMP error about `quoted`, an IP packet. `rest` is the second word of the ICMP header.
pub fn icmp_error(
    src: IpAddr,
    dst: IpAddr,
    (kind, code): (u8, u8),
    rest: [u8; 4],
    quoted: &[u8],
) -> Ip {
    let body = [&[kind, code, 0, 0], rest.as_slice(), quoted].concat();
    summed(Ip::new(icmp_of(src.into()), src, dst, body), 2)
}

pub fn icmp_of(family: Family) -> IpNumber {
    match family {
        Family::V4 => IpNumber::ICMP,
        Family::V6 => IpNumber::IPV6_ICMP,
    }
}

/// The same packet with its transport checksum, which is `at` bytes into its body.
pub fn summed(mut ip: Ip, at: usize) -> Ip {
    ip.body[at..at + 2].fill(0);
    let check = !transport_sum(&ip.header, &ip.body);
    ip.body[at..at + 2].copy_from_slice(&check.to_be_bytes());
    ip
}

/// The option that names a maximum segment size.
pub fn mss_option(mss: u16) -> [u8; 4] {
    let [high, low] = mss.to_be_bytes();
    [2, 4, high, low]
}

/// What is inside an IP packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Inside {
    Tcp(TcpHeader, Vec<u8>),
    Udp(UdpHeader, Vec<u8>),
    /// Type, code, second word, payload.
    Icmp(u8, u8, [u8; 4], Vec<u8>),
    /// A fragment's bytes.
    Piece(Vec<u8>),
}

/// A packet as it left the gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub ip: Header,
    pub inside: Inside,
}

/// One's complement sum (RFC 1071), folded.
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

/// Reads a frame, and checks every checksum in it.
pub fn read(frame: &[u8]) -> Seen {
    read_packet(&frame[ETHERNET..])
}

pub fn read_packet(packet: &[u8]) -> Seen {
    let (ip, rest, length) = Header::read(packet);
    let body = &rest[..length];
    let inside = match ip.fragment {
        Some(_) => Inside::Piece(body.to_vec()),
        None => read_transport(&ip, body),
    };
    Seen { ip, inside }
}

/// The packet an error quotes: headers only, unless all of it is quoted.
pub fn quote(error: &Seen) -> Seen {
    let (ip, rest, length) = Header::read(error.payload());
    if length <= rest.len() {
        let inside = read_transport(&ip, &rest[..length]);
        return Seen { ip, inside };
    }
    let mut body = rest.to_vec();
    body.resize(length, 0);
    let inside = parse_transport(&ip, &body);
    Seen { ip, inside }
}

fn parse_transport(ip: &Header, body: &[u8]) -> Inside {
    match ip.protocol {
        IpNumber::TCP => {
            let (tcp, payload) = TcpHeader::from_slice(body).expect("a TCP header");
            Inside::Tcp(tcp, payload.to_vec())
        }
        IpNumber::UDP => {
            let (udp, payload) = UdpHeader::from_slice(body).expect("a UDP header");
            Inside::Udp(udp, payload.to_vec())
        }
        IpNumber::ICMP | IpNumber::IPV6_ICMP => {
            let word = [body[4], body[5], body[6], body[7]];
            Inside::Icmp(body[0], body[1], word, body[8..].to_vec())
        }
        other => panic!("protocol {other:?}"),
    }
}

/// The same, with a checksum that holds.
fn read_transport(ip: &Header, body: &[u8]) -> Inside {
    let inside = parse_transport(ip, body);
    let is_without = matches!(&inside, Inside::Udp(udp, _) if udp.checksum == 0);
    if !is_without {
        assert_eq!(
            transport_sum(ip, body),
            0xffff,
            "the checksum of {inside:?}"
        );
    }
    inside
}

/// Of what stands behind the header, and of what its checksum counts beside it (RFC 768, RFC 9293, RFC 8200 section 8.1).
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

impl Seen {
    pub fn src(&self) -> SocketAddr {
        let port = match &self.inside {
            Inside::Tcp(tcp, _) => tcp.source_port,
            Inside::Udp(udp, _) => udp.source_port,
            _ => self.icmp_id(),
        };
        SocketAddr::new(self.ip.source, port)
    }

    pub fn dst(&self) -> SocketAddr {
        let port = match &self.inside {
            Inside::Tcp(tcp, _) => tcp.destination_port,
            Inside::Udp(udp, _) => udp.destination_port,
            _ => self.icmp_id(),
        };
        SocketAddr::new(self.ip.destination, port)
    }

    /// Of an echo; zero for what has no id.
    fn icmp_id(&self) -> u16 {
        match &self.inside {
            Inside::Icmp(0 | 8 | 128 | 129, _, [high, low, ..], _) => {
                u16::from_be_bytes([*high, *low])
            }
            _ => 0,
        }
    }

    pub fn tcp(&self) -> &TcpHeader {
        match &self.inside {
            Inside::Tcp(tcp, _) => tcp,
            other => panic!("not TCP: {other:?}"),
        }
    }

    /// Type and code, and the second word.
    pub fn icmp(&self) -> ((u8, u8), [u8; 4]) {
        match self.inside {
            Inside::Icmp(kind, code, word, _) => ((kind, code), word),
            _ => panic!("not ICMP: {self:?}"),
        }
    }

    pub fn payload(&self) -> &[u8] {
        match &self.inside {
            Inside::Tcp(_, payload)
            | Inside::Udp(_, payload)
            | Inside::Icmp(.., payload)
            | Inside::Piece(payload) => payload,
        }
    }

    /// The maximum segment size a SYN names.
    pub fn mss(&self) -> Option<u16> {
        let mut options = self.tcp().options_iterator();
        options.find_map(|option| match option {
            Ok(etherparse::TcpOptionElement::MaximumSegmentSize(mss)) => Some(mss),
            _ => None,
        })
    }
}
