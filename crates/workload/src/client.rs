//! The workload on real sockets.
//!
//! [`run`] drives every tab of a [`Workload`], or every arrival of an [`ArrivalPlan`], on the caller's thread, which must
//! already be in the network namespace of the users: one HTTP/1.1 connection per file, bound to the user's source
//! address, `Connection: close`, no repetition of any request. What users send goes to [`ClientConfig::sink`], which
//! answers when it has everything. What happens is told twice: as [`TransferEvent`]s while it happens, and as the list of [`Transfer`]s
//! at the end.
//!
//! A transfer learns its link from the response header `X-Client`, in which the server names the address it saw: the
//! caller supplies which external address belongs to which link. The file of n bytes is asked for by replacing
//! `{bytes}` in [`ClientConfig::path`], or, where the path has no such place, as the first n bytes of the one file it
//! names (RFC 9110 §14.2).
//!
//! Every run ends: at [`ClientConfig::deadline`], at the end of the workload's own duration, or when its
//! [`ClientConfig::stop`] says so, transfers in flight are recorded as unfinished.

mod fetch;
mod stop;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hyper::http::uri::PathAndQuery;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

pub use stop::Stop;

use crate::{
    Arrival, ArrivalPlan, ClassId, Direction, Extent, RemoteServerId, Round, RoundTimes, Tab,
    Transfer, TransferId, UserId, Workload, alternative,
};

/// Response header that carries the client's address as the server saw it.
pub const CLIENT_HEADER: &str = "x-client";

/// The place of a file's size in a path.
const BYTES: &str = "{bytes}";

/// Where users and servers are, in one address family.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// At least one. Server n of an arrival is the n-th of them, modulo their number.
    pub servers: Vec<SocketAddr>,
    /// Source address of each user, at least as many as the load has users.
    pub sources: Vec<IpAddr>,
}

/// Where the files are, who asks, and how long to wait.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Of users and servers, at least one. Each transfer uses one of them, drawn by [`alternative`].
    pub addresses: Vec<Addresses>,
    /// Of that draw.
    pub seed: u64,
    /// Request path; `{bytes}` stands for the size of the file. Without it, the path names a file that is at least as
    /// long as any that is asked for.
    pub path: String,
    /// Path that takes what users send, in the body of a POST.
    pub sink: String,
    /// Connections are MPTCP's (RFC 8684), if servers will.
    pub multipath: bool,
    /// The link behind each external address.
    pub links: BTreeMap<IpAddr, String>,
    /// Longest wait for the TCP handshake.
    pub connect_timeout: Duration,
    /// Longest wait for the next byte of a response.
    pub idle_timeout: Duration,
    /// Pause of a tab after a round in which no file arrived, so that refused connections are not a busy loop.
    pub failure_pause: Duration,
    /// Time zero of all recorded times.
    pub epoch: Instant,
    /// Latest end of the run, since the epoch.
    pub deadline: Duration,
    /// Ends the run early.
    pub stop: Stop,
}

impl ClientConfig {
    /// A configuration with time zero at the call: path `/bytes/{bytes}`, sink `/sink`, connect timeout
    /// 10 s, idle timeout 10 s, failure pause 100 ms, deadline one hour.
    pub fn new(addresses: Vec<Addresses>) -> ClientConfig {
        ClientConfig {
            addresses,
            seed: 0,
            path: "/bytes/{bytes}".to_owned(),
            sink: "/sink".to_owned(),
            multipath: false,
            links: BTreeMap::new(),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(10),
            failure_pause: Duration::from_millis(100),
            epoch: Instant::now(),
            deadline: Duration::from_secs(3600),
            stop: Stop::default(),
        }
    }

    fn path_of(&self, bytes: u64) -> String {
        self.path.replace(BYTES, &bytes.to_string())
    }

    /// All files are the beginnings of one.
    fn asks_for_ranges(&self) -> bool {
        !self.path.contains(BYTES)
    }
}

/// What happens to a transfer, in the order of its life.
#[derive(Clone, Debug, PartialEq)]
pub enum TransferEvent {
    /// The first SYN is about to leave.
    Started {
        /// Which transfer.
        id: TransferId,
        /// Whose.
        user: UserId,
        /// Seconds since the epoch of the run.
        start_s: f64,
    },
    /// More bytes of the file have arrived.
    Progress {
        /// Which transfer.
        id: TransferId,
        /// Of the file so far.
        bytes: u64,
        /// The link that carries the flow, if a response told.
        link: Option<Arc<str>>,
    },
    /// The transfer has ended, however it did.
    Finished(Transfer),
}

