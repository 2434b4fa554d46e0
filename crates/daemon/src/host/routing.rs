//! Policy routing for what the host itself sends: probes, replies to connections that came in by a link, connections of
//! its own, and what the kernel's own NAT carries.
//!
//! Per link one table with one default route, and two pairs of rules (`from ADDRESS`, `oif DEVICE`): first the main
//! table without its default routes, so that specific routes win, then the link's table. A further table follows the
//! first usable link. To it lead the mark of the kernel's own NAT and, last before the main table itself, packets of the
//! host that have no source yet (`from 0.0.0.0 iif lo`): the host's resolver does not stay on a dead link because the
//! main table's default route does. Before that, in the order written, stands what the configuration's rules take of
//! those packets, and leads to a table for each class. Packets that match none of them are routed as if we were not
//! there.
//!
//! Of IPv6 no rule matches packets without a source and no others (linux/net/ipv6/fib6_rules.c: a rule with a source matches
//! none that has yet to get one). So the rules above match all that the host sends (`iif lo`), and those with a source are led
//! past them before.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_core::rules::OwnTraffic;
use anabranch_core::{ClassId, Family};
use anabranch_policy::PerFamily;
use anyhow::Context;
use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use netlink_packet_route::{AddressFamily, IpProtocol};
use rtnetlink::RouteMessageBuilder;

use super::ids::{Ids, PROTOCOL};
use crate::config::Config;
use crate::observe::rules::MAIN_PRIORITY;
use crate::observe::{Desired, Netlink, Prefix, TABLE_MAIN};
use crate::plane::{LinkId, LinkPath};
use crate::slots::Slots;

/// Where the kernel says that its own packets come from.
const LOOPBACK: &str = "lo";
/// All addresses of IPv6, by their first bit.
const HALVES: [Ipv6Addr; 2] = [
    Ipv6Addr::UNSPECIFIED,
    Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0),
];

/// What a rule looks at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Select {
    From(IpAddr),
    Oif(String),
    Mark(u32),
    /// Packets of the host that are bound to no address.
    Own(OwnTraffic),
    /// Those that are bound to one of this half of all.
    Bound(IpAddr),
}

/// Where a rule leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    /// The specific routes of the main table.
    Specific,
    Table(u32),
    /// The main table and what is behind it, past all rules of ours.
    Main,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    priority: u32,
    select: Select,
    to: To,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DefaultRoute {
    gateway: Option<IpAddr>,
    ifindex: u32,
    source: IpAddr,
}

/// The default route of a table of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Through(DefaultRoute),
    /// Programs are told at once, and in words that fit ("no route to host"); from a black hole they hear of an invalid
    /// argument.
    Unreachable,
}

/// By which links packets of no link in particular leave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ways {
    /// Of what the host itself sends and no rule takes, and of what the kernel's own NAT carries.
    pub first_usable: PerFamily<Option<LinkId>>,
    /// Of what the host itself sends.
    pub rules: Vec<RuleWay>,
}

/// What becomes of the host's own packets that a rule of the configuration takes, while it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleWay {
    /// Of the rule, among those of the configuration.
    pub place: usize,
    /// That the rule makes.
    pub class: ClassId,
    /// Of its packets.
    pub way: PerFamily<Way>,
}

/// Where packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Out by this link.
    Link(LinkId),
    /// Nowhere.
    Refused,
    /// As if there were no gateway.
    Kernel,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::Through(route) => route.fmt(f),
            Route::Unreachable => f.write_str("to nowhere"),
        }
    }
}

impl fmt::Display for DefaultRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(gateway) = self.gateway {
            write!(f, "by {gateway} ")?;
        }
        write!(f, "from {} through device {}", self.source, self.ifindex)
    }
}

/// Rules and tables of one family as they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    family: Family,
    rules: BTreeSet<Rule>,
    tables: BTreeMap<u32, Route>,
}

impl Routing {
    /// Of a host without a gateway.
    pub fn none(family: Family) -> Self {
        Self {
            family,
            rules: BTreeSet::new(),
            tables: BTreeMap::new(),
        }
    }

