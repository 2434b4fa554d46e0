//! Routing rules (`ip rule`) of others: of an administrator, a VPN, a network manager.
//!
//! They take precedence over the gateway if they come before the main table. Packets of the LAN that the programs carry are subject
//! to them only if the programs query the kernel. So this module finds out which of them may apply to such packets at all.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use anabranch_core::Family;
use anyhow::Context;
use futures_util::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use rtnetlink::IpVersion;

use super::netlink::{IPV6, Netlink};
use super::{Prefix, TABLE_LOCAL, TABLE_MAIN};
use crate::host::ids;

/// Priority of the kernel's rule for the main table.
pub const MAIN_PRIORITY: u32 = 32_766;
/// Priorities and tables of the rules that the kernel creates.
const KERNELS_OWN: [(u32, u32); 3] = [
    (0, TABLE_LOCAL),
    (MAIN_PRIORITY, TABLE_MAIN),
    (32_767, libc::RT_TABLE_DEFAULT as u32),
];
/// The user id that the kernel assumes for packets that are only forwarded.
const FORWARDED_UID: u32 = 0;

/// A rule that neither the kernel nor the gateway has created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignRule {
    /// The kernel's message.
    pub message: RuleMessage,
}

/// Properties of packets of the LAN.
#[derive(Debug, Clone, Copy)]
pub struct LanSide<'a> {
    /// Names of the LAN devices.
    pub devices: &'a BTreeSet<String>,
    /// Networks of their sources.
    pub networks: &'a [Prefix],
}

/// Whether a rule applies to packets of the LAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfLan {
    /// To none.
    Never,
    /// To some, perhaps.
    Maybe,
    /// Only to packets that netfilter has marked; packets that the programs carry never pass netfilter.
    IfMarked,
}

impl ForeignRule {
    /// None for a rule of the kernel or of ours.
    fn of(message: RuleMessage) -> Option<Self> {
        let rule = Self { message };
        let is_ours = rule.protocol() == Some(RouteProtocol::Other(ids::PROTOCOL));
        let is_kernels = KERNELS_OWN.contains(&(rule.priority(), rule.table()))
            && !rule.selects()
            && rule.message.header.action == RuleAction::ToTable;
        (!is_ours && !is_kernels).then_some(rule)
    }

    /// Rules with smaller priorities are looked up first.
    pub fn priority(&self) -> u32 {
        let priority = self.find(|attribute| match attribute {
            RuleAttribute::Priority(priority) => Some(*priority),
            _ => None,
        });
        priority.unwrap_or(0)
    }

    /// The family of its packets.
    pub fn family(&self) -> Family {
        match self.message.header.family {
            AddressFamily::Inet6 => Family::V6,
            _ => Family::V4,
        }
    }

    /// The table that it looks up.
    pub fn table(&self) -> u32 {
        let wide = self.find(|attribute| match attribute {
            RuleAttribute::Table(table) => Some(*table),
            _ => None,
        });
        wide.unwrap_or(self.message.header.table.into())
    }

    /// The priority of the rule to which it jumps.
    pub fn leads_to(&self) -> Option<u32> {
        self.find(|attribute| match attribute {
            RuleAttribute::Goto(target) => Some(*target),
            _ => None,
        })
        .filter(|_| self.message.header.action == RuleAction::Goto)
    }

    /// Whether it matches everything that its other fields do not (`not`).
    pub fn is_inverted(&self) -> bool {
        self.message.header.flags.contains(RuleFlags::Invert)
    }

    /// Whether it looks up the main table without its default routes.
    fn spares_defaults(&self) -> bool {
        let attributes = &self.message.attributes;
        self.table() == TABLE_MAIN && attributes.contains(&RuleAttribute::SuppressPrefixLen(0))
    }

