//! Reads `[service.NAME]` of the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_config::{BadInput, Source, Span, is_name};
use anabranch_core::catalogue::{self, TargetKind};
use anabranch_core::{Family, Policy, ServerAt, ServerPolicy};
use anabranch_dataplane::services::{Forwarding, Listen, Protocol};
use anabranch_policy::Dispatch;
use anabranch_policy::abi::{BOUND_ONE, MAX_SERVICES, PASSING_MAX, Secret, Ties, Without};
use serde::Deserialize;

use super::aliases::{Answering, aliases};
use super::members::{Member, ServerTable, ServiceCheckTable, members};
use super::unknown::{Unknown, insert_limit};
use crate::config::{self, Claim, SERVICE, SERVICES, check_claims, claim, is_of_one_host};

const NAME_CHARS_MAX: usize = 32;
const SECRET_DIGITS: usize = 32;
/// Response times and bytes of servers say more about the next requests in short windows (Zhang 2002 tables 5.4 to 5.7).
const WINDOW: Duration = Duration::from_millis(100);
const WINDOW_MIN: Duration = Duration::from_millis(10);
const WINDOW_MAX: Duration = Duration::from_secs(60);
const SLOW_START_MIN: Duration = Duration::from_secs(1);
const SLOW_START_MAX: Duration = Duration::from_secs(3600);
/// Places for connections of all services: half of the least are for those that are not established.
const CONNECTIONS: RangeInclusive<u32> = 2 * PASSING_MAX as u32..=16_000_000;
/// Below, most connections would leave the server of their hash.
const LOAD_BOUND_MIN: f64 = 1.05;
const LOAD_BOUND_MAX: f64 = 10.0;
const TIES: [(&str, Ties); 3] = [
    ("random", Ties::Random),
    ("first", Ties::First),
    ("connections", Ties::ByLoad),
];

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
    /// Servers, each reachable from this host.
    pub servers: Vec<Member>,
    /// How connections are distributed over the servers.
    pub policy: ServerPolicy,
    /// Which of equally good servers is chosen.
    ties: Ties,
    /// How many open connections a server may have beside others, where the policy bounds that.
    bound: u32,
    /// How long the policy looks at servers before it goes by that; none if it does not.
    pub window: Option<Duration>,
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
    policy: Option<String>,
    ties: Option<String>,
    window: Option<Span>,
    load_bound: Option<f64>,
    secret: Option<String>,
    #[serde(default)]
    on_failure: OnFailure,
    #[serde(default)]
    unknown: Unknown,
    insert_limit: Option<u32>,
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
        match config.aliases() {
            Ok(_) => Ok(config),
            Err((name, problem)) => Err(source.bad(&[SERVICE, &name, "unknown"], problem)),
        }
    }

    /// As which virtual endpoints servers answer where there is no entry, or the name of a service of which that cannot be told, and why.
    pub(super) fn aliases(&self) -> Result<BTreeMap<Listen, SocketAddr>, (String, String)> {
        let answering = self
            .services
            .iter()
            .filter(|service| service.forwarding == Forwarding::Nat);
        let answering = answering.map(|service| Answering {
            name: &service.name,
            listen: &service.listen,
            servers: service.endpoints().collect(),
            needs_aliases: service.unknown.goes_by_rows(),
        });
        aliases(&answering.collect::<Vec<_>>())
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

fn service(source: &Source<'_>, name: String, table: ServiceTable) -> Result<Service, BadInput> {
    let bad = |key: &[&str], problem: &str| {
        Err(source.bad(&[&[SERVICE, name.as_str()], key].concat(), problem))
    };
    if !is_name(&name, NAME_CHARS_MAX) {
        let allowed =
            format!("a service's name has 1 to {NAME_CHARS_MAX} letters, digits, '-' and '_'");
        return bad(&[], &allowed);
    }
    let listen = table.listen.to_vec();
    if listen.is_empty() {
        return bad(&["listen"], "one endpoint is wanted at least");
    }
    if table.servers.is_empty() {
        return bad(&["servers"], "one server is wanted at least");
    }
    let max = TargetKind::Server.row().max;
    if table.servers.len() > max {
        let allowed = format!("{} servers; at most {max} are allowed", table.servers.len());
        return bad(&["servers"], &allowed);
    }
    let servers: Vec<SocketAddr> = table.servers.iter().map(|server| server.at).collect();
    if listen
        .iter()
        .any(|one| !is_of_one_host(one.address) || one.ports[0] == 0)
    {
        let allowed = "each must be the address of one host, and a port from 1 on";
        return bad(&["listen"], allowed);
    }
    if servers.iter().any(|server| !is_of_one_host(server.ip())) {
        return bad(&["servers"], "each must be the address of one host");
    }
    let forwarding = match forwarding(&table) {
        Ok(forwarding) => forwarding,
        Err(problem) => return bad(&["gue_port"], problem),
    };
    let is_called = |server: &SocketAddr| {
        let mut all = listen.iter();
        all.any(|one| one.address.is_ipv4() == server.is_ipv4())
    };
    for (i, server) in servers.iter().enumerate() {
        let at = ServerAt(*server);
        if servers[..i].contains(server) {
            return bad(&["servers"], &format!("{at} is there twice"));
        }
        if !is_tunnel(forwarding) && !is_called(server) {
            let problem = format!("{at} is of another family than every endpoint of `listen`");
            return bad(&["servers"], &problem);
        }
    }
    let has_server = |one: &Listen| {
        let mut all = servers.iter();
        all.any(|server| server.is_ipv4() == one.address.is_ipv4())
    };
    if let Some(listen) = listen
        .iter()
        .find(|one| !is_tunnel(forwarding) && !has_server(one))
    {
        let problem = format!("{listen} is of another family than every server");
        return bad(&["listen"], &problem);
    }
    let ports: BTreeSet<[u16; 2]> = listen.iter().map(|one| one.ports).collect();
    let keeps_port =
        |server: &SocketAddr| server.port() == 0 || ports.iter().eq([&[server.port(); 2]]);
    if forwarding != Forwarding::Nat
        && let Some(server) = servers.iter().find(|server| !keeps_port(server))
    {
        let problem = format!(
            "{server}: {} leaves the port that clients called: write \"{}\"",
            in_file(forwarding),
            ServerAt(SocketAddr::new(server.ip(), 0))
        );
        return bad(&["servers"], &problem);
    }
    let policy = match catalogue::configured(TargetKind::Server, table.policy.as_deref()) {
        Ok(Policy::Service(policy)) => policy,
        Ok(_) => unreachable!("a policy of servers is a service's"),
        Err(problem) => return bad(&["policy"], &problem),
    };
    let Details {
        ties,
        window,
        slow_start,
    } = match details(policy, &table) {
        Ok(details) => details,
        Err((key, problem)) => return bad(&[key], &problem),
    };
    if forwarding != Forwarding::Nat && policy.needs_answers() {
        let problem = format!(
            "{} shows nothing of the answers by which {} goes",
            in_file(forwarding),
            Policy::Service(policy)
        );
        return bad(&["policy"], &problem);
    }
    let secret = table.secret.as_deref().map(secret).transpose();
    let secret = match secret {
        Ok(secret) => secret,
        Err(problem) => return bad(&["secret"], &problem),
    };
    let bound = match bound(policy, table.load_bound) {
        Ok(bound) => bound,
        Err(problem) => return bad(&["load_bound"], &problem),
    };
    let uses_hash = policy.dispatch == Dispatch::Table || table.unknown.goes_by_rows();
    if secret.is_some() && !uses_hash {
        let problem = format!(
            "the policy {} uses no hash; write policy = \"Maglev\" or \"source\", or leave it out",
            Policy::Service(policy)
        );
        return bad(&["secret"], &problem);
    }
    let insert_limit = match insert_limit(table.unknown, table.insert_limit) {
        Ok(limit) => limit,
        Err(problem) => return bad(&["insert_limit"], &problem),
    };
    let is_of_tcp = listen.iter().any(|one| one.protocol == Protocol::Tcp);
    let asked = (if is_of_tcp { "tcp" } else { "icmp" }, listen[0].ports[0]);
    let servers = members(source, &name, &table.servers, &table.check, asked)?;
    Ok(Service {
        name,
        listen,
        servers,
        policy,
        ties,
        bound,
        window,
        forwarding,
        secret,
        on_failure: table.on_failure,
        unknown: table.unknown,
        insert_limit,
        sorry: table.sorry,
        slow_start,
        devices: table.devices,
    })
}

fn forwarding(table: &ServiceTable) -> Result<Forwarding, &'static str> {
    let gue_port = table.gue_port;
    match (table.forwarding, gue_port) {
        (ForwardingWord::Tunnel, Some(0)) => Err("1 to 65535 are allowed"),
        (ForwardingWord::Tunnel, _) => Ok(Forwarding::Tunnel { gue_port }),
        (_, Some(_)) => Err("it is of forwarding = \"tunnel\"; leave it out"),
        (ForwardingWord::Nat, None) => Ok(Forwarding::Nat),
        (ForwardingWord::Direct, None) => Ok(Forwarding::Direct),
    }
}

