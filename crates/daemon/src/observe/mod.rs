//! The state of the host, and what the data path has to know of it.
//!
//! A [`Snapshot`] has what netlink reports of devices, addresses and routes. [`Desired::derive`] combines it with the
//! configuration into what the data path must know: the path of every link, the role of every device, and the
//! destinations whose routes are more specific than "the internet". Nothing is remembered between two snapshots. So a renewed
//! address, a changed gateway, a device that was deleted and created again (with another ifindex) or a second link with the same
//! gateway address need no code of their own: the next snapshot shows the change, and the differences are applied.
//!
//! The default routes of the main table are used only to find gateways. Which of them the host prefers does not
//! affect balanced flows. All other routes of the main table take precedence over balancing.

mod advertised;
mod carrier;
mod choice;
mod delegated;
mod fib;
mod grace;
mod lease;
mod near;
mod netlink;
mod prefix;
mod routed;
pub mod rules;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use anabranch_core::checks::ProbeTarget;
use anabranch_core::{self as core, Family, LinkState, Reach};
use anabranch_policy::PerFamily;

pub use advertised::Advertised;
pub use carrier::Running;
pub use choice::{InUse, Uses};
pub use fib::ROUTES_MAX;
pub use grace::{Grace, Lack};
pub use lease::managers as lease_managers;
pub use near::{Beside, Near, NearRoute, Own};
pub use netlink::{Monitor, Netlink};
pub use prefix::Prefix;
use routed::is_private;
pub use routed::remarks as routed_remarks;
use rules::{ForeignRule, LanSide, OfLan};
pub use tables::{TABLE_LOCAL, TABLE_MAIN};

use crate::config::{Config, Inbound, Link};
use crate::error::BadInput;
use crate::host::ids;
use crate::plane::{LinkId, LinkPath, Role, Route, Verdict};
use crate::probe::RESOLVERS;
use crate::slots::Slots;

/// Devices by name, all routes of the namespace, and the routing rules of others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By name.
    pub devices: BTreeMap<String, Device>,
    /// Routes of the main and local tables, and default routes in tables of others; without those of masses.
    pub routes: Vec<HostRoute>,
    /// Groups of prefixes in the main table that have the same route.
    pub masses: Vec<Mass>,
    /// Number of prefixes in the main table.
    pub prefixes: usize,
    /// Whether the data path's table has no room for masses: [`ROUTES_MAX`].
    pub beyond_room: bool,
    /// Routing rules of others, in the order in which the kernel looks them up.
    pub rules: Vec<ForeignRule>,
    /// Devices on top of others, with a hardware address of their own.
    pub above: Vec<Above>,
}

/// A device on top of another (macvlan), such as that of a virtual router: up, and with an address. If a virtual router is not the
/// master, its device has no address, and packets to its hardware address are the master's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Above {
    /// Its own index.
    pub ifindex: u32,
    /// The index of the device below it.
    pub below: u32,
    /// Its hardware address.
    pub mac: [u8; 6],
}

/// A network device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub ifindex: u32,
    /// Whether it is up, with carrier, and sending.
    pub running: bool,
    /// In bytes of IP packets.
    pub mtu: u32,
    /// Whether packets begin with the IP header: PPP, WireGuard, tun.
    pub layer3: bool,
    /// Whether it resolves the hardware addresses of neighbours.
    pub resolves: bool,
    /// Addresses of global scope for new flows, the best first, each with the length of its network.
    pub addresses: Vec<Prefix>,
    /// All addresses of global scope at which the host answers.
    pub every_address: Vec<IpAddr>,
    /// IPv6 addresses that new flows use only if there is no other (RFC 4862 section 5.5.4).
    pub deprecated: Vec<IpAddr>,
    /// Prefixes that routers on its segment advertise.
    pub advertised: Vec<Advertised>,
    /// The IPv6 address and router that its link used last.
    pub in_use: InUse,
    /// Resolvers of its lease.
    pub resolvers: Vec<IpAddr>,
    /// Router of its lease.
    pub lease_router: Option<IpAddr>,
    /// `bridge`, `wireguard`, `veth`, ...; empty for a network card.
    pub kind: String,
    /// The bridge, bond or similar device of which this one is a port. It gets all packets of the port, and has the addresses.
    pub master: Option<Master>,
    /// IPv6 addresses that another host on the segment has (RFC 4862 section 5.4).
    pub disputed: Vec<IpAddr>,
}

