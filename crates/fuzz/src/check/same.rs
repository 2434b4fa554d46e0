//! What translation may change of a packet, byte by byte.

use super::{Case, Verdict, Way, wrong};
use crate::read::{ETHERNET, ICMP, Ip, MORE_FRAGMENTS, word};
use crate::site::*;
use crate::sum;

impl Case<'_> {
    /// Byte by byte, and by its checksum, with the changes of translation made again.
    pub(super) fn is_the_same(&self, way: Way, came: &Ip, left: &Ip, mtu: Option<u32>) -> Verdict {
        let mut expected = came.bytes.to_vec();
        let mut copy = |at: usize, length: usize| {
            expected[at..at + length].copy_from_slice(&left.bytes[at..at + length]);
        };
        copy(changed_at(way), 4);
        copy(4, 2);
        copy(8, 1);
        copy(10, 2);
        let header = came.header();
        demand!(left.header() == header, "the length of the header changed");
        if came.ports().is_some() {
            copy(header + port_at(way, came.proto()), 2);
            if let Some(check) = sum::field(came.proto()).filter(|at| at + 2 <= left.body().len()) {
                copy(header + check, 2);
            }
        }
        if came.flags().is_some_and(|flags| flags & 2 != 0) {
            let link = match self.port {
                Port::Link(link) => Some(link),
                Port::Lan(_) => link_of(left.src()),
            };
            let mtu = link.map_or(1500, |link| self.rig.told.mtu[usize::from(link)]);
            clamp_mss(&mut expected, header, left, mtu)?;
        }
        let is_cut = left.length() < came.length();
        if is_cut {
            let fits = mtu
                .is_some_and(|mtu| came.length() > mtu as usize && left.length() <= mtu as usize);
            let more = left.fragment() & MORE_FRAGMENTS != 0;
            demand!(fits && more && came.may_fragment(), "cut short");
        }
        let residue = Ip::of(&expected).map(|ip| sum::transport(&ip));
        let is_same_sum = sum::follows(sum::transport(came), residue.flatten());
        demand!(
            is_same_sum,
            "the transport checksum does not follow the translation"
        );
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

pub(super) fn changed_at(way: Way) -> usize {
    match way {
        Way::Out => 12,
        Way::In => 16,
    }
}

pub(super) fn port_at(way: Way, proto: u8) -> usize {
    match (proto, way) {
        (ICMP, _) => 4,
        (_, Way::Out) => 0,
        (_, Way::In) => 2,
    }
}

/// The MSS options of a SYN as they left, where that is lower and fits the link.
fn clamp_mss(expected: &mut [u8], header: usize, left: &Ip, mtu: u32) -> Verdict {
    let largest = (mtu - 40) as u16;
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
        Some(mss) if mss > largest => wrong(format!("an MSS of {mss} left for {mtu} bytes")),
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