const fn is_tunnel(forwarding: Forwarding) -> bool {
    matches!(forwarding, Forwarding::Tunnel { .. })
}

/// As a file says it.
const fn in_file(forwarding: Forwarding) -> &'static str {
    match forwarding {
        Forwarding::Nat => r#"forwarding = "nat""#,
        Forwarding::Direct => r#"forwarding = "direct""#,
        Forwarding::Tunnel { .. } => r#"forwarding = "tunnel""#,
    }
}

/// The details of a policy.
struct Details {
    ties: Ties,
    window: Option<Duration>,
    slow_start: Option<Duration>,
}

/// If a detail cannot be, the key that says so, and why.
fn details(policy: ServerPolicy, table: &ServiceTable) -> Result<Details, (&'static str, String)> {
    let at = |key| move |problem| (key, problem);
    let slow_start = table.slow_start.map(|lasts| slow_start(policy, lasts));
    Ok(Details {
        ties: ties(policy, table.ties.as_deref()).map_err(at("ties"))?,
        window: window(policy, table.window).map_err(at("window"))?,
        slow_start: slow_start.transpose().map_err(at("slow_start"))?,
    })
}

fn ties(policy: ServerPolicy, word: Option<&str>) -> Result<Ties, String> {
    let Some(word) = word else {
        return Ok(policy.ties);
    };
    if !policy.compares() {
        let policy = Policy::Service(policy);
        return Err(format!(
            "the policy {policy} compares no servers; leave it out"
        ));
    }
    let known = TIES.iter().find(|(known, _)| *known == word);
    let allowed = || format!("allowed: {}", TIES.map(|(word, _)| word).join(", "));
    known.map(|(_, ties)| *ties).ok_or_else(allowed)
}