    /// `falls_back`: the kernel's own NAT carries packets, by the first usable link.
    pub fn derive(
        ids: Ids,
        family: Family,
        config: &Config,
        slots: &Slots,
        desired: &Desired,
        ways: &Ways,
        falls_back: bool,
    ) -> Self {
        let mut routing = Self::none(family);
        for link in &config.links {
            let Some(id) = slots.id(&link.name) else {
                continue;
            };
            let Some(path) = usable(desired, id, family) else {
                continue;
            };
            let table = ids.link_table(id);
            routing.tables.insert(table, Route::through(path));
            routing.select(ids, Select::From(path.external), table);
            routing.select(ids, Select::Oif(link.device.clone()), table);
        }
        for way in &ways.rules {
            routing.lead_by_rule(ids, config, desired, way);
        }
        let first = ways.first_usable[family];
        let first = first.and_then(|link| usable(desired, link, family));
        if let Some(path) = first {
            routing.lead_to_first_usable(ids, path, falls_back);
        }
        routing
    }

    fn lead_by_rule(&mut self, ids: Ids, config: &Config, desired: &Desired, way: &RuleWay) {
        let taken = config.rules[way.place].matches.own_traffic().into_iter();
        let taken: Vec<_> = taken
            .filter_map(|own| of_family(own, self.family))
            .collect();
        if taken.is_empty() {
            return;
        }
        let table = ids.class_table(way.class);
        let (place, way) = (way.place, way.way[self.family]);
        let route = match way {
            Way::Link(link) => usable(desired, link, self.family).map(Route::through),
            Way::Refused => Some(Route::Unreachable),
            Way::Kernel => None,
        };
        let to = match (way, route) {
            (Way::Kernel, _) => To::Main,
            (_, Some(_)) => To::Table(table),
            // The balancer is about to hear that the link is gone.
            (_, None) => return,
        };
        self.tables.extend(route.map(|route| (table, route)));
        let priority = ids.own_rule_priority(place);
        self.rules.extend(taken.into_iter().map(|own| Rule {
            priority,
            select: Select::Own(own),
            to,
        }));
        self.lead_own_to_specific(ids);
    }

    fn lead_to_first_usable(&mut self, ids: Ids, path: &LinkPath, falls_back: bool) {
        let table = ids.first_usable_table();
        self.tables.insert(table, Route::through(path));
        if falls_back {
            self.select(ids, Select::Mark(ids.fallback_mark()), table);
        }
        self.rules.insert(Rule {
            priority: ids.own_table_priority(),
            select: Select::Own(OwnTraffic::default()),
            to: To::Table(table),
        });
        self.lead_own_to_specific(ids);
    }

    fn lead_own_to_specific(&mut self, ids: Ids) {
        self.rules.insert(Rule {
            priority: ids.own_specific_priority(),
            select: Select::Own(OwnTraffic::default()),
            to: To::Specific,
        });
        if self.family == Family::V6 {
            self.rules.extend(HALVES.map(|half| Rule {
                priority: ids.own_specific_priority(),
                select: Select::Bound(half.into()),
                to: To::Main,
            }));
        }
    }

    fn select(&mut self, ids: Ids, select: Select, table: u32) {
        self.rules.insert(Rule {
            priority: ids.specific_priority(),
            select: select.clone(),
            to: To::Specific,
        });
        self.rules.insert(Rule {
            priority: ids.table_priority(),
            select,
            to: To::Table(table),
        });
    }

    /// Makes the host's rules and tables so, by difference: what is right is not touched, what is new comes before what
    /// is stale goes. Returns what cannot be done, say for a link whose gateway the kernel refuses; the rest is.
    pub async fn apply(&self, ids: Ids, netlink: &Netlink) -> Vec<anyhow::Error> {
        let present = async {
            let routes = present_routes(ids, netlink, self.family).await?;
            Ok((routes, present_rules(ids, netlink, self.family).await?))
        };
        let (routes, rules) = match present.await {
            Ok(present) => present,
            Err(error) => return vec![error],
        };
        let mut failed = Vec::new();
        for (table, route) in &self.tables {
            if !routes
                .iter()
                .any(|message| is_route(message, *table, route))
            {
                let added = add_route(netlink, self.family, *table, route).await;
                failed.extend(added.err());
            }
        }
        for rule in &self.rules {
            if !rules
                .iter()
                .any(|message| rule_of(message).as_ref() == Some(rule))
            {
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
            if !self.tables.contains_key(&table_of(&message)) {
                let deleted = netlink.handle.route().del(message).execute().await;
                failed.extend(deleted.context("delete a stale default route").err());
            }
        }
        failed
    }
}

fn usable(desired: &Desired, id: LinkId, family: Family) -> Option<&LinkPath> {
    desired.links.get(&id)?.usable(family)
}

impl Route {
    fn through(path: &LinkPath) -> Self {
        Self::Through(DefaultRoute {
            gateway: path.gateway,
            ifindex: path.ifindex,
            source: path.external,
        })
    }
}

async fn present_routes(
    ids: Ids,
    netlink: &Netlink,
    family: Family,
) -> anyhow::Result<Vec<RouteMessage>> {
    let mut routes = netlink.routes(family).await?;
    routes.retain(|message| {
        ids.owns_table(table_of(message)) && u8::from(message.header.protocol) == PROTOCOL
    });
    Ok(routes)
}

async fn present_rules(
    ids: Ids,
    netlink: &Netlink,
    family: Family,
) -> anyhow::Result<Vec<RuleMessage>> {
    let mut rules = netlink.rules(family).await?;
    let ours = RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL));
    rules.retain(|message| message.attributes.contains(&ours));
    let former = ids.former_rules();
    let has_former = rules.iter().any(|message| place_of(message) == former[1]);
    rules.retain(|message| {
        let place = place_of(message);
        ids.owns_rule(place.0) || has_former && former.contains(&place)
    });
    Ok(rules)
}

