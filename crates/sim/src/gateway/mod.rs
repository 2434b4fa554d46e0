//! The gateway of a site with several links, with or without NAT, and the balancer that rules it.
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
//!
//! To a server a connection over a link with NAT is the link's, and what it says takes that link. Connections over links
//! without NAT have the host's own address, whichever of them their packets take, and the internet sends to that address
//! ([`Gateway::INTERNET`]) over the first of these links that announces it.

mod nat;
pub mod replay;
mod told;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use anabranch_core::{
    Balancer, ClassId, DataPlane, Driver, Effect, Ended, Event, Family, LinkCounters, LinkId,
    LinkState, LinkStatus, Opening, PathStatus, ProbeId, ProbeRequest, Question, Time, Whom,
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
/// As in `questions` of bpf/lib/survey.h.
const QUESTIONS_AWAITED: u32 = 16_384;
/// Of the RST that answers a probe of a destination: IP and TCP without options.
const RST_BYTES: u32 = 40;
/// Answers to older probes are not waited for, as in the balancer.
const PROBES_AWAITED: u64 = 128;
/// Of every packet that is simulated; links are absent for the other.
pub(crate) const FAMILY: Family = Family::V4;
/// Links of a gateway, and so the distance between the numbers of its kinds of sites.
const LINKS: u16 = anabranch_policy::abi::MAX_LINKS as u16;

/// One link: its lines from the gateway to the servers and back, and what is known at the servers.
#[derive(Clone, Debug)]
pub struct Lines {
    /// One or two.
    pub up: Vec<crate::net::LinkId>,
    /// One or two, that of the servers' side first.
    pub down: Vec<crate::net::LinkId>,
    /// No NAT: the addresses of the LAN are announced over it while none of its lines is cut.
    pub routed: bool,
}

/// Where the packets of one link go.
#[derive(Clone, Debug)]
struct Port {
    up: Path,
    down: Path,
    probe: Path,
    lines: Lines,
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
            lines: lines.clone(),
        }
    }

    /// Whether its provider announces the addresses of the LAN. Routes are taken to converge at once.
    fn announces(&self, net: &Net) -> bool {
        let mut lines = self.lines.up.iter().chain(&self.lines.down);
        self.lines.routed && lines.all(|line| !net.link(*line).is_cut())
    }
}

/// Those to the fixed node have the odd numbers.
fn number_of(whom: Whom, id: ProbeId) -> u32 {
    (id.0 as u32) << 1 | u32::from(whom == Whom::Node)
}

/// Probes that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// All of them.
    pub all: Tally,
    /// Those that the algorithm measures a round trip with: to the fixed node, or to the destination of a connection.
    pub measuring: Tally,
}

impl Probed {
    fn count(&mut self, whom: Whom) {
        match whom {
            Whom::Node => self.count_measuring(PROBE_BYTES),
            Whom::Target(_) => self.all.add(PROBE_BYTES),
        }
    }

    fn count_measuring(&mut self, bytes: u32) {
        self.all.add(bytes);
        self.measuring.add(bytes);
    }
}

/// A gateway and its balancer.
#[derive(Debug)]
pub struct Gateway {
    /// Its flows.
    pub nat: Nat,
    driver: Driver,
    ports: Vec<Port>,
    /// Each probe that was not answered yet, by the number its packet bears, and when it was sent.
    probes: BTreeMap<(LinkId, u32), (ProbeRequest, Time)>,
    /// SYNs that wait for a probe of their destination to be answered, by the place of their opener.
    held: BTreeMap<usize, Packet>,
    /// Questions to destinations, by the numbers of their packets, and when each was asked: as many as are waited for.
    questions: BTreeMap<u32, (Question, Time)>,
    asked: u32,
    probed: Probed,
    /// When its one valid wake-up comes.
    wakes: Time,
    turned: Time,
    events: Vec<(Time, Event)>,
    ended: Ended,
}

impl Gateway {
    /// The first and only hop of a flow's forward path.
    pub const LAN: SiteId = SiteId(0);
    /// Where the internet has a packet to the address of a LAN host, and chooses the link for it.
    pub const INTERNET: SiteId = SiteId(u16::MAX);
    /// Its other sites have numbers below this.
    pub const SITES: u16 = 1 + 2 * LINKS;
    /// The token of its wake-ups.
    pub const WAKE: u32 = 0;

