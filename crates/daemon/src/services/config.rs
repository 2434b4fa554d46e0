//! Reads `[service.NAME]` of the configuration.

mod choosing;
mod endpoints;
mod poll;
mod resolvers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_config::{BadInput, Source, Span, is_name};
use anabranch_core::{Family, ServerAt, ServerPolicy};
use anabranch_dataplane::services::{Forwarding, Listen, Protocol};
use anabranch_policy::abi::{MAX_SERVICES, PASSING_MAX, Secret, Ties, Without};
use serde::Deserialize;

use super::answering::{self, Ambiguous, Answering};
use super::members::{Member, ServerCheck, ServerTable, ServiceCheckTable, Written, written};
use super::unknown::Unknown;
use crate::config::{self, Claim, SERVICE, SERVICES, check_claims, claim, is_of_one_host};
use choosing::choosing;
use endpoints::{endpoints, is_tunnel};
use poll::{Poll, poll};
use resolvers::resolvers;

const NAME_CHARS_MAX: usize = 32;
/// Places for connections of all services: half of the least are for those that are not established.
const CONNECTIONS: RangeInclusive<u32> = 2 * PASSING_MAX as u32..=16_000_000;

/// A valid configuration of services.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file, for messages.
    pub path: PathBuf,
    /// Devices over which clients and servers are reached.
    pub devices: Vec<String>,
    /// In the order of the file.
    pub services: Vec<Service>,
    /// Places for connections, of all services together.
    pub connections_max: u32,
    /// The gateway in the same file, if any.
    pub(super) gateway: Option<Gateway>,
}

/// What a gateway in the same file claims.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Gateway {
    /// Devices of its links.
    pub links: Vec<String>,
    /// The range of external ports at the links' addresses, both ends included.
    pub ports: [u16; 2],
}

/// A service: virtual endpoints and the servers behind them.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Unique among services.
    pub name: String,
    /// Virtual endpoints, at which clients reach it.
    pub listen: Vec<Listen>,
    /// Servers as they are written, by address or name.
    pub written: Vec<Written>,
    /// Who resolves names; empty: the resolvers of this host.
    pub resolvers: Vec<SocketAddr>,
    /// What each server has to pass.
    pub check: ServerCheck,
    /// Servers, each reachable from this host: those with an address, and what names stand for.
    pub servers: Vec<Member>,
    /// How connections are distributed over the servers.
    pub policy: ServerPolicy,
    /// Which of equally good servers is chosen.
    ties: Ties,
    /// How many open connections a server may have beside others, where the policy bounds that.
    bound: u32,
    /// How long the policy looks at servers before it goes by that; none if it does not.
    pub window: Option<Duration>,
    /// Whether servers are asked for their load.
    pub poll: Option<Poll>,
    /// How packets reach the servers.
    pub forwarding: Forwarding,
    /// Key of its hashes; none: of this balancer alone.
    pub secret: Option<Secret>,
    /// What happens to connections of a server that dies.
    pub on_failure: OnFailure,
    /// What becomes of packets of unknown connections.
    pub unknown: Unknown,
    /// Connections a second that get entries; none: as many as there is room for.
    pub insert_limit: Option<u32>,
    /// Connections of TCP that each client has established at most.
    pub client_limit: Option<NonZeroU32>,
    /// What a client gets if no server takes its connection.
    pub sorry: Sorry,
    /// How long the weight of a server rises that comes up.
    pub slow_start: Option<Duration>,
    /// Devices over which servers and clients are reached; empty: those of the gateway.
    devices: Vec<String>,
}

/// What happens to connections of a server that fails its check and is silent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// They are reset.
    #[default]
    Reset,
    /// They wait for the server.
    Keep,
}

/// What a client gets if no server takes its connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sorry {
    /// What this host answers.
    #[default]
    Host,
    /// A RST, or by UDP an ICMP error.
    Reset,
    /// Nothing.
    Drop,
}

impl Sorry {
    pub(super) fn without(self) -> Without {
        match self {
            Self::Host => Without::Kernel,
            Self::Reset => Without::Refuse,
            Self::Drop => Without::Drop,
        }
    }
}