fn bound(policy: ServerPolicy, written: Option<f64>) -> Result<u32, String> {
    match written {
        None => Ok(policy.bound),
        Some(_) if policy.bound == 0 => Err(format!(
            "the policy {} bounds no load; write policy = \"Maglev-bounded\", or leave it out",
            Policy::Service(policy)
        )),
        Some(bound) if (LOAD_BOUND_MIN..=LOAD_BOUND_MAX).contains(&bound) => {
            Ok((bound * f64::from(BOUND_ONE)).round() as u32)
        }
        Some(_) => Err(format!("{LOAD_BOUND_MIN} to {LOAD_BOUND_MAX} are allowed")),
    }
}

fn window(policy: ServerPolicy, window: Option<Span>) -> Result<Option<Duration>, String> {
    let policy_name = Policy::Service(policy);
    match (policy.is_measured(), window) {
        (false, None) => Ok(None),
        (false, Some(_)) => Err(format!(
            "the policy {policy_name} goes by no window; leave it out"
        )),
        (true, None) => Ok(Some(WINDOW)),
        (true, Some(Span(window))) if (WINDOW_MIN..=WINDOW_MAX).contains(&window) => {
            Ok(Some(window))
        }
        (true, Some(_)) => Err(format!(
            "a time from {WINDOW_MIN:?} to {WINDOW_MAX:?} is allowed"
        )),
    }
}

