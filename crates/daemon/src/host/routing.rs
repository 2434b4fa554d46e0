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

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use anabranch_core::ClassId;
use anabranch_core::rules::OwnTraffic;
use anyhow::Context;
use futures_util::TryStreamExt;
use netlink_packet_route::IpProtocol;
use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use rtnetlink::{IpVersion, RouteMessageBuilder};

use super::ids::{Ids, PROTOCOL};
use crate::config::Config;
use crate::observe::{Desired, Netlink, TABLE_MAIN};
use crate::plane::{LinkId, LinkPath};
use crate::slots::Slots;

/// Where the kernel says that its own packets come from.
const LOOPBACK: &str = "lo";
/// Where the kernel has its rule for the main table.
const MAIN_PRIORITY: u32 = 32_766;

/// What a rule looks at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Select {
    From(IpAddr),
    Oif(String),
    Mark(u32),
    /// Packets of the host that are bound to no address.
    Own(OwnTraffic),
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
    pub first_usable: Option<LinkId>,
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
    pub way: Way,
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

/// Rules and tables as they should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routing {
    rules: BTreeSet<Rule>,
    tables: BTreeMap<u32, Route>,
}

impl Routing {
    /// `falls_back`: the kernel's own NAT carries packets, by the first usable link.
    pub fn derive(
        ids: Ids,
        config: &Config,
        slots: &Slots,
        desired: &Desired,
        ways: &Ways,
        falls_back: bool,
    ) -> Self {
        let mut routing = Self::default();
        for link in &config.links {
            let Some(id) = slots.id(&link.name) else {
                continue;
            };
            let Some(path) = usable(desired, id) else {
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
        let first = ways.first_usable.and_then(|link| usable(desired, link));
        if let Some(path) = first {
            routing.lead_to_first_usable(ids, path, falls_back);
        }
        routing
    }

    fn lead_by_rule(&mut self, ids: Ids, config: &Config, desired: &Desired, way: &RuleWay) {
        let table = ids.class_table(way.class);
        let route = match way.way {
            Way::Link(link) => usable(desired, link).map(Route::through),
            Way::Refused => Some(Route::Unreachable),
            Way::Kernel => None,
        };
        let to = match (way.way, route) {
            (Way::Kernel, _) => To::Main,
            (_, Some(_)) => To::Table(table),
            // The balancer is about to hear that the link is gone.
            (_, None) => return,
        };
        self.tables.extend(route.map(|route| (table, route)));
        let priority = ids.own_rule_priority(way.place);
        let taken = config.rules[way.place].matches.own_traffic();
        let led = taken.into_iter().filter_map(in_ipv4);
        self.rules.extend(led.map(|own| Rule {
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
            let routes = present_routes(ids, netlink).await?;
            Ok((routes, present_rules(ids, netlink).await?))
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
                failed.extend(add_route(netlink, *table, route).await.err());
            }
        }
        for rule in &self.rules {
            if !rules
                .iter()
                .any(|message| rule_of(message).as_ref() == Some(rule))
            {
                failed.extend(add_rule(netlink, rule).await.err());
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

fn usable(desired: &Desired, id: LinkId) -> Option<&LinkPath> {
    let view = desired.links.get(&id)?;
    view.path.as_ref().ok().filter(|_| view.running)
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

async fn present_routes(ids: Ids, netlink: &Netlink) -> anyhow::Result<Vec<RouteMessage>> {
    let mut routes = netlink.routes().await?;
    routes.retain(|message| {
        ids.owns_table(table_of(message)) && u8::from(message.header.protocol) == PROTOCOL
    });
    Ok(routes)
}

async fn present_rules(ids: Ids, netlink: &Netlink) -> anyhow::Result<Vec<RuleMessage>> {
    let rules = netlink.handle.rule().get(IpVersion::V4).execute();
    let mut rules: Vec<RuleMessage> = rules.try_collect().await.context("list routing rules")?;
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

async fn add_route(netlink: &Netlink, table: u32, route: &Route) -> anyhow::Result<()> {
    let builder = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(super::DEFAULT_V4, 0)
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

async fn add_rule(netlink: &Netlink, rule: &Rule) -> anyhow::Result<()> {
    let mut request = netlink.handle.rule().add().v4().priority(rule.priority);
    request = match rule.to {
        To::Specific => request.table_id(TABLE_MAIN).action(RuleAction::ToTable),
        To::Table(table) => request.table_id(table).action(RuleAction::ToTable),
        To::Main => request.action(RuleAction::Goto),
    };
    request = match &rule.select {
        Select::From(IpAddr::V4(address)) => request.source_prefix(*address, 32),
        Select::From(IpAddr::V6(address)) => anyhow::bail!("{address} in an IPv4 rule"),
        Select::Oif(device) => request.output_interface(device),
        Select::Mark(mark) => request.fw_mark(*mark),
        Select::Own(own) => {
            let request = request
                .source_prefix(Ipv4Addr::UNSPECIFIED, 32)
                .input_interface(LOOPBACK.to_owned());
            match own.to {
                Some((IpAddr::V4(network), length)) => request.destination_prefix(network, length),
                Some((IpAddr::V6(network), _)) => anyhow::bail!("{network} in an IPv4 rule"),
                None => request,
            }
        }
    };
    let attributes = &mut request.message_mut().attributes;
    attributes.push(RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)));
    match rule.to {
        To::Specific => attributes.push(RuleAttribute::SuppressPrefixLen(0)),
        To::Main => attributes.push(RuleAttribute::Goto(MAIN_PRIORITY)),
        To::Table(_) => {}
    }
    if let Select::Own(own) = &rule.select {
        let range = |(start, end)| RulePortRange { start, end };
        let protocol = own.protocol.map(IpProtocol::from);
        let ports = own.ports.map(range);
        let source_ports = own.source_ports.map(range);
        attributes.extend(protocol.map(RuleAttribute::IpProtocol));
        attributes.extend(ports.map(RuleAttribute::DestinationPortRange));
        attributes.extend(source_ports.map(RuleAttribute::SourcePortRange));
    }
    request
        .execute()
        .await
        .with_context(|| format!("add routing rule {rule:?}"))
}

/// What of it is IPv4's. The kernel keeps no destination of all addresses.
fn in_ipv4(own: OwnTraffic) -> Option<OwnTraffic> {
    match own.to {
        Some((IpAddr::V6(_), _)) => None,
        Some((IpAddr::V4(_), 0)) => Some(OwnTraffic { to: None, ..own }),
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
    let mut own = OwnTraffic::default();
    let mut to = To::Table(table);
    let range = |range: &RulePortRange| Some((range.start, range.end));
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Source(address) if message.header.src_len == 32 => {
                select = Some(match address.is_unspecified() {
                    true => Select::Own(OwnTraffic::default()),
                    false => Select::From(*address),
                })
            }
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
    let select = match select? {
        Select::Own(_) => Select::Own(own),
        other => other,
    };
    Some(Rule {
        priority,
        select,
        to,
    })
}

#[cfg(test)]
mod tests;