impl Service {
    /// Families of its servers.
    pub fn families(&self) -> impl Iterator<Item = Family> {
        let is_called = |family: &Family| {
            let mut listen = self.listen.iter();
            is_tunnel(self.forwarding) || listen.any(|one| Family::from(one.address) == *family)
        };
        Family::ALL.into_iter().filter(is_called)
    }

    /// The endpoints of its servers, in the order written.
    pub fn endpoints(&self) -> impl Iterator<Item = SocketAddr> {
        self.servers.iter().map(|server| server.endpoint)
    }

    /// Whether clients of a family may be given the server: a tunnel carries either in either.
    pub fn serves(&self, server: &Member, family: Family) -> bool {
        is_tunnel(self.forwarding) || Family::from(server.endpoint.ip()) == family
    }

    /// The policy, with the ties that the file wants.
    pub fn choosing(&self) -> ServerPolicy {
        ServerPolicy {
            ties: self.ties,
            bound: self.bound,
            ..self.policy
        }
    }
}

/// How a client's packets reach its server, as it is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ForwardingWord {
    #[default]
    Nat,
    Direct,
    Tunnel,
}

/// Other keys belong to other roles.
#[derive(Debug, Deserialize)]
struct File {
    service: BTreeMap<String, ServiceTable>,
    #[serde(default)]
    services: CommonTable,
}

/// What all services share.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommonTable {
    connections: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceTable {
    listen: OneOrMore,
    servers: Vec<ServerTable>,
    resolver: Option<config::OneOrMore>,
    policy: Option<String>,
    ties: Option<String>,
    window: Option<Span>,
    poll: Option<Span>,
    poll_port: Option<u16>,
    load_bound: Option<f64>,
    secret: Option<String>,
    #[serde(default)]
    on_failure: OnFailure,
    #[serde(default)]
    unknown: Unknown,
    insert_limit: Option<u32>,
    client_limit: Option<u32>,
    #[serde(default)]
    sorry: Sorry,
    slow_start: Option<Span>,
    #[serde(default)]
    forwarding: ForwardingWord,
    gue_port: Option<u16>,
    #[serde(default)]
    check: ServiceCheckTable,
    #[serde(default)]
    devices: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "write it like \"203.0.113.10:80\", \"203.0.113.10:8000-8099\" or \"udp:203.0.113.10:53\", or a list of such"
)]
enum OneOrMore {
    One(Listen),
    More(Vec<Listen>),
}

impl OneOrMore {
    fn to_vec(&self) -> Vec<Listen> {
        match self {
            Self::One(one) => vec![*one],
            Self::More(more) => more.clone(),
        }
    }
}

impl Config {
    /// `path` is for messages only; `gateway` is that of the same file.
    pub fn parse(
        path: &Path,
        text: &str,
        gateway: Option<&config::Config>,
    ) -> Result<Self, BadInput> {
        let source = Source::parse(path, text)?;
        let File {
            service: tables,
            services: common,
        } = source.read()?;
        if tables.is_empty() {
            let problem = r#"no service; write service.NAME = { listen = "203.0.113.10:80", servers = ["10.0.0.11:80"] }"#;
            return Err(source.bad(&[SERVICE], problem));
        }
        if tables.len() > MAX_SERVICES {
            let problem = format!(
                "{} services; at most {MAX_SERVICES} are allowed",
                tables.len()
            );
            return Err(source.bad(&[SERVICE], problem));
        }
        let mut tables: Vec<_> = tables.into_iter().collect();
        tables.sort_by_key(|(name, _)| source.position(&[SERVICE, name]));
        let devices = devices(&source, &tables, gateway)?;
        let services: Result<Vec<_>, _> = tables
            .into_iter()
            .map(|(name, table)| service(&source, name, table))
            .collect();
        let services = services?;
        no_endpoint_twice(&source, &services)?;
        let config = Self {
            path: path.to_owned(),
            devices,
            services,
            connections_max: connections_max(&source, &common)?,
            gateway: gateway.map(|config| Gateway {
                links: config
                    .links
                    .iter()
                    .map(|link| link.device.clone())
                    .collect(),
                ports: config.nat.ports,
            }),
        };
        no_server_is_called(&source, &config)?;
        match config.check_answers() {
            Ok(()) => Ok(config),
            Err(ambiguous) => {
                let Ambiguous { service, key, .. } = ambiguous;
                Err(source.bad(&[SERVICE, &service, key], ambiguous.problem))
            }
        }
    }