fn slow_start(policy: ServerPolicy, Span(lasts): Span) -> Result<Duration, String> {
    if !policy.by_weight {
        let policy = Policy::Service(policy);
        return Err(format!(
            "the policy {policy} goes by no weights, which slow start changes; leave it out"
        ));
    }
    match (SLOW_START_MIN..=SLOW_START_MAX).contains(&lasts) {
        true => Ok(lasts),
        false => Err(format!(
            "a time from {SLOW_START_MIN:?} to {SLOW_START_MAX:?} is allowed"
        )),
    }
}

/// 128 bits in hexadecimal: short words would be guessed.
fn secret(text: &str) -> Result<Secret, String> {
    let number = (text.len() == SECRET_DIGITS).then(|| u128::from_str_radix(text, 16).ok());
    match number.flatten() {
        Some(number) if number != 0 => Ok(Secret {
            word: [(number >> 64) as u64, number as u64],
        }),
        _ => Err(format!(
            "write {SECRET_DIGITS} hexadecimal digits, as `openssl rand -hex 16` prints them"
        )),
    }
}

/// Refuses a virtual endpoint that another service has, or that is a server of some service.
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
    for service in services {
        for server in service.endpoints() {
            let ports = match server.port() {
                0 => [1, u16::MAX],
                port => [port; 2],
            };
            let is_called =
                |listen: &Listen| listen.address == server.ip() && listen.overlaps_ports(ports);
            if let Some((_, of)) = all.iter().find(|(listen, _)| is_called(listen)) {
                let problem = format!(
                    "{} is the virtual endpoint of service.{of}, not a server",
                    ServerAt(server)
                );
                return Err(source.bad(&[SERVICE, &service.name, "servers"], problem));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Configuration;

    const WEB: &str = "[service.web]\nlisten = \"203.0.113.10:80\"\nservers = [\"10.0.0.11:80\"]\n";
    const DEVICES: &str = "devices = [\"eth0\"]\n";
    const GATEWAY: &str = "policy = \"rr\"\nlan = [\"lan0\"]\nlink.a = { device = \"wan0\" }\n";

    fn read(text: &str) -> Result<Configuration, String> {
        let read = Configuration::parse(Path::new("f.toml"), text);
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn what_passes_by_decides_which_policies_servers_that_answer_themselves_have() {
        for policy in ["CONN", "probabilistic", "LC", "Maglev-bounded"] {
            let file = format!("{WEB}forwarding = \"direct\"\npolicy = \"{policy}\"\n{DEVICES}");
            read(&file).unwrap();
        }
    }

    #[test]
    fn services_stand_at_their_own_devices_or_the_gateways() {
        let alone = read(&format!("{WEB}{DEVICES}")).unwrap();
        assert_eq!(alone.roles(), [SERVICE]);
        assert_eq!(alone.services.unwrap().devices, ["eth0"]);
        let both = read(&format!("{GATEWAY}{WEB}")).unwrap();
        assert_eq!(both.roles(), ["gateway", SERVICE]);
        assert_eq!(both.services.unwrap().devices, ["lan0", "wan0"]);
    }

    #[test]
    fn a_service_has_the_policy_that_it_names_or_the_default_of_servers() {
        for text in ["", "policy = \"rr\"\n", "policy = \"cyclic\"\n"] {
            let config = read(&format!("{WEB}{text}{DEVICES}")).unwrap();
            let policy = config.services.unwrap().services[0].policy;
            let default = catalogue::default(TargetKind::Server).policy;
            assert_eq!(Policy::Service(policy), default, "{text}");
        }
    }

    #[test]
    fn every_server_has_the_check_of_its_service_at_its_own_address() {
        let servers = "[\"10.0.0.11:80\", { at = \"10.0.0.12:81\", weight = 3, backup = true }]";
        for (check, tests) in [
            ("", ["tcp:10.0.0.11:80", "tcp:10.0.0.12:81"]),
            ("check = \"icmp\"\n", ["icmp:10.0.0.11", "icmp:10.0.0.12"]),
            (
                "check = { ask = \"http:/up\", expect = { status = [204] } }\n",
                ["http:10.0.0.11/up = 204", "http:10.0.0.12:81/up = 204"],
            ),
            (
                "check = { ask = \"https:/\", port = 8443, certificate = \"any\" }\n",
                ["https:10.0.0.11:8443/ = 200", "https:10.0.0.12:8443/ = 200"],
            ),
            ("check = \"none\"\n", ["", ""]),
        ] {
            let text = format!("{WEB}{check}{DEVICES}").replace("[\"10.0.0.11:80\"]", servers);
            let service = read(&text).unwrap().services.unwrap().services.remove(0);
            let made = service.servers.iter().map(|server| {
                let check = server.check.iter().flat_map(|check| &check.tests);
                check.map(ToString::to_string).collect::<String>()
            });
            assert_eq!(made.collect::<Vec<_>>(), tests, "{check}");
            let [first, second] = &service.servers[..] else {
                panic!("two servers");
            };
            assert_eq!((first.weight, first.backup), (1, false));
            assert_eq!((second.weight, second.backup), (3, true));
        }
    }

    #[test]
    fn a_service_of_udp_says_so_and_asks_nothing_by_tcp() {
        let both = "[\"203.0.113.10:80\", \"udp:203.0.113.10:80\"]";
        for (listen, asks) in [
            ("\"udp:203.0.113.10:80\"", "icmp:10.0.0.11"),
            (both, "tcp:10.0.0.11:80"),
        ] {
            let text = format!("{WEB}{DEVICES}").replace("\"203.0.113.10:80\"", listen);
            let service = read(&text).unwrap().services.unwrap().services.remove(0);
            let check = service.servers[0].check.as_ref().unwrap();
            assert_eq!(check.tests[0].to_string(), asks);
        }
    }

    #[test]
    fn a_server_without_a_port_keeps_the_one_called_and_is_checked_at_the_first() {
        let text = format!("{WEB}{DEVICES}").replace("10:80", "10:8000-8099");
        let text = text.replace(
            "[\"10.0.0.11:80\"]",
            "[\"10.0.0.11\", { at = \"10.0.0.12\" }, \"10.0.0.13:80\"]",
        );
        let service = read(&text).unwrap().services.unwrap().services.remove(0);
        let asked = service.servers.iter().map(|server| {
            let check = server.check.as_ref().unwrap();
            (server.endpoint.port(), check.tests[0].to_string())
        });
        let asked: Vec<_> = asked.collect();
        let expected = [
            (0, "tcp:10.0.0.11:8000"),
            (0, "tcp:10.0.0.12:8000"),
            (80, "tcp:10.0.0.13:80"),
        ];
        assert_eq!(asked, expected.map(|(port, ask)| (port, ask.to_owned())));
    }

    #[test]
    fn what_cannot_be_is_told_in_a_line_with_key_and_value() {
        let with = |from: &str, to: &str| format!("{WEB}{DEVICES}").replace(from, to);
        let server = "[\"10.0.0.11:80\"]";
        let trunk = "[trunk]\ndevice = \"trunk0\"\nsublink.a = { device = \"eth0\" }\n";
        for (text, said) in [
            (
                WEB.to_owned(),
                "service.web = [service.web]: which devices lead to its clients and servers?",
            ),
            (
                with("203.0.113.10:80", "203.0.113.10"),
                "service.web.listen = \"203.0.113.10\": write it like \"203.0.113.10:80\"",
            ),
            (
                with("203.0.113.10:80", "0.0.0.0:80"),
                "service.web.listen = \"0.0.0.0:80\": each must be the address of one host",
            ),
            (
                with(server, "[]"),
                "service.web.servers = []: one server is wanted at least",
            ),
            (
                with(server, "[\"10.0.0.11:80\", \"10.0.0.11:80\"]"),
                "10.0.0.11:80 is there twice",
            ),
            (with("10:80", "10:0"), "a port from 1 on"),
            (
                format!("{WEB}{DEVICES}[services]\nconnections = 10\n"),
                "services.connections = 10: 262144 to 16000000 connections are allowed",
            ),
            (
                with("10:80", "10:80-79"),
                "service.web.listen = \"203.0.113.10:80-79\": write it like",
            ),
            (
                with(
                    "\"203.0.113.10:80\"",
                    "[\"203.0.113.10:80\", \"203.0.113.10:79-90\"]",
                ),
                "203.0.113.10:79-90 is service.web's already, by 203.0.113.10:80",
            ),
            (
                with(server, "[\"203.0.113.10\"]"),
                "203.0.113.10 is the virtual endpoint of service.web, not a server",
            ),
            (
                with(server, "[{ at = \"10.0.0.11:80\", weight = 1001 }]"),
                "service.web.servers[0].weight = 1001: 0 to 1000 are allowed",
            ),
            (
                with(server, "[{ at = \"10.0.0.11:80\", limit = 0 }]"),
                "service.web.servers[0].limit = 0: 1 at least",
            ),
            (
                with(server, "[{ at = \"10.0.0.11:80\", backup = true }]"),
                "one server at least is to be no backup",
            ),
            (
                format!("{WEB}policy = \"Maglev\"\nsecret = \"s3cret\"\n{DEVICES}"),
                "service.web.secret = \"s3cret\": write 32 hexadecimal digits",
            ),
            (
                format!("{WEB}secret = \"{}\"\n{DEVICES}", "7".repeat(32)),
                "the policy RR uses no hash",
            ),
            (
                format!("{WEB}on_failure = \"drop\"\n{DEVICES}"),
                "service.web.on_failure = \"drop\": allowed: reset, keep",
            ),
            (
                format!("{WEB}sorry = \"page\"\n{DEVICES}"),
                "service.web.sorry = \"page\": allowed: host, reset, drop",
            ),
            (
                format!("{WEB}slow_start = \"30s\"\n{DEVICES}"),
                "service.web.slow_start = \"30s\": the policy RR goes by no weights",
            ),
            (
                format!("{WEB}policy = \"WLC\"\nslow_start = \"100ms\"\n{DEVICES}"),
                "service.web.slow_start = \"100ms\": a time from 1s to 3600s is allowed",
            ),
            (
                format!("{WEB}ties = \"first\"\n{DEVICES}"),
                "service.web.ties = \"first\": the policy RR compares no servers",
            ),
            (
                format!("{WEB}policy = \"LC\"\nties = \"last\"\n{DEVICES}"),
                "service.web.ties = \"last\": allowed: random, first, connections",
            ),
            (
                format!("{WEB}load_bound = 1.5\n{DEVICES}"),
                "service.web.load_bound = 1.5: the policy RR bounds no load",
            ),
            (
                format!("{WEB}policy = \"Maglev-bounded\"\nload_bound = 1.0\n{DEVICES}"),
                "service.web.load_bound = 1.0: 1.05 to 10 are allowed",
            ),
            (
                format!("{WEB}window = \"1s\"\n{DEVICES}"),
                "service.web.window = \"1s\": the policy RR goes by no window",
            ),
            (
                format!("{WEB}policy = \"RT\"\nwindow = \"1ms\"\n{DEVICES}"),
                "service.web.window = \"1ms\": a time from 10ms to 60s is allowed",
            ),
            (
                format!("{WEB}forwarding = \"direct\"\npolicy = \"RT\"\n{DEVICES}"),
                "service.web.policy = \"RT\": forwarding = \"direct\" shows nothing of the answers",
            ),
            (
                format!("{WEB}forwarding = \"switch\"\n{DEVICES}"),
                "service.web.forwarding = \"switch\": ",
            ),
            (
                format!("{WEB}forwarding = \"direct\"\n{DEVICES}").replace("11:80", "11:8080"),
                "10.0.0.11:8080: forwarding = \"direct\" leaves the port that clients called",
            ),
            (
                format!("{WEB}gue_port = 6080\n{DEVICES}"),
                "service.web.gue_port = 6080: it is of forwarding = \"tunnel\"; leave it out",
            ),
            (
                format!("{WEB}forwarding = \"tunnel\"\ngue_port = 0\n{DEVICES}"),
                "service.web.gue_port = 0: 1 to 65535 are allowed",
            ),
            (
                format!("{WEB}forwarding = \"tunnel\"\npolicy = \"RT\"\n{DEVICES}"),
                "service.web.policy = \"RT\": forwarding = \"tunnel\" shows nothing of the answers",
            ),
            (with(server, "[7]"), "service.web.servers[0] = 7: "),
            (
                format!("{WEB}check = \"ping\"\n{DEVICES}"),
                "service.web.check = \"ping\": write \"tcp\", \"icmp\"",
            ),
            (
                format!("{WEB}check = {{ ask = \"http:health\" }}\n{DEVICES}"),
                "service.web.check.ask = \"http:health\": write \"tcp\"",
            ),
            (
                format!("{WEB}check = {{ interval = \"1ms\" }}\n{DEVICES}"),
                "service.web.check.interval = \"1ms\": a time from 200ms",
            ),
            (
                format!("{WEB}check = {{ expect = {{ status = [200] }} }}\n{DEVICES}"),
                "service.web.check.expect = { status = [200] }: is for pages",
            ),
            (
                with(server, "[\"[fd00::1]:80\"]"),
                "is of another family than every endpoint of `listen`",
            ),
            (
                with(server, "[\"203.0.113.10:80\"]"),
                "is the virtual endpoint of service.web, not a server",
            ),
            (
                with("[\"eth0\"]", "[\"eth0\", \"eth0\"]"),
                "this device is service.web.devices[0] already; a device is named once",
            ),
            (
                with("devices", "device"),
                "service.web.device = [\"eth0\"]: unknown key; allowed: listen, servers, policy, ties, window, load_bound, secret, on_failure, unknown, insert_limit, sorry, slow_start, forwarding, gue_port, check, devices",
            ),
            (
                format!("{WEB}{DEVICES}{}", WEB.replace("web", "more") + DEVICES),
                "203.0.113.10:80 is service.web's already",
            ),
            (
                format!("{WEB}{DEVICES}{trunk}"),
                "what comes for a trunk is the trunk's, so no service stands there",
            ),
            (
                format!("{WEB}policy = \"WSDM\"\n{DEVICES}"),
                "service.web.policy = \"WSDM\": allowed: RR",
            ),
            (
                "[service]\n".to_owned(),
                "service = [service]: no service; write service.NAME",
            ),
        ] {
            let refused = read(&text).unwrap_err();
            assert!(refused.starts_with("f.toml: service"), "{refused}");
            assert!(refused.contains(said), "{refused}");
        }
    }
}
