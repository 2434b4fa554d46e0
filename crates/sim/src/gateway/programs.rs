//! What the loaded programs do, with simulated packets: the flow table, and where the packets of links go.

use std::collections::BTreeMap;

use anabranch_core::{LinkId, Question, Reach, Time};

use super::nat::{Heard, Nat, Settled};
use super::{Gateway, LINKS, Lines, Probed, RST_BYTES};
use crate::net::{FlowId, Hop, Net, Packet, Path, PipeId, SideId, SiteId};
use crate::packet::PacketId;
use crate::tcp::{Kind, Segment};
use crate::world::Onward;

/// As in `questions` of bpf/lib/gateway/survey.h.
const QUESTIONS_AWAITED: u32 = 16_384;

/// Where the packets of one link go.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub up: Path,
    pub down: Path,
    /// To the servers' side and back.
    pub probe: Path,
    /// The same over the last mile alone.
    near: Path,
    near_down: Path,
    pub lines: Lines,
}

impl Port {
    fn new(link: usize, lines: &Lines) -> Port {
        let hops = |lines: &[PipeId], end: Option<SiteId>| {
            let lines = lines.iter().map(|line| Hop::from(*line));
            Path::new(&lines.chain(end.map(Hop::from)).collect::<Vec<_>>())
        };
        let first = lines.up.get(..1).unwrap_or_default();
        let last = lines.down.last().map(std::slice::from_ref);
        let last = last.unwrap_or_default();
        Port {
            up: hops(&lines.up, None),
            down: hops(&lines.down, Some(SiteId(1 + link as u16))),
            probe: hops(&lines.up, Some(SiteId(1 + LINKS + link as u16))),
            near: hops(first, Some(SiteId(1 + 2 * LINKS + link as u16))),
            near_down: hops(last, Some(SiteId(1 + link as u16))),
            lines: lines.clone(),
        }
    }

    /// The way of a probe to who stands so far away.
    pub fn probe_of(&self, reach: Reach) -> Path {
        match reach {
            Reach::Near => self.near,
            Reach::Far => self.probe,
        }
    }

    /// Whether its provider announces the addresses of the LAN. Routes are taken to converge at once.
    fn announces(&self, net: &Net) -> bool {
        let mut lines = self.lines.up.iter().chain(&self.lines.down);
        self.lines.routed && lines.all(|line| !net.link(*line).is_cut())
    }
}

/// Who runs the programs: a gateway, or a peer in its place.
pub(crate) trait Runs {
    fn programs(&self) -> &Programs;
    fn programs_mut(&mut self) -> &mut Programs;

    /// Its flows.
    fn nat(&self) -> &Nat {
        &self.programs().nat
    }

    /// Its flows, to tell of them.
    fn nat_mut(&mut self) -> &mut Nat {
        &mut self.programs_mut().nat
    }

    /// What it sent to learn of its links.
    fn probed(&self) -> Probed {
        self.programs().probed
    }
}

/// The programs of a gateway with its tables.
#[derive(Debug)]
pub(crate) struct Programs {
    /// Its flows.
    pub nat: Nat,
    pub ports: Vec<Port>,
    /// SYNs that wait for a probe of their destination to be answered, by the place of their opener.
    held: BTreeMap<usize, Packet>,
    /// Questions to destinations, by the numbers of their packets, and when each was asked: as many as are waited for.
    questions: BTreeMap<u32, (Question, Time)>,
    asked: u32,
    pub probed: Probed,
}

impl Programs {
    pub fn new(lines: &[Lines], seed: u64) -> Self {
        let ports = lines.iter().enumerate();
        let routed = ports.clone().fold(0, |routed, (link, lines)| {
            routed | u64::from(lines.routed) << link
        });
        Programs {
            nat: Nat::new(lines.len(), routed, seed),
            ports: ports.map(|(link, lines)| Port::new(link, lines)).collect(),
            held: BTreeMap::new(),
            questions: BTreeMap::new(),
            asked: 0,
            probed: Probed::default(),
        }
    }

    pub fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.ports.len() as u16).map(LinkId)
    }

    /// A packet of the LAN.
    pub(super) fn outbound(&mut self, net: &mut Net, id: PacketId) -> Onward {
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
        for (link, known) in self.nat.race_copies(opener) {
            let peer = match known.filter(|peer| net.is_alive(*peer)) {
                Some(peer) => peer,
                None => {
                    let peer = net.replace_peer(flow, self.back(link));
                    net.take_back_peer(flow, own);
                    self.nat.begin_race_copy(opener, link, peer);
                    peer
                }
            };
            let copy = Packet {
                to: peer,
                path: self.ports[link.index()].up,
                ..*net.packet(syn)
            };
            self.nat.count_tx(link, copy.bytes);
            self.probed.count_measuring(copy.bytes);
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
    pub(super) fn hear_probe(
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

    /// A server answers as the fixed node does, beyond all lines of the link.
    pub fn ask(&mut self, net: &mut Net, question: Question) {
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

    /// A packet from a link that is no answer to a probe of the link itself.
    pub(super) fn inbound(&mut self, net: &mut Net, link: LinkId, id: PacketId) -> Onward {
        let packet = *net.packet(id);
        if packet.to == SideId::NOBODY {
            match packet.from {
                SideId::NOBODY => self.hear_survey(net, packet.segment.number),
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
            self.nat.answer_late(net.now(), link, &packet);
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
        for (link, peer) in won.losing_copies {
            self.probed.count_measuring(bare_bytes(packet));
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
            bytes: bare_bytes(packet),
            label: packet.label,
        });
    }

    /// A packet to the address of a LAN host. Where nobody announces that, it is lost on the first line.
    pub(super) fn answer_own(&mut self, net: &mut Net, id: PacketId) -> Onward {
        let mut ports = self.ports.iter().filter(|port| port.lines.routed);
        let first = ports.clone().next();
        let Some(port) = ports.find(|port| port.announces(net)).or(first) else {
            return Onward::Nowhere;
        };
        net.packet_mut(id).path = port.down;
        Onward::Along
    }

    /// What has come to the servers' side of a link goes back over it.
    pub(super) fn reflect(&self, net: &mut Net, link: LinkId, id: PacketId) -> Onward {
        let packet = net.packet_mut(id);
        packet.path = self.ports[link.index()].down;
        if packet.from != SideId::NOBODY && packet.to == SideId::NOBODY {
            packet.bytes = RST_BYTES;
        }
        Onward::Along
    }

    /// The same of what has come to the end of the last mile.
    pub(super) fn reflect_near(&self, net: &mut Net, link: LinkId, id: PacketId) -> Onward {
        net.packet_mut(id).path = self.ports[link.index()].near_down;
        Onward::Along
    }

    /// A flow is over, for its host.
    pub fn forget(&mut self, net: &Net, flow: FlowId) {
        let (opener, _) = net.sides(flow);
        self.held.remove(&opener.index());
        self.nat.forget(opener);
    }
}

/// Without what it carries.
fn bare_bytes(packet: &Packet) -> u32 {
    packet.bytes - u32::from(packet.segment.payload_bytes)
}
