//! What a network is made of, and what is on its way in it.

mod flow;
mod overhead;
mod path;
mod steps;
mod trajectory;

use std::collections::VecDeque;

use anabranch_core::Time;
use anabranch_policy::splitmix::mix;

use anabranch_scenario::NEAREST;

use crate::link::{
    Frame, Impairments, Link, LinkCounters, LinkSpec, Loss, Nature, Service, Sort, Tally,
};
use crate::packet::{PacketId, Slab};
use crate::queue::EventQueue;
use crate::tcp::{Endpoint, Flags, SackBlocks, Segment, TcpConfig};

pub(crate) use flow::Stage;
use flow::{Flow, Role, Side};
pub use flow::{FlowId, FlowSpec, FlowTimes, News, SideId, Work};
pub(crate) use overhead::Overhead;
pub(crate) use path::Stop;
use path::{FED, SITE};
pub use path::{Hop, MAX_HOPS, Path, PathId, PipeId, SiteId};
pub use trajectory::Trajectory;

/// Carries all that forwarding needs, so that a hop touches the packet and the link and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// What TCP says.
    pub segment: Segment,
    /// Who sent it.
    pub from: SideId,
    /// Who is to receive it.
    pub to: SideId,
    /// What is ahead of it.
    pub path: Path,
    /// When it arrives at the end of the link that it is on.
    pub(crate) due_ns: u64,
    /// On the wire.
    pub bytes: u32,
    /// As [`Net::label`] has it: what a gateway or trunk reads of addresses and ports.
    pub label: u32,
}

impl Packet {
    /// What links see of it, where it has this place.
    #[inline]
    pub(crate) fn frame(&self, place: PacketId, nature: Nature) -> Frame {
        Frame {
            packet: place,
            bytes: self.bytes,
            flow: self.label,
            ect: self.segment.flags.has(Flags::ECT),
            nature,
        }
    }

    /// The label of a packet of no connection that is of a service.
    pub(crate) fn label_of(service: Option<Service>) -> u32 {
        match service {
            None => 0,
            Some(Service::Dns) => 1,
            Some(Service::Icmp) => 2,
        }
    }

    /// Of a packet of no connection, what its label says that it is.
    pub(crate) fn sort(&self) -> Sort {
        match self.label {
            1 => Sort::Of(Service::Dns),
            2 => Sort::Of(Service::Icmp),
            _ => Sort::Other,
        }
    }

    /// Marks it where it would be dropped (RFC 3168 section 5); `false` if it is not ECN-capable and must be dropped.
    pub fn mark(&mut self) -> bool {
        let capable = self.segment.flags.has(Flags::ECT);
        self.segment.flags = self.segment.flags.with(Flags::CE, capable);
        capable
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Open(FlowId),
    /// At the end of a link, unless the packet's time has changed.
    Arrival(PacketId),
    /// Of a line with a managed queue, which may be free for the next packet.
    Departure(PipeId),
    /// From its host, which took its time.
    Leaves(PacketId),
    Timer(u32),
    Linger(u32),
    Wake(u32),
}

/// Links, flows and packets: what a [`Site`](crate::world::Site) may look at and change.
#[derive(Debug)]
pub struct Net {
    pub(crate) now: Time,
    seed: u64,
    pub(crate) events: EventQueue<Event>,
    packets: Slab<Packet>,
    /// What goes with the packet in the same place of the slab.
    sacks: Vec<SackBlocks>,
    links: Vec<Link>,
    /// Of each link, the one that alone feeds it.
    feeders: Vec<Option<PipeId>>,
    paths: Vec<Path>,
    flows: Vec<Flow>,
    free_flows: Vec<FlowId>,
    sides: Vec<Side>,
    free_sides: Vec<u32>,
    configs: Vec<TcpConfig>,
    /// Arrived at their side without a link.
    pub(crate) local: VecDeque<PacketId>,
    /// Sides that may have something to say.
    pub(crate) eager: VecDeque<(SideId, News)>,
    /// Whether what is over stays to be asked.
    pub(crate) keeps: bool,
    /// Packets that came to a side or were taken out at a site.
    taken: u64,
    /// Packets that wait at a site or in their host.
    held: usize,
    reordered: u64,
    retransmitted: Tally,
    trajectory: Trajectory,
}

impl Net {
    pub(crate) fn new(seed: u64, keeps: bool) -> Self {
        Net {
            now: Time::ZERO,
            seed,
            events: EventQueue::default(),
            packets: Slab::default(),
            sacks: Vec::new(),
            links: Vec::new(),
            feeders: Vec::new(),
            paths: Vec::new(),
            flows: Vec::new(),
            free_flows: Vec::new(),
            sides: Vec::new(),
            free_sides: Vec::new(),
            configs: Vec::new(),
            local: VecDeque::new(),
            eager: VecDeque::new(),
            keeps,
            taken: 0,
            held: 0,
            reordered: 0,
            retransmitted: Tally::default(),
            trajectory: Trajectory::default(),
        }
    }

