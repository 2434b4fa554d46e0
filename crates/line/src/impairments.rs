//! What a line may do to packets beside losing them by chance: hold them up, drop long ones, carry only some protocols.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{NEAREST, seconds};

/// The least MTU of a link that carries IPv4 (RFC 791 section 3.2).
pub const MTU_MIN_BYTES: u32 = 68;
/// That of the longest IP packet without a jumbo payload.
pub const MTU_MAX_BYTES: u32 = 65_535;

/// Nothing of it by default. What a line drops for any of these counts as lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Impairments {
    /// Each packet takes up to so much longer, drawn evenly; none overtakes another.
    #[serde(
        rename = "jitter_s",
        serialize_with = "seconds",
        skip_serializing_if = "Duration::is_zero"
    )]
    pub jitter: Duration,
    /// IP packets that are longer vanish, and nobody is told: an MTU black hole (RFC 2923 section 2.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u32>,
    /// What it carries at all.
    #[serde(skip_serializing_if = "Passage::is_all")]
    pub passage: Passage,
}

/// Which packets a line carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Passage {
    /// All.
    #[default]
    All,
    /// A captive line: what is answered there is this, and nothing else passes.
    Only(Service),
    /// Somebody filters this.
    AllBut(Service),
}

/// What may be told from other traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// UDP from or to port 53.
    Dns,
    /// ICMP and ICMPv6.
    Icmp,
}

/// What a packet is to a line that tells services apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Of no service.
    #[default]
    Other,
    /// Of this one.
    Of(Service),
    /// ARP and neighbour discovery, without which the line has no ends: every line carries it.
    Neighbours,
}

/// What a line may ask of a packet before it loses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nature {
    /// To its server.
    pub hops: u16,
    /// What it is.
    pub sort: Sort,
}

impl Nature {
    /// Of what is as near as anything, and of no service.
    pub const ORDINARY: Nature = Nature {
        hops: NEAREST,
        sort: Sort::Other,
    };
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Service::Dns => "DNS",
            Service::Icmp => "ICMP",
        })
    }
}

impl Passage {
    /// Whether nothing is dropped.
    pub fn is_all(&self) -> bool {
        *self == Passage::All
    }

    /// Whether a packet of this sort passes.
    pub fn takes(self, sort: Sort) -> bool {
        match (self, sort) {
            (Passage::All, _) | (_, Sort::Neighbours) => true,
            (Passage::Only(service), sort) => sort == Sort::Of(service),
            (Passage::AllBut(service), sort) => sort != Sort::Of(service),
        }
    }
}

impl Impairments {
    /// Whether a packet of so many bytes and this sort gets to the far end, if it is not lost by chance.
    #[inline]
    pub fn takes(&self, bytes: u32, sort: Sort) -> bool {
        self.mtu_bytes.is_none_or(|mtu_bytes| bytes <= mtu_bytes) && self.passage.takes(sort)
    }

    /// How much longer a packet takes, in ns; `draw` gives 64 random bits, and is asked only if there is jitter.
    #[inline]
    pub fn later_ns(&self, draw: impl FnOnce() -> u64) -> u64 {
        if self.jitter.is_zero() {
            return 0;
        }
        // Of 64 by 64 bits the upper half: below the jitter, evenly.
        (self.jitter.as_nanos().saturating_mul(u128::from(draw())) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_captive_line_carries_one_service_and_a_filtered_one_all_but_one() {
        let dns = Sort::Of(Service::Dns);
        let icmp = Sort::Of(Service::Icmp);
        let takes = |passage: Passage| {
            [dns, icmp, Sort::Other, Sort::Neighbours].map(|sort| passage.takes(sort))
        };
        assert_eq!(takes(Passage::All), [true; 4]);
        let captive = takes(Passage::Only(Service::Dns));
        assert_eq!(captive, [true, false, false, true]);
        let filtered = takes(Passage::AllBut(Service::Dns));
        assert_eq!(filtered, [false, true, true, true]);
    }

    #[test]
    fn a_packet_as_long_as_the_mtu_passes_and_a_longer_one_does_not() {
        let line = Impairments {
            mtu_bytes: Some(1400),
            ..Impairments::default()
        };
        let takes = [1399, 1400, 1401].map(|bytes| line.takes(bytes, Sort::Other));
        assert_eq!(takes, [true, true, false]);
        assert!(Impairments::default().takes(u32::MAX, Sort::Other));
    }

    #[test]
    fn jitter_is_from_nothing_to_all_of_it_and_no_jitter_draws_nothing() {
        let line = Impairments {
            jitter: Duration::from_millis(20),
            ..Impairments::default()
        };
        let later = [0, 1 << 63, u64::MAX].map(|bits| line.later_ns(|| bits));
        assert_eq!(later, [0, 10_000_000, 19_999_999]);
        let none = Impairments::default();
        assert_eq!(none.later_ns(|| panic!("draws")), 0);
    }
}