/// The device that another is a port of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Master {
    /// Its name.
    pub device: String,
    /// `bridge`, `bond`, `team`, `openvswitch`, ...
    pub kind: String,
}

/// A route of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRoute {
    /// Its table.
    pub table: u32,
    /// Its destinations.
    pub prefix: Prefix,
    /// What happens to packets to these.
    pub kind: RouteKind,
    /// Routes with a smaller metric come first.
    pub metric: u32,
    /// The source address for the host's own packets, if the route has one.
    pub source: Option<IpAddr>,
    /// Next hops; several for a multipath route.
    pub hops: Vec<Hop>,
    /// Whether a DHCP client or the like made it.
    pub of_lease: bool,
}

/// The best route of a group of many prefixes that have the same routes, as in a full table of the internet. The prefixes are not
/// listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mass {
    /// Which one it is.
    pub key: MassKey,
    /// The route, without its destination.
    pub route: HostRoute,
}

/// The index of a mass, and a generation that tells apart those that had the index one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MassKey(pub u32, pub u32);

/// What happens to the packets of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// They are forwarded to its next hops.
    Unicast,
    /// They are dropped: unreachable, or a blackhole.
    Nowhere,
    /// Local, broadcast and others: they are left to the kernel.
    Kernel,
}

/// One next hop of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hop {
    /// Index of the device.
    pub ifindex: u32,
    /// The router; none for directly connected destinations.
    pub via: Option<IpAddr>,
}

impl Device {
    /// Whether new flows may have this address.
    pub fn has(&self, address: IpAddr) -> bool {
        let mut own = self.addresses.iter();
        own.any(|prefix| prefix.address == address)
    }

    /// The best address for new flows.
    pub fn first_address(&self, family: Family) -> Option<IpAddr> {
        let mut addresses = self.addresses.iter();
        let first = addresses.find(|prefix| prefix.family() == family);
        first.map(|prefix| prefix.address)
    }
}

impl Snapshot {
    /// The device on whose wire this one sends, which may be itself.
    fn below(&self, ifindex: u32) -> u32 {
        let above = self.above.iter().find(|above| above.ifindex == ifindex);
        above.map_or(ifindex, |above| above.below)
    }

    fn has(&self, address: IpAddr) -> bool {
        let own = Prefix::host(address);
        let mut routes = self.routes.iter();
        routes.any(|route| route.table == TABLE_LOCAL && route.prefix == own)
    }

    /// The default routes through a device: those of the main table first, then those of others' tables. Of equal metrics, a route
    /// of an administrator comes first.
    fn default_routes(&self, ifindex: u32, family: Family) -> Vec<(&HostRoute, Hop)> {
        let is_default = |route: &&HostRoute| {
            route.prefix == Prefix::everything(family)
                && route.kind == RouteKind::Unicast
                && !ids::is_own_table(route.table)
        };
        let routes = self.routes.iter().filter(is_default);
        let mut all: Vec<_> = routes
            .flat_map(|route| route.hops.iter().map(move |hop| (route, *hop)))
            .filter(|(_, hop)| hop.ifindex == ifindex)
            .collect();
        all.sort_by_key(|(route, _)| (route.table != TABLE_MAIN, route.metric, route.of_lease));
        all
    }
}

/// Why a link cannot be used at present.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Missing {
    #[error("the device does not exist")]
    Device,
    #[error("the device is a port of {kind} {device}: name {device} in its place", kind = .0.kind, device = .0.device)]
    Port(Master),
    #[error("the device has no {0} address")]
    Address(Family),
    #[error("the device does not have the configured address {0}")]
    ConfiguredAddress(IpAddr),
    #[error(
        "no gateway is known: give the link a `{}`, or the host a default route through the device",
        gateway_key(*.0)
    )]
    Gateway(Family),
    #[error(
        "its gateway {0} is this host's own address: correct its `gateway` or the default route"
    )]
    OwnGateway(IpAddr),
    #[error("its network {wan} overlaps {lan} of LAN device {device}")]
    OverlapsLan {
        wan: Prefix,
        lan: Prefix,
        device: String,
    },
}

/// The configuration key for a link's gateway.
fn gateway_key(family: Family) -> &'static str {
    match family {
        Family::V4 => "gateway",
        Family::V6 => "gateway6",
    }
}