    // ---- what there is

    /// The time of the event that is being treated, or of the last one.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What a link has done so far.
    pub fn counters(&self, id: PipeId) -> LinkCounters {
        self.link(id).counters(self.now)
    }

    /// One of them.
    pub fn link(&self, id: PipeId) -> &Link {
        &self.links[id.index()]
    }

    /// The same, to be changed.
    pub fn link_mut(&mut self, id: PipeId) -> &mut Link {
        &mut self.links[id.index()]
    }

    /// All of them, in the order in which they were added.
    pub fn links(&self) -> impl Iterator<Item = PipeId> + use<> {
        let feeders = self.feeders.clone();
        (0..).zip(feeders).map(|(i, feeder)| match feeder {
            Some(_) => PipeId::fed(i),
            None => PipeId::new(i),
        })
    }

    /// Every flow, of a network that forgets none.
    pub fn flows(&self) -> impl Iterator<Item = FlowId> + use<> {
        (0..index(self.flows.len())).map(FlowId)
    }

    /// Flows that are not over, or not forgotten.
    pub fn flow_count(&self) -> usize {
        self.flows.len() - self.free_flows.len()
    }

    /// Sides that are not forgotten, those of flows and those that their flow left behind.
    pub fn side_count(&self) -> usize {
        self.sides.len() - self.free_sides.len()
    }

    /// Sides for which there is memory: the most that there were at once.
    pub fn side_places(&self) -> usize {
        self.sides.len()
    }

    /// Packets for which there is memory: the most that there were at once.
    pub fn packet_places(&self) -> usize {
        self.packets.places()
    }

    /// What happened to it so far.
    pub fn times(&self, flow: FlowId) -> FlowTimes {
        self.flow(flow).times
    }

    /// As it was opened.
    pub fn spec(&self, flow: FlowId) -> &FlowSpec {
        &self.flow(flow).spec
    }

    /// The side that opens the connection.
    pub fn opener(&self, flow: FlowId) -> &Endpoint {
        &self.side(self.flow(flow).opener).endpoint
    }

    /// Its peer.
    pub fn receiver(&self, flow: FlowId) -> &Endpoint {
        &self.side(self.flow(flow).peer).endpoint
    }

    /// The opener's and the peer's side.
    pub fn sides(&self, flow: FlowId) -> (SideId, SideId) {
        let flow = self.flow(flow);
        (flow.opener, flow.peer)
    }

    /// The flow that a side belongs to, unless that is over or went on without it.
    pub fn flow_of(&self, side: SideId) -> Option<FlowId> {
        self.is_alive(side).then(|| self.side(side).flow)?
    }

    /// When the opener last heard anything; when it opened if it heard nothing.
    pub fn heard(&self, flow: FlowId) -> Time {
        Time::from_nanos(self.side(self.flow(flow).opener).heard_ns)
    }

    /// Whether it is known: its flow is not over, or it has something left to do.
    pub fn is_alive(&self, side: SideId) -> bool {
        let place = self.sides.get(side.index());
        place.is_some_and(|place| place.generation == side.generation && !place.free)
    }

    /// What packets of the flow carry in place of addresses and ports.
    pub fn label(&self, flow: FlowId) -> u32 {
        self.side(self.flow(flow).opener).label
    }

    /// One that is on its way.
    #[inline]
    pub fn packet(&self, id: PacketId) -> &Packet {
        self.packets.get(id)
    }

    /// The same, to be changed.
    #[inline]
    pub fn packet_mut(&mut self, id: PacketId) -> &mut Packet {
        self.packets.get_mut(id)
    }

    /// Packets on their way.
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// Data segments that arrived after a packet that their side sent later (RFC 4737 section 3).
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    /// Data segments that were sent again.
    pub fn retransmitted(&self) -> Tally {
        self.retransmitted
    }

    /// Events that have happened, and a hash of each with its time: equal if and, but for collisions, only if the runs
    /// were.
    pub fn trajectory(&self) -> Trajectory {
        self.trajectory
    }

