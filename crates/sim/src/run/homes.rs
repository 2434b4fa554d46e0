//! The lines between users and their site, where groups of users have some.

use anabranch_scenario::{Access, Load};

use super::scene::add;
use crate::gateway::Pair;
use crate::load::Route;
use crate::net::{FlowId, Hop, Net, PipeId};
use crate::packet::PacketId;
use crate::world::Onward;

/// One user's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    pub to_site: PipeId,
    pub to_host: PipeId,
}

impl Home {
    pub fn lay(net: &mut Net, access: &Access) -> Home {
        Home {
            to_site: add(net, &access.up),
            to_host: add(net, &access.down),
        }
    }
}

/// Of all users; empty if they stand at their site.
#[derive(Debug, Default)]
pub(super) struct Homes {
    /// By user.
    homes: Vec<Option<Home>>,
    routes: Vec<Option<Route>>,
    /// The line to the host of each flow.
    of_flows: Vec<Option<PipeId>>,
}

impl Homes {
    pub fn lay(net: &mut Net, load: &Load) -> Homes {
        let Load::Groups(groups) = load else {
            return Homes::default();
        };
        let mut homes = Vec::new();
        for group in groups {
            let access = group.access.as_ref();
            let home = |_| access.map(|access| Home::lay(net, access));
            homes.extend((0..group.users).map(home));
        }
        Homes {
            routes: vec![None; homes.len()],
            homes,
            of_flows: Vec::new(),
        }
    }

    /// The way of a user's connections, to and from the sites `forward` and `back`; none for one who stands there.
    pub fn route(&mut self, net: &mut Net, user: u32, forward: Hop, back: Hop) -> Option<Route> {
        let home = self.home(user)?;
        let route = self.routes[user as usize].get_or_insert_with(|| Route {
            forward: net.add_path(&[home.to_site.into(), forward]),
            back: net.add_path(&[back]),
        });
        Some(*route)
    }

    pub fn introduce(&mut self, flow: FlowId, pair: Pair) {
        if self.homes.is_empty() {
            return;
        }
        if self.of_flows.len() <= flow.index() {
            self.of_flows.resize(flow.index() + 1, None);
        }
        self.of_flows[flow.index()] = self.home(pair.user).map(|home| home.to_host);
    }

    /// Where a packet goes that the site has let pass: what is at the end of its way has its host's line before it.
    pub fn onward(&self, net: &Net, packet: PacketId, onward: Onward) -> Onward {
        if self.homes.is_empty() || onward != Onward::Along {
            return onward;
        }
        let packet = net.packet(packet);
        let flow = net.flow_of(packet.to).filter(|_| packet.path.is_empty());
        let line = flow.and_then(|flow| *self.of_flows.get(flow.index())?);
        line.map_or(onward, Onward::Over)
    }

    fn home(&self, user: u32) -> Option<Home> {
        *self.homes.get(user as usize)?
    }
}
