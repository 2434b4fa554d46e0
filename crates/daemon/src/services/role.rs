//! The loop of the services.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use anabranch_api::{
    Paths, Request, Response, ServerStatus, ServiceStatus, ServicesStatus, Status,
};
use anabranch_core::{Family, Policy, ReasonCount};
use anabranch_dataplane::services::{Server, ServerId, ServerPath, ServiceId, Services, Sweeper};
use anabranch_policy::abi::Gauge;
use anabranch_policy::{Candidate, Choice};
use anyhow::Context;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Span;

use super::config::{Config, Service};
use super::places::places;
use super::ways::{self, Missing};
use crate::config::{Configuration, SERVICE};
use crate::control::Call;
use crate::error::Error;
use crate::lock::Claims;
use crate::observe::{Monitor, Netlink, Snapshot};
use crate::preflight::check_hooks;
use crate::shell::{Role, Shell, tell_status};

/// Time between sweeps: at least a tenth of the shortest timer of a connection. Connections that are over may stay a while.
const SWEEP: Duration = Duration::from_secs(10);
const NOT_THERE: &str = "of the file, and not of the data path yet";

/// The host, as the loop uses it.
pub(crate) struct Host {
    netlink: Netlink,
    monitor: Monitor,
    claims: Rc<RefCell<Claims>>,
}

impl Host {
    pub fn connect(claims: &Rc<RefCell<Claims>>) -> anyhow::Result<Self> {
        let netlink = Netlink::connect()?;
        Ok(Self {
            monitor: Monitor::connect(&netlink)?,
            netlink,
            claims: Rc::clone(claims),
        })
    }
}

/// A service as it was written to the data path.
#[derive(Debug)]
struct Placed {
    id: ServiceId,
    /// In the order of the configuration.
    servers: Vec<PlacedServer>,
}

#[derive(Debug)]
struct PlacedServer {
    id: ServerId,
    opened_before: u64,
    way: Result<ServerPath, Missing>,
}

/// The services, and the state of their loop.
pub(crate) struct ServicesRole {
    shell: Shell,
    config: Config,
    plane: Services,
    sweeper: Option<Sweeper>,
    sweeping: Option<JoinHandle<(Sweeper, Result<u64, anabranch_dataplane::Error>)>>,
    sweep_at: Instant,
    host: Host,
    /// By name.
    placed: BTreeMap<String, Placed>,
}

impl ServicesRole {
    /// Nothing is written or changed yet.
    pub(crate) fn new(
        config: Config,
        paths: &Paths,
        (mut plane, adopted): (Services, bool),
        host: Host,
    ) -> anyhow::Result<Self> {
        if adopted {
            tracing::info!("took over the connections of an earlier run");
        }
        Ok(Self {
            shell: Shell::new(paths.instance(), adopted),
            config,
            sweeper: Some(plane.sweeper().context("data path")?),
            sweeping: None,
            sweep_at: Instant::now() + SWEEP,
            plane,
            host,
            placed: BTreeMap::new(),
        })
    }

    // ---- the host changes

    /// Inspects the host, and writes the differences to the programs' maps.
    async fn look(&mut self) -> anyhow::Result<()> {
        self.shell.troubles.begin_look();
        let snapshot = self.host.netlink.snapshot().await;
        let Some(snapshot) = self.shell.done(snapshot.context("host")) else {
            return Ok(());
        };
        self.tell_services(&snapshot).await?;
        self.attach(&snapshot);
        let is_all_told = self.shell.troubles.is_clear();
        let devices = self.config.device_names();
        let mut claims = self.host.claims.borrow_mut();
        let kept = claims.keep_for(SERVICE, &devices, is_all_told);
        drop(claims);
        self.shell.done(kept);
        Ok(())
    }

    /// Writes servers before choices, and choices before the endpoints that lead to them.
    async fn tell_services(&mut self, host: &Snapshot) -> anyhow::Result<()> {
        let ids = self.service_ids()?;
        let mut placed = BTreeMap::new();
        let mut endpoints = BTreeMap::new();
        for (service, id) in self.config.services.clone().into_iter().zip(ids) {
            let servers = self.tell_servers(id, &service, host).await?;
            for listen in &service.listen {
                endpoints.insert(*listen, id);
            }
            placed.insert(service.name, Placed { id, servers });
        }
        self.plane.set_virtuals(&endpoints)?;
        self.placed = placed;
        Ok(())
    }

    /// The numbers of the services, in the order of the configuration. Known services keep theirs.
    fn service_ids(&mut self) -> anyhow::Result<Vec<ServiceId>> {
        let known = self.plane.names()?;
        let wanted: Vec<String> = self
            .config
            .services
            .iter()
            .map(|one| one.name.clone())
            .collect();
        // Called only if another service needs the number. If it cannot be read, the number counts as in use.
        let is_in_use = |id: usize| {
            let gauges = self.plane.gauges(ServiceId(id as u16));
            gauges.map_or(true, |gauges| {
                gauges.target.iter().any(|one| active(one) > 0)
            })
        };
        let found = places(&known, &wanted, is_in_use).with_context(|| {
            format!("{SERVICE}: services that are gone still have connections, and there is no room beside them")
        })?;
        for (name, &id) in wanted.iter().zip(&found) {
            if known[usize::from(id)].as_ref() != Some(name) {
                self.plane.set_name(ServiceId(id), Some(name))?;
            }
        }
        Ok(found.into_iter().map(ServiceId).collect())
    }

