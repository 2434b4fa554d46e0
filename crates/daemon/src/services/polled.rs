//! Asks servers for their load, for policies that go by what servers say in place of what is counted here.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anabranch_api::PolledStatus;
use anabranch_core::polled::{LEN, Polls, question, read_answer};
use anabranch_core::{Family, ServerAt};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::ServicesRole;
use super::checked::Subject;
use super::config::Service;

/// Later answers tell of a load of long ago.
const PATIENCE_MAX: Duration = Duration::from_secs(1);
const UDP_HEADER: usize = 8;

/// A server, and what it said.
type Heard = (Subject, Result<u64, String>);

/// What servers said, and which are being asked.
#[derive(Default)]
pub(super) struct Polling {
    /// By name, of services that ask.
    services: BTreeMap<String, (Polls<SocketAddr>, PolledStatus)>,
    asking: JoinSet<Heard>,
}

impl Polling {
    /// Waits for the next answer, or for its lack. It never returns if nobody is being asked.
    pub async fn heard(&mut self) -> anyhow::Result<Heard> {
        match self.asking.join_next().await {
            Some(heard) => Ok(heard?),
            None => std::future::pending().await,
        }
    }

    /// Takes in what a server said.
    pub fn take(&mut self, ((service, server), heard): Heard) {
        let Some((polls, status)) = self.services.get_mut(&service) else {
            return;
        };
        if heard.is_ok() {
            status.answers += 1;
            status.bytes += packet_bytes(server.ip());
        }
        polls.handle(&server, heard);
    }

    /// The connections that a server counts as having; none: those that are counted here.
    pub fn load(&self, service: &str, server: SocketAddr) -> Option<u64> {
        self.services.get(service)?.0.load(&server)
    }

    /// The connections that a server said it has.
    pub fn said(&self, service: &str, server: SocketAddr) -> Option<u64> {
        self.services.get(service)?.0.said(&server)
    }

    /// What asking the servers of a service has cost.
    pub fn status(&self, service: &str) -> Option<PolledStatus> {
        self.services.get(service).map(|(_, status)| *status)
    }

    /// What is wrong, a line for each server that does not say its load.
    pub fn troubles(&self) -> impl Iterator<Item = String> {
        self.services.iter().flat_map(|(name, (polls, _))| {
            polls.silent().map(move |(server, why)| {
                format!(
                    "service {name}: server {} does not say its load ({why}) and counts as having the mean of the others; have `load_port` in its [member], and this host in `from` there",
                    ServerAt(*server)
                )
            })
        })
    }
}

impl ServicesRole {
    /// When servers are asked next.
    pub(super) fn polls_at(&self) -> Option<Instant> {
        let polled = self.polling.services.values();
        let next = polled.map(|(polls, _)| polls.next_timeout()).min()?;
        Some(self.shell.instant(next))
    }

    /// Begins to ask for services that want it, and stops for others.
    pub(super) fn adopt_polls(&mut self) {
        let now = self.shell.now();
        let mut former = std::mem::take(&mut self.polling.services);
        let wanted = self.config.services.iter().filter(|one| one.poll.is_some());
        let polled = wanted.map(|service| {
            let fresh = || (Polls::new(now), PolledStatus::default());
            let polls = former.remove(&service.name).unwrap_or_else(fresh);
            (service.name.clone(), polls)
        });
        self.polling.services = polled.collect();
    }

    /// Asks the servers whose turn it is. Those that cannot be reached, or fail their checks, are in use by nobody.
    pub(super) fn ask_loads(&mut self) {
        let now = self.shell.now();
        for service in &self.config.services {
            let Some((poll, (polls, status))) = service
                .poll
                .zip(self.polling.services.get_mut(&service.name))
            else {
                continue;
            };
            let servers = asked(service, |subject| {
                let placed = self.placed.get(&subject.0);
                let server = placed.and_then(|placed| placed.servers.get(&subject.1));
                server.is_some_and(|server| server.way.is_ok()) && !self.checks.is_down(subject)
            });
            if !polls.is_due(now, poll.interval, servers.iter().map(|(_, at)| *at)) {
                continue;
            }
            for subject in servers {
                let address = subject.1.ip();
                status.questions += 1;
                status.bytes += packet_bytes(address);
                let at = SocketAddr::new(address, poll.port);
                let patience = poll.interval.min(PATIENCE_MAX);
                self.polling
                    .asking
                    .spawn(async move { (subject, ask(at, patience).await) });
            }
        }
    }
}

fn asked(service: &Service, can_be: impl Fn(&Subject) -> bool) -> Vec<Subject> {
    let servers = service.endpoints().map(|at| (service.name.clone(), at));
    servers.filter(can_be).collect()
}

async fn ask(at: SocketAddr, patience: Duration) -> Result<u64, String> {
    let mut is_nonsense = false;
    match timeout(patience, answer(at, &mut is_nonsense)).await {
        Ok(answered) => answered.map_err(|error| error.to_string()),
        Err(_) if is_nonsense => Err("what it answers is no load".to_owned()),
        Err(_) => Err(format!("no answer within {patience:?}")),
    }
}

/// Waits for the right answer, as anybody may send others.
async fn answer(at: SocketAddr, is_nonsense: &mut bool) -> io::Result<u64> {
    let any: IpAddr = match at {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(at).await?;
    let number = rand::random();
    socket.send(&question(number)).await?;
    // A longer datagram is cut, and is still too long.
    let mut bytes = [0; LEN + 1];
    loop {
        let length = socket.recv(&mut bytes).await?;
        if let Some(connections) = read_answer(&bytes[..length], number) {
            return Ok(connections);
        }
        *is_nonsense = true;
    }
}

/// Length of a question, or an answer, with its headers.
fn packet_bytes(server: IpAddr) -> u64 {
    let ip = match Family::from(server) {
        Family::V4 => 20,
        Family::V6 => 40,
    };
    (ip + UDP_HEADER + LEN) as u64
}
