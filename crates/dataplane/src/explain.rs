//! "Which link would this flow take, and why?" asked of the loaded program, not of a copy of its rules.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anabranch_core::{Explanation, Proto, Weighed};
use anabranch_policy::abi;

use crate::{Error, flows, gateway::Gateway};

const ETHERNET: usize = 14;
const IP: usize = 20;
/// Room for the longest transport header, wherever the answer is written behind.
const TRANSPORT: usize = 20;
const ANSWER_AT: usize = ETHERNET + IP + TRANSPORT;
const PACKET: usize = ANSWER_AT + size_of::<abi::Explanation>();

impl Gateway {
    /// Where the first packet of a flow would go now. Nothing is bound, counted or sent.
    ///
    /// # Errors
    /// [`Error::NotIpv4`]; anything the kernel refuses.
    pub fn explain(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        proto: Proto,
    ) -> Result<Explanation, Error> {
        let packet = first_packet(from, to, proto)?;
        let answer = self.run("explain", &packet, 1)?.packet;
        if answer.len() < PACKET {
            return Err(Error::ShortExplanation(answer.len()));
        }
        // SAFETY: the bytes of an abi::Explanation, a structure of integers, at any alignment.
        let raw = unsafe {
            std::ptr::read_unaligned(answer[ANSWER_AT..].as_ptr().cast::<abi::Explanation>())
        };
        Ok(explanation(&raw))
    }
}

fn explanation(raw: &abi::Explanation) -> Explanation {
    let link = (raw.link != abi::NO_TARGET).then_some(raw.link);
    let reason = &anabranch_policy::reasons()[usize::from(raw.reason)];
    let why = if link.is_some() {
        flows::why(raw.why)
    } else {
        reason.words.to_owned()
    };
    Explanation {
        link,
        class: raw.class as u8,
        why,
        bound: raw.bound != 0,
        hash: raw.hash,
        weighed: weighed(raw),
    }
}

fn weighed(raw: &abi::Explanation) -> Vec<Weighed> {
    (0..(raw.count as u16).min(abi::MAX_LINKS as u16))
        .map(|link| Weighed {
            link,
            usable: raw.usable >> link & 1 == 1,
            weight: raw.weight[usize::from(link)],
            load: raw.load[usize::from(link)],
        })
        .collect()
}

fn v4(address: SocketAddr) -> Result<Ipv4Addr, Error> {
    match address.ip() {
        IpAddr::V4(ip) => Ok(ip),
        address => Err(Error::NotIpv4 { address }),
    }
}

/// A SYN, or a UDP datagram, long enough for the answer.
fn first_packet(from: SocketAddr, to: SocketAddr, proto: Proto) -> Result<[u8; PACKET], Error> {
    const IP_LENGTH: u16 = (PACKET - ETHERNET) as u16;
    let mut packet = [0; PACKET];
    packet[12..14].copy_from_slice(&[8, 0]);
    let ip = &mut packet[ETHERNET..];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&IP_LENGTH.to_be_bytes());
    ip[8] = 64;
    ip[9] = match proto {
        Proto::Tcp => libc::IPPROTO_TCP as u8,
        Proto::Udp => libc::IPPROTO_UDP as u8,
    };
    ip[12..16].copy_from_slice(&v4(from)?.octets());
    ip[16..20].copy_from_slice(&v4(to)?.octets());
    let sum = crate::reset::checksum(&ip[..IP], 0);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let transport = &mut ip[IP..];
    transport[0..2].copy_from_slice(&from.port().to_be_bytes());
    transport[2..4].copy_from_slice(&to.port().to_be_bytes());
    match proto {
        Proto::Tcp => transport[12..14].copy_from_slice(&[5 << 4, 0x02]),
        Proto::Udp => transport[4..6].copy_from_slice(&(IP_LENGTH - IP as u16).to_be_bytes()),
    }
    Ok(packet)
}
