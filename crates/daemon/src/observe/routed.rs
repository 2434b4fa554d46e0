//! Conditions for links without NAT that cannot be checked on this host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_core::Family;
use anabranch_core::rules::file::Remark;

use super::{Device, Prefix, Snapshot, lan_routes};
use crate::config::{Config, Link};

/// Networks that no provider routes: RFC 1918, 3927, 6598, 4193.
const PRIVATE: [(IpAddr, u8); 6] = [
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), 12),
    (IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(100, 64, 0, 0)), 10),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7),
];

/// Warns of networks of the LAN that cannot be routed beyond a link without NAT, and notes for the others what must be configured
/// there.
pub fn remarks(config: &Config, host: &Snapshot) -> Vec<Remark> {
    let networks = lan_networks(config, host);
    let routed = config.links.iter().filter(|link| !link.nat);
    routed
        .flat_map(|link| networks.iter().map(|lan| remark(config, host, link, *lan)))
        .collect()
}

fn remark(config: &Config, host: &Snapshot, link: &Link, lan: Prefix) -> Remark {
    let about = |problem: String| {
        let problem = format!("link.{}.nat = false: {problem}", link.name);
        config.bad(problem).to_string()
    };
    let device = host.devices.get(&link.device);
    let addresses = device.map_or(&[][..], |device| &device.addresses);
    let own = addresses
        .iter()
        .find(|own| lan.overlaps(Prefix::host(own.address)));
    if is_private(lan) {
        Remark::Warning(about(format!(
            "the LAN has {lan}, which is private: nothing comes back to it unless whoever is beyond the link routes it here; \
             otherwise give the link NAT, or the LAN addresses of your own"
        )))
    } else if let Some(own) = own {
        Remark::Warning(about(format!(
            "the LAN has {lan}, in which the link has its own address {}: what the provider routes here, and what its router \
             looks for on the line itself, cannot be told apart; give the LAN a network beside that of the link",
            own.address
        )))
    } else {
        let by = address(link, device, lan.family())
            .map_or(String::new(), |address| format!(" by {address}"));
        Remark::Note(about(format!(
            "the provider has to route {lan} to this host{by}, and to let packets from there pass"
        )))
    }
}

fn address(link: &Link, device: Option<&Device>, family: Family) -> Option<IpAddr> {
    let first = device.and_then(|device| device.first_address(family));
    link.address[family].or(first)
}

/// The networks that are routed to LAN devices, without duplicates.
fn lan_networks(config: &Config, host: &Snapshot) -> Vec<Prefix> {
    lan_routes(config, host)
        .into_iter()
        .map(|route| Prefix::new(route.prefix.0, route.prefix.1))
        .collect()
}

/// Whether a part of it is private.
pub(super) fn is_private(network: Prefix) -> bool {
    let private = PRIVATE.map(|(address, length)| Prefix::new(address, length));
    private.into_iter().any(|private| private.overlaps(network))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tests::{LAN, host, route};
    use super::*;

    const CONFIG: &str = r#"
lan = ["lan0"]
policy = "RR"
link.fiber = { device = "wan0", nat = false }
link.lte = { device = "ppp0" }
"#;

    fn told(host: &Snapshot) -> Vec<String> {
        let config = Config::parse(Path::new("a.toml"), CONFIG).unwrap();
        let remarks = remarks(&config, host);
        remarks.iter().map(Remark::to_string).collect()
    }

    /// The host whose LAN has one network.
    fn with_lan(network: &str) -> Snapshot {
        let mut host = host();
        let lan = |hop: &super::super::Hop| hop.ifindex == LAN;
        host.routes.retain(|known| {
            !known.hops.iter().any(lan) || known.kind != super::super::RouteKind::Unicast
        });
        host.routes.push(route(network, LAN, None, 0));
        host
    }

    #[test]
    fn private_networks_of_the_lan_are_warned_of_each_by_name() {
        let told = told(&host());
        assert_eq!(told.len(), 2, "{told:?}");
        for (line, network) in told.iter().zip(["192.168.1.0/24", "192.168.7.0/24"]) {
            let begin = format!(
                "warning: a.toml: link.fiber.nat = false: the LAN has {network}, which is private"
            );
            assert!(line.starts_with(&begin), "{line}");
        }
        for private in ["10.80.0.0/16", "172.31.0.0/16", "100.127.0.0/20"] {
            let line = self::told(&with_lan(private)).concat();
            assert!(line.contains("is private"), "{line}");
        }
    }

    #[test]
    fn of_a_public_network_it_is_told_what_the_provider_has_to_do() {
        assert_eq!(
            told(&with_lan("192.0.2.0/24")),
            [
                "note: a.toml: link.fiber.nat = false: the provider has to route 192.0.2.0/24 to this host by 203.0.113.2, and to \
                 let packets from there pass"
            ]
        );
    }

    #[test]
    fn a_network_of_the_lan_with_the_link_s_own_address_in_it_is_warned_of() {
        let line = told(&with_lan("203.0.113.0/28")).concat();
        assert!(line.starts_with("warning: "), "{line}");
        assert!(line.contains("its own address 203.0.113.2"), "{line}");
    }
}