impl Missing {
    fn kind(&self) -> core::Missing {
        match self {
            Self::Device => core::Missing::Device,
            Self::Port(_) => core::Missing::Device,
            Self::Address(_) | Self::ConfiguredAddress(_) | Self::OverlapsLan { .. } => {
                core::Missing::Address
            }
            Self::Gateway(_) | Self::OwnGateway(_) => core::Missing::Gateway,
        }
    }
}

/// The state of a link on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkView {
    /// Index of its device, if that exists.
    pub ifindex: Option<u32>,
    /// Whether the device is up and has carrier.
    pub running: bool,
    /// Its path to the internet.
    pub paths: PerFamily<PathView>,
}

/// The state of a link on the host, for one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathView {
    /// Addresses and gateway are kept while a cable is unplugged.
    pub path: Result<LinkPath, Missing>,
    /// Probe targets, and how much of the path each proves. Never empty.
    pub targets: Vec<(ProbeTarget, Reach)>,
    /// Resolvers for the names of pages.
    pub resolvers: Vec<IpAddr>,
    /// Other addresses of the device. Flows that use one of these keep it.
    pub others: Vec<IpAddr>,
    /// What is missing at present, if the former path is kept.
    pub lacks: Option<Lack>,
}

impl PathView {
    /// Far hosts that may be probed for the path MTU.
    pub fn far_hosts(&self) -> Vec<IpAddr> {
        let far = self
            .targets
            .iter()
            .filter(|(_, reach)| *reach == Reach::Far);
        let hosts: BTreeSet<IpAddr> = far.filter_map(|(target, _)| target.address()).collect();
        hosts.into_iter().collect()
    }
}

impl LinkView {
    /// The state for the balancer.
    pub fn state(&self, family: Family) -> LinkState {
        let path = &self.paths[family];
        match &path.path {
            Err(missing) => LinkState::Absent(missing.kind()),
            Ok(_) if !self.running => LinkState::Absent(core::Missing::Carrier),
            Ok(_) if path.lacks == Some(Lack::Address) => LinkState::Changing,
            Ok(_) => LinkState::Present,
        }
    }

    /// The path of a family, if there is one.
    pub fn path(&self, family: Family) -> Option<&LinkPath> {
        self.paths[family].path.as_ref().ok()
    }

    /// The same, but only while its device is running.
    pub fn usable(&self, family: Family) -> Option<&LinkPath> {
        self.path(family).filter(|_| self.running)
    }
}

/// How a program has to be attached to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The name of the device.
    pub device: String,
    /// The role of the device in the gateway.
    pub role: Role,
    /// Whether packets begin with the IP header.
    pub layer3: bool,
    /// In bytes of IP packets.
    pub mtu: u32,
}

/// What the data path must know of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Desired {
    /// The state of each link.
    pub links: BTreeMap<LinkId, LinkView>,
    /// By ifindex.
    pub attachments: BTreeMap<u32, Attachment>,
    /// Sorted by prefix, each prefix once.
    pub routes: Vec<Route>,
    /// The verdicts for the prefixes of masses.
    pub masses: Vec<(MassKey, Verdict)>,
    /// Whether there is no room for masses. Then destinations without an entry are left to the kernel.
    pub beyond_room: bool,
    /// LAN devices that do not exist.
    pub absent_lan: Vec<String>,
    /// Routing rules of others.
    pub rules: Vec<ForeignRule>,
    /// Whether some of these rules may apply to packets of the LAN.
    pub ask_kernel: bool,
    /// Whether the kernel's answer to programs misses one of these rules: [`rules::hide_one`].
    pub hides_rule: bool,
    /// The part that only the host's own routing needs.
    pub beside: Beside,
    /// Hardware addresses of devices on top of ours, each with the index of ours.
    pub own_macs: BTreeSet<(u32, [u8; 6])>,
}