    /// Whether every packet is accounted for, to the byte: each link's, and those that were ever sent. A packet that is on
    /// its way is on a link or held at a site or host; but plain links do not know.
    pub fn conserves(&self) -> bool {
        let links = || self.links.iter();
        let lost = |link: &Link| link.counters(self.now).dropped().packets;
        let gone = self.taken + links().map(lost).sum::<u64>();
        let mut held = vec![false; self.packets.places()];
        let lines = links().filter(|link| !link.is_plain());
        for id in lines.flat_map(|link| link.holds(self.now)) {
            held[id.0 as usize] = true;
        }
        let held = held.iter().filter(|held| **held).count() + self.held;
        self.packets.inserted() == gone + self.packets.len() as u64
            && (held == self.packets.len() || links().any(Link::is_plain))
            && links().all(|link| link.conserves(self.now))
    }

    // ---- what happens to lines
    //
    // None of these is for plain links.

    /// From here on, the line swallows what it holds and what it is offered.
    pub fn cut(&mut self, id: PipeId) {
        let now = self.now;
        for packet in self.link_mut(id).cut(now) {
            self.packets.get_mut(packet).due_ns = u64::MAX;
            self.packets.remove(packet);
        }
    }

    /// The line is whole again.
    pub fn restore(&mut self, id: PipeId) {
        self.link_mut(id).restore();
    }

    /// What waits is sent at the new rate, and the rest of what is being sent, too.
    pub fn set_rate(&mut self, id: PipeId, rate_bps: u64) {
        let now = self.now;
        self.link_mut(id).set_rate(now, rate_bps);
        self.expect(id);
        self.tend(id);
    }

    /// For packets whose transmission begins after this; none overtakes another.
    pub fn set_delay(&mut self, id: PipeId, delay_ns: u64) {
        let now = self.now;
        self.link_mut(id).set_delay(now, delay_ns);
        self.expect(id);
    }

    /// As [`Link::set_loss`].
    pub fn set_loss(&mut self, id: PipeId, loss: Loss) {
        self.link_mut(id).set_loss(loss);
    }

    /// As [`Link::set_impairments`].
    pub fn set_impairments(&mut self, id: PipeId, impairments: Impairments) {
        self.link_mut(id).set_impairments(impairments);
    }

    /// Adds up both sides of Little's law on this line.
    pub fn audit(&mut self, id: PipeId) {
        let now = self.now;
        self.link_mut(id).audit(now);
    }

    // ---- what is built

    /// A link that draws its losses from its own stream of the network's seed.
    pub fn add_link(&mut self, spec: LinkSpec) -> PipeId {
        let stream = self.links.len() as u64;
        PipeId::new(self.push_link(Link::new(spec, self.seed, stream), None))
    }

    /// A plain link.
    pub fn add_plain_link(&mut self, spec: LinkSpec) -> PipeId {
        PipeId::new(self.push_link(Link::plain(spec), None))
    }

    /// A plain link all whose packets come out of `feeder`: they are offered to it when `feeder` accepts them, so that a
    /// packet passes both in one event.
    ///
    /// # Panics
    /// If `feeder` is not plain: what it accepted might yet be lost.
    pub fn add_link_behind(&mut self, feeder: PipeId, spec: LinkSpec) -> PipeId {
        assert!(self.link(feeder).is_plain(), "{feeder:?} may change");
        PipeId::fed(self.push_link(Link::plain(spec), Some(feeder)))
    }

    fn push_link(&mut self, link: Link, feeder: Option<PipeId>) -> u32 {
        let id = index(self.links.len());
        self.links.push(link);
        self.feeders.push(feeder);
        id
    }

    /// # Panics
    /// If there are no hops, or more than [`MAX_HOPS`], or if one does not come after the link that alone feeds it.
    pub fn add_path(&mut self, hops: &[impl Into<Hop> + Copy]) -> PathId {
        let path = Path::new(hops);
        self.check(&path);
        self.paths.push(path);
        PathId(index(self.paths.len() - 1))
    }

    fn check(&self, path: &Path) {
        let mut before = None;
        for hop in path.ahead() {
            let Stop::Link(link) = hop.stop() else {
                before = None;
                continue;
            };
            let feeder = self.feeders[link.index()];
            assert!(
                feeder.is_none() || feeder == before,
                "{link:?} takes packets of {feeder:?} alone, not of {before:?}"
            );
            before = Some(link);
        }
    }

    /// Schedules a connection.
    pub fn open(&mut self, spec: FlowSpec) -> FlowId {
        self.open_labelled(spec, 0)
    }

