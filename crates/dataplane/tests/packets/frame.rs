//! Frames as tests write and read them. What is built is well formed unless a field says otherwise; what is read has
//! its checksums recomputed from scratch.

use std::net::{Ipv4Addr, SocketAddrV4};

use etherparse::{
    IcmpEchoHeader, Icmpv4Header, Icmpv4Slice, Icmpv4Type, IpFragOffset, IpNumber, Ipv4Header,
    TcpHeader, UdpHeader,
};

pub const ETHERNET: usize = 14;

/// An IPv4 packet to be framed.
#[derive(Clone, Debug)]
pub struct Ip {
    pub header: Ipv4Header,
    pub body: Vec<u8>,
}

impl Ip {
    fn new(protocol: IpNumber, src: Ipv4Addr, dst: Ipv4Addr, body: Vec<u8>) -> Self {
        let header = Ipv4Header::new(body.len() as u16, 64, protocol, src.octets(), dst.octets())
            .expect("the body fits");
        Ip { header, body }
    }

    pub fn ttl(mut self, ttl: u8) -> Self {
        self.header.time_to_live = ttl;
        self
    }

    pub fn id(mut self, id: u16) -> Self {
        self.header.identification = id;
        self
    }

    pub fn may_fragment(mut self) -> Self {
        self.header.dont_fragment = false;
        self
    }

    pub fn ip_options(mut self, options: &[u8]) -> Self {
        self.header.options = options.try_into().expect("a multiple of 4, at most 40");
        self
    }

    /// The bytes `from..to` of the body as a fragment, `from` a multiple of 8.
    pub fn fragment(&self, from: usize, to: usize) -> Self {
        let mut piece = self.clone().may_fragment();
        let to = to.min(self.body.len());
        piece.body = self.body[from..to].to_vec();
        piece.header.more_fragments = to < self.body.len();
        piece.header.fragment_offset =
            IpFragOffset::try_new((from / 8) as u16).expect("within a datagram");
        piece
    }

    pub fn packet(&self) -> Vec<u8> {
        let mut header = self.header.clone();
        header.set_payload_len(self.body.len()).expect("it fits");
        header.header_checksum = header.calc_header_checksum();
        [&header.to_bytes(), self.body.as_slice()].concat()
    }

    pub fn frame(&self) -> Vec<u8> {
        frame(&self.packet())
    }
}

/// `packet` behind an Ethernet header from its sender, every address of whom is another host, to the gateway.
pub fn frame(packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 8, 0];
    if let Some(source) = packet.get(12..16) {
        frame[8..12].copy_from_slice(source);
    }
    frame.extend_from_slice(packet);
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
    pub src: SocketAddrV4,
    pub dst: SocketAddrV4,
    pub header: TcpHeader,
    pub payload: Vec<u8>,
}

/// `flags` of S, A, F, R, P.
pub fn tcp(src: SocketAddrV4, dst: SocketAddrV4, flags: &str, seq: u32, ack: u32) -> Segment {
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
        let (src, dst) = (*self.src.ip(), *self.dst.ip());
        let mut header = self.header.clone();
        header.checksum = header
            .calc_checksum_ipv4_raw(src.octets(), dst.octets(), &self.payload)
            .expect("it fits");
        let body = [&header.to_bytes(), self.payload.as_slice()].concat();
        Ip::new(IpNumber::TCP, src, dst, body)
    }

    pub fn frame(&self) -> Vec<u8> {
        self.ip().frame()
    }
}

pub fn udp(src: SocketAddrV4, dst: SocketAddrV4, payload: &[u8]) -> Ip {
    let header = UdpHeader::with_ipv4_checksum(
        src.port(),
        dst.port(),
        &Ipv4Header::new(0, 64, IpNumber::UDP, src.ip().octets(), dst.ip().octets())
            .expect("empty"),
        payload,
    )
    .expect("it fits");
    let body = [header.to_bytes().as_slice(), payload].concat();
    Ip::new(IpNumber::UDP, *src.ip(), *dst.ip(), body)
}

/// UDP whose sender computed no checksum (RFC 768).
pub fn udp_without_checksum(src: SocketAddrV4, dst: SocketAddrV4, payload: &[u8]) -> Ip {
    let mut ip = udp(src, dst, payload);
    ip.body[6..8].fill(0);
    ip
}

pub fn echo(src: Ipv4Addr, dst: Ipv4Addr, id: u16, payload: &[u8]) -> Ip {
    icmp(
        src,
        dst,
        Icmpv4Type::EchoRequest(IcmpEchoHeader { id, seq: 1 }),
        payload,
    )
}

pub fn echo_reply(src: Ipv4Addr, dst: Ipv4Addr, id: u16, payload: &[u8]) -> Ip {
    icmp(
        src,
        dst,
        Icmpv4Type::EchoReply(IcmpEchoHeader { id, seq: 1 }),
        payload,
    )
}

