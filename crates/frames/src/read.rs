//! What arrived. Whoever reads it demands that its checksums are right.

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    IpNumber, Ipv4Header, Ipv6FragmentHeader, Ipv6Header, TcpHeader, TcpOptionElement, UdpHeader,
};

use crate::build::{EXTENSIONS, Fragment, Header, Ip, transport_sum};

/// Bytes of an Ethernet header without a tag.
pub const ETHERNET: usize = 14;

impl Header {
    /// Returns the header, the bytes behind it, and how many bytes the header says there are.
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

/// What an IP packet carries.
#[derive(Clone, Debug, PartialEq)]
pub enum Inside {
    Tcp(TcpHeader, Vec<u8>),
    Udp(UdpHeader, Vec<u8>),
    /// Type, code, second word, payload.
    Icmp(u8, u8, [u8; 4], Vec<u8>),
    /// The bytes of a fragment.
    Piece(Vec<u8>),
}

/// A packet that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub ip: Header,
    pub inside: Inside,
}

/// Reads an Ethernet frame without a tag.
///
/// # Panics
/// If a header is malformed or a checksum is wrong.
pub fn read(frame: &[u8]) -> Seen {
    read_packet(&frame[ETHERNET..])
}

/// Reads an IP packet.
///
/// # Panics
/// If a header is malformed or a checksum is wrong.
pub fn read_packet(packet: &[u8]) -> Seen {
    let (ip, rest, length) = Header::read(packet);
    let body = &rest[..length];
    let inside = match ip.fragment {
        Some(_) => Inside::Piece(body.to_vec()),
        None => read_transport(&ip, body),
    };
    Seen { ip, inside }
}

/// Puts the fragments of a datagram together, and reads it.
///
/// # Panics
/// If there is a hole, another id, or a wrong checksum.
pub fn reassemble(pieces: &[Seen]) -> Seen {
    let mut body = Vec::new();
    let mut sorted = pieces.to_vec();
    let place = |piece: &Seen| piece.ip.fragment.expect("a piece");
    sorted.sort_by_key(|piece| place(piece).offset);
    for piece in &sorted {
        let at = usize::from(place(piece).offset);
        assert_eq!(at, body.len(), "no hole before {at}");
        assert_eq!(piece.ip.identification, pieces[0].ip.identification);
        body.extend_from_slice(piece.payload());
    }
    assert!(!place(sorted.last().unwrap()).more);
    let mut header = sorted[0].ip.clone();
    header.fragment = None;
    read_packet(&Ip { header, body }.packet())
}

/// The packet that an ICMP error quotes. Its checksum is checked if all of it is quoted.
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

/// Parses the transport and checks its checksum.
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

    /// The id of an echo; zero for anything else.
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

    /// Type and code, and the second word of the header.
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

    /// The maximum segment size that a SYN tells.
    pub fn mss(&self) -> Option<u16> {
        let mut options = self.tcp().options_iterator();
        options.find_map(|option| match option {
            Ok(TcpOptionElement::MaximumSegmentSize(mss)) => Some(mss),
            _ => None,
        })
    }
}
