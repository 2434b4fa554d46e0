//! Policy routing for the host's own traffic and for traffic that it forwards for others: probes, replies to connections that came
//! in by a link, connections of the host, what the kernel's own NAT carries, and containers, virtual machines and tunnels.
//!
//! Each link has a table with a default route and the link's own specific routes. A pair of rules leads to it for each address of
//! its device and each network that is routed to it (`from ADDRESS`), and for the device (`oif DEVICE`): first the main table
//! without its default routes, so that specific routes win, then the link's table. Rules for networks that the main table would
//! route over another link with the same network come before these, and use the link's own routes. If two links have the same
//! address, its rules lead to the one that works. Connections that came by a link, and those of others that left by it, have a mark
//! that leads to its table.
//!
//! A further table leads to the first usable link. The mark of the kernel's own NAT leads there, and, last before the main table
//! itself, packets of the host without a source yet (`from 0.0.0.0 iif lo`). So the host's resolver does not stay on a dead link
//! because of the main table's default route. Before that come the configuration's rules for such packets, in the order of the
//! file, which lead to a table for each class. After it come private networks, for traffic that the host forwards for others.
//! Packets that match none of these are routed as without the gateway.
//!
//! Rules of others win if they are before the main table: those that come after ours are copied to before them
//! ([`copies`]). Only rules of links go before rules that others added without a priority, so that answers stay on their link.
//!
//! In IPv6 no rule can match only packets without a source (linux/net/ipv6/fib6_rules.c: a rule with a source does not match a
//! packet that has none yet). So the rules above match all packets of the host (`iif lo`), and earlier rules lead those with a
//! source past them.

mod copies;
mod message;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_core::rules::OwnTraffic;
use anabranch_core::{ClassId, Family, LinkSet};
use anabranch_policy::PerFamily;
use anyhow::Context;
use netlink_packet_route::rule::RuleMessage;

use super::ids::{Ids, Place};
use crate::config::{Config, Link};
use crate::observe::rules::ForeignRule;
use crate::observe::{Desired, Near, NearRoute, Netlink, Prefix, TABLE_MAIN};
use crate::plane::{LinkId, LinkPath};
use crate::slots::Slots;
pub use copies::Memory;
use message::{
    Aim, add_route, add_rule, aim_of, aim_of_message, has_metric, is_route, place_in_table,
    place_of, present_routes, present_rules, rule_of,
};

/// All IPv6 addresses, divided by their first bit.
const HALVES: [Ipv6Addr; 2] = [
    Ipv6Addr::UNSPECIFIED,
    Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0),
];
/// Networks that are translated before packets reach the internet: RFC 1918, 6598; 4193.
const PRIVATE_V4: [(Ipv4Addr, u8); 4] = [
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
];
const PRIVATE_V6: [(Ipv6Addr, u8); 1] = [(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7)];

/// What a rule matches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Select {
    From(Prefix),
    Oif(String),
    Iif(String),
    Mark(u32),
    /// Packets of the host that are bound to no address.
    Own(OwnTraffic),
    /// Packets of the host that are bound to an address of this network.
    Bound(Prefix),
}

/// The action of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    /// Look up the specific routes of a table.
    Specific(u32),
    Table(u32),
    /// Look up the main table and what follows it, past all our rules.
    Main,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    priority: u32,
    select: Select,
    to: To,
}

/// A next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Through {
    gateway: Option<IpAddr>,
    ifindex: u32,
    source: Option<IpAddr>,
}

/// A route in one of our tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Through(Through),
    /// Programs get an error at once, and a suitable one ("no route to host"); a blackhole route would return "invalid
    /// argument".
    Unreachable,
    /// Continue with the next table.
    Throw,
}

/// The routes of one table.
type Routes = BTreeMap<Prefix, Route>;

/// Over which links packets leave that are not bound to a link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ways {
    /// For the host's own traffic that no rule matches, and for the kernel's own NAT.
    pub first_usable: PerFamily<Option<LinkId>>,
    /// The links that carry packets.
    pub alive: PerFamily<LinkSet>,
    /// For the host's own traffic that rules match.
    pub rules: Vec<RuleWay>,
}

/// The route for the host's own packets that a rule of the configuration matches, while the rule is active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleWay {
    /// Index of the rule in the configuration.
    pub place: usize,
    /// The class of the rule.
    pub class: ClassId,
    /// The route of its packets.
    pub way: PerFamily<Way>,
}

/// Where packets are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Over this link.
    Link(LinkId),
    /// Nowhere.
    Refused,
    /// As without the gateway.
    Kernel,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::Through(route) => route.fmt(f),
            Route::Unreachable => f.write_str("to nowhere"),
            Route::Throw => f.write_str("elsewhere"),
        }
    }
}

