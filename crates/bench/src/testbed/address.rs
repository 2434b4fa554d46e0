//! Who has which address in the network, in either family.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_policy::Family;

/// Of the client and the gateway on the LAN, and of the server, where one family is enough.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Every address of 203.0.113.0/24 is the server's.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// A network, and how many bits of its addresses are its own.
pub type Prefix = (IpAddr, u8);

pub fn client(family: Family) -> IpAddr {
    match family {
        Family::V4 => CLIENT.into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 2).into(),
    }
}

pub fn gateway(family: Family) -> IpAddr {
    match family {
        Family::V4 => GATEWAY.into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1).into(),
    }
}

pub fn lan(family: Family) -> Prefix {
    match family {
        Family::V4 => ([10, 0, 0, 0].into(), 24),
        Family::V6 => (Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0).into(), 64),
    }
}

/// The server's address `number`.
pub fn server(family: Family, number: u8) -> IpAddr {
    match family {
        Family::V4 => [203, 0, 113, number].into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, number.into()).into(),
    }
}

/// Whichever address of the host's (RFC 4291 section 2.5.2).
pub fn unspecified(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// All addresses of the server.
pub fn servers(family: Family) -> Prefix {
    (server(family, 0), lan(family).1)
}

/// The gateway's address on link `i`.
pub fn external(family: Family, i: u8) -> IpAddr {
    on_link(family, i, 2)
}

/// The ISP's address on link `i`.
pub fn isp(family: Family, i: u8) -> IpAddr {
    on_link(family, i, 1)
}

pub fn link(family: Family, i: u8) -> Prefix {
    (on_link(family, i, 0), lan(family).1)
}

fn on_link(family: Family, i: u8, host: u8) -> IpAddr {
    match family {
        Family::V4 => [100, 64, i, host].into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, i.into(), 0, 0, 0, 0, host.into()).into(),
    }
}
