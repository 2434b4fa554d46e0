//! The default targets of probes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anabranch_core::checks::ProbeTarget;
use anabranch_policy::abi::FAMILIES;

/// The resolvers answer DNS over HTTPS at this port.
const HTTPS_PORT: u16 = 443;

/// For each family, resolvers of four operators, so that the failure of one operator does not look like a failure of the link. They
/// are probed in three ways, so that a filter does not look like one either.
pub const DEFAULT_TARGETS: [[ProbeTarget; 6]; FAMILIES] =
    [asked(RESOLVERS[0]), asked(RESOLVERS[1])];

/// For each family.
pub const RESOLVERS: [[IpAddr; 4]; FAMILIES] = [
    [
        v4([1, 1, 1, 1]),
        v4([8, 8, 8, 8]),
        v4([9, 9, 9, 9]),
        v4([208, 67, 222, 222]),
    ],
    [
        v6([0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111]),
        v6([0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888]),
        v6([0x2620, 0xfe, 0, 0, 0, 0, 0, 0xfe]),
        v6([0x2620, 0x119, 0x35, 0, 0, 0, 0, 0x35]),
    ],
];

/// Pages of two operators by which phones and browsers detect captive portals.
const PORTAL_PAGES: [&str; 2] = [
    "http:connectivitycheck.gstatic.com/generate_204 = 204",
    "http:detectportal.firefox.com/success.txt = 200 success",
];

const fn asked([a, b, c, d]: [IpAddr; 4]) -> [ProbeTarget; 6] {
    [
        ProbeTarget::resolver(a),
        ProbeTarget::Tcp(SocketAddr::new(b, HTTPS_PORT)),
        ProbeTarget::Icmp(c),
        ProbeTarget::resolver(d),
        ProbeTarget::Tcp(SocketAddr::new(a, HTTPS_PORT)),
        ProbeTarget::Icmp(b),
    ]
}

const fn v4([a, b, c, d]: [u8; 4]) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h))
}

/// The default pages for the detection of captive portals.
pub fn portal_pages() -> impl Iterator<Item = ProbeTarget> {
    PORTAL_PAGES.iter().filter_map(|page| page.parse().ok())
}

#[cfg(test)]
mod tests {
    use anabranch_core::Kind;

    use super::*;

    #[test]
    fn every_operator_is_asked_and_kinds_come_in_turn() {
        for (targets, resolvers) in DEFAULT_TARGETS.iter().zip(RESOLVERS) {
            let kinds: Vec<Kind> = targets.iter().map(ProbeTarget::kind).collect();
            let turn = [Kind::Dns, Kind::Tcp, Kind::Icmp];
            assert_eq!(kinds, [turn, turn].concat());
            for resolver in resolvers {
                let is_asked = |target: &ProbeTarget| target.address() == Some(resolver);
                assert!(targets.iter().any(is_asked), "{resolver}");
            }
        }
        assert_eq!(portal_pages().count(), PORTAL_PAGES.len());
    }
}
