//! Servers behind virtual addresses: each connection to a service goes to one of its servers.
//!
//! The programs ([`anabranch_dataplane::services`]) are attached at the ingress of the devices over which clients and servers are
//! reached, before the gateway if the file has one. This loop writes which endpoints are services, where each server is, and how
//! its packets get there according to the host's routes. It also removes connections that are over.
//!
//! A service keeps its number, and a server its place, across reloads and restarts, because connections in the kernel contain both.
//! They are stored only in the maps.

mod among;
mod answering;
mod checked;
mod config;
mod explain;
mod members;
mod named;
mod places;
mod polled;
mod role;
mod slow;
mod stateless;
mod tell;
mod unknown;
mod ways;
mod windows;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use anabranch_api::Paths;
use anabranch_core::{self as core, ServerPolicy, Time, passive::Passive};
use anabranch_dataplane::services::{ServerId, ServerPath, ServiceId, Services, Sweeper, Swept};
use anyhow::Context;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::checking::Checking;
use crate::commands::Commands;
use crate::lock::Claims;
use crate::observe::{Monitor, Netlink};
use crate::shell::Shell;
use checked::Subject;
pub use config::{Config, Service};
pub use members::{Member, Place};
use named::Naming;
pub(crate) use named::forget;
use polled::Polling;
use unknown::Unknown;
use ways::Missing;
pub(crate) use ways::check;
use windows::Window;

/// Time between sweeps: at least a tenth of the shortest timer of a connection. Connections that are over may stay a while.
const SWEEP: Duration = Duration::from_secs(10);

/// Time between readings of what traffic shows of servers.
const WATCH: Duration = Duration::from_millis(100);

/// The host, as the loop uses it.
pub(crate) struct Host {
    netlink: Netlink,
    monitor: Monitor,
    claims: Rc<RefCell<Claims>>,
    commands: Commands,
}

impl Host {
    pub fn connect(claims: &Rc<RefCell<Claims>>, commands: Commands) -> anyhow::Result<Self> {
        let netlink = Netlink::connect()?;
        Ok(Self {
            monitor: Monitor::connect(&netlink)?,
            netlink,
            claims: Rc::clone(claims),
            commands,
        })
    }
}

/// The sweeper, and what it has done.
type Ended = (Sweeper, Result<Swept, anabranch_dataplane::Error>);
type Sweeping = JoinHandle<Ended>;

/// A service as it was written to the data path.
#[derive(Debug)]
struct Placed {
    id: ServiceId,
    /// By where they listen: the configuration may have changed since they were written.
    servers: BTreeMap<SocketAddr, PlacedServer>,
    /// How it chooses; none: of an earlier daemon, which this one does not know.
    choosing: Option<(ServerPolicy, Unknown)>,
    /// By place: what the programs choose among.
    members: [Vec<Option<core::Member>>; 2],
}

/// A server as it was written to the data path.
#[derive(Debug)]
struct PlacedServer {
    id: ServerId,
    opened_before: u64,
    way: Result<ServerPath, Missing>,
    is_drained: bool,
    /// Takes new connections, as the log was told last.
    is_used: bool,
    /// When it came up, while its weight rises.
    up_since: Option<Instant>,
    passive: Passive,
    /// Fails its check and is silent: its connections end.
    is_dead: bool,
}

/// The services, and the state of their loop.
pub(crate) struct ServicesRole {
    shell: Shell,
    config: Config,
    plane: Services,
    sweeper: Option<Sweeper>,
    sweeping: Option<Sweeping>,
    sweep_at: Instant,
    watch_at: Instant,
    host: Host,
    checks: Checking<Subject>,
    /// By name.
    placed: BTreeMap<String, Placed>,
    /// By name, of services whose policy goes by them.
    windows: BTreeMap<String, Window>,
    /// The names of servers.
    naming: Naming,
    polling: Polling,
}

impl ServicesRole {
    /// Nothing is written or changed yet.
    pub(crate) fn new(
        mut config: Config,
        paths: &Paths,
        (mut plane, adopted): (Services, bool),
        host: Host,
    ) -> anyhow::Result<Self> {
        if adopted {
            tracing::info!("took over the connections of an earlier run");
        }
        let mut naming = Naming::recall(paths, adopted);
        naming.apply(Time::ZERO, &mut config);
        Ok(Self {
            shell: Shell::new(paths.instance(), adopted),
            naming,
            checks: checked::checks(&config, &plane)?,
            config,
            sweeper: Some(plane.sweeper().context("data path")?),
            sweeping: None,
            sweep_at: Instant::now() + SWEEP,
            watch_at: Instant::now(),
            plane,
            host,
            placed: BTreeMap::new(),
            windows: BTreeMap::new(),
            polling: Polling::default(),
        })
    }
}