impl Desired {
    /// Derives it from the configuration and the state of the host.
    pub fn derive(config: &Config, slots: &Slots, host: &Snapshot) -> Self {
        let mut links: BTreeMap<_, _> = config
            .links
            .iter()
            .filter_map(|link| Some((slots.id(&link.name)?, link_view(config, link, host))))
            .collect();
        delegated::assign(config, host, &mut links);
        share_segments(host, &mut links);
        let roles = roles(config, slots, host);
        let mut routes = routes(&roles, host);
        let images = delegated::images(config, slots, &links, &routes);
        routes.extend(images);
        routes.sort_by_key(|route| route.prefix);
        let speaking: Vec<&ForeignRule> = rules_of_lan(config, host, &routes)
            .filter_map(|(rule, of_lan)| (of_lan == OfLan::Maybe).then_some(rule))
            .collect();
        Self {
            links,
            rules: host.rules.clone(),
            ask_kernel: !speaking.is_empty(),
            hides_rule: rules::hide_one(speaking.into_iter()),
            beside: Beside::derive(config, slots, host),
            masses: masses(&roles, host),
            beyond_room: host.beyond_room,
            routes,
            attachments: attachments(&roles, host),
            own_macs: own_macs(&roles, host),
            absent_lan: config
                .lan
                .iter()
                .filter(|name| !host.devices.contains_key(*name))
                .cloned()
                .collect(),
        }
    }

    /// The part that can be applied to the host: without paths whose address the host does not have.
    pub fn of_host(&self) -> Self {
        let mut here = self.clone();
        for (family, path) in here
            .links
            .values_mut()
            .flat_map(|view| view.paths.iter_mut())
        {
            if path.lacks == Some(Lack::Address) {
                path.path = Err(Missing::Address(family));
            }
        }
        here
    }

    /// The devices of the links, and whether they are running.
    pub fn running(&self) -> Running {
        let views = self.links.values();
        views
            .filter_map(|view| Some((view.ifindex?, view.running)))
            .collect()
    }
}

/// Marks links whose networks overlap as on one segment, as with two ports of a modem. Hosts on it may send packets for one of the
/// links to the other's device.
fn share_segments(host: &Snapshot, links: &mut BTreeMap<LinkId, LinkView>) {
    for family in Family::ALL {
        let network = |view: &LinkView| {
            let path = view.path(family)?;
            let mut devices = host.devices.values();
            let device = devices.find(|device| device.ifindex == path.ifindex)?;
            let mut own = device.addresses.iter();
            own.find(|own| own.address == path.external).copied()
        };
        let networks: Vec<_> = links
            .iter()
            .filter_map(|(id, view)| Some((*id, network(view)?)))
            .collect();
        for (id, view) in links.iter_mut() {
            let own = networks.iter().find(|(other, _)| other == id);
            let shares = own.is_some_and(|(_, own)| {
                let mut others = networks.iter().filter(|(other, _)| other != id);
                others.any(|(_, other)| own.overlaps(*other))
            });
            if let Ok(path) = &mut view.paths[family].path {
                path.shares_segment = shares;
            }
        }
    }
}

fn link_view(config: &Config, link: &Link, host: &Snapshot) -> LinkView {
    let device = host.devices.get(&link.device);
    let path_view = |family| {
        let path = device.map_or(Err(Missing::Device), |device| {
            link_path(config, link, device, host, family)
        });
        PathView {
            targets: targets(link, device, path.as_ref().ok(), family),
            others: others(device, path.as_ref().ok(), family),
            resolvers: resolvers(device, family),
            path,
            lacks: None,
        }
    };
    LinkView {
        ifindex: device.map(|device| device.ifindex),
        running: device.is_some_and(|device| device.running),
        paths: PerFamily::from_fn(path_view),
    }
}

fn others(device: Option<&Device>, path: Option<&LinkPath>, family: Family) -> Vec<IpAddr> {
    let all = device.map_or(&[][..], |device| &device.addresses);
    let of_family = all.iter().filter(|prefix| prefix.family() == family);
    let addresses = of_family.map(|prefix| prefix.address);
    addresses
        .filter(|address| path.is_none_or(|path| path.external != *address))
        .collect()
}

/// Resolvers of the lease, which a captive portal usually lets pass, and then public ones.
fn resolvers(device: Option<&Device>, family: Family) -> Vec<IpAddr> {
    let own = device.map_or(&[][..], |device| &device.resolvers);
    let all = own.iter().copied().chain(RESOLVERS[family.index()]);
    all.filter(|address| Family::from(*address) == family)
        .collect()
}

