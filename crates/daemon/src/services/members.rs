//! `service.NAME.servers` and `service.NAME.check`.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::str::FromStr;

use anabranch_config::either::table;
use anabranch_config::{BadInput, Either, Source, Span, read_either};
use anabranch_core::ServerAt;
use anabranch_core::checks::{Check, ProbeTarget, Test};
use serde::Deserialize;
use serde::de::{Error, MapAccess};

use crate::config::{CheckTable, ExpectTable, OneOrMore, SERVICE, check};

pub(super) const WEIGHT_MAX: u32 = 1000;
/// Often enough that a dead server is out of use within three seconds.
const INTERVAL: Span = Span(std::time::Duration::from_secs(1));
const FALL: u32 = 2;
/// Any: a check is read before its servers are known.
const ANY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// RFC 1035 section 2.3.4.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
const KINDS: &str = r#"write "tcp", "icmp", "dns", "http:/PATH" or "https:/PATH", or "none""#;

/// A server of a service.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Where it listens; port 0: at the port that the client called.
    pub endpoint: SocketAddr,
    /// How much it takes beside others, where the policy asks; 0: no new connections under any policy.
    pub weight: u32,
    /// Takes connections only where no other server does.
    pub backup: bool,
    /// Open connections at most.
    pub limit: Option<NonZeroU32>,
    /// What it has to pass; none: it is used unseen.
    pub check: Option<Check>,
}

/// Where a server is, as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Port 0: at the port that the client called.
    Endpoint(SocketAddr),
    /// At each address of a name.
    Host {
        /// In small letters, without the dot at its end.
        name: String,
        /// 0 as above.
        port: u16,
    },
    /// Where SRV records of this name say (RFC 2782).
    Service(String),
}

impl Place {
    /// None if names have to be resolved first.
    pub fn endpoint(&self) -> Option<SocketAddr> {
        match self {
            Self::Endpoint(at) => Some(*at),
            Self::Host { .. } | Self::Service(_) => None,
        }
    }

    /// Its port, if there is one before names are resolved.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Endpoint(at) => Some(at.port()),
            Self::Host { port, .. } => Some(*port),
            Self::Service(_) => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(at) => ServerAt(*at).fmt(f),
            Self::Host { name, port: 0 } => f.write_str(name),
            Self::Host { name, port } => write!(f, "{name}:{port}"),
            Self::Service(name) => write!(f, "srv:{name}"),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ServerAt(at)) = text.parse() {
            return Ok(Self::Endpoint(at));
        }
        let refused = || format!("write {}", ServerTable::EXPECTED);
        if let Some(name) = text.strip_prefix("srv:") {
            return name_of(name).map(Self::Service).ok_or_else(refused);
        }
        let (name, port) = text.split_once(':').unwrap_or((text, ""));
        let port = match port {
            "" if !text.ends_with(':') => Some(0),
            port => port.parse().ok().filter(|port| *port != 0),
        };
        let host = name_of(name).zip(port);
        let host = host.map(|(name, port)| Self::Host { name, port });
        host.ok_or_else(refused)
    }
}

/// A name that may be one of DNS, and no misspelled address.
fn name_of(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_char = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label =
        |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_char);
    let last = name.rsplit('.').next()?;
    let is_name = name.len() <= NAME_BYTES_MAX
        && name.split('.').all(is_label)
        && !last.bytes().all(|byte| byte.is_ascii_digit());
    is_name.then(|| name.to_ascii_lowercase())
}

/// A server, or all that have one name, as it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    pub place: Place,
    weight: u32,
    backup: bool,
    limit: Option<NonZeroU32>,
}

impl Written {
    /// One of its servers, with what every server has to pass.
    pub fn member(&self, endpoint: SocketAddr, check: &ServerCheck) -> Member {
        Member {
            endpoint,
            weight: self.weight,
            backup: self.backup,
            limit: self.limit,
            check: check.of(endpoint),
        }
    }
}

/// What every server of a service has to pass.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerCheck {
    /// None: they are used unseen.
    check: Option<Check>,
    /// Where it asks, if not where clients are sent.
    port: Option<u16>,
    /// Where it asks a server without a port.
    called: u16,
}

impl ServerCheck {
    /// Whether there is anything to pass.
    pub fn is_some(&self) -> bool {
        self.check.is_some()
    }

    /// The check of one server.
    fn of(&self, server: SocketAddr) -> Option<Check> {
        let mut check = self.check.clone()?;
        let own = Some(server.port()).filter(|port| *port != 0);
        let port = self.port.or(own).unwrap_or(self.called);
        for test in &mut check.tests {
            if let Test::Target(target) = test {
                *target = target.at(SocketAddr::new(server.ip(), port));
            }
        }
        Some(check)
    }
}

/// The keys of a server.
#[derive(Debug)]
pub(super) struct ServerTable {
    pub at: Place,
    weight: Option<u32>,
    backup: bool,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WholeServerTable {
    at: String,
    weight: Option<u32>,
    #[serde(default)]
    backup: bool,
    limit: Option<u32>,
}

impl Either for ServerTable {
    const EXPECTED: &'static str = r#""10.0.0.11:80" or "10.0.0.11", a name like "web.internal:80" or "srv:_http._tcp.web.internal", or a table like { at = "10.0.0.11:80", weight = 2 }"#;

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self {
            at: text.parse().map_err(E::custom)?,
            weight: None,
            backup: false,
            limit: None,
        })
    }

    fn of_table<'de, A: MapAccess<'de>>(written: A) -> Result<Self, A::Error> {
        let WholeServerTable {
            at,
            weight,
            backup,
            limit,
        } = table(written)?;
        Ok(Self {
            at: at.parse().map_err(A::Error::custom)?,
            weight,
            backup,
            limit,
        })
    }
}

