//! Clients and servers at the two ends of a trunk.

use anabranch_core::multilink::{Counters, SublinkId};
use anabranch_policy::spread;
use anabranch_scenario::{
    Access, Event, Fault, Group, Line, LinkReading, LinkState, Load, Spread, Trunk as Plan,
};

use super::SimError;
use super::homes::Home;
use super::scene::{Way, add};
use crate::gateway::{Ends, Pair};
use crate::load::{Carrier, Route, flow_hash};
use crate::net::{FlowId, Hop, Net, News, PipeId, SiteId};
use crate::packet::PacketId;
use crate::trunk::{Sublink, Trunk};
use crate::world::{Onward, Site};

/// A trunk from the servers' side to the clients', and the line back.
pub(super) struct Trunking {
    trunk: Trunk,
    /// What a packet for each client passes behind the sublinks.
    to_clients: Vec<Hop>,
    hashes_as_bonding: bool,
    back: PipeId,
    clients: Vec<Home>,
    servers: Vec<Home>,
    /// By client, then by server.
    routes: Vec<Option<Route>>,
}

impl Trunking {
    /// Users of groups are clients of their own.
    pub fn lay(
        net: &mut Net,
        plan: &Plan,
        load: &Load,
        spread: Spread,
        seed: u64,
    ) -> Result<Self, SimError> {
        let lines = match spread {
            Spread::Single => std::slice::from_ref(&plan.single),
            _ => &plan.sublinks,
        };
        let sublinks = lines
            .iter()
            .map(|line| Sublink {
                link: add(net, line),
                rate_bps: line.rate_bps,
                buffer: line.buffer,
            })
            .collect();
        let back = add(net, &plan.back);
        let both = |line: &Line| Access {
            down: line.clone(),
            up: line.clone(),
        };
        let mut hosts = |count, access: &Access| -> Vec<Home> {
            (0..count).map(|_| Home::lay(net, access)).collect()
        };
        let common = both(&plan.access);
        let clients = match load {
            Load::Groups(groups) => {
                let of = |group: &Group| {
                    let access = group.access.as_ref().unwrap_or(&common);
                    hosts(group.users, access)
                };
                groups.iter().flat_map(of).collect()
            }
            _ => hosts(plan.clients, &common),
        };
        let servers = hosts(plan.servers, &both(&plan.server_access));
        let mut trunk = Trunk::new(sublinks, spread, &plan.control, seed)?;
        let to_clients = clients.iter().map(|client| trunk.client(client.to_host));
        Ok(Trunking {
            to_clients: to_clients.collect::<Result<_, _>>()?,
            trunk,
            hashes_as_bonding: spread == Spread::Bonding,
            back,
            routes: vec![None; clients.len() * servers.len()],
            clients,
            servers,
        })
    }

    /// As [`Trunk::carried`].
    pub fn carried(&self) -> Option<&Counters> {
        self.trunk.carried()
    }

    pub fn sublinks(&self) -> &[Sublink] {
        self.trunk.sublinks()
    }
}

impl Carrier for Trunking {
    fn route(&mut self, net: &mut Net, pair: Pair, _: u64) -> Route {
        let client = pair.user as usize % self.clients.len();
        let server = pair.server as usize % self.servers.len();
        let (at_client, at_server) = (self.clients[client], self.servers[server]);
        let (back, to_client) = (self.back, self.to_clients[client]);
        *self.routes[client * self.servers.len() + server].get_or_insert_with(|| Route {
            forward: net.add_path(&[at_client.to_site, back, at_server.to_host]),
            back: net.add_path(&[Hop::from(at_server.to_site), Trunk::NODE.into(), to_client]),
        })
    }

    /// The trunk is the way from the servers; `from` is a client.
    fn hash(&self, (from, to): Ends) -> u32 {
        match self.hashes_as_bonding {
            true => spread::layer34(to, from),
            false => flow_hash((from, to)),
        }
    }

    fn introduce(&mut self, _: FlowId, _: Pair, _: Ends) {}

    fn link_of(&self, _: &Net, _: FlowId) -> Option<usize> {
        None
    }
}

impl Site for Trunking {
    fn pass(&mut self, net: &mut Net, site: SiteId, packet: PacketId) -> Onward {
        self.trunk.pass(net, site, packet)
    }

    fn wake(&mut self, net: &mut Net, token: u32) {
        self.trunk.wake(net, token);
    }

    fn told(&mut self, net: &mut Net, flow: FlowId, news: News) {
        self.trunk.told(net, flow, news);
    }
}

impl Way for Trunking {
    fn begin(&mut self, net: &mut Net) {
        self.trunk.begin(net);
    }

    fn readings(&self) -> Vec<LinkReading> {
        let opened = self.trunk.opened().iter().zip(0..);
        let reading = |(&opened, sublink)| LinkReading {
            opened,
            state: match self.trunk.is_usable(SublinkId(sublink)) {
                true => LinkState::Up,
                false => LinkState::Down,
            },
            ..LinkReading::default()
        };
        opened.map(reading).collect()
    }

    fn set_carrier(&mut self, net: &mut Net, line: PipeId, on: bool) {
        let mut sublinks = self.trunk.sublinks().iter();
        if let Some(i) = sublinks.position(|sublink| sublink.link == line) {
            self.trunk.set_carrier(net, SublinkId(i as u16), on);
        }
    }

    fn event_of(&self, fault: &Fault) -> Event {
        Event::of_sublink(fault)
    }

    fn reassignments(&self) -> u64 {
        self.trunk.reassignments()
    }
}