/// Why a run could not begin.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ClientError {
    #[error("no server to ask; name one at least")]
    NoServer,
    #[error(
        "the workload has {users} users and {sources} source addresses; give one address per user"
    )]
    TooFewSources { users: u32, sources: usize },
    #[error(
        "source address {address} cannot be used in this namespace: {error}; add it to an interface"
    )]
    Source { address: IpAddr, error: io::Error },
    #[error("source address {address} and server {server} are of different families")]
    Family { address: IpAddr, server: SocketAddr },
    #[error("request path \"{path}\" is not a URI path; it must begin with / and have no spaces")]
    Path { path: String },
    #[error("no asynchronous runtime: {0}")]
    Runtime(io::Error),
}

/// What a run asks for, and when.
#[derive(Clone, Copy, Debug)]
pub enum Demand<'a> {
    /// Rounds of files, the next when the last is through.
    Pages(&'a Workload),
    /// Transfers at times drawn beforehand.
    Arrivals(&'a ArrivalPlan),
}

impl<'a> From<&'a Workload> for Demand<'a> {
    fn from(workload: &'a Workload) -> Self {
        Demand::Pages(workload)
    }
}

impl<'a> From<&'a ArrivalPlan> for Demand<'a> {
    fn from(plan: &'a ArrivalPlan) -> Self {
        Demand::Arrivals(plan)
    }
}

impl Demand<'_> {
    fn users(self) -> u32 {
        match self {
            Demand::Pages(workload) => workload.users,
            Demand::Arrivals(plan) => plan.pattern.users(),
        }
    }

    fn class_names(self) -> Vec<Arc<str>> {
        match self {
            Demand::Pages(_) => Vec::new(),
            Demand::Arrivals(plan) => plan.pattern.class_names().map(Arc::from).collect(),
        }
    }

    fn longest(self) -> Option<Duration> {
        match self {
            Demand::Pages(workload) => match workload.extent {
                Extent::Rounds(_) => None,
                Extent::Duration(duration) => Some(duration),
            },
            Demand::Arrivals(_) => None,
        }
    }
}

/// Runs the load to its end and returns all transfers in the order of their ids. The run does not depend on anybody
/// receiving the events.
pub fn run<'a>(
    demand: impl Into<Demand<'a>>,
    config: ClientConfig,
    events: mpsc::Sender<TransferEvent>,
) -> Result<Vec<Transfer>, ClientError> {
    let demand = demand.into();
    if config.addresses.is_empty() {
        return Err(ClientError::NoServer);
    }
    for addresses in &config.addresses {
        check_sources(demand.users(), addresses, config.multipath)?;
    }
    check_path(config.path_of(0))?;
    check_path(config.sink.clone())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ClientError::Runtime)?;
    let client = Arc::new(Client::new(demand, config, events));
    let mut transfers = runtime.block_on(async {
        match demand {
            Demand::Pages(workload) => drive_tabs(client, workload).await,
            Demand::Arrivals(plan) => drive_arrivals(client, plan).await,
        }
    });
    transfers.sort_by_key(|transfer| transfer.id);
    Ok(transfers)
}

fn check_sources(users: u32, addresses: &Addresses, multipath: bool) -> Result<(), ClientError> {
    let Some(&server) = addresses.servers.first() else {
        return Err(ClientError::NoServer);
    };
    let sources = addresses.sources.get(..users as usize);
    let Some(sources) = sources else {
        return Err(ClientError::TooFewSources {
            users,
            sources: addresses.sources.len(),
        });
    };
    for &address in sources {
        if address.is_ipv4() != server.is_ipv4() {
            return Err(ClientError::Family { address, server });
        }
        fetch::bound_socket(address, multipath)
            .map_err(|error| ClientError::Source { address, error })?;
    }
    Ok(())
}

fn check_path(path: String) -> Result<(), ClientError> {
    if path.starts_with('/') && path.parse::<PathAndQuery>().is_ok() {
        Ok(())
    } else {
        Err(ClientError::Path { path })
    }
}

async fn drive_tabs(client: Arc<Client>, workload: &Workload) -> Vec<Transfer> {
    let mut tabs = JoinSet::new();
    for tab in workload.tabs() {
        tabs.spawn(client.clone().drive(tab));
    }
    tabs.join_all().await.into_iter().flatten().collect()
}