    /// The server of a flow that was just opened is so many hops away: what lines lose by.
    pub fn set_hops(&mut self, flow: FlowId, hops: u16) {
        let Flow { opener, peer, .. } = self.flows[flow.index()];
        for side in [opener, peer] {
            self.sides[side.index()].hops = hops;
        }
    }

    /// The peer of a flow that was just opened answers nothing, nor does one that takes its place.
    pub fn silence_peer(&mut self, flow: FlowId) {
        let peer = self.flow(flow).peer;
        self.side_mut(peer).role = Role::Dead;
    }

    /// Schedules a connection whose packets carry `label`.
    pub fn open_labelled(&mut self, spec: FlowSpec, label: u32) -> FlowId {
        let segments = |bytes: u64| Endpoint::segments_of(bytes, &spec.tcp);
        let (opens, answers) = match spec.work {
            Work::Transfer(_) | Work::Endless => (Role::Sends, Role::Takes),
            Work::Request {
                request_bytes,
                response_bytes,
            } => (
                Role::Asks(segments(response_bytes)),
                Role::Answers {
                    after: segments(request_bytes),
                    bytes: response_bytes,
                },
            ),
        };
        let flow = match self.free_flows.pop() {
            Some(flow) => flow,
            None => FlowId(index(self.flows.len())),
        };
        let tcp = self.config(spec.tcp);
        let forward = self.paths[spec.forward.0 as usize];
        let back = self.paths[spec.back.0 as usize];
        let opener = self.add_side(flow, opens, forward, tcp, label, spec.start);
        let peer = self.add_side(flow, answers, back, tcp, label, spec.start);
        self.sides[opener.index()].other = peer;
        self.sides[peer.index()].other = opener;
        let entry = Flow {
            spec,
            times: FlowTimes::default(),
            opener,
            peer,
        };
        match self.flows.get_mut(flow.index()) {
            Some(place) => *place = entry,
            None => self.flows.push(entry),
        }
        self.events.push(spec.start, Event::Open(flow));
        flow
    }

    fn config(&mut self, tcp: TcpConfig) -> u16 {
        let known = self.configs.iter().rposition(|known| *known == tcp);
        let place = known.unwrap_or_else(|| {
            self.configs.push(tcp);
            self.configs.len() - 1
        });
        u16::try_from(place).expect("2^16 configurations of TCP in a world")
    }

    fn add_side(
        &mut self,
        flow: FlowId,
        role: Role,
        path: Path,
        tcp: u16,
        label: u32,
        start: Time,
    ) -> SideId {
        let stream = self.stream(&path, label, start);
        let reused = self.free_sides.pop();
        let generation = reused.map_or(0, |place| self.sides[place as usize].generation);
        let id = SideId {
            index: reused.unwrap_or_else(|| index(self.sides.len())),
            generation,
        };
        let mut side = Side {
            endpoint: Endpoint::new(&self.configs[usize::from(tcp)], stream),
            armed_ns: u64::MAX,
            heard_ns: self.now.as_nanos(),
            generation,
            flow: Some(flow),
            other: SideId::NOBODY,
            first: None,
            rest: Path::empty(),
            tcp,
            role,
            stage: Stage::Opening,
            label,
            hops: NEAREST,
            seen: 0,
            overhead: Overhead::new(self.configs[usize::from(tcp)].overhead_ns, stream)
                .map(Box::new),
            free: false,
        };
        side.route(path);
        match reused {
            Some(place) => self.sides[place as usize] = side,
            None => self.sides.push(side),
        }
        id
    }

    /// What a side draws from: its own, whoever else there is, unless another begins at the same time on the same path
    /// with the same label.
    fn stream(&self, path: &Path, label: u32, start: Time) -> u64 {
        let own = [path.first_number(), label]
            .map(u64::from)
            .into_iter()
            .chain([start.as_nanos()]);
        own.fold(self.seed, |stream, number| mix(stream ^ mix(number)))
    }

    // ---- what a site may do

    /// Calls [`Site::wake`](crate::world::Site::wake) with `token` at `at`.
    pub fn wake_at(&mut self, at: Time, token: u32) {
        self.events.push(at, Event::Wake(token));
    }

    /// A packet that stands at a site waits there.
    pub fn hold(&mut self, _: PacketId) {
        self.held += 1;
    }

    /// A packet that waits at a site goes on over `link`.
    pub fn release(&mut self, packet: PacketId, link: PipeId) {
        self.held -= 1;
        self.forward(packet, link);
    }

    /// The opener lets go: an open connection is reset, an attempt forgotten.
    pub fn abandon(&mut self, flow: FlowId) {
        self.let_go(flow, News::GivenUp);
    }

