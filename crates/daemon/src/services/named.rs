//! Servers by name: what resolvers answer becomes the servers of services.
//!
//! [`servers`] decides what a service has; when which name is asked, and how long an answer holds, is decided by
//! [`anabranch_core::names`]. An answer that changes something is applied as a changed file is: servers that stay keep their places,
//! checks and orders, those that go keep their connections. The answers are in a file beside the socket, so that the next process has the
//! same servers before it has heard anything.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_api::{NameStatus, Paths};
use anabranch_core::ServerAt;
use anabranch_core::catalogue::TargetKind;
use anabranch_core::names::{Answer, Kind, Names, Question, Record};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{RData, RecordType};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::answering::Ambiguous;
use super::config::{Config, Service};
use super::members::{Member, Place, WEIGHT_MAX, Written};
use super::{ServicesRole, checked};
use crate::config::SERVICE;
use crate::probe::{DNS_PORT, Via, lookup};

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// resolv.conf(5).
const RESOLVERS_MAX: usize = 3;
/// How long a resolver has for an answer, which it may have to ask others for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often each is asked before that counts as an error: a datagram may be lost.
const TRIES: usize = 2;

/// A question, and what became of it.
type Heard = (Question, Result<Answer, String>);

/// The names of all services, and who is being asked.
pub(super) struct Naming {
    pub names: Names,
    asking: JoinSet<Heard>,
    /// Servers that a name stands for and that cannot be, with why.
    pub left_out: Vec<String>,
    file: PathBuf,
}

impl Naming {
    /// With what an earlier process knew, if its servers are still there.
    pub fn recall(paths: &Paths, adopted: bool) -> Self {
        let file = file(paths);
        let known = adopted.then(|| std::fs::read(&file).ok()).flatten();
        let known: Option<Vec<_>> = known.and_then(|text| serde_json::from_slice(&text).ok());
        Self {
            names: Names::recalled(known.unwrap_or_default()),
            asking: JoinSet::new(),
            left_out: Vec::new(),
            file,
        }
    }

    /// Returns the next answer. It never returns if nobody is being asked.
    pub async fn heard(&mut self) -> anyhow::Result<Heard> {
        match self.asking.join_next().await {
            Some(heard) => Ok(heard?),
            None => std::future::pending().await,
        }
    }

    /// Gives each service its servers, and asks what they are found by.
    pub fn apply(&mut self, now: anabranch_core::Time, config: &mut Config) {
        let wanted = config.services.iter().flat_map(|service| {
            let written = service.written.iter();
            written.flat_map(|one| questions(service, &one.place, &self.names))
        });
        let wanted = wanted.collect();
        self.names.set(now, wanted);
        self.left_out = resolve(config, &self.names);
    }

    /// There is no next process that should know.
    pub fn forget(&self) {
        remove(&self.file);
    }

    /// For the next process. Without it that process waits for answers.
    fn save(&self) {
        let known: Vec<_> = self.names.remembered().collect();
        let fresh = self.file.with_extension("json.new");
        let text = serde_json::to_vec(&known).unwrap_or_default();
        let saved = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, &self.file));
        if let Err(error) = saved {
            tracing::warn!("write {}: {error}", self.file.display());
        }
    }
}

fn file(paths: &Paths) -> PathBuf {
    paths.state_of(SERVICE)
}

/// Removes what a process knew of names.
pub(crate) fn forget(paths: &Paths) {
    remove(&file(paths));
}

fn remove(file: &Path) {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!("remove {}: {error}", file.display());
        }
        _ => {}
    }
}

// ---- which servers there are

/// The servers of a service.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    pub members: Vec<Member>,
    /// Those that cannot be, with why.
    pub left_out: Vec<String>,
}

/// What the servers of a service are, by what is known of names: those with an address whatever names say, each once, and as many as there
/// is room for. `refusal` says of an endpoint why it cannot be a server.
pub(super) fn servers(
    service: &Service,
    names: &Names,
    refusal: impl Fn(SocketAddr) -> Option<String>,
) -> Found {
    let written = service.written.iter();
    let mut seen: BTreeSet<SocketAddr> = written.filter_map(|one| one.place.endpoint()).collect();
    let mut found = Found {
        members: Vec::new(),
        left_out: Vec::new(),
    };
    for written in &service.written {
        if let Some(at) = written.place.endpoint() {
            found.members.push(written.member(at, &service.check));
            continue;
        }
        for member in named(service, written, names) {
            let at = member.endpoint;
            if seen.contains(&at) {
                continue;
            }
            let no_room = seen.len() >= TargetKind::Server.row().max;
            let no_room = no_room.then(|| "beyond the servers that a service may have".to_owned());
            match refusal(at).or(no_room) {
                None => {
                    seen.insert(at);
                    found.members.push(member);
                }
                Some(why) => found.left_out.push(format!(
                    "service {}: {} left out: {} is {why}",
                    service.name,
                    written.place,
                    ServerAt(at)
                )),
            }
        }
    }
    found
}

