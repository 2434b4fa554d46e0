//! The NAT gateway of a site with several links, and the balancer that rules it.
//!
//! What the loaded programs do with a packet, [`Nat`] does with a simulated one: flows are bound to links by the same choice
//! (`anabranch_policy::choose`), a repeated SYN goes on over another link where the policy says so, the first answer to any of
//! its tries wins ([`anabranch_policy::tries`]), what belongs to no flow is answered with RST, and the same counters count;
//! `crates/fuzz/tests/differential` holds it to that, by [`replay`]. What the daemon does, [`Gateway`] does in virtual time: it
//! drives the same [`Balancer`] by the same [`Driver`], sends its probes through the simulated queues, installs its choices, and
//! then ends the flows of links that are gone.
//!
//! The hosts of the LAN stand at the gateway: their packets need no time to reach it, nor to come back from it. A flow's
//! forward path is [`Gateway::LAN`] and nothing more; the rest is decided here.

mod nat;
pub mod replay;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use anabranch_core::{
    Balancer, ClassId, DataPlane, Driver, Effect, Ended, Event, Family, LinkCounters, LinkId,
    LinkState, LinkStatus, PathStatus, ProbeId, ProbeRequest, Time,
};
use anabranch_policy::abi::Choice;

use crate::link::Tally;
use crate::net::{FlowId, Hop, Net, News, Packet, Path, SideId, SiteId};
use crate::packet::PacketId;
use crate::tcp::{Kind, Segment};
use crate::world::{Onward, Site};

pub use nat::{Ends, Nat, Pair};
use nat::{Heard, Settled};

/// Of an ICMP echo request without data with its IP header, as the daemon's prober sends it.
const PROBE_BYTES: u32 = 28;
/// Answers to older probes are not waited for, as in the balancer.
const PROBES_AWAITED: u64 = 128;
/// Of every packet that is simulated; links are absent for the other.
pub(crate) const FAMILY: Family = Family::V4;
/// Links of a gateway, and so the distance between the numbers of its kinds of sites.
const LINKS: u16 = anabranch_policy::abi::MAX_LINKS as u16;

/// The lines of one link, from the gateway to the servers and back.
#[derive(Clone, Debug)]
pub struct Lines {
    /// One or two.
    pub up: Vec<crate::net::LinkId>,
    /// One or two, that of the servers' side first.
    pub down: Vec<crate::net::LinkId>,
}

/// Where the packets of one link go.
#[derive(Clone, Copy, Debug)]
struct Port {
    up: Path,
    down: Path,
    probe: Path,
}

impl Port {
    fn new(link: usize, lines: &Lines) -> Port {
        let hops = |lines: &[crate::net::LinkId], end: Option<SiteId>| {
            let lines = lines.iter().map(|line| Hop::from(*line));
            Path::new(&lines.chain(end.map(Hop::from)).collect::<Vec<_>>())
        };
        Port {
            up: hops(&lines.up, None),
            down: hops(&lines.down, Some(SiteId(1 + link as u16))),
            probe: hops(&lines.up, Some(SiteId(1 + LINKS + link as u16))),
        }
    }
}

/// A gateway and its balancer.
#[derive(Debug)]
pub struct Gateway {
    /// Its flows.
    pub nat: Nat,
    driver: Driver,
    ports: Vec<Port>,
    /// When each probe that was not answered yet was sent.
    probes: BTreeMap<(LinkId, ProbeId), Time>,
    probed: Tally,
    /// When its one valid wake-up comes.
    wakes: Time,
    turned: Time,
    events: Vec<(Time, Event)>,
    ended: Ended,
}

impl Gateway {
    /// The first and only hop of a flow's forward path.
    pub const LAN: SiteId = SiteId(0);
    /// Its sites have numbers below this.
    pub const SITES: u16 = 1 + 2 * LINKS;
    /// The token of its wake-ups.
    pub const WAKE: u32 = 0;

    /// A gateway whose links, in the order of the balancer's, are `lines`. Call [`Gateway::begin`] before the world runs.
    pub fn new(balancer: Balancer, lines: &[Lines], seed: u64) -> Self {
        let ports = lines.iter().enumerate();
        Gateway {
            nat: Nat::new(lines.len(), seed),
            driver: Driver::new(balancer),
            ports: ports.map(|(link, lines)| Port::new(link, lines)).collect(),
            probes: BTreeMap::new(),
            probed: Tally::default(),
            wakes: Time::ZERO,
            turned: Time::ZERO,
            events: Vec::new(),
            ended: Ended::default(),
        }
    }