    /// Whether it matches all packets, whatever their addresses, except perhaps by their mark.
    fn takes_all(&self) -> bool {
        let header = &self.message.header;
        let selects = |attribute: &RuleAttribute| {
            matches!(
                attribute,
                RuleAttribute::Iifname(_)
                    | RuleAttribute::Oifname(_)
                    | RuleAttribute::IpProtocol(_)
                    | RuleAttribute::SourcePortRange(_)
                    | RuleAttribute::DestinationPortRange(_)
                    | RuleAttribute::UidRange(_)
                    | RuleAttribute::L3MDev(_)
            )
        };
        header.src_len == 0
            && header.dst_len == 0
            && header.tos == 0
            && !self.message.attributes.iter().any(selects)
    }

    /// Whether it may apply to packets that the programs balance.
    pub fn of_lan(&self, lan: LanSide<'_>) -> OfLan {
        let leads_on = matches!(self.message.header.action, RuleAction::Nop);
        if leads_on || !self.is_inverted() && self.excludes(lan) {
            return OfLan::Never;
        }
        match self.mark() {
            Some((mark, mask)) if mark & mask != 0 && !self.is_inverted() => OfLan::IfMarked,
            _ => OfLan::Maybe,
        }
    }

    /// Whether one of its fields matches no packet from the LAN.
    fn excludes(&self, lan: LanSide<'_>) -> bool {
        let attributes = &self.message.attributes;
        attributes.iter().any(|attribute| match attribute {
            RuleAttribute::Iifname(device) => !lan.devices.contains(device),
            RuleAttribute::Oifname(_) => true,
            RuleAttribute::UidRange(range) => !(range.start..=range.end).contains(&FORWARDED_UID),
            RuleAttribute::Source(address) => {
                let source = Prefix::new(*address, self.message.header.src_len);
                !lan.networks.iter().any(|network| network.overlaps(source))
            }
            _ => false,
        })
    }

    /// The mark and mask that it matches.
    pub fn mark(&self) -> Option<(u32, u32)> {
        let mark = self.find(|attribute| match attribute {
            RuleAttribute::FwMark(mark) => Some(*mark),
            _ => None,
        })?;
        let mask = self.find(|attribute| match attribute {
            RuleAttribute::FwMask(mask) => Some(*mask),
            _ => None,
        });
        Some((mark, mask.unwrap_or(u32::MAX)))
    }

    /// Whether it does not match every packet, or does not use the whole table.
    fn selects(&self) -> bool {
        let header = &self.message.header;
        let is_plain = |attribute: &RuleAttribute| {
            matches!(
                attribute,
                RuleAttribute::Priority(_)
                    | RuleAttribute::Table(_)
                    | RuleAttribute::Protocol(_)
                    // The kernel writes a field that is not used as all ones.
                    | RuleAttribute::SuppressPrefixLen(u32::MAX)
            )
        };
        header.src_len != 0
            || header.dst_len != 0
            || header.tos != 0
            || self.is_inverted()
            || !self.message.attributes.iter().all(is_plain)
    }

    fn protocol(&self) -> Option<RouteProtocol> {
        self.find(|attribute| match attribute {
            RuleAttribute::Protocol(protocol) => Some(*protocol),
            _ => None,
        })
    }

    fn find<T>(&self, of: impl Fn(&RuleAttribute) -> Option<T>) -> Option<T> {
        self.message.attributes.iter().find_map(of)
    }
}

