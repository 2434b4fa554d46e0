//! What the programs are told: where servers are, which of them take new connections, and how one is chosen.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anabranch_core::{Family, ServerAt};
use anabranch_dataplane::services::{Server, ServerId, ServerPath, ServiceId};
use anabranch_policy::abi::Secret;
use anyhow::Context;
use tokio::time::Instant;

use super::among::{counted_from_now, has_same_rows, is_same, limits, members};
use super::checked::subject;
use super::config::Service;
use super::members::Member;
use super::places::places;
use super::ways::Missing;
use super::{Placed, PlacedServer, ServicesRole, ways};
use crate::config::SERVICE;
use crate::observe::Snapshot;

const DRAINED: &str = "drained, by order";
const NO_WEIGHT: &str = "its weight is 0";

impl ServicesRole {
    /// Writes servers before choices, and choices before the endpoints that lead to them.
    pub(super) async fn tell_services(&mut self, host: &Snapshot) -> anyhow::Result<()> {
        let ids = self.service_ids()?;
        let mut placed = BTreeMap::new();
        let mut endpoints = BTreeMap::new();
        for (service, id) in self.config.services.clone().into_iter().zip(ids) {
            let mut now = self.place(id, &service, host).await?;
            self.tell_secret(id, &service)?;
            self.tell_service(&service, &mut now)?;
            self.tell_settings(id, &service)?;
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
                gauges.target.iter().any(|one| one.active() > 0)
            })
        };
        let found = places(&known, &wanted, is_in_use).into_iter();
        let found: Vec<u16> = found.collect::<Option<_>>().with_context(|| {
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
        let is_in_use = |place: usize| gauges.target[place].active() > 0;
        let wanted: Vec<SocketAddr> = service.endpoints().collect();
        let found = places(&endpoints, &wanted, is_in_use);
        if found.contains(&None) {
            self.shell.report_and_retry(&format!(
                "{SERVICE}.{}: servers that are gone still have connections, and there is no room for all others beside them",
                service.name
            ));
        }
        let former = self.placed.remove(&service.name);
        let mut servers = BTreeMap::new();
        let placed = wanted.into_iter().zip(found);
        let placed = placed.filter_map(|(endpoint, place)| Some((endpoint, ServerId(place?))));
        for (endpoint, server) in placed {
            let before = known[server.index()].filter(|one| one.endpoint == endpoint);
            let opened = gauges.target[server.index()].opened;
            let was = former.as_ref().and_then(|one| one.servers.get(&endpoint));
            let placed = PlacedServer {
                id: server,
                opened_before: before.map_or(opened, |one| one.opened_before),
                way: self.way(service, host, endpoint).await?,
                is_drained: before.is_some_and(|one| one.is_drained),
                is_used: was.is_none_or(|was| was.is_used),
                up_since: match was {
                    Some(was) => was.up_since,
                    // Added to a service that was there.
                    None => former.as_ref().map(|_| Instant::now()),
                },
                is_dead: was.is_some_and(|was| was.is_dead),
                passive: was.map(|was| was.passive.clone()).unwrap_or_default(),
            };
            servers.insert(endpoint, placed);
        }
        Ok(Placed {
            id,
            servers,
            choosing: former.as_ref().and_then(|former| former.choosing),
            members: former.map(|former| former.members).unwrap_or_default(),
        })
    }

    /// The route to a server that its service can use.
    async fn way(
        &self,
        service: &Service,
        host: &Snapshot,
        endpoint: SocketAddr,
    ) -> anyhow::Result<Result<ServerPath, Missing>> {
        let server = endpoint.ip();
        let way = ways::way(&self.host.netlink, host, server).await?;
        Ok(way.and_then(|path| ways::suits(path, service.forwarding, host, server)))
    }

    /// Writes where servers are, and which of them take new connections.
    fn tell_service(&mut self, service: &Service, placed: &mut Placed) -> anyhow::Result<()> {
        let known = self.plane.servers(placed.id)?;
        for member in &service.servers {
            let Some(server) = placed.servers.get_mut(&member.endpoint) else {
                continue;
            };
            let why = self.why_unused(service, member, server);
            if server.is_used != why.is_none() {
                server.is_used = why.is_none();
                server.up_since = server.is_used.then(Instant::now);
                tell_use(service, member, server, why.as_deref());
            }
            let has_failed = self.checks.is_down(&subject(service, member));
            let told = Server {
                endpoint: member.endpoint,
                path: server.way.clone().ok(),
                opened_before: server.opened_before,
                is_drained: server.is_drained,
                has_failed,
                is_dead: server.is_dead && has_failed,
                forwarding: service.forwarding,
                limit: member.limit,
            };
            if known[server.id.index()] != Some(told) {
                self.plane.set_server(placed.id, server.id, Some(told))?;
            }
        }
        self.plane.note_full(placed.id, &limits(service, placed))?;
        self.tell_choices(service, placed)
    }

    /// Writes how connections are given to the servers. As long as these are the same, shares are counted on.
    fn tell_choices(&mut self, service: &Service, placed: &mut Placed) -> anyhow::Result<()> {
        let gauges = self.plane.gauges(placed.id)?;
        let policy = service.choosing();
        let choosing = Some((policy, service.unknown));
        for family in Family::ALL {
            let served = |server| self.served(service, server);
            let among = members(service, &placed.servers, family, served);
            let told = &mut placed.members[family.index()];
            let is_chosen_alike = placed.choosing == choosing;
            if !(is_chosen_alike && has_same_rows(told, &among)) {
                self.tell_rows((placed.id, family), service, &among)?;
            }
            if !(is_chosen_alike && is_same(told, &among)) {
                *told = counted_from_now(among, &gauges);
                let table = policy.table(told);
                self.plane.set_table(placed.id, family, table.as_deref())?;
            }
            let mut choice = policy.choice(told);
            choice.without = service.sorry.without().into();
            self.plane.set_choice(placed.id, family, &choice)?;
        }
        placed.choosing = choosing;
        Ok(())
    }

    /// Keys the hashes of a service: as the file says, else as before, else at random.
    fn tell_secret(&mut self, id: ServiceId, service: &Service) -> anyhow::Result<()> {
        let known = self.plane.secret(id)?;
        let is_known = known.word != [0, 0];
        let secret = service.secret.unwrap_or(match is_known {
            true => known,
            false => Secret {
                word: rand::random(),
            },
        });
        if secret != known {
            self.plane.set_secret(id, &secret)?;
        }
        Ok(())
    }

    /// The same for all services, after a change of anything but places and routes.
    pub(super) fn tell_again(&mut self) -> anyhow::Result<()> {
        let services = self.config.services.clone();
        services
            .iter()
            .try_for_each(|service| self.tell_of(service, Self::tell_service))
    }

    /// How connections to a service are given to its servers, after the end of a window.
    pub(super) fn tell_choices_again(&mut self, service: &Service) -> anyhow::Result<()> {
        self.tell_of(service, Self::tell_choices)
    }

    fn tell_of(
        &mut self,
        service: &Service,
        tell: impl Fn(&mut Self, &Service, &mut Placed) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Some(mut placed) = self.placed.remove(&service.name) else {
            return Ok(());
        };
        let told = tell(self, service, &mut placed);
        self.placed.insert(service.name.clone(), placed);
        told
    }

    /// Why a server takes no new connections; none if it does.
    pub(super) fn why_unused(
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
            .or_else(|| (member.weight == 0).then(|| NO_WEIGHT.to_owned()))
    }
}

fn tell_use(service: &Service, member: &Member, server: &PlacedServer, why: Option<&str>) {
    let (name, at) = (&service.name, ServerAt(member.endpoint));
    match why {
        Some(why) if server.is_drained || member.weight == 0 => {
            tracing::info!("service {name}: {at} {why}")
        }
        Some(why) => tracing::warn!("service {name}: {at} out of use: {why}"),
        None => tracing::info!("service {name}: {at} in use"),
    }
}
