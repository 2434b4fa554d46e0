//! The survey: finds other programs on this host, and hosts beside it, that affect the gateway's traffic.
//!
//! The programs take balanced packets at the ingress of a device and send them to the egress of another. These packets are subject
//! to routing rules, which are copied for the programs, and to what is at the egress of devices. They pass neither netfilter nor
//! what others have attached at the ingress. A [`Scene`] has what was read of such neighbours. [`findings`] is a pure function that
//! says what each means for packets and what to do about it. `check`, `status` and the log show the same [`Finding`]s.
//!
//! Severities: [`Severity::Refused`] if no configuration can work beside it; [`Severity::Trouble`] if traffic is not treated as
//! somebody intended; [`Severity::Note`] for information. An administrator who intends it names the finding in
//! `survey.ignore`, alone or with its subject.

mod devices;
mod dhcp;
mod names;
mod netfilter;
mod qdiscs;
mod read;
mod routing;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;

use anabranch_api::{Finding, Severity};
use anabranch_core::Family;
use anabranch_core::rules::WhenNone;
use anabranch_policy::abi;

pub use dhcp::DhcpClient;
pub use netfilter::Ruleset;
pub use qdiscs::IngressQdisc;
pub(crate) use read::list as ruleset;
pub use read::{Reader, Stateless, conntrack as connection_table};

use crate::config::Config;
use crate::error::BadInput;
use crate::host::Undone;
use crate::observe::{Hop, Snapshot};
use names::{
    BRIDGE_PORT, CONNTRACK_FULL, DHCP_CLIENT, DHCP_CLIENTS, DUPLICATE_ADDRESS, FORWARD_FILTER,
    GOTO_RULE, INGRESS_FILTER, INGRESS_QDISC, LAN_REDIRECT, LEGACY_IPTABLES, MANY_ROUTES,
    MARK_RULE, MULTIPATH_DEFAULT, NEIGHBOUR_TABLE_FULL, OUR_MARKS, PORT_FORWARD, PREROUTING_FILTER,
    ROUTING_RULE, SETTING_UNDONE, SHARED_SEGMENT, UNLISTED_NETWORK,
};

pub use names::NAMES;

/// A table of the kernel counts as nearly full from this percentage on.
const FULL_PERCENT: u64 = 80;

/// What was read of this host, beside its devices, addresses, routes and rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scene {
    /// Ingress queueing disciplines with filters of others, on all devices.
    pub ingress: Vec<IngressQdisc>,
    /// nftables rules, without ours.
    pub netfilter: Ruleset,
    /// Tables of legacy iptables, which nftables does not show.
    pub legacy_tables: Vec<String>,
    /// Programs that take leases, sorted.
    pub dhcp_clients: Vec<DhcpClient>,
    /// None if the kernel tracks no connections.
    pub conntrack: Option<Conntrack>,
    /// The neighbour tables (ARP, neighbour discovery) that are nearly full, or were recently.
    pub full_neighbour_tables: Vec<NeighbourTable>,
    /// Settings of the gateway that another program set back while it ran.
    pub undone: Vec<Undone>,
}

/// The kernel's connection table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conntrack {
    /// Number of entries, ...
    pub entries: u64,
    /// ... and the maximum.
    pub places: u64,
    /// The hosts that began most of them, if it is nearly full.
    pub sources: Vec<(IpAddr, u64)>,
}

/// A neighbour table of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeighbourTable {
    /// Its address family.
    pub family: Family,
    /// Number of entries, ...
    pub entries: u64,
    /// ... and the maximum.
    pub places: u64,
    /// The devices that have most of them.
    pub devices: Vec<(String, u64)>,
}

impl Conntrack {
    fn is_nearly_full(&self) -> bool {
        self.places > 0 && self.entries * 100 >= self.places * FULL_PERCENT
    }
}

