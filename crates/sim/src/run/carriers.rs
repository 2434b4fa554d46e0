//! Who carries the flows of a site: the gateway behind NAT, or packets in turn over all links.

use anabranch_core::multilink::{self, Drr};
use anabranch_core::{
    Algorithm, Balancer, CAPTIVE, ClassSpec, Config, Event, LinkId, State, Time, lengths,
};
use anabranch_scenario::{
    Event as Told, EventKind, LinkPlan, LinkReading, LinkState, Site as Plan,
};

use super::SimError;
use super::homes::Homes;
use super::scene::{Way, Wires};
use crate::gateway::{Ends, Gateway, Lines, Pair, PeerSite, Probed, Runs};
use crate::load::{Carrier, Route};
use crate::net::{FlowId, Hop, Net, News, Path, PipeId, SiteId};
use crate::packet::PacketId;
use crate::world::{Onward, Site};

/// What stands between users and links, and keeps their flows.
pub(super) trait Door: Site + Runs {
    fn begin(&mut self, net: &mut Net);
    fn states(&self) -> Vec<(LinkId, LinkState)>;

    fn events(&self, names: &[String]) -> Vec<Told> {
        let _ = names;
        Vec::new()
    }

    fn set_carrier(&mut self, net: &mut Net, line: PipeId) {
        let _ = (net, line);
    }
}

impl Door for Gateway {
    fn begin(&mut self, net: &mut Net) {
        self.begin(net);
    }

    fn states(&self) -> Vec<(LinkId, LinkState)> {
        let state = |state| match state {
            State::Up => LinkState::Up,
            State::PossiblyDown(_) => LinkState::Suspect,
            State::Captive => LinkState::Captive,
            State::Down(_) => LinkState::Down,
        };
        let paths = self.paths();
        paths
            .map(|(link, path)| (link, state(path.state)))
            .collect()
    }

    fn events(&self, names: &[String]) -> Vec<Told> {
        events(self, names)
    }
}

impl Door for PeerSite {
    fn begin(&mut self, net: &mut Net) {
        self.begin(net);
    }

    fn states(&self) -> Vec<(LinkId, LinkState)> {
        let state = |alive| match alive {
            true => LinkState::Up,
            false => LinkState::Down,
        };
        let links = self.alive();
        links.map(|(link, alive)| (link, state(alive))).collect()
    }

    fn set_carrier(&mut self, net: &mut Net, line: PipeId) {
        self.set_carrier(net, line);
    }
}

/// Users behind a gateway, or a peer in its place.
pub(super) struct Behind<D> {
    gateway: D,
    homes: Homes,
    route: Option<Route>,
}

impl<D: Door> Behind<D> {
    pub fn new(gateway: D, homes: Homes) -> Self {
        Behind {
            gateway,
            homes,
            route: None,
        }
    }

    pub fn gateway(&self) -> &D {
        &self.gateway
    }
}

impl<D: Door> Site for Behind<D> {
    fn pass(&mut self, net: &mut Net, site: SiteId, packet: PacketId) -> Onward {
        let onward = self.gateway.pass(net, site, packet);
        self.homes.onward(net, packet, onward)
    }

    fn wake(&mut self, net: &mut Net, token: u32) {
        self.gateway.wake(net, token);
    }

    fn told(&mut self, net: &mut Net, flow: FlowId, news: News) {
        self.gateway.told(net, flow, news);
    }
}

impl<D: Door> Carrier for Behind<D> {
    fn route(&mut self, net: &mut Net, pair: Pair, _: u64) -> Route {
        let lan = Hop::from(Gateway::LAN);
        if let Some(route) = self.homes.route(net, pair.user, lan, lan) {
            return route;
        }
        *self.route.get_or_insert_with(|| {
            let to_gateway = net.add_path(&[Gateway::LAN]);
            // Which way answers take is known when the gateway has bound the flow.
            Route {
                forward: to_gateway,
                back: to_gateway,
            }
        })
    }

    fn hash(&self, ends: Ends) -> u32 {
        self.gateway.nat().hash(ends)
    }

