//! The loop of the services.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use anabranch_api::{
    Paths, Request, Response, ServerAction, ServerStatus, ServiceStatus, ServicesStatus, Status,
};
use anabranch_core::{self as core, Family, Policy, ReasonCount};
use anabranch_dataplane::services::{Server, ServerId, ServerPath, ServiceId, Services, Sweeper};
use anabranch_policy::abi::Gauge;
use anyhow::Context;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Span;

use super::among::{counted_from_now, is_same, members};
use super::checked::{self, Subject, subject};
use super::config::{Config, Service};
use super::members::Member;
use super::places::places;
use super::ways::{self, Missing};
use crate::checking::Checking;
use crate::commands::Commands;
use crate::config::{Configuration, SERVICE};
use crate::control::Call;
use crate::error::Error;
use crate::lock::Claims;
use crate::observe::{Monitor, Netlink, Snapshot};
use crate::preflight::check_hooks;
use crate::shell::{Role, Shell, tell_status};

/// Time between sweeps: at least a tenth of the shortest timer of a connection. Connections that are over may stay a while.
const SWEEP: Duration = Duration::from_secs(10);
const DRAINED: &str = "drained, by order";
const NOT_THERE: &str = "of the file, and not of the data path yet";

/// The host, as the loop uses it.
pub(crate) struct Host {
    netlink: Netlink,
    monitor: Monitor,
    claims: Rc<RefCell<Claims>>,
    pub(super) commands: Commands,
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

/// The sweeper, and how many connections it has removed.
type Swept = (Sweeper, Result<u64, anabranch_dataplane::Error>);
type Sweeping = JoinHandle<Swept>;

/// A service as it was written to the data path.
#[derive(Debug)]
pub(super) struct Placed {
    id: ServiceId,
    /// In the order of the configuration.
    pub servers: Vec<PlacedServer>,
    /// By place: what the programs choose among.
    members: [Vec<Option<core::Member>>; 2],
}

/// A server as it was written to the data path.
#[derive(Debug)]
pub(super) struct PlacedServer {
    pub id: ServerId,
    opened_before: u64,
    pub way: Result<ServerPath, Missing>,
    is_drained: bool,
    /// Takes new connections, as the log was told last.
    pub is_used: bool,
}

/// The services, and the state of their loop.
pub(crate) struct ServicesRole {
    pub(super) shell: Shell,
    pub(super) config: Config,
    plane: Services,
    sweeper: Option<Sweeper>,
    sweeping: Option<Sweeping>,
    sweep_at: Instant,
    pub(super) host: Host,
    pub(super) checks: Checking<Subject>,
    /// By name.
    pub(super) placed: BTreeMap<String, Placed>,
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
            checks: checked::checks(&config, &plane)?,
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
            let mut now = self.place(id, &service, host).await?;
            self.tell_service(&service, &mut now)?;
            for listen in &service.listen {
                endpoints.insert(*listen, id);
            }
            placed.insert(service.name, now);
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

    /// Finds the places of the servers of a service, and the route to each.
    async fn place(
        &mut self,
        id: ServiceId,
        service: &Service,
        host: &Snapshot,
    ) -> anyhow::Result<Placed> {
        let known = self.plane.servers(id)?;
        let gauges = self.plane.gauges(id)?;
        let endpoints: Vec<_> = known
            .iter()
            .map(|one| one.map(|one| one.endpoint))
            .collect();
        let is_in_use = |place: usize| active(&gauges.target[place]) > 0;
        let wanted: Vec<SocketAddr> = service.endpoints().collect();
        let found = places(&endpoints, &wanted, is_in_use).with_context(|| {
            format!("{SERVICE}.{}: servers that are gone still have connections, and there is no room beside them", service.name)
        })?;
        let former = self.placed.remove(&service.name);
        let mut servers = Vec::new();
        for (endpoint, server) in wanted.into_iter().zip(found.into_iter().map(ServerId)) {
            let before = known[server.index()].filter(|one| one.endpoint == endpoint);
            let opened = gauges.target[server.index()].opened;
            let was = former.iter().flat_map(|former| &former.servers);
            let mut was = was.filter(|was| was.id == server && before.is_some());
            servers.push(PlacedServer {
                id: server,
                opened_before: before.map_or(opened, |one| one.opened_before),
                way: ways::way(&self.host.netlink, host, endpoint.ip()).await?,
                is_drained: before.is_some_and(|one| one.is_drained),
                is_used: was.next().is_none_or(|was| was.is_used),
            });
        }
        Ok(Placed {
            id,
            servers,
            members: former.map(|former| former.members).unwrap_or_default(),
        })
    }

