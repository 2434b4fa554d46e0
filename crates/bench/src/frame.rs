//! Ethernet frames with IPv4 in them, all checksums right, payloads of zeros.

use std::net::SocketAddrV4;

use anyhow::Result;
use etherparse::{IpHeaders, PacketBuilder, PacketBuilderStep, TcpHeader, TcpOptionElement};

/// Without a payload.
const TCP_BYTES: usize = 54;
const UDP_BYTES: usize = 42;

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
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
    pub ttl: u8,
}

impl Ends {
    fn begin(&self) -> PacketBuilderStep<IpHeaders> {
        let (from, to) = (self.from.ip().octets(), self.to.ip().octets());
        PacketBuilder::ethernet2(self.from_mac, self.to_mac).ipv4(from, to, self.ttl)
    }

    /// A datagram in a frame of `length` bytes.
    pub fn udp(&self, length: usize) -> Result<Vec<u8>> {
        let mut frame = Vec::with_capacity(length);
        let packet = self.begin().udp(self.from.port(), self.to.port());
        packet.write(&mut frame, &vec![0; length - UDP_BYTES])?;
        Ok(frame)
    }

    /// A data segment in a frame of `length` bytes.
    pub fn segment(&self, length: usize) -> Result<Vec<u8>> {
        let mut header = TcpHeader::new(self.from.port(), self.to.port(), 256, u16::MAX);
        (header.ack, header.psh, header.acknowledgment_number) = (true, true, 256);
        self.tcp(header, length - TCP_BYTES)
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
