//! RSTs towards the LAN for TCP flows that ended with their link, so that applications try again at once.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
};

use anabranch_core::{Family, PerFamily};
use anabranch_policy::abi;
use aya::maps::{Map, MapData, RingBuf};
use socket2::{Domain, Protocol, Socket, Type};

use crate::{Error, object::pinned, packet::Ends};

const TCP: u8 = libc::IPPROTO_TCP as u8;
const TCP_HEADER: usize = 20;
const ACK: u8 = 0x10;
const RST_ACK: u8 = 0x14;

/// The TCP flows that ended with their link, and the voices to tell of them.
pub struct Resets {
    ended: RingBuf<MapData>,
    sockets: PerFamily<Option<ResetSocket>>,
}

impl Resets {
    /// Of the ring pinned in `pins`.
    pub fn open(pins: &Path) -> Result<Self, Error> {
        let ended = RingBuf::try_from(Map::RingBuf(pinned(pins, "ended")?));
        Ok(Resets {
            ended: ended.map_err(Error::map("ended"))?,
            sockets: PerFamily::default(),
        })
    }

    /// Tells LAN hosts of the flows in the ring, and returns how many flows these were. A host that cannot be told finds
    /// out by its next packet.
    pub fn send_all(&mut self) -> Result<u64, Error> {
        let mut ended = 0;
        while let Some(item) = self.ended.next() {
            // SAFETY: the program writes records of exactly this structure of integers.
            let flow = unsafe { std::ptr::read_unaligned(item.as_ptr().cast::<abi::Ended>()) };
            let family = flow.local.family();
            let socket = match &mut self.sockets[family] {
                Some(socket) => socket,
                none => none.insert(ResetSocket::open(family)?),
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
    fn open(family: Family) -> Result<Self, Error> {
        let domain = match family {
            Family::V4 => Domain::IPV4,
            Family::V6 => Domain::IPV6,
        };
        let protocol = Protocol::from(libc::IPPROTO_RAW);
        let socket = Socket::new(domain, Type::RAW, Some(protocol)).map_err(Error::RawSocket)?;
        let included = match family {
            Family::V4 => socket.set_header_included_v4(true),
            Family::V6 => socket.set_header_included_v6(true),
        };
        included.map_err(Error::RawSocket)?;
        Ok(ResetSocket(socket))
    }

    fn send(&self, flow: &abi::Ended) -> Result<(), Error> {
        let to = SocketAddr::new(flow.local.ip(), 0).into();
        for packet in packets(flow)? {
            self.0.send_to(&packet, &to).map_err(Error::RawSocket)?;
        }
        Ok(())
    }
}

/// What tells the host `local` of `flow` that its connection is gone: a RST with the sequence number it expected when it
/// last spoke, and, for a host that has come further since, an old segment that it must answer with what it
/// expects (RFC 9293 section 3.10.7.4). This box knows nothing of that answer's flow and returns an exact RST.
pub fn packets(flow: &abi::Ended) -> Result<[Vec<u8>; 2], Error> {
    let (remote, host) = (flow.remote.ip(), flow.local.ip());
    let reset = segment(flow, remote, host, RST_ACK, flow.seq)?;
    let old = segment(flow, remote, host, ACK, flow.seq.wrapping_sub(1))?;
    Ok([reset, old])
}

/// A packet without data in the name of the remote end.
fn segment(
    flow: &abi::Ended,
    remote: IpAddr,
    host: IpAddr,
    flags: u8,
    seq: u32,
) -> Result<Vec<u8>, Error> {
    let ends = Ends::new(remote, host)?;
    let mut tcp = [0; TCP_HEADER];
    tcp[0..2].copy_from_slice(&flow.remote_port.get().to_be_bytes());
    tcp[2..4].copy_from_slice(&flow.local_port.get().to_be_bytes());
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&flow.ack.to_be_bytes());
    tcp[12] = (TCP_HEADER as u8 / 4) << 4;
    tcp[13] = flags;
    let sum = ends.transport_checksum(TCP, &tcp);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    Ok(ends.packet(TCP, &tcp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    fn ended(local: IpAddr, remote: IpAddr) -> abi::Ended {
        abi::Ended {
            local: local.into(),
            remote: remote.into(),
            local_port: abi::BePort::new(40000),
            remote_port: abi::BePort::new(443),
            seq: 0x1122_3344,
            ack: 0x5566_7788,
            lan_ifindex: 2,
        }
    }

    #[test]
    fn a_reset_speaks_for_the_remote_end_with_the_expected_sequence_number() {
        for (local, remote) in [
            ("10.0.0.5", "198.51.100.9"),
            ("2001:db8:1::5", "2001:db8:ffff::9"),
        ] {
            let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
            let flow = ended(local, remote);
            let bytes = segment(&flow, remote, local, RST_ACK, flow.seq).unwrap();
            let packet = SlicedPacket::from_ip(&bytes).unwrap();
            let Some(TransportSlice::Tcp(tcp)) = &packet.transport else {
                panic!("not TCP")
            };
            let header = tcp.to_header();
            let sum = match packet.net.as_ref().unwrap() {
                NetSlice::Ipv4(ip) => {
                    let ip = ip.header().to_header();
                    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                    assert_eq!(
                        (IpAddr::from(ip.source), ip.destination.into()),
                        (remote, local)
                    );
                    header.calc_checksum_ipv4(&ip, &[]).unwrap()
                }
                NetSlice::Ipv6(ip) => {
                    let ip = ip.header().to_header();
                    assert_eq!(usize::from(ip.payload_length), TCP_HEADER);
                    assert_eq!(
                        (IpAddr::from(ip.source), ip.destination.into()),
                        (remote, local)
                    );
                    header.calc_checksum_ipv6(&ip, &[]).unwrap()
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(header.checksum, sum);
            assert_eq!((header.source_port, header.destination_port), (443, 40000));
            assert_eq!(
                (header.sequence_number, header.acknowledgment_number),
                (0x1122_3344, 0x5566_7788)
            );
            assert!(header.rst && header.ack && !header.syn && !header.fin);
        }
    }
}