/// Targets of the configuration, and those that follow from the lease and the default route, unless the configuration replaces
/// them. A target in the link's own network proves nothing about the internet.
fn targets(
    link: &Link,
    device: Option<&Device>,
    path: Option<&LinkPath>,
    family: Family,
) -> Vec<(ProbeTarget, Reach)> {
    let gateway = path.and_then(|path| path.gateway);
    let reach = |target: &ProbeTarget| {
        let Some(address) = target.address() else {
            return Reach::Far;
        };
        let is_own = |prefix: &Prefix| prefix.overlaps(Prefix::host(address));
        let is_near = gateway == Some(address)
            || device.is_some_and(|device| device.addresses.iter().any(is_own));
        if is_near { Reach::Near } else { Reach::Far }
    };
    let resolvers = device.map_or(&[][..], |device| &device.resolvers);
    let resolvers = resolvers.iter().copied();
    let found = gateway
        .map(ProbeTarget::Icmp)
        .into_iter()
        .chain(resolvers.map(ProbeTarget::resolver))
        .filter(|target| target.is_of(family));
    let mut all = link.targets(family);
    if link.written_targets(family).next().is_none() {
        for target in found {
            if !all.contains(&target) {
                all.push(target);
            }
        }
    }
    all.into_iter()
        .map(|target| {
            let reach = reach(&target);
            (target, reach)
        })
        .collect()
}

fn link_path(
    config: &Config,
    link: &Link,
    device: &Device,
    host: &Snapshot,
    family: Family,
) -> Result<LinkPath, Missing> {
    if let Some(master) = &device.master {
        return Err(Missing::Port(master.clone()));
    }
    if let Some(overlap) = overlap(config, device, host, family) {
        return Err(overlap);
    }
    let defaults = host.default_routes(device.ifindex, family);
    let mut default = choice::router(device, family, &defaults);
    let preferred = default.and_then(|(route, _)| route.source);
    let router = link.gateway[family].or(default.and_then(|(_, hop)| hop.via));
    let best = match family {
        Family::V4 => device.first_address(family),
        Family::V6 => device.best_v6(router, |own| lan_network(config, host, own).is_some()),
    };
    let external = external(link, device, preferred, best, family);
    if let (Family::V6, Ok(external)) = (family, &external) {
        default = default.map(|chosen| choice::router_of(device, *external, chosen, &defaults));
    }
    // Every link counts as IPv4 until it has an address; a family of IPv6 begins with an address.
    if family == Family::V6 && external == Err(Missing::Address(family)) {
        return Err(Missing::Address(family));
    }
    let of_lease = device
        .lease_router
        .filter(|router| default.is_none() && !device.layer3 && Family::from(*router) == family);
    let of_route = default.and_then(|(_, hop)| hop.via);
    let gateway = link.gateway[family].or(of_route).or(of_lease);
    // On Ethernet, a default route without a gateway means that every destination is a neighbour (proxy ARP, RFC 1027).
    if gateway.is_none() && default.is_none() && !device.layer3 {
        return Err(Missing::Gateway(family));
    }
    if let Some(own) = gateway.filter(|address| host.has(*address)) {
        return Err(Missing::OwnGateway(own));
    }
    Ok(LinkPath {
        external: external?,
        gateway,
        prefix: delegated::written(config, link, host).filter(|_| family == Family::V6),
        inbound: link.inbound == Inbound::Allow && family == Family::V6,
        ifindex: device.ifindex,
        mtu: device.mtu,
        point_to_point: device.layer3,
        shares_segment: false,
    })
}

/// The configured address, or the source address of the default route, or the best one.
fn external(
    link: &Link,
    device: &Device,
    preferred: Option<IpAddr>,
    best: Option<IpAddr>,
    family: Family,
) -> Result<IpAddr, Missing> {
    let has = |address: &IpAddr| device.has(*address);
    match link.address[family] {
        Some(address) if has(&address) => Ok(address),
        Some(address) => Err(Missing::ConfiguredAddress(address)),
        None => preferred
            .filter(has)
            .or(best)
            .ok_or(Missing::Address(family)),
    }
}

/// The error of a network that is both in the LAN and on the link, where it is ambiguous. In IPv6 any host on the segment can
/// advertise a network of the LAN, so that is an error only if the link has no other address.
fn overlap(config: &Config, wan: &Device, host: &Snapshot, family: Family) -> Option<Missing> {
    let own = wan.addresses.iter().filter(|own| own.family() == family);
    let overlaps = own.map(|own| {
        let (device, lan) = lan_network(config, host, *own)?;
        Some(Missing::OverlapsLan {
            wan: own.network(),
            lan: lan.network(),
            device: device.clone(),
        })
    });
    match family {
        Family::V4 => overlaps.flatten().next(),
        Family::V6 => overlaps.collect::<Option<Vec<_>>>()?.into_iter().next(),
    }
}