    /// All links are there; the first counters are read, and the first choice is installed.
    pub fn begin(&mut self, net: &mut Net) {
        for link in self.links() {
            self.driver.balancer_mut().handle_link_state(
                net.now(),
                link,
                FAMILY,
                LinkState::Present,
            );
        }
        self.turn(net);
    }

    // ---- getters

    fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.ports.len() as u16).map(LinkId)
    }

    /// As of the last turn.
    pub fn status(&self) -> Vec<LinkStatus> {
        self.driver.balancer().status(self.turned)
    }

    /// The same of each link's path for the packets that are simulated.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (LinkId, PathStatus)> {
        let all = self.status().into_iter();
        all.map(|status| (status.link, status.paths[FAMILY].clone()))
    }

    /// What the balancer told, in the order of time.
    pub fn events(&self) -> &[(Time, Event)] {
        &self.events
    }

    /// Probes sent and answered, in packets on the wire.
    pub fn probed(&self) -> Tally {
        self.probed
    }

    /// Flows that were ended with their links.
    pub fn ended(&self) -> Ended {
        self.ended
    }

    // ---- the daemon's part

    /// Does what is due, and what follows from it in the order it comes in.
    fn turn(&mut self, net: &mut Net) {
        self.turned = net.now();
        let mut plane = Plane {
            nat: &mut self.nat,
            net,
        };
        let Ok(effects) = self.driver.turn(self.turned, &mut plane);
        for effect in effects {
            match effect {
                Effect::Probe(probe) => self.send_probe(net, probe),
                Effect::Event(event) => self.hear(net, event),
            }
        }
        self.wake_in_time(net);
    }

    fn hear(&mut self, net: &mut Net, event: Event) {
        self.events.push((self.turned, event));
        if let Event::EndFlows { class, link, .. } = event {
            self.ended.tcp += self.nat.end_flows(net, class, link).tcp;
        }
    }

    fn wake_in_time(&mut self, net: &mut Net) {
        let at = self.driver.next_turn();
        // Time passes between two turns, as it does for the daemon.
        let at = at.max(net.now() + Duration::from_nanos(1));
        if self.wakes <= net.now() || at < self.wakes {
            self.wakes = at;
            net.wake_at(at, Gateway::WAKE);
        }
    }

    fn send_probe(&mut self, net: &mut Net, probe: ProbeRequest) {
        if let Some(forgotten) = probe.id.0.checked_sub(PROBES_AWAITED) {
            self.probes.remove(&(probe.link, ProbeId(forgotten)));
        }
        self.probes.insert((probe.link, probe.id), net.now());
        self.count_probe();
        net.send(Packet {
            segment: Segment {
                number: probe.id.0 as u32,
                ..Segment::bare(Kind::Ack)
            },
            from: SideId::NOBODY,
            to: SideId::NOBODY,
            path: self.ports[probe.link.index()].probe,
            due_ns: u64::MAX,
            bytes: PROBE_BYTES,
            label: 0,
        });
    }

    fn count_probe(&mut self) {
        self.probed.packets += 1;
        self.probed.bytes += u64::from(PROBE_BYTES);
    }

    fn hear_answer(&mut self, net: &mut Net, link: LinkId, number: u32) {
        let id = ProbeId(u64::from(number));
        if let Some(sent) = self.probes.remove(&(link, id)) {
            let round_trip = net.now().since(sent);
            self.driver
                .balancer_mut()
                .handle_answer(net.now(), link, FAMILY, id, round_trip);
            self.turn(net);
        }
    }

    // ---- the programs' part

    fn outbound(&mut self, net: &mut Net, id: PacketId) -> Onward {
        let packet = net.packet(id);
        let (from, kind) = (packet.from, packet.segment.kind);
        if kind == Kind::Syn {
            let Some(flow) = net.flow_of(from) else {
                return Onward::Nowhere;
            };
            match self.nat.settle_syn(net, flow) {
                Settled::Bound => {}
                Settled::Fresh(class, link) => self.bind(net, flow, class, link),
                Settled::Onward(link) => self.go_on(net, flow, link),
                Settled::Anew(class, link, tried) => {
                    self.change_peer(net, flow, link, tried);
                    self.nat.bind(net, flow, class, link);
                }
                Settled::NoLink => {
                    net.refuse(flow);
                    return Onward::Nowhere;
                }
                Settled::Dropped => return Onward::Nowhere,
            }
        }
        let Packet { bytes, segment, .. } = *net.packet(id);
        let Some((link, peer)) = self.nat.follow_out(net, from, &segment, bytes) else {
            if kind != Kind::Rst {
                net.tell(Segment::bare(Kind::Rst), SideId::NOBODY, from);
            }
            return Onward::Nowhere;
        };
        let packet = net.packet_mut(id);
        packet.to = peer;
        packet.path = self.ports[link.index()].up;
        Onward::Along
    }

    fn bind(&mut self, net: &mut Net, flow: FlowId, class: ClassId, link: LinkId) {
        net.route_peer(flow, self.ports[link.index()].down);
        self.nat.bind(net, flow, class, link);
    }

    fn go_on(&mut self, net: &mut Net, flow: FlowId, link: LinkId) {
        let (opener, _) = net.sides(flow);
        let earlier = self.nat.earlier_peer(opener, link);
        self.change_peer(net, flow, link, earlier);
        let (_, peer) = net.sides(flow);
        self.nat.go_on(opener, peer, link);
    }

    /// Another address: to the server, a connection that has nothing to do with the one before, unless it was tried.
    fn change_peer(&mut self, net: &mut Net, flow: FlowId, link: LinkId, tried: Option<SideId>) {
        let (_, current) = net.sides(flow);
        match tried.filter(|peer| net.is_alive(*peer)) {
            Some(peer) if peer == current => {}
            Some(peer) => net.take_back_peer(flow, peer),
            None => {
                net.replace_peer(flow, self.ports[link.index()].down);
            }
        }
    }

    fn inbound(&mut self, net: &mut Net, link: LinkId, id: PacketId) -> Onward {
        let packet = *net.packet(id);
        if packet.to == SideId::NOBODY {
            self.count_probe();
            self.hear_answer(net, link, packet.segment.number);
            return Onward::Nowhere;
        }
        if packet.segment.kind == Kind::SynAck {
            self.hear_syn_ack(net, link, &packet);
        }
        match self.nat.follow_in(net.now(), link, &packet) {
            Heard::InFlow | Heard::Challenge => return Onward::Along,
            Heard::Stray if packet.segment.kind != Kind::Rst => {
                self.answer_stray(net, link, &packet);
            }
            Heard::Stray | Heard::Early => {}
        }
        Onward::Nowhere
    }

    fn hear_syn_ack(&mut self, net: &mut Net, link: LinkId, packet: &Packet) {
        let Some(flow) = net.flow_of(packet.to) else {
            return;
        };
        if net.is_alive(packet.from) && self.nat.answer(link, packet) {
            net.take_back_peer(flow, packet.from);
        }
    }

    /// The gateway's own stack answers what belongs to no flow.
    fn answer_stray(&mut self, net: &mut Net, link: LinkId, packet: &Packet) {
        net.send(Packet {
            segment: Segment::bare(Kind::Rst),
            from: SideId::NOBODY,
            to: packet.from,
            path: self.ports[link.index()].up,
            due_ns: u64::MAX,
            bytes: packet.bytes - u32::from(packet.segment.payload_bytes),
            label: packet.label,
        });
    }

    fn reflect(&mut self, net: &mut Net, link: LinkId, id: PacketId) -> Onward {
        net.packet_mut(id).path = self.ports[link.index()].down;
        Onward::Along
    }
}