    /// Writes which servers take new connections. As long as these are the same, shares are counted on.
    fn tell_service(&mut self, service: &Service, placed: &mut Placed) -> anyhow::Result<()> {
        let known = self.plane.servers(placed.id)?;
        for (member, server) in service.servers.iter().zip(&mut placed.servers) {
            let why = self.why_unused(service, member, server);
            if server.is_used != why.is_none() {
                server.is_used = why.is_none();
                tell_use(service, member, server, why.as_deref());
            }
            let told = Server {
                endpoint: member.endpoint,
                path: server.way.clone().ok(),
                opened_before: server.opened_before,
                is_drained: server.is_drained,
                has_failed: self.checks.is_down(&subject(service, member)),
            };
            if known[server.id.index()] != Some(told) {
                self.plane.set_server(placed.id, server.id, Some(told))?;
            }
        }
        let gauges = self.plane.gauges(placed.id)?;
        for family in Family::ALL {
            let among = members(service, &placed.servers, family);
            let told = &mut placed.members[family.index()];
            if !is_same(told, &among) {
                *told = counted_from_now(among, &gauges);
            }
            let choice = service.policy.choice(told);
            self.plane.set_choice(placed.id, family, &choice)?;
        }
        Ok(())
    }

    /// The same for all services, after a change of anything but places and routes.
    pub(super) fn tell_again(&mut self) -> anyhow::Result<()> {
        let mut placed = std::mem::take(&mut self.placed);
        for service in self.config.services.clone() {
            if let Some(now) = placed.get_mut(&service.name) {
                self.tell_service(&service, now)?;
            }
        }
        self.placed = placed;
        Ok(())
    }