    async fn tell_servers(
        &mut self,
        id: ServiceId,
        service: &Service,
        host: &Snapshot,
    ) -> anyhow::Result<Vec<PlacedServer>> {
        let known = self.plane.servers(id)?;
        let gauges = self.plane.gauges(id)?;
        let endpoints: Vec<_> = known
            .iter()
            .map(|one| one.map(|one| one.endpoint))
            .collect();
        let is_in_use = |place: usize| active(&gauges.target[place]) > 0;
        let found = places(&endpoints, &service.servers, is_in_use).with_context(|| {
            format!("{SERVICE}.{}: servers that are gone still have connections, and there is no room beside them", service.name)
        })?;
        let mut servers = Vec::new();
        for (&endpoint, server) in service.servers.iter().zip(found.into_iter().map(ServerId)) {
            let way = ways::way(&self.host.netlink, host, endpoint.ip()).await?;
            let before = known[server.index()].filter(|one| one.endpoint == endpoint);
            let opened = gauges.target[server.index()].opened;
            let placed = PlacedServer {
                id: server,
                opened_before: before.map_or(opened, |one| one.opened_before),
                way,
            };
            self.tell_way(service, endpoint, &placed.way);
            let told = Server {
                endpoint,
                path: placed.way.clone().ok(),
                opened_before: placed.opened_before,
            };
            if known[server.index()] != Some(told) {
                self.plane.set_server(id, server, Some(told))?;
            }
            servers.push(placed);
        }
        for family in Family::ALL {
            self.plane
                .set_choice(id, family, &choice(service, &servers, family))?;
        }
        Ok(servers)
    }

    fn tell_way(&self, service: &Service, endpoint: SocketAddr, way: &Result<ServerPath, Missing>) {
        let before = self.placed.get(&service.name).and_then(|placed| {
            let at = service.servers.iter().position(|one| *one == endpoint)?;
            placed.servers.get(at).map(|server| &server.way)
        });
        match (before.map(Result::is_ok), way) {
            (Some(false), Err(_)) | (Some(true), Ok(_)) | (None, Ok(_)) => {}
            (_, Err(missing)) => {
                tracing::warn!("service {}: {endpoint} out of use: {missing}", service.name);
            }
            (_, Ok(_)) => tracing::info!("service {}: {endpoint} in use", service.name),
        }
    }

    /// Attaches the programs to the devices of the file, and detaches them from all others.
    fn attach(&mut self, host: &Snapshot) {
        for name in self.config.devices.clone() {
            let attached = match host.devices.get(&name) {
                Some(device) => {
                    let attached = self.plane.attach(device.ifindex, device.layer3);
                    attached.map_err(|error| error.to_string())
                }
                None => Err(format!("{name}: no such device")),
            };
            if let Err(trouble) = attached {
                self.shell.report_and_retry(&trouble);
            }
        }
        let wanted: Vec<u32> = self
            .config
            .devices
            .iter()
            .filter_map(|name| Some(host.devices.get(name)?.ifindex))
            .collect();
        let detached = self.plane.attached().and_then(|attached| {
            let left = attached
                .into_iter()
                .filter(|ifindex| !wanted.contains(ifindex));
            left.into_iter()
                .try_for_each(|ifindex| self.plane.detach(ifindex))
        });
        if let Err(trouble) = detached {
            self.shell.report_and_retry(&trouble.to_string());
        }
    }

    // ---- time passes

    /// Runs in a thread, because a table of many connections takes some hundred milliseconds.
    fn sweep(&mut self) {
        self.sweep_at = Instant::now() + SWEEP;
        let Some(mut sweeper) = self.sweeper.take() else {
            return;
        };
        self.sweeping = Some(tokio::task::spawn_blocking(move || {
            let swept = sweeper.sweep();
            (sweeper, swept)
        }));
    }

    fn status(&self) -> Result<Status, anabranch_dataplane::Error> {
        let reasons = ReasonCount::by_frequency(self.plane.reasons()?);
        let services: Result<Vec<_>, _> = self
            .config
            .services
            .iter()
            .map(|service| self.service_status(service))
            .collect();
        let status = ServicesStatus {
            adopted: self.shell.adopted,
            troubles: self.troubles(),
            devices: self.config.devices.clone(),
            services: services?,
            reasons,
        };
        Ok(Status {
            services: Some(Box::new(status)),
            ..self.shell.status()
        })
    }

