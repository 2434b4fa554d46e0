//! Specific routes of links: what the kernel needs, besides a default route, to send over a particular link, and to forward beside
//! the links.
//!
//! If two links have the same network (two sticks of the same make, two ports of one modem), the main table routes it over one of
//! them. Packets that are bound to a link reach the neighbours and routers of that network by the link's own routes. If another
//! link has part of such a network, these routes come before the main table, except for what the main table routes elsewhere within
//! the network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anabranch_core::Family;
use anabranch_policy::PerFamily;

use super::{Hop, HostRoute, Prefix, RouteKind, Snapshot, TABLE_MAIN, is_private, roles};
use crate::config::{Config, Link};
use crate::plane::LinkId;
use crate::slots::Slots;

/// Maximum number of specific routes of one link. If there are more, only those to neighbours are used.
const ROUTES_MAX: usize = 256;
/// Maximum number of public networks behind devices of others.
const PUBLIC_MAX: usize = 256;

/// The part of the host's routing that the data path does not need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beside {
    /// For each link that has a device.
    pub links: BTreeMap<LinkId, Own>,
    /// Public networks that are routed to devices which are neither LAN nor link, with the device's name.
    pub public: BTreeSet<(String, Prefix)>,
}

/// Addresses and routes of one link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Own {
    /// Index of its device.
    pub ifindex: u32,
    /// Every address at which the host answers, including secondary and deprecated ones.
    pub addresses: Vec<IpAddr>,
    /// Specific routes through its device.
    pub near: PerFamily<Near>,
}

/// The specific routes of one link and family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Near {
    /// By destination.
    pub routes: BTreeMap<Prefix, NearRoute>,
    /// Whether the main table routes some of these destinations over another link.
    pub contested: bool,
}

/// Where packets to a destination are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NearRoute {
    /// Through the link's device.
    Through {
        /// The next hop of the main table.
        hop: Hop,
        /// Source address of the host's own packets.
        source: Option<IpAddr>,
    },
    /// Through a device that is no link, although the network around it is the link's.
    Elsewhere,
}

type ByPrefix<'a> = BTreeMap<Prefix, Vec<&'a HostRoute>>;

impl Beside {
    pub(super) fn derive(config: &Config, slots: &Slots, host: &Snapshot) -> Self {
        let main = main_routes(host);
        let roles = roles(config, slots, host);
        let devices = config.links.iter().filter_map(|link| {
            let device = host.devices.get(&link.device)?;
            Some((slots.id(&link.name)?, device))
        });
        let devices: BTreeMap<_, _> = devices.collect();
        let links: BTreeSet<u32> = devices.values().map(|device| device.ifindex).collect();
        let own = devices.iter().map(|(id, device)| {
            let own = Own {
                ifindex: device.ifindex,
                addresses: device.every_address.clone(),
                near: PerFamily::from_fn(|family| {
                    Near::derive(&main, family, device.ifindex, &links)
                }),
            };
            (*id, own)
        });
        let others = host
            .devices
            .iter()
            .filter(|(name, device)| name.as_str() != "lo" && !roles.contains_key(&device.ifindex));
        let others: BTreeMap<u32, &String> = others
            .map(|(name, device)| (device.ifindex, name))
            .collect();
        let public = main.iter().filter_map(|(prefix, routes)| {
            let best = routes.first().filter(|_| is_public(*prefix))?;
            let mut hops = best.hops.iter();
            let name = hops.find_map(|hop| others.get(&hop.ifindex))?;
            (best.kind == RouteKind::Unicast).then(|| ((*name).clone(), *prefix))
        });
        Self {
            links: own.collect(),
            public: public.take(PUBLIC_MAX).collect(),
        }
    }
}

impl Beside {
    /// The links that share an IPv4 network with another link.
    pub fn contested<'a>(&self, config: &'a Config, slots: &Slots) -> Vec<&'a Link> {
        let contested = config.links.iter().filter(|link| {
            let own = slots.id(&link.name).and_then(|id| self.links.get(&id));
            own.is_some_and(|own| own.near[Family::V4].contested)
        });
        contested.collect()
    }
}

impl Near {
    fn derive(main: &ByPrefix<'_>, family: Family, ifindex: u32, links: &BTreeSet<u32>) -> Self {
        let mut routes: BTreeMap<Prefix, NearRoute> = main
            .iter()
            .filter(|(prefix, _)| prefix.family() == family)
            .filter_map(|(prefix, routes)| {
                let route = routes.iter().find(|route| is_through(route, ifindex))?;
                let hop = *route.hops.iter().find(|hop| hop.ifindex == ifindex)?;
                let source = route.source;
                Some((*prefix, NearRoute::Through { hop, source }))
            })
            .collect();
        if routes.len() > ROUTES_MAX {
            let is_neighbour = |route: &NearRoute| matches!(route, NearRoute::Through { hop, .. } if hop.via.is_none());
            routes.retain(|_, route| is_neighbour(route));
        }
        let is_others = |route: &&HostRoute| {
            let mut hops = route.hops.iter();
            hops.any(|hop| hop.ifindex != ifindex && links.contains(&hop.ifindex))
        };
        let contested = routes
            .keys()
            .any(|network| within(main, *network).any(|(_, routes)| routes.iter().any(&is_others)));
        if contested {
            let networks: Vec<Prefix> = routes.keys().copied().collect();
            let inside = networks
                .into_iter()
                .flat_map(|network| within(main, network));
            let elsewhere = inside.filter(|(_, routes)| {
                let mut hops = routes[0].hops.iter();
                !hops.any(|hop| links.contains(&hop.ifindex))
            });
            for (prefix, _) in elsewhere.take(ROUTES_MAX) {
                routes.entry(*prefix).or_insert(NearRoute::Elsewhere);
            }
        }
        Self { routes, contested }
    }
}