fn table_of(message: &RouteMessage) -> u32 {
    let wide = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        });
    wide.unwrap_or(message.header.table.into())
}

fn is_route(message: &RouteMessage, table: u32, route: &Route) -> bool {
    let is_so = match route {
        Route::Through(route) => leads_through(message, route),
        Route::Unreachable => message.header.kind == RouteType::Unreachable,
    };
    is_so && table_of(message) == table
}

fn leads_through(message: &RouteMessage, route: &DefaultRoute) -> bool {
    let has = |attribute: RouteAttribute| message.attributes.contains(&attribute);
    let gateway = message
        .attributes
        .iter()
        .any(|attribute| matches!(attribute, RouteAttribute::Gateway(_)));
    has(RouteAttribute::Oif(route.ifindex))
        && has(RouteAttribute::PrefSource(route.source.into()))
        && match route.gateway {
            Some(address) => has(RouteAttribute::Gateway(address.into())),
            None => !gateway,
        }
}

async fn add_route(
    netlink: &Netlink,
    family: Family,
    table: u32,
    route: &Route,
) -> anyhow::Result<()> {
    let builder = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(Prefix::everything(family).address, 0)
        .context("default route")?
        .table_id(table)
        .protocol(RouteProtocol::Other(PROTOCOL));
    let builder = match route {
        Route::Through(route) => through(builder, route)?,
        Route::Unreachable => builder.kind(RouteType::Unreachable),
    };
    let request = netlink.handle.route().add(builder.build()).replace();
    request
        .execute()
        .await
        .with_context(|| format!("set the default route of table {table} {route}"))
}

fn through(
    builder: RouteMessageBuilder<IpAddr>,
    route: &DefaultRoute,
) -> anyhow::Result<RouteMessageBuilder<IpAddr>> {
    let builder = builder
        .pref_source(route.source)
        .context("source of a default route")?
        .output_interface(route.ifindex);
    match route.gateway {
        // The gateway of a link need not be inside the address's network (cable and DSL modems do that).
        Some(address) => Ok(builder
            .gateway(address)
            .context("gateway of a default route")?
            .onlink()),
        None => Ok(builder.scope(RouteScope::Link)),
    }
}

async fn add_rule(netlink: &Netlink, family: Family, rule: &Rule) -> anyhow::Result<()> {
    let mut request = netlink.handle.rule().add().priority(rule.priority);
    request = match rule.to {
        To::Specific => request.table_id(TABLE_MAIN).action(RuleAction::ToTable),
        To::Table(table) => request.table_id(table).action(RuleAction::ToTable),
        To::Main => request.action(RuleAction::Goto),
    };
    let message = request.message_mut();
    message.header.family = match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    };
    let attributes = &mut message.attributes;
    attributes.push(RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)));
    match rule.to {
        To::Specific => attributes.push(RuleAttribute::SuppressPrefixLen(0)),
        To::Main => attributes.push(RuleAttribute::Goto(MAIN_PRIORITY)),
        To::Table(_) => {}
    }
    select(message, family, &rule.select);
    request
        .execute()
        .await
        .with_context(|| format!("add routing rule {rule:?}"))
}

