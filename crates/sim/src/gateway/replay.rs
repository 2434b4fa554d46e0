//! The gateway by itself, for packets that somebody else makes up: no line carries them and no host acts on its own. So the
//! loaded programs can be given the very same, and what both make of them can be compared.

use std::convert::Infallible;
use std::net::IpAddr;

use anabranch_core::{Balancer, ClassSpec, Config, DataPlane, LinkId, LinkSpec as Told, Time};
use anabranch_policy::Rules;
use anabranch_policy::paths::{Paths, Prefix};

use super::{Ends, Gateway, Lines, Pair, Plane, Runs};
use crate::link::{Buffer, LinkSpec, Loss};
use crate::net::{FlowId, FlowSpec, Net, News, Packet, Path, PathId, SideId, SiteId, Work};
use crate::tcp::{Segment, TcpConfig};
use crate::world::{Onward, Site, World};

pub use super::nat::Bound;

/// Never waited for.
const LINE: LinkSpec = LinkSpec {
    rate_bps: 1_000_000_000,
    delay_ns: 1_000_000,
    buffer: Buffer::Unlimited,
    loss: Loss::None,
};

/// A gateway and flows that nobody moves but its owner.
#[derive(Debug)]
pub struct Replay {
    gateway: Gateway,
    net: Net,
    lan: PathId,
}

impl Replay {
    /// With links of which nothing was told yet but that those of `routed`, as bits, have no NAT, and the random numbers of
    /// `seed`.
    ///
    /// # Panics
    /// If `links` are more than a balancer takes.
    pub fn new(links: u16, routed: u64, seed: u64) -> Self {
        let mut world = World::new(seed);
        let mut lines = |link| Lines {
            up: vec![world.add_link(LINE)],
            down: vec![world.add_link(LINE)],
            routed: routed >> link & 1 == 1,
        };
        let lines: Vec<Lines> = (0..links).map(&mut lines).collect();
        let lan = world.add_path(&[Gateway::LAN]);
        let told = (0..links).map(|link| Told {
            name: link.to_string(),
            ..Told::default()
        });
        let in_turn = ClassSpec::alone("RR".parse().expect("a policy of the catalogue"));
        let balancer = Balancer::new(Time::ZERO, in_turn, told.collect(), Config::default());
        let gateway = Gateway::new(balancer.expect("links without rates"), &lines, seed);
        let (gateway, net) = world.become_site(gateway).into_parts();
        Replay { gateway, net, lan }
    }

    // ---- getters

    /// None if the gateway knows none.
    pub fn bound(&self, flow: FlowId) -> Option<Bound> {
        self.gateway.nat().bound(self.net.sides(flow).0)
    }

    /// The other links that an attempt's SYN has taken in a race that nothing has answered, and the connections at the server
    /// that it began there.
    pub fn race_copies(&self, flow: FlowId) -> Vec<(LinkId, SideId)> {
        let race_copies = self
            .gateway
            .nat()
            .race_copies(self.net.sides(flow).0)
            .into_iter();
        let known = race_copies.filter_map(|(link, peer)| Some((link, peer?)));
        known.collect()
    }

    /// The links whose probe an attempt's SYN waits for, as bits.
    pub fn probes(&self, flow: FlowId) -> u64 {
        self.gateway.nat().probes(self.net.sides(flow).0)
    }

    /// What flows have told of the prefix of a server.
    pub fn paths(&self, server: IpAddr) -> Option<&Paths> {
        self.gateway.nat().paths(Prefix::of(server))
    }

    /// The random number by which the next choice will be made.
    pub fn next_draw(&self) -> u32 {
        self.gateway.nat().next_draw()
    }

    // ---- commands

    /// Time never goes back.
    pub fn set_time(&mut self, now: Time) {
        self.net.now = now;
    }

    /// A flow of which the gateway has not heard, between these hosts.
    pub fn begin(&mut self, pair: Pair, ends: Ends) -> FlowId {
        let spec = FlowSpec {
            start: self.net.now(),
            work: Work::Endless,
            forward: self.lan,
            back: self.lan,
            tcp: TcpConfig::default(),
        };
        let flow = self.net.open(spec);
        self.introduce(flow, pair, ends);
        flow
    }

    /// Has a flow carry what choices and rules look at: to be told again when others are installed.
    pub fn introduce(&mut self, flow: FlowId, pair: Pair, ends: Ends) {
        self.gateway.nat_mut().introduce(flow, pair, ends);
        let (opener, _) = self.net.sides(flow);
        self.net.side_mut(opener).label = self.gateway.nat().hash(ends);
    }

    /// Which class new flows are of.
    pub fn set_rules(&mut self, rules: Box<Rules>) {
        self.gateway.nat_mut().set_rules(rules);
    }

    /// The LAN host has forgotten the flow, whose number may be the next one's.
    pub fn forget(&mut self, flow: FlowId) {
        self.gateway.told(&mut self.net, flow, News::Gone);
        self.net.forget(flow);
    }

    /// Installs choices, reads counters, ends flows.
    pub fn data_plane(&mut self) -> impl DataPlane<Error = Infallible> {
        Plane {
            nat: self.gateway.nat_mut(),
            net: &mut self.net,
        }
    }

    // ---- packets, `bytes` long on the wire

    /// A LAN host's: the link it left by and the connection at the server that it went to. None if it went nowhere.
    pub fn lan_sends(
        &mut self,
        flow: FlowId,
        segment: Segment,
        bytes: u32,
    ) -> Option<(LinkId, SideId)> {
        let (opener, _) = self.net.sides(flow);
        let left = self.pass(Gateway::LAN, (opener, SideId::NOBODY), segment, bytes)?;
        let link = self.link_of(left.path).expect("a way up one of the links");
        Some((link, left.to))
    }

    /// A server's, as it comes out of a link: whether the flow's LAN host gets it.
    pub fn link_brings(
        &mut self,
        link: LinkId,
        (from, flow): (SideId, FlowId),
        segment: Segment,
        bytes: u32,
    ) -> bool {
        let (opener, _) = self.net.sides(flow);
        let site = SiteId(1 + link.0);
        self.pass(site, (from, opener), segment, bytes).is_some()
    }

    /// A server's answer to the probe that took a link: that and the connection at the server which the SYN begins now, if it
    /// has waited for that.
    pub fn link_answers_probe(
        &mut self,
        link: LinkId,
        flow: FlowId,
        bytes: u32,
    ) -> Option<(LinkId, SideId)> {
        let (opener, _) = self.net.sides(flow);
        self.gateway
            .programs
            .hear_probe(&mut self.net, link, opener, bytes)
    }

    fn pass(
        &mut self,
        site: SiteId,
        (from, to): (SideId, SideId),
        segment: Segment,
        bytes: u32,
    ) -> Option<Packet> {
        let id = self.net.put(Packet {
            segment,
            from,
            to,
            path: Path::empty(),
            due_ns: u64::MAX,
            bytes,
            label: 0,
        });
        let onward = self.gateway.pass(&mut self.net, site, id);
        let packet = self.net.remove(id);
        (onward == Onward::Along).then_some(packet)
    }

    fn link_of(&self, way: Path) -> Option<LinkId> {
        let first = |mut way: Path| way.next();
        let mut ports = (0..).zip(&self.gateway.programs.ports);
        let found = ports.find(|(_, port)| first(port.up) == first(way));
        found.map(|(link, _)| LinkId(link))
    }
}