/// An ICMP error about `quoted`, an IP packet. `rest` is the second word of the ICMP header.
pub fn icmp_error(
    src: Ipv4Addr,
    dst: Ipv4Addr,
    kind: (u8, u8),
    rest: [u8; 4],
    quoted: &[u8],
) -> Ip {
    let (type_u8, code_u8) = kind;
    let unknown = Icmpv4Type::Unknown {
        type_u8,
        code_u8,
        bytes5to8: rest,
    };
    icmp(src, dst, unknown, quoted)
}

fn icmp(src: Ipv4Addr, dst: Ipv4Addr, kind: Icmpv4Type, payload: &[u8]) -> Ip {
    let header = Icmpv4Header::with_checksum(kind, payload);
    let body = [&header.to_bytes(), payload].concat();
    Ip::new(IpNumber::ICMP, src, dst, body)
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
    pub ip: Ipv4Header,
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
    let (ip, rest) = Ipv4Header::from_slice(packet).expect("an IPv4 header");
    assert_eq!(
        ip.header_checksum,
        ip.calc_header_checksum(),
        "the IP checksum of {ip:?}"
    );
    let length = ip.payload_len().expect("tot_len covers the header");
    let body = &rest[..usize::from(length)];
    let inside = if ip.is_fragmenting_payload() {
        Inside::Piece(body.to_vec())
    } else {
        read_transport(&ip, body)
    };
    Seen { ip, inside }
}

/// The packet an error quotes, headers only.
pub fn quote(error: &Seen) -> Seen {
    let quoted = error.payload();
    let mut whole = quoted.to_vec();
    let length = u16::from_be_bytes([quoted[2], quoted[3]]);
    whole.resize(usize::from(length), 0);
    let (ip, body) = Ipv4Header::from_slice(&whole).unwrap();
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
    let inside = match ip.protocol {
        IpNumber::TCP => {
            let (tcp, rest) = TcpHeader::from_slice(body).unwrap();
            Inside::Tcp(tcp, rest.to_vec())
        }
        IpNumber::UDP => {
            let (udp, rest) = UdpHeader::from_slice(body).unwrap();
            Inside::Udp(udp, rest.to_vec())
        }
        _ => {
            let word = [body[4], body[5], body[6], body[7]];
            Inside::Icmp(body[0], body[1], word, Vec::new())
        }
    };
    Seen { ip, inside }
}

fn read_transport(ip: &Ipv4Header, body: &[u8]) -> Inside {
    match ip.protocol {
        IpNumber::TCP => {
            let (tcp, payload) = TcpHeader::from_slice(body).expect("a TCP header");
            assert_eq!(transport_sum(ip, body), 0xffff, "the checksum of {tcp:?}");
            Inside::Tcp(tcp, payload.to_vec())
        }
        IpNumber::UDP => {
            let (udp, payload) = UdpHeader::from_slice(body).expect("a UDP header");
            if udp.checksum != 0 {
                assert_eq!(transport_sum(ip, body), 0xffff, "the checksum of {udp:?}");
            }
            Inside::Udp(udp, payload.to_vec())
        }
        IpNumber::ICMP => {
            assert_eq!(sum(body), 0xffff, "the ICMP checksum of {body:?}");
            let icmp = Icmpv4Slice::from_slice(body).expect("an ICMP header");
            Inside::Icmp(
                icmp.type_u8(),
                icmp.code_u8(),
                icmp.bytes5to8(),
                icmp.payload().to_vec(),
            )
        }
        other => panic!("protocol {other:?}"),
    }
}

fn transport_sum(ip: &Ipv4Header, body: &[u8]) -> u16 {
    let length = (body.len() as u16).to_be_bytes();
    let pseudo = [
        ip.source.as_slice(),
        &ip.destination,
        &[0, ip.protocol.0],
        &length,
    ]
    .concat();
    sum(&[pseudo, body.to_vec()].concat())
}

impl Seen {
    pub fn src(&self) -> SocketAddrV4 {
        let port = match &self.inside {
            Inside::Tcp(tcp, _) => tcp.source_port,
            Inside::Udp(udp, _) => udp.source_port,
            _ => self.icmp_id(),
        };
        SocketAddrV4::new(self.ip.source.into(), port)
    }

    pub fn dst(&self) -> SocketAddrV4 {
        let port = match &self.inside {
            Inside::Tcp(tcp, _) => tcp.destination_port,
            Inside::Udp(udp, _) => udp.destination_port,
            _ => self.icmp_id(),
        };
        SocketAddrV4::new(self.ip.destination.into(), port)
    }

    /// Of an echo; zero for what has no id.
    fn icmp_id(&self) -> u16 {
        match &self.inside {
            Inside::Icmp(0 | 8, _, [high, low, ..], _) => u16::from_be_bytes([*high, *low]),
            _ => 0,
        }
    }

    pub fn tcp(&self) -> &TcpHeader {
        match &self.inside {
            Inside::Tcp(tcp, _) => tcp,
            other => panic!("not TCP: {other:?}"),
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
