//! What a network is made of, and what is on its way in it.

use std::collections::VecDeque;

use anabranch_core::Time;

use crate::link::{Link, LinkSpec, Loss, Offer, Tally};
use crate::packet::{PacketId, Slab};
use crate::queue::EventQueue;
use crate::tcp::{Endpoint, Kind, Segment, State, TcpConfig};

/// Hops of one path.
pub const MAX_HOPS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkId(u32);

/// A place between links; its owner gives the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteId(pub u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathId(u32);

/// A connection. Once it is over and forgotten its number is given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId(u32);

impl FlowId {
    /// To keep what belongs to flows in an array.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }

    pub(crate) fn at(place: usize) -> FlowId {
        FlowId(index(place))
    }
}

/// One side of a connection. Names nothing any more once its place was given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideId {
    index: u32,
    generation: u32,
}

impl SideId {
    /// No side of any connection.
    pub const NOBODY: SideId = SideId {
        index: u32::MAX,
        generation: 0,
    };

    /// To keep what belongs to sides in an array.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// A link or a site of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop(u32);

const SITE: u32 = 1 << 31;

impl From<LinkId> for Hop {
    fn from(link: LinkId) -> Hop {
        Hop(link.0)
    }
}

impl From<SiteId> for Hop {
    fn from(site: SiteId) -> Hop {
        Hop(u32::from(site.0) | SITE)
    }
}

pub(crate) enum Stop {
    Link(LinkId),
    Site(SiteId),
}

impl Hop {
    #[inline]
    pub(crate) fn stop(self) -> Stop {
        if self.0 & SITE == 0 {
            Stop::Link(LinkId(self.0))
        } else {
            Stop::Site(SiteId((self.0 & !SITE) as u16))
        }
    }
}

/// The hops ahead: from `next` up to, not including, `end`.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    hops: [Hop; MAX_HOPS],
    next: u8,
    end: u8,
}

impl Path {
    /// # Panics
    /// If there are no hops, or more than [`MAX_HOPS`].
    pub fn new(hops: &[impl Into<Hop> + Copy]) -> Self {
        let end = hops.len();
        assert!(
            (1..=MAX_HOPS).contains(&end),
            "a path has 1 to {MAX_HOPS} hops, not {end}"
        );
        let mut path = Path {
            hops: [hops[0].into(); MAX_HOPS],
            next: 0,
            end: end as u8,
        };
        for (place, hop) in path.hops.iter_mut().zip(hops) {
            *place = (*hop).into();
        }
        path
    }

    /// Takes the next hop off the path.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Hop> {
        if self.next >= self.end {
            return None;
        }
        let next = self.hops[usize::from(self.next) % MAX_HOPS];
        self.next += 1;
        Some(next)
    }
}

/// Carries all that forwarding needs, so that a hop touches the packet and the link and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub segment: Segment,
    pub from: SideId,
    pub to: SideId,
    /// What is ahead of it.
    pub path: Path,
    /// On the wire.
    pub bytes: u32,
    /// Counts the packets of its side.
    pub serial: u32,
    /// As [`Net::label`] has it: what a trunk reads of addresses and ports.
    pub label: u32,
}

/// What a flow is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The opener sends a message of so many bytes, then a FIN; the peer closes when it has all.
    Transfer(u64),
    /// The opener sends for ever.
    Endless,
    /// The opener sends so many bytes, the peer answers with so many and closes.
    Request {
        request_bytes: u64,
        response_bytes: u64,
    },
}

/// Where and when a connection lives.
#[derive(Clone, Copy, Debug)]
pub struct FlowSpec {
    pub start: Time,
    pub work: Work,
    /// From the opener to its peer.
    pub forward: PathId,
    pub back: PathId,
    pub tcp: TcpConfig,
}

/// What happened to a flow, as its opener saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTimes {
    /// The SYN-ACK came.
    pub established: Option<Time>,
    /// The first data of the peer came.
    pub first_byte: Option<Time>,
    /// All data of the peer came, or, where the opener sends, all data and the FIN were acknowledged.
    pub finished: Option<Time>,
    /// Reset or given up.
    pub aborted: Option<Time>,
}

/// What a site hears of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    Established,
    FirstByte,
    Finished,
    /// The peer, or somebody in its name, sent RST.
    Reset,
    /// Nobody answered, or [`Net::abandon`] was called.
    GivenUp,
    /// [`Net::refuse`] was called.
    Unreachable,
    /// Both sides are done; the flow's number is free after this.
    Gone,
}

