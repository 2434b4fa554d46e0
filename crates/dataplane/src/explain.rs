//! "Which link would this flow take, and why?" asked of the loaded program, not of a copy of its rules.

use std::net::SocketAddr;

use anabranch_core::{Explanation, Proto, Weighed};
use anabranch_policy::abi;

use crate::{Error, Ran, flows, gateway::Gateway, packet::Ends};

const ETHERNET: usize = 14;
/// Room for the longest transport header, wherever the answer is written behind.
const TRANSPORT: usize = 20;
const ANSWER: usize = size_of::<abi::Explanation>();

impl Gateway {
    /// Where the first packet of a flow would go now. Nothing is bound, counted or sent.
    ///
    /// # Errors
    /// [`Error::MixedFamilies`]; anything the kernel refuses.
    pub fn explain(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        proto: Proto,
    ) -> Result<Explanation, Error> {
        let raw = asked(from, to, proto, |packet| self.run("explain", packet, 1))?;
        Ok(explanation(&raw))
    }
}

/// What a program answers that is run on the first packet of a flow.
pub fn asked(
    from: SocketAddr,
    to: SocketAddr,
    proto: Proto,
    run: impl FnOnce(&[u8]) -> Result<Ran, Error>,
) -> Result<abi::Explanation, Error> {
    let packet = first_packet(from, to, proto)?;
    let answer = run(&packet)?.packet;
    if answer.len() < packet.len() {
        return Err(Error::ShortExplanation(answer.len()));
    }
    let answer = &answer[packet.len() - ANSWER..];
    // SAFETY: the bytes of an abi::Explanation, a structure of integers, at any alignment.
    Ok(unsafe { std::ptr::read_unaligned(answer.as_ptr().cast::<abi::Explanation>()) })
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
            response_us: (raw.fresh >> link & 1 == 1).then_some(raw.response_us[usize::from(link)]),
        })
        .collect()
}

/// A SYN, or a UDP datagram, that ends with room for the answer.
fn first_packet(from: SocketAddr, to: SocketAddr, proto: Proto) -> Result<Vec<u8>, Error> {
    let ends = Ends::new(from.ip(), to.ip())?;
    let mut transport = [0; TRANSPORT + ANSWER];
    transport[0..2].copy_from_slice(&from.port().to_be_bytes());
    transport[2..4].copy_from_slice(&to.port().to_be_bytes());
    let (protocol, checksum_at) = match proto {
        Proto::Tcp => {
            transport[12..14].copy_from_slice(&[5 << 4, 0x02]);
            (libc::IPPROTO_TCP as u8, 16)
        }
        Proto::Udp => {
            let length = transport.len() as u16;
            transport[4..6].copy_from_slice(&length.to_be_bytes());
            (libc::IPPROTO_UDP as u8, 6)
        }
    };
    let sum = ends.transport_checksum(protocol, &transport);
    transport[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![0; ETHERNET];
    frame[12..].copy_from_slice(&ends.ethertype());
    frame.extend(ends.packet(protocol, &transport));
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::SlicedPacket;

    #[test]
    fn the_question_is_a_sound_packet_that_ends_with_room_for_the_answer() {
        for (from, to, headers) in [
            ("10.0.0.5:40000", "198.51.100.9:443", 14 + 20 + 20),
            ("[2001:db8::5]:40000", "[2001:db8:f::9]:443", 14 + 40 + 20),
        ] {
            let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
            for proto in [Proto::Tcp, Proto::Udp] {
                let frame = first_packet(from, to, proto).unwrap();
                assert_eq!(frame.len(), headers + ANSWER);
                let packet = SlicedPacket::from_ethernet(&frame).unwrap();
                assert!(packet.transport.is_some(), "{proto:?}");
            }
        }
    }

    #[test]
    fn ends_of_two_families_are_no_flow() {
        let (from, to) = ("10.0.0.5:1".parse().unwrap(), "[::1]:1".parse().unwrap());
        let refused = first_packet(from, to, Proto::Tcp).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "10.0.0.5 and ::1 are of two address families: write both in one"
        );
    }
}