impl fmt::Display for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(gateway) = self.gateway {
            write!(f, "by {gateway} ")?;
        }
        if let Some(source) = self.source {
            write!(f, "from {source} ")?;
        }
        write!(f, "through device {}", self.ifindex)
    }
}

/// The rules and tables that one family should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    family: Family,
    rules: BTreeSet<Rule>,
    tables: BTreeMap<u32, Routes>,
    /// Copies of others' rules, to be placed before ours.
    copies: Vec<RuleMessage>,
    /// Kinds of rules that others have.
    others: BTreeSet<Aim>,
}

/// The input from which rules and tables are derived.
struct World<'a> {
    ids: Ids,
    place: Place,
    config: &'a Config,
    desired: &'a Desired,
    family: Family,
    first_usable: Option<LinkId>,
    alive: LinkSet,
}

impl World<'_> {
    fn usable(&self, id: LinkId) -> Option<&LinkPath> {
        self.desired.links.get(&id)?.usable(self.family)
    }

    fn near(&self, id: LinkId) -> Option<&Near> {
        let own = self.desired.beside.links.get(&id)?;
        Some(&own.near[self.family])
    }

    /// The addresses and networks of a link.
    fn sources(&self, id: LinkId, link: &Link, path: &LinkPath) -> BTreeSet<Prefix> {
        let own = self.desired.beside.links.get(&id);
        let addresses = own.map_or(&[][..], |own| &own.addresses);
        let hosts = addresses.iter().chain([&path.external]);
        let prefix = path
            .prefix
            .map(|(network, length)| (network.into(), length));
        let networks = link.prefixes.iter().copied().chain(prefix);
        let networks = networks.map(|(network, length)| Prefix::new(network, length));
        let all = hosts.map(|address| Prefix::host(*address)).chain(networks);
        all.filter(|source| source.family() == self.family)
            .collect()
    }

    /// The first of these links that works, for packets that may take any of them.
    fn best(&self, links: &[LinkId]) -> LinkId {
        let first = self.first_usable.filter(|first| links.contains(first));
        let alive = || links.iter().find(|id| self.alive.contains(**id)).copied();
        first.or_else(alive).unwrap_or(links[0])
    }
}

impl Routing {
    /// The routing of a host without a gateway: nothing.
    pub fn none(family: Family) -> Self {
        Self {
            family,
            rules: BTreeSet::new(),
            tables: BTreeMap::new(),
            copies: Vec::new(),
            others: BTreeSet::new(),
        }
    }

    /// `falls_back`: the kernel's own NAT carries packets, over the first usable link.
    pub fn derive(
        ids: Ids,
        family: Family,
        config: &Config,
        slots: &Slots,
        desired: &Desired,
        ways: &Ways,
        falls_back: bool,
    ) -> Self {
        let others = desired.rules.iter().filter(|rule| rule.family() == family);
        let world = World {
            ids,
            place: ids.place(others.clone().map(ForeignRule::priority)),
            config,
            desired,
            family,
            first_usable: ways.first_usable[family],
            alive: ways.alive[family],
        };
        let mut routing = Self::none(family);
        let mut sources: BTreeMap<Prefix, Vec<LinkId>> = BTreeMap::new();
        for link in &config.links {
            let id = slots.id(&link.name);
            let known = id.and_then(|id| Some((id, world.usable(id)?)));
            let Some((id, path)) = known else { continue };
            for source in world.sources(id, link, path) {
                sources.entry(source).or_default().push(id);
            }
            routing.lead_to_link(&world, link, id, path, falls_back);
        }
        for (source, links) in sources {
            routing.lead_from(&world, source, world.best(&links));
        }
        for way in &ways.rules {
            routing.lead_by_rule(&world, way);
        }
        let first = world.first_usable.and_then(|id| world.usable(id));
        if let Some(path) = first {
            routing.lead_to_first_usable(&world, path, falls_back);
            routing.lead_others(&world);
        }
        let aims = others.clone().map(|rule| aim_of_message(&rule.message));
        routing.others = aims.collect();
        if !routing.rules.is_empty() {
            routing.copies = copies::of(ids, others);
        }
        routing
    }

    /// Adds the link's table, and the rules that lead to it whatever the source.
    fn lead_to_link(
        &mut self,
        world: &World<'_>,
        link: &Link,
        id: LinkId,
        path: &LinkPath,
        falls_back: bool,
    ) {
        let ids = world.ids;
        let table = ids.link_table(id);
        let mut routes = self.default_route(Route::through(path));
        let near = world.near(id).into_iter().flat_map(|near| &near.routes);
        routes.extend(near.map(|(to, route)| (*to, Route::near(route))));
        self.tables.insert(table, routes);
        self.select(world, Select::Oif(link.device.clone()), table);
        let fallback = falls_back.then(|| ids.fallback_mark_of(id));
        let left = world.alive.contains(id).then(|| ids.left_mark(id));
        let marks = [Some(ids.arrived_mark(id)), fallback, left];
        let priority = world.place.table_priority();
        self.rules
            .extend(marks.into_iter().flatten().map(|mark| Rule {
                priority,
                select: Select::Mark(mark),
                to: To::Table(table),
            }));
    }