    fn introduce(&mut self, flow: FlowId, pair: Pair, ends: Ends) {
        self.homes.introduce(flow, pair);
        self.gateway.nat_mut().introduce(flow, pair, ends);
    }

    fn link_of(&self, net: &Net, flow: FlowId) -> Option<usize> {
        let link = self.gateway.nat().link_of(net, flow)?;
        Some(link.index())
    }
}

impl<D: Door> Way for Behind<D> {
    fn begin(&mut self, net: &mut Net) {
        self.gateway.begin(net);
    }

    fn readings(&self) -> Vec<LinkReading> {
        readings(&self.gateway)
    }

    fn events(&self, names: &[String]) -> Vec<Told> {
        self.gateway.events(names)
    }

    fn probed(&self) -> Probed {
        self.gateway.probed()
    }

    fn reassignments(&self) -> u64 {
        self.gateway.nat().reassigned()
    }

    fn set_carrier(&mut self, net: &mut Net, line: PipeId, _: bool) {
        self.gateway.set_carrier(net, line);
    }
}

fn readings(gateway: &impl Door) -> Vec<LinkReading> {
    let all = gateway.states().into_iter();
    all.map(|(link, state)| LinkReading {
        opened: gateway.nat().opened(link),
        flows: gateway.nat().active(link),
        state,
        ..LinkReading::default()
    })
    .collect()
}