/// The check of a service as it is written.
#[derive(Debug, Default)]
pub(super) struct ServiceCheckTable(WholeCheckTable);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WholeCheckTable {
    ask: Option<String>,
    command: Option<Vec<String>>,
    port: Option<u32>,
    expect: Option<ExpectTable>,
    host: Option<String>,
    certificate: Option<String>,
    interval: Option<Span>,
    jitter: Option<u32>,
    timeout: Option<Span>,
    rise: Option<u32>,
    fall: Option<u32>,
}

impl Either for ServiceCheckTable {
    const EXPECTED: &'static str =
        r#""tcp", "http:/health", or a table like { ask = "http:/health", interval = "2s" }"#;

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self(WholeCheckTable {
            ask: Some(text.to_owned()),
            ..WholeCheckTable::default()
        }))
    }

    fn of_table<'de, A: MapAccess<'de>>(written: A) -> Result<Self, A::Error> {
        table(written).map(Self)
    }
}

read_either!(ServerTable, ServiceCheckTable);

/// The servers of the service `name`, right in themselves.
pub(super) fn written(
    source: &Source<'_>,
    name: &str,
    servers: &[ServerTable],
) -> Result<Vec<Written>, BadInput> {
    let of_all = [SERVICE, name, "servers"];
    let read = |(index, server): (usize, &ServerTable)| {
        let bad = |key, allowed: &str| {
            let index = index.to_string();
            Err(source.bad(&[&of_all[..], &[&index, key]].concat(), allowed))
        };
        let weight = server.weight.unwrap_or(1);
        if weight > WEIGHT_MAX {
            return bad("weight", &format!("0 to {WEIGHT_MAX} are allowed"));
        }
        if matches!(server.at, Place::Service(_)) && server.weight.is_some() {
            return bad(
                "weight",
                "SRV records have weights of their own; leave it out",
            );
        }
        let limit = server.limit.map(NonZeroU32::new);
        if limit == Some(None) {
            return bad(
                "limit",
                "1 at least; `anabranch service drain` takes a server out of use",
            );
        }
        Ok(Written {
            place: server.at.clone(),
            weight,
            backup: server.backup,
            limit: limit.flatten(),
        })
    };
    let written: Vec<Written> = servers
        .iter()
        .enumerate()
        .map(read)
        .collect::<Result<_, _>>()?;
    match written.iter().all(|one| one.backup) {
        true => Err(source.bad(&of_all, "one server at least is to be no backup")),
        false => Ok(written),
    }
}

impl ServiceCheckTable {
    /// The check of each server of the service `name`. `asked`: what it asks if the file does not say, and at which port of a server
    /// without one.
    pub fn read(
        &self,
        source: &Source<'_>,
        name: &str,
        (asked, called): (&str, u16),
    ) -> Result<ServerCheck, BadInput> {
        let Self(table) = self;
        let check = table.check(source, name, (asked, called))?;
        let port = table.port(check.as_ref());
        let bad = |problem| source.bad(&[SERVICE, name, "check", "port"], problem);
        Ok(ServerCheck {
            check,
            port: port.map_err(bad)?,
            called,
        })
    }
}

impl WholeCheckTable {
    /// Where the check asks, if not where clients are sent.
    fn port(&self, check: Option<&Check>) -> Result<Option<u16>, &'static str> {
        let Some(port) = self.port else {
            return Ok(None);
        };
        let mut tests = check.iter().flat_map(|check| &check.tests);
        let asks_at_port = |test: &Test| matches!(test, Test::Target(target) if !matches!(target, ProbeTarget::Icmp(_)));
        if !tests.any(asks_at_port) {
            return Err(
                "it is for checks that ask at a port: \"tcp\", \"dns\", pages; leave it out",
            );
        }
        match u16::try_from(port) {
            Ok(port @ 1..) => Ok(Some(port)),
            _ => Err("1 to 65535 are allowed"),
        }
    }

    /// The check of any server, read as one of a link's is.
    fn check(
        &self,
        source: &Source<'_>,
        name: &str,
        (asked, called): (&str, u16),
    ) -> Result<Option<Check>, BadInput> {
        let key = [SERVICE, name, "check"];
        let ask = match (&self.ask, &self.command) {
            (None, Some(_)) => None,
            (written, _) => {
                let asked = written.as_deref().unwrap_or(asked);
                if asked == "none" {
                    return Ok(None);
                }
                let Some(target) = target(asked, called) else {
                    let within = [&key[..], &["ask"]].concat();
                    let key = source.span(&within).map_or(&key[..], |_| &within[..]);
                    return Err(source.bad(key, KINDS));
                };
                Some(OneOrMore(vec![target]))
            }
        };
        // It is about this server, and no link has to pass it.
        let table = CheckTable {
            link: OneOrMore(Vec::new()),
            ask,
            command: self.command.clone(),
            expect: self.expect.clone(),
            host: self.host.clone(),
            certificate: self.certificate.clone(),
            interval: self.interval.or(Some(INTERVAL)),
            jitter: self.jitter,
            timeout: self.timeout,
            rise: self.rise,
            fall: self.fall.or(Some(FALL)),
            quorum: None,
        };
        check(source, &key, &table).map(Some)
    }
}

/// As a check of a link would have it.
fn target(asked: &str, port: u16) -> Option<String> {
    match asked.split_once(':') {
        Some((scheme @ ("http" | "https"), path)) if path.starts_with('/') => {
            Some(format!("{scheme}:{ANY}:{port}{path}"))
        }
        None if asked == "icmp" => Some(format!("icmp:{ANY}")),
        None if asked == "tcp" || asked == "dns" => Some(format!("{asked}:{ANY}:{port}")),
        _ => None,
    }
}
