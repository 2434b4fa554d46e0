//! Which addresses the frames of attacks bear, and where they go.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_scenario::Family;

use super::frame::Range;
use super::site::{CONTAINER, foreign};
use crate::topology::{self, host_bits};

/// One of them.
pub(super) fn one_remote(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(198, 18, 0, 1).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// The network that is this address alone.
pub(super) fn whole(address: IpAddr) -> (IpAddr, u32) {
    (address, host_bits(address).into())
}

/// The server's.
pub(super) fn container(family: Family) -> (IpAddr, u32) {
    whole(CONTAINER.address(family, 1))
}

/// IPv6's, RFC 4291 section 2.7.1 and RFC 2464 section 7.
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
pub(super) const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
/// One of those that say that they are routers.
pub(super) const ROGUE: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xbad, 0);

/// Sixteen addresses around this one.
pub(super) fn few(address: IpAddr) -> Range {
    range_of(address, if address.is_ipv6() { 124 } else { 28 })
}

/// The upper half of the LAN's prefix, where no host is.
pub(super) fn invented(family: Family) -> Range {
    match family {
        Family::V4 => Range::prefix(Ipv4Addr::new(10, 80, 128, 0).into(), 17),
        Family::V6 => {
            let first = Ipv6Addr::new(0xfd00, 0x80, 0, 0, 0x8000, 0, 0, 0);
            Range::prefix(first.into(), 65)
        }
    }
}

/// So many addresses in the prefix of the servers that the innocents call, as far as gateways remember prefixes.
pub(super) fn beside_servers(family: Family) -> (IpAddr, u32) {
    match family {
        Family::V4 => (Ipv4Addr::new(198, 51, 100, 128).into(), 25),
        Family::V6 => (
            Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0x8000, 0, 0, 0).into(),
            121,
        ),
    }
}

/// More prefixes than a gateway has room for: 512 of IPv4, 65 536 of IPv6, and nobody there.
pub(super) fn prefixes(family: Family) -> (IpAddr, u32) {
    match family {
        Family::V4 => foreign(family),
        Family::V6 => (foreign(family).0, 32),
    }
}

/// The LAN's prefix: of IPv6 a /64, all of whose addresses a host may take for its own.
pub(super) fn lan(family: Family) -> Range {
    let (address, length) = topology::lan(family);
    range_of(address, length)
}

/// The network of this length that an address is in.
pub(super) fn range_of(address: IpAddr, length: u8) -> Range {
    let whole = if address.is_ipv6() { 128 } else { 32 };
    let mask = u128::MAX >> (128 - (whole - length));
    let network = match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & !(mask as u32)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !mask).into(),
    };
    Range::prefix(network, length.into())
}