#[derive(Debug)]
pub(crate) struct Flow {
    pub spec: FlowSpec,
    pub times: FlowTimes,
    pub opener: SideId,
    pub peer: SideId,
}

/// What a side does beyond answering.
#[derive(Clone, Copy, Debug)]
enum Role {
    /// Opens, sends, closes.
    Sends,
    /// Opens, sends a request, and wants so many segments.
    Asks(u32),
    /// Closes when it has all.
    Takes,
    /// Answers with so many bytes when it has so many segments.
    Answers { after: u32, bytes: u64 },
}

/// How far a flow has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Opening,
    Open,
    Answered,
    Finished,
    Aborted,
}

#[derive(Debug)]
pub(crate) struct Side {
    pub endpoint: Endpoint,
    /// When its one valid timer event fires; `u64::MAX` if none is pending. It may fire early, never late: a deadline
    /// that moves away leaves the event where it is.
    armed_ns: u64,
    heard_ns: u64,
    generation: u32,
    /// None if its flow went on without it.
    pub flow: Option<FlowId>,
    pub other: SideId,
    pub path: Path,
    pub tcp: u16,
    role: Role,
    pub stage: Stage,
    label: u32,
    /// Packets sent, and one more than the greatest serial number that came.
    sent: u32,
    seen: u32,
    /// One more than the greatest number sent.
    high: u32,
    free: bool,
}

impl Side {
    fn is_done(&self) -> bool {
        matches!(self.endpoint.state(), State::Closed | State::Aborted)
    }

    pub fn opens(&self) -> bool {
        matches!(self.role, Role::Sends | Role::Asks(_))
    }

    fn reached(&self) -> Stage {
        match self.endpoint.state() {
            State::Listen | State::SynSent | State::SynReceived => Stage::Opening,
            State::Aborted => Stage::Aborted,
            State::Established | State::Closed => match self.role {
                Role::Sends if self.endpoint.sent_all() => Stage::Finished,
                Role::Asks(segments) if self.endpoint.received_segments() >= segments => {
                    Stage::Finished
                }
                Role::Asks(_) if self.endpoint.received_segments() > 0 => Stage::Answered,
                _ => Stage::Open,
            },
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Open(FlowId),
    Arrival(LinkId),
    Timer(u32),
    Linger(u32),
    Wake(u32),
}

/// A peer that nobody speaks to and that waits for nothing is forgotten after this.
const LINGER_NS: u64 = 60_000_000_000;

/// Links, flows and packets: what a [`Site`](crate::world::Site) may look at and change.
#[derive(Debug)]
pub struct Net {
    pub(crate) now: Time,
    seed: u64,
    pub(crate) events: EventQueue<Event>,
    packets: Slab<Packet>,
    links: Vec<Link>,
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
            links: Vec::new(),
            paths: Vec::new(),
            flows: Vec::new(),
            free_flows: Vec::new(),
            sides: Vec::new(),
            free_sides: Vec::new(),
            configs: Vec::new(),
            local: VecDeque::new(),
            eager: VecDeque::new(),
            keeps,
            reordered: 0,
            retransmitted: Tally::default(),
            trajectory: Trajectory::default(),
        }
    }

    // ---- what there is

