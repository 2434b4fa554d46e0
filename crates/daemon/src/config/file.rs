//! The configuration file as it is written, with every key.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Deserialize;
use serde::de::{Error, IgnoredAny, SeqAccess};

use anabranch_config::either::list;
use anabranch_config::{Either, LineRate, Span, read_either};
use anabranch_core::checks::ProbeTarget;
use anabranch_core::rules::file::{DefaultTable, RuleTable};
use anabranch_core::{Algorithm, OnReturn, Typed};

use super::words::{Fallback, Forwards, Inbound, LanSources, UdpFilter};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub lan: Vec<String>,
    #[serde(default)]
    pub link: BTreeMap<String, LinkTable>,
    pub policy: Option<Typed<Algorithm>>,
    #[serde(default)]
    pub availability: anabranch_core::Config,
    #[serde(default)]
    pub probe: ProbeTable,
    #[serde(default)]
    pub nat: NatTable,
    #[serde(default)]
    pub limits: LimitsTable,
    #[serde(default)]
    pub default: DefaultTable,
    #[serde(default)]
    pub rule: Vec<RuleTable>,
    #[serde(default)]
    pub check: Vec<CheckTable>,
    #[serde(default)]
    pub sessions: SessionsTable,
    #[serde(default)]
    pub survey: SurveyTable,
    /// Read by another role.
    #[serde(rename = "service")]
    _service: Option<IgnoredAny>,
    /// Read by another role.
    #[serde(rename = "services")]
    _services: Option<IgnoredAny>,
    /// Read by another role.
    #[serde(rename = "trunk")]
    _trunk: Option<IgnoredAny>,
    /// Read by another role.
    #[serde(rename = "member")]
    _member: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkTable {
    pub device: String,
    pub down: Option<LineRate>,
    pub up: Option<LineRate>,
    #[serde(default)]
    pub metered: bool,
    #[serde(default = "with_nat")]
    pub nat: bool,
    pub weight: Option<u32>,
    pub gateway: Option<HostAddress>,
    pub gateway6: Option<HostAddress6>,
    pub address: Option<HostAddress>,
    pub address6: Option<HostAddress6>,
    pub prefix6: Option<String>,
    #[serde(default)]
    pub inbound: Inbound,
    #[serde(default)]
    pub prefixes: Vec<String>,
    pub probe: Option<OneOrMore>,
    #[serde(default = "with_alert")]
    pub alert: bool,
    /// Former spelling of `default.on_return`.
    pub on_return: Option<OnReturn>,
}

fn with_nat() -> bool {
    true
}

fn with_alert() -> bool {
    true
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProbeTable {
    pub targets: Option<OneOrMore>,
    #[serde(default)]
    pub captive: bool,
    pub node: Option<ProbeTarget>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NatTable {
    pub tcp_established: Option<Span>,
    pub tcp_transitory: Option<Span>,
    pub tcp_unanswered: Option<Span>,
    pub udp: Option<Span>,
    pub icmp: Option<Span>,
    pub ports: Option<Ports>,
    pub udp_filter: Option<UdpFilter>,
    pub fallback: Option<Fallback>,
    pub forwards: Option<Forwards>,
    pub lan_sources: Option<LanSources>,
    pub reserved: Option<Vec<u16>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckTable {
    pub link: OneOrMore,
    pub ask: Option<OneOrMore>,
    pub command: Option<Vec<String>>,
    pub expect: Option<ExpectTable>,
    pub host: Option<String>,
    pub certificate: Option<String>,
    pub interval: Option<Span>,
    pub jitter: Option<u32>,
    pub timeout: Option<Span>,
    pub rise: Option<u32>,
    pub fall: Option<u32>,
    pub quorum: Option<usize>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectTable {
    pub status: Option<Vec<u16>>,
    pub body: Option<String>,
}

/// Former spelling of `default.stick` and `default.except`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionsTable {
    pub stick: Option<bool>,
    pub except: Option<Vec<u16>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsTable {
    pub flows: Option<u32>,
    pub flows_per_host: Option<u32>,
    pub prefixes: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SurveyTable {
    pub ignore: Option<OneOrMore>,
}

/// `"a"` or `["a", "b"]`.
#[derive(Debug)]
pub(crate) struct OneOrMore(pub Vec<String>);

impl Either for OneOrMore {
    const EXPECTED: &'static str =
        r#"a target or a list of them, like ["dns:1.1.1.1", "icmp:9.9.9.9"]"#;

    fn of_text<E: Error>(word: &str) -> Result<Self, E> {
        Ok(OneOrMore(vec![word.to_owned()]))
    }

    fn of_list<'de, A: SeqAccess<'de>>(words: A) -> Result<Self, A::Error> {
        list(words).map(OneOrMore)
    }
}

/// The address of a host, without a length.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostAddress(pub Ipv4Addr);

impl Either for HostAddress {
    const EXPECTED: &'static str = r#"an IPv4 address, like "192.0.2.1""#;

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        let refused = |_| E::custom(r#"write one IPv4 address, like "192.0.2.1""#);
        text.parse().map(HostAddress).map_err(refused)
    }
}

/// The same for IPv6.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostAddress6(pub Ipv6Addr);

impl Either for HostAddress6 {
    const EXPECTED: &'static str = r#"an IPv6 address, like "2001:db8::1""#;

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        let refused = |_| E::custom(r#"write one IPv6 address, like "2001:db8::1""#);
        text.parse().map(HostAddress6).map_err(refused)
    }
}

/// `[first, last]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports(pub [u16; 2]);

impl Either for Ports {
    const EXPECTED: &'static str = "[first, last], like [1024, 65535]";

    fn of_list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut next = || list.next_element::<u16>();
        match (next()?, next()?, next()?) {
            (Some(first), Some(last), None) => Ok(Ports([first, last])),
            _ => Err(A::Error::custom("write [first, last], like [1024, 65535]")),
        }
    }
}

read_either!(OneOrMore, HostAddress, HostAddress6, Ports);
