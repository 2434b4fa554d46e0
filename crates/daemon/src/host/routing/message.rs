//! Reads, compares and adds rules and routes in the kernel.

use std::net::{IpAddr, Ipv4Addr};

use anabranch_core::Family;
use anabranch_core::rules::OwnTraffic;
use anabranch_policy::abi::OWN_METRIC;
use anyhow::Context;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use netlink_packet_route::{AddressFamily, IpProtocol};
use rtnetlink::RouteMessageBuilder;

use super::super::ids::{Ids, PROTOCOL};
use super::{Route, Rule, Select, Through, To};
use crate::observe::rules::MAIN_PRIORITY;
use crate::observe::{Netlink, Prefix, TABLE_MAIN};

/// The device from which the kernel says that its own packets come.
const LOOPBACK: &str = "lo";

/// A table, and whether only its specific routes.
pub type Aim = (u32, bool);

pub async fn present_routes(
    ids: Ids,
    netlink: &Netlink,
    family: Family,
) -> anyhow::Result<Vec<RouteMessage>> {
    let mut routes = netlink.own_routes(family).await?;
    routes.retain(|message| ids.owns_table(table_of(message)));
    Ok(routes)
}

pub async fn present_rules(
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

/// The table and destination of a route.
pub fn place_in_table(message: &RouteMessage, family: Family) -> (u32, Prefix) {
    let to = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(v4)) => Some((*v4).into()),
            RouteAttribute::Destination(RouteAddress::Inet6(v6)) => Some((*v6).into()),
            _ => None,
        });
    let everything = Prefix::everything(family).address;
    let length = message.header.destination_prefix_length;
    let to = Prefix::new(to.unwrap_or(everything), length);
    (table_of(message), to)
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

pub fn is_route(message: &RouteMessage, table: u32, to: Prefix, route: &Route) -> bool {
    let is_so = match route {
        Route::Through(route) => leads_through(message, route),
        Route::Unreachable => message.header.kind == RouteType::Unreachable,
        Route::Throw => message.header.kind == RouteType::Throw,
    };
    is_so && has_metric(message, to) && place_in_table(message, to.family()) == (table, to)
}

/// The programs know our default routes in the kernel's answers by their metric (`bpf/lib/gateway/way.h`).
pub fn has_metric(message: &RouteMessage, to: Prefix) -> bool {
    let metric = RouteAttribute::Priority(OWN_METRIC);
    to.length != 0 || message.attributes.contains(&metric)
}

fn leads_through(message: &RouteMessage, route: &Through) -> bool {
    let has = |attribute: RouteAttribute| message.attributes.contains(&attribute);
    let gateway = message
        .attributes
        .iter()
        .any(|attribute| matches!(attribute, RouteAttribute::Gateway(_)));
    message.header.kind == RouteType::Unicast
        && has(RouteAttribute::Oif(route.ifindex))
        && route
            .source
            .is_none_or(|source| has(RouteAttribute::PrefSource(source.into())))
        && match route.gateway {
            Some(address) => has(RouteAttribute::Gateway(address.into())),
            None => !gateway,
        }
}

pub async fn add_route(
    netlink: &Netlink,
    table: u32,
    to: Prefix,
    route: &Route,
) -> anyhow::Result<()> {
    let builder = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(to.address, to.length)
        .context("destination of a route")?
        .table_id(table)
        .protocol(RouteProtocol::Other(PROTOCOL));
    let builder = match to.length {
        0 => builder.priority(OWN_METRIC),
        _ => builder,
    };
    let builder = match route {
        Route::Through(route) => through(builder, route)?,
        Route::Unreachable => builder.kind(RouteType::Unreachable),
        Route::Throw => builder.kind(RouteType::Throw),
    };
    let request = netlink.handle.route().add(builder.build()).replace();
    request
        .execute()
        .await
        .with_context(|| format!("set the route of table {table} to {to} {route}"))
}

fn through(
    mut builder: RouteMessageBuilder<IpAddr>,
    route: &Through,
) -> anyhow::Result<RouteMessageBuilder<IpAddr>> {
    if let Some(source) = route.source {
        builder = builder.pref_source(source).context("source of a route")?;
    }
    builder = builder.output_interface(route.ifindex);
    match route.gateway {
        // The gateway of a link need not be in the network of its address: some cable and DSL modems are set up like that.
        Some(address) => Ok(builder
            .gateway(address)
            .context("gateway of a route")?
            .onlink()),
        None => Ok(builder.scope(RouteScope::Link)),
    }
}