/// Gives each service the servers that names stand for. Returns those that it cannot have, and why.
fn resolve(config: &mut Config, names: &Names) -> Vec<String> {
    let mut left_out = Vec::new();
    for i in 0..config.services.len() {
        let found = servers(&config.services[i], names, |at| config.refusal(at));
        left_out.extend(found.left_out);
        config.services[i].servers = found.members;
    }
    while let Err(ambiguous) = config.check_answers() {
        // Those by address alone were refused with the file.
        if !leave_out(&mut config.services, &ambiguous) {
            break;
        }
        let Ambiguous {
            service, problem, ..
        } = ambiguous;
        left_out.push(format!("service {service}: left out: {problem}"));
    }
    left_out
}

/// Takes away servers by name whose answers cannot be told apart: of the service that has to know, or else of the others.
fn leave_out(services: &mut [Service], ambiguous: &Ambiguous) -> bool {
    let Ambiguous {
        service, server, ..
    } = ambiguous;
    let leave_out = |one: &mut Service| {
        let Service {
            written, servers, ..
        } = one;
        let is_fixed = |at| written.iter().any(|one| one.place.endpoint() == Some(at));
        let before = servers.len();
        servers.retain(|member| member.endpoint.ip() != *server || is_fixed(member.endpoint));
        servers.len() < before
    };
    let (own, others): (Vec<_>, Vec<_>) = services.iter_mut().partition(|one| one.name == *service);
    let mut both = [own, others].into_iter();
    both.any(|services| {
        services
            .into_iter()
            .map(leave_out)
            .fold(false, |any, out| any | out)
    })
}

/// What a name stands for, in the same order on all balancers.
fn named(service: &Service, written: &Written, names: &Names) -> Vec<Member> {
    let at = |name: &str, port| -> Vec<Member> {
        let questions: Vec<_> = addresses(service, name).collect();
        let addresses = questions
            .iter()
            .flat_map(|question| names.addresses(question));
        let endpoints = addresses.map(|address| SocketAddr::new(address, port));
        endpoints
            .map(|endpoint| written.member(endpoint, &service.check))
            .collect()
    };
    match &written.place {
        Place::Endpoint(_) => Vec::new(),
        Place::Host { name, port } => at(name, *port),
        Place::Service(name) => {
            let all = offers(service, name, names);
            let first = all.iter().map(|offer| offer.priority).min();
            let most = all.iter().map(|offer| offer.weight).max().unwrap_or(0);
            let members = all.iter().flat_map(|offer| {
                let members = at(&offer.host, offer.port).into_iter();
                members.map(|member| Member {
                    weight: share(offer.weight, most),
                    backup: member.backup || Some(offer.priority) > first,
                    ..member
                })
            });
            members.collect()
        }
    }
}

/// A weight of SRV records as one of ours. Theirs of 0 still gets something (RFC 2782).
fn share(weight: u16, most: u16) -> u32 {
    let (weight, most) = (u32::from(weight), u32::from(most).max(WEIGHT_MAX));
    (weight * WEIGHT_MAX / most).max(1)
}

/// A server by an SRV record.
struct Offer {
    priority: u16,
    weight: u16,
    port: u16,
    host: String,
}

fn offers(service: &Service, name: &str, names: &Names) -> Vec<Offer> {
    let question = question(service, name, Kind::Srv);
    let offers = names.records(&question).filter_map(|record| match record {
        Record::Address(_) => None,
        Record::Server {
            priority,
            weight,
            port,
            host,
        } => Some(Offer {
            priority: *priority,
            weight: *weight,
            port: *port,
            host: host.clone(),
        }),
    });
    offers.take(TargetKind::Server.row().max).collect()
}

/// What has to be asked to find the servers at a place.
fn questions(service: &Service, place: &Place, names: &Names) -> Vec<Question> {
    match place {
        Place::Endpoint(_) => Vec::new(),
        Place::Host { name, .. } => addresses(service, name).collect(),
        Place::Service(name) => {
            let offers = offers(service, name, names).into_iter();
            let hosts =
                offers.flat_map(|offer| addresses(service, &offer.host).collect::<Vec<_>>());
            hosts.chain([question(service, name, Kind::Srv)]).collect()
        }
    }
}

fn addresses(service: &Service, name: &str) -> impl Iterator<Item = Question> {
    let families = service.families();
    families.map(|family| question(service, name, family.into()))
}

fn question(service: &Service, name: &str, kind: Kind) -> Question {
    Question {
        name: name.to_owned(),
        kind,
        resolvers: service.resolvers.clone(),
    }
}

// ---- asking

