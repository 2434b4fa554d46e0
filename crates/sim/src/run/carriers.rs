//! Who carries the flows of a site: the gateway behind NAT, or packets in turn over all links.

use anabranch_core::multilink::{self, Drr};
use anabranch_core::{Event, State};
use anabranch_scenario::{Event as Told, EventKind, LinkState, Site as Plan};

use super::SimError;
use super::scene::{Way, Wires};
use crate::gateway::{Gateway, Pair};
use crate::link::Tally;
use crate::load::{Carrier, Route};
use crate::net::{FlowId, Net, News, Path, SiteId};
use crate::packet::PacketId;
use crate::world::{Onward, Site};

/// Users behind a gateway.
pub(super) struct Behind {
    gateway: Gateway,
    route: Option<Route>,
}

impl Behind {
    pub fn new(gateway: Gateway) -> Self {
        Behind {
            gateway,
            route: None,
        }
    }
}

impl Site for Behind {
    fn pass(&mut self, net: &mut Net, site: SiteId, packet: PacketId) -> Onward {
        self.gateway.pass(net, site, packet)
    }

    fn wake(&mut self, net: &mut Net, token: u32) {
        self.gateway.wake(net, token);
    }

    fn told(&mut self, net: &mut Net, flow: FlowId, news: News) {
        self.gateway.told(net, flow, news);
    }
}

impl Carrier for Behind {
    fn route(&mut self, net: &mut Net, _: Pair, _: u64) -> Route {
        *self.route.get_or_insert_with(|| {
            let to_gateway = net.add_path(&[Gateway::LAN]);
            // Which way answers take is known when the gateway has bound the flow.
            Route {
                forward: to_gateway,
                back: to_gateway,
            }
        })
    }

    fn introduce(&mut self, _: &Net, flow: FlowId, pair: Pair) {
        self.gateway.nat.introduce(flow, pair);
    }

    fn link_of(&self, net: &Net, flow: FlowId) -> Option<usize> {
        let link = self.gateway.nat.link_of(net, flow)?;
        Some(link.index())
    }
}

impl Way for Behind {
    fn begin(&mut self, net: &mut Net) {
        self.gateway.begin(net);
    }

    fn states(&self) -> Vec<(LinkState, u64)> {
        let state = |state| match state {
            State::Up => LinkState::Up,
            State::PossiblyDown(_) => LinkState::Suspect,
            State::Down(_) => LinkState::Down,
        };
        let all = self.gateway.status().into_iter();
        all.map(|status| (state(status.state), self.gateway.nat.active(status.link)))
            .collect()
    }

    fn events(&self, names: &[String]) -> Vec<Told> {
        let told = self.gateway.events().iter();
        told.filter_map(|(at, event)| {
            let (kind, link, text) = match *event {
                Event::Suspected { link, suspicion } => (
                    EventKind::Suspect,
                    link,
                    format!("possibly down: {suspicion}"),
                ),
                Event::LinkUp { link, down_for } => {
                    let text = format!("up after {:.3} s", down_for.as_secs_f64());
                    (EventKind::Up, link, text)
                }
                Event::LinkDown { link, after, cause } => {
                    let text = format!("down after {:.3} s: {cause}", after.as_secs_f64());
                    (EventKind::Down, link, text)
                }
                Event::EndFlows { .. } => return None,
            };
            Some(Told {
                t_s: at.as_nanos() as f64 / 1e9,
                kind,
                text: format!("{} {text}", names[link.index()]),
                link: Some(names[link.index()].clone()),
            })
        })
        .collect()
    }

    fn probes(&self) -> Tally {
        self.gateway.probed()
    }

    fn reassignments(&self) -> u64 {
        self.gateway.nat.reassigned()
    }
}

/// Packets of every connection over all links, in proportion to the rates.
pub(super) struct Stripes {
    up: Stripe,
    down: Stripe,
    route: Option<Route>,
}

/// One direction.
struct Stripe {
    turns: Drr,
    paths: Vec<Path>,
}

/// The least quantum lets every choice look at two links at most.
const LEAST_QUANTUM_BYTES: u32 = 1500;

impl Stripe {
    fn new(rates_bps: &[u64], paths: Vec<Path>) -> Result<Self, SimError> {
        let quanta = multilink::quanta(rates_bps, LEAST_QUANTUM_BYTES);
        Ok(Stripe {
            turns: Drr::new(&quanta)?,
            paths,
        })
    }

    fn choose(&mut self, bytes: u32) -> Option<Path> {
        let chosen = self.turns.choose(bytes, u32::MAX)?;
        Some(self.paths[chosen.index()])
    }
}

impl Stripes {
    const UP: SiteId = SiteId(0);
    const DOWN: SiteId = SiteId(1);

    pub fn new(plan: &Plan, wires: &[Wires]) -> Result<Self, SimError> {
        let rates = |of: fn(&anabranch_scenario::LinkPlan) -> u64| -> Vec<u64> {
            plan.links.iter().map(of).collect()
        };
        let paths = |of: fn(&Wires) -> Path| wires.iter().map(of).collect();
        Ok(Stripes {
            up: Stripe::new(&rates(|link| link.up.rate_bps), paths(Wires::path_up))?,
            down: Stripe::new(&rates(|link| link.down.rate_bps), paths(Wires::path_down))?,
            route: None,
        })
    }
}

impl Site for Stripes {
    fn pass(&mut self, net: &mut Net, site: SiteId, packet: PacketId) -> Onward {
        let stripe = match site {
            Stripes::UP => &mut self.up,
            _ => &mut self.down,
        };
        let packet = net.packet_mut(packet);
        match stripe.choose(packet.bytes) {
            Some(path) => {
                packet.path = path;
                Onward::Along
            }
            None => Onward::Nowhere,
        }
    }
}

impl Carrier for Stripes {
    fn route(&mut self, net: &mut Net, _: Pair, _: u64) -> Route {
        *self.route.get_or_insert_with(|| Route {
            forward: net.add_path(&[Stripes::UP]),
            back: net.add_path(&[Stripes::DOWN]),
        })
    }

    fn introduce(&mut self, _: &Net, _: FlowId, _: Pair) {}

    fn link_of(&self, _: &Net, _: FlowId) -> Option<usize> {
        None
    }
}

impl Way for Stripes {
    fn states(&self) -> Vec<(LinkState, u64)> {
        vec![(LinkState::Up, 0); self.up.paths.len()]
    }
}
