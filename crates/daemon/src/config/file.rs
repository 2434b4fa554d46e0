//! The configuration as written: every key once.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::de::{Error, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use anabranch_config::{LineRate, Span};
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
    /// Of another role.
    #[serde(rename = "service")]
    _service: Option<IgnoredAny>,
    /// As above.
    #[serde(rename = "trunk")]
    _trunk: Option<IgnoredAny>,
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
pub(super) struct CheckTable {
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectTable {
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
pub(super) struct OneOrMore(pub Vec<String>);

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = OneOrMore;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a target or a list of them, like ["dns:1.1.1.1", "icmp:9.9.9.9"]"#)
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<OneOrMore, E> {
                Ok(OneOrMore(vec![word.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMore, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element()? {
                    words.push(word);
                }
                Ok(OneOrMore(words))
            }
        }
        deserializer.deserialize_any(Words)
    }
}

/// The address of a host, without a network's length.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostAddress(pub Ipv4Addr);

impl<'de> Deserialize<'de> for HostAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let address = Address::new("an IPv4 address", "192.0.2.1");
        deserializer.deserialize_any(address).map(HostAddress)
    }
}

/// The same of IPv6.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostAddress6(pub Ipv6Addr);

impl<'de> Deserialize<'de> for HostAddress6 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let address = Address::new("an IPv6 address", "2001:db8::1");
        deserializer.deserialize_any(address).map(HostAddress6)
    }
}

/// Reads one address from its text.
struct Address<A> {
    what: &'static str,
    example: &'static str,
    kind: PhantomData<A>,
}

impl<A> Address<A> {
    fn new(what: &'static str, example: &'static str) -> Self {
        Self {
            what,
            example,
            kind: PhantomData,
        }
    }
}

impl<A: FromStr> Visitor<'_> for Address<A> {
    type Value = A;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, like {:?}", self.what, self.example)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<A, E> {
        let one = self.what.replacen("an", "one", 1);
        text.parse()
            .map_err(|_| E::custom(format!("write {one}, like {:?}", self.example)))
    }
}

/// `[first, last]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports(pub [u16; 2]);

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Range;
        impl<'de> Visitor<'de> for Range {
            type Value = Ports;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("[first, last], like [1024, 65535]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Ports, A::Error> {
                let mut next = || list.next_element::<u16>();
                match (next()?, next()?, next()?) {
                    (Some(first), Some(last), None) => Ok(Ports([first, last])),
                    _ => Err(A::Error::custom("write [first, last], like [1024, 65535]")),
                }
            }
        }
        deserializer.deserialize_any(Range)
    }
}