impl fmt::Display for ForeignRule {
    /// Like `ip rule`, as far as the fields are known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = &self.message.header;
        write!(f, "{}:", self.priority())?;
        if self.is_inverted() {
            f.write_str(" not")?;
        }
        let network = |address: &IpAddr, length| Prefix::new(*address, length);
        for attribute in &self.message.attributes {
            match attribute {
                RuleAttribute::Source(from) => write!(f, " from {}", network(from, header.src_len)),
                RuleAttribute::Destination(to) => write!(f, " to {}", network(to, header.dst_len)),
                RuleAttribute::Iifname(device) => write!(f, " iif {device}"),
                RuleAttribute::Oifname(device) => write!(f, " oif {device}"),
                RuleAttribute::UidRange(range) => {
                    write!(f, " uidrange {}-{}", range.start, range.end)
                }
                _ => Ok(()),
            }?;
        }
        if let Some((mark, mask)) = self.mark() {
            write!(f, " fwmark {mark:#x}")?;
            if mask != u32::MAX {
                write!(f, "/{mask:#x}")?;
            }
        }
        match header.action {
            RuleAction::ToTable if self.table() == TABLE_MAIN => f.write_str(" lookup main"),
            RuleAction::ToTable => write!(f, " lookup {}", self.table()),
            RuleAction::Goto => write!(f, " goto {}", self.leads_to().unwrap_or(0)),
            other => write!(f, " {}", format!("{other:?}").to_lowercase()),
        }
    }
}

impl Netlink {
    /// Rules of others, of both families, in the order in which the kernel looks them up.
    pub(super) async fn foreign_rules(&self) -> anyhow::Result<Vec<ForeignRule>> {
        let mut foreign = Vec::new();
        for family in Family::ALL {
            let all = self.rules(family).await?;
            foreign.extend(all.into_iter().filter_map(ForeignRule::of));
        }
        Ok(foreign)
    }

    /// All rules of a family, in that order; none if the kernel does not have the family.
    pub(crate) async fn rules(&self, family: Family) -> anyhow::Result<Vec<RuleMessage>> {
        if family == Family::V6 && !std::path::Path::new(IPV6).exists() {
            return Ok(Vec::new());
        }
        let version = match family {
            Family::V4 => IpVersion::V4,
            Family::V6 => IpVersion::V6,
        };
        let rules = self.handle.rule().get(version).execute();
        rules.try_collect().await.context("list routing rules")
    }
}