/// The network of a LAN device that overlaps with this one.
fn lan_network<'a>(
    config: &'a Config,
    host: &Snapshot,
    wan: Prefix,
) -> Option<(&'a String, Prefix)> {
    config.lan.iter().find_map(|name| {
        let mut own = host.devices.get(name)?.addresses.iter();
        let lan = own.find(|lan| lan.overlaps(wan))?;
        Some((name, *lan))
    })
}

/// The routes through LAN devices.
pub fn lan_routes(config: &Config, host: &Snapshot) -> Vec<Route> {
    let slots = Slots::default().assign(config.names());
    let all = routes(&roles(config, &slots, host), host).into_iter();
    all.filter(|route| matches!(route.verdict, Verdict::Lan { .. }))
        .collect()
}

/// Whether each rule of others may apply to packets of the LAN.
pub fn rules_of_lan<'a>(
    config: &Config,
    host: &'a Snapshot,
    routes: &[Route],
) -> impl Iterator<Item = (&'a ForeignRule, OfLan)> {
    let devices: BTreeSet<String> = config.lan.iter().cloned().collect();
    let mut networks: Vec<Prefix> = routes
        .iter()
        .filter(|route| matches!(route.verdict, Verdict::Lan { .. }))
        .map(|route| Prefix::new(route.prefix.0, route.prefix.1))
        .collect();
    let by_lan = |hop: &Hop| {
        let mut devices = config.lan.iter().filter_map(|name| host.devices.get(name));
        devices.any(|device| device.ifindex == hop.ifindex)
    };
    // Any source is possible there.
    if host
        .masses
        .iter()
        .any(|mass| mass.route.hops.iter().any(by_lan))
    {
        networks.extend(Family::ALL.map(Prefix::everything));
    }
    host.rules.iter().map(move |rule| {
        let lan = LanSide {
            devices: &devices,
            networks: &networks,
        };
        (rule, rule.of_lan(lan))
    })
}

/// Roles of the configured devices that exist, by ifindex. Ports of a bridge or bond have none, because packets that a program
/// takes from a port never reach its bridge.
fn roles(config: &Config, slots: &Slots, host: &Snapshot) -> BTreeMap<u32, Role> {
    let device = |name: &String| {
        let device = host.devices.get(name);
        device.filter(|device| device.master.is_none())
    };
    let lan = config.lan.iter().filter_map(device);
    let lan = lan.map(|device| {
        let own = device.addresses.iter().map(|prefix| prefix.address);
        (device.ifindex, Role::lan(own))
    });
    let links = config.links.iter().filter_map(|link| {
        let device = device(&link.device)?;
        Some((device.ifindex, Role::Link(slots.id(&link.name)?)))
    });
    lan.chain(links).collect()
}

fn attachments(roles: &BTreeMap<u32, Role>, host: &Snapshot) -> BTreeMap<u32, Attachment> {
    host.devices
        .iter()
        .filter_map(|(name, device)| {
            let role = *roles.get(&device.ifindex)?;
            Some((
                device.ifindex,
                Attachment {
                    device: name.clone(),
                    role,
                    layer3: device.layer3,
                    mtu: device.mtu,
                },
            ))
        })
        .collect()
}

/// The devices on top of ours, without those that have a role of their own.
fn own_macs(roles: &BTreeMap<u32, Role>, host: &Snapshot) -> BTreeSet<(u32, [u8; 6])> {
    let has_role = |ifindex| roles.contains_key(ifindex);
    let parts = host.above.iter();
    let parts = parts.filter(|above| has_role(&above.below) && !has_role(&above.ifindex));
    parts.map(|above| (above.below, above.mac)).collect()
}

