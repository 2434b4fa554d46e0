//! Checks of servers: a server that fails its check gets no new connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anabranch_core::Family;
use anabranch_core::checks::{Ask, AskId, Check, Health, Outcome};
use anabranch_core::passive::Doubt;
use anabranch_dataplane::services::{Forwarding, ServerId, ServiceId, Services};
use tokio::time::Instant;

use super::among::limits;
use super::config::{Config, OnFailure, Service};
use super::members::Member;
use super::{ServicesRole, WATCH};
use crate::checking::{Checking, make_test};
use crate::probe::Via;

/// A service's name, and one of its servers.
pub(super) type Subject = (String, SocketAddr);

/// The checks of all servers, with the results of an earlier daemon.
pub(super) fn checks(config: &Config, plane: &Services) -> anyhow::Result<Checking<Subject>> {
    let failed = failed_before(plane)?;
    Ok(Checking::new(wanted(config), |subject, _| {
        failed.contains(subject).then_some(Health::Down)
    }))
}

/// The checks that a configuration wants.
pub(super) fn wanted(config: &Config) -> impl Iterator<Item = (Subject, Vec<Check>)> {
    config.services.iter().flat_map(|service| {
        let members = service.servers.iter();
        members.map(|member| {
            let subject = (service.name.clone(), member.endpoint);
            (subject, member.check.iter().cloned().collect())
        })
    })
}

/// The environment variables that tell a command which server it checks.
fn about((service, server): &Subject) -> BTreeMap<String, String> {
    let about = [
        ("SERVICE", service.clone()),
        ("ADDRESS", server.ip().to_string()),
        ("PORT", server.port().to_string()),
        ("FAMILY", Family::from(server.ip()).to_string()),
    ];
    let about = about.into_iter();
    about
        .map(|(name, value)| (format!("ANABRANCH_{name}"), value))
        .collect()
}

/// The subject of the checks of a server.
pub(super) fn subject(service: &Service, member: &Member) -> Subject {
    (service.name.clone(), member.endpoint)
}

/// The servers that failed their checks under an earlier daemon.
fn failed_before(plane: &Services) -> anyhow::Result<BTreeSet<Subject>> {
    let mut failed = BTreeSet::new();
    for (id, name) in (0..).zip(plane.names()?) {
        let Some(name) = name else { continue };
        let servers = plane.servers(ServiceId(id))?.into_iter().flatten();
        let down = servers.filter(|server| server.has_failed);
        failed.extend(down.map(|server| (name.clone(), server.endpoint)));
    }
    Ok(failed)
}

impl ServicesRole {
    /// Starts the tests that are due. A server that cannot be reached is not tested.
    pub(super) fn make_tests(&mut self) {
        let now = self.shell.now();
        while let Some(ask) = self.checks.next_due(now) {
            let id = ask.id;
            match self.leads_to(&ask.subject) {
                true => self.checks.begin(id, self.test(ask)),
                false => self.checks.withdraw(id),
            }
        }
    }

    /// Reads what traffic shows. Servers on which it casts doubt are tested at once; connections of those that died are ended.
    pub(super) fn watch(&mut self) -> anyhow::Result<()> {
        self.watch_at = Instant::now() + WATCH;
        let mut has_changed = false;
        for service in &self.config.services {
            let Some(placed) = self.placed.get_mut(&service.name) else {
                continue;
            };
            self.plane.note_full(placed.id, &limits(service, placed))?;
            let (now, seen) = self.plane.evidence(placed.id)?;
            for (endpoint, server) in &mut placed.servers {
                let subject = (service.name.clone(), *endpoint);
                if let Some(doubt) = server.passive.observe(now, seen[server.id.index()]) {
                    tracing::debug!(?subject, ?doubt, "tested at once");
                    let is_silent = doubt == Doubt::Silent;
                    self.checks.suspect(self.shell.now(), &subject, is_silent);
                }
                // One that answers its clients itself may be heard by those that it has.
                let is_dead = service.on_failure == OnFailure::Reset
                    && service.forwarding == Forwarding::Nat
                    && server.passive.is_dead(now)
                    && self.checks.is_down(&subject);
                has_changed |= is_dead != server.is_dead;
                server.is_dead = is_dead;
            }
        }
        self.raise_weights()?;
        if has_changed {
            self.tell_again()?;
            self.sweep_at = Instant::now();
        }
        Ok(())
    }

    /// The servers whose connections end.
    pub(super) fn dead(&self) -> BTreeSet<(ServiceId, ServerId)> {
        let placed = self.placed.values();
        let dead = placed.flat_map(|placed| {
            let servers = placed.servers.values();
            let dead = servers.filter(|server| server.is_dead);
            dead.map(|server| (placed.id, server.id))
        });
        dead.collect()
    }

    fn leads_to(&self, (service, server): &Subject) -> bool {
        let placed = self.placed.get(service);
        let placed = placed.and_then(|placed| placed.servers.get(server));
        placed.is_some_and(|placed| placed.way.is_ok())
    }

    /// Runs a test, which leaves by the host's own routes as the connections do.
    fn test(&self, ask: Ask<Subject>) -> impl Future<Output = Outcome> + Send + 'static {
        let via = Via::of_host(ask.subject.1.ip());
        let about = about(&ask.subject);
        make_test(
            ask.test,
            via,
            ask.timeout,
            self.host.commands.clone(),
            about,
        )
    }

    /// Adds a result, and writes what follows from it.
    pub(super) fn tested(&mut self, done: (AskId, Outcome)) -> anyhow::Result<()> {
        if self.checks.take(self.shell.now(), done) {
            return self.tell_again();
        }
        let services = self.config.services.iter();
        let by_checks = services.filter(|service| service.policy.goes_by_checks());
        let by_checks: Vec<Service> = by_checks.cloned().collect();
        by_checks
            .iter()
            .try_for_each(|service| self.tell_choices_again(service))
    }
}