fn events(gateway: &Gateway, names: &[String]) -> Vec<Told> {
    let told = gateway.events().iter();
    told.filter_map(|(at, event)| {
        let (kind, link, text) = match *event {
            Event::Suspected {
                link, suspicion, ..
            } => (
                EventKind::Suspect,
                link,
                format!("possibly down: {suspicion}"),
            ),
            Event::Captive { link, .. } => (EventKind::Suspect, link, CAPTIVE.to_owned()),
            Event::LinkUp { link, down_for, .. } => {
                let text = format!("up after {:.3} s", down_for.as_secs_f64());
                (EventKind::Up, link, text)
            }
            Event::LinkDown {
                link, after, cause, ..
            } => {
                let text = format!("down after {:.3} s: {cause}", after.as_secs_f64());
                (EventKind::Down, link, text)
            }
            Event::PathMtu { link, found, .. } => (EventKind::Suspect, link, lengths(found)),
            Event::EndFlows { .. } | Event::MoveUdp { .. } => return None,
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

/// Packets of every connection over all links that are not down, in proportion to the rates.
///
/// A gateway without flows watches the links, with the probes and the patience of one that has some; the far end is told
/// by it which links to use. Of what comes in over a link, nothing proves that packets arrive at its other end: they may
/// be answers to packets of another.
pub(super) struct Stripes {
    watch: Gateway,
    /// Links that are not down, a bit for each; all, if all are down.
    usable: u64,
    up: Stripe,
    down: Stripe,
    homes: Homes,
    route: Option<Route>,
}

/// One direction.
struct Stripe {
    turns: Drr,
    paths: Vec<Path>,
}

impl Stripe {
    fn new(rates_bps: &[u64], paths: Vec<Path>) -> Result<Self, SimError> {
        let quanta = multilink::quanta(rates_bps);
        Ok(Stripe {
            turns: Drr::new(&quanta)?,
            paths,
        })
    }

    fn choose(&mut self, bytes: u32, usable: u64) -> Option<(LinkId, Path)> {
        let chosen = self.turns.choose(bytes, usable)?.index();
        Some((LinkId(chosen as u16), self.paths[chosen]))
    }
}

impl Stripes {
    /// Where the users' packets are given a link, and where the servers' are.
    const UP: SiteId = SiteId(Gateway::SITES);
    const DOWN: SiteId = SiteId(Gateway::SITES + 1);
    /// Where packets from the first link arrive, and after it those from the others.
    const ARRIVAL: SiteId = SiteId(Gateway::SITES + 2);

    pub fn new(plan: &Plan, wires: &[Wires], homes: Homes) -> Result<Self, SimError> {
        let rates = |of: fn(&LinkPlan) -> u64| -> Vec<u64> { plan.links.iter().map(of).collect() };
        let up = wires.iter().map(Wires::path_up);
        let down = wires.iter().zip(0..).map(|(wires, link)| {
            let lines = wires.lines().down.into_iter().map(Hop::from);
            let arrival = Hop::from(SiteId(Self::ARRIVAL.0 + link));
            Path::new(&lines.chain([arrival]).collect::<Vec<_>>())
        });
        let specs = plan.links.iter().map(LinkPlan::spec).collect();
        let any = ClassSpec::alone(Algorithm::default());
        let balancer = Balancer::new(Time::ZERO, any, specs, Config::default())?;
        let lines: Vec<Lines> = wires.iter().map(Wires::lines).collect();
        Ok(Stripes {
            watch: Gateway::new(balancer, &lines, 0),
            usable: u64::MAX,
            up: Stripe::new(&rates(|link| link.up.rate_bps), up.collect())?,
            down: Stripe::new(&rates(|link| link.down.rate_bps), down.collect())?,
            homes,
            route: None,
        })
    }

    fn up(&mut self, net: &mut Net, id: PacketId) -> Onward {
        let packet = net.packet_mut(id);
        let Some((link, path)) = self.up.choose(packet.bytes, self.usable) else {
            return Onward::Nowhere;
        };
        let traffic = self.watch.nat_mut().traffic_mut(link);
        traffic.tx_packets += 1;
        traffic.tx_bytes += u64::from(packet.bytes);
        packet.path = path;
        Onward::Along
    }

    fn down(&mut self, net: &mut Net, id: PacketId) -> Onward {
        let packet = net.packet_mut(id);
        let Some((_, path)) = self.down.choose(packet.bytes, self.usable) else {
            return Onward::Nowhere;
        };
        packet.path = path;
        Onward::Along
    }

    fn arrive(&mut self, net: &Net, link: LinkId, id: PacketId) -> Onward {
        let traffic = self.watch.nat_mut().traffic_mut(link);
        traffic.rx_packets += 1;
        traffic.rx_bytes += u64::from(net.packet(id).bytes);
        Onward::Along
    }

    /// Takes over what the gateway has found out.
    fn see(&mut self) {
        let all = self.watch.paths();
        let alive = all.filter(|(_, path)| !matches!(path.state, State::Down(_)));
        let usable = alive.fold(0, |usable, (link, _)| usable | 1 << link.0);
        self.usable = if usable == 0 { u64::MAX } else { usable };
    }
}

impl Site for Stripes {
    fn pass(&mut self, net: &mut Net, site: SiteId, packet: PacketId) -> Onward {
        match site {
            Stripes::UP => self.up(net, packet),
            Stripes::DOWN => self.down(net, packet),
            SiteId(arrival) if arrival >= Stripes::ARRIVAL.0 => {
                let link = LinkId(arrival - Stripes::ARRIVAL.0);
                let onward = self.arrive(net, link, packet);
                self.homes.onward(net, packet, onward)
            }
            probed => {
                let onward = self.watch.pass(net, probed, packet);
                self.see();
                onward
            }
        }
    }

    fn wake(&mut self, net: &mut Net, token: u32) {
        self.watch.wake(net, token);
        self.see();
    }
}

impl Carrier for Stripes {
    fn route(&mut self, net: &mut Net, pair: Pair, _: u64) -> Route {
        let (up, down) = (Stripes::UP.into(), Stripes::DOWN.into());
        if let Some(route) = self.homes.route(net, pair.user, up, down) {
            return route;
        }
        *self.route.get_or_insert_with(|| Route {
            forward: net.add_path(&[Stripes::UP]),
            back: net.add_path(&[Stripes::DOWN]),
        })
    }

    fn introduce(&mut self, flow: FlowId, pair: Pair, _: Ends) {
        self.homes.introduce(flow, pair);
    }

    fn link_of(&self, _: &Net, _: FlowId) -> Option<usize> {
        None
    }
}

impl Way for Stripes {
    fn begin(&mut self, net: &mut Net) {
        self.watch.begin(net);
    }

    fn readings(&self) -> Vec<LinkReading> {
        readings(&self.watch)
    }

    fn events(&self, names: &[String]) -> Vec<Told> {
        events(&self.watch, names)
    }

    fn probed(&self) -> Probed {
        self.watch.probed()
    }
}