    fn service_status(
        &self,
        service: &Service,
    ) -> Result<ServiceStatus, anabranch_dataplane::Error> {
        let placed = self.placed.get(&service.name);
        let gauges = placed
            .map(|placed| self.plane.gauges(placed.id))
            .transpose()?;
        let servers = service.servers.iter().enumerate().map(|(at, endpoint)| {
            let server = placed.and_then(|placed| placed.servers.get(at));
            let gauge = server
                .zip(gauges.as_ref())
                .map(|(server, gauges)| gauges.target[server.id.index()]);
            let gauge = gauge.unwrap_or_default();
            let missing = server.map_or(Some(NOT_THERE.to_owned()), |server| {
                server.way.as_ref().err().map(ToString::to_string)
            });
            ServerStatus {
                endpoint: *endpoint,
                usable: missing.is_none(),
                why: missing,
                opened: gauge.opened
                    - server.map_or(gauge.opened, |server| {
                        server.opened_before.min(gauge.opened)
                    }),
                active: active(&gauge),
            }
        });
        Ok(ServiceStatus {
            name: service.name.clone(),
            listen: service.listen.clone(),
            policy: Policy::Service(service.policy).to_string(),
            servers: servers.collect(),
        })
    }
}

fn active(gauge: &Gauge) -> u64 {
    gauge.opened.saturating_sub(gauge.closed)
}

/// The choice among the servers of a family that can be reached.
fn choice(service: &Service, servers: &[PlacedServer], family: Family) -> Choice {
    let count = servers.iter().map(|server| server.id.index() + 1).max();
    let nobody = Candidate {
        weight: 1,
        load: 0,
        usable: false,
    };
    let mut candidates = vec![nobody; count.unwrap_or(0)];
    for (endpoint, server) in service.servers.iter().zip(servers) {
        let is_of_family = Family::from(endpoint.ip()) == family;
        candidates[server.id.index()].usable = is_of_family && server.way.is_ok();
    }
    Choice::among(service.policy.dispatch, &candidates).0
}

impl Role for ServicesRole {
    type Config = Config;
    const NAME: &'static str = SERVICE;
    const AT_WORK: &'static str = "serving";

    fn span() -> Span {
        tracing::error_span!(SERVICE)
    }

    fn config_of(configuration: &Configuration) -> Option<Config> {
        configuration.services.clone()
    }

    async fn start(&mut self) -> anyhow::Result<()> {
        self.look().await?;
        let troubles: Vec<&str> = self.shell.troubles.met().collect();
        anyhow::ensure!(
            !self.plane.attached()?.is_empty(),
            "services could not be set up: {}",
            troubles.join("; ")
        );
        Ok(())
    }

    fn shell(&self) -> &Shell {
        &self.shell
    }

    fn troubles(&self) -> Vec<String> {
        let lost = self.config.services.iter().filter_map(|service| {
            let placed = self.placed.get(&service.name)?;
            let ways = placed.servers.iter().zip(&service.servers);
            let lost =
                ways.filter_map(|(server, endpoint)| Some((endpoint, server.way.as_ref().err()?)));
            let lost: Vec<_> = lost
                .map(|(endpoint, missing)| format!("{endpoint}: {missing}"))
                .collect();
            (!lost.is_empty()).then(|| format!("service {}: {}", service.name, lost.join(", ")))
        });
        lost.chain(self.shell.standing()).collect()
    }

    async fn event(&mut self) -> anyhow::Result<()> {
        match &mut self.sweeping {
            Some(sweeping) => tokio::select! {
                changed = self.host.monitor.changed() => {
                    changed?;
                    self.shell.look_soon();
                }
                swept = sweeping => {
                    self.sweeping = None;
                    let (sweeper, swept) = swept?;
                    self.sweeper = Some(sweeper);
                    let expired = swept?;
                    if expired > 0 {
                        tracing::debug!(expired, "forgot connections");
                    }
                }
            },
            None => {
                self.host.monitor.changed().await?;
                self.shell.look_soon();
            }
        }
        Ok(())
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        self.shell.look_again_after_trouble();
        Ok(())
    }

    fn turn_at(&self) -> Instant {
        self.sweep_at
    }

    async fn turn(&mut self) -> anyhow::Result<()> {
        if self.shell.take_look() {
            self.look().await?;
        }
        if Instant::now() >= self.sweep_at {
            self.sweep();
        }
        Ok(())
    }

    async fn answer(&mut self, (request, reply): Call) -> anyhow::Result<()> {
        if request != Request::Status {
            return Ok(());
        }
        tell_status(self.status(), reply);
        Ok(())
    }

    async fn check_config(&mut self, config: &Config) -> Result<(), Error> {
        let host = self.host.netlink.snapshot().await?;
        ways::check(config, &host)?;
        check_hooks(&host, &config.device_names())?;
        self.host
            .claims
            .borrow_mut()
            .add(SERVICE, &config.device_names())
    }

    async fn adopt_config(
        &mut self,
        config: Config,
        reply: oneshot::Sender<Response>,
    ) -> anyhow::Result<()> {
        self.config = config;
        self.look().await?;
        tracing::info!(
            "configuration reloaded: {} services",
            self.config.services.len()
        );
        // The client may have disconnected.
        let _ = reply.send(Response::Done);
        Ok(())
    }

    async fn close(self) -> anyhow::Result<()> {
        self.plane.close().context("detach the services")
    }
}