    fn lead_from(&mut self, world: &World<'_>, source: Prefix, id: LinkId) {
        let table = world.ids.link_table(id);
        if world.near(id).is_some_and(|near| near.contested) {
            self.rules.insert(Rule {
                priority: world.place.near_priority(),
                select: Select::From(source),
                to: To::Specific(table),
            });
        }
        self.select(world, Select::From(source), table);
    }

    fn default_route(&self, route: Route) -> Routes {
        BTreeMap::from([(Prefix::everything(self.family), route)])
    }

    fn lead_by_rule(&mut self, world: &World<'_>, way: &RuleWay) {
        let ids = world.ids;
        let taken = world.config.rules[way.place]
            .matches
            .own_traffic()
            .into_iter();
        let taken: Vec<_> = taken
            .filter_map(|own| of_family(own, self.family))
            .collect();
        if taken.is_empty() {
            return;
        }
        let table = ids.class_table(way.class);
        let (place, way) = (way.place, way.way[self.family]);
        let route = match way {
            Way::Link(link) => world.usable(link).map(Route::through),
            Way::Refused => Some(Route::Unreachable),
            Way::Kernel => None,
        };
        let to = match (way, route) {
            (Way::Kernel, _) => To::Main,
            (_, Some(_)) => To::Table(table),
            // The balancer will be told soon that the link is gone.
            (_, None) => return,
        };
        let routes = route.map(|route| self.default_route(route));
        self.tables.extend(routes.map(|routes| (table, routes)));
        let priority = ids.own_rule_priority(place);
        self.rules.extend(taken.into_iter().map(|own| Rule {
            priority,
            select: Select::Own(own),
            to,
        }));
        self.lead_own_to_specific(ids);
    }

    fn lead_to_first_usable(&mut self, world: &World<'_>, path: &LinkPath, falls_back: bool) {
        let ids = world.ids;
        let table = ids.first_usable_table();
        let mut routes = self.default_route(Route::through(path));
        routes.extend(shared(world));
        if routes.len() > 1 {
            self.rules.insert(Rule {
                priority: ids.own_near_priority(),
                select: Select::Own(OwnTraffic::default()),
                to: To::Specific(table),
            });
        }
        self.tables.insert(table, routes);
        if falls_back {
            self.select(world, Select::Mark(ids.fallback_mark()), table);
        }
        self.rules.insert(Rule {
            priority: ids.own_table_priority(),
            select: Select::Own(OwnTraffic::default()),
            to: To::Table(table),
        });
        self.lead_own_to_specific(ids);
    }

    /// Routes traffic that is forwarded for networks of others over the first usable link, but not traffic from LAN or links, nor
    /// the host's own.
    fn lead_others(&mut self, world: &World<'_>) {
        let ids = world.ids;
        let table = ids.first_usable_table();
        let links = world.config.links.iter().map(|link| &link.device);
        let devices = world.config.lan.iter().chain(links);
        let mut led_past: Vec<Select> = devices.map(|device| Select::Iif(device.clone())).collect();
        let networks = private(self.family);
        if self.family == Family::V4 {
            led_past.extend(networks.iter().map(|network| Select::Bound(*network)));
        }
        self.rules.extend(led_past.into_iter().map(|select| Rule {
            priority: ids.own_specific_priority(),
            select,
            to: To::Main,
        }));
        for network in networks {
            let stages = [
                (ids.forwarded_specific_priority(), To::Specific(TABLE_MAIN)),
                (ids.forwarded_table_priority(), To::Table(table)),
            ];
            self.rules.extend(stages.map(|(priority, to)| Rule {
                priority,
                select: Select::From(network),
                to,
            }));
        }
    }

    fn lead_own_to_specific(&mut self, ids: Ids) {
        self.rules.insert(Rule {
            priority: ids.own_specific_priority(),
            select: Select::Own(OwnTraffic::default()),
            to: To::Specific(TABLE_MAIN),
        });
        if self.family == Family::V6 {
            self.rules.extend(HALVES.map(|half| Rule {
                priority: ids.own_specific_priority(),
                select: Select::Bound(Prefix::new(half.into(), 1)),
                to: To::Main,
            }));
        }
    }

    fn select(&mut self, world: &World<'_>, select: Select, table: u32) {
        self.rules.insert(Rule {
            priority: world.place.specific_priority(),
            select: select.clone(),
            to: To::Specific(TABLE_MAIN),
        });
        self.rules.insert(Rule {
            priority: world.place.table_priority(),
            select,
            to: To::Table(table),
        });
    }