    /// A gateway whose links, in the order of the balancer's, are `lines`. Call [`Gateway::begin`] before the world runs.
    pub fn new(balancer: Balancer, lines: &[Lines], seed: u64) -> Self {
        let ports = lines.iter().enumerate();
        let routed = ports.clone().fold(0, |routed, (link, lines)| {
            routed | u64::from(lines.routed) << link
        });
        Gateway {
            nat: Nat::new(lines.len(), routed, seed),
            driver: Driver::new(balancer),
            ports: ports.map(|(link, lines)| Port::new(link, lines)).collect(),
            probes: BTreeMap::new(),
            held: BTreeMap::new(),
            questions: BTreeMap::new(),
            asked: 0,
            probed: Probed::default(),
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

    /// What it sent to learn of its links.
    pub fn probed(&self) -> Probed {
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
                Effect::Ask(question) => self.ask(net, question),
                Effect::Event(event) => self.hear(net, event),
            }
        }
        self.wake_in_time(net);
    }

    fn hear(&mut self, net: &mut Net, event: Event) {
        self.events.push((self.turned, event));
        if let Event::EndFlows { class, link, .. } = event {
            let ended = self.nat.end_flows(net, class, link);
            self.ended.tcp += ended.tcp;
            self.ended.udp += ended.udp;
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
            let forgotten = number_of(probe.whom, ProbeId(forgotten));
            self.probes.remove(&(probe.link, forgotten));
        }
        let number = number_of(probe.whom, probe.id);
        self.probes.insert((probe.link, number), (probe, net.now()));
        self.probed.count(probe.whom);
        net.send(Packet {
            segment: Segment {
                number,
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

    /// A server answers as the fixed node does, beyond all lines of the link.
    fn ask(&mut self, net: &mut Net, question: Question) {
        let number = self.asked;
        self.asked = self.asked.wrapping_add(1);
        self.questions.insert(number, (question, net.now()));
        self.questions
            .remove(&number.wrapping_sub(QUESTIONS_AWAITED));
        self.probed.count_measuring(RST_BYTES);
        net.send(Packet {
            segment: Segment {
                number,
                ..Segment::bare(Kind::SynAck)
            },
            from: SideId::NOBODY,
            to: SideId::NOBODY,
            path: self.ports[question.link.index()].probe,
            due_ns: u64::MAX,
            bytes: RST_BYTES,
            label: 0,
        });
    }

    fn hear_survey(&mut self, net: &Net, number: u32) {
        if let Some((question, asked)) = self.questions.remove(&number) {
            self.nat.hear_survey(net.now(), &question, asked);
        }
    }

    fn hear_answer(&mut self, net: &mut Net, link: LinkId, number: u32) {
        if let Some((probe, sent)) = self.probes.remove(&(link, number)) {
            let round_trip = net.now().since(sent);
            self.driver
                .balancer_mut()
                .handle_answer(net.now(), &probe, round_trip);
            self.turn(net);
        }
    }

    // ---- the programs' part

    fn outbound(&mut self, net: &mut Net, id: PacketId) -> Onward {
        let packet = net.packet(id);
        let (from, kind) = (packet.from, packet.segment.kind);
        if kind == Kind::Syn || self.nat.may_join(from) {
            let Some(flow) = net.flow_of(from) else {
                return Onward::Nowhere;
            };
            match self.nat.settle(net, flow, kind) {
                Settled::Bound | Settled::Unknown => {}
                Settled::Fresh(begun) => {
                    net.route_peer(flow, self.back(begun.link));
                    self.nat.bind(net, flow, begun);
                    self.race(net, flow, id);
                }
                Settled::Again => self.race(net, flow, id),
                Settled::Onward(link) => self.go_on(net, flow, link),
                Settled::Anew(begun, tried) => {
                    self.change_peer(net, flow, begun.link, tried);
                    self.nat.bind(net, flow, begun);
                    self.race(net, flow, id);
                }
                Settled::Alone(link) => {
                    net.route_peer(flow, self.back(link));
                    return self.send_alone(net, flow, link, id);
                }
                Settled::AloneAnew(link, tried) => {
                    self.change_peer(net, flow, link, tried);
                    return self.send_alone(net, flow, link, id);
                }
                Settled::NoLink => {
                    // To a connection that is open this is an error that may pass (RFC 5461 section 2).
                    if kind == Kind::Syn {
                        net.refuse(flow);
                    }
                    return Onward::Nowhere;
                }
                Settled::Dropped => return Onward::Nowhere,
            }
        }
        if kind == Kind::Syn && self.hold(net, id) {
            return Onward::Nowhere;
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

    /// The way of a server's packets to what it knows a connection over `link` by.
    fn back(&self, link: LinkId) -> Path {
        match self.nat.is_routed(link) {
            true => Path::new(&[Gateway::INTERNET]),
            false => self.ports[link.index()].down,
        }
    }

    /// A packet of a class that chooses for each by itself.
    fn send_alone(&mut self, net: &mut Net, flow: FlowId, link: LinkId, id: PacketId) -> Onward {
        let (_, peer) = net.sides(flow);
        let packet = net.packet_mut(id);
        self.nat.count_alone(link, packet.bytes);
        packet.to = peer;
        packet.path = self.ports[link.index()].up;
        Onward::Along
    }

    /// Copies of the SYN of a race take its other links. To the server each is another connection.
    fn race(&mut self, net: &mut Net, flow: FlowId, syn: PacketId) {
        let (opener, own) = net.sides(flow);
        for (link, known) in self.nat.rivals(opener) {
            let peer = match known.filter(|peer| net.is_alive(*peer)) {
                Some(peer) => peer,
                None => {
                    let peer = net.replace_peer(flow, self.back(link));
                    net.take_back_peer(flow, own);
                    self.nat.begin_rival(opener, link, peer);
                    peer
                }
            };
            let copy = Packet {
                to: peer,
                path: self.ports[link.index()].up,
                ..*net.packet(syn)
            };
            self.nat.count_tx(link, copy.bytes);
            net.send(copy);
        }
    }

    /// A SYN that has just become one that waits: a probe takes each link in its place. To the server they are of no connection.
    fn hold(&mut self, net: &mut Net, id: PacketId) -> bool {
        let syn = *net.packet(id);
        let links = self.nat.probes(syn.from);
        if links == 0 {
            return false;
        }
        self.held.insert(syn.from.index(), syn);
        for link in self.links().filter(|link| links >> link.0 & 1 == 1) {
            self.nat.count_probe(syn.from, link, syn.bytes);
            self.probed.count_measuring(syn.bytes);
            net.send(Packet {
                segment: Segment::bare(Kind::SynAck),
                to: SideId::NOBODY,
                path: self.ports[link.index()].probe,
                ..syn
            });
        }
        true
    }

    /// The server has answered a probe: what waits for that goes over its link, and begins a connection. That link and the
    /// connection.
    fn hear_probe(
        &mut self,
        net: &mut Net,
        link: LinkId,
        opener: SideId,
        bytes: u32,
    ) -> Option<(LinkId, SideId)> {
        let flow = net.flow_of(opener)?;
        if !self.nat.answer_probe(link, opener, bytes) {
            return None;
        }
        let syn = self.held.remove(&opener.index())?;
        net.route_peer(flow, self.back(link));
        let (_, peer) = net.sides(flow);
        self.nat.count_tx(link, syn.bytes);
        net.send(Packet {
            to: peer,
            path: self.ports[link.index()].up,
            ..syn
        });
        Some((link, peer))
    }

    fn go_on(&mut self, net: &mut Net, flow: FlowId, link: LinkId) {
        let (opener, _) = net.sides(flow);
        let earlier = self.nat.earlier_peer(opener, link);
        self.change_peer(net, flow, link, earlier);
        let (_, peer) = net.sides(flow);
        self.nat.go_on(net.now(), opener, peer, link);
    }

    /// Another address: to the server, a connection that has nothing to do with the one before, unless it was tried.
    fn change_peer(&mut self, net: &mut Net, flow: FlowId, link: LinkId, tried: Option<SideId>) {
        let (_, current) = net.sides(flow);
        match tried.filter(|peer| net.is_alive(*peer)) {
            Some(peer) if peer == current => {}
            Some(peer) => net.take_back_peer(flow, peer),
            None => {
                net.replace_peer(flow, self.back(link));
            }
        }
    }

    fn inbound(&mut self, net: &mut Net, link: LinkId, id: PacketId) -> Onward {
        let packet = *net.packet(id);
        if packet.to == SideId::NOBODY {
            match packet.from {
                SideId::NOBODY if packet.segment.kind == Kind::SynAck => {
                    self.hear_survey(net, packet.segment.number);
                }
                SideId::NOBODY => self.hear_answer(net, link, packet.segment.number),
                opener => {
                    self.hear_probe(net, link, opener, packet.bytes);
                }
            }
            return Onward::Nowhere;
        }
        if self.nat.is_routed(link) {
            return self.inbound_routed(net, link, &packet);
        }
        if packet.segment.kind == Kind::SynAck {
            self.nat.answer_late(net.now(), packet.from);
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

    /// What has a LAN host's own address reaches it, of whichever flow, if any. A host that knows nothing of it answers with RST.
    fn inbound_routed(&mut self, net: &mut Net, link: LinkId, packet: &Packet) -> Onward {
        self.nat.follow_routed_in(net.now(), link, packet);
        if net.is_alive(packet.to) {
            return Onward::Along;
        }
        if packet.segment.kind != Kind::Rst {
            self.answer_stray(net, link, packet);
        }
        Onward::Nowhere
    }

    fn hear_syn_ack(&mut self, net: &mut Net, link: LinkId, packet: &Packet) {
        let Some(flow) = net.flow_of(packet.to) else {
            return;
        };
        if !net.is_alive(packet.from) {
            return;
        }
        let Some(won) = self.nat.answer(net.now(), link, packet) else {
            return;
        };
        if won.earlier {
            net.take_back_peer(flow, packet.from);
        }
        for (link, peer) in won.losers {
            self.reset(net, link, peer, packet);
        }
    }

    /// The gateway's own stack answers what belongs to no flow.
    fn answer_stray(&mut self, net: &mut Net, link: LinkId, packet: &Packet) {
        self.reset(net, link, packet.from, packet);
    }

    /// A RST to a connection at the server, because of what came from there or over another link.
    fn reset(&mut self, net: &mut Net, link: LinkId, peer: SideId, packet: &Packet) {
        net.send(Packet {
            segment: Segment::bare(Kind::Rst),
            from: SideId::NOBODY,
            to: peer,
            path: self.ports[link.index()].up,
            due_ns: u64::MAX,
            bytes: packet.bytes - u32::from(packet.segment.payload_bytes),
            label: packet.label,
        });
    }

    /// A packet to the address of a LAN host. Where nobody announces that, it is lost on the first line.
    fn answer_own(&mut self, net: &mut Net, id: PacketId) -> Onward {
        let mut ports = self.ports.iter().filter(|port| port.lines.routed);
        let first = ports.clone().next();
        let Some(port) = ports.find(|port| port.announces(net)).or(first) else {
            return Onward::Nowhere;
        };
        net.packet_mut(id).path = port.down;
        Onward::Along
    }

    fn reflect(&mut self, net: &mut Net, link: LinkId, id: PacketId) -> Onward {
        let packet = net.packet_mut(id);
        packet.path = self.ports[link.index()].down;
        if packet.from != SideId::NOBODY {
            packet.bytes = RST_BYTES;
        }
        Onward::Along
    }
}

impl Site for Gateway {
    fn pass(&mut self, net: &mut Net, site: SiteId, packet: PacketId) -> Onward {
        match site {
            Gateway::LAN => self.outbound(net, packet),
            Gateway::INTERNET => self.answer_own(net, packet),
            SiteId(inner @ 1..=LINKS) => self.inbound(net, LinkId(inner - 1), packet),
            SiteId(outer) => self.reflect(net, LinkId(outer - 1 - LINKS), packet),
        }
    }

    fn wake(&mut self, net: &mut Net, _: u32) {
        if self.wakes == net.now() {
            self.turn(net);
        }
    }

    fn told(&mut self, net: &mut Net, flow: FlowId, news: News) {
        if news == News::Gone {
            let (opener, _) = net.sides(flow);
            self.held.remove(&opener.index());
            self.nat.forget(opener);
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

    fn openings(&mut self) -> Result<Vec<Opening>, Infallible> {
        Ok(self.nat.openings())
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