    /// Why a server takes no new connections; none if it does.
    fn why_unused(
        &self,
        service: &Service,
        member: &Member,
        server: &PlacedServer,
    ) -> Option<String> {
        let missing = server.way.as_ref().err().map(ToString::to_string);
        let drained = || server.is_drained.then(|| DRAINED.to_owned());
        missing
            .or_else(|| self.checks.why(&subject(service, member)))
            .or_else(drained)
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
        let servers = service.servers.iter().enumerate().map(|(at, member)| {
            let server = placed.and_then(|placed| placed.servers.get(at));
            let gauge = server
                .zip(gauges.as_ref())
                .map(|(server, gauges)| gauges.target[server.id.index()]);
            let gauge = gauge.unwrap_or_default();
            let why = server.map_or(Some(NOT_THERE.to_owned()), |server| {
                self.why_unused(service, member, server)
            });
            ServerStatus {
                endpoint: member.endpoint,
                weight: member.weight,
                backup: member.backup,
                drained: server.is_some_and(|server| server.is_drained),
                check: self.checks.status(&subject(service, member)).pop(),
                usable: why.is_none(),
                why,
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

/// Returns the result of the sweep that is running. It never returns if none is.
async fn swept(sweeping: &mut Option<Sweeping>) -> anyhow::Result<Swept> {
    match sweeping {
        Some(sweeping) => Ok(sweeping.await?),
        None => std::future::pending().await,
    }
}

fn active(gauge: &Gauge) -> u64 {
    gauge.opened.saturating_sub(gauge.closed)
}

fn tell_use(service: &Service, member: &Member, server: &PlacedServer, why: Option<&str>) {
    let (name, at) = (&service.name, member.endpoint);
    match why {
        Some(why) if server.is_drained => tracing::info!("service {name}: {at} {why}"),
        Some(why) => tracing::warn!("service {name}: {at} out of use: {why}"),
        None => tracing::info!("service {name}: {at} in use"),
    }
}

impl ServicesRole {
    /// Drains a server or puts it back in use.
    fn order(
        &mut self,
        service: &str,
        server: SocketAddr,
        action: ServerAction,
    ) -> anyhow::Result<Response> {
        let refuse = |message| Ok(Response::Refused { message });
        let mut services = self.config.services.iter();
        let Some(config) = services.find(|one| one.name == service) else {
            let names = self.config.services.iter().map(|one| one.name.as_str());
            let names: Vec<&str> = names.collect();
            return refuse(format!(
                "no service {service:?}; there are: {}",
                names.join(", ")
            ));
        };
        let at = config.endpoints().position(|one| one == server);
        let placed = self.placed.get_mut(service);
        let Some(placed) = placed.zip(at).and_then(|(one, at)| one.servers.get_mut(at)) else {
            let servers: Vec<String> = config.endpoints().map(|one| one.to_string()).collect();
            return refuse(format!(
                "service {service} has no server {server}; it has: {}",
                servers.join(", ")
            ));
        };
        placed.is_drained = action == ServerAction::Drain;
        self.tell_again()?;
        Ok(Response::Done)
    }
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

    fn answers(request: &Request) -> bool {
        matches!(request, Request::Server { .. })
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

    /// Servers that were drained are as somebody wants them.
    fn troubles(&self) -> Vec<String> {
        let lost = self.config.services.iter().filter_map(|service| {
            let placed = self.placed.get(&service.name)?;
            let servers = service.servers.iter().zip(&placed.servers);
            let lost: Vec<_> = servers
                .filter(|(_, server)| !server.is_drained)
                .filter_map(|(member, server)| {
                    let why = self.why_unused(service, member, server)?;
                    Some(format!("{}: {why}", member.endpoint))
                })
                .collect();
            (!lost.is_empty()).then(|| format!("service {}: {}", service.name, lost.join(", ")))
        });
        let not_made = self.checks.not_made().map(|((service, server), words)| {
            format!("service {service}: server {server}: {words}")
        });
        lost.chain(not_made).chain(self.shell.standing()).collect()
    }

    async fn event(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.host.monitor.changed() => {
                changed?;
                self.shell.look_soon();
            }
            done = self.checks.done() => self.tested(done?)?,
            swept = swept(&mut self.sweeping) => {
                self.sweeping = None;
                let (sweeper, expired) = swept?;
                self.sweeper = Some(sweeper);
                let expired = expired?;
                if expired > 0 {
                    tracing::debug!(expired, "forgot connections");
                }
            }
        }
        Ok(())
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        self.shell.look_again_after_trouble();
        Ok(())
    }

    fn turn_at(&self) -> Instant {
        let test = self.checks.next_timeout();
        let test = test.map(|test| self.shell.instant(test));
        test.map_or(self.sweep_at, |test| test.min(self.sweep_at))
    }

    async fn turn(&mut self) -> anyhow::Result<()> {
        if self.shell.take_look() {
            self.look().await?;
        }
        self.make_tests();
        if Instant::now() >= self.sweep_at {
            self.sweep();
        }
        Ok(())
    }

    async fn answer(&mut self, (request, reply): Call) -> anyhow::Result<()> {
        match request {
            Request::Status => tell_status(self.status(), reply),
            Request::Server {
                service,
                server,
                action,
            } => {
                let response = self.order(&service, server, action)?;
                // Whoever asked may have gone.
                let _ = reply.send(response);
            }
            _ => {}
        }
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
        self.checks
            .set(self.shell.now(), checked::wanted(&self.config));
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
