//! `link.NAME`: one ISP access line.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use anabranch_config::{LineRate, Rate, Source, is_name};
use anabranch_core::catalogue::TargetKind;
use anabranch_core::checks::{Check, ProbeTarget};
use anabranch_core::{Family, Kind, LinkSpec, OnReturn};
use anabranch_policy::PerFamily;

use super::addresses::{is_of_one_host, per_family, prefix6, prefixes};
use super::file::{HostAddress, HostAddress6, LinkTable};
use super::targets::targets;
use super::words::Inbound;
use crate::error::BadInput;
use crate::probe::{DEFAULT_TARGETS, portal_pages};

const LINK_NAME_CHARS_MAX: usize = 32;

/// One ISP access line.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Unique among links.
    pub name: String,
    /// The device that leads to the ISP.
    pub device: String,
    /// Rate towards the LAN.
    pub down: Option<Rate>,
    /// Rate towards the internet.
    pub up: Option<Rate>,
    /// Bytes cost money: used only while no other link is usable.
    pub metered: bool,
    /// Whether flows have the link's address. Without NAT they keep that of the LAN host, which the ISP routes to the link.
    pub nat: bool,
    /// Fixed weight, for algorithms that otherwise derive it from the rates.
    pub weight: Option<u32>,
    /// Next hop, instead of the one of the host's default route through the device.
    pub gateway: PerFamily<Option<IpAddr>>,
    /// External address, instead of the device's first.
    pub address: PerFamily<Option<IpAddr>>,
    /// IPv6 network that the ISP routes to this link, and its length: hosts keep the rest of their addresses (RFC 6296).
    pub prefix6: Option<(Ipv6Addr, u8)>,
    /// What happens to connections from the internet to such a network, configured or detected.
    pub inbound: Inbound,
    /// Networks that the ISP routes to this link, and their lengths: further source addresses for this link.
    pub prefixes: Vec<(IpAddr, u8)>,
    /// Configured targets of probes. A family without any has the resolvers that all links use,
    /// the gateway, and the resolvers of the lease.
    pub probe: Vec<ProbeTarget>,
    /// Whether pages are probed as well, to detect captive portals.
    pub captive: bool,
    /// Checks that must be up for the link to be used.
    pub checks: Vec<Check>,
    /// Whether monitoring gets an alarm if it does not work.
    pub alert: bool,
    /// What its flows do when a better link returns.
    pub on_return: OnReturn,
}

impl Link {
    /// The configuration for the balancer.
    pub fn spec(&self) -> LinkSpec {
        LinkSpec {
            name: self.name.clone(),
            rate_up_bps: self.up.map(Rate::bps),
            rate_down_bps: self.down.map(Rate::bps),
            weight: self.weight,
            metered: self.metered,
            routed: !self.nat,
            on_return: self.on_return,
        }
    }

    /// The configured targets of one family.
    pub fn written_targets(&self, family: Family) -> impl Iterator<Item = ProbeTarget> {
        let written = self.probe.iter();
        written.filter(move |target| target.is_of(family)).cloned()
    }

    /// The targets of one family before anything is detected. Never empty.
    pub fn targets(&self, family: Family) -> Vec<ProbeTarget> {
        let mut all: Vec<ProbeTarget> = self.written_targets(family).collect();
        if all.is_empty() {
            all = DEFAULT_TARGETS[family.index()].to_vec();
        }
        all.extend(portal_pages().filter(|_| self.captive));
        all
    }

    /// Whether the configuration has a setting for this family of the link.
    pub fn names(&self, family: Family) -> bool {
        let has_prefix = family == Family::V6 && self.prefix6.is_some();
        has_prefix || self.gateway[family].is_some() || self.address[family].is_some()
    }

