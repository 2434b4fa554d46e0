//! The workload on real sockets.
//!
//! [`run`] drives every tab of a [`Workload`] on the caller's thread, which must already be in the network namespace of
//! the users: one HTTP/1.1 connection per file, bound to the user's source address, `Connection: close`, no repetition
//! of any request. What happens is told twice: as [`TransferEvent`]s while it happens, and as the list of [`Transfer`]s
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

use crate::{Extent, Round, RoundTimes, Tab, Transfer, TransferId, UserId, Workload};

/// Response header that carries the client's address as the server saw it.
pub const CLIENT_HEADER: &str = "x-client";

/// The place of a file's size in a path.
const BYTES: &str = "{bytes}";

/// Where the files are, who asks, and how long to wait.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub server: SocketAddr,
    /// Request path; `{bytes}` stands for the size of the file. Without it, the path names a file that is at least as
    /// long as any that is asked for.
    pub path: String,
    /// Source address of each user, at least as many as the workload has users.
    pub sources: Vec<IpAddr>,
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
    /// A configuration for `server` with time zero at the call: path `/bytes/{bytes}`, connect timeout 10 s, idle
    /// timeout 10 s, failure pause 100 ms, deadline one hour.
    pub fn new(server: SocketAddr, sources: Vec<IpAddr>) -> ClientConfig {
        ClientConfig {
            server,
            path: "/bytes/{bytes}".to_owned(),
            sources,
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
        id: TransferId,
        user: UserId,
        start_s: f64,
    },
    /// More bytes of the file have arrived.
    Progress {
        id: TransferId,
        bytes: u64,
        link: Option<Arc<str>>,
    },
    /// The transfer has ended, however it did.
    Finished(Transfer),
}

/// Why a run could not begin.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
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

/// Runs the workload to its end and returns all transfers in the order of their ids. The run does not depend on
/// anybody receiving the events.
pub fn run(
    workload: &Workload,
    config: ClientConfig,
    events: mpsc::Sender<TransferEvent>,
) -> Result<Vec<Transfer>, ClientError> {
    check_sources(workload, &config)?;
    check_path(&config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ClientError::Runtime)?;
    let client = Arc::new(Client::new(workload, config, events));
    let mut transfers = runtime.block_on(drive_all(client, workload));
    transfers.sort_by_key(|transfer| transfer.id);
    Ok(transfers)
}

fn check_sources(workload: &Workload, config: &ClientConfig) -> Result<(), ClientError> {
    let users = workload.users as usize;
    if config.sources.len() < users {
        return Err(ClientError::TooFewSources {
            users: workload.users,
            sources: config.sources.len(),
        });
    }
    for &address in &config.sources[..users] {
        if address.is_ipv4() != config.server.is_ipv4() {
            return Err(ClientError::Family {
                address,
                server: config.server,
            });
        }
        fetch::bound_socket(address).map_err(|error| ClientError::Source { address, error })?;
    }
    Ok(())
}

fn check_path(config: &ClientConfig) -> Result<(), ClientError> {
    let path = config.path_of(0);
    if path.starts_with('/') && path.parse::<PathAndQuery>().is_ok() {
        Ok(())
    } else {
        Err(ClientError::Path { path })
    }
}

async fn drive_all(client: Arc<Client>, workload: &Workload) -> Vec<Transfer> {
    let mut tabs = JoinSet::new();
    for tab in workload.tabs() {
        tabs.spawn(client.clone().drive(tab));
    }
    tabs.join_all().await.into_iter().flatten().collect()
}

/// What all tabs of a run share.
struct Client {
    config: ClientConfig,
    links: BTreeMap<IpAddr, Arc<str>>,
    events: mpsc::Sender<TransferEvent>,
    next_id: AtomicU64,
    begin: Instant,
    end: tokio::time::Instant,
}

impl Client {
    fn new(
        workload: &Workload,
        config: ClientConfig,
        events: mpsc::Sender<TransferEvent>,
    ) -> Client {
        let begin = Instant::now();
        let deadline = config.epoch + config.deadline;
        let end = match workload.extent {
            Extent::Rounds(_) => deadline,
            Extent::Duration(duration) => deadline.min(begin + duration),
        };
        let links = config
            .links
            .iter()
            .map(|(&address, name)| (address, name.as_str().into()))
            .collect();
        Client {
            links,
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
        let source = self.config.sources[user.0 as usize];
        join_all(round.sizes.iter().map(|&bytes_asked| {
            let id = TransferId(self.next_id.fetch_add(1, Ordering::Relaxed));
            fetch::Request {
                id,
                user,
                source,
                round: round.index,
                planned,
                bytes_asked,
            }
            .record(self)
        }))
        .await
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
