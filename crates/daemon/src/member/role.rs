//! The loop of a member.

use anabranch_api::{MemberAddress, MemberStatus, Request, Response, Status};
use anabranch_core::ReasonCount;
use anabranch_dataplane::member::Member;
use anyhow::Context;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;

use super::config::Config;
use super::host::{Host, check, restore};
use super::load::Reporter;
use crate::attaching::attach_to;
use crate::config::{Configuration, MEMBER};
use crate::control::Call;
use crate::error::Error;
use crate::preflight::check_hooks;
use crate::shell::{NEVER, Role, Shell, tell_status};

/// A member, and the state of its loop.
pub(crate) struct MemberRole {
    shell: Shell,
    config: Config,
    plane: Member,
    host: Host,
    reporter: Option<Reporter>,
}

impl MemberRole {
    /// Nothing is written or changed yet.
    pub(crate) fn new(
        config: Config,
        instance: &str,
        (plane, adopted): (Member, bool),
        host: Host,
    ) -> Self {
        if adopted {
            tracing::info!("took over the member of an earlier run");
        }
        Self {
            shell: Shell::new(instance, adopted),
            config,
            plane,
            host,
            reporter: None,
        }
    }

    /// Answers balancers as the configuration says. One that answers so already goes on.
    fn report(&mut self) {
        let is_right = |reporter: &Reporter| reporter.is_of(&self.config);
        if self.reporter.as_ref().is_some_and(is_right) {
            return;
        }
        // The former one leaves its port first.
        self.reporter = None;
        let reporter = Reporter::begin(&self.config).context("member.load_port: answer balancers");
        self.reporter = self.shell.done(reporter).flatten();
    }

    /// Inspects the host, and changes what differs. Addresses come last: from then on clients are answered.
    async fn look(&mut self) -> anyhow::Result<()> {
        self.shell.troubles.begin_look();
        let snapshot = self.host.netlink.snapshot().await;
        let Some(snapshot) = self.shell.done(snapshot.context("host")) else {
            return Ok(());
        };
        self.plane.set_addresses(&self.config.addresses)?;
        self.plane
            .set_tunnels(&self.config.from, self.config.gue_port)?;
        attach_to(
            &mut self.plane,
            &self.config.devices,
            &snapshot,
            &mut self.shell,
        );
        let devices = self.config.device_names();
        let present = devices
            .iter()
            .filter(|name| snapshot.devices.contains_key(**name));
        let is_quiet = self.host.settings.keep_quiet(present.copied());
        let set = self
            .host
            .settings
            .set_addresses(&self.host.netlink, &snapshot, &self.config.addresses)
            .await;
        self.shell.done(is_quiet.context("host"));
        self.shell.done(set.context("addresses"));
        self.report();
        let is_all_told = self.shell.troubles.is_clear();
        let mut claims = self.host.claims.borrow_mut();
        let kept = claims.keep_for(MEMBER, &self.config.device_names(), is_all_told);
        drop(claims);
        self.shell.done(kept);
        Ok(())
    }

    fn status(&self) -> Result<Status, anabranch_dataplane::Error> {
        let addresses = self.config.addresses.iter().map(|address| {
            let outer_bytes = self.plane.outer_bytes(*address)?;
            Ok(MemberAddress {
                address: *address,
                outer_bytes,
            })
        });
        let addresses: Result<_, anabranch_dataplane::Error> = addresses.collect();
        let status = MemberStatus {
            adopted: self.shell.adopted,
            troubles: self.troubles(),
            devices: self.config.devices.clone(),
            addresses: addresses?,
            load: self.reporter.as_ref().map(Reporter::status),
            reasons: ReasonCount::by_frequency(self.plane.reasons()?),
        };
        Ok(Status {
            member: Some(Box::new(status)),
            ..self.shell.status()
        })
    }
}

impl Role for MemberRole {
    type Config = Config;
    const NAME: &'static str = MEMBER;
    const AT_WORK: &'static str = "answering clients";

    fn span() -> Span {
        tracing::error_span!(MEMBER)
    }

    fn config_of(configuration: &Configuration) -> Option<Config> {
        configuration.member.clone()
    }

    async fn start(&mut self) -> anyhow::Result<()> {
        self.look().await?;
        let troubles: Vec<&str> = self.shell.troubles.met().collect();
        anyhow::ensure!(
            !self.plane.attached()?.is_empty(),
            "member could not be set up: {}",
            troubles.join("; ")
        );
        Ok(())
    }

    fn shell(&self) -> &Shell {
        &self.shell
    }

    fn troubles(&self) -> Vec<String> {
        self.shell.standing()
    }

    async fn event(&mut self) -> anyhow::Result<()> {
        self.host.monitor.changed().await?;
        self.shell.look_soon();
        Ok(())
    }

    /// Settings change without a notification.
    fn tick(&mut self) -> anyhow::Result<()> {
        if self.host.settings.differs() {
            self.shell.look_soon();
        }
        self.shell.look_again_after_trouble();
        Ok(())
    }

    fn turn_at(&self) -> Instant {
        Instant::now() + NEVER
    }

    async fn turn(&mut self) -> anyhow::Result<()> {
        match self.shell.take_look() {
            true => self.look().await,
            false => Ok(()),
        }
    }

    async fn answer(&mut self, (request, reply): Call) -> anyhow::Result<()> {
        if request == Request::Status {
            tell_status(self.status(), reply);
        }
        Ok(())
    }

    async fn check_config(&mut self, config: &Config) -> Result<(), Error> {
        let host = self.host.netlink.snapshot().await?;
        check(config, &host)?;
        check_hooks(&host, &config.device_names())?;
        let mut claims = self.host.claims.borrow_mut();
        claims.add(MEMBER, &config.device_names())
    }

    async fn adopt_config(
        &mut self,
        config: Config,
        reply: oneshot::Sender<Response>,
    ) -> anyhow::Result<()> {
        self.config = config;
        self.look().await?;
        tracing::info!(
            "configuration reloaded: {} addresses",
            self.config.addresses.len()
        );
        // The client may have disconnected.
        let _ = reply.send(Response::Done);
        Ok(())
    }

    async fn close(self) -> anyhow::Result<()> {
        let closed = self.plane.close().context("detach the member");
        let restored = restore(self.host.settings, &self.host.netlink).await;
        restored.context("put the host back")?;
        closed
    }
}
