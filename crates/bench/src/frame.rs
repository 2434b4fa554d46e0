//! Ethernet frames with IP in them, all checksums right, payloads of zeros.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use anyhow::Result;
use etherparse::{IpHeaders, PacketBuilder, PacketBuilderStep, TcpHeader, TcpOptionElement};

/// Without a payload, of IPv4.
const TCP_BYTES: usize = 54;
const UDP_BYTES: usize = 42;
/// What the header of IPv6 has more.
const MORE_BYTES: usize = 20;

const SYN_OPTIONS: [TcpOptionElement; 4] = [
    TcpOptionElement::MaximumSegmentSize(1460),
    TcpOptionElement::SelectiveAcknowledgementPermitted,
    TcpOptionElement::Timestamp(1, 0),
    TcpOptionElement::WindowScale(7),
];

/// Who sends to whom.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub from_mac: [u8; 6],
    pub to_mac: [u8; 6],
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub ttl: u8,
}

impl Ends {
    fn begin(&self) -> PacketBuilderStep<IpHeaders> {
        let frame = PacketBuilder::ethernet2(self.from_mac, self.to_mac);
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => frame.ipv4(from.octets(), to.octets(), self.ttl),
            (from, to) => frame.ipv6(mapped(from).octets(), mapped(to).octets(), self.ttl),
        }
    }

    fn more_bytes(&self) -> usize {
        if self.from.is_ipv6() { MORE_BYTES } else { 0 }
    }

    /// A datagram in a frame of `length` bytes.
    pub fn udp(&self, length: usize) -> Result<Vec<u8>> {
        let mut frame = Vec::with_capacity(length);
        let packet = self.begin().udp(self.from.port(), self.to.port());
        packet.write(&mut frame, &vec![0; length - UDP_BYTES - self.more_bytes()])?;
        Ok(frame)
    }

    /// A data segment in a frame of `length` bytes.
    pub fn segment(&self, length: usize) -> Result<Vec<u8>> {
        let mut header = TcpHeader::new(self.from.port(), self.to.port(), 256, u16::MAX);
        (header.ack, header.psh, header.acknowledgment_number) = (true, true, 256);
        self.tcp(header, length - TCP_BYTES - self.more_bytes())
    }

    /// A SYN that offers what Linux's does.
    pub fn syn(&self) -> Result<Vec<u8>> {
        let mut header = TcpHeader::new(self.from.port(), self.to.port(), 256, u16::MAX);
        header.syn = true;
        header.set_options(&SYN_OPTIONS)?;
        self.tcp(header, 0)
    }

    fn tcp(&self, header: TcpHeader, payload: usize) -> Result<Vec<u8>> {
        let mut frame = Vec::new();
        let packet = self.begin().tcp_header(header);
        packet.write(&mut frame, &vec![0; payload])?;
        Ok(frame)
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
