//! A peer in the gateway's place: its routes decide which link packets take, and its own packets cross the simulated lines.
//!
//! The table of flows is that of the gateway, because links with NAT need one; what a new flow goes by is the peer's [`Table`], as
//! the route of its destination, or, where the peer has none, a random or hashed choice among all links. Nothing is ended with
//! a link.
//!
//! [`Table`]: anabranch_peers::Table

use std::collections::BTreeMap;

use anabranch_core::{ClassId, LinkId, Time};
use anabranch_peers::{Control, Inward, Journey, Peer, Sent};
use anabranch_policy::paths::Prefix;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::programs::{Programs, Runs};
use super::{Gateway, LINKS, Lines};
use crate::net::{FlowId, Hop, Net, News, Packet, Path, PipeId, SideId, SiteId};
use crate::packet::PacketId;
use crate::tcp::{Kind, Segment};
use crate::world::{Onward, Site};

/// The stream of a peer's random numbers; the gateway's is another.
const STREAM: u64 = (1 << 40) + 1;

/// A peer and its flows.
#[derive(Debug)]
pub struct PeerSite {
    programs: Programs,
    control: Control,
    /// Where each of its packets that are under way has to arrive, and whether that is known to have happened.
    under_way: BTreeMap<u32, Journey>,
    /// When its one valid wake-up comes.
    wakes: Option<Time>,
    random: ChaCha8Rng,
}

impl PeerSite {
    /// Where what has crossed a last mile turns back, of the first link, and after it of the others.
    const NEIGHBOUR: u16 = Gateway::SITES;
    /// Where a provider's tunnel over the first link begins, and after it those over the others.
    const TUNNEL: u16 = Self::NEIGHBOUR + LINKS;

    /// Over links whose users ask hosts of `prefixes`. Call [`PeerSite::begin`] before the world runs.
    pub fn new(peer: Peer, lines: &[Lines], prefixes: Vec<Prefix>, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(STREAM);
        let routed = lines.iter().all(|lines| lines.routed);
        let draw = &mut || random.random();
        PeerSite {
            programs: Programs::new(lines, seed),
            control: Control::new(peer, lines.len(), routed, prefixes, draw),
            under_way: BTreeMap::new(),
            wakes: None,
            random,
        }
    }

    /// Its first routes are there.
    pub fn begin(&mut self, net: &mut Net) {
        self.programs
            .nat
            .install(ClassId::DEFAULT, &self.control.choice());
        self.turn(net);
    }

