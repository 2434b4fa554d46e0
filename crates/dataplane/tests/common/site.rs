//! What addresses the rig's site has, in either family.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_core::Family;

use crate::common;

/// The addresses of a site with two links in one family, and what messages of ICMP are called there.
pub struct Site {
    pub family: Family,
    pub lan: (IpAddr, u8),
    /// A further LAN, behind another device or a router of the first.
    pub further_lan: (IpAddr, u8),
    /// What has so many hosts that no test uses them up; no route names them.
    pub internet: IpAddr,
    pub gateway_lan: IpAddr,
    pub client: IpAddr,
    pub second_client: IpAddr,
    pub external: [IpAddr; 2],
    pub isp: [IpAddr; 2],
    pub server: IpAddr,
    pub second_server: IpAddr,
    /// A router of the internet that no flow knows.
    pub router: IpAddr,
    /// Of one line alone.
    pub on_line: IpAddr,
    /// Of no LAN and no link.
    pub stranger: IpAddr,
    pub multicast: IpAddr,
    /// All hosts on a link.
    pub everybody: IpAddr,
    pub unspecified: IpAddr,
    /// Length of the header without options and extensions.
    pub ip_header: usize,
    pub port_unreachable: (u8, u8),
    pub no_route: (u8, u8),
    pub prohibited: (u8, u8),
    pub too_big: (u8, u8),
    pub hop_limit_exceeded: (u8, u8),
}

pub const SITES: [&Site; 2] = [&IPV4, &IPV6];

pub const IPV4: Site = Site {
    family: Family::V4,
    lan: (v4(10, 0, 0, 0), 24),
    further_lan: (v4(10, 0, 9, 0), 24),
    internet: v4(20, 0, 0, 0),
    gateway_lan: IpAddr::V4(common::GATEWAY_LAN),
    client: IpAddr::V4(common::CLIENT),
    second_client: IpAddr::V4(common::SECOND_CLIENT),
    external: [
        IpAddr::V4(common::EXTERNAL[0]),
        IpAddr::V4(common::EXTERNAL[1]),
    ],
    isp: [IpAddr::V4(common::ISP[0]), IpAddr::V4(common::ISP[1])],
    server: IpAddr::V4(common::SERVER),
    second_server: IpAddr::V4(common::SECOND_SERVER),
    router: v4(100, 64, 0, 1),
    on_line: v4(169, 254, 0, 1),
    stranger: v4(192, 168, 7, 7),
    multicast: v4(224, 0, 0, 251),
    everybody: IpAddr::V4(Ipv4Addr::BROADCAST),
    unspecified: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    ip_header: 20,
    port_unreachable: (3, 3),
    no_route: (3, 0),
    prohibited: (3, 13),
    too_big: (3, 4),
    hop_limit_exceeded: (11, 0),
};

pub const IPV6: Site = Site {
    family: Family::V6,
    lan: (v6(0xfd00, 0xdb8, 0, 1, 0), 64),
    further_lan: (v6(0xfd00, 0xdb8, 0, 0x900, 0), 56),
    internet: v6(0x2001, 0xdb8, 0x20, 0, 0),
    gateway_lan: v6(0xfd00, 0xdb8, 0, 1, 1),
    client: v6(0xfd00, 0xdb8, 0, 1, 2),
    second_client: v6(0xfd00, 0xdb8, 0, 1, 3),
    external: [
        v6(0x2001, 0xdb8, 0x203, 0, 2),
        v6(0x2001, 0xdb8, 0x192, 0, 2),
    ],
    isp: [
        v6(0x2001, 0xdb8, 0x203, 0, 1),
        v6(0x2001, 0xdb8, 0x192, 0, 1),
    ],
    server: v6(0x2001, 0xdb8, 0x198, 0, 10),
    second_server: v6(0x2001, 0xdb8, 0x198, 0, 11),
    router: v6(0x2001, 0xdb8, 0x100, 0, 1),
    on_line: v6(0xfe80, 0, 0, 0, 1),
    stranger: v6(0xfd00, 0xdb8, 7, 7, 7),
    multicast: v6(0xff02, 0, 0, 0, 0xfb),
    everybody: v6(0xff02, 0, 0, 0, 1),
    unspecified: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ip_header: 40,
    port_unreachable: (1, 4),
    no_route: (1, 0),
    prohibited: (1, 1),
    too_big: (2, 0),
    hop_limit_exceeded: (3, 0),
};

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

/// The words of a /64 and the last one.
const fn v6(a: u16, b: u16, c: u16, d: u16, last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, last))
}

/// The address that is `number` behind `first`.
pub fn nth(first: IpAddr, number: u32) -> IpAddr {
    match first {
        IpAddr::V4(first) => Ipv4Addr::from(u32::from(first) + number).into(),
        IpAddr::V6(first) => Ipv6Addr::from(u128::from(first) + u128::from(number)).into(),
    }
}

impl Site {
    /// A host of the further LAN, of IPv6 in a /64 of its own.
    pub fn further_host(&self, number: u8) -> IpAddr {
        match self.further_lan.0 {
            IpAddr::V4(_) => nth(self.further_lan.0, number.into()),
            IpAddr::V6(first) => {
                let host = u128::from(first) + (u128::from(number) << 64) + 2;
                Ipv6Addr::from(host).into()
            }
        }
    }

    /// The prefix of one address.
    pub const fn host(&self, address: IpAddr) -> (IpAddr, u8) {
        match self.family {
            Family::V4 => (address, 32),
            Family::V6 => (address, 128),
        }
    }
}
