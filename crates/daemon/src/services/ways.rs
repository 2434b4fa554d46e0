//! Finds how the host reaches servers, by its own routes and routing rules.

use std::net::IpAddr;

use anabranch_core::ServerAt;
use anabranch_dataplane::services::{Forwarding, ServerPath};
use anyhow::Context;
use futures_util::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia,
};

use super::config::Config;
use crate::config::SERVICE;
use crate::error::BadInput;
use crate::observe::{HostRoute, Netlink, Prefix, RouteKind, Snapshot};

/// Why no packets can be sent to a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error("no route leads to it")]
    Route,
    #[error("this host has no address of its family on the device that leads to it")]
    Source,
    #[error(
        "only the default route leads to it, and its answers would not come back this way: write a route to its network"
    )]
    Specific,
    #[error("it is an address of this host, and a server is another: packets cannot be sent to it")]
    Own,
    #[error("its device is down or has no carrier")]
    Carrier,
    #[error(
        "it is behind a router, and forwarding = \"direct\" wants it on a network of this host; \"tunnel\" does not"
    )]
    Router,
}

/// The next hop to a server, as the host would forward packets there.
pub async fn way(
    netlink: &Netlink,
    host: &Snapshot,
    server: IpAddr,
) -> anyhow::Result<Result<ServerPath, Missing>> {
    let mut messages = netlink.handle.route().get(question(server)).execute();
    match messages.try_next().await {
        Ok(Some(route)) => Ok(path(&route, host, server)),
        Ok(None) => Ok(Err(Missing::Route)),
        Err(rtnetlink::Error::NetlinkError(_)) => Ok(Err(Missing::Route)),
        Err(error) => Err(error).context("ask for a route"),
    }
}

fn question(server: IpAddr) -> RouteMessage {
    let mut message = RouteMessage::default();
    let (family, bits, address) = match server {
        IpAddr::V4(v4) => (AddressFamily::Inet, 32, RouteAddress::Inet(v4)),
        IpAddr::V6(v6) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(v6)),
    };
    message.header.address_family = family;
    message.header.destination_prefix_length = bits;
    message
        .attributes
        .push(RouteAttribute::Destination(address));
    message
}

fn path(route: &RouteMessage, host: &Snapshot, server: IpAddr) -> Result<ServerPath, Missing> {
    match route.header.kind {
        RouteType::Unicast => {}
        RouteType::Local => return Err(Missing::Own),
        _ => return Err(Missing::Route),
    }
    let mut attributes = route.attributes.iter();
    let ifindex = attributes.find_map(|attribute| match attribute {
        RouteAttribute::Oif(ifindex) => Some(*ifindex),
        _ => None,
    });
    let ifindex = ifindex.ok_or(Missing::Route)?;
    let source = route.attributes.iter().find_map(source);
    let source = source.ok_or(Missing::Source)?;
    let mut devices = host.devices.values();
    let device = devices
        .find(|device| device.ifindex == ifindex)
        .ok_or(Missing::Route)?;
    if !device.running {
        return Err(Missing::Carrier);
    }
    let router = route.attributes.iter().find_map(router);
    Ok(ServerPath {
        ifindex,
        next_hop: (!device.layer3).then_some(router.unwrap_or(server)),
        source,
    })
}

/// What a service needs beside a route that a server can be reached by.
pub fn suits(
    path: ServerPath,
    forwarding: Forwarding,
    host: &Snapshot,
    server: IpAddr,
) -> Result<ServerPath, Missing> {
    let mut routes = host.routes.iter();
    match forwarding {
        Forwarding::Nat if !routes.any(|route| is_specific(route, server)) => {
            Err(Missing::Specific)
        }
        Forwarding::Direct if path.next_hop != Some(server) => Err(Missing::Router),
        _ => Ok(path),
    }
}

fn source(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::PrefSource(RouteAddress::Inet(v4)) => Some((*v4).into()),
        RouteAttribute::PrefSource(RouteAddress::Inet6(v6)) => Some((*v6).into()),
        _ => None,
    }
}

fn is_specific(route: &HostRoute, server: IpAddr) -> bool {
    let Prefix { length, .. } = route.prefix;
    length > 0 && route.kind == RouteKind::Unicast && route.prefix.overlaps(Prefix::host(server))
}

/// Whether the most specific route to a server has a next hop. Of a server without a route nothing is known yet.
fn is_behind_router(host: &Snapshot, server: IpAddr) -> bool {
    let routes = host
        .routes
        .iter()
        .filter(|route| is_specific(route, server));
    let route = routes.max_by_key(|route| route.prefix.length);
    route.is_some_and(|route| route.hops.iter().any(|hop| hop.via.is_some()))
}

fn router(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(v4)) => Some((*v4).into()),
        RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => Some((*v6).into()),
        RouteAttribute::Via(RouteVia::Inet(v4)) => Some((*v4).into()),
        RouteAttribute::Via(RouteVia::Inet6(v6)) => Some((*v6).into()),
        _ => None,
    }
}

/// Refuses a configuration that contradicts the state of the host: a virtual endpoint at which NAT of a link gives ports to LAN
/// hosts, or devices that do not exist.
pub(crate) fn check(config: &Config, host: &Snapshot) -> Result<(), BadInput> {
    if let Some(unknown) = config
        .devices
        .iter()
        .find(|name| !host.devices.contains_key(*name))
    {
        let known: Vec<&str> = host.devices.keys().map(String::as_str).collect();
        let problem = format!(
            "device {unknown:?} does not exist; there are {}",
            known.join(", ")
        );
        return Err(config.bad(SERVICE, problem));
    }
    for service in &config.services {
        let mut servers = service.endpoints();
        let far = servers.find(|server| {
            service.forwarding == Forwarding::Direct && is_behind_router(host, server.ip())
        });
        if let Some(server) = far {
            let problem = format!("{}: {}", ServerAt(server), Missing::Router);
            return Err(config.bad(&format!("{SERVICE}.{}.servers", service.name), problem));
        }
    }
    let Some(gateway) = &config.gateway else {
        return Ok(());
    };
    let links = gateway
        .links
        .iter()
        .filter_map(|name| host.devices.get(name));
    let own: Vec<IpAddr> = links
        .flat_map(|device| device.every_address.iter().copied())
        .collect();
    let [first, last] = gateway.ports;
    for service in &config.services {
        let mut listen = service.listen.iter();
        let collides = listen
            .find(|listen| own.contains(&listen.address) && listen.overlaps_ports([first, last]));
        if let Some(endpoint) = collides {
            let problem = format!(
                "{endpoint} is a link's own address, whose ports {first} to {last} stand for LAN hosts: take a port outside them, another address, or set nat.ports"
            );
            return Err(config.bad(&format!("{SERVICE}.{}.listen", service.name), problem));
        }
    }
    Ok(())
}
