//! IPv6 prefixes that are routed to this host over a link, and under which hosts keep the rest of their addresses (RFC 6296).
//!
//! A prefix is configured or detected. A client of prefix delegation (RFC 8415 section 6.3) installs an unreachable route for the
//! whole prefix, so that packets to unused parts are not sent back. Other programs and administrators install such routes, too, for
//! networks that nobody has, or for a site's networks. So a route counts only if a client of DHCP or of advertisements made it, and
//! if its addresses are global.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use anabranch_core::Family;

use super::{LinkView, Prefix, RouteKind, Snapshot, TABLE_MAIN};
use crate::config::{Config, Link};
use crate::error::BadInput;
use crate::plane::{LinkId, Route, Verdict, beyond};
use crate::slots::Slots;

/// Maximum length of a prefix. The bits after it are the host's own part.
const PREFIX_BITS_MAX: u8 = 64;
/// Two addresses with this many equal bits are of the same provider: registries allocate no longer prefixes to providers.
const PROVIDER_BITS: u8 = 32;
/// Addresses that are routed on the internet (RFC 4291 section 2.4, IANA: IPv6 Global Unicast Address Assignments).
const GLOBAL: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Assigns detected prefixes to links without a configured one, if only one link is possible: the only one
/// with IPv6, or the only one with an address of the same provider. A link keeps its prefix even if another link gets IPv6 or
/// another prefix appears.
pub fn assign(config: &Config, host: &Snapshot, links: &mut BTreeMap<LinkId, LinkView>) {
    let mut all = delegated(config, host);
    all.sort_by_key(|prefix| {
        !links
            .values()
            .any(|view| in_use(host, view) == Some(*prefix))
    });
    for prefix in all {
        let external = |view: &LinkView| view.path(Family::V6).map(|path| path.external);
        let with_v6: Vec<(LinkId, IpAddr)> = links
            .iter()
            .filter_map(|(id, view)| Some((*id, external(view)?)))
            .collect();
        let provider = Prefix::new(prefix.0.into(), PROVIDER_BITS);
        let is_meant = |address: IpAddr| provider.overlaps(Prefix::host(address));
        let meant: Vec<LinkId> = with_v6
            .iter()
            .filter(|(_, address)| with_v6.len() == 1 || is_meant(*address))
            .map(|(id, _)| *id)
            .collect();
        let has_it = |id: &LinkId| in_use(host, &links[id]) == Some(prefix);
        let former = with_v6.iter().map(|(id, _)| *id).find(has_it);
        let former = former.filter(|id| meant.len() != 1 || meant.contains(id));
        let Some(id) = former.or(meant.first().copied().filter(|_| meant.len() == 1)) else {
            continue;
        };
        if let Some(Ok(path)) = links
            .get_mut(&id)
            .map(|view| view.paths[Family::V6].path.as_mut())
        {
            path.prefix.get_or_insert(prefix);
        }
    }
}

fn in_use(host: &Snapshot, view: &LinkView) -> Option<(Ipv6Addr, u8)> {
    let mut devices = host.devices.values();
    let device = devices.find(|device| Some(device.ifindex) == view.ifindex)?;
    device.in_use.path.as_ref()?.prefix
}

/// The LAN's networks as they appear beyond the links that translate prefixes, except those that exist there themselves. No other
/// host has these addresses.
pub fn images(
    config: &Config,
    slots: &Slots,
    links: &BTreeMap<LinkId, LinkView>,
    routes: &[Route],
) -> Vec<Route> {
    let mut images = BTreeMap::new();
    let translating = config.links.iter().filter(|link| link.nat);
    for id in translating.filter_map(|link| slots.id(&link.name)) {
        let path = links.get(&id).and_then(|view| view.path(Family::V6));
        let Some(prefix) = path.and_then(|path| path.prefix) else {
            continue;
        };
        for route in routes {
            let (Verdict::Lan { .. }, (IpAddr::V6(lan), length)) = (route.verdict, route.prefix)
            else {
                continue;
            };
            if let Some((network, length)) = beyond(prefix, (lan, length)) {
                let image = (IpAddr::V6(network), length);
                images
                    .entry(image)
                    .or_insert(Verdict::Prefix { link: id, lan });
            }
        }
    }
    for route in routes {
        images.remove(&route.prefix);
    }
    let images = images.into_iter();
    images
        .map(|(prefix, verdict)| Route { prefix, verdict })
        .collect()
}

/// The configured prefix, if every network of the LAN fits into it.
pub fn written(config: &Config, link: &Link, host: &Snapshot) -> Option<(Ipv6Addr, u8)> {
    let fits = |(_, length): &(Ipv6Addr, u8)| unfit(config, host, *length).is_none();
    link.prefix6.filter(fits)
}

/// The delegated prefixes into which every network of the LAN fits.
fn delegated(config: &Config, host: &Snapshot) -> Vec<(Ipv6Addr, u8)> {
    let routes = host
        .routes
        .iter()
        .filter(|route| route.table == TABLE_MAIN && route.kind == RouteKind::Nowhere)
        .filter(|route| route.of_lease);
    let global = Prefix::new(GLOBAL.0.into(), GLOBAL.1);
    let prefixes = routes.filter_map(|route| match route.prefix.address {
        IpAddr::V6(network) if global.overlaps(route.prefix) => {
            Some((network, route.prefix.length))
        }
        _ => None,
    });
    prefixes
        .filter(|(_, length)| (1..=PREFIX_BITS_MAX).contains(length))
        .filter(|(_, length)| unfit(config, host, *length).is_none())
        .collect()
}

/// A network of the LAN that does not fit into a prefix of this length: two of its hosts, or two networks, might get the same
/// address.
fn unfit(config: &Config, host: &Snapshot, length: u8) -> Option<(String, Prefix)> {
    config.lan.iter().find_map(|name| {
        let addresses = &host.devices.get(name)?.addresses;
        let mut networks = addresses.iter().map(|address| address.network());
        let found = networks.find(|lan| lan.family() == Family::V6 && lan.length <= length)?;
        Some((name.clone(), found))
    })
}

/// Refuses a prefix that a network of the LAN does not fit into.
pub fn check(config: &Config, link: &Link, host: &Snapshot) -> Result<(), BadInput> {
    let Some((network, length)) = link.prefix6 else {
        return Ok(());
    };
    let Some((device, lan)) = unfit(config, host, length) else {
        return Ok(());
    };
    Err(config.bad(format!(
        "link.{}.prefix6 = \"{network}/{length}\": {lan} of LAN device {device} is not longer, so that hosts of the LAN would become \
         one; give the LAN longer networks, or leave prefix6 out, and they share the link's address",
        link.name
    )))
}