/// The findings for a gateway with this configuration, the gravest first.
pub fn findings(config: &Config, host: &Snapshot, scene: &Scene) -> Vec<Finding> {
    let mut all = devices::findings(config, host);
    all.extend(qdiscs::findings(config, host, &scene.ingress));
    all.extend(netfilter::findings(config, &scene.netfilter));
    all.extend(netfilter::legacy(&scene.legacy_tables));
    all.extend(routing::findings(config, host, &scene.netfilter));
    all.extend(dhcp::findings(config, &scene.dhcp_clients));
    all.extend(scene.conntrack.as_ref().and_then(conntrack));
    all.extend(scene.full_neighbour_tables.iter().map(neighbour_table));
    all.extend(scene.undone.iter().map(undone));
    all.retain(|finding| finding.severity == Severity::Refused || !is_ignored(config, finding));
    all.sort();
    all.dedup();
    all
}

/// Refuses a configuration that cannot work with these findings, with a line for each.
pub fn refuse(config: &Config, found: &[Finding]) -> Result<(), BadInput> {
    let refused = found
        .iter()
        .filter(|finding| finding.severity == Severity::Refused);
    let lines: Vec<String> = refused
        .map(|finding| config.bad(finding).to_string())
        .collect();
    if lines.is_empty() {
        return Ok(());
    }
    Err(BadInput::new(lines.join("\n")))
}

fn is_ignored(config: &Config, finding: &Finding) -> bool {
    let with_subject = format!("{} {}", finding.name, finding.subject);
    let mut ignored = config.survey_ignore.iter();
    ignored.any(|words| *words == finding.name || *words == with_subject)
}

fn conntrack(table: &Conntrack) -> Option<Finding> {
    let Conntrack {
        entries, places, ..
    } = table;
    let by = match shares(&table.sources, *entries) {
        shares if shares.is_empty() => shares,
        shares => format!("; of its connections {shares}"),
    };
    table.is_nearly_full().then(|| {
        finding(
            Severity::Trouble,
            CONNTRACK_FULL,
            "nf_conntrack",
            format!(
                "the kernel's connection table is nearly full: what the kernel itself forwards, and what this host sends or is asked, \
                 may be dropped{by}"
            ),
            format!(
                "stop who fills it, or limit what may be asked of this host from there; or raise net.netfilter.nf_conntrack_max above \
                 {places}"
            ),
        )
    })
}

/// The owners of most of the entries. Shares are rounded to tenths, because the log repeats what changes.
fn shares(owners: &[(impl Display, u64)], entries: u64) -> String {
    let shares = owners.iter().filter_map(|(owner, own)| {
        let tenths = own * 10 / entries.max(1);
        (tenths > 0).then(|| format!("{owner} has {} %", tenths * 10))
    });
    shares.collect::<Vec<_>>().join(", ")
}

fn neighbour_table(table: &NeighbourTable) -> Finding {
    let (protocol, version) = match table.family {
        Family::V4 => ("ARP", "ipv4"),
        Family::V6 => ("IPv6", "ipv6"),
    };
    let by = match shares(&table.devices, table.entries) {
        shares if shares.is_empty() => shares,
        shares => format!("; of its entries {shares}"),
    };
    finding(
        Severity::Trouble,
        NEIGHBOUR_TABLE_FULL,
        format!("net.{version}.neigh"),
        format!(
            "the kernel's table of {protocol} neighbours is nearly full: hosts that have to be found anew may get nothing{by}"
        ),
        format!(
            "stop who asks or answers there for addresses that no host has; or raise net.{version}.neigh.default.gc_thresh3 above {}, and \
             gc_thresh2 with it",
            table.places
        ),
    )
}

fn undone(setting: &Undone) -> Finding {
    let Undone {
        name,
        found,
        wanted,
    } = setting;
    finding(
        Severity::Trouble,
        SETTING_UNDONE,
        name,
        format!(
            "somebody set it to {found} while the gateway needs {wanted}, and it was set again: meanwhile packets of links were lost"
        ),
        format!(
            "set it to {wanted} where that comes from: /etc/sysctl.d, a network manager, a script"
        ),
    )
}