/// The routes of the main table without default routes, the best of each destination first.
fn main_routes(host: &Snapshot) -> ByPrefix<'_> {
    let mut main = ByPrefix::new();
    let routes = host.routes.iter().filter(|route| {
        route.table == TABLE_MAIN && route.prefix.length > 0 && !route.prefix.is_of_line()
    });
    for route in routes {
        main.entry(route.prefix).or_default().push(route);
    }
    for routes in main.values_mut() {
        routes.sort_by_key(|route| route.metric);
    }
    main
}

fn is_through(route: &HostRoute, ifindex: u32) -> bool {
    let mut hops = route.hops.iter();
    route.kind == RouteKind::Unicast && hops.any(|hop| hop.ifindex == ifindex)
}

/// A network and all networks within it.
fn within<'a, 'b>(
    main: &'b ByPrefix<'a>,
    network: Prefix,
) -> impl Iterator<Item = (&'b Prefix, &'b Vec<&'a HostRoute>)> {
    let inside = main.range(network..);
    inside.take_while(move |(prefix, _)| network.overlaps(**prefix))
}

/// Whether all of it may be routed on the internet; in IPv6, whether it is global unicast (RFC 4291).
fn is_public(network: Prefix) -> bool {
    let is_global = match network.address {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_loopback() && !v4.is_multicast(),
        IpAddr::V6(v6) => v6.segments()[0] >> 13 == 1 && network.length >= 3,
    };
    is_global && !is_private(network)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tests::{FIBER, LTE, host, ip, prefix, route};
    use super::*;

    const CONFIG: &str = r#"
lan = ["lan0"]
policy = "rr"
link.fiber = { device = "wan0" }
link.lte = { device = "ppp0" }
"#;
    const FIBERS: LinkId = LinkId(0);
    const LTES: LinkId = LinkId(1);

    fn beside(host: &Snapshot) -> Beside {
        let config = Config::parse(Path::new("a.toml"), CONFIG).unwrap();
        let slots = Slots::default().assign(config.names());
        Beside::derive(&config, &slots, host)
    }

    fn near(host: &Snapshot, link: LinkId) -> Near {
        beside(host).links[&link].near[Family::V4].clone()
    }

    fn through(ifindex: u32, via: Option<&str>) -> NearRoute {
        NearRoute::Through {
            hop: Hop {
                ifindex,
                via: via.map(ip),
            },
            source: None,
        }
    }

    #[test]
    fn a_link_has_its_networks_and_routers_as_the_main_table_has_them() {
        let mut host = host();
        let router = Some("203.0.113.9");
        host.routes.push(route("198.18.0.0/16", FIBER, router, 0));
        let near = near(&host, FIBERS);
        let expected = [
            ("198.18.0.0/16", through(FIBER, router)),
            ("203.0.113.0/24", through(FIBER, None)),
        ];
        let expected = expected.map(|(network, route)| (prefix(network), route));
        assert_eq!(near.routes, BTreeMap::from(expected));
        assert!(!near.contested);
        assert!(self::near(&host, LTES).routes.is_empty());
    }

    #[test]
    fn a_network_of_two_links_is_each_ones_own_but_for_what_is_elsewhere() {
        const VPN: u32 = 5;
        let mut host = host();
        host.routes.push(route("203.0.113.0/24", LTE, None, 0));
        host.routes.push(route("203.0.113.128/25", VPN, None, 0));
        for (link, ifindex) in [(FIBERS, FIBER), (LTES, LTE)] {
            let near = near(&host, link);
            assert!(near.contested);
            let at = |network| near.routes[&prefix(network)];
            assert_eq!(at("203.0.113.0/24"), through(ifindex, None));
            assert_eq!(at("203.0.113.128/25"), NearRoute::Elsewhere);
        }
        host.routes.retain(|route| route.prefix.length != 25);
        assert_eq!(near(&host, LTES).routes.len(), 1);
    }

    #[test]
    fn public_networks_of_devices_of_others_are_told_and_private_ones_are_not() {
        const VPN: u32 = 5;
        let mut host = host();
        for network in ["2001:db8:101::/64", "192.0.2.0/28", "fd00:9::/64"] {
            host.routes.push(route(network, VPN, None, 0));
        }
        let told: Vec<String> = beside(&host)
            .public
            .iter()
            .map(|(device, network)| format!("{device} {network}"))
            .collect();
        assert_eq!(told, ["wg0 192.0.2.0/28", "wg0 2001:db8:101::/64"]);
    }
}