    pub fn now(&self) -> Time {
        self.now
    }

    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.0 as usize]
    }

    pub fn link_mut(&mut self, id: LinkId) -> &mut Link {
        &mut self.links[id.0 as usize]
    }

    pub fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..index(self.links.len())).map(LinkId)
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

    pub fn times(&self, flow: FlowId) -> FlowTimes {
        self.flow(flow).times
    }

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

    pub fn is_alive(&self, side: SideId) -> bool {
        let place = self.sides.get(side.index());
        place.is_some_and(|place| place.generation == side.generation && !place.free)
    }

    /// What packets of the flow carry in place of addresses and ports.
    pub fn label(&self, flow: FlowId) -> u32 {
        self.side(self.flow(flow).opener).label
    }

    #[inline]
    pub fn packet(&self, id: PacketId) -> &Packet {
        self.packets.get(id)
    }

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

    /// Whether every packet offered to a link is accounted for, to the byte.
    pub fn conserves(&self) -> bool {
        let held: u64 = self.links.iter().map(|link| link.held().packets).sum();
        held == self.packets.len() as u64 && self.links.iter().all(Link::conserves)
    }

    // ---- what happens to lines

    /// From here on, the line swallows what it holds and what it is offered.
    pub fn cut(&mut self, id: LinkId) {
        for packet in self.links[id.0 as usize].cut(self.now) {
            self.packets.remove(packet);
        }
    }

    /// The line is whole again.
    pub fn restore(&mut self, id: LinkId) {
        self.link_mut(id).restore();
    }

    /// What waits is sent at the new rate, and the rest of what is being sent, too.
    pub fn set_rate(&mut self, id: LinkId, rate_bps: u64) {
        let now = self.now;
        self.link_mut(id).set_rate(now, rate_bps);
        self.expect(id);
    }

    /// For packets whose transmission begins after this; none overtakes another.
    pub fn set_delay(&mut self, id: LinkId, delay_ns: u64) {
        let now = self.now;
        self.link_mut(id).set_delay(now, delay_ns);
        self.expect(id);
    }

    pub fn set_loss(&mut self, id: LinkId, loss: Loss) {
        self.link_mut(id).set_loss(loss);
    }

    /// Adds up both sides of Little's law on this line.
    pub fn audit(&mut self, id: LinkId) {
        let now = self.now;
        self.link_mut(id).audit(now);
    }

    /// Looks for the next arrival of a line that has changed.
    fn expect(&mut self, id: LinkId) {
        if let Some(at) = self.link(id).next_arrival() {
            self.events.push(at, Event::Arrival(id));
        }
    }

    // ---- what is built

    /// A link that draws its losses from its own stream of the network's seed.
    pub fn add_link(&mut self, spec: LinkSpec) -> LinkId {
        let id = LinkId(index(self.links.len()));
        self.links.push(Link::new(spec, self.seed, u64::from(id.0)));
        id
    }

    /// # Panics
    /// If there are no hops, or more than [`MAX_HOPS`].
    pub fn add_path(&mut self, hops: &[impl Into<Hop> + Copy]) -> PathId {
        self.paths.push(Path::new(hops));
        PathId(index(self.paths.len() - 1))
    }

    /// Schedules a connection.
    pub fn open(&mut self, spec: FlowSpec) -> FlowId {
        self.open_labelled(spec, 0)
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
        let opener = self.add_side(flow, opens, forward, tcp, label);
        let peer = self.add_side(flow, answers, back, tcp, label);
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

    fn add_side(&mut self, flow: FlowId, role: Role, path: Path, tcp: u16, label: u32) -> SideId {
        let reused = self.free_sides.pop();
        let generation = reused.map_or(0, |place| self.sides[place as usize].generation);
        let id = SideId {
            index: reused.unwrap_or_else(|| index(self.sides.len())),
            generation,
        };
        let side = Side {
            endpoint: Endpoint::new(&self.configs[usize::from(tcp)]),
            armed_ns: u64::MAX,
            heard_ns: self.now.as_nanos(),
            generation,
            flow: Some(flow),
            other: SideId::NOBODY,
            path,
            tcp,
            role,
            stage: Stage::Opening,
            label,
            sent: 0,
            seen: 0,
            high: 0,
            free: false,
        };
        match reused {
            Some(place) => self.sides[place as usize] = side,
            None => self.sides.push(side),
        }
        id
    }

    // ---- what a site may do

    /// Calls [`Site::wake`](crate::world::Site::wake) with `token` at `at`.
    pub fn wake_at(&mut self, at: Time, token: u32) {
        self.events.push(at, Event::Wake(token));
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
        self.side_mut(peer).path = back;
    }

    /// Gives the flow another peer, reached as the flow's paths say and answering over `back`, that knows nothing of
    /// what its opener has sent. The peer of before answers what still reaches it, and is forgotten when it is done.
    pub fn replace_peer(&mut self, flow: FlowId, back: Path) -> SideId {
        let Flow { opener, peer, .. } = self.flows[flow.index()];
        let before = self.side(peer);
        let (role, tcp, label) = (before.role, before.tcp, before.label);
        self.orphan(peer);
        let fresh = self.add_side(flow, role, back, tcp, label);
        self.sides[fresh.index()].other = opener;
        let opener = &mut self.sides[opener.index()];
        opener.other = fresh;
        opener.seen = 0;
        self.flows[flow.index()].peer = fresh;
        fresh
    }

    /// Sends `segment` to a side as if the one in `from` had sent it, over no link.
    pub fn tell(&mut self, segment: Segment, from: SideId, to: SideId) {
        let packet = self.packets.insert(Packet {
            segment,
            from,
            to,
            path: Path::empty(),
            bytes: 0,
            serial: u32::MAX,
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
        let id = self.packets.insert(packet);
        self.forward(id, link);
    }

    // ---- what the world does

    pub(crate) fn flow(&self, id: FlowId) -> &Flow {
        &self.flows[id.index()]
    }

    pub(crate) fn flow_mut(&mut self, id: FlowId) -> &mut Flow {
        &mut self.flows[id.index()]
    }

    pub(crate) fn side(&self, id: SideId) -> &Side {
        &self.sides[id.index()]
    }

    pub(crate) fn side_mut(&mut self, id: SideId) -> &mut Side {
        &mut self.sides[id.index()]
    }

    #[inline]
    pub(crate) fn note(&mut self, kind: u64, subject: u32) {
        self.trajectory.note(self.now, kind, subject);
    }

    #[inline]
    pub(crate) fn insert(&mut self, packet: Packet) -> PacketId {
        self.packets.insert(packet)
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: PacketId) -> Packet {
        self.packets.remove(id)
    }

    /// What comes out of a link now, and what it is next.
    #[inline]
    pub(crate) fn arrival(&mut self, id: LinkId) -> Option<PacketId> {
        let link = &mut self.links[id.0 as usize];
        if !link.is_due(self.now) {
            return None;
        }
        let (packet, next) = link.deliver();
        self.note(1, id.0);
        if let Some(at) = next {
            self.events.push(at, Event::Arrival(id));
        }
        Some(packet)
    }

    /// Offers a packet to a link.
    #[inline]
    pub(crate) fn forward(&mut self, id: PacketId, link: LinkId) {
        let bytes = self.packets.get(id).bytes;
        match self.links[link.0 as usize].offer(self.now, id, bytes) {
            Offer::Wake(at) => self.events.push(at, Event::Arrival(link)),
            Offer::Queued => {}
            Offer::Overflowed | Offer::Lost => drop(self.packets.remove(id)),
        }
    }

    /// Starts a flow and returns its opener.
    pub(crate) fn start(&mut self, flow: FlowId) -> SideId {
        self.note(0, flow.0);
        let Flow { spec, opener, .. } = self.flows[flow.index()];
        let now_ns = self.now.as_nanos();
        let side = &mut self.sides[opener.index()];
        side.heard_ns = now_ns;
        let endpoint = &mut side.endpoint;
        endpoint.connect(now_ns);
        match spec.work {
            Work::Endless => endpoint.write_forever(),
            Work::Request { request_bytes, .. } => endpoint.write(request_bytes, &spec.tcp),
            Work::Transfer(bytes) => {
                endpoint.write(bytes, &spec.tcp);
                endpoint.close();
            }
        }
        opener
    }

    /// Hands a packet to its side; false if that is gone.
    #[inline]
    pub(crate) fn receive(&mut self, packet: &Packet) -> bool {
        let now_ns = self.now.as_nanos();
        let Some(side) = self.sides.get_mut(packet.to.index()) else {
            return false;
        };
        if side.generation != packet.to.generation {
            return false;
        }
        let tcp = &self.configs[usize::from(side.tcp)];
        if packet.serial >= side.seen {
            side.seen = packet.serial.wrapping_add(1);
        } else if packet.segment.kind == Kind::Data {
            self.reordered += 1;
        }
        side.heard_ns = now_ns;
        let endpoint = &mut side.endpoint;
        endpoint.handle_segment(&packet.segment, now_ns, tcp);
        if let Role::Answers { after, bytes } = side.role {
            if endpoint.received_segments() >= after {
                endpoint.write(bytes, tcp);
                endpoint.close();
                side.role = Role::Takes;
            }
        }
        if endpoint.received_all() {
            endpoint.close();
        }
        true
    }

    /// The side whose timer fires now, if one does.
    #[inline]
    pub(crate) fn fire(&mut self, place: u32) -> Option<SideId> {
        let now_ns = self.now.as_nanos();
        let side = &mut self.sides[place as usize];
        if side.armed_ns != now_ns {
            return None;
        }
        self.trajectory.note(self.now, 2, place);
        side.armed_ns = u64::MAX;
        let tcp = &self.configs[usize::from(side.tcp)];
        side.endpoint.handle_timeout(now_ns, tcp);
        Some(SideId {
            index: place,
            generation: side.generation,
        })
    }

    /// The next packet that a side has to say; its path is still whole.
    #[inline]
    pub(crate) fn poll(&mut self, id: SideId) -> Option<Packet> {
        let side = &mut self.sides[id.index()];
        let tcp = &self.configs[usize::from(side.tcp)];
        let segment = side.endpoint.poll_segment(self.now.as_nanos(), tcp)?;
        let bytes = segment.payload_bytes + tcp.header_bytes;
        if segment.kind == Kind::Data {
            if segment.number < side.high {
                self.retransmitted.add(bytes);
            } else {
                side.high = segment.number + 1;
            }
        }
        let serial = side.sent;
        side.sent = serial.wrapping_add(1);
        Some(Packet {
            segment,
            from: id,
            to: side.other,
            path: side.path,
            bytes,
            serial,
            label: side.label,
        })
    }

    #[inline]
    pub(crate) fn arm(&mut self, id: SideId) {
        let side = &mut self.sides[id.index()];
        if let Some(deadline_ns) = side.endpoint.poll_timeout() {
            if deadline_ns < side.armed_ns {
                side.armed_ns = deadline_ns;
                self.events
                    .push(Time::from_nanos(deadline_ns), Event::Timer(id.index));
            }
        }
    }

    /// The stage a side has reached, if that is news.
    #[inline]
    pub(crate) fn reached(&mut self, id: SideId) -> Option<(FlowId, Stage, Stage)> {
        let side = &mut self.sides[id.index()];
        if !side.opens() || side.stage >= Stage::Finished {
            return None;
        }
        let stage = side.reached().max(side.stage);
        let before = std::mem::replace(&mut side.stage, stage);
        (before != stage).then_some((side.flow?, before, stage))
    }

    /// The flow that ended with what happened to this side, if one did.
    #[inline]
    pub(crate) fn ended(&mut self, id: SideId) -> Option<FlowId> {
        let side = &self.sides[id.index()];
        if self.keeps || !side.is_done() {
            return None;
        }
        let Some(flow) = side.flow else {
            self.free_side(id);
            return None;
        };
        let other = self.side(side.other);
        let aborted = side.opens() && side.endpoint.state() == State::Aborted;
        (other.is_done() || aborted).then_some(flow)
    }

    /// Gives a flow's place to others.
    pub(crate) fn forget(&mut self, flow: FlowId) {
        let Flow { opener, peer, .. } = self.flows[flow.index()];
        if self.side(peer).is_done() {
            self.free_side(peer);
        } else {
            self.orphan(peer);
        }
        self.free_side(opener);
        self.free_flows.push(flow);
    }

    fn free_side(&mut self, id: SideId) {
        let side = &mut self.sides[id.index()];
        side.generation += 1;
        side.armed_ns = u64::MAX;
        side.free = true;
        self.free_sides.push(id.index);
    }

    fn orphan(&mut self, id: SideId) {
        self.sides[id.index()].flow = None;
        self.linger(id.index);
    }

    fn linger(&mut self, place: u32) {
        let at = Time::from_nanos(self.now.as_nanos() + LINGER_NS);
        self.events.push(at, Event::Linger(place));
    }

    /// Forgets an orphan that has nothing to wait for.
    pub(crate) fn maybe_forget(&mut self, place: u32) {
        let side = &self.sides[place as usize];
        if side.free || side.flow.is_some() {
            return;
        }
        let idle_ns = self.now.as_nanos() - side.heard_ns;
        if side.endpoint.poll_timeout().is_some() || idle_ns < LINGER_NS {
            self.linger(place);
            return;
        }
        let generation = side.generation;
        self.free_side(SideId {
            index: place,
            generation,
        });
    }
}

impl Path {
    fn empty() -> Path {
        Path {
            hops: [Hop(0); MAX_HOPS],
            next: 0,
            end: 0,
        }
    }
}

/// # Panics
/// If a world has 2³¹ things of one kind.
fn index(length: usize) -> u32 {
    u32::try_from(length)
        .ok()
        .filter(|index| index & SITE == 0)
        .expect("2^31 things of one kind in a world")
}

/// A running hash of everything that happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trajectory {
    pub events: u64,
    pub hash: u64,
}

impl Trajectory {
    /// Multiply and rotate, with the 64-bit primes of xxHash: cheap, and sensitive to order.
    #[inline]
    fn note(&mut self, time: Time, kind: u64, subject: u32) {
        const PRIMES: [u64; 2] = [0x9E37_79B1_85EB_CA87, 0xC2B2_AE3D_27D4_EB4F];
        let event = (u64::from(subject) << 2 | kind).wrapping_mul(PRIMES[1]);
        self.hash = (self.hash ^ time.as_nanos() ^ event)
            .rotate_left(31)
            .wrapping_mul(PRIMES[0]);
        self.events += 1;
    }
}
