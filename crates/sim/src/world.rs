//! Links, paths and connections in one virtual time.

use anabranch_core::Time;

use crate::link::{Link, LinkSpec, Offer};
use crate::packet::{PacketId, Slab};
use crate::queue::EventQueue;
use crate::tcp::{Endpoint, Segment, State, TcpConfig};

/// Links on one path.
pub const MAX_HOPS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkId(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathId(u32);

/// A connection; its data flows from the side that opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowId(u32);

/// One side of a connection: the opener of flow n is 2n, its peer 2n + 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EndpointId(u32);

impl EndpointId {
    fn opener(flow: FlowId) -> Self {
        EndpointId(flow.0 * 2)
    }

    fn peer(self) -> Self {
        EndpointId(self.0 ^ 1)
    }

    fn flow(self) -> FlowId {
        FlowId(self.0 / 2)
    }

    fn opens(self) -> bool {
        self.0 & 1 == 0
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Open(FlowId),
    Arrival(LinkId),
    Timer(EndpointId),
}

/// Carries all that forwarding needs, so that a hop touches the packet and the link and nothing else.
#[derive(Clone, Copy, Debug)]
struct Packet {
    segment: Segment,
    to: EndpointId,
    path: Path,
    /// On the wire.
    bytes: u32,
}

/// The links ahead, the first [`Path::hops`] of `links`.
#[derive(Clone, Copy, Debug)]
struct Path {
    links: [LinkId; MAX_HOPS],
    hops: u8,
}

impl Path {
    /// Takes the next link off the path.
    fn next(&mut self) -> Option<LinkId> {
        self.hops = self.hops.checked_sub(1)?;
        let next = self.links[0];
        self.links.rotate_left(1);
        Some(next)
    }
}

/// What a flow sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A message of so many bytes, then a FIN; the peer closes when it has all.
    Transfer(u64),
    Endless,
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

#[derive(Debug)]
struct Flow {
    spec: FlowSpec,
    times: FlowTimes,
}

/// What happened to a flow, as its opener saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTimes {
    /// The SYN-ACK came.
    pub established: Option<Time>,
    /// All data and the FIN were acknowledged.
    pub finished: Option<Time>,
    /// Reset or given up.
    pub aborted: Option<Time>,
}

#[derive(Debug)]
struct Side {
    endpoint: Endpoint,
    /// When its one valid timer event fires; `u64::MAX` if none is pending. It may fire early, never late: a deadline
    /// that moves away leaves the event where it is.
    armed_ns: u64,
}

/// A network and everything that will happen in it.
///
/// Build it with [`World::add_link`], [`World::add_path`] and [`World::open`], run it with [`World::run_until`].
#[derive(Debug)]
pub struct World {
    now: Time,
    seed: u64,
    events: EventQueue<Event>,
    packets: Slab<Packet>,
    links: Vec<Link>,
    paths: Vec<Path>,
    flows: Vec<Flow>,
    sides: Vec<Side>,
    trajectory: Trajectory,
}

impl World {
    /// An empty network whose links draw their losses from `seed`.
    pub fn new(seed: u64) -> Self {
        World {
            now: Time::ZERO,
            seed,
            events: EventQueue::default(),
            packets: Slab::default(),
            links: Vec::new(),
            paths: Vec::new(),
            flows: Vec::new(),
            sides: Vec::new(),
            trajectory: Trajectory::default(),
        }
    }

    pub fn add_link(&mut self, spec: LinkSpec) -> LinkId {
        let id = LinkId(index(self.links.len()));
        self.links.push(Link::new(spec, self.seed, u64::from(id.0)));
        id
    }

    /// # Panics
    /// If there are no links, or more than [`MAX_HOPS`].
    pub fn add_path(&mut self, links: &[LinkId]) -> PathId {
        let hops = links.len();
        assert!(
            (1..=MAX_HOPS).contains(&hops),
            "a path has 1 to {MAX_HOPS} links, not {hops}"
        );
        let mut path = Path {
            links: [links[0]; MAX_HOPS],
            hops: hops as u8,
        };
        path.links[..hops].copy_from_slice(links);
        self.paths.push(path);
        PathId(index(self.paths.len() - 1))
    }

    /// Schedules a connection.
    pub fn open(&mut self, spec: FlowSpec) -> FlowId {
        let flow = FlowId(index(self.flows.len()));
        self.flows.push(Flow {
            spec,
            times: FlowTimes::default(),
        });
        for _ in 0..2 {
            self.sides.push(Side {
                endpoint: Endpoint::new(&spec.tcp),
                armed_ns: u64::MAX,
            });
        }
        self.events.push(spec.start, Event::Open(flow));
        flow
    }

    pub fn now(&self) -> Time {
        self.now
    }

    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.0 as usize]
    }

    pub fn flows(&self) -> impl Iterator<Item = FlowId> + use<> {
        (0..index(self.flows.len())).map(FlowId)
    }

    pub fn times(&self, flow: FlowId) -> FlowTimes {
        self.flows[flow.0 as usize].times
    }

    /// The side that sends the data.
    pub fn opener(&self, flow: FlowId) -> &Endpoint {
        &self.sides[EndpointId::opener(flow).0 as usize].endpoint
    }

    /// The side that receives it.
    pub fn receiver(&self, flow: FlowId) -> &Endpoint {
        &self.sides[EndpointId::opener(flow).peer().0 as usize].endpoint
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

    /// Packets on their way.
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// Lets everything happen that is due by `end`.
    pub fn run_until(&mut self, end: Time) {
        while let Some((time, event)) = self.events.pop_until(end) {
            self.now = time;
            self.happen(event);
        }
        self.now = self.now.max(end);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Open(flow) => self.start(flow),
            Event::Arrival(link) => self.arrive(link),
            Event::Timer(side) => self.fire(side),
        }
    }

    fn start(&mut self, flow: FlowId) {
        self.trajectory.note(self.now, 0, flow.0);
        let spec = self.flows[flow.0 as usize].spec;
        let opener = EndpointId::opener(flow);
        let endpoint = &mut self.sides[opener.0 as usize].endpoint;
        endpoint.connect(self.now.as_nanos());
        match spec.work {
            Work::Endless => endpoint.write_forever(),
            Work::Transfer(bytes) => {
                endpoint.write(bytes, &spec.tcp);
                endpoint.close();
            }
        }
        self.flush(opener);
    }

    fn arrive(&mut self, id: LinkId) {
        self.trajectory.note(self.now, 1, id.0);
        let (packet, next) = self.links[id.0 as usize].deliver();
        if let Some(at) = next {
            self.events.push(at, Event::Arrival(id));
        }
        match self.packets.get_mut(packet).path.next() {
            Some(link) => self.forward(packet, link),
            None => self.receive(packet),
        }
    }

    /// Offers a packet to a link.
    fn forward(&mut self, id: PacketId, link: LinkId) {
        let bytes = self.packets.get(id).bytes;
        match self.links[link.0 as usize].offer(self.now, id, bytes) {
            Offer::Wake(at) => self.events.push(at, Event::Arrival(link)),
            Offer::Queued => {}
            Offer::Overflowed | Offer::Lost => drop(self.packets.remove(id)),
        }
    }

    fn receive(&mut self, id: PacketId) {
        let packet = self.packets.remove(id);
        let tcp = &self.flows[packet.to.flow().0 as usize].spec.tcp;
        let endpoint = &mut self.sides[packet.to.0 as usize].endpoint;
        endpoint.handle_segment(&packet.segment, self.now.as_nanos(), tcp);
        if endpoint.received_all() {
            endpoint.close();
        }
        if packet.to.opens() {
            self.observe(packet.to);
        }
        self.flush(packet.to);
    }

    /// Notes what has become of a flow.
    fn observe(&mut self, opener: EndpointId) {
        let endpoint = &self.sides[opener.0 as usize].endpoint;
        let times = &mut self.flows[opener.flow().0 as usize].times;
        match endpoint.state() {
            State::Listen | State::SynSent | State::SynReceived => {}
            State::Aborted => {
                times.aborted.get_or_insert(self.now);
            }
            State::Established | State::Closed => {
                times.established.get_or_insert(self.now);
                if endpoint.sent_all() {
                    times.finished.get_or_insert(self.now);
                }
            }
        }
    }

    fn fire(&mut self, id: EndpointId) {
        let now_ns = self.now.as_nanos();
        let side = &mut self.sides[id.0 as usize];
        if side.armed_ns != now_ns {
            return;
        }
        self.trajectory.note(self.now, 2, id.0);
        side.armed_ns = u64::MAX;
        let tcp = &self.flows[id.flow().0 as usize].spec.tcp;
        side.endpoint.handle_timeout(now_ns, tcp);
        if id.opens() {
            self.observe(id);
        }
        self.flush(id);
    }

    /// Sends what an endpoint has to say, and arms its timer.
    fn flush(&mut self, id: EndpointId) {
        let now_ns = self.now.as_nanos();
        let spec = &self.flows[id.flow().0 as usize].spec;
        let id_of_path = if id.opens() { spec.forward } else { spec.back };
        let (tcp, mut path) = (spec.tcp, self.paths[id_of_path.0 as usize]);
        let first = path.next().expect("a path has a link");
        while let Some(segment) = self.sides[id.0 as usize]
            .endpoint
            .poll_segment(now_ns, &tcp)
        {
            let packet = Packet {
                segment,
                to: id.peer(),
                path,
                bytes: segment.payload_bytes + tcp.header_bytes,
            };
            let packet = self.packets.insert(packet);
            self.forward(packet, first);
        }
        self.arm(id);
    }

    fn arm(&mut self, id: EndpointId) {
        let side = &mut self.sides[id.0 as usize];
        if let Some(deadline_ns) = side.endpoint.poll_timeout() {
            if deadline_ns < side.armed_ns {
                side.armed_ns = deadline_ns;
                self.events
                    .push(Time::from_nanos(deadline_ns), Event::Timer(id));
            }
        }
    }
}

/// # Panics
/// If a world has 2³² things of one kind.
fn index(length: usize) -> u32 {
    u32::try_from(length).expect("2^32 things of one kind in a world")
}

/// A running hash of everything that happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trajectory {
    pub events: u64,
    pub hash: u64,
}

impl Trajectory {
    /// Multiply and rotate, with the 64-bit primes of xxHash: cheap, and sensitive to order.
    fn note(&mut self, time: Time, kind: u64, subject: u32) {
        const PRIMES: [u64; 2] = [0x9E37_79B1_85EB_CA87, 0xC2B2_AE3D_27D4_EB4F];
        let event = (u64::from(subject) << 2 | kind).wrapping_mul(PRIMES[1]);
        self.hash = (self.hash ^ time.as_nanos() ^ event)
            .rotate_left(31)
            .wrapping_mul(PRIMES[0]);
        self.events += 1;
    }
}
