//! The gateway as a role of the daemon: start, events, ticks, turns, requests, reload and stop.

use anabranch_api::{Request, Response, Severity};
use anabranch_core::Family;
use anabranch_core::rules::file::Remark;
use anyhow::Context;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;

use super::answers::{list_flows, list_prefixes};
use super::tell::absent;
use super::{GatewayRole, Surroundings, all_links, class_slots, view};
use crate::config::{Config, Configuration, GATEWAY};
use crate::control::Call;
use crate::plane::{Plane, Walk};
use crate::shell::{Role, Shell};

/// The host is inspected after this many ticks even without a netlink message.
pub(super) const LOOK_TICKS: u64 = 30;
/// The host's own UDP without a pause is tried again after this many ticks.
const MOVE_TICKS: u64 = 5;

impl<P: Plane, S: Surroundings> GatewayRole<P, S> {
    /// Carries out an order. It is answered when the flows that it ends have ended.
    async fn carry_out(
        &mut self,
        reply: oneshot::Sender<Response>,
        response: Response,
    ) -> anyhow::Result<()> {
        self.turn().await?;
        if self.endings.is_empty() {
            // The client may have disconnected.
            let _ = reply.send(response);
        } else {
            self.unanswered.push((reply, response));
        }
        Ok(())
    }

    /// Fails the start if nothing works. If some links work, the next tick tries the others again.
    fn check_start(&self) -> anyhow::Result<()> {
        let is_seen = !self.seen.links.is_empty();
        let is_attached = !self.told.attachments.is_empty() || self.seen.attachments.is_empty();
        let troubles: Vec<&str> = self.shell.troubles.met().collect();
        anyhow::ensure!(
            is_seen && is_attached,
            "nothing could be set up: {}",
            troubles.join("; ")
        );
        Ok(())
    }
}

fn tell_warnings(config: &Config) {
    for remark in &config.remarks {
        if let Remark::Warning(text) = remark {
            tracing::warn!("{text}");
        }
    }
}

impl<P: Plane, S: Surroundings> Role for GatewayRole<P, S> {
    type Config = Config;
    const NAME: &str = GATEWAY;
    const AT_WORK: &str = "forwarding";

    fn span() -> Span {
        tracing::error_span!(GATEWAY)
    }

    fn config_of(configuration: &Configuration) -> Option<Config> {
        configuration.gateway.as_deref().cloned()
    }

    fn answers(request: &Request) -> bool {
        matches!(
            request,
            Request::Flows { .. }
                | Request::Prefixes { .. }
                | Request::Explain { .. }
                | Request::Link { .. }
        )
    }

    /// Starts the gateway. Devices get their programs last, when the first choice is installed.
    async fn start(&mut self) -> anyhow::Result<()> {
        tell_warnings(&self.config);
        self.plane.set_class_names(&self.classes.names())?;
        // An earlier daemon may have had links and devices that are not in this configuration.
        self.forget_links(all_links())?;
        self.inherited = self.plane.attached()?.into_iter().collect();
        self.tell_checks();
        self.look().await?;
        self.check_start()?;
        self.survey_neighbours();
        self.end_stale_flows()
    }

    fn shell(&self) -> &Shell {
        &self.shell
    }

    fn work(&self) -> String {
        view::work(self)
    }

    fn alarms(&self) -> Vec<String> {
        let problems = view::problems(self).into_iter();
        let problems = problems.filter(|problem| problem.fails);
        let findings = self.survey.found().iter();
        let findings = findings.filter(|finding| finding.severity != Severity::Note);
        problems
            .map(|problem| problem.to_string())
            .chain(self.troubles())
            .chain(findings.map(ToString::to_string))
            .collect()
    }

    fn troubles(&self) -> Vec<String> {
        let standing = self.shell.standing().into_iter();
        let absent = self.seen.absent_lan.iter().map(|name| absent(name));
        standing
            .chain(absent)
            .chain(self.tests_not_made())
            .chain(self.surroundings.lacks())
            .collect()
    }