/// Specific routes of the main table, lowest metric first, and local addresses of the host, which take precedence.
fn routes(roles: &BTreeMap<u32, Role>, host: &Snapshot) -> Vec<Route> {
    let mut by_rank: Vec<&HostRoute> = host
        .routes
        .iter()
        .filter(|route| {
            route.table == TABLE_LOCAL || (route.table == TABLE_MAIN && route.prefix.length > 0)
        })
        .filter(|route| !route.prefix.is_of_line())
        .collect();
    // If both sides have it, it is the LAN's, because any host on the segment of a link can advertise it there.
    let is_lans = |route: &HostRoute| {
        let mut hops = route.hops.iter();
        hops.any(|hop| matches!(roles.get(&hop.ifindex), Some(Role::Lan { .. })))
    };
    by_rank.sort_by_key(|route| (route.table != TABLE_LOCAL, route.metric, !is_lans(route)));
    let mut verdicts: BTreeMap<Prefix, Verdict> = never_forwarded()
        .into_iter()
        .map(|prefix| (prefix, Verdict::Kernel))
        .collect();
    for route in by_rank {
        verdicts
            .entry(route.prefix)
            .or_insert_with(|| verdict(roles, host, route));
    }
    verdicts
        .into_iter()
        .map(|(prefix, verdict)| Route {
            prefix: (prefix.address, prefix.length),
            verdict,
        })
        .collect()
}

fn masses(roles: &BTreeMap<u32, Role>, host: &Snapshot) -> Vec<(MassKey, Verdict)> {
    let verdict = |mass: &Mass| (mass.key, verdict(roles, host, &mass.route));
    host.masses.iter().map(verdict).collect()
}

/// Destinations that no router forwards: multicast, broadcast, and link-local addresses, which every IPv6 device has.
fn never_forwarded() -> [Prefix; 4] {
    [
        Prefix::new(IpAddr::from([224, 0, 0, 0]), 4),
        Prefix::host(IpAddr::from([255, 255, 255, 255])),
        Prefix::new(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8),
        Prefix::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).into(), 10),
    ]
}

/// The verdict for a route. An address or network of a device on top of one of ours belongs to ours.
fn verdict(roles: &BTreeMap<u32, Role>, host: &Snapshot, route: &HostRoute) -> Verdict {
    let place = |hop: &Hop| match roles.contains_key(&hop.ifindex) {
        true => *hop,
        false => Hop {
            ifindex: host.below(hop.ifindex),
            ..*hop
        },
    };
    let hop = route.hops.first().map(place);
    if route.table == TABLE_LOCAL {
        return match hop.and_then(|hop| Some((hop.ifindex, roles.get(&hop.ifindex)?))) {
            Some((ifindex, Role::Lan { .. })) => Verdict::LocalInLan { ifindex },
            _ => Verdict::Local,
        };
    }
    let Some(hop) = hop.filter(|_| route.kind == RouteKind::Unicast) else {
        return Verdict::Kernel;
    };
    match roles.get(&hop.ifindex) {
        Some(Role::Lan { .. }) => Verdict::Lan {
            ifindex: hop.ifindex,
            via: hop.via,
        },
        Some(Role::Link(link)) => Verdict::Link {
            link: *link,
            via: hop.via,
        },
        None => Verdict::Kernel,
    }
}

/// Devices of the configuration that do not exist, a line each. They are used as soon as they appear.
pub fn absent_devices(config: &Config, host: &Snapshot) -> Vec<String> {
    let lan = config
        .lan
        .iter()
        .enumerate()
        .map(|(index, name)| (format!("lan[{index}]"), name));
    let links = config
        .links
        .iter()
        .map(|link| (format!("link.{}.device", link.name), &link.device));
    let known: Vec<&str> = host
        .devices
        .keys()
        .map(String::as_str)
        .filter(|name| *name != "lo")
        .collect();
    lan.chain(links)
        .filter(|(_, name)| !host.devices.contains_key(*name))
        .map(|(key, name)| {
            format!(
                "{key} = {name:?}: no such device; this host has: {}",
                known.join(", ")
            )
        })
        .collect()
}

/// Refuses networks that are on both sides, and networks of the LAN that do not fit into a link's prefix, because these do not go
/// away by waiting.
pub fn check(config: &Config, host: &Snapshot) -> Result<(), BadInput> {
    for link in &config.links {
        let view = link_view(config, link, host);
        for path in view.paths.values() {
            if let Err(overlap @ Missing::OverlapsLan { .. }) = &path.path {
                let (name, device) = (&link.name, &link.device);
                return Err(config.bad(format!(
                    "link.{name}.device = {device:?}: {overlap}; LAN and links must not share a network"
                )));
            }
        }
        delegated::check(config, link, host)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
