//! `nat` and `limits`: settings of address translation, and limits of flows.

use std::time::Duration;

use anabranch_config::{Source, Span};
use anabranch_policy::abi::RESERVED_MAX;

use super::file::{LimitsTable, NatTable, Ports};
use super::words::{Fallback, Forwards, LanSources, UdpFilter};
use crate::error::BadInput;

const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
pub(super) const FLOWS_MAX: u32 = 16_000_000;
const FLOWS_DEFAULT: u32 = 1 << 18;
/// Keeps the table below 64 MB of kernel memory.
const PREFIXES_MAX: u32 = 100_000;
/// A site of some thousand hosts uses fewer prefixes in a week (Guo 2004, figure 5).
const PREFIXES_DEFAULT: u32 = 8192;
const FLOWS_PER_HOST_DEFAULT: u32 = 1 << 13;

/// Settings of address translation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nat {
    /// RFC 5382 REQ-5: at least 2 h 4 min.
    pub tcp_established: Duration,
    /// RFC 5382 REQ-5: at least 4 min.
    pub tcp_transitory: Duration,
    /// For a first SYN without an answer. It is transitory, too.
    pub tcp_unanswered: Duration,
    /// RFC 4787 REQ-5: at least 2 min, 5 min recommended.
    pub udp: Duration,
    /// RFC 5508 REQ-2: at least 60 s.
    pub icmp: Duration,
    /// Range of external ports, both ends included, without the host's ephemeral ports.
    pub ports: [u16; 2],
    /// From which remote addresses a UDP mapping accepts packets.
    pub udp_filter: UdpFilter,
    /// What happens to a flow for which there is no room.
    pub fallback: Fallback,
    /// What happens to packets from a link that belong to no flow.
    pub forwards: Forwards,
    /// From which devices a LAN source may come.
    pub lan_sources: LanSources,
    /// Ports of the host's own services, which no flow gets; 0: none.
    pub reserved: [u16; RESERVED_MAX],
}

/// Limits of flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of flows of all hosts.
    pub flows: u32,
    /// Maximum number of flows of one LAN address.
    pub flows_per_host: u32,
    /// Maximum number of destination prefixes with measurements, for policies that use these.
    pub prefixes: u32,
}

pub(super) fn nat(source: &Source<'_>, table: &NatTable) -> Result<Nat, BadInput> {
    let time = |key, written: Option<Span>, default_s| match written {
        None => Ok(Duration::from_secs(default_s)),
        Some(Span(time)) if (TIMEOUT_MIN..=TIMEOUT_MAX).contains(&time) => Ok(time),
        Some(_) => Err(source.bad(
            &["nat", key],
            format!(
                "a time from {TIMEOUT_MIN:?} to {}h",
                TIMEOUT_MAX.as_secs() / 3600
            ),
        )),
    };
    let Ports(ports) = table.ports.unwrap_or(Ports([1024, u16::MAX]));
    if ports[0] < 1024 || ports[0] > ports[1] {
        return Err(source.bad(
            &["nat", "ports"],
            "write [first, last], within 1024 to 65535, like [20000, 29999]",
        ));
    }
    Ok(Nat {
        tcp_established: time("tcp_established", table.tcp_established, 7440)?,
        tcp_transitory: time("tcp_transitory", table.tcp_transitory, 240)?,
        tcp_unanswered: time("tcp_unanswered", table.tcp_unanswered, 240)?,
        udp: time("udp", table.udp, 300)?,
        icmp: time("icmp", table.icmp, 60)?,
        ports,
        udp_filter: table.udp_filter.unwrap_or(UdpFilter::AddressDependent),
        fallback: table.fallback.unwrap_or(Fallback::Kernel),
        forwards: table.forwards.unwrap_or(Forwards::Drop),
        lan_sources: table.lan_sources.unwrap_or(LanSources::Strict),
        reserved: reserved(source, table.reserved.clone().unwrap_or_default())?,
    })
}

fn reserved(source: &Source<'_>, ports: Vec<u16>) -> Result<[u16; RESERVED_MAX], BadInput> {
    if ports.len() > RESERVED_MAX || ports.contains(&0) {
        let allowed = format!("at most {RESERVED_MAX} ports from 1 to 65535 are allowed");
        return Err(source.bad(&["nat", "reserved"], allowed));
    }
    let mut ports = ports.into_iter();
    Ok([(); RESERVED_MAX].map(|()| ports.next().unwrap_or(0)))
}

pub(super) fn limits(source: &Source<'_>, table: &LimitsTable) -> Result<Limits, BadInput> {
    let flows = table.flows.unwrap_or(FLOWS_DEFAULT);
    if !(1..=FLOWS_MAX).contains(&flows) {
        return Err(source.bad(
            &["limits", "flows"],
            format!("1 to {FLOWS_MAX} flows are allowed"),
        ));
    }
    let flows_per_host = table
        .flows_per_host
        .unwrap_or(FLOWS_PER_HOST_DEFAULT.min(flows));
    if !(1..=flows).contains(&flows_per_host) {
        let allowed = format!("1 to limits.flows ({flows}) are allowed");
        return Err(source.bad(&["limits", "flows_per_host"], allowed));
    }
    let prefixes = table.prefixes.unwrap_or(PREFIXES_DEFAULT);
    if !(1..=PREFIXES_MAX).contains(&prefixes) {
        let allowed = format!("1 to {PREFIXES_MAX} prefixes are allowed");
        return Err(source.bad(&["limits", "prefixes"], allowed));
    }
    Ok(Limits {
        flows,
        flows_per_host,
        prefixes,
    })
}
