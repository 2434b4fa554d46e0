//! What translation may change of a packet, byte by byte.

use super::{Case, Verdict, Way, wrong};
use crate::read::{ETHERNET, ICMP, ICMP6, Ip, MORE_FRAGMENTS, word};
use crate::site::*;
use crate::sum;

impl Case<'_> {
    /// Byte by byte, and by its checksum, with the changes of translation made again.
    pub(super) fn is_the_same(&self, way: Way, came: &Ip, left: &Ip, mtu: Option<u32>) -> Verdict {
        let mut expected = came.bytes.to_vec();
        let mut copy = |at: usize, length: usize| {
            expected[at..at + length].copy_from_slice(&left.bytes[at..at + length]);
        };
        for (at, length) in changed_in_header(way, came) {
            copy(at, length);
        }
        let header = came.header();
        demand!(left.header() == header, "the length of the header changed");
        if came.ports().is_some() {
            copy(header + port_at(way, came.proto()), 2);
            if let Some(check) = sum::field_of(came).filter(|at| at + 2 <= left.body().len()) {
                copy(header + check, 2);
            }
        }
        if came.flags().is_some_and(|flags| flags & 2 != 0) {
            let link = match self.port {
                Port::Link(link) => Some(link),
                Port::Lan(_) => link_of(left.src()),
            };
            let mtu = link.map_or(1500, |link| self.rig.told.mtu[usize::from(link)]);
            clamp_mss(&mut expected, header, left, mtu - header_bytes(came))?;
        }
        let is_cut = left.length() < came.length();
        if is_cut {
            let fits = !came.is_ipv6()
                && mtu.is_some_and(|mtu| {
                    came.length() > mtu as usize && left.length() <= mtu as usize
                });
            let more = left.fragment() & MORE_FRAGMENTS != 0;
            demand!(fits && more && came.may_fragment(), "cut short");
        }
        let residue = Ip::of(&expected).map(|ip| sum::transport(&ip));
        let is_same_sum = sum::follows(sum::transport(came), residue.flatten());
        demand!(
            is_same_sum,
            "the transport checksum does not follow the translation"
        );
        let class = |ip: &Ip| ip.is_ipv6().then(|| word(ip.bytes, 0) >> 4);
        demand!(class(came) == class(left), "the traffic class changed");
        if is_cut {
            expected[2..4].copy_from_slice(&left.bytes[2..4]);
            expected[6..8].copy_from_slice(&left.bytes[6..8]);
        }
        demand_equal(&expected[..left.length().min(expected.len())], left.bytes)?;
        self.demand_padding(came, left, is_cut)
    }

    /// Behind the packet is what was there, or nothing if it was cut.
    fn demand_padding(&self, came: &Ip, left: &Ip, is_cut: bool) -> Verdict {
        let before = self.input.len() - self.port.header() - came.length();
        let after = self.output.len() - ETHERNET - left.length();
        demand!(
            after == if is_cut { 0 } else { before },
            "{before} bytes behind the packet became {after}"
        );
        Ok(())
    }
}

pub(super) fn demand_equal(expected: &[u8], left: &[u8]) -> Verdict {
    demand!(
        expected.len() == left.len(),
        "{} bytes were expected, {} left",
        expected.len(),
        left.len()
    );
    let differs = expected.iter().zip(left).position(|(a, b)| a != b);
    match differs {
        None => Ok(()),
        Some(at) => wrong(format!(
            "byte {at} of the packet is {:02x}, not {:02x}",
            left[at], expected[at]
        )),
    }
}

/// Where an address that changes is, and how long it is.
pub(super) fn changed_at(way: Way, ip: &Ip) -> (usize, usize) {
    let (at, length) = ip.addresses();
    match way {
        Way::Out => (at, length),
        Way::In => (at + length, length),
    }
}

/// Where the sum of the header is, which IPv6 has not.
pub(super) fn header_sum(ip: &Ip) -> Option<(usize, usize)> {
    (!ip.is_ipv6()).then_some((10, 2))
}

/// What translation may change of a header: an address, a hop, the id, the sum, and the label of what leaves.
pub(super) fn changed_in_header(way: Way, ip: &Ip) -> impl Iterator<Item = (usize, usize)> {
    let id = ip.id_at().map(|at| (at, if ip.is_ipv6() { 4 } else { 2 }));
    // Half a byte of it is the traffic class, which is looked at by itself.
    let label = (ip.is_ipv6() && way == Way::Out).then_some((1, 3));
    let always = [changed_at(way, ip), (ip.ttl_at(), 1)];
    always
        .into_iter()
        .chain(id)
        .chain(label)
        .chain(header_sum(ip))
}

/// Bytes of the headers of a segment without options.
fn header_bytes(ip: &Ip) -> u32 {
    if ip.is_ipv6() { 60 } else { 40 }
}

pub(super) fn port_at(way: Way, proto: u8) -> usize {
    match (proto, way) {
        (ICMP | ICMP6, _) => 4,
        (_, Way::Out) => 0,
        (_, Way::In) => 2,
    }
}

/// The MSS options of a SYN as they left, where that is lower and fits the link.
fn clamp_mss(expected: &mut [u8], header: usize, left: &Ip, largest: u32) -> Verdict {
    let largest = largest as u16;
    let options = header + 20..header + usize::from(expected[header + 12] >> 4) * 4;
    let mut at = options.start;
    while at + 4 <= options.end {
        let (was, is) = (word(expected, at + 2), word(left.bytes, at + 2));
        if expected[at..at + 2] == [2, 4] && was > largest && is == largest {
            expected[at + 2..at + 4].copy_from_slice(&is.to_be_bytes());
        }
        at += 1;
    }
    match first_mss(&expected[options]) {
        Some(mss) if mss > largest => wrong(format!("an MSS of {mss} left for {largest} bytes")),
        _ => Ok(()),
    }
}

/// Of options that are well formed as far as that.
fn first_mss(mut options: &[u8]) -> Option<u16> {
    loop {
        options = match options {
            [1, rest @ ..] => rest,
            [2, 4, high, low, ..] => return Some(u16::from_be_bytes([*high, *low])),
            [0, ..] => return None,
            [_, length, ..] if *length >= 2 => options.get(usize::from(*length)..)?,
            _ => return None,
        }
    }
}
