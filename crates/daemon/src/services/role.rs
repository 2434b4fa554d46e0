//! The loop of the services.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use anabranch_api::{
    Request, Response, ServerAction, ServerStatus, ServiceStatus, ServicesStatus, Status,
};
use anabranch_core::{Policy, ReasonCount, ServerAt};
use anabranch_dataplane::services::Listen;
use anyhow::Context;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;

use super::checked::subject;
use super::config::{Config, Service};
use super::{Ended, SWEEP, ServicesRole, Sweeping, WATCH, ways};
use crate::attaching::attach_to;
use crate::config::{Configuration, SERVICE};
use crate::control::Call;
use crate::error::Error;
use crate::preflight::check_hooks;
use crate::shell::{Role, Shell, tell_status};

const NOT_THERE: &str = "of the file, and not of the data path yet";

impl ServicesRole {
    // ---- the host changes

    /// Inspects the host, and writes the differences to the programs' maps.
    async fn look(&mut self) -> anyhow::Result<()> {
        self.shell.troubles.begin_look();
        let snapshot = self.host.netlink.snapshot().await;
        let Some(snapshot) = self.shell.done(snapshot.context("host")) else {
            return Ok(());
        };
        self.tell_services(&snapshot).await?;
        attach_to(
            &mut self.plane,
            &self.config.devices,
            &snapshot,
            &mut self.shell,
        );
        let is_all_told = self.shell.troubles.is_clear();
        let devices = self.config.device_names();
        let mut claims = self.host.claims.borrow_mut();
        let kept = claims.keep_for(SERVICE, &devices, is_all_told);
        drop(claims);
        self.shell.done(kept);
        Ok(())
    }

    // ---- time passes

    /// Runs in a thread, because a table of many connections takes some hundred milliseconds.
    fn sweep(&mut self) {
        self.sweep_at = Instant::now() + SWEEP;
        let Some(mut sweeper) = self.sweeper.take() else {
            // The one under way may have begun before a server died.
            self.sweep_at = Instant::now() + WATCH;
            return;
        };
        let dead = self.dead();
        self.sweeping = Some(tokio::task::spawn_blocking(move || {
            let swept = sweeper.sweep(&dead);
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

    pub(super) fn service_status(
        &self,
        service: &Service,
    ) -> Result<ServiceStatus, anabranch_dataplane::Error> {
        let placed = self.placed.get(&service.name);
        let gauges = placed
            .map(|placed| self.plane.gauges(placed.id))
            .transpose()?;
        let servers = service.servers.iter().map(|member| {
            let server = placed.and_then(|placed| placed.servers.get(&member.endpoint));
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
                drained: member.weight == 0 || server.is_some_and(|server| server.is_drained),
                check: self.checks.status(&subject(service, member)).pop(),
                usable: why.is_none(),
                why,
                opened: gauge.opened
                    - server.map_or(gauge.opened, |server| {
                        server.opened_before.min(gauge.opened)
                    }),
                active: gauge.active(),
                limit: member.limit.map(NonZeroU32::get),
                load: self.polling.said(&service.name, member.endpoint),
            }
        });
        Ok(ServiceStatus {
            name: service.name.clone(),
            listen: service.listen.iter().map(Listen::to_string).collect(),
            policy: Policy::Service(service.policy).to_string(),
            servers: servers.collect(),
            names: self.name_status(service),
            polled: self.polling.status(&service.name),
        })
    }

    // ---- orders

    /// Drains a server or puts it back in use.
    fn order(
        &mut self,
        service: &str,
        server: SocketAddr,
        action: ServerAction,
    ) -> anyhow::Result<Response> {
        let refuse = |message| Ok(Response::Refused { message });
        let config = match self.config.of_name(service) {
            Ok(config) => config,
            Err(message) => return refuse(message),
        };
        let placed = self.placed.get_mut(service);
        let Some(placed) = placed.and_then(|one| one.servers.get_mut(&server)) else {
            let servers: Vec<String> = config
                .endpoints()
                .map(|one| ServerAt(one).to_string())
                .collect();
            return refuse(format!(
                "service {service} has no server {}; it has: {}",
                ServerAt(server),
                servers.join(", ")
            ));
        };
        placed.is_drained = action == ServerAction::Drain;
        self.tell_again()?;
        Ok(Response::Done)
    }
}

/// Returns the result of the sweep that is running. It never returns if none is.
async fn swept(sweeping: &mut Option<Sweeping>) -> anyhow::Result<Ended> {
    match sweeping {
        Some(sweeping) => Ok(sweeping.await?),
        None => std::future::pending().await,
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
        matches!(
            request,
            Request::Server { .. } | Request::ExplainService { .. }
        )
    }

    async fn start(&mut self) -> anyhow::Result<()> {
        self.adopt_windows();
        self.adopt_polls();
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
            let servers = service.servers.iter();
            let servers =
                servers.filter_map(|member| Some((member, placed.servers.get(&member.endpoint)?)));
            let lost: Vec<_> = servers
                .filter(|(member, server)| !server.is_drained && member.weight > 0)
                .filter_map(|(member, server)| {
                    let why = self.why_unused(service, member, server)?;
                    Some(format!("{}: {why}", ServerAt(member.endpoint)))
                })
                .collect();
            (!lost.is_empty()).then(|| format!("service {}: {}", service.name, lost.join(", ")))
        });
        let not_made = self.checks.not_made().map(|((service, server), words)| {
            format!("service {service}: server {}: {words}", ServerAt(*server))
        });
        let names = self.name_troubles();
        let troubles = lost.chain(not_made).chain(names);
        let troubles = troubles.chain(self.polling.troubles());
        troubles.chain(self.shell.standing()).collect()
    }

    async fn event(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.host.monitor.changed() => {
                changed?;
                self.shell.look_soon();
            }
            done = self.checks.done() => self.tested(done?)?,
            heard = self.naming.heard() => self.heard(heard?),
            heard = self.polling.heard() => self.polling.take(heard?),
            swept = swept(&mut self.sweeping) => {
                self.sweeping = None;
                let (sweeper, swept) = swept?;
                self.sweeper = Some(sweeper);
                let swept = swept?;
                if swept.reset > 0 {
                    tracing::info!("connections of servers that died: {} reset", swept.reset);
                }
                if swept.forgotten > 0 {
                    tracing::debug!(forgotten = swept.forgotten, "forgot connections");
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
        let name = self.naming.names.next_timeout();
        let name = name.map(|name| self.shell.instant(name));
        let due = [test, name, self.window_ends(), self.polls_at()];
        let due = due.into_iter().flatten();
        due.fold(self.sweep_at.min(self.watch_at), Instant::min)
    }

    async fn turn(&mut self) -> anyhow::Result<()> {
        if self.shell.take_look() {
            self.look().await?;
        }
        if Instant::now() >= self.watch_at {
            self.watch()?;
        }
        self.ask_names();
        self.make_tests();
        self.ask_loads();
        self.end_windows()?;
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
            Request::ExplainService {
                service,
                client,
                called,
                proto,
            } => {
                let response = self.explain(&service, client, called, proto)?;
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
        if config.connections_max > self.config.connections_max {
            tracing::warn!(
                "services.connections = {}: more room needs a restart after a clean stop",
                config.connections_max
            );
        }
        self.config = config;
        self.adopt_windows();
        self.adopt_polls();
        self.find_servers();
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
        self.naming.forget();
        self.plane.close().context("detach the services")
    }
}