    /// Changes the host's rules and tables where they differ. New ones are added before stale ones are
    /// removed. Returns what cannot be done, for instance for a link whose gateway the kernel refuses; the rest is done.
    pub async fn apply(
        &self,
        ids: Ids,
        netlink: &Netlink,
        memory: &mut Memory,
    ) -> Vec<anyhow::Error> {
        let present = async {
            let routes = present_routes(ids, netlink, self.family).await?;
            Ok((routes, present_rules(ids, netlink, self.family).await?))
        };
        let (routes, rules) = match present.await {
            Ok(present) => present,
            Err(error) => return vec![error],
        };
        let mut failed = Vec::new();
        for (table, to, route) in self.routes() {
            let is_so = |message| is_route(message, table, to, route);
            if !routes.iter().any(is_so) {
                let added = add_route(netlink, table, to, route).await;
                failed.extend(added.err());
            }
        }
        let (copied, rules): (Vec<_>, Vec<_>) = rules
            .into_iter()
            .partition(|message| place_of(message).0 == ids.copy_priority());
        let waits = memory.look(&self.others, &copied, &rules);
        memory.keep(self.aims().filter(|aim| !waits.contains(*aim)).collect());
        failed.extend(copies::apply(netlink, &self.copies, copied, &waits).await);
        for rule in &self.rules {
            let is_so = |message: &RuleMessage| rule_of(message).as_ref() == Some(rule);
            if !rules.iter().any(is_so) && !waits.contains(aim_of(rule)) {
                failed.extend(add_rule(netlink, self.family, rule).await.err());
            }
        }
        for message in rules {
            if !rule_of(&message).is_some_and(|rule| self.rules.contains(&rule)) {
                let deleted = netlink.handle.rule().del(message).execute().await;
                failed.extend(deleted.context("delete a stale routing rule").err());
            }
        }
        for message in routes {
            let (table, to) = place_in_table(&message, self.family);
            let routes = self.tables.get(&table);
            let is_wanted = routes.is_some_and(|routes| routes.contains_key(&to));
            if !is_wanted || !has_metric(&message, to) {
                let deleted = netlink.handle.route().del(message).execute().await;
                failed.extend(deleted.context("delete a stale route").err());
            }
        }
        failed
    }

    fn aims(&self) -> impl Iterator<Item = Aim> {
        let copies = self.copies.iter().map(aim_of_message);
        self.rules.iter().map(aim_of).chain(copies)
    }

    fn routes(&self) -> impl Iterator<Item = (u32, Prefix, &Route)> {
        let tables = self.tables.iter();
        tables.flat_map(|(table, routes)| routes.iter().map(|(to, route)| (*table, *to, route)))
    }
}

/// Networks that several links have, each routed over the best link for it.
fn shared(world: &World<'_>) -> Routes {
    let mut links: BTreeMap<Prefix, Vec<LinkId>> = BTreeMap::new();
    for id in world.desired.beside.links.keys().copied() {
        let near = world.usable(id).and_then(|_| world.near(id));
        let routes = near.into_iter().flat_map(|near| &near.routes);
        for (to, _) in routes.filter(|(_, route)| **route != NearRoute::Elsewhere) {
            links.entry(*to).or_default().push(id);
        }
    }
    links.retain(|_, links| links.len() > 1);
    let best = links.into_iter().filter_map(|(to, links)| {
        let near = world.near(world.best(&links))?;
        Some((to, Route::near(near.routes.get(&to)?)))
    });
    best.collect()
}

fn private(family: Family) -> Vec<Prefix> {
    let prefix = |(network, length): (IpAddr, u8)| Prefix::new(network, length);
    match family {
        Family::V4 => PRIVATE_V4
            .map(|(v4, length)| prefix((v4.into(), length)))
            .to_vec(),
        Family::V6 => PRIVATE_V6
            .map(|(v6, length)| prefix((v6.into(), length)))
            .to_vec(),
    }
}

impl Route {
    fn through(path: &LinkPath) -> Self {
        Self::Through(Through {
            gateway: path.gateway,
            ifindex: path.ifindex,
            source: Some(path.external),
        })
    }

    fn near(route: &NearRoute) -> Self {
        match *route {
            NearRoute::Through { hop, source } => Self::Through(Through {
                gateway: hop.via,
                ifindex: hop.ifindex,
                source,
            }),
            NearRoute::Elsewhere => Self::Throw,
        }
    }
}

/// The part that is of one family. The kernel stores no destination that covers all addresses.
fn of_family(own: OwnTraffic, family: Family) -> Option<OwnTraffic> {
    match own.to {
        Some((network, _)) if Family::from(network) != family => None,
        Some((_, 0)) => Some(OwnTraffic { to: None, ..own }),
        _ => Some(own),
    }
}

#[cfg(test)]
mod tests;