/// What a rule looks at, in its message.
fn select(message: &mut RuleMessage, family: Family, select: &Select) {
    let from = |message: &mut RuleMessage, address: IpAddr, length| {
        message.header.src_len = length;
        message.attributes.push(RuleAttribute::Source(address));
    };
    match select {
        Select::From(address) => from(message, *address, Prefix::host(*address).length),
        Select::Oif(device) => message
            .attributes
            .push(RuleAttribute::Oifname(device.clone())),
        Select::Mark(mark) => message.attributes.push(RuleAttribute::FwMark(*mark)),
        Select::Own(own) => {
            let lo = RuleAttribute::Iifname(LOOPBACK.to_owned());
            message.attributes.push(lo);
            if family == Family::V4 {
                from(message, Ipv4Addr::UNSPECIFIED.into(), 32);
            }
            select_own(message, own);
        }
        Select::Bound(half) => {
            let lo = RuleAttribute::Iifname(LOOPBACK.to_owned());
            message.attributes.push(lo);
            from(message, *half, 1);
        }
    }
}

fn select_own(message: &mut RuleMessage, own: &OwnTraffic) {
    let range = |(start, end)| RulePortRange { start, end };
    if let Some((network, length)) = own.to {
        message.header.dst_len = length;
        let to = RuleAttribute::Destination(network);
        message.attributes.push(to);
    }
    let protocol = own.protocol.map(IpProtocol::from);
    let ports = own.ports.map(range);
    let source_ports = own.source_ports.map(range);
    let attributes = &mut message.attributes;
    attributes.extend(protocol.map(RuleAttribute::IpProtocol));
    attributes.extend(ports.map(RuleAttribute::DestinationPortRange));
    attributes.extend(source_ports.map(RuleAttribute::SourcePortRange));
}

/// What of it is of a family. The kernel keeps no destination of all addresses.
fn of_family(own: OwnTraffic, family: Family) -> Option<OwnTraffic> {
    match own.to {
        Some((network, _)) if Family::from(network) != family => None,
        Some((_, 0)) => Some(OwnTraffic { to: None, ..own }),
        _ => Some(own),
    }
}

/// Priority and table of a rule.
fn place_of(message: &RuleMessage) -> (u32, u32) {
    let of = |attribute: &RuleAttribute, (priority, table)| match attribute {
        RuleAttribute::Priority(value) => (*value, table),
        RuleAttribute::Table(value) => (priority, *value),
        _ => (priority, table),
    };
    let beginning = (0, message.header.table.into());
    message
        .attributes
        .iter()
        .fold(beginning, |place, attribute| of(attribute, place))
}

/// The rule a message of ours stands for; `None` for one that an older version may have left.
fn rule_of(message: &RuleMessage) -> Option<Rule> {
    let (priority, table) = place_of(message);
    let mut select = None;
    let mut source = None;
    let mut is_own = false;
    let mut own = OwnTraffic::default();
    let mut to = To::Table(table);
    let range = |range: &RulePortRange| Some((range.start, range.end));
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Source(address) => source = Some((*address, message.header.src_len)),
            RuleAttribute::Iifname(device) => is_own |= device == LOOPBACK,
            RuleAttribute::Oifname(device) => select = Some(Select::Oif(device.clone())),
            RuleAttribute::FwMark(mark) => select = Some(Select::Mark(*mark)),
            RuleAttribute::Destination(network) => {
                own.to = Some((*network, message.header.dst_len));
            }
            RuleAttribute::IpProtocol(protocol) => own.protocol = Some(u8::from(*protocol)),
            RuleAttribute::DestinationPortRange(ports) => own.ports = range(ports),
            RuleAttribute::SourcePortRange(ports) => own.source_ports = range(ports),
            RuleAttribute::SuppressPrefixLen(0) => to = To::Specific,
            RuleAttribute::Goto(MAIN_PRIORITY) => to = To::Main,
            _ => {}
        }
    }
    let select = match (source, is_own) {
        (Some((address, _)), true) if address.is_ipv4() && address.is_unspecified() => {
            Select::Own(own)
        }
        (None, true) => Select::Own(own),
        (Some((half, 1)), true) => Select::Bound(half),
        (Some((address, length)), false) if length == Prefix::host(address).length => {
            Select::From(address)
        }
        _ => select?,
    };
    Some(Rule {
        priority,
        select,
        to,
    })
}

#[cfg(test)]
mod tests;