    /// Why nothing at an endpoint can be a server: "it is" that.
    pub(super) fn refusal(&self, at: SocketAddr) -> Option<String> {
        if !is_of_one_host(at.ip()) {
            return Some("not the address of one host".to_owned());
        }
        let ports = match at.port() {
            0 => [1, u16::MAX],
            port => [port; 2],
        };
        let is_called = |listen: &Listen| listen.address == at.ip() && listen.overlaps_ports(ports);
        let mut services = self.services.iter();
        let of = services.find(|service| service.listen.iter().any(is_called))?;
        Some(format!(
            "the virtual endpoint of service.{}, not a server",
            of.name
        ))
    }

    /// Whether servers' packets tell for which virtual endpoints they answer.
    pub(super) fn check_answers(&self) -> Result<(), Ambiguous> {
        let services = self
            .services
            .iter()
            .filter(|service| service.forwarding == Forwarding::Nat);
        let services = services.map(|service| Answering {
            name: &service.name,
            listen: &service.listen,
            servers: service.endpoints().collect(),
            goes_without_entries: service.unknown.goes_by_rows(),
        });
        answering::check(&services.collect::<Vec<_>>())
    }

    /// The service of a name, or what to say of it.
    pub(super) fn of_name(&self, name: &str) -> Result<&Service, String> {
        let names: Vec<&str> = self.services.iter().map(|one| one.name.as_str()).collect();
        let mut services = self.services.iter();
        let found = services.find(|one| one.name == name);
        found.ok_or_else(|| format!("no service {name:?}; there are: {}", names.join(", ")))
    }

    /// An error about this file found by looking at the host.
    pub(super) fn bad(&self, key: &str, problem: impl std::fmt::Display) -> BadInput {
        BadInput::new(format!("{}: {key}: {problem}", self.path.display()))
    }

    /// Each device that the file names for services, without duplicates.
    pub(crate) fn own_claims(&self) -> impl Iterator<Item = Claim<'_>> {
        let mut seen = BTreeSet::new();
        let claims = self
            .services
            .iter()
            .flat_map(|service| claims(&service.name, &service.devices));
        claims.filter(move |(_, device)| seen.insert(*device))
    }

    /// Names of the devices, to be claimed.
    pub fn device_names(&self) -> Vec<&str> {
        self.devices.iter().map(String::as_str).collect()
    }
}

fn connections_max(source: &Source<'_>, table: &CommonTable) -> Result<u32, BadInput> {
    let connections = table.connections.unwrap_or(*CONNECTIONS.start());
    if CONNECTIONS.contains(&connections) {
        return Ok(connections);
    }
    let [least, most] = [CONNECTIONS.start(), CONNECTIONS.end()];
    let allowed = format!("{least} to {most} connections are allowed");
    Err(source.bad(&[SERVICES, "connections"], allowed))
}

/// The devices that `service.NAME.devices` claims.
fn claims<'a>(name: &'a str, devices: &'a [String]) -> impl Iterator<Item = Claim<'a>> {
    (0..).zip(devices).map(move |(i, device)| {
        let index = i.to_string();
        claim(&[SERVICE, name, "devices", &index], device)
    })
}

