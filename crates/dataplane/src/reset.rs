//! RSTs towards the LAN for TCP flows that ended with their link, so that applications try again at once.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddrV4},
    path::Path,
};

use anabranch_policy::abi;
use aya::maps::{Map, MapData, RingBuf};
use socket2::{Domain, Protocol, Socket, Type};

use crate::{Error, object::pinned};

const IP_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const TTL: u8 = 64;
const ACK: u8 = 0x10;
const RST_ACK: u8 = 0x14;

/// The TCP flows that ended with their link, and the voice to tell of them.
pub struct Resets {
    ended: RingBuf<MapData>,
    socket: Option<ResetSocket>,
}

impl Resets {
    /// Of the ring pinned in `pins`.
    pub fn open(pins: &Path) -> Result<Self, Error> {
        let ended = RingBuf::try_from(Map::RingBuf(pinned(pins, "ended")?));
        Ok(Resets {
            ended: ended.map_err(Error::map("ended"))?,
            socket: None,
        })
    }

    /// Tells LAN hosts of the flows in the ring, and returns how many flows these were. A host that cannot be told finds
    /// out by its next packet.
    pub fn send_all(&mut self) -> Result<u64, Error> {
        let mut ended = 0;
        while let Some(item) = self.ended.next() {
            // SAFETY: the program writes records of exactly this structure of integers.
            let flow = unsafe { std::ptr::read_unaligned(item.as_ptr().cast::<abi::Ended>()) };
            let socket = match &mut self.socket {
                Some(socket) => socket,
                none => none.insert(ResetSocket::open()?),
            };
            ended += 1;
            if let Err(error) = socket.send(&flow) {
                tracing::debug!(%error, host = %flow.local.ip(), "no RST sent");
            }
        }
        Ok(ended)
    }
}

/// A raw socket that writes its own IP headers, since a RST speaks for the remote end.
struct ResetSocket(Socket);

impl ResetSocket {
    fn open() -> Result<Self, Error> {
        let socket = Socket::new(
            Domain::IPV4,
            Type::RAW,
            Some(Protocol::from(libc::IPPROTO_RAW)),
        )
        .map_err(Error::RawSocket)?;
        socket
            .set_header_included_v4(true)
            .map_err(Error::RawSocket)?;
        Ok(ResetSocket(socket))
    }

    /// Tells the LAN host of `flow` that its connection is gone: by a RST with the sequence number it expected when it
    /// last spoke, and, for a host that has come further since, by an old segment that it must answer with what it
    /// expects (RFC 9293 section 3.10.7.4). The gateway knows nothing of that answer's flow and returns an exact RST.
    fn send(&self, flow: &abi::Ended) -> io::Result<()> {
        let (IpAddr::V4(local), IpAddr::V4(remote)) = (flow.local.ip(), flow.remote.ip()) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        for (flags, seq) in [(RST_ACK, flow.seq), (ACK, flow.seq.wrapping_sub(1))] {
            let packet = segment(flow, local, remote, flags, seq);
            self.0
                .send_to(&packet, &SocketAddrV4::new(local, 0).into())?;
        }
        Ok(())
    }
}

/// A segment without data in the name of the remote end.
fn segment(
    flow: &abi::Ended,
    local: Ipv4Addr,
    remote: Ipv4Addr,
    flags: u8,
    seq: u32,
) -> [u8; IP_HEADER + TCP_HEADER] {
    let mut packet = [0; IP_HEADER + TCP_HEADER];
    let (ip, tcp) = packet.split_at_mut(IP_HEADER);
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((IP_HEADER + TCP_HEADER) as u16).to_be_bytes());
    ip[8] = TTL;
    ip[9] = libc::IPPROTO_TCP as u8;
    ip[12..16].copy_from_slice(&remote.octets());
    ip[16..20].copy_from_slice(&local.octets());
    let sum = checksum(ip, 0);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());

    tcp[0..2].copy_from_slice(&flow.remote_port.get().to_be_bytes());
    tcp[2..4].copy_from_slice(&flow.local_port.get().to_be_bytes());
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&flow.ack.to_be_bytes());
    tcp[12] = (TCP_HEADER as u8 / 4) << 4;
    tcp[13] = flags;
    let pseudo = u32::from(ip[9]) + TCP_HEADER as u32 + sum_words(&ip[12..20]);
    let sum = checksum(tcp, pseudo);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn sum_words(bytes: &[u8]) -> u32 {
    bytes
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum()
}

/// RFC 1071.
pub fn checksum(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start + sum_words(bytes);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    #[test]
    fn a_reset_speaks_for_the_remote_end_with_the_expected_sequence_number() {
        let flow = abi::Ended {
            local: Ipv4Addr::new(10, 0, 0, 5).into(),
            remote: Ipv4Addr::new(198, 51, 100, 9).into(),
            local_port: abi::BePort::new(40000),
            remote_port: abi::BePort::new(443),
            seq: 0x1122_3344,
            ack: 0x5566_7788,
            lan_ifindex: 2,
        };
        let bytes = segment(
            &flow,
            Ipv4Addr::new(10, 0, 0, 5),
            Ipv4Addr::new(198, 51, 100, 9),
            RST_ACK,
            flow.seq,
        );
        let packet = SlicedPacket::from_ip(&bytes).unwrap();
        let Some(NetSlice::Ipv4(ip)) = &packet.net else {
            panic!("not IPv4")
        };
        let Some(TransportSlice::Tcp(tcp)) = &packet.transport else {
            panic!("not TCP")
        };
        let (ip, header) = (ip.header().to_header(), tcp.to_header());
        assert_eq!(
            (ip.source, ip.destination),
            ([198, 51, 100, 9], [10, 0, 0, 5])
        );
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        assert_eq!((header.source_port, header.destination_port), (443, 40000));
        assert_eq!(
            (header.sequence_number, header.acknowledgment_number),
            (0x1122_3344, 0x5566_7788)
        );
        assert!(header.rst && header.ack && !header.syn && !header.fin);
        assert_eq!(
            header.checksum,
            header.calc_checksum_ipv4(&ip, &[]).unwrap()
        );
    }
}