/// Begins each transfer at its time. Its number is its place among the arrivals.
async fn drive_arrivals(client: Arc<Client>, plan: &ArrivalPlan) -> Vec<Transfer> {
    let mut transfers = JoinSet::new();
    for arrival in plan.arrivals() {
        let planned = client.begin + arrival.at;
        if client
            .until_end(sleep_until(planned.into()))
            .await
            .is_none()
        {
            break;
        }
        let request = client.request_of(&arrival, planned);
        let client = client.clone();
        transfers.spawn(async move { request.record(&client).await });
    }
    transfers.join_all().await
}

/// What all tabs of a run share.
struct Client {
    config: ClientConfig,
    links: BTreeMap<IpAddr, Arc<str>>,
    /// By their numbers.
    classes: Vec<Arc<str>>,
    events: mpsc::Sender<TransferEvent>,
    next_id: AtomicU64,
    begin: Instant,
    end: tokio::time::Instant,
}

impl Client {
    fn new(
        demand: Demand<'_>,
        config: ClientConfig,
        events: mpsc::Sender<TransferEvent>,
    ) -> Client {
        let begin = Instant::now();
        let deadline = config.epoch + config.deadline;
        let end = demand
            .longest()
            .map_or(deadline, |longest| deadline.min(begin + longest));
        let links = config
            .links
            .iter()
            .map(|(&address, name)| (address, name.as_str().into()))
            .collect();
        Client {
            links,
            classes: demand.class_names(),
            events,
            next_id: AtomicU64::new(0),
            begin,
            end: end.into(),
            config,
        }
    }

    async fn drive(self: Arc<Client>, tab: Tab) -> Vec<Transfer> {
        let user = tab.user;
        let mut done = Vec::new();
        let mut previous = None;
        for round in tab {
            let planned = self.begin + round.earliest_start(previous);
            if self.end <= planned.into() {
                break;
            }
            if self.until_end(sleep_until(planned.into())).await.is_none() {
                break;
            }
            let started = self.begin.elapsed();
            let transfers = self.fetch_round(user, &round, planned).await;
            self.pause_after_failure(&transfers).await;
            previous = Some(RoundTimes {
                started,
                ended: self.begin.elapsed(),
            });
            done.extend(transfers);
        }
        done
    }

    async fn fetch_round(&self, user: UserId, round: &Round, planned: Instant) -> Vec<Transfer> {
        join_all(round.sizes.iter().map(|&bytes_asked| {
            let id = self.next_id();
            let addresses = self.addresses_of(id);
            fetch::Request {
                id,
                user,
                source: addresses.sources[user.0 as usize],
                server: RemoteServerId(0),
                address: addresses.servers[0],
                class: None,
                direction: Direction::Down,
                round: round.index,
                planned,
                bytes_asked,
            }
            .record(self)
        }))
        .await
    }

    fn request_of(&self, arrival: &Arrival, planned: Instant) -> fetch::Request {
        let id = self.next_id();
        let Addresses { servers, sources } = self.addresses_of(id);
        let ClassId(class) = arrival.class;
        fetch::Request {
            id,
            user: arrival.user,
            source: sources[arrival.user.0 as usize],
            server: arrival.server,
            address: servers[arrival.server.0 as usize % servers.len()],
            class: self.classes.get(class as usize).cloned(),
            direction: arrival.direction,
            round: 0,
            planned,
            bytes_asked: arrival.bytes,
        }
    }

    fn addresses_of(&self, id: TransferId) -> &Addresses {
        let all = &self.config.addresses;
        &all[alternative(self.config.seed, id, all.len())]
    }

    fn next_id(&self) -> TransferId {
        TransferId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    async fn pause_after_failure(&self, transfers: &[Transfer]) {
        if !transfers.is_empty()
            && transfers
                .iter()
                .all(|transfer| transfer.outcome.is_failure())
        {
            let over = tokio::time::Instant::now() + self.config.failure_pause;
            self.until_end(sleep_until(over)).await;
        }
    }

    /// What `work` comes to, unless the run ends before.
    async fn until_end<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = work => Some(result),
            () = sleep_until(self.end) => None,
            () = self.config.stop.ordered() => None,
        }
    }

    fn since_epoch_s(&self, instant: Instant) -> f64 {
        instant
            .saturating_duration_since(self.config.epoch)
            .as_secs_f64()
    }

    fn tell(&self, event: TransferEvent) {
        // Nobody listening is the caller's choice: the records are complete without the events.
        let _ = self.events.send(event);
    }
}