    /// Bytes of probes in a month, for one family of a link without traffic, in both directions together.
    pub fn probe_bytes_a_month(
        &self,
        family: Family,
        availability: &anabranch_core::Config,
    ) -> u64 {
        const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
        let factor = availability.times_rarer(self.metered);
        let probes = MONTH.as_millis() / (availability.idle_probe * factor).as_millis().max(1);
        let mut targets = self.targets(family);
        // Pages are probed in addition, and much more rarely.
        targets.retain(|target| target.kind() != Kind::Http);
        let bytes: u64 = targets.iter().map(ProbeTarget::bytes).sum();
        probes as u64 * bytes / targets.len().max(1) as u64
    }
}

pub(super) fn links(
    source: &Source<'_>,
    tables: BTreeMap<String, LinkTable>,
    (probe, captive): (Option<&[ProbeTarget]>, bool),
    on_return: Option<OnReturn>,
) -> Result<Vec<Link>, BadInput> {
    if tables.is_empty() {
        return Err(source.bad(
            &["link"],
            r#"no link; write link.NAME = { device = "eth1", down = "500mbit", up = "100mbit" }"#,
        ));
    }
    let weight = ("weight", |table: &LinkTable| table.weight.is_some());
    TargetKind::Link
        .tables(source, &["link"], tables, weight)?
        .into_iter()
        .map(|(name, table)| link(source, name, table, (probe, captive), on_return))
        .collect()
}

fn link(
    source: &Source<'_>,
    name: String,
    table: LinkTable,
    (probe, captive): (Option<&[ProbeTarget]>, bool),
    on_return: Option<OnReturn>,
) -> Result<Link, BadInput> {
    let bad = |key, problem: &str| Err(source.bad(&["link", &name, key], problem));
    if !is_name(&name, LINK_NAME_CHARS_MAX) {
        let allowed =
            format!("a link's name has 1 to {LINK_NAME_CHARS_MAX} letters, digits, '-' and '_'");
        return Err(source.bad(&["link", &name], allowed));
    }
    if table
        .weight
        .is_some_and(|weight| !(1..=1000).contains(&weight))
    {
        return bad("weight", "a weight is a whole number from 1 to 1000");
    }
    let address_of = |written: Option<HostAddress>| written.map(|HostAddress(address)| address);
    let [gateway, address] = [table.gateway, table.address].map(address_of);
    for (key, address) in [("gateway", gateway), ("address", address)] {
        if address.is_some_and(|address| !is_of_one_host(address.into())) {
            return bad(key, "must be the IPv4 address of one host");
        }
    }
    let address_of = |written: Option<HostAddress6>| written.map(|HostAddress6(address)| address);
    let [gateway6, address6] = [table.gateway6, table.address6].map(address_of);
    for (key, address) in [("gateway6", gateway6), ("address6", address6)] {
        if address.is_some_and(|a| a.is_unspecified() || a.is_loopback() || a.is_multicast()) {
            return bad(key, "must be the IPv6 address of one host");
        }
    }
    if address6.is_some_and(|address| address.is_unicast_link_local()) {
        return bad(
            "address6",
            "is known on the line alone; write one that the internet can answer to",
        );
    }
    let prefix6 = prefix6(source, &name, table.prefix6.as_deref())?;
    if table.inbound == Inbound::Allow && !table.nat {
        return bad(
            "inbound",
            "is for links that translate prefixes; without NAT whoever is outside may begin: leave it out",
        );
    }
    let prefixes = prefixes(source, &name, table.prefixes)?;
    let own_probe = targets(source, &["link", &name, "probe"], table.probe)?;
    let written = own_probe.or(probe.map(<[ProbeTarget]>::to_vec));
    let default_on_return = if table.metered {
        OnReturn::Idle
    } else {
        OnReturn::Stay
    };
    Ok(Link {
        device: table.device,
        down: table.down.map(|LineRate(rate)| rate),
        up: table.up.map(|LineRate(rate)| rate),
        metered: table.metered,
        nat: table.nat,
        weight: table.weight,
        gateway: per_family(gateway, gateway6),
        address: per_family(address, address6),
        prefix6,
        inbound: table.inbound,
        prefixes,
        probe: written.unwrap_or_default(),
        captive,
        checks: Vec::new(),
        alert: table.alert,
        on_return: table.on_return.or(on_return).unwrap_or(default_on_return),
        name,
    })
}