pub(crate) fn finding(
    severity: Severity,
    name: &str,
    subject: impl Into<String>,
    meaning: String,
    cure: String,
) -> Finding {
    Finding {
        severity,
        name: name.to_owned(),
        subject: subject.into(),
        meaning,
        cure,
    }
}

fn is_ours(mark: u32) -> bool {
    mark & abi::OUR_MARKS_MASK == abi::OUR_MARKS
}

/// Whether a device is one of the LAN or of a link.
fn is_configured(config: &Config, device: &str) -> bool {
    config.devices().contains(&device)
}

/// Whether a rule of the configuration leaves connections to these ports to the kernel, where netfilter sees them.
fn is_handed_over(config: &Config, ports: &[u16]) -> bool {
    let covers = |rule: &anabranch_core::rules::Rule| {
        let written = &rule.matches.ports;
        let has = |port: &u16| written.iter().any(|range| range.contains(port));
        let is_kernel = rule.class.when_none == WhenNone::Kernel
            && rule.class.tiers.as_ref().is_some_and(Vec::is_empty);
        is_kernel && (written.is_empty() || !ports.is_empty() && ports.iter().all(has))
    };
    config.rules.iter().any(covers)
}

/// The survey of a running gateway.
#[derive(Debug, Default)]
pub struct Survey {
    /// The host as it was seen last, without routes that no finding is about.
    host: Snapshot,
    is_due: bool,
    found: Vec<Finding>,
    told: Told,
}

impl Survey {
    /// Reports the present state of the host, which may have changed.
    pub fn see(&mut self, config: &Config, mut host: Snapshot) {
        let lan = config.lan.iter().filter_map(|name| host.devices.get(name));
        let lan: Vec<u32> = lan.map(|device| device.ifindex).collect();
        let is_of_lan = |hop: &Hop| lan.contains(&hop.ifindex);
        host.routes
            .retain(|route| route.prefix.length == 0 || route.hops.iter().any(is_of_lan));
        self.host = host;
        self.is_due = true;
    }

    /// Whether there is a state that was not surveyed yet.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// Takes the state for the next survey.
    pub fn take(&mut self) -> Snapshot {
        self.is_due = false;
        self.host.clone()
    }

    /// Stores all findings, and logs the new ones.
    pub fn tell(&mut self, found: Vec<Finding>) {
        self.told.changes(&found).iter().for_each(Change::tell);
        self.found = found;
    }

    /// The findings, the gravest first.
    pub fn found(&self) -> &[Finding] {
        &self.found
    }
}

/// The findings that were logged, by kind and subject.
#[derive(Debug, Default)]
pub struct Told(BTreeMap<(String, String), Finding>);

/// A change since the last survey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A finding is new, or its meaning has changed.
    Found(Finding),
    /// A finding does not apply any more.
    Gone(Finding),
}

impl Told {
    /// The changes that have to be logged. `found` has all findings.
    pub fn changes(&mut self, found: &[Finding]) -> Vec<Change> {
        let key = |finding: &Finding| (finding.name.clone(), finding.subject.clone());
        let now: BTreeMap<_, _> = found.iter().map(|one| (key(one), one.clone())).collect();
        let before = std::mem::replace(&mut self.0, now);
        let is_new = |(key, finding): &(&_, &Finding)| before.get(*key) != Some(*finding);
        let appeared = self.0.iter().filter(is_new);
        let gone = before.iter().filter(|(key, _)| !self.0.contains_key(*key));
        let appeared = appeared.map(|(_, finding)| Change::Found(finding.clone()));
        appeared
            .chain(gone.map(|(_, finding)| Change::Gone(finding.clone())))
            .collect()
    }
}

impl Change {
    /// Logs it, at the level of its severity.
    pub fn tell(&self) {
        match self {
            Self::Gone(Finding { name, subject, .. }) => {
                tracing::info!("{name}, {subject}: no longer there");
            }
            Self::Found(finding) if finding.severity == Severity::Note => {
                tracing::info!("{finding}");
            }
            Self::Found(finding) => tracing::warn!("{finding}"),
        }
    }
}

#[cfg(test)]
mod tests;