/// The devices: those of the gateway, unless the file names others.
fn devices(
    source: &Source<'_>,
    tables: &[(String, ServiceTable)],
    gateway: Option<&config::Config>,
) -> Result<Vec<String>, BadInput> {
    let mut devices: Vec<String> = Vec::new();
    for (name, table) in tables {
        let named = claims(name, &table.devices);
        check_claims(source, named, "a device is named once")?;
        let of_gateway = || gateway.map(|config| config.devices()).unwrap_or_default();
        let named = match table.devices.is_empty() {
            true => of_gateway().into_iter().map(str::to_owned).collect(),
            false => table.devices.clone(),
        };
        if named.is_empty() {
            let problem = r#"which devices lead to its clients and servers? There is no gateway in this file whose devices it could share: write devices = ["eth0", "eth1"]"#;
            return Err(source.bad(&[SERVICE, name], problem));
        }
        for device in named {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
    }
    Ok(devices)
}

/// What cannot be: the key of the service, and why.
type Refused = (&'static str, String);

fn service(source: &Source<'_>, name: String, table: ServiceTable) -> Result<Service, BadInput> {
    if !is_name(&name, NAME_CHARS_MAX) {
        let allowed =
            format!("a service's name has 1 to {NAME_CHARS_MAX} letters, digits, '-' and '_'");
        return Err(source.bad(&[SERVICE, &name], allowed));
    }
    let refused = |(key, problem): Refused| source.bad(&[SERVICE, &name, key], problem);
    let (listen, forwarding) = endpoints(&table).map_err(refused)?;
    let choosing = choosing(&table, forwarding).map_err(refused)?;
    let poll = poll(&table, choosing.policy, forwarding, &listen).map_err(refused)?;
    let is_of_tcp = listen.iter().any(|one| one.protocol == Protocol::Tcp);
    let asked = (if is_of_tcp { "tcp" } else { "icmp" }, listen[0].ports[0]);
    let written = written(source, &name, &table.servers)?;
    let client_limit = table.client_limit.map(|limit| {
        let none = || ("client_limit", "1 at least".to_owned());
        NonZeroU32::new(limit).ok_or_else(none)
    });
    let client_limit = client_limit.transpose().map_err(refused)?;
    let resolvers = resolvers(table.resolver.as_ref(), &written).map_err(refused)?;
    let check = table.check.read(source, &name, asked)?;
    if choosing.policy.goes_by_checks() && !check.is_some() {
        let problem = "the policy goes by the time that checks take; leave it out".to_owned();
        return Err(refused(("check", problem)));
    }
    let fixed = written
        .iter()
        .filter_map(|one| Some((one, one.place.endpoint()?)));
    let servers = fixed.map(|(one, at)| one.member(at, &check)).collect();
    Ok(Service {
        name,
        listen,
        written,
        resolvers,
        check,
        servers,
        policy: choosing.policy,
        ties: choosing.ties,
        bound: choosing.bound,
        window: choosing.window,
        poll,
        forwarding,
        secret: choosing.secret,
        on_failure: table.on_failure,
        unknown: table.unknown,
        insert_limit: choosing.insert_limit,
        client_limit,
        sorry: table.sorry,
        slow_start: choosing.slow_start,
        devices: table.devices,
    })
}

/// Refuses a virtual endpoint that another service has.
fn no_endpoint_twice(source: &Source<'_>, services: &[Service]) -> Result<(), BadInput> {
    let called = |service: &'_ Service| {
        let name = service.name.clone();
        let listen = service.listen.clone().into_iter();
        listen.map(move |listen| (listen, name.clone()))
    };
    let all: Vec<(Listen, String)> = services.iter().flat_map(called).collect();
    for (i, (listen, name)) in all.iter().enumerate() {
        let mut before = all[..i].iter();
        if let Some((other, of)) = before.find(|(other, _)| other.overlaps(listen)) {
            let problem = format!("{listen} is service.{of}'s already, by {other}");
            return Err(source.bad(&[SERVICE, name, "listen"], problem));
        }
    }
    Ok(())
}

/// Refuses a server that is a virtual endpoint.
fn no_server_is_called(source: &Source<'_>, config: &Config) -> Result<(), BadInput> {
    for service in &config.services {
        let mut endpoints = service.endpoints();
        let refused = endpoints.find_map(|at| Some((at, config.refusal(at)?)));
        if let Some((at, why)) = refused {
            let problem = format!("{} is {why}", ServerAt(at));
            return Err(source.bad(&[SERVICE, &service.name, "servers"], problem));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