async fn ask(question: Question) -> Heard {
    let resolvers = match &question.resolvers[..] {
        [] => host_resolvers(),
        written => written.to_vec(),
    };
    let mut said = String::new();
    for resolver in resolvers.repeat(TRIES) {
        match timeout(PATIENCE, ask_one(resolver, &question)).await {
            Ok(Ok(answer)) => return (question, Ok(answer)),
            Ok(Err(error)) => said = format!("{}: {error:#}", resolver.ip()),
            Err(_) => said = format!("no answer from {} within {PATIENCE:?}", resolver.ip()),
        }
    }
    (question, Err(said))
}

async fn ask_one(resolver: SocketAddr, question: &Question) -> anyhow::Result<Answer> {
    let kind = match question.kind {
        Kind::A => RecordType::A,
        Kind::Aaaa => RecordType::AAAA,
        Kind::Srv => RecordType::SRV,
    };
    let via = Via::of_host(resolver.ip());
    let message = lookup(resolver, &question.name, kind, &via).await?;
    match message.response_code() {
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(answer(&message, kind)),
        code => anyhow::bail!("it answered {code}"),
    }
}

/// The records of a kind; those before them lead there (CNAME).
fn answer(message: &Message, kind: RecordType) -> Answer {
    let answers = message.answers();
    let wanted = answers.iter().filter(|one| one.record_type() == kind);
    let lasts = answers.iter().map(|record| record.ttl()).min();
    Answer {
        records: wanted
            .filter_map(|record| record_of(record.data()))
            .collect(),
        lasts: Duration::from_secs(lasts.unwrap_or(0).into()),
    }
}

fn record_of(data: &RData) -> Option<Record> {
    match data {
        RData::SRV(server) => (!server.target().is_root()).then(|| Record::Server {
            priority: server.priority(),
            weight: server.weight(),
            port: server.port(),
            host: server
                .target()
                .to_lowercase()
                .to_ascii()
                .trim_end_matches('.')
                .to_owned(),
        }),
        data => data.ip_addr().map(Record::Address),
    }
}

/// Those of the file that C libraries read, each time, because programs change it as networks come and go.
fn host_resolvers() -> Vec<SocketAddr> {
    let text = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    let named = resolvers_of(&text);
    match &named[..] {
        [] => vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DNS_PORT)],
        named => named.to_vec(),
    }
}

fn resolvers_of(text: &str) -> Vec<SocketAddr> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_resolver = words.next() == Some("nameserver");
        words.next().filter(|_| is_resolver)?.parse::<IpAddr>().ok()
    });
    let resolvers = addresses.map(|address| SocketAddr::new(address, DNS_PORT));
    resolvers.take(RESOLVERS_MAX).collect()
}

impl ServicesRole {
    /// Asks for the names that are due.
    pub(super) fn ask_names(&mut self) {
        while let Some(question) = self.naming.names.poll_ask(self.shell.now()) {
            self.naming.asking.spawn(ask(question));
        }
    }

    /// Takes an answer, and what follows from it.
    pub(super) fn heard(&mut self, (question, answer): Heard) {
        if let Err(words) = &answer {
            tracing::debug!(%question, words, "not resolved");
        }
        let now = self.shell.now();
        if self.naming.names.handle(now, &question, answer) {
            tracing::info!("{question}: other servers than before");
            self.find_servers();
            self.naming.save();
        }
    }

    /// Takes over which servers there are, after a change of the file or of names.
    pub(super) fn find_servers(&mut self) {
        let now = self.shell.now();
        self.naming.apply(now, &mut self.config);
        self.checks.set(now, checked::wanted(&self.config));
        self.shell.look_soon();
    }

    /// What is known of the names of a service.
    pub(super) fn name_status(&self, service: &Service) -> Vec<NameStatus> {
        let written = service.written.iter();
        let status = written.flat_map(|written| self.status_of(service, &written.place));
        status.collect()
    }

    fn status_of(&self, service: &Service, place: &Place) -> impl Iterator<Item = NameStatus> {
        let names = &self.naming.names;
        let asked = questions(service, place, names);
        let known = names.known().filter(move |(one, _)| asked.contains(one));
        let now = self.shell.now();
        known.map(move |(question, known)| NameStatus {
            question: question.to_string(),
            records: known.records.len(),
            age_s: known.answered.map(|then| now.since(then).as_secs()),
            why: known.trouble.clone(),
        })
    }

    /// What is wrong with names, a line each.
    pub(super) fn name_troubles(&self) -> Vec<String> {
        let mut lines = self.naming.left_out.clone();
        for service in &self.config.services {
            for written in &service.written {
                let is_lonely = named(service, written, &self.naming.names).is_empty();
                let names = self.status_of(service, &written.place);
                // That a host has no address of one family is no trouble.
                let names = names.filter(|name| is_lonely || name.records > 0);
                let lacking = names.filter(|name| name.why.is_some());
                lines.extend(lacking.map(|name| format!("service {}: {name}", service.name)));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests;