    async fn event(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.surroundings.changed() => {
                changed?;
                self.shell.look_soon();
            }
            Some(done) = self.probes.join_next() => self.probed(done?),
            done = self.checks.done() => self.tested(done?),
            Some(done) = self.sweeps.join_next() => self.swept(done?)?,
            Some(done) = self.endings.join_next() => self.ended(done?)?,
            Some(done) = self.moves.join_next() => self.moved(done?),
            Some(done) = self.surveys.join_next() => self.surveyed(done?),
        }
        Ok(())
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        self.ticks += 1;
        self.sweep()?;
        self.tell_rules()?;
        self.survey_neighbours();
        let traffic = all_links().map(|id| self.driver.counters(id).carried());
        self.meter.tick(self.shell.uptime(), traffic);
        self.surroundings.rest(self.driver.is_quiet());
        let (now, patience) = (self.shell.now(), self.config.availability.grace);
        let alive = self.driver.alive(Family::V6);
        let tries_others = self.uses.turn(now, &self.told.links, alive);
        if tries_others || self.grace.is_over(now, patience) {
            self.shell.look_soon();
        }
        if self.ticks.is_multiple_of(MOVE_TICKS) {
            self.move_idle();
        }
        if self.surroundings.has_lost_guard() || self.ticks.is_multiple_of(LOOK_TICKS) {
            self.shell.look_soon();
        }
        self.shell.look_again_after_trouble();
        Ok(())
    }

    fn turn_at(&self) -> Instant {
        let next = self.driver.next_turn();
        let test = self.checks.next_timeout();
        self.shell.instant(test.map_or(next, |test| test.min(next)))
    }

    /// Inspects the host if it changed, drives the balancer, and routes the fallback and the host's own traffic to the first
    /// usable links.
    async fn turn(&mut self) -> anyhow::Result<()> {
        if self.shell.take_look() {
            self.look().await?;
        }
        let asking = std::mem::take(&mut self.surveyed);
        if !asking.is_empty() {
            let now = self.shell.now();
            self.driver.read_counters(now, &mut self.plane)?;
        }
        self.make_tests();
        self.turn_balancer()?;
        if self.told_rules.is_none() {
            self.tell_rules()?;
        }
        let ways = self.ways();
        if ways != self.ways {
            self.ways = ways;
            self.apply_to_host().await;
        }
        for (link, address) in std::mem::take(&mut self.abandoned) {
            let name = self.slots.name(link).unwrap_or("of before");
            self.surroundings.abandon(name, address);
        }
        // Answered only now, so that a client that reads of a verdict finds the host changed accordingly.
        for reply in asking {
            self.tell_status(reply);
        }
        Ok(())
    }

    async fn answer(&mut self, (request, reply): Call) -> anyhow::Result<()> {
        let is_order = matches!(request, Request::Link { .. });
        let response = match request {
            Request::Flows { limit } => {
                list_flows(self.plane.walker(), limit, reply);
                return Ok(());
            }
            Request::Prefixes { limit } => {
                list_prefixes(self.plane.walker(), self.driver.listed(), limit, reply);
                return Ok(());
            }
            Request::Status => {
                self.asking.push(reply);
                self.begin_survey();
                return Ok(());
            }
            Request::Link {
                name,
                action,
                force,
            } => self.order(&name, action, force)?,
            Request::Explain { from, to, proto } => self.explain(from, to, proto),
            // Handled by the services, and by the daemon for all roles.
            Request::Server { .. }
            | Request::ExplainService { .. }
            | Request::Reload
            | Request::Stop { .. } => return Ok(()),
        };
        if is_order {
            return self.carry_out(reply, response).await;
        }
        // The client may have disconnected.
        let _ = reply.send(response);
        Ok(())
    }

    async fn check_config(&mut self, config: &Config) -> Result<(), crate::Error> {
        self.surroundings.check(config).await
    }

    /// Takes over a new configuration. The flows of links that stay are kept.
    async fn adopt_config(
        &mut self,
        config: Config,
        reply: oneshot::Sender<Response>,
    ) -> anyhow::Result<()> {
        tell_warnings(&config);
        let slots = self.slots.assign(config.names());
        let now = self.shell.now();
        let classes = class_slots(&self.plane, &config)?;
        self.driver.reconfigure(now, &config, &slots, &classes)?;
        if config.limits.flows > self.config.limits.flows {
            tracing::warn!(
                "limits.flows = {}: more room needs a restart after a clean stop",
                config.limits.flows
            );
        }
        if u64::from(config.limits.prefixes) > self.plane.walker().prefixes_max() {
            tracing::warn!(
                "limits.prefixes = {}: more room needs a restart after a clean stop",
                config.limits.prefixes
            );
        }
        self.orders.keep(&slots);
        (self.config, self.slots, self.classes) = (config, slots, classes);
        self.set_checks();
        self.plane.set_class_names(&self.classes.names())?;
        self.told_rules = None;
        self.set_settings()?;
        self.look().await?;
        tracing::info!(
            "configuration reloaded: {} links, policy {}",
            self.config.links.len(),
            self.config.policy
        );
        self.carry_out(reply, Response::Done).await
    }

    /// Stops the gateway, after flows that are being ended have ended.
    async fn close(mut self) -> anyhow::Result<()> {
        while self.endings.join_next().await.is_some() {}
        let closed = self.plane.close().context("detach the data path");
        let restored = self.surroundings.restore().await;
        restored.context("put the host back")?;
        closed
    }
}