/// Whether an IPv6 rule that matches all packets of the LAN comes after one that looks up the main table without default routes.
/// The kernel's answer to programs stops at the latter (`bpf/lib/gateway/way.h`). `rules` are those that may apply, in their order.
pub fn hide_one<'a>(rules: impl Iterator<Item = &'a ForeignRule>) -> bool {
    let mut rules = rules
        .filter(|rule| rule.family() == Family::V6 && rule.priority() < MAIN_PRIORITY)
        .skip_while(|rule| !rule.spares_defaults());
    rules.any(|rule| rule.takes_all() && rule.table() != TABLE_MAIN)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::Ipv4Addr;

    use netlink_packet_route::rule::RuleUidRange;

    use super::super::tests::prefix;
    use super::*;

    /// Of IPv4, to a table.
    pub(crate) fn rule(priority: u32, table: u32, attributes: Vec<RuleAttribute>) -> ForeignRule {
        let mut message = RuleMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![
            RuleAttribute::Table(table),
            RuleAttribute::SuppressPrefixLen(u32::MAX),
            RuleAttribute::Protocol(RouteProtocol::Boot),
            RuleAttribute::Priority(priority),
        ];
        message.attributes.extend(attributes);
        ForeignRule { message }
    }

    pub(crate) fn not(mut rule: ForeignRule) -> ForeignRule {
        rule.message.header.flags |= RuleFlags::Invert;
        rule
    }

    fn from(network: [u8; 4], length: u8) -> ForeignRule {
        let source = RuleAttribute::Source(Ipv4Addr::from(network).into());
        let mut rule = rule(100, 52, vec![source]);
        rule.message.header.src_len = length;
        rule
    }

    #[test]
    fn a_full_tunnel_of_ipv6_is_hidden_behind_a_rule_that_spares_the_main_tables_defaults() {
        let v6 = |mut rule: ForeignRule| {
            rule.message.header.family = AddressFamily::Inet6;
            rule
        };
        let mut main = rule(32_764, TABLE_MAIN, vec![]);
        main.message.attributes[1] = RuleAttribute::SuppressPrefixLen(0);
        let tunnel = not(rule(32_765, 51_820, vec![RuleAttribute::FwMark(51_820)]));
        let narrow = rule(32_765, 100, vec![RuleAttribute::Iifname("lan0".to_owned())]);
        let (main6, tunnel6) = (v6(main.clone()), v6(tunnel.clone()));
        assert!(hide_one([&main6, &tunnel6].into_iter()));
        assert!(!hide_one([&tunnel6, &main6].into_iter()), "before it");
        assert!(!hide_one([&main, &tunnel].into_iter()), "of IPv4");
        assert!(!hide_one([&main6, &v6(narrow)].into_iter()));
    }

    fn of_lan(rule: &ForeignRule) -> OfLan {
        let devices = BTreeSet::from(["lan0".to_owned()]);
        let networks = [prefix("192.168.1.0/24")];
        let lan = LanSide {
            devices: &devices,
            networks: &networks,
        };
        rule.of_lan(lan)
    }

    #[test]
    fn the_kernels_three_rules_and_ours_are_nobody_elses() {
        let is_foreign = |rule: ForeignRule| ForeignRule::of(rule.message).is_some();
        for (priority, table) in KERNELS_OWN {
            assert!(!is_foreign(rule(priority, table, vec![])));
            assert!(is_foreign(rule(priority + 1, table, vec![])));
        }
        let mark = RuleAttribute::FwMark(1);
        assert!(is_foreign(rule(MAIN_PRIORITY, TABLE_MAIN, vec![mark])));
        assert!(is_foreign(not(rule(MAIN_PRIORITY, TABLE_MAIN, vec![]))));
        let mut ours = rule(5270, 52, vec![]);
        let protocol = RuleAttribute::Protocol(RouteProtocol::Other(ids::PROTOCOL));
        ours.message.attributes[2] = protocol;
        assert!(!is_foreign(ours));
    }

    #[test]
    fn a_rule_speaks_of_the_lan_unless_it_asks_for_what_no_packet_of_it_has() {
        use RuleAttribute::{FwMark, FwMask, Iifname, IpProtocol, Oifname, UidRange};
        let of = |attributes| of_lan(&rule(5270, 52, attributes));
        let device = |name: &str| name.to_owned();
        let uids = |start, end| UidRange(RuleUidRange { start, end });
        assert_eq!(of(vec![]), OfLan::Maybe, "a VPN's table");
        assert_eq!(of(vec![Iifname(device("lan0"))]), OfLan::Maybe);
        assert_eq!(of(vec![IpProtocol(6_u8.into())]), OfLan::Maybe);
        assert_eq!(of(vec![Iifname(device("lo"))]), OfLan::Never);
        assert_eq!(of(vec![Iifname(device("docker0"))]), OfLan::Never);
        assert_eq!(of(vec![Oifname(device("wan0"))]), OfLan::Never);
        assert_eq!(of(vec![uids(1000, 1999)]), OfLan::Never);
        assert_eq!(of(vec![uids(0, 999)]), OfLan::Maybe, "root's");
        assert_eq!(of_lan(&from([192, 168, 1, 64], 26)), OfLan::Maybe);
        assert_eq!(of_lan(&from([203, 0, 113, 2], 32)), OfLan::Never);
        let marked = vec![FwMark(0x80000), FwMask(0xff0000)];
        assert_eq!(of(marked), OfLan::IfMarked);
        assert_eq!(of(vec![FwMark(0), FwMask(0xff)]), OfLan::Maybe, "unmarked");
    }

    #[test]
    fn an_inverted_rule_speaks_of_what_it_does_not_name() {
        let mark = RuleAttribute::FwMark(51_820);
        let tunnel = not(rule(32_765, 51_820, vec![mark]));
        assert_eq!(of_lan(&tunnel), OfLan::Maybe);
        assert_eq!(tunnel.to_string(), "32765: not fwmark 0xca6c lookup 51820");
        let local = RuleAttribute::Iifname("lo".to_owned());
        assert_eq!(of_lan(&not(rule(1, 52, vec![local]))), OfLan::Maybe);
    }
}
