use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_core::Family;

/// An address with a prefix length: a network, or a host's address within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// Bits beyond the length may be set.
    pub address: IpAddr,
    /// In bits.
    pub length: u8,
}

impl Prefix {
    /// As given, including bits beyond the length.
    pub fn new(address: IpAddr, length: u8) -> Self {
        Self { address, length }
    }

    /// A single address.
    pub fn host(address: IpAddr) -> Self {
        Self::new(address, if address.is_ipv4() { 32 } else { 128 })
    }

    /// Every address.
    pub fn everything(family: Family) -> Self {
        match family {
            Family::V4 => Self::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            Family::V6 => Self::new(Ipv6Addr::UNSPECIFIED.into(), 0),
        }
    }

    /// The family of its address.
    pub fn family(self) -> Family {
        self.address.into()
    }

    /// Whether it is link-local (RFC 4291 section 2.5.6), so that any device may have it.
    pub fn is_of_line(self) -> bool {
        matches!(self.address, IpAddr::V6(v6) if v6.is_unicast_link_local())
    }

    /// The same network without bits beyond the length.
    pub fn network(self) -> Self {
        let address = match self.address {
            IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() & mask(self.length, 32) as u32).into()),
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & mask(self.length, 128)).into()),
        };
        Self { address, ..self }
    }

    /// Whether an address is in both.
    pub fn overlaps(self, other: Self) -> bool {
        let length = self.length.min(other.length);
        self.family() == other.family()
            && Self::new(self.address, length).network()
                == Self::new(other.address, length).network()
    }
}

/// The upper `length` of `width` bits.
fn mask(length: u8, width: u32) -> u128 {
    let ones = u128::MAX >> (128 - width);
    let below = width.saturating_sub(length.into());
    if below == 128 {
        0
    } else {
        ones >> below << below
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        let (address, length) = text.split_once('/').unwrap();
        Prefix::new(address.parse().unwrap(), length.parse().unwrap())
    }

    #[test]
    fn host_bits_are_cut() {
        for (given, network) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3/32", "10.1.2.3/32"),
            ("10.1.2.3/0", "0.0.0.0/0"),
            ("2001:db8::1/64", "2001:db8::/64"),
            ("2001:db8::1/0", "::/0"),
        ] {
            assert_eq!(prefix(given).network(), prefix(network));
        }
    }

    #[test]
    fn a_network_overlaps_what_is_inside_it_and_what_it_is_inside_of() {
        assert!(prefix("192.168.1.7/24").overlaps(prefix("192.168.0.0/16")));
        assert!(prefix("192.168.0.0/16").overlaps(prefix("192.168.1.0/24")));
        assert!(!prefix("192.168.1.0/24").overlaps(prefix("192.168.2.0/24")));
        assert!(!prefix("0.0.0.0/0").overlaps(prefix("::/0")));
    }
}
