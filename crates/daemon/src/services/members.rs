//! `service.NAME.servers` and `service.NAME.check`.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use anabranch_config::either::table;
use anabranch_config::{BadInput, Either, Source, Span, read_either};
use anabranch_core::ServerAt;
use anabranch_core::checks::Check;
use serde::Deserialize;
use serde::de::{Error, MapAccess};

use crate::config::{CheckTable, ExpectTable, OneOrMore, SERVICE, check};

const WEIGHT_MAX: u32 = 1000;
/// Often enough that a dead server is out of use within three seconds.
const INTERVAL: Span = Span(std::time::Duration::from_secs(1));
const FALL: u32 = 2;
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

/// A server as it is written.
#[derive(Debug)]
pub(super) struct ServerTable {
    pub at: SocketAddr,
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
    const EXPECTED: &'static str =
        r#""10.0.0.11:80" or "10.0.0.11", or a table like { at = "10.0.0.11:80", weight = 2 }"#;

    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        let refused = |_| E::custom(format!("write {}", Self::EXPECTED));
        let ServerAt(at) = text.parse().map_err(refused)?;
        Ok(Self {
            at,
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
        let refused = |_| A::Error::custom(format!("write {}", Self::EXPECTED));
        let ServerAt(at) = at.parse().map_err(refused)?;
        Ok(Self {
            at,
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
    port: Option<u16>,
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

/// The servers of the service `name`, right in themselves. `asked`: what their check asks if the file does not say, and at
/// which port of a server without one.
pub(super) fn members(
    source: &Source<'_>,
    name: &str,
    servers: &[ServerTable],
    written: &ServiceCheckTable,
    asked: (&str, u16),
) -> Result<Vec<Member>, BadInput> {
    let of_all = [SERVICE, name, "servers"];
    let member = |(index, server): (usize, &ServerTable)| {
        let bad = |key, allowed: &str| {
            let index = index.to_string();
            Err(source.bad(&[&of_all[..], &[&index, key]].concat(), allowed))
        };
        let weight = server.weight.unwrap_or(1);
        if weight > WEIGHT_MAX {
            return bad("weight", &format!("0 to {WEIGHT_MAX} are allowed"));
        }
        let limit = server.limit.map(NonZeroU32::new);
        if limit == Some(None) {
            return bad(
                "limit",
                "1 at least; `anabranch service drain` takes a server out of use",
            );
        }
        Ok(Member {
            endpoint: server.at,
            weight,
            backup: server.backup,
            limit: limit.flatten(),
            check: written.0.check_of(source, name, server.at, asked)?,
        })
    };
    let members: Vec<Member> = servers
        .iter()
        .enumerate()
        .map(member)
        .collect::<Result<_, _>>()?;
    match members.iter().all(|member| member.backup) {
        true => Err(source.bad(&of_all, "one server at least is to be no backup")),
        false => Ok(members),
    }
}

impl WholeCheckTable {
    /// The check of one server, read as one of a link's is.
    fn check_of(
        &self,
        source: &Source<'_>,
        name: &str,
        server: SocketAddr,
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
                let own = Some(server.port()).filter(|port| *port != 0);
                let at = SocketAddr::new(server.ip(), self.port.or(own).unwrap_or(called));
                let Some(target) = target(asked, at) else {
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
fn target(asked: &str, at: SocketAddr) -> Option<String> {
    let host = match at.ip() {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    };
    match asked.split_once(':') {
        Some((scheme @ ("http" | "https"), path)) if path.starts_with('/') => {
            Some(format!("{scheme}:{host}:{}{path}", at.port()))
        }
        None if asked == "icmp" => Some(format!("icmp:{}", at.ip())),
        None if asked == "tcp" || asked == "dns" => Some(format!("{asked}:{at}")),
        _ => None,
    }
}