    /// What it believes of each link.
    pub fn alive(&self) -> impl Iterator<Item = (LinkId, bool)> + '_ {
        let links = self.programs.links();
        links.map(|link| (link, self.control.is_alive(link)))
    }

    /// A line was cut, or is whole again: who runs what is beyond a last mile sees that.
    pub fn set_carrier(&mut self, net: &mut Net, line: PipeId) {
        let now = net.now();
        for (link, port) in self.programs.links().zip(&self.programs.ports) {
            let beyond = port.lines.up[1..]
                .iter()
                .chain(port.lines.down.split_last().unwrap().1);
            if beyond.clone().any(|beyond| *beyond == line) {
                let lost = beyond.into_iter().any(|line| net.link(*line).is_cut());
                self.control.beyond(now, link, lost);
            }
        }
        self.turn(net);
    }

    fn turn(&mut self, net: &mut Net) {
        let sent = self.control.turn(net.now(), &mut || self.random.random());
        self.carry_out(net, sent);
    }

    /// Sends what is to be sent, and has packets go by the routes of now.
    fn carry_out(&mut self, net: &mut Net, sent: Vec<Sent>) {
        for one in sent {
            self.send(net, one);
        }
        self.programs.nat.set_table(self.control.table());
        let next = self.control.next_turn();
        // Time passes between two turns.
        let next = next.map(|at| at.max(net.now() + std::time::Duration::from_nanos(1)));
        let Some(at) = next else { return };
        if self
            .wakes
            .is_none_or(|wakes| wakes <= net.now() || at < wakes)
        {
            self.wakes = Some(at);
            net.wake_at(at, Gateway::WAKE);
        }
    }

    fn send(&mut self, net: &mut Net, sent: Sent) {
        let port = &self.programs.ports[sent.link.index()];
        let path = match sent.journey {
            Journey::Neighbour => Path::new(&[
                Hop::from(port.lines.up[0]),
                SiteId(Self::NEIGHBOUR + sent.link.0).into(),
            ]),
            Journey::Far | Journey::Up => port.probe,
            Journey::Down => port.down,
        };
        self.under_way.insert(sent.token, sent.journey);
        self.programs.probed.count_measuring(sent.bytes);
        net.send(Packet {
            segment: Segment {
                number: sent.token,
                ..Segment::bare(Kind::Ack)
            },
            from: SideId::NOBODY,
            to: SideId::NOBODY,
            path,
            due_ns: u64::MAX,
            bytes: sent.bytes,
            label: 0,
        });
    }

    /// A packet of its own is where its journey ends.
    fn arrive(&mut self, net: &mut Net, token: u32) -> Onward {
        self.under_way.remove(&token);
        let random = &mut || self.random.random();
        let sent = self.control.arrive(net.now(), token, random);
        self.carry_out(net, sent);
        Onward::Nowhere
    }

    fn inbound(&mut self, net: &mut Net, link: LinkId, id: PacketId) -> Onward {
        let packet = net.packet(id);
        match packet.to == SideId::NOBODY {
            true => {
                let token = packet.segment.number;
                self.arrive(net, token)
            }
            false => self.programs.inbound(net, link, id),
        }
    }

    /// What has crossed all lines of a link: its own packets alone.
    fn far(&mut self, net: &mut Net, link: LinkId, id: PacketId) -> Onward {
        let token = net.packet(id).segment.number;
        match self.under_way.get(&token) {
            Some(Journey::Up) => self.arrive(net, token),
            _ => self.programs.reflect(net, link, id),
        }
    }

    fn turn_back(&mut self, net: &mut Net, link: LinkId, id: PacketId) -> Onward {
        let last = self.programs.ports[link.index()].lines.down.last();
        let last = *last.expect("a link has lines");
        let inner = SiteId(1 + link.0);
        net.packet_mut(id).path = Path::new(&[Hop::from(last), inner.into()]);
        Onward::Along
    }

    /// A packet to the address of a host: by the routes of the internet, if the peer has a say in them.
    fn answer(&mut self, net: &mut Net, id: PacketId) -> Onward {
        let flow = net.flow_of(net.packet(id).to);
        let inward = flow.and_then(|flow| {
            let (host, prefix) = self.programs.nat.between(flow);
            self.control.inward(host, prefix)
        });
        match inward {
            None => self.programs.answer_own(net, id),
            Some(inward) => {
                net.packet_mut(id).path = self.way_of(inward);
                Onward::Along
            }
        }
    }

    fn way_of(&self, Inward { link, through }: Inward) -> Path {
        let ports = &self.programs.ports;
        let tunnel = SiteId(Self::TUNNEL + link.0);
        match through.map(|home| ports[home.index()].lines.down.as_slice()) {
            // To the provider, and out of it again.
            Some([beyond, _]) => Path::new(&[Hop::from(*beyond), tunnel.into()]),
            _ => ports[link.index()].down,
        }
    }
}

impl Runs for PeerSite {
    fn programs(&self) -> &Programs {
        &self.programs
    }

    fn programs_mut(&mut self) -> &mut Programs {
        &mut self.programs
    }
}

impl Site for PeerSite {
    fn pass(&mut self, net: &mut Net, site: SiteId, packet: PacketId) -> Onward {
        let link = |first: u16| LinkId(site.0 - first);
        match site {
            Gateway::LAN => self.programs.outbound(net, packet),
            Gateway::INTERNET => self.answer(net, packet),
            SiteId(inner @ 1..=LINKS) => self.inbound(net, LinkId(inner - 1), packet),
            SiteId(outer) if outer < Self::NEIGHBOUR => self.far(net, link(1 + LINKS), packet),
            SiteId(near) if near < Self::TUNNEL => {
                self.turn_back(net, link(Self::NEIGHBOUR), packet)
            }
            _ => self.programs.reflect(net, link(Self::TUNNEL), packet),
        }
    }

    fn wake(&mut self, net: &mut Net, _: u32) {
        if self.wakes == Some(net.now()) {
            self.turn(net);
        }
    }

    fn told(&mut self, net: &mut Net, flow: FlowId, news: News) {
        if news == News::Gone {
            self.programs.forget(net, flow);
        }
    }
}
