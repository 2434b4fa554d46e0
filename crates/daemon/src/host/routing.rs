//! Policy routing for what the host itself sends: probes, replies to connections that came in by a link, connections of
//! its own, and what the kernel's own NAT carries.
//!
//! Per link one table with one default route, and two pairs of rules (`from ADDRESS`, `oif DEVICE`): first the main
//! table without its default routes, so that specific routes win, then the link's table. A further table follows the
//! first usable link. To it lead the mark of the kernel's own NAT and, last before the main table itself, packets of the
//! host that have no source yet (`from 0.0.0.0 iif lo`): the host's resolver does not stay on a dead link because the
//! main table's default route does. Packets that match none of them are routed as if we were not there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context;
use futures_util::TryStreamExt;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteScope};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{IpVersion, RouteMessageBuilder};

use super::ids::{Ids, PROTOCOL};
use crate::config::Config;
use crate::observe::{Desired, Netlink, TABLE_MAIN};
use crate::plane::{LinkId, LinkPath};
use crate::slots::Slots;

/// Where the kernel says that its own packets come from.
const LOOPBACK: &str = "lo";

/// What a rule looks at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Select {
    From(IpAddr),
    Oif(String),
    Mark(u32),
    /// Packets of the host that are bound to no address.
    Own,
}

/// The main table stands for its specific routes only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    priority: u32,
    select: Select,
    table: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DefaultRoute {
    gateway: Option<IpAddr>,
    ifindex: u32,
    source: IpAddr,
}

/// What takes new packets of no link in particular.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstUsable {
    pub link: LinkId,
    /// It carries the kernel's own NAT, too.
    pub falls_back: bool,
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
    tables: BTreeMap<u32, DefaultRoute>,
}

impl Routing {
    pub fn derive(
        ids: Ids,
        config: &Config,
        slots: &Slots,
        desired: &Desired,
        first: Option<FirstUsable>,
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
            routing.tables.insert(table, DefaultRoute::through(path));
            routing.select(ids, Select::From(path.external), table);
            routing.select(ids, Select::Oif(link.device.clone()), table);
        }
        if let Some((first, path)) =
            first.and_then(|first| Some((first, usable(desired, first.link)?)))
        {
            routing.lead_to_first_usable(ids, first, path);
        }
        routing
    }

    fn lead_to_first_usable(&mut self, ids: Ids, first: FirstUsable, path: &LinkPath) {
        let table = ids.first_usable_table();
        self.tables.insert(table, DefaultRoute::through(path));
        if first.falls_back {
            self.select(ids, Select::Mark(ids.fallback_mark()), table);
        }
        let priorities = [ids.own_specific_priority(), ids.own_table_priority()];
        self.select_at(priorities, Select::Own, table);
    }

    fn select(&mut self, ids: Ids, select: Select, table: u32) {
        self.select_at(
            [ids.specific_priority(), ids.table_priority()],
            select,
            table,
        );
    }

    fn select_at(&mut self, [specific, last]: [u32; 2], select: Select, table: u32) {
        self.rules.insert(Rule {
            priority: specific,
            select: select.clone(),
            table: TABLE_MAIN,
        });
        self.rules.insert(Rule {
            priority: last,
            select,
            table,
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

impl DefaultRoute {
    fn through(path: &LinkPath) -> Self {
        Self {
            gateway: path.gateway,
            ifindex: path.ifindex,
            source: path.external,
        }
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

fn is_route(message: &RouteMessage, table: u32, route: &DefaultRoute) -> bool {
    let has = |attribute: RouteAttribute| message.attributes.contains(&attribute);
    let gateway = message
        .attributes
        .iter()
        .any(|attribute| matches!(attribute, RouteAttribute::Gateway(_)));
    table_of(message) == table
        && has(RouteAttribute::Oif(route.ifindex))
        && has(RouteAttribute::PrefSource(route.source.into()))
        && match route.gateway {
            Some(address) => has(RouteAttribute::Gateway(address.into())),
            None => !gateway,
        }
}

async fn add_route(netlink: &Netlink, table: u32, route: &DefaultRoute) -> anyhow::Result<()> {
    let mut builder = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(super::DEFAULT_V4, 0)
        .context("default route")?
        .pref_source(route.source)
        .context("source of a default route")?
        .output_interface(route.ifindex)
        .table_id(table)
        .protocol(RouteProtocol::Other(PROTOCOL));
    builder = match route.gateway {
        // The gateway of a link need not be inside the address's network (cable and DSL modems do that).
        Some(address) => builder
            .gateway(address)
            .context("gateway of a default route")?
            .onlink(),
        None => builder.scope(RouteScope::Link),
    };
    let request = netlink.handle.route().add(builder.build()).replace();
    request
        .execute()
        .await
        .with_context(|| format!("set the default route of table {table} {route}"))
}

async fn add_rule(netlink: &Netlink, rule: &Rule) -> anyhow::Result<()> {
    let mut request = netlink
        .handle
        .rule()
        .add()
        .v4()
        .priority(rule.priority)
        .table_id(rule.table)
        .action(RuleAction::ToTable);
    request = match &rule.select {
        Select::From(IpAddr::V4(address)) => request.source_prefix(*address, 32),
        Select::From(IpAddr::V6(address)) => anyhow::bail!("{address} in an IPv4 rule"),
        Select::Oif(device) => request.output_interface(device),
        Select::Mark(mark) => request.fw_mark(*mark),
        Select::Own => request
            .source_prefix(Ipv4Addr::UNSPECIFIED, 32)
            .input_interface(LOOPBACK.to_owned()),
    };
    let attributes = &mut request.message_mut().attributes;
    attributes.push(RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)));
    if rule.table == TABLE_MAIN {
        attributes.push(RuleAttribute::SuppressPrefixLen(0));
    }
    request
        .execute()
        .await
        .with_context(|| format!("add routing rule {rule:?}"))
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
    let mut select = None;
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Source(address) if message.header.src_len == 32 => {
                select = Some(match address.is_unspecified() {
                    true => Select::Own,
                    false => Select::From(*address),
                })
            }
            RuleAttribute::Oifname(device) => select = Some(Select::Oif(device.clone())),
            RuleAttribute::FwMark(mark) => select = Some(Select::Mark(*mark)),
            _ => {}
        }
    }
    let (priority, table) = place_of(message);
    Some(Rule {
        priority,
        select: select?,
        table,
    })
}