impl Site for Gateway {
    fn pass(&mut self, net: &mut Net, site: SiteId, packet: PacketId) -> Onward {
        match site.0 {
            0 => self.outbound(net, packet),
            inner @ 1..=LINKS => self.inbound(net, LinkId(inner - 1), packet),
            outer => self.reflect(net, LinkId(outer - 1 - LINKS), packet),
        }
    }

    fn wake(&mut self, net: &mut Net, _: u32) {
        if self.wakes == net.now() {
            self.turn(net);
        }
    }

    fn told(&mut self, net: &mut Net, flow: FlowId, news: News) {
        if news == News::Gone {
            self.nat.forget(net.sides(flow).0);
        }
    }
}

/// The simulated data path for the time of one call.
struct Plane<'a> {
    nat: &'a mut Nat,
    net: &'a mut Net,
}

impl DataPlane for Plane<'_> {
    type Error = Infallible;

    fn counters(&mut self) -> Result<Vec<LinkCounters>, Infallible> {
        Ok(self.nat.counters(self.net.now()))
    }

    fn install(
        &mut self,
        class: ClassId,
        family: Family,
        choice: &Choice,
    ) -> Result<(), Infallible> {
        if family == FAMILY {
            self.nat.install(class, choice);
        }
        Ok(())
    }

    fn end_flows(
        &mut self,
        class: ClassId,
        family: Family,
        link: LinkId,
    ) -> Result<Ended, Infallible> {
        Ok(match family == FAMILY {
            true => self.nat.end_flows(self.net, class, link),
            false => Ended::default(),
        })
    }
}