    /// The opener hears that there is no way.
    pub fn refuse(&mut self, flow: FlowId) {
        self.let_go(flow, News::Unreachable);
    }

    fn let_go(&mut self, flow: FlowId, why: News) {
        let opener = self.flow(flow).opener;
        self.side_mut(opener).endpoint.reset();
        self.eager.push_back((opener, why));
    }

    /// The flow's peer answers over `back` from here on.
    pub fn route_peer(&mut self, flow: FlowId, back: Path) {
        let peer = self.flow(flow).peer;
        self.side_mut(peer).route(back);
    }

    /// Gives the flow another peer, reached as the flow's paths say and answering over `back`, that knows nothing of
    /// what its opener has sent. The peer of before answers what still reaches it, and is forgotten when it is done.
    pub fn replace_peer(&mut self, flow: FlowId, back: Path) -> SideId {
        let Flow { opener, peer, .. } = self.flows[flow.index()];
        let before = self.side(peer);
        let (role, tcp, label, hops) = (before.role, before.tcp, before.label, before.hops);
        self.orphan(peer);
        let fresh = self.add_side(flow, role, back, tcp, label, self.now);
        let side = &mut self.sides[fresh.index()];
        (side.other, side.hops) = (opener, hops);
        self.bind_peer(flow, opener, fresh);
        fresh
    }

    /// Gives the flow a living peer of before again, and lets go of the one in between.
    pub fn take_back_peer(&mut self, flow: FlowId, peer: SideId) {
        let Flow {
            opener,
            peer: between,
            ..
        } = self.flows[flow.index()];
        self.orphan(between);
        self.sides[peer.index()].flow = Some(flow);
        self.bind_peer(flow, opener, peer);
    }

    fn bind_peer(&mut self, flow: FlowId, opener: SideId, peer: SideId) {
        let opener = &mut self.sides[opener.index()];
        opener.other = peer;
        opener.seen = 0;
        self.flows[flow.index()].peer = peer;
    }

    /// Sends `segment` to a side as if the one in `from` had sent it, over no link.
    pub fn tell(&mut self, segment: Segment, from: SideId, to: SideId) {
        let packet = self.put(Packet {
            segment,
            from,
            to,
            path: Path::empty(),
            due_ns: u64::MAX,
            bytes: 0,
            label: 0,
        });
        self.local.push_back(packet);
    }

    /// Puts a packet onto the first link of its path.
    ///
    /// # Panics
    /// If the path does not begin with a link.
    pub fn send(&mut self, mut packet: Packet) {
        let first = packet.path.next().map(Hop::stop);
        let Some(Stop::Link(link)) = first else {
            panic!("a packet is sent over a link, not at {:?}", packet.path);
        };
        let id = self.put(packet);
        self.forward(id, link);
    }

    /// The same when `at` has come: the packet stays in its host until then.
    pub(crate) fn send_at(&mut self, at: Time, packet: Packet) {
        if at <= self.now {
            return self.send(packet);
        }
        let id = self.put(packet);
        self.keep(id, at);
    }

    /// A packet stays in its host until `at`.
    pub(crate) fn keep(&mut self, id: PacketId, at: Time) {
        self.held += 1;
        self.events.push(at, Event::Leaves(id));
    }

    /// Makes a packet that is on its way, though nowhere yet.
    pub(crate) fn put(&mut self, packet: Packet) -> PacketId {
        self.packets.insert(packet)
    }
}

/// # Panics
/// If a world has 2³⁰ things of one kind.
fn index(length: usize) -> u32 {
    u32::try_from(length)
        .ok()
        .filter(|index| index & (SITE | FED) == 0)
        .expect("2^30 things of one kind in a world")
}

/// What travels most should not take more than a cache line.
const _: () = assert!(size_of::<Packet>() <= 64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dumbbell::{line, one_flow};
    use crate::link::Buffer;

    #[test]
    fn a_packet_that_vanishes_from_a_line_or_appears_there_is_noticed() {
        let spec = line(8_000_000, 10_000_000, Buffer::Unlimited);
        let (mut world, _, there) = one_flow(1, spec, Work::Endless, TcpConfig::default());
        world.run_until(Time::from_millis(100));
        assert!(world.conserves());
        let (packet, _) = world.link(there).to_come(world.now()).next().unwrap();
        let packet = world.packets.remove(packet);
        assert!(!world.conserves());
        world.packets.insert(packet);
        assert!(!world.conserves(), "another was sent, none arrived");
    }
}