pub async fn add_rule(netlink: &Netlink, family: Family, rule: &Rule) -> anyhow::Result<()> {
    let mut request = netlink.handle.rule().add().priority(rule.priority);
    request = match rule.to {
        To::Specific(table) | To::Table(table) => {
            request.table_id(table).action(RuleAction::ToTable)
        }
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
        To::Specific(_) => attributes.push(RuleAttribute::SuppressPrefixLen(0)),
        To::Main => attributes.push(RuleAttribute::Goto(MAIN_PRIORITY)),
        To::Table(_) => {}
    }
    select(message, family, &rule.select);
    request
        .execute()
        .await
        .with_context(|| format!("add routing rule {rule:?}"))
}

/// Writes what a rule matches into its message.
fn select(message: &mut RuleMessage, family: Family, select: &Select) {
    let from = |message: &mut RuleMessage, source: Prefix| {
        message.header.src_len = source.length;
        message
            .attributes
            .push(RuleAttribute::Source(source.address));
    };
    match select {
        Select::From(source) => from(message, *source),
        Select::Oif(device) => message
            .attributes
            .push(RuleAttribute::Oifname(device.clone())),
        Select::Iif(device) => message
            .attributes
            .push(RuleAttribute::Iifname(device.clone())),
        Select::Mark(mark) => message.attributes.push(RuleAttribute::FwMark(*mark)),
        Select::Own(own) => {
            let lo = RuleAttribute::Iifname(LOOPBACK.to_owned());
            message.attributes.push(lo);
            if family == Family::V4 {
                from(message, Prefix::host(Ipv4Addr::UNSPECIFIED.into()));
            }
            select_own(message, own);
        }
        Select::Bound(source) => {
            let lo = RuleAttribute::Iifname(LOOPBACK.to_owned());
            message.attributes.push(lo);
            from(message, *source);
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

/// The priority and table of a rule.
pub fn place_of(message: &RuleMessage) -> (u32, u32) {
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

/// The rule that a message of ours stands for; none if an older version left it.
pub fn rule_of(message: &RuleMessage) -> Option<Rule> {
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
            RuleAttribute::Iifname(device) if device == LOOPBACK => is_own = true,
            RuleAttribute::Iifname(device) => select = Some(Select::Iif(device.clone())),
            RuleAttribute::Oifname(device) => select = Some(Select::Oif(device.clone())),
            RuleAttribute::FwMark(mark) => select = Some(Select::Mark(*mark)),
            RuleAttribute::Destination(network) => {
                own.to = Some((*network, message.header.dst_len));
            }
            RuleAttribute::IpProtocol(protocol) => own.protocol = Some(u8::from(*protocol)),
            RuleAttribute::DestinationPortRange(ports) => own.ports = range(ports),
            RuleAttribute::SourcePortRange(ports) => own.source_ports = range(ports),
            RuleAttribute::SuppressPrefixLen(0) => to = To::Specific(table),
            RuleAttribute::Goto(MAIN_PRIORITY) => to = To::Main,
            _ => {}
        }
    }
    let select = match (source, is_own) {
        (Some((address, _)), true) if address.is_ipv4() && address.is_unspecified() => {
            Select::Own(own)
        }
        (None, true) => Select::Own(own),
        (Some((address, length)), true) => Select::Bound(Prefix::new(address, length)),
        (Some((address, length)), false) => Select::From(Prefix::new(address, length)),
        (None, false) => select?,
    };
    Some(Rule {
        priority,
        select,
        to,
    })
}

/// What others specify to delete a rule when they delete all of a kind: the table, and whether only its specific
/// routes are used.
pub fn aim_of(rule: &Rule) -> Aim {
    match rule.to {
        To::Specific(table) => (table, true),
        To::Table(table) => (table, false),
        // The kernel's table number of a rule that jumps to another.
        To::Main => (TABLE_MAIN, false),
    }
}

/// The same of a message.
pub fn aim_of_message(message: &RuleMessage) -> Aim {
    let specific = RuleAttribute::SuppressPrefixLen(0);
    (place_of(message).1, message.attributes.contains(&specific))
}
